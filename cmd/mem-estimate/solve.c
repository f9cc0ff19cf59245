/* solve - the largest batch or sequence that fits, or the fewest ranks */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/mem-estimate/mem-estimate.h"

enum solve_for { FOR_BATCH, FOR_SEQ, FOR_GPUS };
static const char *const solve_names[] = { "batch", "seq", "gpus", NULL };

/* True if R's layout is possible and fits; *peak is the largest rank's total. */
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

/* The largest value of *what up to LIMIT with which R fits; 0 if there is none.  The
 * bytes grow with it.  Restores *what. */
static uint64_t largest(struct request *r, uint64_t *what, uint64_t limit)
{
    uint64_t was = *what, low = 0, high = 1, peak;

    while (high <= limit) { /* double until it does not fit, then bisect */
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

/* The largest micro-batch up to LIMIT with which R fits.  It divides the global batch
 * if there is one; the bytes need not grow with it then, as fewer micro-batches are in
 * flight. */
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

uint64_t requests_most(const struct request *request)
{
    struct request r = *request;
    uint64_t n;

    r.inflight = NULL;
    r.rank_of = r.flights = NULL;
    r.stages = NULL;
    r.batch.number = 1;
    r.batch.global = 0;
    n = largest(&r, &r.batch.size, 1 << 24);
    free(r.inflight);
    free(r.rank_of);
    free(r.flights);
    free(r.stages);
    return n * (uint64_t)(r.memory.mesh.size[MESH_DP] * r.memory.mesh.size[MESH_EP]);
}

/* Bytes of R's weights and states on a single rank: any N ranks share at least
 * these. */
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

/* True if ZeRO has replicas to shard over. */
static bool shards(const struct mesh *m)
{
    return m->size[MESH_DP] * m->size[MESH_EP] * m->size[MESH_SP] > 1;
}

struct fewest {
    struct request *r;
    struct costmodels ranks; /* of rank 0 at the current tp and ep */
    int tp, ep;
    bool even; /* axes must divide heads and tokens */
};

/* True if rank 0 fits on every stage.  Cheap, and enough to reject most layouts. */
static bool first_fits(struct fewest *f)
{
    const struct memory_options *o = &f->r->memory;
    const int origin[MESH_NAXES] = { 0 };
    const struct costmodel *first;
    struct rank_memory one;
    struct err err = { 0 };

    if (f->tp != o->mesh.size[MESH_TP] || f->ep != o->mesh.size[MESH_EP])
        costmodels_clear(&f->ranks);
    f->tp = o->mesh.size[MESH_TP];
    f->ep = o->mesh.size[MESH_EP];
    first =
        costmodels_at(&f->ranks, f->r->summary.model, f->r->stored, o, origin, &err);
    if (!first)
        return false;
    for (int s = 0; s < o->mesh.size[MESH_PP]; s++)
        if (!memory_of_stage(&one, first, o, s) || one.total > f->r->gpu_memory)
            return false;
    return true;
}

/* True if R fits on these axes, with replicas up to N ranks. */
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
        model_check_mesh(r->summary.model, &r->memory.mesh, NULL) < 0)
        return false;
    r->memory.zero = shards(&r->memory.mesh) ? 3 : zero;
    ok = request_settle(r, &err) == 0 && first_fits(f) && fits(r, &peak);
    r->memory.zero = zero;
    return ok;
}

/* True if N ranks of AXIS divide the heads or tokens evenly. */
static bool is_even(const struct request *r, enum mesh_axis axis, int n)
{
    double heads;

    if (axis == MESH_SP)
        return r->memory.seq % (uint64_t)n == 0;
    return axis != MESH_TP || !model_number(r->summary.model, "heads", &heads) ||
           (uint64_t)heads % (uint64_t)n == 0;
}

/* Tries all sizes of the K'th axis and the following ones, which divide REST.  Training
 * prefers replicas with ZeRO-3, inference tensor-parallel ranks. */
