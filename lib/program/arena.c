/* arena - offsets of all values of a program in one block of memory
 *
 * A value is live from the instruction that makes it to the last one that reads it.
 * Two values may share memory if they are never live together.  First fit, in the order
 * of the instructions. */
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/program/program.h"

struct block {
    uint64_t start, size;
    int last; /* the memory is free after this instruction */
};

struct blocks {
    struct block *v; /* sorted by start */
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

/* Allocates SIZE bytes in the lowest gap that holds them; returns their offset. */
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

uint64_t program_rows(const struct program *p, const struct value *v,
                      const uint64_t most[ROWS_MOST])
{
    const struct mixture *m;
    uint64_t senders;

    if (v->rows == ROWS_TABLE)
        return p->rows.v[ROWS_TABLE].bound;
    if (v->mixture < 0)
        return most[v->rows];
    m = &p->mixture[v->mixture];
    if (v->rows == ROWS_SENT)
        return most[m->rows] * m->top;
    senders = most[ROWS_CHOSEN] ? most[ROWS_CHOSEN] : (uint64_t)p->mesh.size[MESH_EP];
    return most[m->rows] * senders * (m->top < m->count ? m->top : m->count);
}

static bool value_bytes(const struct program *p, const struct value *v,
                        const uint64_t most[ROWS_MOST], uint64_t *bytes)
{
    if (!mem_mul(bytes, program_rows(p, v, most), v->cols) ||
        !mem_mul(bytes, *bytes, (uint64_t)dtype_bits(v->dtype) / 8) ||
        !mem_add(bytes, *bytes, 63))
        return false;
    *bytes = *bytes / 64 * 64;
    return true;
}

/* Places value V, made by instruction I; *total is the end of the arena so far.  False
 * on overflow. */
static bool place(struct blocks *live, const struct program *p, int v, int i,
                  const uint64_t most[ROWS_MOST], uint64_t *offset, uint64_t *total)
{
    uint64_t size, end;

    if (p->value[v].kept || p->value[v].gradient || p->value[v].inside)
        return true;
    free_before(live, i);
    if (!value_bytes(p, &p->value[v], most, &size))
        return false;
    offset[v] = take(live, size, p->value[v].last);
    if (!mem_add(&end, offset[v], size))
        return false;
    if (end > *total)
        *total = end;
    return true;
}

bool program_arena(const struct program *p, const uint64_t most[ROWS_MOST],
                   uint64_t *offset, uint64_t *bytes)
{
    struct blocks live = { 0 };
    uint64_t total = 0;
    bool ok = true;

    for (int i = 0; i < p->nvalues; i++)
        offset[i] = UINT64_MAX;
    for (int i = 0; i < p->nimports && ok; i++)
        ok = place(&live, p, p->import[i], 0, most, offset, &total);
    for (int i = 0; i <= p->ninsts && ok; i++) {
        for (int k = 0; i == p->nforward && p->back_import && k < p->nexports && ok;
             k++)
            ok = place(&live, p, p->back_import[k], i, most, offset, &total);
        /* all results of a fused operation at once; it has none of its own */
        for (int k = 1; i < p->ninsts && ok && k <= p->inst[i].parts; k++)
            ok = place(&live, p, p->inst[i + k].dst, i, most, offset, &total);
        if (i < p->ninsts && p->inst[i].parts)
            i += p->inst[i].parts;
        else if (i < p->ninsts && ok)
            ok = place(&live, p, p->inst[i].dst, i, most, offset, &total);
    }
    free(live.v);
    *bytes = total;
    return ok;
}
