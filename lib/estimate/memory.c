/* memory - the bytes that each rank of a layout needs, by category
 *
 * ZeRO: Rajbhandari et al. 2020; the shard group is dp x ep x sp, for experts, which
 * are not replicated over ep, dp x sp.  Activations: Korthikanti et al. 2022. Optimizer
 * states per element: Adam 8 bytes; 8-bit Adam 2, and a scale for each 2,048 elements
 * (Dettmers et al. 2022); Adafactor a row and a column per matrix (Shazeer and Stern
 * 2018); Muon a momentum for matrices of layers, Adam for the rest (Jordan 2024). */
#include "lib/estimate/memory.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/estimate/habits.h"
#include "lib/estimate/served.h"
#include "lib/estimate/training.h"

const char *const memory_category_names[MEMORY_CATEGORIES + 1] = {
    "weights",  "gradients", "optimizer", "activations",   "logits", "working",
    "kv_cache", "comm",      "runtime",   "fragmentation", NULL
};
const char *const memory_moment_names[MOMENTS + 1] = { "forward", "loss", "backward",
                                                       NULL };
const char *const offload_names[OFFLOAD_WORDS + 1] = { "none",
                                                       "optimizer",
                                                       "params",
                                                       "activations",
                                                       "optimizer,activations",
                                                       "params,activations",
                                                       NULL };

int offload_word(const struct memory_options *o)
{
    return (int)o->offload + (o->away ? OFFLOAD_STATES : 0);
}

void offload_set(struct memory_options *o, int word)
{
    o->offload = (enum offload)(word % OFFLOAD_STATES);
    o->away = word >= OFFLOAD_STATES;
}

enum { BUCKET_BYTES = 25 << 20 }; /* gradient bucket: PyTorch DDP's default */

static uint64_t weight_bytes(const struct memory_options *o, const struct weight_sum *w,
                             int class)
{
    const struct weight_type *t = o->weights ? o->weights : o->other;
    bool covered = t->scope == SCOPE_ALL ||
                   (class != WEIGHT_VECTOR &&
                    (t->scope == SCOPE_MATRICES || class != WEIGHT_TABLE));

    if (!o->weights && w->bytes)
        return w->bytes;
    if (o->framework == FRAMEWORK_TP_RUN && t->scope == SCOPE_LINEAR &&
        (!strcmp(t->name, "int8") || !strcmp(t->name, "int4"))) {
        int k = !strcmp(t->name, "int4");

        return w->coded[k].bytes +
               (w->bytes ? w->coded[k].stored
                         : weight_type_bytes(o->other, w->coded[k].others, 0));
    }
    return covered ? weight_type_bytes(t, w->elements, w->rows)
                   : weight_type_bytes(o->other, w->elements, w->rows);
}

/* Bytes of optimizer state for N trained elements of CLASS, without master weights. */
static uint64_t state_bytes(struct tally *s, const struct memory_options *o, int class,
                            uint64_t n, uint64_t sides)
{
    uint64_t each = o->master || o->other->block_bytes == 4 ? 4 : o->other->block_bytes;

    switch (o->optimizer) {
    case OPTIMIZER_ADAMW:
        return tally_times(s, n, 2 * each);
    case OPTIMIZER_ADAM8BIT:
        return tally_times(s, n, 2) + tally_times(s, tally_part(n, 2048), 8);
    case OPTIMIZER_SGD:
        return 0;
    case OPTIMIZER_MOMENTUM:
    case OPTIMIZER_LION:
        return tally_times(s, n, each);
    case OPTIMIZER_ADAFACTOR:
        return tally_times(s, class == WEIGHT_VECTOR ? n : sides, 4);
    case OPTIMIZER_MUON:
        return tally_times(
            s, n, class == WEIGHT_MATRIX || class == WEIGHT_EXPERT ? each : 2 * each);
    case OPTIMIZER_KINDS:
        break;
    }
    return 0;
}

/* Adds weights, gradients and optimizer states of one class to OUT, offloaded ones to
 * HOST. */
