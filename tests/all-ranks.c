/* all-ranks - what every rank of a group does to try its exchanges */
#include "tests/all-ranks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"

/* ---- one after another ---- */

enum {
    RANKS = 8,   /* at most */
    BIG = 200000 /* elements: several slots, the last not full */
};

/* Element I of rank RANK's share. */
static float element(int rank, size_t i)
{
    return 1.0f / (float)(3 * rank + 1) +
           (float)(i % 977) * 0x1p-10f; /* exact: contracted or not */
}

/* The N numbers at X by the tree of comm.h, to the bit. */
static float tree(const float *x, int n)
{
    int half = 1;

    while (2 * half < n)
        half *= 2;
    return n == 1 ? x[0] : tree(x, half) + tree(x + half, n - half);
}

static double tree_f64(const float *x, int n)
{
    int half = 1;

    while (2 * half < n)
        half *= 2;
    return n == 1 ? (double)x[0] : tree_f64(x, half) + tree_f64(x + half, n - half);
}

static int sums(struct comm *c, size_t n, struct err *err)
{
    float *x = xcalloc(n + 1, sizeof(*x));
    double *d = xcalloc(n + 1, sizeof(*d));
    int ret = -1;

    for (size_t i = 0; i < n; i++)
        d[i] = (double)(x[i] = element(c->rank, i));
    if (comm_run(c, comm_all_reduce(x, n), err) < 0 ||
        comm_run(c, comm_all_reduce_f64(d, n), err) < 0)
        goto out;
    for (size_t i = 0; i < n; i++) {
        float each[RANKS];

        for (int r = 0; r < c->size; r++)
            each[r] = element(r, i);
        if (x[i] != tree(each, c->size) || d[i] != tree_f64(each, c->size)) {
            err_set(err, ERR_INPUT, "rank %d: sum %zu is wrong", c->rank, i);
            goto out;
        }
    }
    ret = 0;
out:
    free(x);
    free(d);
    return ret;
}

static int gathers(struct comm *c, size_t n, struct err *err)
{
    float *mine = xcalloc(n + 1, sizeof(*mine));
    float *all = xcalloc(n * (size_t)c->size + 1, sizeof(*all));
    int ret = -1;

    for (size_t i = 0; i < n; i++)
        mine[i] = element(c->rank, i);
    if (comm_run(c, comm_all_gather(mine, all, n * sizeof(*mine)), err) < 0)
        goto out;
    for (int r = 0; r < c->size; r++)
        for (size_t i = 0; i < n; i++)
            if (all[(size_t)r * n + i] != element(r, i)) {
                err_set(err, ERR_INPUT, "rank %d: gathered wrong", c->rank);
                goto out;
            }
    ret = 0;
out:
    free(mine);
    free(all);
    return ret;
}

static int broadcasts(struct comm *c, size_t n, struct err *err)
{
    float *x = xcalloc(n + 1, sizeof(*x));
    int root = c->size - 1, ret = -1;

    for (size_t i = 0; i < n; i++)
        x[i] = element(c->rank, i);
    if (comm_run(c, comm_broadcast(x, n * sizeof(*x), root), err) < 0)
        goto out;
    for (size_t i = 0; i < n; i++)
        if (x[i] != element(root, i)) {
            err_set(err, ERR_INPUT, "rank %d: broadcast wrong", c->rank);
            goto out;
        }
    ret = 0;
out:
    free(x);
    return ret;
}

/* Everybody sends to everybody, far more than there is room for, before anybody
 * receives; and takes it in other pieces. */
