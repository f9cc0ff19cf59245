/* planner - which layouts of a cluster fit, and how fast they would be
 *
 * Sums over n ranks in a ring move 2 (n-1)/n of the bytes, gathers and scatters half of
 * that.  A backward pass is two forward passes; with full recomputation three.  ZeRO-3
 * gathers weights forwards and back for every micro-batch and scatters gradients once
 * (Rajbhandari et al. 2020, section 7).  Half of a backward pass hides the exchange of
 * gradients. */
#include "lib/estimate/planner.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/state.h"

static const double LINK_LATENCY = 5e-6; /* of one collective, a rank */
static const double HIDDEN = 0.5;        /* of the compute that hides gradients */

const char *const planner_rules[RULES] = {
    [RULE_MODEL] = "the model cannot be cut so",
    [RULE_NODE] = "tensor ranks would not be on one node",
    [RULE_BATCH] = "the batch does not divide",
    [RULE_ZERO] = "ZeRO without replicas, or its stage 2 in a pipeline",
    [RULE_MEMORY] = "too large for the memory",
};

struct search {
    const struct model *m;
    const struct planner_options *o;
    struct planner_result *out;
    struct anatomy *anatomy; /* of the present tp */
    size_t cap;
};

/* ---- one stage ---- */

/* What one micro-batch of a stage costs, going forward. */
struct stage_work {
    double flops;           /* of this rank */
    double reduced, border; /* bytes summed over tp; sent to the next stage */
    int reductions;
    double cached;    /* bytes of keys and values that one token reads */
    uint64_t weights; /* elements, all held */
};

static void add_weights(struct stage_work *w,
                        const struct weight_sum sum[WEIGHT_CLASSES])
{
    for (int c = 0; c < WEIGHT_CLASSES; c++)
        w->weights += sum[c].elements;
}

static struct stage_work work_of(const struct search *s, const struct memory_options *o,
                                 int first, int count)
{
    const struct anatomy *a = s->anatomy;
    struct stage_work w = { 0 };
    double tokens = (double)(o->train ? o->micro_batch * o->seq : o->micro_batch);
    double seen = o->train ? (double)o->seq / (a->causal ? 2 : 1) : (double)o->seq;

    for (int i = 0; i < a->nunits; i++) {
        const struct unit *u = &a->unit[i];

        if (!anatomy_runs(u, first, count))
            continue;
        w.flops += tokens * (2 * (double)u->products + 2 * (double)u->attention * seen);
        w.reduced += tokens * (double)u->reduced * (double)o->compute_bytes;
        w.reductions += u->reductions;
        if (u->layer >= 0)
            w.border = tokens * (double)u->kept.border * (double)o->compute_bytes;
        add_weights(&w, u->weight);
        for (int k = 0; k < u->ncaches; k++) {
            uint64_t window = u->cache[k].window;

            w.cached += (double)o->micro_batch *
                        (double)(window && window < o->seq ? window : o->seq) *
                        (double)(u->cache[k].cols * o->kv_bytes);
        }
    }
    for (int i = 0; i < a->ncommons; i++)
        if (anatomy_holds(a, &a->common[i], first, count))
            w.weights += a->common[i].sum.elements;
    return w;
}

/* Seconds of summing BYTES over N ranks in COUNT sums. */
static double sum_seconds(const struct planner_options *o, double bytes, int n,
                          int count)
{
    return n < 2 ? 0
                 : 2.0 * (n - 1) / n * bytes / o->gpu->link_rate +
                       count * LINK_LATENCY * (n - 1);
}

/* ---- a layout's time ---- */

struct stage_times {
    double *forward, *input, *weight; /* [pp] */
    double *products, *sums;          /* [pp]: of a forward pass */
    double message;
};

static void stage_times_init(struct stage_times *t, int pp)
{
    double *v = xcalloc((size_t)pp * 5, sizeof(*v));

    t->forward = v;
    t->input = v + pp;
    t->weight = v + 2 * pp;
    t->products = v + 3 * pp;
    t->sums = v + 4 * pp;
    t->message = 0;
}

