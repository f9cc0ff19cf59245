/* op - the functions in the columns of the table of operations */
#include "lib/program/op.h"

#include "lib/program/build.h"
#include "lib/program/fuse.h"

/* ---- what a derivative reads ---- */

static unsigned saved_source(const struct inst *inst)
{
    (void)inst;
    return 1 << 0;
}

/* The gradient of the weight reads the source; the source's reads only the weight. */
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
    return ((1U << inst->nsrc) - 1) | SAVES_RESULT;
}

static unsigned saved_by_act(const struct inst *inst)
{
    return activation_saves_result(inst->act) ? SAVES_RESULT : saved_source(inst);
}

/* ---- operations ---- */

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

static struct op_flops of_taps(const struct program *p, const struct inst *inst)
{
    (void)p;
    return (struct op_flops){ .row = 2 * (double)inst->taps.count *
                                     (double)inst->taps.heads *
                                     (double)inst->taps.dim };
}

/* The rows before the next one that it reads. */
static uint64_t tail_of_taps(const struct inst *inst)
{
    return (inst->taps.count - 1) * inst->taps.heads * inst->taps.dim;
}

/* The state is scaled, added to and read, and for the delta rule read once before. */
static struct op_flops of_scan(const struct program *p, const struct inst *inst)
{
    (void)p;
    return (struct op_flops){ .row = (inst->scan.kind == SCAN_DELTA ? 7 : 5) *
                                     (double)inst->scan.heads *
                                     (double)inst->scan.keys *
                                     (double)inst->scan.values };
}

static uint64_t state_of_scan(const struct inst *inst)
{
    return inst->scan.heads * inst->scan.keys * inst->scan.values;
}

/* q k^T and the weighted sum of v, for each head. */
static struct op_flops of_attention(const struct program *p, const struct inst *inst)
{
    (void)p;
    return (struct op_flops){ .key = 2 * (double)inst->attention.heads *
                                     ((double)inst->attention.head_dim +
                                      (double)inst->attention.value_dim) };
}

static struct op_scores of_query(const struct inst *inst)
{
    uint64_t each = inst->attention.head_dim + inst->attention.value_dim;

    return (struct op_scores){
        .heads = inst->attention.heads,
        .spread = (inst->attention.heads - inst->attention.kv_heads) * each,
        .window = inst->attention.block && inst->op != OP_SIDE_ATTENTION
                      ? inst->attention.over
                      : inst->attention.window,
        .causal = inst->attention.causal,
        .capped = inst->attention.softcap > 0,
    };
}

/* Scores again, then four products of their size (gradients of v, weights, q, k). */
static struct op_flops of_attention_back(const struct program *p,
                                         const struct inst *inst)
{
    (void)p;
    return (struct op_flops){ .key = 2 * (double)inst->attention.heads *
                                     (3 * (double)inst->attention.head_dim +
                                      2 * (double)inst->attention.value_dim) };
}

/* ---- the table ---- */

#define CALL(l, m, function) .least = l, .most = m, .apply = function
#define GRADS(n)             .grads = n
#define PASSES(n)            .grads = n, .passes = true
#define NO_REVERSE           .grads = OP_NO_REVERSE
#define PARTS(function)      .parts = function, .traffic = TRAFFIC_NOTHING
#define FUSED                true
#define DEVICE               true
#define COMM                 false
#define ROW(id, word, on, reverse, ...) \
    [OP_##id] = { .name = #word, .on_device = on, reverse, __VA_ARGS__ },

const struct op_info op_table[OP_COUNT] = { OPS(ROW) };

unsigned op_saved(const struct inst *inst)
{
    const struct op_info *op = &op_table[inst->op];

    return op->saved ? op->saved(inst) : 0;
}

struct op_flops op_flops(const struct program *p, const struct inst *inst)
{
    const struct op_info *op = &op_table[inst->op];

    return op->flops ? op->flops(p, inst) : (struct op_flops){ 0 };
}

struct op_scores op_scores(const struct inst *inst)
{
    const struct op_info *op = &op_table[inst->op];

    return op->scores ? op->scores(inst) : (struct op_scores){ 0 };
}
