/* solve - the largest batch or context that fits, or the fewest ranks */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/mem-estimate/mem-estimate.h"

enum solve_for { FOR_BATCH, FOR_SEQ, FOR_GPUS };
static const char *const solve_names[] = { "batch", "seq", "gpus", NULL };

/* Does R fit, its layout being possible?  *peak becomes the largest rank's total. */
static bool fits(struct request *r, uint64_t *peak)
{
    struct memory_estimate e = { 0 };
    struct err err = { 0 };
    char *obstacles = request_obstacles_dup(r);
    bool ok = !*obstacles && request_settle(r, &err) == 0 &&
              request_estimate(r, &e, &err) == 0;

    free(obstacles);
    if (!ok)
        return false;
    *peak = e.peak->total;
    ok = request_fits(r, &e);
    memory_estimate_clear(&e);
    return ok;
}

/* The largest value of *what, at most LIMIT, with which R fits, 0 when there is none;
 * bytes grow with it.  *what is as it was afterwards. */
static uint64_t largest(struct request *r, uint64_t *what, uint64_t limit)
{
    uint64_t was = *what, low = 0, high = 1, peak;

    while (high <= limit) { /* double until it does not fit, then halve the gap */
        *what = high;
        if (!fits(r, &peak))
            break;
        low = high;
        high *= 2;
    }
    if (high > limit)
        high = limit + 1;
    while (low + 1 < high) {
        *what = low + (high - low) / 2;
        if (fits(r, &peak))
            low = *what;
        else
            high = *what;
    }
    *what = was;
    return low;
}

/* The fewest ranks of one tp x pp (and, in training, dp under ZeRO-3) with which R
 * fits: *best is their mesh.  False when LIMIT ranks do not suffice. */
static bool fewest(struct request *r, int limit, struct mesh *best)
{
    struct mesh was = r->memory.mesh;
    int zero = r->memory.zero;
    bool found = false;
    uint64_t peak;

    for (int n = 1; n <= limit && !found; n++)
        for (int tp = n; tp >= 1 && !found; tp--)
            for (int pp = 1; pp <= n / tp && !found; pp++) {
                int dp = n / tp / pp;
                int size[MESH_NAXES] = {
                    [MESH_TP] = tp, [MESH_PP] = pp, [MESH_DP] = dp
                };
                struct err e = { 0 };

                if (tp * pp * dp != n || (dp > 1 && !r->memory.train) ||
                    mesh_set(&r->memory.mesh, size, NULL, &e) < 0)
                    continue;
                r->memory.zero = dp > 1 ? 3 : zero;
                found = fits(r, &peak);
                *best = r->memory.mesh;
            }
    r->memory.mesh = was;
    r->memory.zero = zero;
    return found;
}

/* ---- ways out ---- */

static void try_way(struct str *out, struct request *r, const char *text)
{
    uint64_t peak;
    char size[32];

    if (fits(r, &peak))
        str_addf(out, "%s: %s\n", text, str_human(size, peak));
}

static void try_training(struct str *out, struct request *r)
{
    struct memory_options was = r->memory;

    if (r->memory.recompute != RECOMPUTE_FULL) {
        r->memory.recompute = RECOMPUTE_FULL;
        try_way(out, r, "--recompute full");
        r->memory = was;
    }
    if (r->memory.zero < 3 && r->memory.mesh.nranks > r->memory.mesh.size[MESH_TP]) {
        r->memory.zero = 3;
        try_way(out, r, "--zero 3");
        r->memory = was;
    }
    if (r->memory.offload == OFFLOAD_NONE) {
        r->memory.offload = OFFLOAD_OPTIMIZER;
        try_way(out, r, "--offload optimizer");
        r->memory = was;
    }
    if (!r->memory.lora_rank) {
        r->memory.lora_rank = 16;
        try_way(out, r, "--lora 16");
        r->memory = was;
    }
}

static void try_inference(struct str *out, struct request *r)
{
    static const char *const types[] = { "fp8", "int8", "nf4" };
    struct memory_options was = r->memory;
    char text[32];

    for (int i = 0; i < 3; i++) {
        r->memory.weights = weight_type_find(types[i]);
        snprintf(text, sizeof(text), "--weights %s", types[i]);
        try_way(out, r, text);
        r->memory = was;
    }
}

