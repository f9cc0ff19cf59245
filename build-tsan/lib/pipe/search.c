/* search - an order without bubbles, as far as memory allows */
#include "lib/pipe/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"

enum {
    WORK = 200000000,  /* ranks looked at, in all tries */
    MOST_TRIES = 7500, /* of a climb */
    CLIMBS = 6,
};

/* Of each rank. */
struct settings {
    int lead;    /* forwards that may be ahead of backwards */
    double wait; /* for a forward or a backward, in weights' gradients */
};

struct rank {
    int forwards, inputs, weights; /* done */
    double now, begun, held;       /* begun < 0: not yet */
};

struct search {
    int ranks, n; /* micro-batches */
    const struct pipe_times *times;
    double cap, hop;
    struct rank *rank;
    double *forward, *input;    /* [rank][micro-batch]: when it can start; INFINITY */
    struct action_table *table; /* filled when not NULL */
};

struct choice {
    double at;
    enum action_kind kind;
};

static double *cell(const struct search *s, double *of, int r, int i)
{
    return &of[(size_t)r * (size_t)s->n + (size_t)i];
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* What rank R does next; .at is INFINITY when it can do nothing yet. */
static struct choice choose(const struct search *s, const struct settings *set, int r)
{
    const struct rank *k = &s->rank[r];
    struct choice c = { INFINITY, ACTION_WEIGHT };
    double forward = INFINITY, input = INFINITY;
    int lead = k->forwards - k->inputs;

    if (k->forwards < s->n && k->held + 1 <= s->cap + 1e-9)
        forward = later(k->now, *cell(s, s->forward, r, k->forwards));
    if (k->inputs < k->forwards)
        input = later(k->now, *cell(s, s->input, r, k->inputs));
    if (forward < INFINITY && lead < set[r].lead) {
        c = (struct choice){ forward, ACTION_FORWARD };
        if (input + s->times->input[r] <= forward)
            c = (struct choice){ input, ACTION_INPUT };
    } else if (input < INFINITY) {
        c = (struct choice){ input, ACTION_INPUT };
    } else if (forward < INFINITY && lead <= set[r].lead) {
        c = (struct choice){ forward, ACTION_FORWARD };
    }
    if (k->weights < k->inputs && c.at > k->now + set[r].wait * s->times->weight[r])
        c = (struct choice){ k->now, ACTION_WEIGHT };
    return c;
}

static void act(struct search *s, int r, struct choice c)
{
    struct rank *k = &s->rank[r];
    const struct pipe_times *t = s->times;
    int i;

    if (k->begun < 0)
        k->begun = c.at;
    switch (c.kind) {
    case ACTION_FORWARD:
        i = k->forwards++;
        k->now = c.at + t->forward[r];
        k->held += 1;
        if (r < s->ranks - 1)
            *cell(s, s->forward, r + 1, i) = k->now + s->hop;
        else
            *cell(s, s->input, r, i) = k->now;
        break;
    case ACTION_INPUT:
        i = k->inputs++;
        k->now = c.at + t->input[r];
        k->held -= t->freed;
        if (r > 0)
            *cell(s, s->input, r - 1, i) = k->now + s->hop;
        break;
    default:
        i = k->weights++;
        k->now = c.at + t->weight[r];
        k->held -= 1 - t->freed;
        break;
    }
    if (s->table)
        action_add(s->table, r, c.kind, r, i);
}

/* Run the rule with SET; the longest span, or INFINITY where it comes to a stop. */
static double try(struct search *s, const struct settings *set)
{
    size_t cells = (size_t)s->ranks * (size_t)s->n, left = 3 * cells;
    double span = 0;

    for (size_t i = 0; i < cells; i++)
        s->forward[i] = i < (size_t)s->n ? 0 : INFINITY;
    for (size_t i = 0; i < cells; i++)
        s->input[i] = INFINITY;
    for (int r = 0; r < s->ranks; r++)
        s->rank[r] = (struct rank){ .begun = -1 };
    for (; left; left--) {
        struct choice best = { INFINITY, ACTION_WEIGHT };
        int who = 0;

        for (int r = 0; r < s->ranks; r++) {
            struct choice c = { INFINITY, ACTION_WEIGHT };

            if (s->rank[r].weights < s->n)
                c = choose(s, set, r);
            if (c.at < best.at) {
                best = c;
                who = r;
            }
        }
        if (best.at == INFINITY)
            return INFINITY;
        act(s, who, best);
    }
    for (int r = 0; r < s->ranks; r++)
        span = later(span, s->rank[r].now - s->rank[r].begun);
    return span;
}

/* The rule of ZB-H2, a little more or less ahead, and as patient on each rank; about
 * MOST tries. */
static double start(struct search *s, struct settings *best, double most)
{
    static const double waits[] = { 0, 0.05, 0.25, 0.5, 0.75, 1 };
    struct settings *set = xcalloc((size_t)s->ranks, sizeof(*set));
    double least = INFINITY;

    for (size_t w = 0; w < sizeof(waits) / sizeof(*waits) && (w == 0 || most > 0); w++)
        for (int extra = -2; extra < 6; extra++, most--) {
            double span;

            for (int r = 0; r < s->ranks; r++) {
                set[r].lead = 2 * (s->ranks - r) - 1 + extra;
                set[r].lead += (1 - set[r].lead) * (set[r].lead < 1);
                set[r].wait = waits[w];
            }
            span = try(s, set);
            if (span < least) {
                least = span;
                memcpy(best, set, sizeof(*set) * (size_t)s->ranks);
            }
        }
    free(set);
    return least;
}

/* Change a setting of one rank at a time, and stay where it is no worse; the least
 * span.
 */
static double climb(struct search *s, struct settings *best, double least, int tries,
                    uint64_t stream)
{
    static const double waits[] = { 0, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2 };
    struct rng rng;

    rng_init(&rng, 0, stream);
    for (int i = 0; i < tries; i++) {
        struct settings *one = &best[rng_below(&rng, (uint64_t)s->ranks)], was = *one;
        double span;

        if (rng_u32(&rng) & 1)
            one->wait = waits[rng_below(&rng, sizeof(waits) / sizeof(*waits))];
        else
            one->lead += 1 - 2 * (one->lead > 1 && rng_below(&rng, 2));
        span = try(s, best);
        if (span <= least)
            least = span;
        else
            *one = was;
    }
    return least;
}

/* Climb several times from the same start; the best place of all. */
static void search(struct search *s, struct settings *best, double tries)
{
    size_t bytes = sizeof(*best) * (size_t)s->ranks;
    struct settings *first = xmalloc(bytes), *set = xmalloc(bytes);
    double begun = start(s, first, tries), least = begun;

    memcpy(best, first, bytes);
    for (uint64_t i = 0; i < CLIMBS; i++) {
        double span;

        memcpy(set, first, bytes);
        span = climb(s, set, begun, tries > MOST_TRIES ? MOST_TRIES : (int)tries, i);
        if (span < least) {
            least = span;
            memcpy(best, set, bytes);
        }
    }
    free(first);
    free(set);
}

int search_make(struct action_table *t, int ranks, int micro_batches,
                const struct pipe_times *times, double cap, struct err *err)
{
    size_t cells = (size_t)ranks * (size_t)micro_batches;
    double look = 3 * (double)cells * ranks;
    struct search s = { .ranks = ranks,
                        .n = micro_batches,
                        .times = times,
                        .cap = cap,
                        .hop = times->latency };
    struct settings *best;

    if (cap < 1)
        return err_set(err, ERR_NO, "an order needs memory for a micro-batch at least");
    if (times->bandwidth > 0)
        s.hop += times->message_bytes / times->bandwidth;
    s.rank = xcalloc((size_t)ranks, sizeof(*s.rank));
    s.forward = xcalloc(cells + 1, sizeof(*s.forward));
    s.input = xcalloc(cells + 1, sizeof(*s.input));
    best = xcalloc((size_t)ranks, sizeof(*best));
    search(&s, best, WORK / look / CLIMBS);
    action_table_init(t, ranks, ranks, micro_batches);
    for (int r = 0; r < ranks; r++)
        t->rank_of[r] = r;
    s.table = t;
    try(&s, best);
    free(s.rank);
    free(s.forward);
    free(s.input);
    free(best);
    return 0;
}
