/* memory - the bytes that each rank of a layout needs, by category
 *
 * ZeRO: Rajbhandari et al. 2020; its shard group is dp x ep x sp, but for experts,
 * which are not replicated over ep.  Activations: Korthikanti et al. 2022.  Optimizer
 * states: Adam 8 bytes, in 8 bits 2 with a scale for each 2,048 (Dettmers et al. 2022),
 * Adafactor a row and a column of each matrix (Shazeer and Stern 2018), Muon a momentum
 * for matrices of layers and Adam for the rest (Jordan 2024). */
#include "lib/estimate/memory.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/model/state.h"

const char *const memory_category_names[MEMORY_CATEGORIES + 1] = {
    "weights",  "gradients", "optimizer", "activations",   "logits", "working",
    "kv_cache", "comm",      "runtime",   "fragmentation", NULL
};
const char *const memory_moment_names[MOMENTS + 1] = { "forward", "loss", "backward",
                                                       NULL };
const char *const optimizer_names[] = { "adamw",     "adam8bit", "sgd",  "momentum",
                                        "adafactor", "lion",     "muon", NULL };
const char *const recompute_names[] = { "none", "selective", "full", "products", NULL };
const char *const offload_names[] = { "none", "optimizer", "params", NULL };

enum { BUCKET_BYTES = 25 << 20 }; /* of gradients: PyTorch DDP's default */

/* ---- arithmetic that remembers overflow ---- */

struct sum {
    uint64_t v;
    bool over;
};

static uint64_t times(struct sum *s, uint64_t a, uint64_t b)
{
    uint64_t out = 0;

    s->over |= !mem_mul(&out, a, b);
    return out;
}

static void plus(struct sum *s, uint64_t a)
{
    s->over |= !mem_add(&s->v, s->v, a);
}

/* s += a * b * c */
static void plus3(struct sum *s, uint64_t a, uint64_t b, uint64_t c)
{
    plus(s, times(s, times(s, a, b), c));
}

static uint64_t share(uint64_t n, uint64_t parts)
{
    return n / parts + (n % parts != 0);
}

/* ---- the layers of a rank ---- */

/* Two ranges where the model is folded. */
struct held {
    int n, first[2], count[2];
};

static struct held held_by(const struct anatomy *a, const struct memory_options *o,
                           int stage)
{
    int nlayers = a->model->state->nlayers ? a->model->state->nlayers : 1;
    int pp = o->mesh.size[MESH_PP];
    struct mesh halves = { .size = { [MESH_PP] = 2 * pp } };
    struct held h = { .n = o->folded ? 2 : 1 };

    if (!o->folded) {
        mesh_stage(&o->mesh, nlayers, stage, &h.first[0], &h.count[0]);
        return h;
    }
    mesh_stage(&halves, nlayers, stage, &h.first[0], &h.count[0]);
    mesh_stage(&halves, nlayers, 2 * pp - 1 - stage, &h.first[1], &h.count[1]);
    return h;
}

static bool runs(const struct unit *u, const struct held *h)
{
    return anatomy_runs(u, h->first[0], h->count[0]) ||
           (h->n > 1 && anatomy_runs(u, h->first[1], h->count[1]));
}

static bool holds(const struct anatomy *a, const struct common *c, const struct held *h)
{
    return anatomy_holds(a, c, h->first[0], h->count[0]) ||
           (h->n > 1 && anatomy_holds(a, c, h->first[1], h->count[1]));
}

/* ---- model states ---- */

/* A stage's weights, summed over its units. */
static void stage_weights(struct weight_sum out[WEIGHT_CLASSES],
                          const struct anatomy *a, const struct held *h)
{
    memset(out, 0, WEIGHT_CLASSES * sizeof(*out));
    for (int i = 0; i < a->nunits + a->ncommons; i++) {
        const struct common *common = i < a->nunits ? NULL : &a->common[i - a->nunits];

        if (common ? !holds(a, common, h) : !runs(&a->unit[i], h))
            continue;
        for (int c = 0; c < WEIGHT_CLASSES; c++) {
            const struct weight_sum *from =
                common ? &common->sum : &a->unit[i].weight[c];

            if (common && (int)common->class != c)
                continue;
            out[c].elements += from->elements;
            out[c].rows += from->rows;
            out[c].bytes += from->bytes;
            out[c].trained += from->trained;
            out[c].trained_sides += from->trained_sides;
            out[c].adapted_sides += from->adapted_sides;
        }
    }
}