static void add_states(struct tally out[MEMORY_CATEGORIES], struct tally *host,
                       const struct memory_options *o, const struct weight_sum *w,
                       int class)
{
    uint64_t group = part_group(o, class);
    uint64_t adapters = tally_times(host, o->lora_rank, w->adapted_sides);
    uint64_t trained = part_trained(host, o, w);
    uint64_t sides = w->trained_sides + (adapters ? w->adapted_sides : 0);
    bool low = o->other->block_bytes < 4;
    uint64_t weights =
        weight_bytes(o, w, class) + tally_times(host, adapters, o->other->block_bytes);
    uint64_t gradients, state;

    if (!o->train) {
        tally_add(&out[MEMORY_WEIGHTS], weights);
        return;
    }
    gradients = part_gradients(host, o, class, w);
    state = state_bytes(host, o, class, trained, sides);
    if (o->master && low && !(o->optimizer == OPTIMIZER_SGD && !trained))
        state += tally_times(host, trained, 4);
    state += tally_times(host, trained, habits_of(o).grad_state);
    if (o->zero >= 3)
        weights = tally_part(weights, group);
    if (o->zero >= 1)
        state = tally_part(state, group);
    tally_add(o->offload == OFFLOAD_PARAMS ? host : &out[MEMORY_WEIGHTS], weights);
    tally_add(o->offload != OFFLOAD_NONE ? host : &out[MEMORY_GRADIENTS], gradients);
    tally_add(o->offload != OFFLOAD_NONE ? host : &out[MEMORY_OPTIMIZER], state);
}

/* Bytes of a row of CACHE. */
static uint64_t cached_bytes(struct tally *over, const struct memory_options *o,
                             const struct unit_cache *cache)
{
    uint64_t width = cache->heads ? cache->cols / cache->heads : 0;

    if (!o->kv_scales || !width)
        return tally_times(over, cache->cols, (uint64_t)format_bits(o->kv_format)) / 8;
    return format_row_bytes(o->kv_format, cache->cols,
                            format_cached_per(o->kv_format, width));
}

static void add_cache(struct tally *out, const struct costmodel *a,
                      const struct memory_options *o, const struct part *p)
{
    uint64_t sequences = tally_times(out, o->micro_batch, o->micro_batches);

    for (int i = 0; i < p->nslices; i++) {
        const struct unit *u = &a->unit[p->slice[i].first];

        tally_add3(out, (uint64_t)p->slice[i].n, sequences,
                   tally_times(out, u->state, sizeof(float)));
        for (int k = 0; k < u->ncaches; k++) {
            uint64_t window = u->cache[k].window;
            uint64_t tokens = window && window < o->seq ? window : o->seq;

            tokens = tally_times(out, tally_part(tokens, o->kv_block), o->kv_block);
            tokens = tally_times(out, tokens, sequences);
            if (o->cache_tokens && (!window || o->cache_tokens < tokens))
                tokens = o->cache_tokens / o->kv_block * o->kv_block;
            tokens = tally_part(tokens, (uint64_t)o->mesh.size[MESH_SP]);
            tally_add3(out, (uint64_t)p->slice[i].n, tokens,
                       cached_bytes(out, o, &u->cache[k]));
        }
    }
}

/* Tokens of a rank in a step of inference.  Models without a causal mask, such as
 * encoders, take whole sequences. */
static uint64_t step_tokens(struct tally *over, const struct memory_options *o,
                            bool causal)
{
    uint64_t sp = (uint64_t)o->mesh.size[MESH_SP], all = part_tokens(over, o);
    uint64_t some = tally_part(o->prefill, sp), one = tally_part(o->seq, sp);

    if (!o->prefill)
        return all;
    if (causal)
        some += o->micro_batch - 1;
    else
        some = some < one ? one : some / one * one;
    return some < all ? some : all;
}

