/* room - what the kernels of a program take beside their buffers */
#include "lib/gpu/room.h"

#include <stddef.h>

#include "lib/gpu/back.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Rows of the result of INST in the largest step. */
static uint64_t rows_of(const struct program *p, const struct inst *inst,
                        const struct room_limits *l)
{
    return program_rows(p, &p->value[inst->dst], l->most);
}

static void add_product(struct gpu_room *need, const struct program *p,
                        const struct inst *inst, const struct room_limits *l)
{
    const struct weight *w = &p->weight[inst->weight];
    bool plain = inst->op == OP_MATMUL;
    enum format type = l->stored[inst->weight];
    struct products made = { .format = type,
                             .in = plain ? w->rows : w->cols,
                             .out = plain ? w->cols : w->rows,
                             .w_stride = w->cols,
                             .n = 1,
                             .plain = plain,
                             .rounded = p->rounded && (!plain || inst->back) &&
                                        type != FORMAT_F32,
                             .bf16 = p->value[inst->src[0]].dtype == DTYPE_BF16 };

    if (w->experts || format_is_coded(type))
        return;
    made.rows.most = rows_of(p, inst, l);
    made.x_stride = made.in;
    made.y_stride = made.out;
    if (!gpu_blas_serves(&made))
        return;
    need->workspace = GPU_BLAS_WORKSPACE;
    need->parts[0] = larger(need->parts[0], gpu_blas_bytes(&made));
}

static void add_outer(struct gpu_room *need, const struct program *p,
                      const struct inst *inst, const struct room_limits *l)
{
    const struct weight *w = &p->weight[inst->weight];
    struct outer made = {
        .m = w->rows, .n = w->cols, .heads = 1, .rounded = p->rounded
    };

    if (inst->op == OP_HEAD_OUTER) {
        made.m = inst->head.a;
        made.n = inst->head.b;
        made.heads = inst->head.count;
    }
    if (w->experts)
        return;
    made.rows.most = program_rows(p, &p->value[inst->src[0]], l->most);
    if (!gpu_blas_serves_outer(&made))
        return;
    need->workspace = GPU_BLAS_WORKSPACE;
    need->parts[0] = larger(need->parts[0], gpu_blas_outer_bytes(&made, made.m));
    need->parts[1] = larger(need->parts[1], gpu_blas_outer_bytes(&made, made.n));
}

static uint64_t of_attention(const struct gpu_facts *gpu, const struct inst *inst,
                             const struct room_limits *l)
{
    struct attention a = { .shape = inst->attention.shape };

    a.narrow = l->narrow && gpu->bf16;
    a.rounded = l->rounded;
    return gpu_attention_most(&a, l->segments, l->queries, l->padded_keys);
}

/* What gradients take of the room. */
static uint64_t of_gradient(const struct gpu_facts *gpu, const struct program *p,
                            const struct inst *inst, const struct room_limits *l)
{
    const struct weight *w = inst->weight < 0 ? NULL : &p->weight[inst->weight];
    const struct value *d = &p->value[inst->src[0]];
    const uint64_t rows = program_rows(p, d, l->most);
    struct attention a = { .shape = inst->attention.shape };

    switch (inst->op) {
    case OP_ATTENTION_BACK:
        a.narrow = l->narrow && gpu->bf16;
        a.rounded = l->rounded;
        return gpu_attention_back_own(
                   &a, program_rows(p, &p->value[inst->src[1]], l->most),
                   program_rows(p, &p->value[inst->src[2]], l->most)) +
               of_attention(gpu, inst, l);
    case OP_NORM_WEIGHT:
        return gpu_sum_bytes(
            w->cols, inst->norm.width
                         ? rows * (p->value[inst->src[1]].cols / inst->norm.width)
                         : 0);
    case OP_COLUMN_SUM:
        return gpu_sum_bytes(w->rows * w->cols, 0);
    case OP_EMBEDDING_BACK:
    case OP_EXPERT_SCATTER:
        return gpu_add_rows_bytes(rows);
    default:
        return 0;
    }
}