static int messages(struct comm *c, size_t n, struct err *err)
{
    float *x = xcalloc(n + 1, sizeof(*x));
    int ret = -1;

    for (size_t i = 0; i < n; i++)
        x[i] = element(c->rank, i);
    for (int r = 0; r < c->size; r++)
        for (int k = 0; k < 3 && r != c->rank; k++)
            if (c->ops->send(c, x, n * sizeof(*x), r, err) < 0)
                goto out;
    for (int r = 0; r < c->size; r++)
        for (size_t i = 0; i < 3 * n && r != c->rank; i++) {
            size_t some = i % n < n / 2 ? n / 2 : 1;

            if (c->ops->receive(c, x, some * sizeof(*x), r, err) < 0)
                goto out;
            for (size_t k = 0; k < some; k++)
                if (x[k] != element(r, (i + k) % n)) {
                    err_set(err, ERR_INPUT, "rank %d: message wrong", c->rank);
                    goto out;
                }
            i += some - 1;
        }
    ret = c->ops->flush(c, err);
out:
    free(x);
    return ret;
}

/* Ranks of equal remainder by 2, and inside those groups the same once more. */
static int groups(struct comm *c, int depth, struct err *err)
{
    int member[8], n = 0, ret;
    struct comm *half;

    for (int r = c->rank % 2; r < c->size; r += 2)
        member[n++] = r;
    if (c->ops->group(c, member, n, &half, err) < 0)
        return -1;
    ret = half->size != n || half->rank != c->rank / 2
              ? err_set(err, ERR_INPUT, "rank %d: misplaced in its group", c->rank)
              : 0;
    if (ret == 0 && (sums(half, 5000, err) < 0 || sums(c, 3000, err) < 0 ||
                     messages(half, 3000, err) < 0))
        ret = -1;
    if (ret == 0 && depth)
        ret = groups(half, depth - 1, err);
    half->ops->close(half);
    return ret;
}

int exchange_all(struct comm *c, struct err *err)
{
    static const size_t sizes[] = { 0, 1, 7, 1000, BIG };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (sums(c, sizes[i], err) < 0 || gathers(c, sizes[i], err) < 0 ||
            broadcasts(c, sizes[i], err) < 0)
            return -1;
    for (int i = 0; i < 300; i++) /* no rank runs ahead of another's reading */
        if (sums(c, 5, err) < 0)
            return -1;
    return messages(c, 100, err) < 0 ||
                   messages(c, c->size == 2 ? 8 * BIG : BIG, err) < 0
               ? -1
               : groups(c, 1, err);
}

/* ---- several under way ---- */

enum { UNDER_WAY = 7, ROUNDS = 12, LONGEST = 150000, GUARD = -7 };

/* A collective as all ranks know it, and this rank's buffers. */
struct trial {
    enum comm_kind kind;
    bool wide;   /* f64 */
    bool inside; /* what this rank gives, or gets, lies in the whole */
    int seed, root;
    size_t n;
    size_t count[RANKS];
    size_t between[RANKS][RANKS], gap; /* all-to-all: elements from, to; before parts */
    size_t unit;                       /* floats of an element */
    size_t out[RANKS], out_at[RANKS], in[RANKS], in_at[RANKS];
    float *from, *to;
    double *sum;
};

/* Number I of what rank RANK gives: sums of these depend on the order. */
static float given(const struct trial *t, int rank, size_t i)
{
    uint32_t h = (uint32_t)(t->seed * 2654435761u) ^ (uint32_t)(rank * 40503u) ^
                 (uint32_t)(i * 2246822519u);

    return (float)(h >> 9) / (float)(1 + (h & 0xff) * (unsigned)(rank + 1));
}

/* A size: often none, mostly small, sometimes many pieces. */
static size_t draw_size(struct rng *rng)
{
    switch (rng_below(rng, 6)) {
    case 0:
        return 0;
    case 1:
        return (size_t)rng_below(rng, LONGEST);
    default:
        return (size_t)rng_below(rng, 300);
    }
}