/* One step of inference: the arena of the program's values; logits are listed apart. */
static void add_step(struct tally *activations, struct tally *logits,
                     const struct costmodel *a, const struct memory_options *o,
                     bool last)
{
    uint64_t *offset = xmalloc(sizeof(*offset) * (size_t)(a->program->nvalues + 1));
    uint64_t bytes;
    uint64_t most[ROWS_MOST] = {
        [ROWS_TOKENS] = step_tokens(activations, o, a->causal),
        [ROWS_WANTED] = o->micro_batch,
        [ROWS_ONE] = 1,
        [ROWS_SOURCE] = step_tokens(activations, o, false),
        [ROWS_CHOSEN] = 1 /* balanced: a rank's experts get as many rows as it sends */
    };

    rows_most(&a->program->rows, most);
    if (!program_arena(a->program, most, offset, &bytes))
        activations->over = true;
    else
        tally_add(activations,
                  tally_times(activations, bytes / sizeof(float), o->compute_bytes));
    if (last) { /* the logits are in the arena, too: do not count them twice */
        uint64_t within =
            tally_times(logits, o->micro_batch * a->vocab, o->compute_bytes);

        tally_add3(logits, o->micro_batch, a->vocab, sizeof(float));
        activations->v -= within < activations->v ? within : activations->v;
    }
    free(offset);
}

/* Number of message buffers of a stage.  Two: one message comes in while another goes
 * out. With keeps_messages: every message that it sends and whose backward pass is not
 * done, and a buffer for every message that it receives, except those that its layers
 * save as their input. */
static uint64_t messages_at_once(const struct memory_options *o, int stage)
{
    uint64_t chunks = (uint64_t)(o->chunks > 1 ? o->chunks : 1);
    uint64_t all = o->micro_batches * chunks, held = chunks, n = 0;

    if (!habits_of(o).keeps_messages)
        return 2;
    if (o->inflight)
        held = tally_part(o->inflight[stage] * chunks, 1000);
    held = held < all ? held : all;
    if (stage > 0 || chunks > 1)
        n += all - held;
    if (stage < o->mesh.size[MESH_PP] - 1 || chunks > 1)
        n += all + held;
    return n;
}

static void add_messages(struct tally *out, const struct costmodel *a,
                         const struct memory_options *o, const struct part *p,
                         int stage)
{
    uint64_t boundary = 0;

    for (int i = 0; i < p->nslices; i++) {
        const struct unit *u = &a->unit[p->slice[i].first];

        if (u->layer >= 0 && u->kept.boundary > boundary)
            boundary = u->kept.boundary;
    }
    tally_add3(out, tally_times(out, messages_at_once(o, stage), part_tokens(out, o)),
               part_columns(o, boundary), o->compute_bytes);
}

/* Elements of gathered weights and their gradients on a stage with N elements. */
static uint64_t gathered_elements(const struct costmodel *a,
                                  const struct memory_options *o, uint64_t n)
{
    struct habits h = habits_of(o);

    if (h.keeps_stage && o->mesh.size[MESH_PP] > 1)
        return n + a->largest; /* a unit's gradients before they are added to the f32
                                  ones */
    if (h.live) {              /* and a bucket of gradients */
        uint64_t live = h.live > a->largest ? h.live : a->largest;

        return (live < n ? live : n) + (h.bucket < n ? h.bucket : n);
    }
    return 2 * a->largest; /* the gathered unit and its gradients */
}

static void add_comm(struct tally *out, const struct costmodel *a,
                     const struct memory_options *o, const struct part *p,
                     const struct weight_sum weights[WEIGHT_CLASSES], int stage)
{
    struct habits h = habits_of(o);
    uint64_t all = 0, each = o->other->block_bytes;

    if (!o->train) /* received values are part of the arena */
        return;
    for (int c = 0; c < WEIGHT_CLASSES; c++)
        all += weights[c].elements;
    if (o->mesh.size[MESH_PP] > 1)
        add_messages(out, a, o, p, stage);
    if (part_replicas(o, WEIGHT_MATRIX) == 1 && o->offload != OFFLOAD_PARAMS)
        return;
    if (o->zero == 3)
        tally_add3(out, gathered_elements(a, o, all), 1,
                   o->compute_bytes < each ? o->compute_bytes : each);
    else if (h.bucket) /* one of gradients, and one of weights where they are
                        * gathered */
        tally_add3(out, h.bucket < all ? h.bucket : all, o->zero ? 2 : 1, each);
    else if (!h.buffers)
        tally_add(out, BUCKET_BYTES);
}

/* The logit, the copies that softcaps save, and an f32 copy for the loss and its
 * gradient. PyTorch in eager mode makes the log-probabilities and two gradients in
 * f32. */
