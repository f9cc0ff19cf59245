/* prefill-bf16 - products of attention in bf16 on CPUs with AMX or AVX512-BF16 */
#include "lib/cpu/attention/prefill-bf16.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"

enum {
    NUMBERS = AMX_SIDE * AMX_SIDE, /* of a step of a panel */
    APART = AMX_SIDE /* numbers between rows, so that equal columns map to different
                      * cache sets */
};

int prefill_bf16_open(struct prefill_bf16 *t, size_t heads, size_t dim,
                      size_t value_dim, size_t keys, size_t queries, struct device *d,
                      struct err *err)
{
    size_t threads = (size_t)cpu_threads(d), of_keys, of_values;

    *t = (struct prefill_bf16){ .heads = heads,
                                .dim = dim,
                                .value_dim = value_dim,
                                .queries = queries,
                                .panels = amx_sides(keys),
                                .steps = amx_sides(dim),
                                .columns = amx_sides(value_dim) };
    of_keys = heads * t->panels * t->steps * NUMBERS;
    of_values = heads * t->panels * t->columns * NUMBERS;
    t->room_of_queries = queries * (t->steps * AMX_SIDE + APART);
    t->room_of_thread = t->room_of_queries + queries * (t->panels * AMX_SIDE + APART);
    t->owned = cpu_take(
        d, (of_keys + of_values + threads * t->room_of_thread) * sizeof(*t->keys),
        "keys and values", err);
    t->keys = t->owned;
    if (!t->owned)
        return -1;
    t->values = t->keys + of_keys;
    t->room = t->values + of_values;
    return 0;
}

void prefill_bf16_close(struct prefill_bf16 *t, struct device *d)
{
    cpu_give(d, t->owned);
    *t = (struct prefill_bf16){ 0 };
}

void prefill_bf16_set_keys(const struct prefill_bf16 *t, size_t head, size_t panel,
                           const float *x, size_t n)
{
    amx_pack(t->keys + (head * t->panels + panel) * t->steps * NUMBERS, x, t->dim, n,
             t->dim, t->steps);
}

void prefill_bf16_set_values(const struct prefill_bf16 *t, size_t head, size_t panel,
                             const float *x, size_t n)
{
    for (size_t c = 0; c < t->columns; c++) {
        size_t left = t->value_dim - c * AMX_SIDE;

        amx_pack_columns(
            t->values + ((head * t->columns + c) * t->panels + panel) * NUMBERS,
            x + c * AMX_SIDE, t->value_dim, n, left < AMX_SIDE ? left : AMX_SIDE);
    }
}

/* to[QUERIES][stride] = ROWS rows of x with N columns, rounded, and zeros up to
 * STEPS * AMX_SIDE columns; returns the stride. */
static size_t round_rows(const struct prefill_bf16 *t, uint16_t *to, const float *x,
                         size_t x_stride, size_t rows, size_t n, size_t steps)
{
    size_t all = steps * AMX_SIDE, stride = all + APART;

    for (size_t i = 0; i < t->queries; i++, to += stride) {
        size_t some = i < rows ? n : 0;

        amx_round(to, x + i * x_stride, some);
        memset(to + some, 0, (all - some) * sizeof(*to));
    }
    return stride;
}

void prefill_bf16_scores(const struct prefill_bf16 *t, int thread, float *score,
                         size_t stride, const float *q, size_t q_stride, size_t rows,
                         size_t head, size_t panel, size_t count)
{
    uint16_t *room = t->room + (size_t)thread * t->room_of_thread;
    size_t apart = round_rows(t, room, q, q_stride, rows, t->dim, t->steps);
    const uint16_t *keys = t->keys + (head * t->panels + panel) * t->steps * NUMBERS;

    bf16tile_begin();
    for (size_t k = 0; k < count; k++, keys += t->steps * NUMBERS)
        for (size_t i = 0; i < t->queries; i += AMX_SIDE) {
            struct amx_product p = { .w = room + i * apart,
                                     .w_stride = apart,
                                     .x = keys,
                                     .steps = t->steps,
                                     .rows = AMX_SIDE,
                                     .outs = AMX_SIDE,
                                     .y = score + i * stride + k * AMX_SIDE,
                                     .y_stride = stride,
                                     .transposed = true };

            bf16tile_multiply(&p);
        }
    bf16tile_end();
}

void prefill_bf16_values(const struct prefill_bf16 *t, int thread, float *y,
                         size_t y_stride, const float *weight, size_t stride,
                         size_t rows, size_t head, size_t panel, size_t count)
{
    uint16_t *room = t->room + (size_t)thread * t->room_of_thread + t->room_of_queries;
    size_t apart = round_rows(t, room, weight, stride, rows, count * AMX_SIDE, count);

    bf16tile_begin();
    for (size_t c = 0; c < t->columns; c++)
        for (size_t i = 0; i < rows; i += AMX_SIDE) {
            size_t left = t->value_dim - c * AMX_SIDE;
            struct amx_product p = {
                .w = room + i * apart,
                .w_stride = apart,
                .x =
                    t->values + ((head * t->columns + c) * t->panels + panel) * NUMBERS,
                .steps = count,
                .rows = left < AMX_SIDE ? left : AMX_SIDE,
                .outs = rows - i < AMX_SIDE ? rows - i : AMX_SIDE,
                .y = y + i * y_stride + c * AMX_SIDE,
                .y_stride = y_stride,
                .transposed = true
            };

            bf16tile_multiply(&p);
        }
    bf16tile_end();
}
