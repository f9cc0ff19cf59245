/* plan - the fastest layouts of a cluster that fit */
#define _DEFAULT_SOURCE
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/mem-estimate/cluster.h"
#include "cmd/mem-estimate/emit.h"
#include "cmd/mem-estimate/mem-estimate.h"
#include "cmd/mem-estimate/planrequests.h"
#include "cmd/picture.h"
#include "cmd/table.h"
#include "lib/base/mem.h"
#include "lib/estimate/habits.h"
#include "lib/estimate/planner.h"

/* Published speeds as a share of predicted ones, of most sources of the bench
 * (tests/bench/accuracy.txt). */
static const double SLOWEST = 0.8, FASTEST = 1.0;

static void print_json(const struct planned *p, size_t rank,
                       const struct planner_result *result,
                       const struct planner_options *o)
{
    struct str s = { 0 };
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        { "seconds", p->step.seconds },   { "compute", p->step.compute },
        { "tensor", p->step.tensor },     { "exchange", p->step.all_to_all },
        { "pipeline", p->step.pipeline }, { "data", p->step.data },
        { "host", p->step.host },         { "tokens_per_second", p->tokens },
        { "mfu", p->utilisation }
    };

    str_addf(&s, "{\"type\":\"plan\",\"rank\":%zu,\"mesh\":{", rank);
    for (int a = 0; a < MESH_NAXES; a++)
        str_addf(&s, "%s\"%s\":%d", a ? "," : "", mesh_axis_names[a],
                 a == MESH_EP ? planned_ep(p) : p->mesh.size[a]);
    str_addf(&s, "},\"zero\":%d,\"recompute\":\"%s\",\"micro_batch\":%" PRIu64, p->zero,
             recompute_names[p->recompute], p->micro_batch);
    str_addf(&s,
             ",\"micro_batches\":%" PRIu64 ",\"schedule\":\"%s\",\"model_chunks\":%d,"
             "\"sequence_parallel\":%s,\"memory\":%" PRIu64,
             p->micro_batches, order_names[p->order.order], p->order.chunks,
             p->sequence_parallel ? "true" : "false", p->memory);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        str_addf(&s, ",\"%s\":", numbers[i].key);
        str_add_double(&s, numbers[i].value);
    }
    str_addf(&s, ",\"hsdp\":%d,\"offload\":\"%s\"", p->hsdp,
             offload_names[result->offload]);
    str_addf(&s, ",\"etp\":%d", p->etp ? p->etp : p->mesh.size[MESH_TP]);
    str_addf(&s, ",\"tight\":%s", result->tight ? "true" : "false");
    if (o->requests.tokens)
        serving_add_json(&s, p, o);
    str_addc(&s, '}');
    puts(s.s);
    str_clear(&s);
}

/* The table's axes: tp, dp, pp and those that some layout uses. */
static void find_axes(const struct planner_result *r, bool shown[MESH_NAXES])
{
    for (int a = 0; a < MESH_NAXES; a++) {
        shown[a] = a == MESH_TP || a == MESH_DP || a == MESH_PP;
        for (size_t i = 0; i < r->n; i++)
            shown[a] |= r->plan[i].mesh.size[a] > 1 ||
                        (a == MESH_EP && planned_ep(&r->plan[i]) > 1);
    }
}

static void add_row(struct table *t, const struct planned *p,
                    const bool shown[MESH_NAXES], const struct planner_options *o)
{
    bool train = o->start.train;

    for (int a = 0; a < MESH_NAXES; a++)
        if (shown[a] && a == MESH_EP && p->etp) /* of so many tensor ranks each */
            table_addf(t, "%d/%d", planned_ep(p), p->etp);
        else if (shown[a])
            table_addf(t, "%d", p->mesh.size[a]);
    if (train) {
        table_addf(t, p->hsdp ? "%d/%d" : "%d", p->zero, p->hsdp);
        table_add(t, recompute_names[p->recompute]);
        if (p->mesh.size[MESH_PP] > 1)
            table_addf(t, "%s%s%.0d", order_names[p->order.order],
                       p->order.chunks > 1 ? " x" : "",
                       p->order.chunks > 1 ? p->order.chunks : 0);
        else
            table_add(t, "-");
    }
    if (o->requests.tokens) {
        serving_add_row(t, p, o);
        return;
    }
    table_addf(t, "%" PRIu64 " x %" PRIu64, p->micro_batch, p->micro_batches);
    table_addf(t, "%.2f", (double)p->memory / 1024 / 1024 / 1024);
    table_addf(t, "%.4g", p->step.seconds);
    table_addf(t, "%.4g", p->tokens);
    table_addf(t, "%.1f", 100 * p->utilisation);
}