/* All ranks draw the same. */
static void draw(struct trial *t, struct rng *rng, int size)
{
    *t = (struct trial){ .kind = (enum comm_kind)rng_below(rng, COMM_NKINDS) };
    t->seed = (int)rng_below(rng, 1 << 30);
    t->wide = rng_below(rng, 4) == 0;
    t->inside = rng_below(rng, 2);
    t->root = (int)rng_below(rng, (uint64_t)size);
    t->unit = t->kind == COMM_ALL_TO_ALL ? 1 + (size_t)rng_below(rng, 3) : 1;
    t->gap = (size_t)rng_below(rng, 3);
    t->n = draw_size(rng);
    for (int s = 0; s < size; s++) {
        t->count[s] = draw_size(rng);
        for (int r = 0; r < size; r++)
            t->between[s][r] = draw_size(rng) / (size_t)size;
    }
}

static size_t total(const size_t *count, int size)
{
    size_t n = 0;

    for (int r = 0; r < size; r++)
        n += count[r];
    return n;
}

/* Fill what this rank gives and begin. */
static int begin(struct comm *c, struct trial *t, struct err *err)
{
    int me = c->rank;
    size_t whole = total(t->count, c->size), before = total(t->count, me), n;
    struct comm_parts out = { t->out, t->out_at }, in = { t->in, t->in_at };

    switch (t->kind) {
    case COMM_ALL_REDUCE:
        t->from = t->to = xcalloc(t->n + 1, sizeof(*t->to));
        t->sum = xcalloc(t->n + 1, sizeof(*t->sum));
        for (size_t i = 0; i < t->n; i++)
            t->sum[i] = (double)(t->to[i] = given(t, me, i));
        return comm_start(c,
                          t->wide ? comm_all_reduce_f64(t->sum, t->n)
                                  : comm_all_reduce(t->to, t->n),
                          err);
    case COMM_REDUCE_SCATTER:
        t->from = xcalloc(whole + 1, sizeof(*t->from));
        t->to =
            t->inside ? t->from + before : xcalloc(t->count[me] + 1, sizeof(*t->to));
        for (size_t i = 0; i < whole; i++)
            t->from[i] = given(t, me, i);
        return comm_start(c, comm_reduce_scatter(t->from, t->to, t->count), err);
    case COMM_ALL_GATHER:
        t->to = xcalloc(whole + 1, sizeof(*t->to));
        t->from =
            t->inside ? t->to + before : xcalloc(t->count[me] + 1, sizeof(*t->to));
        for (size_t i = 0; i < t->count[me]; i++)
            t->from[i] = given(t, me, i);
        return comm_start(
            c, comm_all_gather_parts(t->from, t->to, t->count, sizeof(*t->to)), err);
    case COMM_ALL_TO_ALL:
        for (int r = 0; r < c->size; r++) {
            t->out[r] = t->between[me][r];
            t->in[r] = t->between[r][me];
            t->out_at[r] = t->gap + (r ? t->out_at[r - 1] + t->out[r - 1] : 0);
            t->in_at[r] = t->gap + (r ? t->in_at[r - 1] + t->in[r - 1] : 0);
        }
        n = (size_t)(c->size + 1) * 3;
        t->from = xcalloc((total(t->out, c->size) + n) * t->unit, sizeof(*t->from));
        t->to = xcalloc((total(t->in, c->size) + n) * t->unit, sizeof(*t->to));
        for (size_t i = 0; i < (total(t->in, c->size) + n) * t->unit; i++)
            t->to[i] = GUARD;
        for (int r = 0; r < c->size; r++)
            for (size_t i = 0; i < t->out[r] * t->unit; i++)
                t->from[t->out_at[r] * t->unit + i] = given(t, me * RANKS + r, i);
        return comm_start(
            c, comm_all_to_all(t->from, out, t->to, in, t->unit * sizeof(*t->to)), err);
    default:
        t->from = t->to = xcalloc(t->n + 1, sizeof(*t->to));
        for (size_t i = 0; i < t->n; i++)
            t->to[i] = given(t, me, i);
        return comm_start(c, comm_broadcast(t->to, t->n * sizeof(*t->to), t->root),
                          err);
    }
}