static bool fits_any(struct fewest *f, int n, int rest, int k, int axes[MESH_NAXES])
{
    static const enum mesh_axis orders[2][4] = {
        { MESH_TP, MESH_EP, MESH_PP, MESH_SP }, { MESH_SP, MESH_EP, MESH_PP, MESH_TP }
    };
    bool train = f->r->memory.train, found = false;
    enum mesh_axis axis;

    if (k == 4)
        return fits_on(f, n, axes);
    axis = orders[train][k];
    for (int i = 1; i <= rest && !found; i++) {
        int many = train || k ? i : rest + 1 - i;

        if (rest % many || (f->even && !is_even(f->r, axis, many)))
            continue;
        axes[axis] = many;
        found = fits_any(f, n, rest / many, k + 1, axes);
    }
    if (!found)
        axes[axis] = 1;
    return found;
}

/* Finds the fewest ranks with which R fits, over tp, ep, pp, sp and, in training, dp
 * with ZeRO-3; *best is their mesh.  Uneven layouts are used only if no even one fits.
 * False if LIMIT ranks are not enough. */
static bool fewest(struct request *r, int limit, struct mesh *best)
{
    struct mesh was = r->memory.mesh;
    uint64_t least = states(r);
    struct fewest f = { .r = r };
    bool found = false;

    for (int i = 0; i < 2 * limit && !found; i++) {
        int axes[MESH_NAXES], n = i % limit + 1;

        f.even = i < limit;
        for (int k = 0; k < MESH_NAXES; k++)
            axes[k] = 1;
        found = least / (uint64_t)n <= r->gpu_memory && fits_any(&f, n, n, 0, axes);
        *best = r->memory.mesh;
    }
    costmodels_clear(&f.ranks);
    r->memory.mesh = was;
    return found;
}

/* Adds the number of ranks and M's axes; axes of R's checkpoint are always named. */
static void add_axes(struct str *out, const struct request *r, const struct mesh *m)
{
    const struct checkpoint *c = r->summary.checkpoint;

    str_addf(out, "%d rank%s: --tp %d", m->nranks, m->nranks > 1 ? "s" : "",
             m->size[MESH_TP]);
    for (int i = MESH_TP + 1; i < MESH_NAXES; i++)
        if (m->size[i] > 1 || (c && c->sharded && c->mesh.size[i] > 1))
            str_addf(out, " --%s %d", mesh_axis_names[i], m->size[i]);
}

/* The same for a result of fewest(), with --zero if it needs it. */
static void add_ranks(struct str *out, const struct request *r, const struct mesh *m)
{
    add_axes(out, r, m);
    str_add(out, r->memory.train && shards(m) ? " --zero 3\n" : "\n");
}

/* ---- what would fit ---- */

/* Options that save memory. */
enum {
    WAY_TYPE = 1,
    WAY_RECOMPUTE = 2,
    WAY_ADAPTERS = 4,
    WAY_ZERO = 8,
    WAY_HOST = 16,
    WAY_NF4 = 32, /* of what adapters leave as it is */
    WAY_STATES = 64
};

/* Adds a line with TEXT, the options that R now has, if R fits. */
static bool try_way(struct str *out, struct request *r, const char *text)
{
    uint64_t peak;
    char size[32];

    if (!fits(r, &peak))
        return false;
    str_addf(out, "%s: %s\n", text, str_human(size, peak));
    return true;
}

/* The options of WAYS that R does not use yet. */
static int open_ways(const struct request *r, int ways)
{
    const struct memory_options *m = &r->memory;

    if (m->other->block_bytes < 4 || (m->weights && m->weights->scope != SCOPE_ALL))
        ways &= ~WAY_TYPE;
    if (m->recompute == RECOMPUTE_FULL)
        ways &= ~WAY_RECOMPUTE;
    if (m->lora_rank)
        ways &= ~WAY_ADAPTERS;
    if (m->weights && m->weights->scope != SCOPE_ALL)
        ways &= ~WAY_NF4;
    if (m->optimizer != OPTIMIZER_ADAMW)
        ways &= ~WAY_STATES;
    if (m->framework == FRAMEWORK_TP_RUN)
        ways &= ~(WAY_HOST | WAY_NF4 | WAY_STATES);
    if (m->zero == 3 || !shards(&m->mesh))
        ways &= ~WAY_ZERO;
    if (m->offload != OFFLOAD_NONE)
        ways &= ~WAY_HOST;
    return ways;
}

