/* blockpool - a pool of numbered blocks with reference counts
 *
 * Sequences that begin with the same tokens hold the same blocks of the KV cache; a
 * block is free when nobody holds it.  The cache of each rank has such a pool for each
 * of its groups, and the scheduler one that counts what a replica's ranks hold. */
#ifndef LIB_RUN_BLOCKPOOL_H
#define LIB_RUN_BLOCKPOOL_H

#include <stddef.h>
#include <stdint.h>

struct blockpool {
    uint32_t *ref; /* [n]: how often each is held */
    size_t n, used;
};

void blockpool_init(struct blockpool *b, size_t n);
void blockpool_clear(struct blockpool *b);
/* Takes a free block: WANTED or the next free one, so that a sequence's blocks are
 * contiguous if possible.  -1: none is free. */
int32_t blockpool_take(struct blockpool *b, size_t wanted);
void blockpool_hold(struct blockpool *b, int32_t block);
void blockpool_drop(struct blockpool *b, int32_t block);

#endif