/* Where the time of a step of P goes. */
static void print_shares(const struct planned *p)
{
    static const char *const names[] = { "products", "tp", "sp and ep",
                                         "pp",       "dp", "host" };
    const double parts[] = { p->step.compute,  p->step.tensor, p->step.all_to_all,
                             p->step.pipeline, p->step.data,   p->step.host };
    size_t n = sizeof(parts) / sizeof(*parts) - (p->step.host <= 0);

    printf("time of the first:");
    for (size_t i = 0; i < n; i++)
        printf("%s %s %.0f %%", i ? "," : "", names[i],
               100 * parts[i] / p->step.seconds);
    putchar('\n');
}

static void print_table(const struct planner_result *r, const struct planner_options *o)
{
    bool train = o->start.train;
    const struct column *behind = o->requests.tokens ? serving_columns : NULL;
    static const struct column of_train[] = { { "zero", 1, 4, true, 0, false },
                                              { "recompute", 1, 9, true, 0, false },
                                              { "schedule", 1, 15, true, 0, false } },
                               last[] = { { "batch", 1, 9, true, 0, false },
                                          { "GiB", 1, 7, true, 0, false },
                                          { "step s", 1, 9, true, 0, false },
                                          { "tokens/s", 1, 9, true, 1, false },
                                          { "MFU %", 1, 5, true, 2, false } };
    struct column column[MESH_NAXES + 10];
    bool shown[MESH_NAXES];
    struct table *t;
    int n = 0;

    find_axes(r, shown);
    for (int a = 0; a < MESH_NAXES; a++)
        if (shown[a]) {
            column[n] = (struct column){
                .head = mesh_axis_names[a], .gap = 1, .width = n ? 4 : 5, .right = true
            };
            n++;
        }
    for (int i = 0; i < 3 && train; i++)
        column[n++] = of_train[i];
    for (int i = 0; i < (behind ? SERVING_COLUMNS : 5); i++)
        column[n++] = behind ? behind[i] : last[i];
    t = table_new(column, n);
    for (size_t i = 0; i < r->n; i++)
        add_row(t, &r->plan[i], shown, o);
    table_print(t);
    print_shares(&r->plan[0]);
}

static const char *const choice_keys[CHOICES] = { "tp",          "sp",      "ep",
                                                  "pp",          "zero",    "recompute",
                                                  "micro_batch", "schedule" };

/* P's choice as text. */
static char *choice_dup(const struct planned *p, enum planner_choice choice)
{
    switch (choice) {
    case CHOICE_TP:
        return str_dupf("%d", p->mesh.size[MESH_TP]);
    case CHOICE_SP:
        return str_dupf("%d", p->mesh.size[MESH_SP]);
    case CHOICE_EP:
        return str_dupf(p->etp ? "%d/%d" : "%d", planned_ep(p), p->etp);
    case CHOICE_PP:
        return str_dupf("%d", p->mesh.size[MESH_PP]);
    case CHOICE_ZERO:
        return str_dupf("%d", p->zero);
    case CHOICE_RECOMPUTE:
        return xstrdup(recompute_names[p->recompute]);
    case CHOICE_SIZE:
        return str_dupf("%" PRIu64, p->micro_batch);
    case CHOICE_ORDER:
    case CHOICES:
        break;
    }
    return p->order.chunks > 1
               ? str_dupf("%s x%d", order_names[p->order.order], p->order.chunks)
               : xstrdup(order_names[p->order.order]);
}

/* Each choice, and how much longer the best plan with another takes: "tp 4 +20.4 %; pp
 * 2 +20.4 %".  The caller frees it. */
static char *others_dup(const struct planner_result *r)
{
    struct str items = { 0 };

    str_add(&items, "");
    for (int c = 0; c < CHOICES && r->n; c++) {
        const struct planned *p = &r->other[c];
        char *other;

        if (p->step.seconds <= 0)
            continue;
        other = choice_dup(p, (enum planner_choice)c);
        str_addf(&items, "%s%s %s", items.len ? "; " : "", choice_keys[c], other);
        if (p->late > r->plan[0].late)
            str_add(&items, " misses the times");
        else
            str_addf(&items, " %+.1f %%",
                     100 * (p->step.seconds / r->plan[0].step.seconds - 1));
        free(other);
    }
    return str_steal(&items);
}