/* The rate between stages, which are the slowest axis of a mesh: of the network unless
 * all of it is one node. */
static double stage_rate(const struct planner_options *o, const struct mesh *mesh)
{
    return mesh->nranks <= o->per_node ? o->gpu->link_rate : o->net;
}

static void fill_times(struct stage_times *t, const struct search *s,
                       const struct memory_options *o)
{
    int pp = o->mesh.size[MESH_PP], tp = o->mesh.size[MESH_TP];
    double rate = s->o->gpu->tflops * 1e12 * s->o->gpu->achievable;

    for (int p = 0; p < pp; p++) {
        struct stage_work w;
        int first, count;
        double back;

        mesh_stage(&o->mesh, s->m->state->nlayers, p, &first, &count);
        w = work_of(s, o, first, count);
        t->products[p] = w.flops / rate;
        t->sums[p] = sum_seconds(s->o, w.reduced, tp, w.reductions);
        if (!o->train) { /* a token reads all weights, and its sequence's cache */
            double read = ((double)w.weights * (double)o->weights->block_bytes /
                               (double)o->weights->block +
                           w.cached) /
                          s->o->gpu->memory_rate;

            t->products[p] = read > t->products[p] ? read : t->products[p];
        }
        t->forward[p] = t->products[p] + t->sums[p];
        back = 2 * t->products[p] + t->sums[p];
        if (o->recompute == RECOMPUTE_FULL)
            back += t->forward[p];
        t->input[p] = back / 2;
        t->weight[p] = back / 2;
        t->message = w.border / stage_rate(s->o, &o->mesh);
    }
}

static double largest(const double *v, int n)
{
    double most = 0;

    for (int i = 0; i < n; i++)
        most = v[i] > most ? v[i] : most;
    return most;
}

/* Seconds of gathering or scattering BYTES over the replicas: within each node first,
 * then every device its part with the other nodes. */
static double gather_seconds(const struct search *s, const struct mesh *mesh,
                             double bytes)
{
    int dp = mesh->size[MESH_DP], near = s->o->per_node / mesh->size[MESH_TP], far;

    near = near < 1 ? 1 : near > dp ? dp : near;
    far = (dp + near - 1) / near;
    return bytes * (near - 1) / near / s->o->gpu->link_rate +
           bytes / near * (far - 1) / far / s->o->net;
}

/* Seconds of exchanging weights and gradients over the replicas in one step. */
static double data_seconds(const struct search *s, const struct memory_options *o,
                           uint64_t weights)
{
    double grads = gather_seconds(s, &o->mesh, (double)weights * (double)o->grad_bytes);
    double gather =
        gather_seconds(s, &o->mesh, (double)weights * (double)o->other->block_bytes);

    if (o->mesh.size[MESH_DP] < 2 || !o->train)
        return 0;
    if (o->zero == 3)
        return 2 * gather * (double)o->micro_batches + grads;
    return o->zero ? grads + gather : 2 * grads;
}

static void time_training(struct planned *p, const struct search *s,
                          const struct memory_options *o)
{
    int pp = o->mesh.size[MESH_PP], first, count;
    double m = (double)o->micro_batches, work, busy, flops = 0;
    struct stage_times t;

    stage_times_init(&t, pp);
    fill_times(&t, s, o);
    for (int i = 0; i < pp; i++) {
        struct stage_work w;

        mesh_stage(&o->mesh, s->m->state->nlayers, i, &first, &count);
        w = work_of(s, o, first, count);
        flops += 3 * w.flops * m;
        if (i == 0)
            p->data = data_seconds(s, o, w.weights);
    }
    busy = largest(t.products, pp) * (o->recompute == RECOMPUTE_FULL ? 4 : 3) * m;
    work = 0;
    for (int i = 0; i < pp; i++)
        if (t.forward[i] + t.input[i] + t.weight[i] > work)
            work = t.forward[i] + t.input[i] + t.weight[i];
    p->compute = busy;
    p->tensor = o->mesh.size[MESH_TP] > 1 ? work * m - busy : 0;
    /* 1F1B's closed form, exact where stages are equal */
    p->pipeline = (pp - 1) * (work + 2 * t.message) + (pp > 1 ? 2 * m * t.message : 0);
    p->data -= HIDDEN * busy * 2 / 3;
    if (p->data < 0)
        p->data = 0;
    p->seconds = p->compute + p->tensor + p->pipeline + p->data;
    p->tokens = (double)(s->o->global_batch * o->seq) / p->seconds;
    p->utilisation = flops * o->mesh.size[MESH_TP] * o->mesh.size[MESH_DP] /
                     (p->seconds * s->o->gpus * s->o->gpu->tflops * 1e12);
    free(t.forward);
}