/* The sum of all ranks' number I. */
static float whole_sum(const struct trial *t, size_t i, int size)
{
    float each[RANKS];

    for (int r = 0; r < size; r++)
        each[r] = given(t, r, i);
    return tree(each, size);
}

static double whole_sum_f64(const struct trial *t, size_t i, int size)
{
    float each[RANKS];

    for (int r = 0; r < size; r++)
        each[r] = given(t, r, i);
    return tree_f64(each, size);
}

/* What came of an all-to-all, and nothing else was written. */
static bool all_came(const struct comm *c, const struct trial *t)
{
    size_t at = 0;

    for (int r = 0; r < c->size; r++) {
        for (size_t k = 0; k < t->gap * t->unit; k++)
            if (t->to[at++] != GUARD)
                return false;
        for (size_t k = 0; k < t->in[r] * t->unit; k++)
            if (t->to[at++] != given(t, r * RANKS + c->rank, k))
                return false;
    }
    return t->to[at] == GUARD;
}

static bool is_right(const struct comm *c, const struct trial *t)
{
    size_t before = total(t->count, c->rank), at = 0;

    switch (t->kind) {
    case COMM_ALL_REDUCE:
        for (size_t i = 0; i < t->n; i++)
            if (t->wide ? t->sum[i] != whole_sum_f64(t, i, c->size)
                        : t->to[i] != whole_sum(t, i, c->size))
                return false;
        return true;
    case COMM_REDUCE_SCATTER:
        for (size_t i = 0; i < total(t->count, c->size); i++) {
            size_t own = i - before;
            bool mine = i >= before && own < t->count[c->rank];

            if (mine ? t->to[own] != whole_sum(t, i, c->size)
                     : t->from[i] != given(t, c->rank, i))
                return false;
        }
        return true;
    case COMM_ALL_GATHER:
        for (int r = 0; r < c->size; r++)
            for (size_t i = 0; i < t->count[r]; i++)
                if (t->to[at++] != given(t, r, i))
                    return false;
        return true;
    case COMM_ALL_TO_ALL:
        return all_came(c, t);
    default:
        for (size_t i = 0; i < t->n; i++)
            if (t->to[i] != given(t, t->root, i))
                return false;
        return true;
    }
}

static void release(struct trial *t)
{
    bool two =
        t->kind == COMM_ALL_TO_ALL ||
        (!t->inside && (t->kind == COMM_REDUCE_SCATTER || t->kind == COMM_ALL_GATHER));

    if (two || t->kind != COMM_ALL_GATHER)
        free(t->from);
    if (two || t->kind == COMM_ALL_GATHER)
        free(t->to);
    free(t->sum);
}

/* What the group should have counted. */
static void count(struct comm_tally *tally, const struct comm *c, const struct trial *t)
{
    size_t n = t->n;

    if (t->kind == COMM_REDUCE_SCATTER || t->kind == COMM_ALL_GATHER)
        n = total(t->count, c->size);
    if (t->kind == COMM_ALL_TO_ALL)
        n = total(t->out, c->size) * t->unit;
    tally[t->kind].calls++;
    tally[t->kind].bytes += n * (t->kind == COMM_ALL_REDUCE && t->wide ? 8 : 4);
}

/* Begin some in C and, where there is one, in HALF, and wait for them; how far a rank
 * runs ahead is its own. */
static int overlap_round(struct comm *c, struct comm *half, struct rng *rng,
                         struct rng *half_rng, struct comm_tally *tally,
                         struct err *err)
{
    struct trial t[UNDER_WAY], other;
    int n = 1 + (int)rng_below(rng, UNDER_WAY), waited = 0, ret = 0;

