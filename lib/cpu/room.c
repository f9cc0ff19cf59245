/* room - what the CPU's kernels take beside their buffers, from the table of rooms */
#include "lib/cpu/room.h"

#include "lib/cpu/cpu.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Bytes of N numbers of double precision, and one. */
static uint64_t doubles(uint64_t n)
{
    return cpu_whole((n + 1) * sizeof(double));
}

static const struct weight *weight_of(const struct cpu_most *m)
{
    return &m->program->weight[m->inst->weight];
}

static const struct sum_tree *tree_of(const struct cpu_most *m, int number)
{
    return number ? &m->program->tree[number - 1] : NULL;
}

static uint64_t linear(const struct cpu_most *m)
{
    return product_room_linear(m, weight_of(m)->cols, tree_of(m, m->inst->tree));
}

static uint64_t matmul(const struct cpu_most *m)
{
    const uint64_t in = weight_of(m)->rows;

    return product_room_matmul(m, in, tree_of(m, m->inst->tree)) +
           (m->program->half ? product_room_half(m, in) : 0);
}

static uint64_t head_linear(const struct cpu_most *m)
{
    return product_room_heads(m, m->inst->head.a);
}

/* Mean and factor of each group. */
static uint64_t norm(const struct cpu_most *m)
{
    uint64_t width = m->inst->norm.width;

    return doubles(2 * larger(m->rows, width ? m->rows * m->cols / width : 0));
}

/* And the sums of a tree. */
static uint64_t norm_sums(const struct cpu_most *m)
{
    return norm(m) + doubles(m->rows * TREE_LEAVES) +
           doubles(2 * m->rows * m->inst->norm.groups);
}

/* And terms of each group, and the weight in f32. */
static uint64_t norm_back(const struct cpu_most *m)
{
    uint64_t cols = m->inst->weight < 0 ? m->cols : weight_of(m)->cols;

    return 2 * norm(m) + cpu_whole((cols + 1) * sizeof(float));
}

static uint64_t rope_back(const struct cpu_most *m)
{
    const struct rope *r = &m->program->rope[m->inst->rope.table];

    return cpu_whole((m->rows * r->dim + 1) * sizeof(float));
}

static uint64_t convolve(const struct cpu_most *m)
{
    return cpu_whole((m->cols * m->inst->taps.count + 1) * sizeof(float));
}

static uint64_t scan(const struct cpu_most *m)
{
    return cpu_whole(cpu_scan_room(m->inst, m->rows));
}

static uint64_t expert_index(const struct cpu_most *m)
{
    return cpu_whole(m->program->mixture[m->inst->mixture].all * sizeof(int32_t));
}

static uint64_t sample(const struct cpu_most *m)
{
    uint64_t n = m->rows < m->threads ? m->rows : m->threads;

    return cpu_whole(n * cpu_sample_bytes(m->cols));
}

/* Rooms by operation; NULL: none. */
static uint64_t (*const room_of[OP_COUNT])(const struct cpu_most *m) = {
    [OP_LINEAR] = linear,
    [OP_MATMUL] = matmul,
    [OP_HEAD_LINEAR] = head_linear,
    [OP_RMSNORM] = norm,
    [OP_LAYERNORM] = norm,
    [OP_ROW_SUM] = norm_sums,
    [OP_ROW_SQUARES] = norm_sums,
    [OP_RMS_APPLY] = norm,
    [OP_LAYER_APPLY] = norm,
    [OP_NORM_BACK] = norm_back,
    [OP_NORM_TERMS] = norm_back,
    [OP_NORM_APPLY_BACK] = norm_back,
    [OP_NORM_WEIGHT] = norm_back,
    [OP_ROPE_BACK] = rope_back,
    [OP_ATTENTION] = attention_room,
    [OP_STREAM] = attention_room,
    [OP_ATTENTION_BACK] = attention_room_back,
    [OP_RELATE] = attention_room_relate,
    [OP_RELATE_XL] = attention_room_relate,
    [OP_GLOBAL_ATTENTION] = attention_room_globals,
    [OP_SIDE_ATTENTION] = attention_room_side,
    [OP_CONVOLVE] = convolve,
    [OP_CAUSAL_CONVOLVE] = convolve,
    [OP_SCAN] = scan,
    [OP_EXPERT_INDEX] = expert_index,
    [OP_SAMPLE] = sample,
};

/* None: see lib/cpu/kernels.c. */
const bool cpu_fuses[OP_COUNT] = { false };

const unsigned cpu_bf16[OP_COUNT] = {
    [OP_LINEAR] = 1 << 0,
    [OP_MUL] = BF16_RESULT,
    [OP_ACTIVATION] = BF16_RESULT,
    [OP_RMSNORM] = BF16_RESULT,
    [OP_LAYERNORM] = BF16_RESULT,
    [OP_RMS_APPLY] = BF16_RESULT,
    [OP_LAYER_APPLY] = BF16_RESULT,
    [OP_EXPERT_GATHER] = BF16_RESULT | 1 << 0,
    [OP_SEGMENT] = BF16_RESULT | 1 << 0,
    [OP_TAKE] = BF16_RESULT | 1 << 0,
    [OP_FIRST] = BF16_RESULT | 1 << 0,
    [OP_SLICE] = BF16_RESULT | 1 << 0,
};

static void look_at(struct cpu_most *m, int v)
{
    const struct value *its = &m->program->value[v];

    m->rows = larger(m->rows, program_rows(m->program, its, m->limits->most));
    m->cols = larger(m->cols, its->cols);
}

uint64_t cpu_room(const struct program *p, const struct room_limits *limits)
{
    uint64_t most = 0;

    for (int i = 0; i < p->ninsts; i++) {
        struct cpu_most m = { .program = p,
                              .inst = &p->inst[i],
                              .limits = limits,
                              .threads = (uint64_t)limits->threads };

        if (!room_of[p->inst[i].op])
            continue;
        look_at(&m, p->inst[i].dst);
        for (int k = 0; k < p->inst[i].nsrc; k++)
            look_at(&m, p->inst[i].src[k]);
        most = larger(most, room_of[p->inst[i].op](&m));
    }
    return most;
}