char *ways_out_dup(const struct request *request)
{
    struct request r = *request;
    struct str out = { 0 };
    struct mesh mesh;
    uint64_t n;

    r.inflight = NULL;
    n = largest(&r, &r.memory.micro_batch, request->memory.micro_batch);
    if (n)
        str_addf(&out, "--micro-batch %" PRIu64 "\n", n);
    n = largest(&r, &r.memory.seq, request->memory.seq);
    if (n)
        str_addf(&out, "--seq %" PRIu64 "\n", n);
    if (fewest(&r, 64, &mesh))
        str_addf(&out, "%d ranks: --tp %d --pp %d --dp %d%s\n", mesh.nranks,
                 mesh.size[MESH_TP], mesh.size[MESH_PP], mesh.size[MESH_DP],
                 mesh.size[MESH_DP] > 1 ? " --zero 3" : "");
    if (r.memory.train)
        try_training(&out, &r);
    else
        try_inference(&out, &r);
    free(r.inflight);
    return out.s ? str_steal(&out) : NULL;
}

/* ---- the command ---- */

static int print_answer(const struct cmd *cmd, const struct request *r, int what,
                        uint64_t n, const struct mesh *mesh, bool json)
{
    char size[32];

    if (json) {
        printf("{\"type\":\"solution\",\"for\":\"%s\",\"value\":", solve_names[what]);
        if (n)
            printf("%" PRIu64, n);
        else
            fputs("null", stdout);
        if (n && what == FOR_GPUS)
            printf(",\"tp\":%d,\"pp\":%d,\"dp\":%d", mesh->size[MESH_TP],
                   mesh->size[MESH_PP], mesh->size[MESH_DP]);
        printf(",\"gpu_memory\":%" PRIu64 "}\n", r->gpu_memory);
    } else if (!n) {
        printf("nothing fits in %s\n", str_human(size, r->gpu_memory));
    } else if (what == FOR_GPUS) {
        printf("%" PRIu64 " ranks: --tp %d --pp %d --dp %d%s\n", n, mesh->size[MESH_TP],
               mesh->size[MESH_PP], mesh->size[MESH_DP],
               mesh->size[MESH_DP] > 1 ? " --zero 3" : "");
    } else {
        printf("--%s %" PRIu64 "\n", what == FOR_SEQ ? "seq" : "micro-batch", n);
    }
    return cmd_finish(cmd, n ? EXIT_SUCCESS : EXIT_FAILURE);
}

int solve_main(const char *program, int argc, char **argv)
{
    static const char *const modes[] = { "infer", "train", NULL };
    struct request_options o = REQUEST_DEFAULTS;
    bool json = false, given = false;
    int what = 0, mode = 0;
    const struct opt opts[] = {
        { OPT_CHOICE, '\0', "for", &what, "WHAT", "batch, seq or gpus", solve_names,
          &given },
        { OPT_CHOICE, '\0', "mode", &mode, "MODE", "infer or train", modes, NULL },
        REQUEST_OPTIONS(o),
        REQUEST_INFER_OPTIONS(o),
        REQUEST_TRAIN_OPTIONS(o),
        { OPT_FLAG, '\0', "json", &json, NULL, "print one JSON object", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "solve",
        .program = program,
        .synopsis = "--for WHAT [OPTION]... MODEL",
        .summary = "Find the largest batch or context that fits, or the fewest ranks",
        .opts = opts,
        .min_args = 1,
        .max_args = 1,
    };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct request r;
    struct err err = { 0 };
    struct mesh mesh;
    uint64_t n, context;
    int status;

    if (!given)
        return cmd_usage(&cmd, "--for is missing");
    if (request_open(&r, &o, mode == 1, operand[0], &err) < 0)
        return cmd_fail(&cmd, &err);
    if (!r.gpu_memory) {
        status = cmd_usage(&cmd, "--gpu or --gpu-mem is missing");
        goto out;
    }
    context = model_context(r.outline.model);
    mesh_one(&mesh);
    if (what == FOR_BATCH)
        n = largest(&r, &r.memory.micro_batch, 1 << 24);
    else if (what == FOR_SEQ)
        n = largest(&r, &r.memory.seq, context ? context : 1 << 24);
    else
        n = fewest(&r, 256, &mesh) ? (uint64_t)mesh.nranks : 0;
    status = print_answer(&cmd, &r, what, n, &mesh, json);
out:
    request_close(&r);
    return status;
}