/* One token for every sequence: micro-batches follow one another through the stages. */
static void time_inference(struct planned *p, const struct search *s,
                           const struct memory_options *o)
{
    int pp = o->mesh.size[MESH_PP];
    struct stage_times t;
    double round = 0, slowest;

    stage_times_init(&t, pp);
    fill_times(&t, s, o);
    for (int i = 0; i < pp; i++)
        round += t.forward[i];
    slowest = largest(t.forward, pp) * (double)o->micro_batches;
    p->compute = largest(t.products, pp) * (double)o->micro_batches;
    p->tensor = largest(t.sums, pp) * (double)o->micro_batches;
    p->seconds =
        (round > slowest ? round : slowest) + (pp - 1) * (t.message + LINK_LATENCY);
    p->pipeline = p->seconds - p->compute - p->tensor;
    if (p->pipeline < 0)
        p->pipeline = 0;
    p->tokens = (double)s->o->global_batch / p->seconds;
    free(t.forward);
}

/* ---- a layout's memory ---- */

/* The largest rank's bytes: of the first stage, which holds most micro-batches, or the
 * last, which has the logits. */
static bool memory_fits(const struct search *s, struct memory_options *o,
                        uint64_t *peak)
{
    int pp = o->mesh.size[MESH_PP], nlayers = s->m->state->nlayers;
    uint64_t *inflight = xcalloc((size_t)pp, sizeof(*inflight));
    bool ok = true;

    for (int i = 0; i < pp; i++)
        inflight[i] = 1000 * ((uint64_t)(pp - i) < o->micro_batches ? (uint64_t)(pp - i)
                                                                    : o->micro_batches);
    o->inflight = inflight;
    *peak = 0;
    for (int i = 0; i < pp && ok; i += pp > 1 ? pp - 1 : 1) {
        struct rank_memory r;
        int first, count;

        mesh_stage(&o->mesh, nlayers, i, &first, &count);
        ok = memory_of_stage(&r, s->anatomy, o, i, first, count);
        *peak = r.total > *peak ? r.total : *peak;
    }
    free(inflight);
    o->inflight = NULL;
    return ok && *peak <= s->o->gpu_memory;
}

/* ---- the search ---- */

static void reject(struct search *s, enum planner_rule rule)
{
    s->out->rejected[rule]++;
}

/* False when it does not fit. */
static bool try_one(struct search *s, struct memory_options *o)
{
    struct planned p = { .mesh = o->mesh,
                         .zero = o->zero,
                         .recompute = o->recompute,
                         .micro_batch = o->micro_batch,
                         .micro_batches = o->micro_batches };

    s->out->evaluated++;
    if (!memory_fits(s, o, &p.memory))
        return false;
    if (o->train)
        time_training(&p, s, o);
    else
        time_inference(&p, s, o);
    s->out->plan = xgrow(s->out->plan, &s->cap, s->out->n + 1, sizeof(p));
    s->out->plan[s->out->n++] = p;
    return true;
}

/* The recomputations that are tried. */
static const enum recompute ways[] = { RECOMPUTE_NONE, RECOMPUTE_FULL };
enum { WAYS = sizeof(ways) / sizeof(*ways), STAGES = 4 };

