/* solve - the largest batch or context that fits, or the fewest ranks */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* The largest micro-batch, at most LIMIT, with which R fits.  It divides the global
 * batch where there is one; bytes need not grow with it then, for fewer are in flight.
 */
static uint64_t largest_batch(struct request *r, uint64_t limit)
{
    uint64_t global = r->batch.global, was = r->batch.size, found = 0, peak, d = 1;

    if (!global)
        return largest(r, &r->batch.size, limit);
    for (; d < global / d && !found; d++) {
        r->batch.size = global / d;
        if (global % d == 0 && r->batch.size <= limit && fits(r, &peak))
            found = r->batch.size;
    }
    for (; d > 0 && !found; d--) {
        r->batch.size = d;
        if (global % d == 0 && d <= limit && fits(r, &peak))
            found = d;
    }
    r->batch.size = was;
    return found;
}

/* Bytes that N ranks have to share, however they are laid out: what R keeps of its
 * weights on one rank. */
static uint64_t states(struct request *r)
{
    struct memory_estimate e = { 0 };
    struct err err = { 0 };
    struct mesh was = r->memory.mesh;
    uint64_t bytes = 0;

    mesh_one(&r->memory.mesh);
    if (request_settle(r, &err) == 0 && request_estimate(r, &e, &err) == 0) {
        bytes = e.peak->bytes[MEMORY_WEIGHTS] + e.peak->bytes[MEMORY_GRADIENTS] +
                e.peak->bytes[MEMORY_OPTIMIZER];
        memory_estimate_clear(&e);
    }
    r->memory.mesh = was;
    return bytes;
}

/* Can ZeRO cut what a rank of M has? */
static bool shards(const struct mesh *m)
{
    return m->size[MESH_DP] * m->size[MESH_EP] * m->size[MESH_SP] > 1;
}

struct fewest {
    struct request *r;
    struct anatomies ranks; /* rank 0's at this tp and ep */
    int tp, ep;
};

/* Does rank 0 of every stage fit?  Most layouts fail here, where its anatomy is at
 * hand. */
static bool first_fits(struct fewest *f)
{
    const struct memory_options *o = &f->r->memory;
    const int origin[MESH_NAXES] = { 0 };
    const struct anatomy *first;
    struct rank_memory one;
    struct err err = { 0 };

    if (f->tp != o->mesh.size[MESH_TP] || f->ep != o->mesh.size[MESH_EP])
        anatomies_clear(&f->ranks);
    f->tp = o->mesh.size[MESH_TP];
    f->ep = o->mesh.size[MESH_EP];
    first = anatomies_at(&f->ranks, f->r->outline.model, f->r->stored, o, origin, &err);
    if (!first)
        return false;
    for (int s = 0; s < o->mesh.size[MESH_PP]; s++)
        if (!memory_of_stage(&one, first, o, s) || one.total > f->r->gpu_memory)
            return false;
    return true;
}

/* Does the request fit on these ranks, and as many replicas that N ranks are? */
static bool fits_on(struct fewest *f, int n, const int axes[MESH_NAXES])
{
    struct request *r = f->r;
    int size[MESH_NAXES], rest = n, zero = r->memory.zero;
    struct err err = { 0 };
    uint64_t peak;
    bool ok;

    memcpy(size, axes, sizeof(size));
    for (int i = 0; i < MESH_NAXES; i++)
        rest /= size[i];
    size[MESH_DP] = rest;
    if ((rest > 1 && !r->memory.train) ||
        mesh_set(&r->memory.mesh, size, NULL, &err) < 0 ||
        model_check_mesh(r->outline.model, &r->memory.mesh, &err) < 0)
        return false;
    r->memory.zero = shards(&r->memory.mesh) ? 3 : zero;
    ok = request_settle(r, &err) == 0 && first_fits(f) && fits(r, &peak);
    r->memory.zero = zero;
    return ok;
}

/* Try axes[ORDER[k]] and those behind it, which divide REST: many of the first, few of
 * the others. */
