/* order - the schedules that are known, by name */
#include "lib/pipe/order.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/pipe/vshape.h"

const char *const order_names[ORDERS + 1] = {
    "naive",    "gpipe",     "1f1b",           "interleaved", "zb-h1",  "zb-h2", "zb-v",
    "dualpipe", "dualpipev", "zb-interleaved", "v-min",       "v-half", NULL
};

int order_chunks(enum order name)
{
    return name >= ORDER_ZB_V || name == ORDER_INTERLEAVED ? 2 : 1;
}

bool order_interleaves(enum order name)
{
    return name == ORDER_INTERLEAVED || name == ORDER_ZB_INTERLEAVED;
}

bool order_splits(enum order name)
{
    return name > ORDER_INTERLEAVED;
}

bool order_pairs(enum order name)
{
    return name == ORDER_DUALPIPE || name == ORDER_DUALPIPE_V;
}

bool order_folds(enum order name)
{
    return name == ORDER_ZB_V || name == ORDER_DUALPIPE_V || name == ORDER_V_MIN ||
           name == ORDER_V_HALF;
}

enum {
    MAX_RANKS = 4096,
    MAX_V_RANKS = 256,
    MAX_MICRO_BATCHES = 1 << 16,
    MAX_ACTIONS = 1 << 24
};

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* ---- one stage a rank ---- */

static void make_naive(struct action_table *t)
{
    for (int r = 0; r < t->ranks; r++)
        for (int m = 0; m < t->micro_batches; m++) {
            action_add(t, r, ACTION_FORWARD, r, m);
            action_add(t, r, ACTION_BACKWARD, r, m);
        }
}

static void make_gpipe(struct action_table *t)
{
    for (int r = 0; r < t->ranks; r++) {
        for (int m = 0; m < t->micro_batches; m++)
            action_add(t, r, ACTION_FORWARD, r, m);
        for (int m = 0; m < t->micro_batches; m++)
            action_add(t, r, ACTION_BACKWARD, r, m);
    }
}

/* WARM forwards, then one forward and one backward in turn, then the backwards that are
 * left.  Where the backward is split, the weights' gradient of a micro-batch is put off
 * until more than LATE input gradients are done. */
static void one_forward_one_backward(struct action_table *t, int r, int warm,
                                     bool split, int late)
{
    int forward = 0, weight = 0, m = t->micro_batches;
    int room = m - 1 > warm ? m - 1 - warm : 0; /* few micro-batches fill no more */

    late = smaller(late, room);
    while (forward < smaller(warm, m))
        action_add(t, r, ACTION_FORWARD, r, forward++);
    for (int back = 0; back < m; back++) {
        if (forward < m)
            action_add(t, r, ACTION_FORWARD, r, forward++);
        action_add(t, r, split ? ACTION_INPUT : ACTION_BACKWARD, r, back);
        if (split && back + 1 > late)
            action_add(t, r, ACTION_WEIGHT, r, weight++);
    }
    while (split && weight < m)
        action_add(t, r, ACTION_WEIGHT, r, weight++);
}

static void make_1f1b(struct action_table *t)
{
    for (int r = 0; r < t->ranks; r++)
        one_forward_one_backward(t, r, t->ranks - r - 1, false, 0);
}

static void make_zb_h1(struct action_table *t)
{
    for (int r = 0; r < t->ranks; r++)
        one_forward_one_backward(t, r, t->ranks - r - 1, true, r);
}

static void make_zb_h2(struct action_table *t)
{
    for (int r = 0; r < t->ranks; r++)
        one_forward_one_backward(t, r, 2 * (t->ranks - r) - 2, true, 2 * r);
}

/* ---- several stages a rank ---- */

/* Groups of micro-batches, as many as fill the ranks: of one size, or the first ones of
 * one more. */
struct groups {
    int least, more; /* size of the others; number of those that have one more */
};