/* Applies the options WAYS to R and adds them to TEXT. */
static void go(struct str *text, struct request *r, int ways)
{
    if (ways & WAY_TYPE) {
        request_set_weights(r, weight_type_find("bf16"));
        str_add(text, " --weights bf16");
    }
    if (ways & WAY_RECOMPUTE) {
        r->memory.recompute = RECOMPUTE_FULL;
        str_add(text, " --recompute full");
    }
    if (ways & WAY_ADAPTERS) {
        r->memory.lora_rank = 16;
        str_add(text, " --lora 16");
    }
    if (ways & WAY_NF4) {
        request_set_weights(r, weight_type_find("nf4"));
        str_add(text, " --weights nf4");
    }
    if (ways & WAY_STATES) {
        r->memory.optimizer = OPTIMIZER_ADAM8BIT;
        str_add(text, " --optimizer adam8bit");
    }
    if (ways & WAY_ZERO) {
        r->memory.zero = 3;
        str_add(text, " --zero 3");
    }
    if (ways & WAY_HOST) {
        r->memory.offload = OFFLOAD_OPTIMIZER;
        str_add(text, " --offload optimizer");
    }
}

/* Adds a line if R fits with all of WAYS. */
static bool try_training(struct str *out, struct request *r, int ways)
{
    struct memory_options was = r->memory;
    struct str text = { 0 };
    bool found;

    go(&text, r, ways);
    found = try_way(out, r, str_text(&text) + 1);
    str_clear(&text);
    r->memory = was;
    return found;
}

/* Adds single options that are enough; if there are none, the smallest combinations. */
static void add_training(struct str *out, struct request *r)
{
    static const int ways[] = {
        WAY_TYPE,
        WAY_RECOMPUTE,
        WAY_ADAPTERS,
        WAY_ZERO,
        WAY_HOST,
        WAY_STATES,
        WAY_TYPE | WAY_RECOMPUTE,
        WAY_TYPE | WAY_ADAPTERS,
        WAY_RECOMPUTE | WAY_ADAPTERS,
        WAY_RECOMPUTE | WAY_ZERO,
        WAY_TYPE | WAY_RECOMPUTE | WAY_ADAPTERS,
        WAY_TYPE | WAY_RECOMPUTE | WAY_ZERO,
        WAY_ADAPTERS | WAY_NF4,
        WAY_RECOMPUTE | WAY_HOST,
        WAY_RECOMPUTE | WAY_ADAPTERS | WAY_NF4,
    };
    int found = 0, options = 0;

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        int n = 0;

        for (int rest = ways[i]; rest; rest &= rest - 1)
            n++;
        if (open_ways(r, ways[i]) != ways[i] || (found && n > options))
            continue;
        options = n;
        found += try_training(out, r, ways[i]);
    }
}

/* Adds a line with the fewest replicas with which R fits under ZeRO-3 and WAYS. Returns
 * the number of ranks, at most LIMIT; 0: it does not fit. */