/* The rows of a product by skinny.cu. */
static uint64_t parts_bytes(const struct program *p, const struct inst *inst,
                            const struct room_limits *l)
{
    bool by_heads = inst->op == OP_HEAD_LINEAR;
    const struct products made = { .format = l->stored[inst->weight],
                                   .x_stride = p->value[inst->src[0]].cols,
                                   .rows.most = rows_of(p, inst, l),
                                   .rounded = p->rounded && !by_heads,
                                   .bf16 = p->value[inst->src[0]].dtype == DTYPE_BF16 };

    return p->weight[inst->weight].experts || format_is_coded(made.format)
               ? 0
               : gpu_skinny_parts(&made);
}

/* The gate and, if the result is bf16, the other factor, after the parts of x. */
static uint64_t gate_bytes(const struct program *p, const struct inst *inst,
                           const struct room_limits *l)
{
    const struct inst *last = inst + inst->parts;
    const struct value *y = &p->value[last->dst];
    uint64_t n = rows_of(p, last, l) * y->cols * (y->dtype == DTYPE_BF16 ? 2 : 1);

    return (GPU_SKINNY * p->value[inst[1].src[0]].cols + n) * sizeof(float);
}

struct gpu_room gpu_room_of(const struct gpu_facts *gpu, const struct program *p,
                            const struct room_limits *l)
{
    struct gpu_room need = { 0 };

    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];

        if (gpu->bf16 && (inst->op == OP_LINEAR || inst->op == OP_HEAD_LINEAR))
            need.room = larger(need.room, parts_bytes(p, inst, l));
        if (inst->nsrc)
            need.room = larger(need.room, of_gradient(gpu, p, inst, l));
        if ((inst->op == OP_OUTER || inst->op == OP_HEAD_OUTER) && gpu->blas)
            add_outer(&need, p, inst, l);
        if (inst->op == OP_ATTENTION)
            need.room = larger(need.room, of_attention(gpu, inst, l));
        else if (inst->op == OP_ROW_STATS)
            need.room =
                larger(need.room, gpu_row_stats_part(rows_of(p, inst, l),
                                                     p->value[inst->src[0]].cols) *
                                      sizeof(double));
        else if (inst->op == OP_GATED_LINEAR)
            need.room = larger(need.room, gate_bytes(p, inst, l));
        else if ((inst->op == OP_LINEAR || inst->op == OP_MATMUL) && gpu->blas)
            add_product(&need, p, inst, l);
    }
    return need;
}

const unsigned gpu_bf16[OP_COUNT] = {
    [OP_LINEAR] = 1 << 0,
    [OP_MUL] = BF16_RESULT,
    [OP_ACTIVATION] = BF16_RESULT,
    [OP_RMSNORM] = BF16_RESULT,
    [OP_LAYERNORM] = BF16_RESULT,
    [OP_RMS_APPLY] = BF16_RESULT,
    [OP_LAYER_APPLY] = BF16_RESULT,
    [OP_ATTENTION] = BF16_RESULT,
    [OP_EXPERT_GATHER] = BF16_RESULT | 1 << 0,
    [OP_SEGMENT] = BF16_RESULT | 1 << 0,
    [OP_TAKE] = BF16_RESULT | 1 << 0,
    [OP_FIRST] = BF16_RESULT | 1 << 0,
    [OP_ARRANGE] = BF16_RESULT | 1 << 0,
    [OP_SLICE] = BF16_RESULT | 1 << 0,
};

bool gpu_fuses(enum op op, enum format cache)
{
    return op == OP_GATED_LINEAR || op == OP_LINEARS || op == OP_ADD_NORM ||
           (op == OP_ROPE_KEEP && cache == FORMAT_F32);
}

void gpu_room_add(struct ledger *list, const struct gpu_room *need)
{
    ledger_add(list, "kernels", LEDGER_DEVICE, need->room);
    ledger_add(list, "cublaslt", LEDGER_DEVICE, need->workspace);
    ledger_add(list, "rows_bf16", LEDGER_DEVICE, need->parts[0] + need->parts[1]);
}
