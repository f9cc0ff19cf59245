/* gaps - places in one block of memory for what is there at different times */
#include "lib/program/gaps.h"

#include <stdlib.h>

#include "lib/base/mem.h"

void gaps_free_before(struct gaps *g, int now)
{
    size_t n = 0;

    for (size_t i = 0; i < g->n; i++)
        if (g->v[i].last >= now)
            g->v[n++] = g->v[i];
    g->n = n;
}

uint64_t gaps_take(struct gaps *g, uint64_t size, int last)
{
    uint64_t start = 0;
    size_t at = 0;

    while (at < g->n && g->v[at].start - start < size) {
        start = g->v[at].start + g->v[at].size;
        at++;
    }
    g->v = xgrow(g->v, &g->cap, g->n + 1, sizeof(*g->v));
    for (size_t i = g->n++; i > at; i--)
        g->v[i] = g->v[i - 1];
    g->v[at] = (struct gaps_taken){ start, size, last };
    return start;
}

void gaps_clear(struct gaps *g)
{
    free(g->v);
    *g = (struct gaps){ 0 };
}