static bool fits_any(struct fewest *f, int n, int rest, int k, int axes[MESH_NAXES])
{
    static const enum mesh_axis order[] = { MESH_TP, MESH_EP, MESH_PP, MESH_SP };
    bool found = false;

    if (k == (int)(sizeof(order) / sizeof(*order)))
        return fits_on(f, n, axes);
    for (int i = 1; i <= rest && !found; i++) {
        int many = k ? i : rest + 1 - i;

        if (rest % many)
            continue;
        axes[order[k]] = many;
        found = fits_any(f, n, rest / many, k + 1, axes);
    }
    if (!found)
        axes[order[k]] = 1;
    return found;
}

/* The fewest ranks with which R fits, as tp x ep x pp x sp and, in training, dp under
 * ZeRO-3: *best is their mesh.  False when LIMIT ranks do not suffice. */
static bool fewest(struct request *r, int limit, struct mesh *best)
{
    struct mesh was = r->memory.mesh;
    uint64_t least = states(r);
    struct fewest f = { .r = r };
    bool found = false;

    for (int n = 1; n <= limit && !found; n++) {
        int axes[MESH_NAXES];

        for (int i = 0; i < MESH_NAXES; i++)
            axes[i] = 1;
        found = least / (uint64_t)n <= r->gpu_memory && fits_any(&f, n, n, 0, axes);
        *best = r->memory.mesh;
    }
    anatomies_clear(&f.ranks);
    r->memory.mesh = was;
    return found;
}

/* Ranks and options of what fewest() has found for R; a checkpoint's own axes hold
 * unless others are named. */
static void add_ranks(struct str *out, const struct request *r, const struct mesh *m)
{
    const struct checkpoint *c = r->outline.checkpoint;

    str_addf(out, "%d ranks: --tp %d", m->nranks, m->size[MESH_TP]);
    for (int i = MESH_TP + 1; i < MESH_NAXES; i++)
        if (m->size[i] > 1 || (c && c->sharded && c->mesh.size[i] > 1))
            str_addf(out, " --%s %d", mesh_axis_names[i], m->size[i]);
    str_add(out, r->memory.train && shards(m) ? " --zero 3\n" : "\n");
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
        request_set_weights(r, weight_type_find(types[i]));
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
    n = largest_batch(&r, request->memory.micro_batch);
    if (n)
        str_addf(&out, "--micro-batch %" PRIu64 "\n", n);
    n = largest(&r, &r.memory.seq, request->memory.seq);
    if (n)
        str_addf(&out, "--seq %" PRIu64 "\n", n);
    if (fewest(&r, 64, &mesh))
        add_ranks(&out, &r, &mesh);
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
    struct str out = { 0 };
    char size[32];

    if (json) {
        str_addf(&out,
                 "{\"type\":\"solution\",\"for\":\"%s\",\"value\":", solve_names[what]);
        if (n)
            str_addf(&out, "%" PRIu64, n);
        else
            str_add(&out, "null");
        for (int i = 0; i < MESH_NAXES && n && what == FOR_GPUS; i++)
            str_addf(&out, ",\"%s\":%d", mesh_axis_names[i], mesh->size[i]);
        str_addf(&out, ",\"gpu_memory\":%" PRIu64 "}\n", r->gpu_memory);
    } else if (!n) {
        str_addf(&out, "nothing fits in %s\n", str_human(size, r->gpu_memory));
    } else if (what == FOR_GPUS) {
        add_ranks(&out, r, mesh);
    } else {
        str_addf(&out, "--%s %" PRIu64 "\n", what == FOR_SEQ ? "seq" : "micro-batch",
                 n);
    }
    fputs(out.s, stdout);
    str_clear(&out);
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
    if (request_open(&r, &cmd, &o, mode == 1, operand[0], &err) < 0)
        return cmd_fail(&cmd, &err);
    if (!r.gpu_memory) {
        status = cmd_usage(&cmd, "--gpu or --gpu-mem is missing");
        goto out;
    }
    context = model_context(r.outline.model);
    mesh_one(&mesh);
    if (what == FOR_BATCH)
        n = largest_batch(&r, 1 << 24);
    else if (what == FOR_SEQ)
        n = largest(&r, &r.memory.seq, context ? context : 1 << 24);
    else
        n = fewest(&r, 256, &mesh) ? (uint64_t)mesh.nranks : 0;
    status = print_answer(&cmd, &r, what, n, &mesh, json);
out:
    request_close(&r);
    return status;
}