static uint64_t weight_bytes(const struct memory_options *o, const struct weight_sum *w,
                             int class)
{
    const struct weight_type *t = o->weights ? o->weights : o->other;
    bool covered = t->scope == SCOPE_ALL ||
                   (class != WEIGHT_VECTOR &&
                    (t->scope == SCOPE_MATRICES || class != WEIGHT_TABLE));

    if (!o->weights && w->bytes)
        return w->bytes;
    return covered ? weight_type_bytes(t, w->elements, w->rows)
                   : weight_type_bytes(o->other, w->elements, w->rows);
}

/* Ranks that have the same weights of CLASS. */
static uint64_t replicas(const struct memory_options *o, int class)
{
    uint64_t n = (uint64_t)o->mesh.size[MESH_DP] * (uint64_t)o->mesh.size[MESH_SP];

    return class == WEIGHT_EXPERT ? n : n * (uint64_t)o->mesh.size[MESH_EP];
}

/* Ranks among which a state of CLASS is dealt. */
static uint64_t shard_group(const struct memory_options *o, int class)
{
    uint64_t n = replicas(o, class);

    return o->hsdp && (uint64_t)o->hsdp < n ? (uint64_t)o->hsdp : n;
}

/* Bytes of optimizer state for N trained elements of CLASS, master weights aside. */
static uint64_t state_bytes(struct sum *s, const struct memory_options *o, int class,
                            uint64_t n, uint64_t sides)
{
    uint64_t each = o->master || o->other->block_bytes == 4 ? 4 : o->other->block_bytes;

    switch (o->optimizer) {
    case OPTIMIZER_ADAMW:
        return times(s, n, 2 * each);
    case OPTIMIZER_ADAM8BIT:
        return times(s, n, 2) + times(s, share(n, 2048), 8);
    case OPTIMIZER_SGD:
        return 0;
    case OPTIMIZER_MOMENTUM:
    case OPTIMIZER_LION:
        return times(s, n, each);
    case OPTIMIZER_ADAFACTOR:
        return times(s, class == WEIGHT_VECTOR ? n : sides, 4);
    case OPTIMIZER_MUON:
        return times(
            s, n, class == WEIGHT_MATRIX || class == WEIGHT_EXPERT ? each : 2 * each);
    }
    return 0;
}

static uint64_t trained_elements(struct sum *s, const struct memory_options *o,
                                 const struct weight_sum *w)
{
    return w->trained + times(s, o->lora_rank, w->adapted_sides);
}

static uint64_t gradient_bytes(struct sum *s, const struct memory_options *o, int class,
                               const struct weight_sum *w)
{
    uint64_t n = times(s, trained_elements(s, o, w), o->grad_bytes);

    return o->zero >= 2 ? share(n, shard_group(o, class)) : n;
}

/* Weights, gradients and optimizer of one class: to OUT, and what is on the host. */
static void add_states(struct sum out[MEMORY_CATEGORIES], struct sum *host,
                       const struct memory_options *o, const struct weight_sum *w,
                       int class)
{
    uint64_t group = shard_group(o, class);
    uint64_t adapters = times(host, o->lora_rank, w->adapted_sides);
    uint64_t trained = trained_elements(host, o, w);
    uint64_t sides = w->trained_sides + (adapters ? w->adapted_sides : 0);
    bool low = o->other->block_bytes < 4;
    uint64_t weights =
        weight_bytes(o, w, class) + times(host, adapters, o->other->block_bytes);
    uint64_t gradients, state;

    if (!o->train) {
        plus(&out[MEMORY_WEIGHTS], weights);
        return;
    }
    gradients = gradient_bytes(host, o, class, w);
    state = state_bytes(host, o, class, trained, sides);
    if (o->master && low && !(o->optimizer == OPTIMIZER_SGD && !trained))
        state += times(host, trained, 4);
    if (o->zero >= 3)
        weights = share(weights, group);
    if (o->zero >= 1)
        state = share(state, group);
    plus(o->offload == OFFLOAD_PARAMS ? host : &out[MEMORY_WEIGHTS], weights);
    plus(o->offload != OFFLOAD_NONE ? host : &out[MEMORY_GRADIENTS], gradients);
    plus(o->offload != OFFLOAD_NONE ? host : &out[MEMORY_OPTIMIZER], state);
}

/* ---- values ---- */

