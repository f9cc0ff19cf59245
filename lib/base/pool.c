/* pool - many small allocations that are released together */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/pool.h"

/* Allocations fill a block from its start; a request larger than a block gets its
 * own. */
struct pool_block {
    struct pool_block *next;
    size_t used, size;
    _Alignas(8) char bytes[];
};

enum { BLOCK_SIZE = 64 * 1024 - 64 };

void *pool_take(struct pool *p, size_t n, size_t align)
{
    struct pool_block *b = p->head;
    size_t at = b ? (b->used + align - 1) & ~(align - 1) : 0;

    if (!b || at > b->size || n > b->size - at) {
        size_t size = n > BLOCK_SIZE ? n : BLOCK_SIZE;

        b = xmalloc(sizeof(*b) + size);
        *b = (struct pool_block){ .next = p->head, .size = size };
        p->head = b;
        p->taken += sizeof(*b) + size;
        at = 0;
    }
    b->used = at + n;
    return b->bytes + at;
}

char *pool_strndup(struct pool *p, const char *s, size_t n)
{
    char *copy = pool_take(p, n + 1, 1);

    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

char *pool_strdup(struct pool *p, const char *s)
{
    return pool_strndup(p, s, strlen(s));
}

void pool_reset(struct pool *p)
{
    struct pool_block *b = p->head;
    struct pool rest = { 0 };

    if (!b || b->size != BLOCK_SIZE) {
        pool_clear(p);
        return;
    }
    rest.head = b->next;
    pool_clear(&rest);
    b->next = NULL;
    b->used = 0;
    p->taken = sizeof(*b) + b->size;
}

void pool_clear(struct pool *p)
{
    struct pool_block *b = p->head;

    while (b) {
        struct pool_block *next = b->next;

        free(b);
        b = next;
    }
    *p = (struct pool){ 0 };
}