/* All ZeRO stages and recomputations of one mesh and micro-batch.  FULL are those that
 * a smaller one was too large for. */
static void try_states(struct search *s, struct memory_options *o,
                       bool full[STAGES][WAYS])
{
    for (int zero = 0; zero < (o->train ? STAGES : 1); zero++) {
        if ((zero && o->mesh.size[MESH_DP] == 1) ||
            (zero == 2 && o->mesh.size[MESH_PP] > 1)) {
            s->out->tried++;
            reject(s, RULE_ZERO);
            continue;
        }
        o->zero = zero;
        for (int w = 0; w < (o->train ? WAYS : 1); w++) {
            o->recompute = ways[w];
            s->out->tried++;
            full[zero][w] = full[zero][w] || !try_one(s, o);
            if (full[zero][w])
                reject(s, RULE_MEMORY);
        }
    }
}

static void try_mesh(struct search *s, const struct mesh *mesh)
{
    uint64_t replicas = (uint64_t)mesh->size[MESH_DP], each;
    bool full[STAGES][WAYS] = { 0 };

    if (s->o->global_batch % replicas) {
        s->out->tried++;
        reject(s, RULE_BATCH);
        return;
    }
    each = s->o->global_batch / replicas;
    for (uint64_t size = 1; size <= each && size <= 64; size *= 2) {
        struct memory_options o = s->o->start;

        if (each % size) {
            s->out->tried++;
            reject(s, RULE_BATCH);
            continue;
        }
        o.mesh = *mesh;
        o.micro_batch = size;
        o.micro_batches = each / size;
        try_states(s, &o, full);
    }
}

static int try_tensor(struct search *s, int tp, struct err *err)
{
    const int origin[MESH_NAXES] = { 0 };
    int size[MESH_NAXES] = { [MESH_TP] = tp }, rest = s->o->gpus / tp;
    struct anatomy_options options = { .lora = s->o->start.lora_rank > 0 };
    struct mesh mesh;
    struct err no = { 0 };

    if (mesh_set(&mesh, size, NULL, err) < 0)
        return -1;
    if (tp > s->o->per_node || model_check_mesh(s->m, &mesh, &no) < 0) {
        s->out->tried++;
        reject(s, tp > s->o->per_node ? RULE_NODE : RULE_MODEL);
        return 0;
    }
    if (anatomy_open(&s->anatomy, s->m, &mesh, origin, NULL, &options, err) < 0)
        return -1;
    for (int pp = 1; pp <= rest; pp++) {
        if (rest % pp)
            continue;
        size[MESH_PP] = pp;
        size[MESH_DP] = rest / pp;
        if (mesh_set(&mesh, size, NULL, &no) < 0 ||
            model_check_mesh(s->m, &mesh, &no) < 0) {
            s->out->tried++;
            reject(s, RULE_MODEL);
            continue;
        }
        try_mesh(s, &mesh);
    }
    anatomy_close(s->anatomy);
    return 0;
}

/* Faster first; of equals the one that needs less of everything. */
static int compare_plans(const void *a, const void *b)
{
    const struct planned *x = a, *y = b;

    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? -1 : 1;
    if (x->zero != y->zero)
        return x->zero - y->zero;
    return x->memory < y->memory ? -1 : x->memory > y->memory;
}

int planner_search(struct planner_result *out, const struct model *m,
                   const struct planner_options *o, struct err *err)
{
    struct search s = { .m = m, .o = o, .out = out };

    *out = (struct planner_result){ 0 };
    for (int tp = 1; tp <= o->gpus; tp++)
        if (o->gpus % tp == 0 && try_tensor(&s, tp, err) < 0) {
            planner_result_clear(out);
            return -1;
        }
    if (out->n)
        qsort(out->plan, out->n, sizeof(*out->plan), compare_plans);
    return 0;
}

void planner_result_clear(struct planner_result *r)
{
    free(r->plan);
    *r = (struct planner_result){ 0 };
}
