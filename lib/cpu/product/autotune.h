/* autotune - which of several loops for the same product is the fastest on this machine
 *
 * How many streams of weights a core reads fastest, and how far ahead, differs between
 * CPUs: Zen 4 reads four or eight streams faster than two, Zen 5 two faster.  Each
 * way is tried in turns, in products that have to be made anyway, and the fastest is
 * kept.  All give the same bits. */
#ifndef LIB_CPU_PRODUCT_AUTOTUNE_H
#define LIB_CPU_PRODUCT_AUTOTUNE_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds of weights: each has a record. */
enum stored {
    STORED_F32,
    STORED_BF16,
    STORED_F16,
    STORED_BF16DOT, /* bf16, by rounded x */
    STORED_INT8,
    STORED_INT4,
    STORED_FP8,
    STOREDS
};

/* Numbers of rows of x that read weights alike: each has a record, too. */
enum rows_read {
    ONE_ROW,
    FEW_ROWS,  /* eight, or some more: tiles of them */
    SOME_ROWS, /* panels of weights are copied, */
    MANY_ROWS, /* which takes little of the time */
    ROWS_READ
};

enum {
    AUTOTUNE_WAYS = 4,   /* at most */
    AUTOTUNE_TRIES = 24, /* of each way, */
    AUTOTUNE_EACH = 5,   /* in every fifth product: the weights of the first ones
                          * are read from pages that are new */
    AUTOTUNE_LEAST_BYTES = 1 << 20 /* of a product that tells */
};

struct autotune {
    unsigned tries;
    unsigned seen; /* products that could have been tries */
    bool trying;   /* the next product is one */
    int best;
    float rate[AUTOTUNE_WAYS][AUTOTUNE_TRIES]; /* bytes a second, the highest first */
};

/* The way of the next product, of BYTES of weights, which N ways can make. */
static inline int autotune_next(struct autotune *w, int n, uint64_t bytes)
{
    bool could =
        w->tries < (unsigned)n * AUTOTUNE_TRIES && bytes >= AUTOTUNE_LEAST_BYTES;

    w->trying = could && w->seen++ % AUTOTUNE_EACH == 0;
    return w->trying ? (int)(w->tries % (unsigned)n) : w->best;
}

/* That product took SECONDS.  Compares upper quartiles: others of the machine disturb a
 * try, and a single one may have found its weights in a cache. */
static inline void autotune_note(struct autotune *w, int n, uint64_t bytes,
                                 double seconds)
{
    float rate = (float)((double)bytes / (seconds > 0 ? seconds : 1e-9));
    unsigned way, at;

    if (!w->trying)
        return;
    way = w->tries % (unsigned)n;
    for (at = w->tries++ / (unsigned)n; at && w->rate[way][at - 1] < rate; at--)
        w->rate[way][at] = w->rate[way][at - 1];
    w->rate[way][at] = rate;
    at = (w->tries - 1) / (unsigned)n / 4;
    for (int i = 0; i < n; i++)
        w->best = w->rate[i][at] > w->rate[w->best][at] ? i : w->best;
}

#endif