/* Tokens of a micro-batch that one rank works on. */
static uint64_t rank_tokens(struct sum *s, const struct memory_options *o)
{
    return times(s, o->micro_batch, share(o->seq, (uint64_t)o->mesh.size[MESH_SP]));
}

static uint64_t whole_share(const struct memory_options *o, uint64_t n)
{
    return o->sequence_parallel ? share(n, (uint64_t)o->mesh.size[MESH_TP]) : n;
}

/* ---- training ---- */

static void add_columns(struct sum *out, const struct memory_options *o,
                        const struct columns *c)
{
    uint64_t tokens = rank_tokens(out, o);

    plus3(out, tokens, c->cut + whole_share(o, c->whole), o->compute_bytes);
    plus3(out, tokens, c->wide_cut + whole_share(o, c->wide_whole), sizeof(float));
}

/* EACH bytes for each score of U; heads are dealt over sp for attention. */
static void add_scores(struct sum *out, const struct memory_options *o,
                       const struct unit *u, uint64_t each)
{
    uint64_t pairs =
        times(out, times(out, o->micro_batch * o->seq, o->seq), u->kept.heads * each);

    plus(out, share(pairs, (uint64_t)o->mesh.size[MESH_SP]));
}

/* Of a score the backward pass reads the probability, what dropout leaves of it and its
 * mask; PyTorch makes probabilities in f32 and has them once more as values, and scores
 * are values of a cap besides. */
static uint64_t kept_of_score(const struct memory_options *o, const struct unit *u)
{
    uint64_t value = o->compute_bytes, kept = o->eager ? 4 : value;

    if (o->dropout)
        kept += value + 1;
    else if (o->eager && value < 4)
        kept += value;
    return kept + (o->eager && u->kept.capped ? value : 0);
}

/* When the softmax is gone through there are two gradients beside the probability. */
static uint64_t worst_of_score(const struct memory_options *o, const struct unit *u)
{
    uint64_t wide = o->eager ? 4 : o->compute_bytes;

    return 3 * wide + (o->eager && u->kept.capped ? o->compute_bytes : 0);
}

/* What the backward pass reads of U besides its values: masks, and of attention sums or
 * scores. */
static void add_rest(struct sum *out, const struct memory_options *o,
                     const struct unit *u, uint64_t of_score)
{
    if (o->dropout)
        plus3(out, rank_tokens(out, o), whole_share(o, u->kept.masks), 1);
    if (o->flash)
        plus3(out, rank_tokens(out, o), u->kept.heads, 4);
    else
        add_scores(out, o, u, of_score);
}

/* All that the backward pass reads of U. */
static void add_kept(struct sum *out, const struct memory_options *o,
                     const struct unit *u, bool scores)
{
    const struct columns kept = { u->kept.cut, u->kept.whole, u->kept.wide_cut,
                                  u->kept.wide_whole };

    add_columns(out, o, &kept);
    add_rest(out, o, u, scores ? kept_of_score(o, u) : 0);
}

static void add_border(struct sum *out, const struct memory_options *o,
                       const struct unit *u)
{
    plus3(out, rank_tokens(out, o), whole_share(o, u->kept.border), o->compute_bytes);
}

static bool made_again(const struct memory_options *o, const struct unit *u)
{
    return u->layer >= 0 &&
           (o->recompute == RECOMPUTE_FULL || o->recompute == RECOMPUTE_PRODUCTS);
}

/* What U saves in the forward pass. */
static void add_saved(struct sum *out, const struct memory_options *o,
                      const struct unit *u)
{
    if (!made_again(o, u)) {
        add_kept(out, o, u, o->recompute != RECOMPUTE_SELECTIVE);
        return;
    }
    add_border(out, o, u);
    if (o->recompute == RECOMPUTE_PRODUCTS) {
        add_columns(out, o, &u->sparse);
        if (o->flash)
            plus3(out, rank_tokens(out, o), u->kept.heads, 4);
    }
}

/* Of a unit, in bytes. */
struct unit_bytes {
    uint64_t saved;     /* in the forward pass */
    uint64_t again;     /* made again in the backward pass */
    uint64_t working;   /* and what there is besides at its worst moment; */
    uint64_t gradients; /* of weights, in all, */
    uint64_t made;      /* and until then */
};