static struct groups interleaved_groups(const struct action_table *t)
{
    int rounds = t->micro_batches / t->ranks;

    rounds = rounds ? rounds : 1;
    return (struct groups){ t->micro_batches / rounds, t->micro_batches % rounds };
}

/* The K-th of a rank's steps in one direction, each group through all chunks: its chunk
 * and micro-batch. */
static void interleaved_step(const struct action_table *t, int k, int *chunk,
                             int *micro_batch)
{
    struct groups g = interleaved_groups(t);
    int chunks = t->stages / t->ranks, large = g.more * (g.least + 1), begin, size;

    size = k < large * chunks ? g.least + 1 : g.least;
    begin = k < large * chunks ? 0 : large;
    k -= begin * chunks;
    begin += k / (size * chunks) * size;
    k %= size * chunks;
    *chunk = k / size;
    *micro_batch = begin + k % size;
}

static void add_interleaved(struct action_table *t, int r, int k, enum action_kind kind)
{
    int chunk, m;

    interleaved_step(t, k, &chunk, &m);
    if (kind != ACTION_FORWARD)
        chunk = t->stages / t->ranks - 1 - chunk;
    action_add(t, r, kind, chunk * t->ranks + r, m);
}

/* AHEAD forwards for each rank behind before the first backward.  Where the backward is
 * split, rank R puts off R gradients of weights. */
static void interleave(struct action_table *t, int ahead, bool split)
{
    struct groups g = interleaved_groups(t);
    int chunks = t->stages / t->ranks, all = t->micro_batches * chunks;

    for (int r = 0; r < t->ranks; r++) {
        int first = g.least + (g.more > 0); /* of the first group */
        int warm = smaller(ahead * (t->ranks - r - 1) + (chunks - 1) * first, all);
        int forward = 0, weight = 0;

        while (forward < warm)
            add_interleaved(t, r, forward++, ACTION_FORWARD);
        for (int back = 0; back < all; back++) {
            if (forward < all)
                add_interleaved(t, r, forward++, ACTION_FORWARD);
            add_interleaved(t, r, back, split ? ACTION_INPUT : ACTION_BACKWARD);
            if (split && back >= r)
                add_interleaved(t, r, weight++, ACTION_WEIGHT);
        }
        while (split && weight < all)
            add_interleaved(t, r, weight++, ACTION_WEIGHT);
    }
}

static void make_interleaved(struct action_table *t)
{
    interleave(t, 2, false);
}

static void make_zb_interleaved(struct action_table *t)
{
    interleave(t, 1, true);
}

/* A rank of the V: its two stages, and how far it is with each. */
struct v_rank {
    struct action_table *t;
    int rank, stage[2];
    int forward[2], input[2], weight[2];
};

static void v_forward(struct v_rank *v, int chunk)
{
    if (v->forward[chunk] < v->t->micro_batches)
        action_add(v->t, v->rank, ACTION_FORWARD, v->stage[chunk], v->forward[chunk]);
    v->forward[chunk]++;
}

static void v_input(struct v_rank *v, int chunk)
{
    if (v->input[chunk] < v->t->micro_batches)
        action_add(v->t, v->rank, ACTION_INPUT, v->stage[chunk], v->input[chunk]);
    v->input[chunk]++;
}

static void v_weight(struct v_rank *v, int chunk)
{
    if (v->weight[chunk] < v->t->micro_batches)
        action_add(v->t, v->rank, ACTION_WEIGHT, v->stage[chunk], v->weight[chunk]);
    v->weight[chunk]++;
}

static void v_backward(struct v_rank *v, int chunk)
{
    v_input(v, chunk);
    v_weight(v, chunk);
}

/* Each rank has a stage of the way down and one of the way up.  Planned for as many
 * micro-batches as fill the V, 2p - 1; those that are not there are left out. */
