/* blocks - a pool of numbered blocks with reference counts */
#include "lib/run/blocks.h"

#include <assert.h>
#include <stdlib.h>

#include "lib/base/mem.h"

void blocks_init(struct blocks *b, size_t n)
{
    *b = (struct blocks){ .ref = xcalloc(n + 1, sizeof(*b->ref)), .n = n };
}

void blocks_clear(struct blocks *b)
{
    free(b->ref);
    *b = (struct blocks){ 0 };
}

int32_t blocks_take(struct blocks *b, size_t wanted)
{
    for (size_t i = 0; i < b->n && b->used < b->n; i++) {
        size_t at = (wanted + i) % b->n;

        if (b->ref[at])
            continue;
        b->ref[at] = 1;
        b->used++;
        return (int32_t)at;
    }
    return -1;
}

void blocks_hold(struct blocks *b, int32_t block)
{
    assert(b->ref[block]);
    b->ref[block]++;
}

void blocks_drop(struct blocks *b, int32_t block)
{
    assert(b->ref[block]);
    b->used -= --b->ref[block] == 0;
}
