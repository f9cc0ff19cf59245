/* plan - the best layouts of a cluster */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/mem-estimate/mem-estimate.h"
#include "lib/estimate/planner.h"
#include "lib/pipe/calibration.h"

/* "400Gbit" or "50GB", a second, in bytes; false for anything else. */
static bool parse_rate(const char *text, double *out)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {
        { "Gbit", 1e9 / 8 }, { "Mbit", 1e6 / 8 }, { "GB", 1e9 }, { "MB", 1e6 }
    };

    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (str_ends(text, units[i].unit)) {
            char *number =
                str_dupf("%.*s", (int)(strlen(text) - strlen(units[i].unit)), text);
            bool ok = str_double(number, out) && *out > 0;

            free(number);
            *out *= units[i].bytes;
            return ok;
        }
    return false;
}

static void print_json(const struct planned *p, size_t rank)
{
    struct str s = { 0 };
    const struct {
        const char *key;
        double value;
    } numbers[] = { { "seconds", p->seconds }, { "compute", p->compute },
                    { "tensor", p->tensor },   { "pipeline", p->pipeline },
                    { "data", p->data },       { "tokens_per_second", p->tokens },
                    { "mfu", p->utilisation } };

    str_addf(&s, "{\"type\":\"plan\",\"rank\":%zu,\"mesh\":{", rank);
    for (int a = 0; a < MESH_NAXES; a++)
        str_addf(&s, "%s\"%s\":%d", a ? "," : "", mesh_axis_names[a], p->mesh.size[a]);
    str_addf(&s, "},\"zero\":%d,\"recompute\":\"%s\",\"micro_batch\":%" PRIu64, p->zero,
             recompute_names[p->recompute], p->micro_batch);
    str_addf(&s, ",\"micro_batches\":%" PRIu64 ",\"memory\":%" PRIu64, p->micro_batches,
             p->memory);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        str_addf(&s, ",\"%s\":", numbers[i].key);
        str_add_double(&s, numbers[i].value);
    }
    str_addc(&s, '}');
    puts(s.s);
    str_clear(&s);
}

static void print_row(const struct planned *p, bool train)
{
    char size[32];

    printf("%3d %3d %4d", p->mesh.size[MESH_TP], p->mesh.size[MESH_PP],
           p->mesh.size[MESH_DP]);
    if (train)
        printf(" %4d %9s", p->zero, recompute_names[p->recompute]);
    printf(" %4" PRIu64 " x %-5" PRIu64 " %11s %10.4g s %10.4g", p->micro_batch,
           p->micro_batches, str_human(size, p->memory), p->seconds, p->tokens);
    if (train)
        printf(" %6.1f %%", 100 * p->utilisation);
    printf("  %2.0f %2.0f %2.0f %2.0f\n", 100 * p->compute / p->seconds,
           100 * p->tensor / p->seconds, 100 * p->pipeline / p->seconds,
           100 * p->data / p->seconds);
}

static void print_table(const struct planner_result *r, int top, bool train)
{
    printf("%3s %3s %4s%s %12s %11s %12s %10s%s  %% products, sums, pipeline, data\n",
           "tp", "pp", "dp", train ? " zero recompute" : "", "batch", "memory", "step",
           "tokens/s", train ? "      MFU" : "");
    for (size_t i = 0; i < r->n && i < (size_t)top; i++)
        print_row(&r->plan[i], train);
}

static void print_rejections(const struct planner_result *r, bool json)
{
    if (json)
        printf("{\"type\":\"summary\",\"tried\":%" PRIu64 ",\"evaluated\":%" PRIu64
               ",\"fit\":%zu,\"rejected\":{",
               r->tried, r->evaluated, r->n);
    else
        printf("%" PRIu64 " tried, %zu fit\n", r->tried, r->n);
    for (int i = 0, n = 0; i < RULES; i++) {
        if (json)
            printf("%s\"%s\":%" PRIu64, n++ ? "," : "", planner_rules[i],
                   r->rejected[i]);
        else if (r->rejected[i])
            printf("%8" PRIu64 "  %s\n", r->rejected[i], planner_rules[i]);
    }
    if (json)
        puts("}}");
}

/* The rates of GPU, or of what --gpu-mem alone describes, as they were measured: of
 * another rank by the network's where there was only one. */
static int calibrate(struct gpu *out, const struct gpu *gpu, const char *path,
                     double net, struct err *err)
{
    struct gpu g = gpu ? *gpu : (struct gpu){ .name = "measured", .link_rate = net };
    struct calibration c;

    if (calibration_read(&c, path, err) < 0)
        return -1;
    g.tflops = c.product / 1e12;
    g.achievable = c.prefill_share;
    g.memory_rate = c.memory_read * c.decode_share;
    if (c.bandwidth > 0)
        g.link_rate = c.bandwidth;
    calibration_clear(&c);
    if (g.tflops <= 0 || g.achievable <= 0 || g.memory_rate <= 0)
        return err_set(err, ERR_INPUT, "%s: a rate is 0", path);
    *out = g;
    return 0;
}