uint64_t memory_of_logit(const struct costmodel *a, const struct memory_options *o)
{
    uint64_t value = o->compute_bytes * (1 + a->caps);

    if (o->fused_loss)
        return 0;
    if (habits_of(o).of_logit)
        return value + habits_of(o).of_logit;
    if (o->eager)
        return value + 3 * (a->narrow_loss ? o->compute_bytes : sizeof(float));
    return value + (o->compute_bytes < sizeof(float) ? sizeof(float) : 0);
}

/* Completes OUT->peak at MOMENT with the fragmentation, and sets the total. */
static bool settle(struct rank_memory *out, const struct memory_options *o,
                   enum memory_moment moment)
{
    struct tally total = { 0 };
    uint64_t *peak = out->peak;

    out->moment = moment;
    peak[MEMORY_FRAGMENTATION] =
        (uint64_t)((double)(peak[MEMORY_ACTIVATIONS] + peak[MEMORY_LOGITS] +
                            peak[MEMORY_WORKING] + peak[MEMORY_COMM]) *
                   o->fragmentation);
    for (int k = 0; k < MEMORY_CATEGORIES; k++)
        tally_add(&total, peak[k]);
    out->total = total.v;
    return !total.over;
}

/* Training has two candidates for the peak: the loss, when all saved activations are
 * live and, with a single micro-batch, no gradients; and the largest sum of the
 * backward pass. (The optimizer step needs no more than the end of the backward
 * pass.) */
static bool settle_training(struct rank_memory *out, const struct memory_options *o,
                            const struct training *t)
{
    struct rank_memory loss;
    struct tally over = { 0 };
    bool ok;

    memcpy(out->peak, out->bytes, sizeof(out->peak));
    out->peak[MEMORY_LOGITS] = 0;
    training_peak(out->peak, &over, t, out->bytes[MEMORY_GRADIENTS]);
    if (out->peak[MEMORY_WORKING] > out->bytes[MEMORY_WORKING])
        out->bytes[MEMORY_WORKING] = out->peak[MEMORY_WORKING];
    ok = settle(out, o, MOMENT_BACKWARD) && !over.over;
    loss = *out;
    if (!loss.bytes[MEMORY_LOGITS])
        return ok;
    memcpy(loss.peak, loss.bytes, sizeof(loss.peak));
    loss.peak[MEMORY_ACTIVATIONS] = t->saved;
    loss.peak[MEMORY_WORKING] = 0;
    if (!training_has_gradients(o))
        loss.peak[MEMORY_GRADIENTS] = 0;
    ok &= settle(&loss, o, MOMENT_LOSS);
    if (loss.total > out->total)
        *out = loss;
    return ok;
}

bool memory_of_stage(struct rank_memory *out, const struct costmodel *a,
                     const struct memory_options *o, int stage)
{
    struct part p;
    struct tally c[MEMORY_CATEGORIES] = { 0 }, host = { 0 };
    struct weight_sum weights[WEIGHT_CLASSES];
    struct training t = { 0 };
    bool end = stage == o->mesh.size[MESH_PP] - 1, ok = true;
    bool last =
        o->fold == FOLD_NONE ? end : stage == 0 || (o->fold == FOLD_TWICE && end);

    part_open(&p, a, o, stage);
    part_weights(weights, &p, a);
    for (int k = 0; k < WEIGHT_CLASSES; k++)
        add_states(c, &host, o, &weights[k], k);
    if (habits_of(o).tables)
        tally_add3(&c[MEMORY_WEIGHTS], 1, a->angles, o->other->block_bytes);
    if (o->train) {
        training_open(&t, &host, a, o, &p, stage);
        tally_add(&host, t.away);
        tally_add(&c[MEMORY_ACTIVATIONS], t.saved);
        tally_add(&c[MEMORY_ACTIVATIONS], t.again);
        tally_add(&c[MEMORY_WORKING], t.working);
        if (last)
            tally_add3(&c[MEMORY_LOGITS], part_tokens(&c[MEMORY_LOGITS], o), a->vocab,
                       memory_of_logit(a, o));
    } else {
        add_step(&c[MEMORY_ACTIVATIONS], &c[MEMORY_LOGITS], a, o, last);
        add_cache(&c[MEMORY_KV_CACHE], a, o, &p);
    }
    add_comm(&c[MEMORY_COMM], a, o, &p, weights, stage);
    tally_add(&c[MEMORY_RUNTIME], o->runtime);
    *out = (struct rank_memory){ .host = host.v };
    for (int k = 0; k < MEMORY_CATEGORIES; k++) {
        out->bytes[k] = c[k].v;
        ok &= !c[k].over;
    }
    memcpy(out->peak, out->bytes, sizeof(out->peak));
    ok &= o->train ? settle_training(out, o, &t) : settle(out, o, MOMENT_FORWARD);
    out->bytes[MEMORY_FRAGMENTATION] = out->peak[MEMORY_FRAGMENTATION];
    training_close(&t);
    part_clear(&p);
    return ok && !host.over;
}