static void print_others_json(const struct planner_result *r)
{
    for (int c = 0; c < CHOICES && r->n; c++) {
        const struct planned *p = &r->other[c];
        char *mine, *other;

        if (p->step.seconds <= 0)
            continue;
        mine = choice_dup(&r->plan[0], (enum planner_choice)c);
        other = choice_dup(p, (enum planner_choice)c);
        printf("{\"type\":\"other\",\"choice\":\"%s\",\"best\":\"%s\",\"other\":\"%s\","
               "\"seconds\":%.9g}\n",
               choice_keys[c], mine, other, p->step.seconds);
        free(mine);
        free(other);
    }
}

static void summarise_json(const struct planner_result *r, const char *assumed,
                           const char *codes, const char *ways)
{
    struct str s = { 0 };

    str_addf(&s,
             "{\"type\":\"summary\",\"tried\":%" PRIu64 ",\"evaluated\":%" PRIu64
             ",\"simulated\":%" PRIu64 ",\"fit\":%" PRIu64 ",\"rejected\":{",
             r->tried, r->evaluated, r->simulated, r->fit);
    for (int i = 0; i < RULES; i++)
        str_addf(&s, "%s\"%s\":%" PRIu64, i ? "," : "", planner_rules[i],
                 r->rejected[i]);
    str_add(&s, "},\"assumed\":");
    str_add_json(&s, assumed);
    str_add(&s, ",\"rejections\":[");
    for (int i = 0; i < RULES; i++)
        str_addf(&s, "%s{\"code\":\"%s\",\"count\":%" PRIu64 ",\"text\":\"%s\"}",
                 i ? "," : "", planner_codes[i], r->rejected[i], planner_rules[i]);
    str_addf(&s, "],\"assumptions\":[%s]", codes);
    if (ways) {
        str_add(&s, ",\"ways_out\":");
        report_add_lines(&s, ways);
    }
    str_addc(&s, '}');
    puts(s.s);
    str_clear(&s);
}

static void summarise(const struct planner_result *r)
{
    static const struct column columns[] = { { NULL, 0, 8, true, 0, false },
                                             { NULL, 2, 0, false, 0, true } };
    struct table *t = table_new(columns, sizeof(columns) / sizeof(*columns));

    printf("%" PRIu64 " tried, %" PRIu64 " fit, %" PRIu64 " pipelines simulated\n",
           r->tried, r->fit, r->simulated);
    for (int i = 0; i < RULES; i++)
        if (r->rejected[i]) {
            table_addf(t, "%" PRIu64, r->rejected[i]);
            table_add(t, planner_rules[i]);
        }
    table_print(t);
}

/* Choices that the options fix. */
struct kept {
    const char *mesh;
    int axis[MESH_NAXES]; /* 0: not fixed */
    const char *recompute;
    int zero, schedule, chunks, micro_batch, etp;
    double margin; /* percent of the memory to leave free */
    bool zero_given, schedule_given, flash_given, runtime_given, margin_given,
        offload_given;
};

/* Parses "none,full" to a set. */
static int keep_recompute(unsigned *set, const char *text, struct err *err)
{
    char *words = xstrdup(text), *rest = words;
    int ret = 0;

    *set = 0;
    for (char *word; ret == 0 && (word = strsep(&rest, ","));) {
        struct recompute_plan plan;

        ret = recompute_parse(&plan, word, err);
        if (ret == 0 && plan.layers)
            ret =
                err_set(err, ERR_USAGE,
                        "--recompute %s: a plan does not try numbers of layers", text);
        if (ret == 0)
            *set |= 1U << plan.kind;
    }
    free(words);
    return ret;
}