/* What there is of U at moment W, of each score SCORE bytes. */
static uint64_t bytes_at(struct sum *over, const struct memory_options *o,
                         const struct unit *u, const struct unit_worst *w,
                         uint64_t score)
{
    struct sum s = { 0 };

    add_columns(&s, o, &w->columns);
    add_rest(&s, o, u, score);
    over->over |= s.over;
    return s.v;
}

static struct unit_bytes bytes_of(struct sum *over, const struct memory_options *o,
                                  const struct unit *u)
{
    struct sum saved = { 0 }, again = { 0 };
    struct unit_bytes b = { 0 };
    bool scores = made_again(o, u) || o->recompute != RECOMPUTE_SELECTIVE;
    uint64_t all = bytes_at(over, o, u, &u->worst, scores ? kept_of_score(o, u) : 0);
    uint64_t attention =
        bytes_at(over, o, u, &u->worst_attention, worst_of_score(o, u));
    uint64_t worst = all > attention ? all : attention, there;

    add_saved(&saved, o, u);
    if (made_again(o, u))
        add_kept(&again, o, u, true);
    b.saved = saved.v;
    b.again = again.v;
    there = made_again(o, u) ? b.again : b.saved;
    b.working = worst > there ? worst - there : 0;
    for (int c = 0; c < WEIGHT_CLASSES; c++)
        b.gradients += gradient_bytes(over, o, c, &u->weight[c]);
    b.made =
        (uint64_t)((double)b.gradients / 1000 *
                   (double)(all > attention ? u->worst.made : u->worst_attention.made));
    over->over |= saved.over || again.over;
    return b;
}

/* Gradients outlive a micro-batch, or lie in buffers from which they are summed. */
static bool has_gradients_before(const struct memory_options *o)
{
    return o->micro_batches > 1 || (o->zero < 2 && replicas(o, WEIGHT_MATRIX) > 1);
}

/* Bytes of gradients of common tensors that unit U makes, to *FIRST those of which MADE
 * tells none, and to *MORE the others, which PyTorch has beside them to be added. */
static void add_common_gradients(struct sum *first, struct sum *more, bool *made,
                                 const struct anatomy *a,
                                 const struct memory_options *o, const struct held *h,
                                 const struct unit *u)
{
    for (int i = 0; i < a->ncommons; i++) {
        const struct common *c = &a->common[i];
        bool reads = c->read_by ? c->read_by >> u->index & 1 : u == a->unit;

        if (!reads || !holds(a, c, h))
            continue;
        if (!made[i])
            plus(first, gradient_bytes(first, o, c->class, &c->sum));
        else if (o->eager && c->class == WEIGHT_TABLE)
            plus(more, gradient_bytes(more, o, c->class, &c->sum));
        made[i] = true;
    }
}

/* What a stage has of values, and of gradients at most GRADIENTS bytes. */
struct stage_values {
    struct unit_bytes *unit; /* [nunits] */
    uint64_t saved;          /* of all micro-batches in flight, */
    uint64_t again, working; /* and the most of a unit */
    uint64_t gradients;
};

static void open_values(struct stage_values *v, struct sum *over,
                        const struct anatomy *a, const struct memory_options *o,
                        int stage, const struct held *h)
{
    struct sum one = { 0 };

    v->unit = xcalloc((size_t)a->nunits + 1, sizeof(*v->unit));
    for (int i = 0; i < a->nunits; i++) {
        struct unit_bytes *u = &v->unit[i];

        if (!runs(&a->unit[i], h))
            continue;
        *u = bytes_of(over, o, &a->unit[i]);
        plus(&one, u->saved);
        v->again = u->again > v->again ? u->again : v->again;
        v->working = u->working > v->working ? u->working : v->working;
    }
    v->saved = share(times(over, one.v, o->inflight ? o->inflight[stage] : 1000), 1000);
    over->over |= one.over;
}

/* Go back through the units of a stage.  At each there are the values that those before
 * it saved, its own, made again if need be, and the gradients so far.  The most of that
 * is written to PEAK. */
