/* side - attention within a window and to the side rows of blocks of tokens (LongT5)
 *
 * Guo et al. 2021, "LongT5: Efficient Text-To-Text Transformer for Long Sequences",
 * arXiv:2112.07916, section 2.2: a token sees the tokens around it and, for each block
 * of tokens of its text, a side row, all with biases by distance.  A task is some
 * queries of one head. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/attention/attention.h"
#include "lib/cpu/cpu.h"

struct job {
    const struct cpu_side *c;
    const struct inst *inst;
    size_t stride;             /* columns of a row */
    size_t reach;              /* the largest distance within the window that occurs */
    size_t most, sides;        /* tokens and side rows of the longest text */
    size_t room;               /* scores of a query */
    float *near, *far, *score; /* biases of distances, [heads][side_distances]; scores,
                                * [threads][SIDE_BLOCK][room] */
};

/* Fills BIAS[heads][distances of N rows] from TABLE, divided by the scale. */
static int tabulate(struct device *d, const struct job *j, float *bias,
                    const struct matrix *table, size_t n, struct err *err)
{
    const struct inst *inst = j->inst;
    size_t all = (size_t)side_distances(n), heads = inst->attention.heads;
    float *rows = cpu_take(d, all * table->cols * sizeof(*rows), "biases", err);
    int32_t *bucket = rows ? cpu_take(d, all * sizeof(*bucket), "biases", err) : NULL;

    for (size_t i = 0; i < all && bucket; i++)
        bucket[i] = (int32_t)positions_bucket((int64_t)i - (int64_t)n + 1, table->rows,
                                              inst->attention.far, true);
    if (bucket && all)
        cpu_embedding(d, rows, table, (struct cpu_index){ bucket, 1, 0, -1 }, all, 0,
                      0);
    for (size_t i = 0; i < all && bucket; i++)
        for (size_t h = 0; h < heads; h++)
            bias[h * all + i] = rows[i * table->cols + inst->attention.bias_first + h] /
                                (float)inst->attention.scale;
    cpu_give(d, bucket);
    cpu_give(d, rows);
    return bucket ? 0 : -1;
}

/* Adds biases to the scores S of a query at OWN of N rows, of the rows [LOW, HIGH). */
static void add_near(const struct job *j, size_t head, size_t own, float *s, size_t low,
                     size_t high)
{
    const float *bias = j->near + head * side_distances(j->reach + 1) + j->reach;

    for (size_t k = low; k < high; k++) {
        size_t apart = k > own ? k - own : own - k;

        s[k - low] =
            apart > j->reach ? -INFINITY : s[k - low] + bias[(int64_t)k - (int64_t)own];
    }
}

static void add_sides(const struct job *j, size_t head, size_t own, float *s, size_t n)
{
    int64_t at =
        positions_side((int64_t)own, (int64_t)n, (int64_t)j->inst->attention.block);
    const float *bias = j->far + head * side_distances(j->sides) + j->sides - 1;

    for (size_t k = 0; k < n; k++)
        s[k] += bias[(int64_t)k - at];
}

/* Task: block TASK / heads % blocks of the queries of a text, of head TASK % heads. */
static void one_block(void *arg, size_t task, int thread)
{
    const struct job *j = arg;
    const struct cpu_side *c = j->c;
    size_t heads = j->inst->attention.heads, dim = j->inst->attention.head_dim;
    size_t blocks = (j->most + SIDE_BLOCK - 1) / SIDE_BLOCK, head = task % heads;
    size_t text = task / heads / blocks, row = task / heads % blocks * SIDE_BLOCK;
    size_t n, sides, rows, low, high, room = j->room, stride = j->stride;
    size_t first = cpu_text(&c->texts, text, &n) * stride + head * dim;
    size_t beside = cpu_text(&c->sides, text, &sides) * stride + head * dim;
    float *score = j->score + (size_t)thread * SIDE_BLOCK * room;
    float *y = c->y + first + row * stride;
    const float *q = c->q + first + row * stride;

    if (row >= n)
        return;
    rows = n - row < SIDE_BLOCK ? n - row : SIDE_BLOCK;
    low = row > j->reach ? row - j->reach : 0;
    high = n - row > rows + j->reach ? row + rows + j->reach : n;
    cpu_dots(score, room, q, stride, rows, c->k + first + low * stride, stride,
             high - low, dim);
    if (sides)
        cpu_dots(score + (high - low), room, q, stride, rows, c->side_k + beside,
                 stride, sides, dim);
    for (size_t i = 0; i < rows; i++) {
        float *s = score + i * room;

        add_near(j, head, row + i, s, low, high);
        add_sides(j, head, row + i, s + (high - low), sides);
        cpu_softmax_row(s, high - low + sides, (float)j->inst->attention.scale);
        memset(y + i * stride, 0, dim * sizeof(*y));
    }
    cpu_add_weighted(y, stride, score, room, rows, c->v + first + low * stride, stride,
                     dim, high - low);
    if (sides)
        cpu_add_weighted(y, stride, score + (high - low), room, rows,
                         c->side_v + beside, stride, dim, sides);
}

int cpu_side_attention(struct device *d, const struct inst *inst,
                       const struct cpu_side *c, struct err *err)
{
    struct job j = { .c = c, .inst = inst };
    size_t heads = inst->attention.heads, blocks;
    int ret = -1;

    j.stride = heads * inst->attention.head_dim;
    for (size_t i = 0, n, sides; i < c->texts.n; i++) {
        (void)cpu_text(&c->texts, i, &n);
        (void)cpu_text(&c->sides, i, &sides);
        j.most = n > j.most ? n : j.most;
        j.sides = sides > j.sides ? sides : j.sides;
    }
    if (!heads || !j.most)
        return 0;
    j.reach = (inst->attention.window < j.most ? inst->attention.window : j.most) - 1;
    j.room = side_distances(j.reach + 1) + SIDE_BLOCK + j.sides;
    blocks = (j.most + SIDE_BLOCK - 1) / SIDE_BLOCK;
    j.near =
        cpu_take(d, side_distances(j.reach + 1) * heads * sizeof(float), "biases", err);
    if (j.near)
        j.far =
            cpu_take(d, side_distances(j.sides) * heads * sizeof(float), "biases", err);
    if (!j.far || tabulate(d, &j, j.near, c->bias, j.reach + 1, err) < 0 ||
        tabulate(d, &j, j.far, c->side, j.sides, err) < 0)
        goto out;
    j.score =
        cpu_take(d, (uint64_t)cpu_threads(d) * SIDE_BLOCK * j.room * sizeof(*j.score),
                 "attention scores", err);
    if (!j.score)
        goto out;
    cpu_parallel(d, c->texts.n * blocks * heads, one_block, &j);
    ret = 0;
out:
    cpu_give(d, j.score);
    cpu_give(d, j.far);
    cpu_give(d, j.near);
    return ret;
}
