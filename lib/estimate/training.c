/* training - activations and gradients of a pipeline stage during training */
#include "lib/estimate/training.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/estimate/habits.h"

/* Tokens of a sequence, which local attention in chunks pads in all of its layer. */
static uint64_t padded(const struct memory_options *o, const struct unit *u)
{
    uint64_t chunk = u->kept.local.blocks ? 1 : 2 * u->kept.local.reach;

    return chunk ? (o->seq + chunk - 1) / chunk * chunk : o->seq;
}

static void add_columns(struct tally *out, const struct memory_options *o,
                        const struct unit *u, const struct columns *c)
{
    struct memory_options own = *o;
    uint64_t tokens;
    uint64_t kept = habits_of(o).keeps_gathered ? c->gathered : 0;

    own.seq = padded(o, u);
    tokens = part_tokens(out, &own);
    tally_add3(out, tokens, c->cut + part_columns(o, c->whole - kept) + kept,
               o->compute_bytes);
    tally_add3(out, tokens, c->wide_cut + part_columns(o, c->wide_whole),
               sizeof(float));
}

/* Adds EACH bytes per score of HEADS heads, which are split over sp. */
static void add_scores(struct tally *out, const struct memory_options *o,
                       uint64_t heads, uint64_t each)
{
    uint64_t pairs = tally_times(out, tally_times(out, o->micro_batch * o->seq, o->seq),
                                 heads * each);

    tally_add(out, tally_part(pairs, (uint64_t)o->mesh.size[MESH_SP]));
}

/* Saved bytes per score: the probability, and with dropout its result and mask. PyTorch
 * in eager mode computes probabilities in f32 and saves a narrower copy; with a softcap
 * also the scores. */
static uint64_t kept_of_score(const struct memory_options *o, const struct unit *u)
{
    uint64_t value = o->compute_bytes;
    uint64_t kept = o->eager && !u->kept.narrow ? 4 : value;

    if (o->dropout)
        kept += value + 1;
    else if (o->eager && value < kept)
        kept += value;
    return kept + (o->eager && u->kept.capped ? value : 0);
}

/* At the softmax's backward pass two gradients are live beside the probability. */
static uint64_t worst_of_score(const struct memory_options *o, const struct unit *u)
{
    uint64_t wide = o->eager && !u->kept.narrow ? 4 : o->compute_bytes;

    return 3 * wide + (o->eager && u->kept.capped ? o->compute_bytes : 0);
}

/* Adds what PyTorch saves where scores are gathered by distance: the scores of each row
 * with every distance, for keys and for queries, both tables for each sequence, two
 * matrices of indices, and a mask. */
static void add_related(struct tally *out, const struct memory_options *o,
                        const struct unit *u)
{
    uint64_t span = u->kept.near && o->seq < u->kept.span ? o->seq : u->kept.span;
    uint64_t pairs = tally_times(out, o->seq, o->seq);

    tally_add3(out, tally_times(out, part_tokens(out, o), u->kept.heads), 4 * span,
               o->compute_bytes);
    tally_add3(out, tally_times(out, o->micro_batch, u->kept.related), 4 * span,
               o->compute_bytes);
    tally_add3(out, pairs, 2, sizeof(int64_t));
    tally_add3(out, pairs, o->micro_batch, 1);
}

/* Adds what PyTorch saves of relative biases: the index of each pair of tokens, and the
 * mask that a fused kernel gets instead. */
static void add_biases(struct tally *out, const struct memory_options *o,
                       const struct unit *u)
{
    uint64_t pairs = tally_times(out, o->seq, o->seq);

    tally_add3(out, pairs, u->kept.biases, sizeof(int64_t));
    tally_add3(out, pairs, u->kept.biased, o->compute_bytes);
}

/* Adds what PyTorch saves of local attention: queries, keys and values as blocks or
 * chunks of rows see them, the probabilities in f32, and as the product with the values
 * reads them.  Of chunks a row sees its window alone; that product's copy is padded to
 * three chunks.  WORST: and what its backward pass has beside that, either the
 * gradients of that product's sources, or, without these sources, two gradients of the
 * scores. */