static void find_peak(uint64_t peak[MEMORY_CATEGORIES], struct sum *over,
                      const struct stage_values *v, const struct anatomy *a,
                      const struct memory_options *o, const struct held *h)
{
    bool all = has_gradients_before(o);
    bool *made = xcalloc((size_t)a->ncommons + 1, sizeof(*made));
    struct sum gradients = { 0 };
    uint64_t left = v->saved, most = 0;

    for (int i = a->nunits - 1; i >= 0; i--) {
        const struct unit_bytes *u = &v->unit[i];
        struct sum working = { .v = u->working };
        uint64_t now;

        if (!runs(&a->unit[i], h))
            continue;
        add_common_gradients(&gradients, &working, made, a, o, h, &a->unit[i]);
        now = all || gradients.v + u->made > v->gradients ? v->gradients
                                                          : gradients.v + u->made;
        plus(&gradients, u->gradients);
        if (left + u->again + working.v + now >= most) {
            most = left + u->again + working.v + now;
            peak[MEMORY_ACTIVATIONS] = left + u->again;
            peak[MEMORY_WORKING] = working.v;
            peak[MEMORY_GRADIENTS] = now;
        }
        left -= u->saved < left ? u->saved : left;
        over->over |= working.over;
    }
    over->over |= gradients.over;
    free(made);
}

static void add_cache(struct sum *out, const struct anatomy *a,
                      const struct memory_options *o, const struct held *h)
{
    uint64_t sequences = times(out, o->micro_batch, o->micro_batches);

    for (int i = 0; i < a->nunits; i++) {
        const struct unit *u = &a->unit[i];

        for (int k = 0; k < u->ncaches && runs(u, h); k++) {
            uint64_t window = u->cache[k].window;
            uint64_t tokens = window && window < o->seq ? window : o->seq;

            tokens = times(out, share(tokens, o->kv_block), o->kv_block);
            tokens = share(tokens, (uint64_t)o->mesh.size[MESH_SP]);
            plus3(out, sequences, tokens, times(out, u->cache[k].cols, o->kv_bytes));
        }
    }
}

/* One step of inference: the block that the program's values share. */
static void add_step(struct sum *activations, struct sum *logits,
                     const struct anatomy *a, const struct memory_options *o, bool last)
{
    uint64_t *offset = xmalloc(sizeof(*offset) * (size_t)(a->program->nvalues + 1));
    uint64_t bytes, tokens = rank_tokens(activations, o);
    uint64_t most[ROWS_KINDS] = { [ROWS_TOKENS] = tokens,
                                  [ROWS_WANTED] = o->micro_batch,
                                  [ROWS_ONE] = 1,
                                  [ROWS_SOURCE] = tokens,
                                  /* all may go to one expert */
                                  [ROWS_CHOSEN] = tokens };

    if (!program_arena(a->program, most, offset, &bytes))
        activations->over = true;
    else
        plus(activations, times(activations, bytes / sizeof(float), o->compute_bytes));
    if (last) { /* which have a place in that block, too */
        uint64_t within = times(logits, o->micro_batch * a->vocab, o->compute_bytes);

        plus3(logits, o->micro_batch, a->vocab, sizeof(float));
        activations->v -= within < activations->v ? within : activations->v;
    }
    free(offset);
}

static void add_comm(struct sum *out, const struct anatomy *a,
                     const struct memory_options *o, const struct held *h)
{
    uint64_t border = 0;

    if (!o->train) /* what comes in has its place among the values of the step */
        return;
    for (int i = 0; i < a->nunits; i++)
        if (a->unit[i].layer >= 0 && a->unit[i].kept.border > border &&
            runs(&a->unit[i], h))
            border = a->unit[i].kept.border;
    if (o->mesh.size[MESH_PP] > 1) /* one message comes in while another goes out */
        plus3(out, times(out, 2, rank_tokens(out, o)), whole_share(o, border),
              o->compute_bytes);
    if (replicas(o, WEIGHT_MATRIX) == 1 && o->offload != OFFLOAD_PARAMS)
        return;
    if (o->zero == 3) /* the gathered (or fetched) unit and its gradients */
        plus3(out, a->largest, 2,
              o->compute_bytes < o->other->block_bytes ? o->compute_bytes
                                                       : o->other->block_bytes);
    else
        plus(out, BUCKET_BYTES);
}

/* Itself and what caps keep, and a copy in f32 in which the loss and its gradient are
 * made; PyTorch makes the likelihoods and two gradients in f32. */
uint64_t memory_of_logit(const struct anatomy *a, const struct memory_options *o)
{
    uint64_t value = o->compute_bytes * (1 + a->caps);

    if (o->fused_loss)
        return 0;
    if (o->eager)
        return value + 3 * sizeof(float);
    return value + (o->compute_bytes < sizeof(float) ? sizeof(float) : 0);
}

