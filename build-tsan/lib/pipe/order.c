/* order - the schedules that are known, by name */
#include "lib/pipe/order.h"

#include <string.h>

const char *const order_names[ORDERS + 1] = { "naive", "gpipe", "1f1b", "interleaved",
                                              "zb-h1", "zb-h2", "zb-v", NULL };

enum { MAX_RANKS = 4096, MAX_MICRO_BATCHES = 1 << 16, MAX_ACTIONS = 1 << 24 };

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

/* The K-th of a rank's steps in one direction, micro-batches taken in groups of as many
 * as there are ranks, each group through all chunks: its chunk and micro-batch. */
static void interleaved_step(const struct action_table *t, int k, int *chunk,
                             int *micro_batch)
{
    int chunks = t->stages / t->ranks, group = t->ranks;
    int begin = k / (group * chunks) * group, size, within;

    if (t->micro_batches - begin < group) { /* the last group is smaller */
        size = t->micro_batches - begin;
        within = k - begin * chunks;
    } else {
        size = group;
        within = k % (group * chunks);
    }
    *chunk = within / size;
    *micro_batch = begin + within % size;
}

static void add_interleaved(struct action_table *t, int r, int k, bool forward)
{
    int chunk, m;

    interleaved_step(t, k, &chunk, &m);
    if (!forward)
        chunk = t->stages / t->ranks - 1 - chunk;
    action_add(t, r, forward ? ACTION_FORWARD : ACTION_BACKWARD, chunk * t->ranks + r,
               m);
}

static void make_interleaved(struct action_table *t)
{
    int chunks = t->stages / t->ranks, all = t->micro_batches * chunks;

    for (int r = 0; r < t->ranks; r++) {
        int warm = smaller(2 * (t->ranks - r - 1) + (chunks - 1) * t->ranks, all);
        int forward = 0, back = 0;

        while (forward < warm)
            add_interleaved(t, r, forward++, true);
        while (back < all) {
            if (forward < all)
                add_interleaved(t, r, forward++, true);
            add_interleaved(t, r, back++, false);
        }
    }
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

/* ---- by name ---- */

static int check_numbers(enum order name, int ranks, int micro_batches, int chunks,
                         struct err *err)
{
    const char *text = order_names[name];

    if (ranks < 1 || ranks > MAX_RANKS || micro_batches < 1 ||
        micro_batches > MAX_MICRO_BATCHES ||
        (int64_t)ranks * micro_batches * chunks > MAX_ACTIONS)
        return err_set(err, ERR_USAGE, "%s: %d stages and %d micro-batches: too many",
                       text, ranks, micro_batches);
    if (name == ORDER_ZB_V ? chunks != 2 : name != ORDER_INTERLEAVED && chunks != 1)
        return err_set(err, ERR_USAGE, "%s: has %d model chunk%s, not %d", text,
                       name == ORDER_ZB_V ? 2 : 1, name == ORDER_ZB_V ? "s" : "",
                       chunks);
    if (name == ORDER_INTERLEAVED && chunks < 2)
        return err_set(err, ERR_USAGE, "%s: needs 2 model chunks at least", text);
    if (name == ORDER_INTERLEAVED && micro_batches > ranks && micro_batches % ranks)
        return err_set(err, ERR_USAGE,
                       "%s: %d micro-batches are no multiple of %d stages", text,
                       micro_batches, ranks);
    return 0;
}

int order_make(struct action_table *t, enum order name, int ranks, int micro_batches,
               int chunks, struct err *err)
{
    static void (*const makers[ORDERS])(struct action_table * t) = {
        make_naive, make_gpipe, make_1f1b, make_interleaved,
        make_zb_h1, make_zb_h2, make_zb_v,
    };

    if (check_numbers(name, ranks, micro_batches, chunks, err) < 0)
        return -1;
    action_table_init(t, ranks, ranks * chunks, micro_batches);
    for (int s = 0; s < t->stages; s++)
        t->rank_of[s] = s % ranks;
    makers[name](t);
    return 0;
}