static void add_local(struct tally *out, const struct memory_options *o,
                      const struct unit *u, bool worst)
{
    bool blocks = u->kept.local.blocks;
    uint64_t w = u->kept.local.reach, b = o->compute_bytes, block = w + 1;
    uint64_t rows = blocks ? (o->seq + w) / block * block : padded(o, u);
    uint64_t seen = blocks ? 3 * block : 2 * w + 1, last = blocks ? seen : 3 * w + 2;
    uint64_t keys = blocks ? 4 * rows : 2 * (2 * rows - 2 * w);
    uint64_t sources, scores, gone;
    struct tally one = { 0 };

    sources = tally_times(&one, rows,
                          b * (u->kept.local.heads * last + 3 * u->kept.local.values));
    scores = tally_times(&one, rows, u->kept.local.heads * seen * sizeof(float));
    tally_add3(&one, keys, u->kept.local.keys, b);
    tally_add(&one, scores);
    gone = blocks && b == sizeof(float) /* the probabilities are that source */
               ? tally_times(&one, rows, 3 * u->kept.local.values * b)
               : sources;
    tally_add(&one, gone);
    if (!blocks)
        tally_add3(&one, 2 * w, block, u->kept.local.heads);
    if (worst)
        tally_add(&one, 2 * scores > sources + gone ? 2 * scores - gone : sources);
    tally_add(out, tally_part(tally_times(&one, one.v, o->micro_batch),
                              (uint64_t)o->mesh.size[MESH_SP]));
    tally_add3(out, u->kept.local.biases * block, 3 * block, sizeof(int64_t));
    out->over |= one.over;
}

/* Adds what U saves besides values: dropout masks; with flash attention the log-sum-exp
 * of each row and head, else the scores. */
static void add_rest(struct tally *out, const struct memory_options *o,
                     const struct unit *u, uint64_t of_score, bool worst)
{
    if (o->dropout)
        tally_add3(out, part_tokens(out, o), part_columns(o, u->kept.masks), 1);
    if (o->eager) {
        tally_add3(out, part_tokens(out, o), u->kept.flags, 1);
        add_biases(out, o, u);
        if (u->kept.related)
            add_related(out, o, u);
        if (u->kept.local.reach)
            add_local(out, o, u, worst);
        if (o->micro_batch > 1)
            tally_add3(out, tally_times(out, o->micro_batch, padded(o, u)),
                       u->kept.turned, o->compute_bytes);
    }
    if (!o->flash) {
        add_scores(out, o, u->kept.heads, of_score);
        return;
    }
    if (o->eager && u->kept.unfused)
        add_scores(out, o, u->kept.unfused, sizeof(float));
    tally_add3(out, part_tokens(out, o),
               u->kept.heads - (o->eager ? u->kept.unfused : 0), 4);
    if (o->eager && !u->kept.unfused &&
        (u->kept.masked || (u->kept.window && u->kept.window < o->seq)))
        tally_add3(out, part_tokens(out, o), o->seq + u->kept.spread, o->compute_bytes);
}

/* Adds all activations that U's backward pass reads. */
static void add_kept(struct tally *out, const struct memory_options *o,
                     const struct unit *u, bool scores)
{
    add_columns(out, o, u, &u->kept.columns);
    add_rest(out, o, u, scores ? kept_of_score(o, u) : 0, false);
}

static void add_boundary(struct tally *out, const struct memory_options *o,
                         const struct unit *u)
{
    tally_add3(out, part_tokens(out, o), part_columns(o, u->kept.boundary),
               o->compute_bytes);
}

static bool made_again(const struct memory_options *o, const struct unit *u)
{
    return u->layer >= 0 &&
           (o->recompute == RECOMPUTE_FULL || o->recompute == RECOMPUTE_PRODUCTS);
}

