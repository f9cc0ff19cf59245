/* mem - small bookkeeping memory, and sizes checked for overflow */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/base/mem.h"

enum { ALIGNMENT = 128, HUGE_PAGE = 1 << 21 };

void *xcheck(void *p)
{
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(ERR_SYSTEM);
    }
    return p;
}

void *xmalloc(size_t size)
{
    return xcheck(malloc(size ? size : 1));
}

void *xcalloc(size_t n, size_t size)
{
    return xcheck(calloc(n ? n : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t size)
{
    return xcheck(realloc(p, size ? size : 1));
}

char *xstrdup(const char *s)
{
    return xstrndup(s, strlen(s));
}

char *xstrndup(const char *s, size_t n)
{
    char *copy = xmalloc(n + 1);

    if (n)
        memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

void *xgrow(void *p, size_t *cap, size_t need, size_t size)
{
    size_t room = *cap;

    if (need <= room)
        return p;
    if (room < 8)
        room = 8;
    while (room < need)
        room = room > SIZE_MAX / 2 ? need : room * 2;
    if (size && room > SIZE_MAX / size)
        xcheck(NULL);
    p = xrealloc(p, room * size);
    *cap = room;
    return p;
}

bool mem_mul(uint64_t *out, uint64_t a, uint64_t b)
{
    if (a && b > UINT64_MAX / a)
        return false;
    *out = a * b;
    return true;
}

bool mem_add(uint64_t *out, uint64_t a, uint64_t b)
{
    if (b > UINT64_MAX - a)
        return false;
    *out = a + b;
    return true;
}

uint64_t mem_allowance(uint64_t bytes)
{
    uint64_t much;

    return mem_mul(&much, bytes, 12) && mem_add(&much, much, UINT64_C(40) << 20)
               ? much
               : UINT64_MAX;
}

int mem_refuse(const char *name, uint64_t bytes, struct err *err)
{
    return err_set(err, ERR_INPUT,
                   "%s: refused: its %llu bytes ask for more memory than 64 MiB and 16 "
                   "times their number",
                   name, (unsigned long long)bytes);
}

void *mem_alloc(uint64_t size, const char *what, struct err *err)
{
    size_t alignment = size >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    void *p = NULL;

    if (size <= SIZE_MAX - alignment) {
        size_t whole = ((size_t)size + alignment - (size > 0)) / alignment * alignment;

        p = aligned_alloc(alignment, whole);
#ifdef MADV_HUGEPAGE
        /* a hint: huge pages reduce TLB misses when weights are read */
        if (p && alignment == HUGE_PAGE)
            madvise(p, whole, MADV_HUGEPAGE);
#endif
    }
    if (!p)
        err_set(err, ERR_SYSTEM, "%s: no memory for %llu bytes", what,
                (unsigned long long)size);
    return p;
}
