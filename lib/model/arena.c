/* arena - where each value of a program lies in one block of memory
 *
 * A value lives from the instruction that makes it to the last that reads it; two
 * values share room when their lives do not meet.  First fit, in the order of the
 * instructions. */
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/model/program.h"

struct block {
    uint64_t start, size;
    int last; /* instruction after which it is free */
};

struct blocks {
    struct block *v; /* by start */
    size_t n, cap;
};

static void free_before(struct blocks *b, int inst)
{
    size_t n = 0;

    for (size_t i = 0; i < b->n; i++)
        if (b->v[i].last >= inst)
            b->v[n++] = b->v[i];
    b->n = n;
}

/* The lowest gap of SIZE bytes. */
static uint64_t take(struct blocks *b, uint64_t size, int last)
{
    uint64_t start = 0;
    size_t at = 0;

    while (at < b->n && b->v[at].start - start < size) {
        start = b->v[at].start + b->v[at].size;
        at++;
    }
    b->v = xgrow(b->v, &b->cap, b->n + 1, sizeof(*b->v));
    for (size_t i = b->n++; i > at; i--)
        b->v[i] = b->v[i - 1];
    b->v[at] = (struct block){ start, size, last };
    return start;
}

static bool value_bytes(const struct value *v, uint64_t max_tokens, uint64_t max_wanted,
                        uint64_t *bytes)
{
    uint64_t rows = v->rows == ROWS_TOKENS   ? max_tokens
                    : v->rows == ROWS_WANTED ? max_wanted
                                             : 1;

    if (!mem_mul(bytes, rows, v->cols) || !mem_mul(bytes, *bytes, sizeof(float)) ||
        !mem_add(bytes, *bytes, 63))
        return false;
    *bytes = *bytes / 64 * 64;
    return true;
}

bool program_arena(const struct program *p, uint64_t max_tokens, uint64_t max_wanted,
                   uint64_t *offset, uint64_t *bytes)
{
    struct blocks live = { 0 };
    uint64_t total = 0;
    bool ok = true;

    for (int i = 0; i < p->nvalues; i++)
        offset[i] = UINT64_MAX;
    for (int i = 0; i < p->ninsts && ok; i++) {
        const struct value *v = &p->value[p->inst[i].dst];
        uint64_t size, end;

        if (v->kept)
            continue;
        free_before(&live, i);
        ok = value_bytes(v, max_tokens, max_wanted, &size);
        if (!ok)
            break;
        offset[p->inst[i].dst] = take(&live, size, v->last);
        ok = mem_add(&end, offset[p->inst[i].dst], size);
        if (ok && end > total)
            total = end;
    }
    free(live.v);
    *bytes = total;
    return ok;
}