/* Adds what U saves in the forward pass. */
static void add_saved(struct tally *out, const struct memory_options *o,
                      const struct unit *u)
{
    if (!made_again(o, u)) {
        add_kept(out, o, u, o->recompute != RECOMPUTE_ATTENTION);
        return;
    }
    add_boundary(out, o, u);
    if (o->recompute == RECOMPUTE_PRODUCTS) {
        add_columns(out, o, u, &u->sparse);
        if (o->flash)
            tally_add3(out, part_tokens(out, o), u->kept.heads, 4);
    }
}

/* Bytes of U at moment K of its backward pass. */
static uint64_t bytes_at(struct tally *over, const struct memory_options *o,
                         const struct unit *u, enum unit_moment k)
{
    bool scores = made_again(o, u) || o->recompute != RECOMPUTE_ATTENTION;
    struct tally s = { 0 };

    add_columns(&s, o, u, &u->worst[k].columns);
    add_rest(&s, o, u,
             k == UNIT_ATTENTION ? worst_of_score(o, u)
             : scores            ? kept_of_score(o, u)
                                 : 0,
             k == UNIT_ATTENTION);
    over->over |= s.over;
    return s.v;
}

static struct unit_bytes bytes_of(struct tally *over, const struct memory_options *o,
                                  const struct unit *u)
{
    struct tally saved = { 0 }, again = { 0 }, kept = { 0 };
    struct unit_bytes b = { 0 };
    uint64_t worst = 0, there, made = 0;

    for (int k = 0; k < UNIT_MOMENTS; k++) {
        uint64_t now = bytes_at(over, o, u, (enum unit_moment)k);

        if (now <= worst)
            continue;
        worst = now;
        made = u->worst[k].made;
    }
    add_saved(&saved, o, u);
    if (made_again(o, u))
        add_kept(&again, o, u, true);
    there = made_again(o, u) ? again.v : saved.v;
    if (o->recompute == RECOMPUTE_PRODUCTS && made_again(o, u))
        add_columns(&kept, o, u, &u->sparse_kept);
    b.saved = saved.v;
    b.again = again.v - kept.v;
    b.working = worst > there ? worst - there : 0;
    for (int c = 0; c < WEIGHT_CLASSES; c++)
        b.gradients += part_gradients(over, o, c, &u->weight[c]);
    b.made = (uint64_t)((double)b.gradients / 1000 * (double)made);
    over->over |= saved.over || again.over || kept.over;
    return b;
}

static bool is_known(const struct training_known *k, const struct memory_options *o,
                     const struct unit *u)
{
    return k->unit == u && k->micro_batch == o->micro_batch && k->zero == o->zero &&
           k->recompute == o->recompute &&
           k->sequence_parallel == o->sequence_parallel &&
           !memcmp(k->mesh.size, o->mesh.size, sizeof(k->mesh.size));
}

/* bytes_of for A's unit I, from O's cache if there is one. */
static struct unit_bytes known_bytes(struct tally *over, const struct memory_options *o,
                                     const struct costmodel *a, int i)
{
    size_t at = (size_t)i * 8 + (size_t)o->zero * 2 + (o->recompute != RECOMPUTE_NONE);
    struct training_known *k;

    if (!o->cache)
        return bytes_of(over, o, &a->unit[i]);
    k = &o->cache->known[at % TRAINING_CACHE];
    if (!is_known(k, o, &a->unit[i])) {
        struct tally one = { 0 };

        *k = (struct training_known){ .unit = &a->unit[i],
                                      .mesh = o->mesh,
                                      .micro_batch = o->micro_batch,
                                      .zero = o->zero,
                                      .recompute = o->recompute,
                                      .sequence_parallel = o->sequence_parallel,
                                      .bytes = bytes_of(&one, o, &a->unit[i]) };
        k->over = one.over;
    }
    over->over |= k->over;
    return k->bytes;
}

bool training_has_gradients(const struct memory_options *o)
{
    return o->micro_batches > 1 || habits_of(o).buffers ||
           (o->zero < 2 && part_replicas(o, WEIGHT_MATRIX) > 1);
}

/* Adds the gradients of common tensors that unit U computes: to *FIRST those not in
 * MADE yet, to *MORE the others, which PyTorch holds beside the first until they are
 * added. */