static void make_v_rank(struct action_table *t, int r)
{
    struct v_rank v = { .t = t, .rank = r, .stage = { r, t->stages - 1 - r } };
    int p = t->ranks;
    int n = t->micro_batches > 2 * p - 1 ? t->micro_batches : 2 * p - 1;

    for (int i = 0; i < 2 * (p - r) - 1; i++)
        v_forward(&v, 0);
    for (int i = 0; i < r; i++) {
        v_forward(&v, 1);
        v_forward(&v, 0);
    }
    for (int i = 0; i < p - r; i++) {
        v_forward(&v, 1);
        v_backward(&v, 1);
    }
    while (v.forward[1] < v.forward[0] || v.forward[0] < n) {
        if (v.forward[0] < n)
            v_forward(&v, 0);
        v_backward(&v, 0);
        v_forward(&v, 1);
        v_backward(&v, 1);
    }
    for (int i = 0; i < r; i++) {
        v_input(&v, 0);
        v_input(&v, 1);
    }
    for (int i = 0; i < p - r; i++)
        v_backward(&v, 0);
    while (v.weight[1] < v.input[1])
        v_weight(&v, 1);
    while (v.weight[0] < v.input[0])
        v_weight(&v, 0);
}

static void make_zb_v(struct action_table *t)
{
    for (int s = t->ranks; s < t->stages; s++)
        t->rank_of[s] = t->stages - 1 - s;
    for (int r = 0; r < t->ranks; r++)
        make_v_rank(t, r);
}

/* A rank with two directions: its stages, the first micro-batch of each and how far it
 * is with them; the weights' gradients that were put off, first in first out. */
struct two_ways {
    struct action_table *t;
    int rank, stage[2], begin[2];
    int forward[2], back[2];
    struct action *late;
    int nlate, taken;
};

static void two_forward(struct two_ways *w, int way)
{
    action_add(w->t, w->rank, ACTION_FORWARD, w->stage[way],
               w->begin[way] + w->forward[way]++);
}

static void two_backward(struct two_ways *w, int way, bool split)
{
    int m = w->begin[way] + w->back[way]++;

    action_add(w->t, w->rank, split ? ACTION_INPUT : ACTION_BACKWARD, w->stage[way], m);
    if (split)
        w->late[w->nlate++] = (struct action){ .kind = ACTION_WEIGHT,
                                               .stage = w->stage[way],
                                               .micro_batch = m };
}

static void two_weight(struct two_ways *w)
{
    const struct action *a = &w->late[w->taken++];

    action_add(w->t, w->rank, a->kind, a->stage, a->micro_batch);
}

/* A forward pass in direction WAY and a backward pass in the other. */
static void two_both(struct two_ways *w, int way)
{
    struct action_row *row = &w->t->row[w->rank];

    two_forward(w, way);
    row->v[row->n - 1].paired = true;
    two_backward(w, !way, false);
}

/* The R-th of HALF ranks from where its way 0 begins, with N micro-batches each way:
 * DeepSeek-AI 2024, figure 5. */
static void make_two_ways(struct two_ways *w, int r, int half, int n)
{
    int outer = half - r - 1;

    w->late = xcalloc((size_t)(2 * n) + 1, sizeof(*w->late));
    for (int i = 0; i < 2 * outer; i++)
        two_forward(w, 0);
    for (int i = 0; i <= r; i++) {
        two_forward(w, 0);
        two_forward(w, 1);
    }
    for (int i = 0; i < outer; i++) {
        two_backward(w, 1, true);
        two_weight(w);
        two_forward(w, 1);
    }
    for (int i = 0; i < n - 2 * half + r + 1; i++) {
        if (i || outer) {
            two_both(w, 0);
        } else { /* where both directions meet, neither waits for the other */
            two_forward(w, 0);
            two_backward(w, 1, false);
        }
        two_both(w, 1);
    }
    for (int i = 0; i < outer; i++) {
        two_backward(w, 1, false);
        two_both(w, 1);
    }
    for (int i = 0; i <= r; i++) { /* the second half of these is split */
        int k = 2 * i;

        two_backward(w, 1, k > r);
        two_backward(w, 0, k + 1 > r);
    }
    for (int i = 0; i < outer; i++) {
        two_weight(w);
        two_backward(w, 0, true);
    }
    while (w->taken < w->nlate)
        two_weight(w);
    free(w->late);
}

