/* arena - offsets of all values of a program in one block of memory
 *
 * A value is live from the instruction that makes it to the last one that reads it.
 * Two values may share memory if they are never live together.  First fit, in the order
 * of the instructions. */
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/program/gaps.h"
#include "lib/program/program.h"

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
    uint64_t rows = program_rows(p, v, most);

    if (v->chunked && rows >= 2 * PROGRAM_CHUNK)
        rows = 2 * PROGRAM_CHUNK - 1;
    if (!mem_mul(bytes, rows, v->cols) ||
        !mem_mul(bytes, *bytes, (uint64_t)dtype_bits(v->dtype) / 8) ||
        !mem_add(bytes, *bytes, 63))
        return false;
    *bytes = *bytes / 64 * 64;
    return true;
}

/* Places value V, made by instruction I; *total is the end of the arena so far.  False
 * on overflow. */
static bool place(struct gaps *live, const struct program *p, int v, int i,
                  const uint64_t most[ROWS_MOST], uint64_t *offset, uint64_t *total)
{
    uint64_t size, end;

    if (p->value[v].kept || p->value[v].gradient || p->value[v].inside)
        return true;
    gaps_free_before(live, i);
    if (!value_bytes(p, &p->value[v], most, &size))
        return false;
    offset[v] = gaps_take(live, size, p->value[v].last);
    if (!mem_add(&end, offset[v], size))
        return false;
    if (end > *total)
        *total = end;
    return true;
}

bool program_arena(const struct program *p, const uint64_t most[ROWS_MOST],
                   uint64_t *offset, uint64_t *bytes)
{
    struct gaps live = { 0 };
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
        if (i == p->nforward && p->given && ok)
            ok = place(&live, p, p->given - 1, i, most, offset, &total);
        /* all results of a fused operation at once; it has none of its own */
        for (int k = 1; i < p->ninsts && ok && k <= p->inst[i].parts; k++)
            ok = place(&live, p, p->inst[i + k].dst, i, most, offset, &total);
        if (i < p->ninsts && p->inst[i].parts)
            i += p->inst[i].parts;
        else if (i < p->ninsts && ok)
            ok = place(&live, p, p->inst[i].dst, i, most, offset, &total);
    }
    gaps_clear(&live);
    *bytes = total;
    return ok;
}