/* OUT->peak at MOMENT, when what is lost between allocations is known, and its sum. */
static bool settle(struct rank_memory *out, const struct memory_options *o,
                   enum memory_moment moment)
{
    struct sum total = { 0 };
    uint64_t *p = out->peak;

    out->moment = moment;
    p[MEMORY_FRAGMENTATION] =
        (uint64_t)((double)(p[MEMORY_ACTIVATIONS] + p[MEMORY_LOGITS] +
                            p[MEMORY_WORKING] + p[MEMORY_COMM]) *
                   o->fragmentation);
    for (int k = 0; k < MEMORY_CATEGORIES; k++)
        plus(&total, p[k]);
    out->total = total.v;
    return !total.over;
}

/* Training has two moments: the loss, when all values are there that are read again
 * and, of a single micro-batch, no gradients; and the worst of the backward pass.  (The
 * optimizer's step has no more than the end of that.) */
static bool settle_training(struct rank_memory *out, const struct anatomy *a,
                            const struct memory_options *o, const struct held *h,
                            const struct stage_values *v)
{
    struct rank_memory loss;
    struct sum over = { 0 };
    bool ok;

    memcpy(out->peak, out->bytes, sizeof(out->peak));
    out->peak[MEMORY_LOGITS] = 0;
    find_peak(out->peak, &over, v, a, o, h);
    if (out->peak[MEMORY_WORKING] > out->bytes[MEMORY_WORKING])
        out->bytes[MEMORY_WORKING] = out->peak[MEMORY_WORKING];
    ok = settle(out, o, MOMENT_BACKWARD) && !over.over;
    loss = *out;
    if (!loss.bytes[MEMORY_LOGITS])
        return ok;
    memcpy(loss.peak, loss.bytes, sizeof(loss.peak));
    loss.peak[MEMORY_ACTIVATIONS] = v->saved;
    loss.peak[MEMORY_WORKING] = 0;
    if (!has_gradients_before(o))
        loss.peak[MEMORY_GRADIENTS] = 0;
    ok &= settle(&loss, o, MOMENT_LOSS);
    if (loss.total > out->total)
        *out = loss;
    return ok;
}

bool memory_of_stage(struct rank_memory *out, const struct anatomy *a,
                     const struct memory_options *o, int stage)
{
    struct held h = held_by(a, o, stage);
    struct sum c[MEMORY_CATEGORIES] = { 0 }, host = { 0 };
    struct weight_sum weights[WEIGHT_CLASSES];
    struct stage_values v = { 0 };
    bool last = stage == (o->folded ? 0 : o->mesh.size[MESH_PP] - 1), ok = true;

    stage_weights(weights, a, &h);
    for (int k = 0; k < WEIGHT_CLASSES; k++)
        add_states(c, &host, o, &weights[k], k);
    if (o->train) {
        open_values(&v, &host, a, o, stage, &h);
        v.gradients = c[MEMORY_GRADIENTS].v;
        plus(&c[MEMORY_ACTIVATIONS], v.saved);
        plus(&c[MEMORY_ACTIVATIONS], v.again);
        plus(&c[MEMORY_WORKING], v.working);
        if (last)
            plus3(&c[MEMORY_LOGITS], rank_tokens(&c[MEMORY_LOGITS], o), a->vocab,
                  memory_of_logit(a, o));
    } else {
        add_step(&c[MEMORY_ACTIVATIONS], &c[MEMORY_LOGITS], a, o, last);
        add_cache(&c[MEMORY_KV_CACHE], a, o, &h);
    }
    add_comm(&c[MEMORY_COMM], a, o, &h);
    plus(&c[MEMORY_RUNTIME], o->runtime);
    *out = (struct rank_memory){ .host = host.v };
    for (int k = 0; k < MEMORY_CATEGORIES; k++) {
        out->bytes[k] = c[k].v;
        ok &= !c[k].over;
    }
    memcpy(out->peak, out->bytes, sizeof(out->peak));
    ok &=
        o->train ? settle_training(out, a, o, &h, &v) : settle(out, o, MOMENT_FORWARD);
    out->bytes[MEMORY_FRAGMENTATION] = out->peak[MEMORY_FRAGMENTATION];
    free(v.unit);
    return ok && !host.over;
}

/* ---- a whole layout ---- */

/* Do the ranks at A and B hold equally much of every dealt symbol? */
static bool same_share(const struct model *m, const struct share *a,
                       const struct share *b)
{
    for (int i = 0; i < m->scope.n; i++)
        if (a[i].count != b[i].count)
            return false;
    return true;
}

