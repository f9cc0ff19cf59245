/* product-room - what products take beside their buffers (room.h) */
#include "lib/cpu/cpu.h"
#include "lib/cpu/product/codes-linear.h"
#include "lib/cpu/product/linear.h"
#include "lib/cpu/room.h"
#include "lib/cpu/simd/amx.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Floats of a panel of weights of one thread. */
static uint64_t panel(void)
{
    return (uint64_t)PANEL * (BLOCK + APART);
}

/* linear.c: rows of x, arranged, and rooms of threads: a panel and pending sums, or
 * blocks of rows. */
static uint64_t floats_of_linear(const struct cpu_most *m, uint64_t in, bool tree)
{
    uint64_t some =
        m->rows < BLOCK_ROWS ? (m->rows + EIGHT - 1) / EIGHT * EIGHT : BLOCK_ROWS;
    uint64_t panels = panel() + (tree ? TREE_SUMS * PANEL * m->rows : 0);
    uint64_t blocks = BLOCK_OUTS * (BLOCK + APART + some * (tree ? TREE_SUMS + 1 : 1));
    uint64_t paired = BF16DOT_FLOATS + (tree ? TREE_SUMS * m->rows * BLOCK_OUTS : 0);
    uint64_t rows = m->rows * (in + 2 * VEC * TREE_LEAVES + APART + VEC);

    return rows +
           (m->rows > FEW ? m->threads * larger(panels, larger(blocks, paired)) : 0);
}

/* codes-linear.c: segments of rows of x, and rows that fill a tile. */
static uint64_t bytes_of_codes(const struct cpu_most *m, uint64_t in,
                               const struct sum_tree *tree)
{
    uint64_t segments = tree ? 0 : (in + SEGMENT_TERMS - 1) / SEGMENT_TERMS;

    for (int k = 0; tree && k < tree->n; k++)
        segments += (tree->leaf[k].cols + SEGMENT_TERMS - 1) / SEGMENT_TERMS;
    return (m->rows + AMX_ROWS) * segments * sizeof(struct codes_segment);
}

/* amx-rows.c and bf16tile-transposed.c: rows of x and, of each thread, weights, both in
 * steps of tiles; a stride is padded by AMX_SIDE. */
static uint64_t bytes_of_tiles(const struct cpu_most *m, uint64_t in)
{
    uint64_t terms = (amx_sides(in) + 1) * AMX_SIDE;
    uint64_t rows = amx_sides(m->rows) * AMX_SIDE;

    return (rows + m->threads * AMX_SIDE) * terms * sizeof(uint16_t);
}

uint64_t product_room_linear(const struct cpu_most *m, uint64_t in,
                             const struct sum_tree *tree)
{
    uint64_t bytes = floats_of_linear(m, in, tree && tree->n > 1) * sizeof(float);

    return cpu_whole(
        larger(bytes, larger(bytes_of_codes(m, in, tree), bytes_of_tiles(m, in))));
}

uint64_t product_room_matmul(const struct cpu_most *m, uint64_t in,
                             const struct sum_tree *tree)
{
    /* as codes, it is made as the product above */
    return larger(
        product_room_linear(m, in, tree),
        cpu_whole(m->threads * (tree ? TREE_SUMS * MATMUL_STRIP * m->rows : 0) *
                  sizeof(float)));
}

uint64_t product_room_half(const struct cpu_most *m, uint64_t in)
{
    return cpu_whole((m->rows * in + 1) * sizeof(float));
}

uint64_t product_room_heads(const struct cpu_most *m, uint64_t in)
{
    uint64_t arranged = (in + 2 * VEC - 1) / (2 * VEC) * (2 * VEC);

    return cpu_whole(m->threads * (m->rows * arranged + panel()) * sizeof(float));
}