static void add_common_gradients(struct tally *first, struct tally *more, bool *made,
                                 const struct training *t, const struct unit *u)
{
    for (int i = 0; i < t->a->ncommons; i++) {
        const struct common *c = &t->a->common[i];
        bool reads = c->read_by ? c->read_by >> u->index & 1 : u == t->a->unit;

        if (!reads || !part_holds(t->part, c))
            continue;
        if (!made[i])
            tally_add(first, part_gradients(first, t->o, c->class, &c->sum));
        else if (t->o->eager && c->class == WEIGHT_TABLE)
            tally_add(more, part_gradients(more, t->o, c->class, &c->sum));
        made[i] = true;
    }
}

/* True if what U saves goes to the host, as a layer's does.  On the device are two
 * buffers of the largest layer: one is used while the other is copied. */
static bool is_away(const struct memory_options *o, const struct unit *u)
{
    return o->away && u->layer >= 0;
}

void training_open(struct training *t, struct tally *over, const struct costmodel *a,
                   const struct memory_options *o, const struct part *p, int stage)
{
    struct tally one = { 0 }, copied = { 0 };
    uint64_t flight = o->inflight ? o->inflight[stage] : 1000, most = 0;

    *t = (struct training){ .a = a, .o = o, .part = p };
    t->unit = xmalloc((size_t)(p->nslices + 1) * sizeof(*t->unit));
    for (int i = 0; i < p->nslices; i++) {
        struct unit_bytes *u = &t->unit[i];

        *u = known_bytes(over, o, a, a->unit[p->slice[i].first].like);
        tally_add3(is_away(o, &a->unit[p->slice[i].first]) ? &copied : &one, u->saved,
                   (uint64_t)p->slice[i].n, 1);
        if (is_away(o, &a->unit[p->slice[i].first]) && u->saved > most)
            most = u->saved;
        t->again = u->again > t->again ? u->again : t->again;
        t->working = u->working > t->working ? u->working : t->working;
    }
    t->saved = tally_part(tally_times(over, one.v, flight), 1000);
    t->away = tally_part(tally_times(over, copied.v, flight), 1000);
    t->copied = copied.v;
    t->saved += 2 * most < t->away ? 2 * most : t->away;
    over->over |= one.over || copied.over;
}

void training_close(struct training *t)
{
    free(t->unit);
}

void training_peak(uint64_t peak[MEMORY_CATEGORIES], struct tally *over,
                   const struct training *t, uint64_t gradients)
{
    bool all = training_has_gradients(t->o);
    bool *made = xmalloc((size_t)t->a->ncommons + 1);
    struct tally sofar = { 0 };
    uint64_t left = t->saved, most = 0;

    memset(made, 0, (size_t)t->a->ncommons + 1);
    for (int i = t->part->nslices - 1; i >= 0; i--) {
        const struct unit_run *slice = &t->part->slice[i];
        const struct unit_bytes *u = &t->unit[i];
        struct tally working = { 0 };

        for (int k = slice->n - 1; k >= 0; k--) {
            uint64_t now = gradients;

            /* all other units of the run add the same as the one before */
            if (k >= slice->n - 2 || slice->first + k == 0) {
                working = (struct tally){ .v = u->working };
                add_common_gradients(&sofar, &working, made, t,
                                     &t->a->unit[slice->first + k]);
                over->over |= working.over;
            }
            if (!all && sofar.v + u->made < gradients)
                now = sofar.v + u->made;
            tally_add(&sofar, u->gradients);
            if (left + u->again + working.v + now >= most) {
                most = left + u->again + working.v + now;
                peak[MEMORY_ACTIVATIONS] = left + u->again;
                peak[MEMORY_WORKING] = working.v;
                peak[MEMORY_GRADIENTS] = now;
            }
            if (!is_away(t->o, &t->a->unit[slice->first]))
                left -= u->saved < left ? u->saved : left;
        }
    }
    over->over |= sofar.over;
    free(made);
}