static int try_replicas(struct str *out, struct request *r, int ways, int limit)
{
    struct memory_options was = r->memory;
    struct str text = { 0 };
    uint64_t peak;
    bool found = false;
    int size[MESH_NAXES], found_ranks;

    memcpy(size, was.mesh.size, sizeof(size));
    go(&text, r, ways | WAY_ZERO);
    for (int n = size[MESH_DP] + 1; n <= limit && !found; n++) {
        struct err err = { 0 };

        size[MESH_DP] = n;
        found = mesh_set(&r->memory.mesh, size, NULL, &err) == 0 &&
                r->memory.mesh.nranks <= limit && fits(r, &peak);
    }
    found_ranks = found ? r->memory.mesh.nranks : 0;
    if (found) {
        add_axes(out, r, &r->memory.mesh);
        str_addf(out, "%s\n", str_text(&text));
    }
    str_clear(&text);
    r->memory = was;
    return found_ranks;
}

/* Adds a line with replicas, with further options only if needed.  Returns the number
 * of ranks if they are enough, else 0. */
static int add_replicas(struct str *out, struct request *r, int limit)
{
    static const int ways[] = { 0, WAY_TYPE, WAY_RECOMPUTE, WAY_TYPE | WAY_RECOMPUTE };

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        int n =
            open_ways(r, ways[i]) == ways[i] ? try_replicas(out, r, ways[i], limit) : 0;

        if (n)
            return ways[i] ? 0 : n;
    }
    return 0;
}

static void add_inference(struct str *out, struct request *r)
{
    static const char *const types[] = { "bf16", "fp8", "int8", "nf4" };
    struct memory_options was = r->memory;
    char text[32];

    for (int i = 0; i < 4; i++) {
        if (i == 0 && !open_ways(r, WAY_TYPE))
            continue;
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
    int replicas = 0;
    uint64_t n;

    r.inflight = NULL;
    r.rank_of = r.flights = NULL;
    r.stages = NULL;
    n = largest_batch(&r, request->memory.micro_batch);
    if (n)
        str_addf(&out, "--micro-batch %" PRIu64 "\n", n);
    if (r.memory.train) {
        add_training(&out, &r);
        replicas = add_replicas(&out, &r, 64);
    } else {
        add_inference(&out, &r);
    }
    if (fewest(&r, 64, &mesh) && (!replicas || mesh.nranks < replicas) &&
        memcmp(mesh.size, request->memory.mesh.size, sizeof(mesh.size)) != 0)
        add_ranks(&out, &r, &mesh);
    n = largest(&r, &r.memory.seq, request->memory.seq);
    if (n)
        str_addf(&out, "--seq %" PRIu64 "\n", n);
    free(r.inflight);
    free(r.rank_of);
    free(r.flights);
    free(r.stages);
    return out.s ? str_steal(&out) : NULL;
}

/* ---- the command ---- */

static int print_answer(const struct cmd *cmd, const struct request *r, int what,
                        uint64_t n, const struct mesh *mesh, bool json)
{
    struct str out = { 0 };
    char size[32], *ways = n ? NULL : ways_out_dup(r);

    if (json) {
        str_addf(&out,
                 "{\"type\":\"solution\",\"for\":\"%s\",\"value\":", solve_names[what]);
        if (n)
            str_addf(&out, "%" PRIu64, n);
        else
            str_add(&out, "null");
        for (int i = 0; i < MESH_NAXES && n && what == FOR_GPUS; i++)
            str_addf(&out, ",\"%s\":%d", mesh_axis_names[i], mesh->size[i]);
        str_addf(&out, ",\"gpu_memory\":%" PRIu64, r->gpu_memory);
        if (ways) {
            str_add(&out, ",\"ways_out\":");
            report_add_lines(&out, ways);
        }
        str_add(&out, "}\n");
    } else if (!n) {
        str_addf(&out, "nothing fits in %s\n", str_human(size, r->gpu_memory));
        if (ways)
            str_addf(&out, "what would fit:\n%s", ways);
    } else if (what == FOR_GPUS) {
        add_ranks(&out, r, mesh);
    } else {
        str_addf(&out, "--%s %" PRIu64 "\n", what == FOR_SEQ ? "seq" : "micro-batch",
                 n);
    }
    fputs(out.s, stdout);
    str_clear(&out);
    free(ways);
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
    context = model_context(r.summary.model);
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
