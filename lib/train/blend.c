/* blend - which of several sources each sample of a mixture comes from */
#include "lib/train/blend.h"

#include <math.h>
#include <string.h>

static const int64_t ONE = INT64_C(1) << 32;

/* Shares add up to ONE, whatever was rounded; each is at least 1. */
void blend_init(struct blend *b, const double *weight, size_t n)
{
    double all = 0;
    int64_t left = ONE;
    size_t most = 0;

    *b = (struct blend){ .n = n };
    for (size_t s = 0; s < n; s++)
        all += weight[s];
    for (size_t s = 0; s < n; s++) {
        b->share[s] = (uint64_t)fmax(1, rint(weight[s] / all * (double)ONE));
        left -= (int64_t)b->share[s];
        most = b->share[s] > b->share[most] ? s : most;
    }
    b->share[most] = (uint64_t)((int64_t)b->share[most] + left);
}

static void begin(struct blend *b)
{
    b->at = 0;
    memset(b->owed, 0, sizeof(b->owed));
    memset(b->had, 0, sizeof(b->had));
}

/* Places after this one by which S must have another sample, so that it is never less
 * than it is owed by 1 - 1 / (2n - 2). */
static double deadline(const struct blend *b, size_t s, int64_t least)
{
    return (double)(ONE - least - b->owed[s]) / (double)b->share[s];
}

/* Takes the next place. */
static size_t step(struct blend *b)
{
    int64_t least = b->n > 1 ? ONE / (int64_t)(2 * b->n - 2) : 0;
    size_t best = b->n;

    for (size_t s = 0; s < b->n; s++)
        b->owed[s] += (int64_t)b->share[s];
    for (size_t s = 0; s < b->n; s++)
        if (b->owed[s] >= least &&
            (best == b->n || deadline(b, s, least) < deadline(b, best, least)))
            best = s;
    if (best == b->n) /* only what was rounded can lead here */
        for (size_t s = best = 0; s < b->n; s++)
            best = b->owed[s] > b->owed[best] ? s : best;
    b->owed[best] -= ONE;
    b->had[best]++;
    b->at++;
    return best;
}

size_t blend_source(struct blend *b, uint64_t at, uint64_t *number)
{
    size_t s;

    if (at < b->at)
        begin(b);
    do
        s = step(b);
    while (b->at <= at);
    *number = b->had[s] - 1;
    return s;
}

void blend_counts(struct blend *b, uint64_t at, uint64_t *had)
{
    if (at < b->at)
        begin(b);
    while (b->at < at)
        (void)step(b);
    memcpy(had, b->had, b->n * sizeof(*had));
}