/* ---- a whole layout ---- */

/* True if ranks A and B hold equally many units of every symbol. */
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

/* Adds ONE for each rank that shares its sequences: as tp-run has it, or SP equal
 * ones. */
static int add_served(struct memory_estimate *e, const struct rank_memory *one,
                      const struct model *m, const enum dtype *stored,
                      const struct memory_options *o, struct err *err)
{
    for (int sp = 0; sp < o->mesh.size[MESH_SP]; sp++) {
        struct rank_memory own = *one;

        own.coord[MESH_SP] = sp;
        if (served_rank(&own, m, stored, o, own.coord, err) < 0)
            return -1;
        memcpy(own.peak, own.bytes, sizeof(own.peak));
        if (!settle(&own, o, MOMENT_FORWARD))
            return err_set(err, ERR_USAGE, "the bytes of this layout overflow");
        own.bytes[MEMORY_FRAGMENTATION] = own.peak[MEMORY_FRAGMENTATION];
        find_kind(e, &own)->count += (uint64_t)o->mesh.size[MESH_DP];
    }
    return 0;
}

/* Adds the ranks at tensor and expert coordinate COORD on all stages. */
static int add_stages(struct memory_estimate *e, const struct costmodel *a,
                      const enum dtype *stored, const struct memory_options *o,
                      const int coord[MESH_NAXES], struct err *err)
{
    for (int s = 0; s < o->mesh.size[MESH_PP]; s++) {
        struct rank_memory one;

        if (!memory_of_stage(&one, a, o, s))
            return err_set(err, ERR_USAGE, "the bytes of this layout overflow");
        memcpy(one.coord, coord, sizeof(one.coord));
        one.coord[MESH_PP] = s;
        if (!served_applies(o))
            find_kind(e, &one)->count +=
                (uint64_t)o->mesh.size[MESH_DP] * (uint64_t)o->mesh.size[MESH_SP];
        else if (add_served(e, &one, a->model, stored, o, err) < 0)
            return -1;
    }
    return 0;
}

enum fold memory_fold(enum order order)
{
    return order == ORDER_DUALPIPE ? FOLD_TWICE
           : order_folds(order)    ? FOLD_V
                                   : FOLD_NONE;
}

struct costmodel_options memory_costmodel(const struct memory_options *o)
{
    return (struct costmodel_options){
        .training = o->train,
        .lora = o->lora_rank > 0,
        .targets = o->lora_targets,
        .saved = o->lora_saved,
        .freeze = o->freeze,
        .only = o->only,
        .eager = o->eager,
        .narrow = o->compute_bytes < sizeof(float),
        .scores = !o->flash,
        .unpacked = o->framework == FRAMEWORK_TP_RUN,
        .tp_run = o->framework == FRAMEWORK_TP_RUN,
    };
}

struct known {
    struct share *share;
    struct costmodel *costmodel;
    int coord[MESH_NAXES]; /* of the first rank */
};

