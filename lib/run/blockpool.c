/* blockpool - a pool of numbered blocks with reference counts */
#include "lib/run/blockpool.h"

#include <assert.h>
#include <stdlib.h>

#include "lib/base/mem.h"

void blockpool_init(struct blockpool *b, size_t n)
{
    *b = (struct blockpool){ .ref = xcalloc(n + 1, sizeof(*b->ref)), .n = n };
}

void blockpool_clear(struct blockpool *b)
{
    free(b->ref);
    *b = (struct blockpool){ 0 };
}

int32_t blockpool_take(struct blockpool *b, size_t wanted)
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

void blockpool_hold(struct blockpool *b, int32_t block)
{
    assert(b->ref[block]);
    b->ref[block]++;
}

void blockpool_drop(struct blockpool *b, int32_t block)
{
    assert(b->ref[block]);
    b->used -= --b->ref[block] == 0;
}