static int keep(struct planner_options *p, const struct kept *k,
                enum framework framework, bool train, struct err *err)
{
    if (k->mesh && mesh_parse(p->size, k->mesh, err) < 0)
        return -1;
    for (int a = 0; a < MESH_NAXES; a++) {
        if (k->axis[a] && p->size[a] && k->axis[a] != p->size[a])
            return err_set(err, ERR_USAGE, "--%s %d contradicts --mesh %s",
                           mesh_axis_names[a], k->axis[a], k->mesh);
        p->size[a] = k->axis[a] ? k->axis[a] : p->size[a];
    }
    if (k->zero_given && (k->zero < 0 || k->zero > 3))
        return err_set(err, ERR_USAGE, "--zero %d: no stage from 0 to 3", k->zero);
    if (!(k->margin >= 0 && k->margin < 100))
        return err_set(err, ERR_USAGE, "--margin %g: not from 0 to below 100",
                       k->margin);
    p->zero = k->zero_given ? k->zero : -1;
    if (k->recompute && keep_recompute(&p->recompute, k->recompute, err) < 0)
        return -1;
    if (train && k->schedule_given && !(abilities[framework].orders >> k->schedule & 1))
        return err_set(err, ERR_USAGE, "--schedule %s: %s does not have it",
                       order_names[k->schedule], framework_names[framework]);
    if (train && k->zero_given && !(abilities[framework].zero >> k->zero & 1))
        return err_set(err, ERR_USAGE, "--zero %d: %s does not have it", k->zero,
                       framework_names[framework]);
    p->order = k->schedule_given ? k->schedule : -1;
    p->chunks = k->chunks;
    if (k->etp && !train)
        return err_set(err, ERR_USAGE, "--etp is an option of training");
    if (k->etp && framework != FRAMEWORK_NONE && framework != FRAMEWORK_MEGATRON)
        return err_set(err, ERR_USAGE, "--etp %d: %s does not have it", k->etp,
                       framework_names[framework]);
    p->etp = k->etp;
    p->micro_batch = (uint64_t)k->micro_batch;
    return 0;
}

__attribute__((format(printf, 3, 4))) static void
note(struct request *r, const char *code, const char *fmt, ...)
{
    char what[160];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    assumption_add(&r->assumed, &r->codes, code, what);
}

/* Sets the fixed part of the search from R, and notes what is assumed. */
static void set_start(struct planner_options *p, struct request *r, int batch,
                      const struct kept *kept)
{
    bool train = r->memory.train;
    bool ours = train && r->memory.framework == FRAMEWORK_TP_RUN;

    p->gpu_memory = (uint64_t)((double)r->gpu_memory * (1 - kept->margin / 100));
    p->all_memory = r->gpu_memory;
    p->start = r->memory;
    p->start.inflight = NULL;
    p->start.nstages = 0; /* the planner has stages of one chunk */
    p->start.across = 0;
    if (!p->start.weights && (!train || p->start.lora_rank))
        p->stored = r->stored;
    if (!p->start.weights && !p->stored)
        p->start.weights = p->start.other;
    p->searches_offload = train && !ours && !kept->offload_given;
    p->global_batch = batch ? (uint64_t)batch : train ? (uint64_t)p->gpus : 1;
    if (!batch && kept->micro_batch) /* of each replica, of which there are so many */
        p->global_batch *= (uint64_t)kept->micro_batch;
    if (!batch)
        note(r, "global_batch", "global batch %" PRIu64, p->global_batch);
    if (!ours)
        note(r, "fragmentation", "fragmentation %g %%", 100 * p->start.fragmentation);
    if (!kept->margin_given)
        note(r, "margin", "%g %% of the memory left free", kept->margin);
    if (!kept->runtime_given)
        note(r, "runtime", "runtime %.2f GiB", (double)p->start.runtime / (1 << 30));
    if (train && !r->memory.framework)
        note(r, "framework", "any layout (--framework NAME: what that runs)");
    if (train && !ours && !kept->flash_given)
        note(r, "flash", "flash attention");
    if (train && p->gpus > 1 && !ours)
        note(r, "sequence_parallel",
             "activations that tp replicates sharded by tokens");
}

/* Counts such as 15T, 300B, 1.5M: powers of 1000. */
static int parse_run(struct whole_run *w, struct err *err)
{
    static const char units[] = "KMBT";
    size_t n = w->text ? strlen(w->text) : 0;
    const char *unit = n ? strchr(units, w->text[n - 1]) : NULL;
    char *number;
    bool ok;

    if (!w->text)
        return w->price > 0 || w->watts > 0
                   ? err_set(err, ERR_USAGE,
                             "--price and --watts: are of --train-tokens")
                   : 0;
    number = xstrndup(w->text, n - (unit != NULL));
    ok = str_double(number, &w->tokens) && w->tokens > 0 && w->tokens < 1e15;
    free(number);
    for (long i = unit ? unit - units : -1; i >= 0; i--)
        w->tokens *= 1000;
    if (!ok || w->price < 0 || w->watts < 0)
        return err_set(
            err, ERR_USAGE,
            "--train-tokens, --price, --watts: '%s' is no count such as 15T, "
            "300B or 1.5M, or a rate is negative",
            w->text);
    return 0;
}

static double run_days(const struct whole_run *w, const struct planned *p)
{
    return w->tokens / p->tokens / 86400;
}