const struct costmodel *costmodels_at(struct costmodels *all, const struct model *m,
                                      const enum dtype *stored,
                                      const struct memory_options *o,
                                      const int coord[MESH_NAXES], struct err *err)
{
    const struct costmodel_options options = memory_costmodel(o);
    struct share *share = model_shares(m, &o->mesh, coord);
    struct costmodel *a;

    for (size_t i = 0; i < all->n; i++)
        if (same_share(m, all->known[i].share, share)) {
            free(share);
            return all->known[i].costmodel;
        }
    if (costmodel_open(&a, m, &o->mesh, coord, stored, &options, err) < 0) {
        free(share);
        return NULL;
    }
    all->known = xrealloc(all->known, sizeof(*all->known) * (all->n + 1));
    all->known[all->n] = (struct known){ .share = share, .costmodel = a };
    memcpy(all->known[all->n++].coord, coord, sizeof(all->known->coord));
    return a;
}

/* True if rank A holds at least as many units of every symbol as rank B. */
static bool covers(const struct model *m, const struct share *a, const struct share *b)
{
    for (int i = 0; i < m->scope.n; i++)
        if (a[i].count < b[i].count)
            return false;
    return true;
}

int costmodels_all(struct costmodels *all, const struct model *m,
                   const enum dtype *stored, const struct memory_options *o,
                   struct err *err)
{
    int tp = o->mesh.size[MESH_TP], ranks = tp * o->mesh.size[MESH_EP], n = 0, ret = 0;
    struct share **share = xcalloc((size_t)ranks, sizeof(*share));
    int *rank = xcalloc((size_t)ranks, sizeof(*rank)); /* [n]: rank of share[n] */

    for (int i = 0; i < ranks; i++) {
        const int coord[MESH_NAXES] = { [MESH_TP] = i % tp, [MESH_EP] = i / tp };
        struct share *its = model_shares(m, &o->mesh, coord);
        bool covered = false;

        for (int k = 0; k < n && !covered; k++)
            covered =
                o->train ? covers(m, share[k], its) : same_share(m, share[k], its);
        if (covered) {
            free(its);
            continue;
        }
        share[n] = its;
        rank[n++] = i;
    }
    for (int k = 0; k < n; k++) {
        const int coord[MESH_NAXES] = {
            [MESH_TP] = rank[k] % tp, [MESH_EP] = rank[k] / tp
        };

        if (ret == 0 && !costmodels_at(all, m, stored, o, coord, err))
            ret = -1;
        free(share[k]);
    }
    free(share);
    free(rank);
    return ret;
}

const struct costmodel *costmodels_get(const struct costmodels *all, size_t i)
{
    return i < all->n ? all->known[i].costmodel : NULL;
}

const int *costmodels_coord(const struct costmodels *all, size_t i)
{
    return all->known[i].coord;
}

void costmodels_drop_programs(struct costmodels *all)
{
    for (size_t i = 0; i < all->n; i++)
        costmodel_drop_program(all->known[i].costmodel);
}

void costmodels_clear(struct costmodels *all)
{
    for (size_t i = 0; i < all->n; i++) {
        costmodel_close(all->known[i].costmodel);
        free(all->known[i].share);
    }
    free(all->known);
    *all = (struct costmodels){ 0 };
}

int memory_estimate(struct memory_estimate *e, const struct model *m,
                    const enum dtype *stored, const struct memory_options *o,
                    struct err *err)
{
    struct memory_estimate made = { 0 };
    struct costmodels all = { 0 };
    int ret = -1;

    if (model_check_mesh(m, &o->mesh, err) < 0)
        return -1;
    for (int ep = 0; ep < o->mesh.size[MESH_EP]; ep++)
        for (int tp = 0; tp < o->mesh.size[MESH_TP]; tp++) {
            const int coord[MESH_NAXES] = { [MESH_TP] = tp, [MESH_EP] = ep };
            const struct costmodel *a = costmodels_at(&all, m, stored, o, coord, err);

            if (!a || add_stages(&made, a, stored, o, coord, err) < 0)
                goto out;
        }
    made.peak = made.kind;
    for (size_t i = 1; i < made.nkinds; i++)
        if (made.kind[i].total > made.peak->total)
            made.peak = &made.kind[i];
    *e = made;
    ret = 0;
out:
    costmodels_clear(&all);
    if (ret < 0)
        memory_estimate_clear(&made);
    return ret;
}

void memory_estimate_clear(struct memory_estimate *e)
{
    free(e->kind);
    *e = (struct memory_estimate){ 0 };
}
