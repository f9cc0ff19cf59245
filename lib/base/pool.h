/* pool - many small allocations that are released together */
#ifndef LIB_BASE_POOL_H
#define LIB_BASE_POOL_H

#include <stddef.h>

/* `struct pool p = { 0 }` is empty. */
struct pool {
    struct pool_block *head; /* private */
    size_t taken;            /* bytes of memory in all blocks */
};

/* N bytes, not zeroed, aligned to ALIGN (a power of two, at most 8).  They live until
 * pool_clear. */
void *pool_take(struct pool *p, size_t n, size_t align);
/* A copy of the N bytes at S with a NUL behind them. */
char *pool_strndup(struct pool *p, const char *s, size_t n);
char *pool_strdup(struct pool *p, const char *s);
/* Release all pieces, and keep at most one block of 64 KiB for the next ones. */
void pool_reset(struct pool *p);
void pool_clear(struct pool *p);

#endif