static void print_run(const struct whole_run *w, const struct planned *p, int gpus)
{
    double days = run_days(w, p), hours = days * 24 * gpus;

    printf("%s tokens: %.4g days (%.3g to %.3g), %.4g device hours", w->text, days,
           days / FASTEST, days / SLOWEST, hours);
    if (w->price > 0)
        printf(", %.4g of money (to %.3g)", hours * w->price,
               hours * w->price / SLOWEST);
    if (w->watts > 0)
        printf(", %.4g kWh (to %.3g)", hours * w->watts / 1000,
               hours * w->watts / 1000 / SLOWEST);
    putchar('\n');
}

static void print_run_json(const struct whole_run *w, const struct planned *p, int gpus)
{
    double days = run_days(w, p), hours = days * 24 * gpus;

    printf("{\"type\":\"run\",\"tokens\":%.9g,\"days\":%.9g,\"days_least\":%.9g,"
           "\"days_most\":%.9g,\"device_hours\":%.9g",
           w->tokens, days, days / FASTEST, days / SLOWEST, hours);
    if (w->price > 0)
        printf(",\"price\":%.9g", hours * w->price);
    if (w->watts > 0)
        printf(",\"kwh\":%.9g", hours * w->watts / 1000);
    puts("}");
}

static void print(const struct plan_picture *pic, bool json)
{
    const struct planner_options *p = pic->options;
    const struct planner_result *result = pic->result;
    const struct request *r = pic->request;

    if (!json) {
        char *line =
            str_dupf("%s: %d x %s, batch %" PRIu64 ", %" PRIu64
                     " tokens each, weights %s, products %s",
                     r->path, p->gpus, pic->device, p->global_batch, p->start.seq,
                     r->memory.weights ? r->memory.weights->name : "as stored",
                     gpu_rate_names[r->rate]);

        cmd_puts(line);
        free(line);
        report_items("assumed:", str_text(&r->assumed));
        if (result->n)
            print_table(result, p);
        if (result->tight)
            puts("tight: these leave less than the margin of the memory free, and none "
                 "leaves more");
        if (result->n && p->requests.tokens)
            serving_print(&result->plan[0], p);
        if (*pic->others)
            report_items("other choices take longer:", pic->others);
        if (result->n && pic->run->text)
            print_run(pic->run, &result->plan[0], p->gpus);
        summarise(result);
        if (pic->ways && *pic->ways)
            printf("what would fit:\n%s", pic->ways);
        return;
    }
    for (size_t i = 0; i < result->n; i++)
        print_json(&result->plan[i], i, result, p);
    print_others_json(result);
    if (result->n && pic->run->text)
        print_run_json(pic->run, &result->plan[0], p->gpus);
    summarise_json(result, str_text(&r->assumed), str_text(&r->codes), pic->ways);
}

/* What would fit of one replica a device, or of one over all of a node: "--lora 16",
 * and so on, a line each, with the layout.  The caller frees it; NULL: nothing. */
static char *plan_ways_dup(struct request *r, const struct planner_options *p)
{
    int size[MESH_NAXES] = { 0 };
    struct str out = { 0 };
    struct err no;
    struct mesh was = r->memory.mesh;
    char *ways, *line;

    for (int a = 0; a < MESH_NAXES; a++)
        size[a] = p->size[a] ? p->size[a] : 1;
    if (r->memory.train && !p->size[MESH_DP])
        size[MESH_DP] = p->gpus;
    else if (!r->memory.train && !p->size[MESH_TP])
        size[MESH_TP] = p->gpus < p->machine.per_node ? p->gpus : p->machine.per_node;
    if (mesh_set(&r->memory.mesh, size, NULL, &no) < 0)
        return NULL;
    r->memory.zero = r->memory.train && r->memory.mesh.nranks > 1 ? 3 : 0;
    r->batch.size = p->micro_batch ? p->micro_batch : 1;
    r->batch.number = r->batch.global = 0;
    ways = request_settle(r, &no) == 0 ? ways_out_dup(r) : NULL;
    for (char *rest = ways; rest && (line = strsep(&rest, "\n")) && *line;) {
        bool whole = strstr(line, " ranks: ") || strstr(line, " rank: ");

        if (!whole)
            str_addf(&out, "--%s %d%s ", r->memory.train ? "dp" : "tp",
                     size[r->memory.train ? MESH_DP : MESH_TP],
                     r->memory.zero ? " --zero 3" : "");
        str_addf(&out, "%s\n", line);
    }
    free(ways);
    r->memory.mesh = was;
    return out.s ? str_steal(&out) : NULL;
}

