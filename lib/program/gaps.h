/* gaps - places in one block of memory for what is there at different times
 *
 * Things are placed in the order in which they come, each in the lowest gap that holds
 * it; what has gone before leaves its place to others. */
#ifndef LIB_PROGRAM_GAPS_H
#define LIB_PROGRAM_GAPS_H

#include <stddef.h>
#include <stdint.h>

struct gaps { /* {0} is empty */
    struct gaps_taken {
        uint64_t start, size;
        int last; /* the memory is free after this time */
    } * v;        /* [n], sorted by start */
    size_t n, cap;
};

/* Frees what is there until before NOW. */
void gaps_free_before(struct gaps *g, int now);
/* Takes SIZE until LAST; returns its offset. */
uint64_t gaps_take(struct gaps *g, uint64_t size, int last);
void gaps_clear(struct gaps *g);

#endif