int plan_main(const char *program, int argc, char **argv)
{
    static const char *const modes[] = { "infer", "train", NULL };
    struct request_options o = REQUEST_DEFAULTS;
    struct planner_options p = { .per_node = 8, .net = 50e9 };
    const char *net = NULL, *calibration = NULL;
    struct gpu measured;
    bool json = false;
    int mode = 0, top = 5;
    const struct opt opts[] = {
        { OPT_CHOICE, '\0', "mode", &mode, "MODE", "infer or train", modes, NULL },
        { OPT_COUNT, '\0', "gpus", &p.gpus, "N", "devices in all", NULL, NULL },
        { OPT_COUNT, '\0', "gpus-per-node", &p.per_node, "N", "devices of a node", NULL,
          NULL },
        { OPT_STRING, '\0', "net", &net, "RATE",
          "of a device to other nodes: 400Gbit, 50GB", NULL, NULL },
        { OPT_STRING, '\0', "gpu", &o.gpu, "NAME", "the device, as 'gpus' names it",
          NULL, NULL },
        { OPT_SIZE, '\0', "gpu-mem", &o.gpu_memory, "SIZE", "its usable memory", NULL,
          NULL },
        { OPT_COUNT, '\0', "global-batch", &o.global_batch, "N", "sequences of a step",
          NULL, NULL },
        { OPT_U64, '\0', "seq", &o.seq, "N", "tokens of a sequence", NULL, NULL },
        { OPT_COUNT, '\0', "top", &top, "N", "layouts to print", NULL, NULL },
        { OPT_STRING, '\0', "weights", &o.weights, "TYPE", NULL, NULL, NULL },
        { OPT_CHOICE, '\0', "optimizer", &o.optimizer, "NAME", NULL, optimizer_names,
          NULL },
        { OPT_STRING, '\0', "calibration", &calibration, "FILE", NULL, NULL, NULL },
        { OPT_STRING, '\0', "family", &o.family, "FILE", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "json", &json, NULL, "print JSON, one object a line", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "plan",
        .program = program,
        .synopsis = "[OPTION]... --gpu=NAME --gpus=N MODEL",
        .summary = "Find the layouts of a cluster that fit, fastest first",
        .opts = opts,
        .min_args = 1,
        .max_args = 1,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct planner_result result;
    struct request r;
    struct err err = { 0 };
    int batch = o.global_batch;
    int status;

    if (!p.gpus)
        return cmd_usage(&cmd, "--gpus is missing");
    if (net && !parse_rate(net, &p.net))
        return cmd_usage(&cmd, "--net: '%s' is no rate such as 400Gbit or 50GB", net);
    o.global_batch = 0;
    o.runtime_given = true;
    o.runtime = p.gpus > 1 ? UINT64_C(7) << 28 : UINT64_C(3) << 28;
    if (request_open(&r, &o, mode == 1, operand[0], &err) < 0)
        return cmd_fail(&cmd, &err);
    if (calibration && !r.gpu_memory) {
        status = cmd_usage(&cmd, "--gpu-mem is missing: what fits depends on it");
        goto out;
    }
    if (!r.gpu && !calibration) {
        status = cmd_usage(&cmd, "--gpu is missing: its rates are needed");
        goto out;
    }
    p.gpu = r.gpu;
    if (calibration) {
        if (calibrate(&measured, r.gpu, calibration, p.net, &err) < 0) {
            status = cmd_fail(&cmd, &err);
            goto out;
        }
        p.gpu = &measured;
    }
    p.gpu_memory = r.gpu_memory;
    p.start = r.memory;
    if (!p.start.weights)
        p.start.weights = p.start.other;
    p.global_batch = batch ? (uint64_t)batch : mode ? (uint64_t)p.gpus : 1;
    if (planner_search(&result, r.outline.model, &p, &err) < 0) {
        status = cmd_fail(&cmd, &err);
        goto out;
    }
    if (!json)
        printf("%s: %d x %s, batch %" PRIu64 ", %" PRIu64 " tokens each\n", operand[0],
               p.gpus, p.gpu->name, p.global_batch, p.start.seq);
    if (!json && result.n)
        print_table(&result, top, mode == 1);
    for (size_t i = 0; json && i < result.n && i < (size_t)top; i++)
        print_json(&result.plan[i], i);
    print_rejections(&result, json);
    status = cmd_finish(&cmd, result.n ? EXIT_SUCCESS : EXIT_FAILURE);
    planner_result_clear(&result);
out:
    request_close(&r);
    return status;
}