/* Prints the result: as a script of FORMAT, or for -1 as a table or JSON.  Draws it. */
static int answer(const struct cmd *cmd, const struct plan_picture *pic, int format,
                  bool json)
{
    const struct planner_result *result = pic->result;
    struct str script = { 0 };
    struct err err = { 0 };

    if (format < 0) {
        print(pic, json);
    } else if (!result->n) {
        err_set(&err, ERR_NO, "nothing fits; without --emit, plan prints the reasons");
    } else {
        if (emit_plan(&script, &result->plan[0], pic->options, pic->request,
                      (enum emit_format)format, &err) < 0)
            return cmd_fail(cmd, &err);
        fputs(str_text(&script), stdout);
        str_clear(&script);
    }
    if (pic->path && !err.kind && plan_plot(pic, &err) < 0)
        return cmd_fail(cmd, &err);
    return err.kind ? cmd_fail(cmd, &err)
                    : cmd_finish(cmd, result->n ? EXIT_SUCCESS : EXIT_FAILURE);
}

int plan_main(const char *program, int argc, char **argv)
{
    static const char *const modes[] = { "infer", "train", NULL };
    struct request_options o = REQUEST_DEFAULTS;
    struct cluster_options cluster = { 0 };
    struct serving_options serving = { 0 };
    struct kept kept = { .margin = 5 };
    struct planner_options p;
    struct whole_run whole = { NULL, 0, 0, 0 };
    bool json = false, emitting = false;
    const char *plot = NULL, *limit = NULL;
    double seconds = 0;
    const char *command = picture_command(program, argc, argv);
    int mode = 0, format = 0, cpus = 0;
    const struct opt opts[] = {
        { OPT_CHOICE, '\0', "mode", &mode, "MODE", "infer or train", modes, NULL },
        { OPT_COUNT, '\0', "gpus", &p.gpus, "N", "devices in all", NULL, NULL },
        { OPT_COUNT, '\0', "gpus-per-node", &cluster.per_node, "N", NULL, NULL, NULL },
        { OPT_STRING, '\0', "net", &cluster.net, "RATE",
          "of a device to other nodes: 400Gbit, 50GB", NULL, NULL },
        { OPT_STRING, '\0', "gpu", &o.gpu, "NAME", "the device, as 'gpus' names it",
          NULL, NULL },
        { OPT_STRING, '\0', "gpu-file", &o.gpu_file, "FILE", NULL, NULL, NULL },
        { OPT_SIZE, '\0', "gpu-mem", &o.gpu_memory, "SIZE", NULL, NULL,
          &o.memory_given },
        { OPT_COUNT, '\0', "global-batch", &o.global_batch, "N", "sequences of a step",
          NULL, NULL },
        { OPT_TOKENS, '\0', "seq", &o.seq, "N", NULL, NULL, &o.seq_given },
        { OPT_COUNT, '\0', "top", &p.top, "N", NULL, NULL, NULL },
        { OPT_CHOICE, '\0', "emit", &format, "FORMAT",
          "write the best: sh, make, slurm; megatron ...", emit_names, &emitting },
        { OPT_FLAG, '\0', "json", &json, NULL, "print JSON, one object a line", NULL,
          NULL },
        { OPT_COUNT, '\0', "cpus-per-task", &cpus, "N", NULL, NULL, NULL },
        { OPT_STRING, '\0', "time", &limit, "TIME", NULL, NULL, NULL },
        { OPT_STRING, '\0', "plot", &plot, "FILE", NULL, NULL, NULL },
        { OPT_STRING, '\0', "mesh", &kept.mesh, "SPEC", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "micro-batch", &kept.micro_batch, "N", NULL, NULL, NULL },
        { OPT_INT, '\0', "zero", &kept.zero, "STAGE", NULL, NULL, &kept.zero_given },
        { OPT_STRING, '\0', "recompute", &kept.recompute, "WHAT", NULL, recompute_names,
          NULL },
        { OPT_CHOICE, '\0', "schedule", &kept.schedule, "NAME", NULL, order_names,
          &kept.schedule_given },
        { OPT_COUNT, '\0', "model-chunks", &kept.chunks, "N", NULL, NULL, NULL },
        { OPT_RANK, '\0', "lora", &o.lora, "RANK[:NAMES]", NULL, lora_rank, NULL },
        { OPT_STRING, '\0', "freeze", &o.freeze, "NAMES", NULL, NULL, NULL },
        { OPT_STRING, '\0', "train-only", &o.only, "NAMES", NULL, NULL, NULL },
        { OPT_STRING, '\0', "modules-to-save", &o.saved, "NAMES", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "dora", &o.dora, NULL, NULL, NULL, NULL },
        { OPT_DOUBLE, '\0', "margin", &kept.margin, "PERCENT", NULL, NULL,
          &kept.margin_given },
        { OPT_CHOICE, '\0', "flash", &o.flash, "on|off|2", NULL, flash_names,
          &kept.flash_given },
        { OPT_STRING, '\0', "weights", &o.weights, "TYPE", NULL, weight_words, NULL },
        { OPT_STRING, '\0', "compute", &o.compute, "TYPE", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "tp", &kept.axis[MESH_TP], "N", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "pp", &kept.axis[MESH_PP], "N", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "dp", &kept.axis[MESH_DP], "N", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "ep", &kept.axis[MESH_EP], "N", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "sp", &kept.axis[MESH_SP], "N", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "etp", &kept.etp, "N", NULL, NULL, NULL },
        REQUEST_INFER_OPTIONS(o),
        SERVING_OPTIONS(serving),
        { OPT_CHOICE, '\0', "optimizer", &o.optimizer, "NAME", NULL, optimizer_names,
          NULL },
        { OPT_CHOICE, '\0', "master", &o.master, "f32|none", NULL, optimizer_masters,
          NULL },
        { OPT_STRING, '\0', "grad-dtype", &o.grad_dtype, "TYPE", NULL, NULL, NULL },
        { OPT_CHOICE, '\0', "offload", &o.offload, "WHAT", NULL, offload_names,
          &kept.offload_given },
        { OPT_STRING, '\0', "train-tokens", &whole.text, "N", NULL, NULL, NULL },
        { OPT_DOUBLE, '\0', "price", &whole.price, "AMOUNT", NULL, NULL, NULL },
        { OPT_DOUBLE, '\0', "watts", &whole.watts, "W", NULL, NULL, NULL },
        { OPT_STRING, '\0', "link", &cluster.link, "RATE", NULL, NULL, NULL },
        { OPT_STRING, '\0', "host-bandwidth", &cluster.host_bandwidth, "RATE", NULL,
          NULL, NULL },
        { OPT_COUNT, '\0', "hsdp", &o.hsdp, "N", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "eager", &o.eager, NULL, NULL, NULL, NULL },
        { OPT_FLAG, '\0', "fused-loss", &o.fused_loss, NULL, NULL, NULL, NULL },
        { OPT_FLAG, '\0', "dropout", &o.dropout, NULL, NULL, NULL, NULL },
        { OPT_CHOICE, '\0', "framework", &o.framework, "NAME", NULL, framework_names,
          NULL },
        { OPT_STRING, '\0', "config", &o.config, "FILE", NULL, NULL, NULL },
        { OPT_DOUBLE, '\0', "fragmentation", &o.fragmentation, "PERCENT", NULL, NULL,
          &o.fragmentation_given },
        { OPT_STRING, '\0', "calibration", &cluster.calibration, "FILE", NULL, NULL,
          NULL },
        { OPT_SIZE, '\0', "runtime", &o.runtime, "SIZE", NULL, NULL, &o.runtime_given },
        { OPT_STRING, '\0', "family", &o.family, "FILE", NULL, NULL, NULL },
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
    struct planner_result result;
    char *others, *ways = NULL;
    struct request r;
    struct err err = { 0 };
    char **operand;
    int batch, named, status;

    planner_options_init(&p);
    operand = cmd_parse(&cmd, argc, argv);
    o.gpu = request_gpu_name(o.gpu, &named);
    if (named && p.gpus && named != p.gpus)
        return cmd_usage(&cmd, "--gpus %d contradicts --gpu %dx%s", p.gpus, named,
                         o.gpu);
    if (named)
        p.gpus = named;
    if (!p.gpus)
        return cmd_usage(&cmd, "--gpus is missing");
    if (plot && (status = picture_check(&cmd, "--plot", plot)) != 0)
        return status;
    if ((cpus || limit) && (!emitting || format != EMIT_SLURM))
        return cmd_usage(&cmd, "%s: is of --emit slurm",
                         cpus ? "--cpus-per-task" : "--time");
    if (limit && (!str_duration(limit, &seconds) || seconds <= 0 || seconds > 1e9))
        return cmd_usage(&cmd, "--time: '%s' is no time such as 90m, 8h or 2d", limit);
    if (emitting && json)
        return cmd_usage(&cmd, "--emit and --json: one of them");
    if (emitting && emit_framework((enum emit_format)format)) {
        if (o.framework && o.framework != (int)emit_framework((enum emit_format)format))
            return cmd_usage(&cmd, "--emit %s and --framework %s: one of them",
                             emit_names[format], framework_names[o.framework]);
        o.framework = emit_framework((enum emit_format)format);
    }
    if (serving_set(&p, &o, &serving, mode == 1, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (p.requests.tokens && kept.micro_batch)
        return cmd_usage(&cmd, "--micro-batch: requests are dealt over the stages");
    batch = o.global_batch;
    o.global_batch = 0;
    o.margin = kept.margin;
    o.micro_batch = o.micro_batches = 1; /* the search sets them */
    if (mode == 0) {                     /* request_open refuses them */
        o.zero = kept.zero;
        o.recompute = kept.recompute;
    }
    kept.runtime_given = o.runtime_given;
    if (!o.runtime_given)
        o.runtime = default_runtime(p.gpus);
    o.runtime_given = true;
    if (parse_run(&whole, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (whole.text && mode == 0)
        return cmd_usage(&cmd, "--train-tokens: is an option of training");
    if (keep(&p, &kept, (enum framework)o.framework, mode == 1, &err) < 0 ||
        request_open(&r, &cmd, &o, mode == 1, operand[0], &err) < 0)
        return cmd_fail(&cmd, &err);
    r.job.cpus = cpus;
    r.job.minutes = (uint64_t)ceil(seconds / 60);
    if (p.requests.tokens && request_is_encoder(&r)) {
        status = cmd_usage(&cmd, "--prompt-tokens: %s generates nothing", r.path);
        goto out;
    }
    if (cluster.calibration && !r.gpu_memory) {
        status = cmd_usage(&cmd, "--gpu-mem is missing: what fits depends on it");
        goto out;
    }
    if (r.measured && cluster.calibration) {
        status = cmd_usage(&cmd, "--gpu-file and --calibration: one of them");
        goto out;
    }
    cluster.device = r.measured;
    if (!r.gpu && !cluster.calibration && !r.measured) {
        status = cmd_usage(&cmd, "%s: its rates are needed",
                           o.gpu ? "--gpu here: the device is not in the list of 'gpus'"
                                 : "--gpu is missing");
        goto out;
    }
    set_start(&p, &r, batch, &kept);
    cluster.older = o.flash != 0;
    cluster.experts = r.memory.train && planner_has_experts(r.summary.model);
    cluster.offload = o.offload != OFFLOAD_NONE || cluster.host_bandwidth;
    if (cluster_machine(&p.machine, &cluster, r.gpu, r.rate, &r.assumed, &r.codes,
                        &err) < 0 ||
        planner_search(&result, r.summary.model, &p, &err) < 0) {
        status = cmd_fail(&cmd, &err);
        goto out;
    }
    if (!result.n && result.almost) { /* with less than the margin left */
        p.gpu_memory = r.gpu_memory;
        planner_result_clear(&result);
        if (planner_search(&result, r.summary.model, &p, &err) < 0) {
            status = cmd_fail(&cmd, &err);
            goto out;
        }
        result.tight = result.n > 0;
        if (!result.tight)
            p.gpu_memory = (uint64_t)((double)r.gpu_memory * (1 - kept.margin / 100));
    }
    /* where nothing fits, the ways out are from what was asked for */
    if (result.n)
        offload_set(&r.memory, result.offload);
    if (result.offload != offload_word(&p.start) && result.n) {
        note(&r, "offload", "--offload %s, as nothing fits without",
             offload_names[result.offload]);
        offload_set(&p.start, result.offload);
    }
    others = others_dup(&result);
    if (!result.n) {
        r.runtime_follows |= !kept.runtime_given;
        ways = plan_ways_dup(&r, &p);
    }
    status = answer(&cmd,
                    &(struct plan_picture){ .path = plot,
                                            .command = command,
                                            .device = r.gpu        ? r.gpu->name
                                                      : r.measured ? r.measured->name
                                                                   : "measured",
                                            .options = &p,
                                            .result = &result,
                                            .others = others,
                                            .run = &whole,
                                            .ways = ways,
                                            .request = &r },
                    emitting ? (int)format : -1, json);
    planner_result_clear(&result);
    free(others);
    free(ways);
out:
    request_close(&r);
    return status;
}