static struct rank_memory *find_kind(struct memory_estimate *e,
                                     const struct rank_memory *like)
{
    for (size_t i = 0; i < e->nkinds; i++)
        if (!memcmp(e->kind[i].bytes, like->bytes, sizeof(like->bytes)) &&
            !memcmp(e->kind[i].peak, like->peak, sizeof(like->peak)) &&
            e->kind[i].host == like->host)
            return &e->kind[i];
    e->kind = xrealloc(e->kind, sizeof(*e->kind) * (e->nkinds + 1));
    e->kind[e->nkinds] = *like;
    e->kind[e->nkinds].count = 0;
    return &e->kind[e->nkinds++];
}

/* Add the ranks at tensor and expert coordinate COORD, COPIES of each, on all stages.
 */
static int add_stages(struct memory_estimate *e, const struct anatomy *a,
                      const struct memory_options *o, const int coord[MESH_NAXES],
                      uint64_t copies, struct err *err)
{
    for (int s = 0; s < o->mesh.size[MESH_PP]; s++) {
        struct rank_memory one;

        if (!memory_of_stage(&one, a, o, s))
            return err_set(err, ERR_USAGE, "the bytes of this layout overflow");
        memcpy(one.coord, coord, sizeof(one.coord));
        one.coord[MESH_PP] = s;
        find_kind(e, &one)->count += copies;
    }
    return 0;
}

struct anatomy_options memory_anatomy(const struct memory_options *o)
{
    return (struct anatomy_options){
        .lora = o->lora_rank > 0,
        .targets = o->lora_targets,
        .freeze = o->freeze,
        .eager = o->eager,
        .narrow = o->compute_bytes < sizeof(float),
        .scores = !o->flash,
    };
}

struct known {
    struct share *share;
    struct anatomy *anatomy;
};

/* The anatomy at COORD: that of an earlier rank which holds as much, or a new one. */
static struct anatomy *anatomy_at(struct known **known, size_t *n,
                                  const struct model *m, const enum dtype *stored,
                                  const struct memory_options *o,
                                  const int coord[MESH_NAXES], struct err *err)
{
    const struct anatomy_options options = memory_anatomy(o);
    struct share *share = model_shares(m, &o->mesh, coord);
    struct anatomy *a;

    for (size_t i = 0; i < *n; i++)
        if (same_share(m, (*known)[i].share, share)) {
            free(share);
            return (*known)[i].anatomy;
        }
    if (anatomy_open(&a, m, &o->mesh, coord, stored, &options, err) < 0) {
        free(share);
        return NULL;
    }
    *known = xrealloc(*known, sizeof(**known) * (*n + 1));
    (*known)[(*n)++] = (struct known){ share, a };
    return a;
}

int memory_estimate(struct memory_estimate *e, const struct model *m,
                    const enum dtype *stored, const struct memory_options *o,
                    struct err *err)
{
    struct memory_estimate made = { 0 };
    struct known *known = NULL;
    size_t n = 0;
    int ret = -1;

    if (model_check_mesh(m, &o->mesh, err) < 0)
        return -1;
    for (int ep = 0; ep < o->mesh.size[MESH_EP]; ep++)
        for (int tp = 0; tp < o->mesh.size[MESH_TP]; tp++) {
            const int coord[MESH_NAXES] = { [MESH_TP] = tp, [MESH_EP] = ep };
            struct anatomy *a = anatomy_at(&known, &n, m, stored, o, coord, err);

            if (!a || add_stages(&made, a, o, coord,
                                 (uint64_t)o->mesh.size[MESH_DP] *
                                     (uint64_t)o->mesh.size[MESH_SP],
                                 err) < 0)
                goto out;
        }
    made.peak = made.kind;
    for (size_t i = 1; i < made.nkinds; i++)
        if (made.kind[i].total > made.peak->total)
            made.peak = &made.kind[i];
    *e = made;
    ret = 0;
out:
    for (size_t i = 0; i < n; i++) {
        anatomy_close(known[i].anatomy);
        free(known[i].share);
    }
    free(known);
    if (ret < 0)
        memory_estimate_clear(&made);
    return ret;
}

void memory_estimate_clear(struct memory_estimate *e)
{
    free(e->kind);
    *e = (struct memory_estimate){ 0 };
}