    draw(&other, half_rng, half->size);
    if (begin(half, &other, err) < 0)
        return -1;
    for (int i = 0; i < n; i++) {
        draw(&t[i], rng, c->size);
        if (begin(c, &t[i], err) < 0)
            return -1;
        count(tally, c, &t[i]);
        if (i - waited > c->rank && comm_wait(c, err) < 0)
            return -1;
        waited += i - waited > c->rank;
    }
    if (rng_below(rng, 2)) { /* finishes those before it too */
        float one = 1;

        if (comm_run(c, comm_all_reduce(&one, 1), err) < 0)
            return -1;
        tally[COMM_ALL_REDUCE].calls++;
        tally[COMM_ALL_REDUCE].bytes += sizeof(one);
        if (one != (float)c->size)
            ret = err_set(err, ERR_INPUT, "rank %d: a sum between is wrong", c->rank);
    }
    for (; waited < n; waited++)
        if (comm_wait(c, err) < 0)
            return -1;
    if (comm_wait(half, err) < 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (!is_right(c, &t[i]))
            ret =
                err_set(err, ERR_INPUT, "rank %d: collective %d, of kind %d, is wrong",
                        c->rank, i, (int)t[i].kind);
    if (!is_right(half, &other))
        ret =
            err_set(err, ERR_INPUT, "rank %d: the half's collective is wrong", c->rank);
    for (int i = 0; i < n; i++)
        release(&t[i]);
    release(&other);
    return ret;
}

int overlap_all(struct comm *c, unsigned seed, struct err *err)
{
    struct comm_tally tally[COMM_NKINDS];
    struct rng rng, half_rng;
    struct comm *half;
    int member[RANKS], n = 0, ret = 0;

    for (int k = 0; k < COMM_NKINDS; k++)
        tally[k] = *comm_tally(c, (enum comm_kind)k);
    for (int r = c->rank % 2; r < c->size; r += 2)
        member[n++] = r;
    if (c->ops->group(c, member, n, &half, err) < 0)
        return -1;
    rng_init(&rng, seed, 0);
    rng_init(&half_rng, seed, 1 + (uint64_t)c->rank % 2);
    for (int i = 0; i < ROUNDS && ret == 0; i++)
        ret = overlap_round(c, half, &rng, &half_rng, tally, err);
    half->ops->close(half);
    for (int k = 0; k < COMM_NKINDS && ret == 0; k++) {
        const struct comm_tally *got = comm_tally(c, (enum comm_kind)k);

        if (got->calls != tally[k].calls || got->bytes != tally[k].bytes)
            ret =
                err_set(err, ERR_INPUT, "rank %d: collectives are miscounted", c->rank);
    }
    return ret;
}

int wait_otherwise(struct comm *c, struct err *err)
{
    enum { N = 3, LONG = 2 * LONGEST };
    float *x = xcalloc(N * LONG, sizeof(*x)), word = 5;
    int next = (c->rank + 1) % c->size, ret = -1;

    for (size_t i = 0; i < N * LONG; i++)
        x[i] = 1;
    /* rank 0 begins all before any other does, and ends last */
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank)
            for (int i = 0; i < N; i++)
                if (comm_start(c, comm_all_reduce(x + i * LONG, LONG), err) < 0)
                    goto out;
        if (r == c->rank && r + 1 < c->size &&
            c->ops->send(c, &word, sizeof(word), next, err) < 0)
            goto out;
        if (r + 1 == c->rank && c->ops->receive(c, &word, sizeof(word), r, err) < 0)
            goto out;
    }
    if (c->rank == 0 && c->size > 1 &&
        c->ops->receive(c, &word, sizeof(word), c->size - 1, err) < 0)
        goto out;
    for (int i = 0; i < N; i++)
        if (comm_wait(c, err) < 0)
            goto out;
    if (c->rank == c->size - 1 && c->size > 1 &&
        c->ops->send(c, &word, sizeof(word), 0, err) < 0)
        goto out;
    for (size_t i = 0; i < N * LONG; i++)
        if (x[i] != (float)c->size) {
            err_set(err, ERR_INPUT, "rank %d: a sum is wrong", c->rank);
            goto out;
        }
    ret = c->ops->flush(c, err);
out:
    free(x);
    return ret;
}
