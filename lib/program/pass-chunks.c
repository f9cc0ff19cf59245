/* pass-chunks - the head and the loss are made some rows at a time
 *
 * The logits, and their gradient, are the largest values of a training step.  With
 * recomputation they are made some PROGRAM_CHUNK rows at a time: forward up to the
 * statistics of each row, of which the reverse then reads what it needs; in the
 * reverse, the logits of a chunk again, their gradient, and what is made of that.
 *
 * Each of these instructions makes a row of its result from that row of its sources, or
 * adds to a weight's gradient by rows in their order, so that no bit depends on it.  It
 * is left out where something else stands between them, as the collectives of a
 * vocabulary that is sharded.  This pass only finds them; the engine repeats them. */
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/program/pass.h"

/* Makes INST its rows one by one? */
static bool goes_by_rows(const struct inst *inst)
{
    switch (inst->op) {
    case OP_LINEAR:
    case OP_MATMUL:
    case OP_ADD_VECTOR:
    case OP_SCALE:
    case OP_SOFTCAP:
    case OP_SOFTCAP_BACK:
    case OP_ROW_STATS:
    case OP_ROW_SUM:
    case OP_NLL:
    case OP_NLL_BACK:
    case OP_OUTER:
    case OP_COLUMN_SUM:
        return true;
    default:
        return false;
    }
}

static int last_reader(const struct program *p, int v, int from, int end)
{
    int last = -1;

    for (int i = from; i < end; i++)
        for (int k = 0; k < p->inst[i].nsrc; k++)
            last = p->inst[i].src[k] == v ? i : last;
    return last;
}

static bool are_by_rows(const struct program *p, const struct program_chunk *c)
{
    for (int i = c->first; i < c->end; i++) {
        const struct value *y = &p->value[p->inst[i].dst];

        if (!goes_by_rows(&p->inst[i]) ||
            (!y->gradient && (y->rows != ROWS_TOKENS || y->mixture >= 0)))
            return false;
        for (int k = 0; k < p->inst[i].nsrc; k++)
            if (p->value[p->inst[i].src[k]].rows != ROWS_TOKENS)
                return false;
    }
    return true;
}

/* Marks what C makes of COLS columns as held by chunks, and extends C behind the last
 * reader of it before LIMIT. */
static void follow(struct program *p, struct program_chunk *c, uint64_t cols, int limit)
{
    for (int i = c->first; i < c->end; i++) {
        struct value *y = &p->value[p->inst[i].dst];
        int last;

        if (y->gradient || y->cols != cols || p->inst[i].op == OP_ROW_STATS)
            continue;
        y->chunked = true;
        last = last_reader(p, p->inst[i].dst, i, limit);
        c->end = last >= c->end ? last + 1 : c->end;
    }
}

/* The forward pass: from the product that makes the logits. */
static bool find_forward(struct program *p, struct program_chunk *c, uint64_t *cols)
{
    int i = 0, v;

    while (i < p->nforward && p->inst[i].op != OP_ROW_STATS)
        i++;
    if (i == p->nforward)
        return false;
    v = p->inst[i].src[0];
    *cols = p->value[v].cols;
    c->end = i + 1;
    while (--i >= 0 && p->inst[i].dst == v && !p->inst[i].parts) {
        c->first = i;
        if (p->inst[i].op == OP_LINEAR || p->inst[i].op == OP_MATMUL)
            return p->inst[i].weight >= 0 && !p->value[v].kept;
        v = p->inst[i].src[0];
    }
    return false;
}

/* From the gradient of the logits, if that reads the statistics as F makes them: those
 * of all ranks lie one rank after another. */
static bool find_reverse(const struct program *p, const struct program_chunk *f,
                         struct program_chunk *c)
{
    c->first = p->nforward;
    while (c->first < p->ninsts && p->inst[c->first].op != OP_NLL_BACK)
        c->first++;
    c->end = c->first + 1;
    return c->first < p->ninsts && p->inst[c->first].src[0] == p->inst[f->end - 1].dst;
}

/* Whatever C reads or makes is there while the last chunk is made. */
static void keep(struct program *p, const struct program_chunk *c, int end)
{
    for (int i = c->first; i < c->end; i++)
        for (int k = -1; k < p->inst[i].nsrc; k++) {
            struct value *v = &p->value[k < 0 ? p->inst[i].dst : p->inst[i].src[k]];

            v->last = v->last < end - 1 ? end - 1 : v->last;
        }
}

int pass_chunks(struct builder *b)
{
    struct program *p = b->p;
    struct program_chunk forward, reverse;
    uint64_t cols;

    if (!b->opt->reverse || b->opt->recompute.kind == RECOMPUTE_NONE ||
        b->opt->recompute.kind == RECOMPUTE_ATTENTION)
        return 0;
    if (!find_forward(p, &forward, &cols) || !find_reverse(p, &forward, &reverse))
        return 0;
    follow(p, &forward, cols, p->nforward);
    follow(p, &reverse, cols, p->ninsts);
    if (!are_by_rows(p, &forward) || !are_by_rows(p, &reverse)) {
        for (int v = 0; v < p->nvalues; v++)
            p->value[v].chunked = false;
        return 0;
    }
    keep(p, &forward, reverse.end);
    keep(p, &reverse, reverse.end);
    p->forward_chunk = forward;
    p->reverse_chunk = reverse;
    return 0;
}