/* Stage S of the second copy is P + S, on the rank that has P - 1 - S of the first. */
static void make_dualpipe(struct action_table *t)
{
    int p = t->ranks, n = t->micro_batches / 2;

    t->chains = 2;
    for (int s = 0; s < p; s++) {
        t->rank_of[s] = s;
        t->rank_of[p + s] = p - 1 - s;
    }
    for (int r = 0; r < p; r++) {
        bool low = r < p / 2;
        int stage[2] = { r, p + p - 1 - r }, begin[2] = { 0, n };
        struct two_ways w = { .t = t,
                              .rank = r,
                              .stage = { stage[!low], stage[low] },
                              .begin = { begin[!low], begin[low] } };

        make_two_ways(&w, low ? r : p - 1 - r, p / 2, n);
    }
}

static void make_dualpipe_v(struct action_table *t)
{
    for (int s = t->ranks; s < t->stages; s++)
        t->rank_of[s] = t->stages - 1 - s;
    for (int r = 0; r < t->ranks; r++) {
        struct two_ways w = { .t = t, .rank = r, .stage = { r, t->stages - 1 - r } };

        make_two_ways(&w, r, t->ranks, t->micro_batches);
    }
}

static void make_v_min(struct action_table *t)
{
    vshape_make(t, VSHAPE_MIN);
}

static void make_v_half(struct action_table *t)
{
    vshape_make(t, VSHAPE_HALF);
}

/* ---- by name ---- */

static int check_numbers(enum order name, int ranks, int micro_batches, int chunks,
                         struct err *err)
{
    const char *text = order_names[name];
    int has = order_chunks(name);

    if (ranks < 1 || ranks > (name >= ORDER_V_MIN ? MAX_V_RANKS : MAX_RANKS) ||
        micro_batches < 1 || micro_batches > MAX_MICRO_BATCHES ||
        (int64_t)ranks * micro_batches * chunks > MAX_ACTIONS)
        return err_set(err, ERR_USAGE, "%s: %d stages and %d micro-batches: too many",
                       text, ranks, micro_batches);
    if (!order_interleaves(name) && chunks != has)
        return err_set(err, ERR_USAGE, "%s: has %d model chunk%s, not %d", text, has,
                       has > 1 ? "s" : "", chunks);
    if (name == ORDER_DUALPIPE && (ranks % 2 || micro_batches % 2))
        return err_set(err, ERR_USAGE,
                       "%s: needs even numbers of stages and micro-batches", text);
    if (order_pairs(name) && micro_batches < 2 * ranks)
        return err_set(err, ERR_USAGE,
                       "%s: needs two micro-batches a stage at least, %d", text,
                       2 * ranks);
    if (order_interleaves(name) && chunks < 2)
        return err_set(err, ERR_USAGE, "%s: needs 2 model chunks at least", text);
    return 0;
}

int order_make(struct action_table *t, enum order name, int ranks, int micro_batches,
               int chunks, struct err *err)
{
    static void (*const makers[ORDERS])(struct action_table * t) = {
        make_naive,      make_gpipe,          make_1f1b,  make_interleaved,
        make_zb_h1,      make_zb_h2,          make_zb_v,  make_dualpipe,
        make_dualpipe_v, make_zb_interleaved, make_v_min, make_v_half,
    };

    if (check_numbers(name, ranks, micro_batches, chunks, err) < 0)
        return -1;
    action_table_init(t, ranks, ranks * chunks, micro_batches);
    for (int s = 0; s < t->stages; s++)
        t->rank_of[s] = s % ranks;
    makers[name](t);
    return 0;
}
