/* prefill-bf16 - products in bf16, of attention, on CPUs with AMX or AVX512-BF16
 *
 * Keys and values are rounded to bf16 and laid out for tiles once; then all queries and
 * weights, rounded too, are multiplied by them. */
#ifndef LIB_CPU_ATTENTION_PREFILL_BF16_H
#define LIB_CPU_ATTENTION_PREFILL_BF16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/cpu/simd/bf16tile.h"

struct device;

struct prefill_bf16 {
    size_t heads;          /* KV heads, */
    size_t dim, value_dim; /* and their columns */
    size_t queries;        /* most that a call gets */
    size_t panels;         /* of AMX_SIDE keys */
    size_t steps;          /* of a key's columns */
    size_t columns;        /* panels of AMX_SIDE columns of values */
    uint16_t *keys;        /* [heads][panels][steps] tiles */
    uint16_t *values;      /* [heads][columns][panels] tiles */
    uint16_t *room;        /* of each thread: queries, then weights */
    size_t room_of_queries, room_of_thread;
    void *owned;
};

/* Room for KEYS keys of HEADS heads, and for blocks of QUERIES queries, a multiple of
 * AMX_SIDE. */
MUST_CHECK int prefill_bf16_open(struct prefill_bf16 *t, size_t heads, size_t dim,
                                 size_t value_dim, size_t keys, size_t queries,
                                 struct device *d, struct err *err);
void prefill_bf16_close(struct prefill_bf16 *t, struct device *d);

/* Lays out N keys, or values, X [N][dim], of PANEL: the others up to AMX_SIDE are
 * zeros. */
void prefill_bf16_set_keys(const struct prefill_bf16 *t, size_t head, size_t panel,
                           const float *x, size_t n);
void prefill_bf16_set_values(const struct prefill_bf16 *t, size_t head, size_t panel,
                             const float *x, size_t n);

/* score[QUERIES][stride] of ROWS queries with COUNT whole panels from PANEL on; those
 * of rows from ROWS on are zeros. */
void prefill_bf16_scores(const struct prefill_bf16 *t, int thread, float *score,
                         size_t stride, const float *q, size_t q_stride, size_t rows,
                         size_t head, size_t panel, size_t count);
/* y[ROWS][value_dim] = weight [ROWS][STRIDE] times the values of these panels. */
void prefill_bf16_values(const struct prefill_bf16 *t, int thread, float *y,
                         size_t y_stride, const float *weight, size_t stride,
                         size_t rows, size_t head, size_t panel, size_t count);

#endif
