/* op - the table of operations: the columns that are functions */
#include "lib/program/op.h"

#include "lib/program/build.h"

/* ---- what a derivative reads ---- */

static unsigned saved_nothing(const struct inst *inst)
{
    (void)inst;
    return 0;
}

static unsigned saved_source(const struct inst *inst)
{
    (void)inst;
    return 1 << 0;
}

/* The gradient of a weight reads the source; that of the source reads the weight. */
static unsigned saved_product(const struct inst *inst)
{
    return saved_source(inst);
}

static unsigned saved_both(const struct inst *inst)
{
    (void)inst;
    return 1 << 0 | 1 << 1;
}

static unsigned saved_all(const struct inst *inst)
{
    return ((1U << inst->nsrc) - 1) | OP_SAVES_RESULT;
}

/* The derivatives of these follow from the result: relu' = [y > 0], tanh' = 1 - y^2,
 * sigmoid' = y (1 - y). */
static unsigned saved_by_act(const struct inst *inst)
{
    return inst->act == ACT_RELU || inst->act == ACT_TANH || inst->act == ACT_SIGMOID
               ? OP_SAVES_RESULT
               : 1 << 0;
}

/* ---- operations ---- */

static struct op_flops no_flops(const struct program *p, const struct inst *inst)
{
    (void)p;
    (void)inst;
    return (struct op_flops){ 0 };
}

static struct op_flops of_matrix(const struct program *p, const struct inst *inst)
{
    const struct weight *w = &p->weight[inst->weight];

    return (struct op_flops){ .row = 2 * (double)w->rows * (double)w->cols };
}

static struct op_flops of_heads(const struct program *p, const struct inst *inst)
{
    (void)p;
    return (struct op_flops){ .row = 2 * (double)inst->head.count *
                                     (double)inst->head.a * (double)inst->head.b };
}

/* q k^T and the weighted sum of the values, of each head. */
static struct op_flops of_attention(const struct program *p, const struct inst *inst)
{
    (void)p;
    return (struct op_flops){ .key = 2 * (double)inst->attention.heads *
                                     ((double)inst->attention.head_dim +
                                      (double)inst->attention.value_dim) };
}

/* ---- the table ---- */

#define CALL(least, most, apply) least, most, apply
#define NO_CALL                  0, 0, NULL
#define NO_REVERSE               OP_NO_REVERSE
#define DEVICE                   true
#define COMM                     false
#define ROW(id, word, call, places, saved, grads, passes, flops, traffic, comm, on) \
    [OP_##id] = { #word,                                                            \
                  call,                                                             \
                  PLACES_##places,                                                  \
                  saved,                                                            \
                  grads,                                                            \
                  passes,                                                           \
                  flops,                                                            \
                  TRAFFIC_##traffic,                                                \
                  COLLECTIVE_##comm,                                                \
                  on },

const struct op_info op_table[OP_COUNT] = { OPS(ROW) };
