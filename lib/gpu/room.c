/* room - what the kernels of a program take beside their buffers */
#include "lib/gpu/room.h"

#include "lib/gpu/blas.h"
#include "lib/gpu/gpu.h"

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

static void add_product(struct cuda_room_need *need, const struct program *p,
                        const struct inst *inst, const struct room_limits *l)
{
    const struct weight *w = &p->weight[inst->weight];
    bool plain = inst->op == OP_MATMUL;
    enum dtype type = l->stored[inst->weight];
    struct products made = { .dtype = type,
                             .in = plain ? w->rows : w->cols,
                             .out = plain ? w->cols : w->rows,
                             .w_stride = w->cols,
                             .n = 1,
                             .plain = plain,
                             .rounded = p->rounded && !plain && type != DTYPE_F32 };

    if (w->experts)
        return;
    made.rows.most = rows_of(p, inst, l);
    made.x_stride = made.in;
    made.y_stride = made.out;
    blas_room(&made, &need->workspace, &need->parts);
}

static uint64_t of_attention(const struct device *d, const struct inst *inst,
                             const struct room_limits *l)
{
    struct attention a = { .shape = inst->attention.shape };

    a.narrow = l->narrow && (!d || d->has_bf16);
    a.rounded = l->rounded;
    return gpu_attention_most(a, l->segments, l->queries, l->padded_keys);
}

struct cuda_room_need cuda_room_of(const struct device *d, const struct program *p,
                                   const struct room_limits *l)
{
    struct cuda_room_need need = { 0 };

    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];

        if (inst->op == OP_ATTENTION)
            need.room = larger(need.room, of_attention(d, inst, l));
        else if (inst->op == OP_ROW_STATS)
            need.room =
                larger(need.room, gpu_row_stats_part(rows_of(p, inst, l),
                                                     p->value[inst->src[0]].cols) *
                                      sizeof(double));
        else if ((inst->op == OP_LINEAR || inst->op == OP_MATMUL) && (!d || d->blas))
            add_product(&need, p, inst, l);
    }
    return need;
}
