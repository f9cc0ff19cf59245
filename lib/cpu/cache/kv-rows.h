/* kv-rows - rows of keys or values, in the type that stores them */
#ifndef LIB_CPU_CACHE_KV_ROWS_H
#define LIB_CPU_CACHE_KV_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/device/device.h"

struct kv_rows {
    const char *data;
    enum format type;
    size_t bytes;       /* between rows */
    size_t heads, dim;  /* KV heads; columns of each */
    size_t apart;       /* columns between heads */
    size_t scales, per; /* of codes: scales of a row, which precede its columns; columns
                         * per scale */
    bool by_head;       /* a head has one scale, or the type has none */
};

/* The heads of the cache P or, if it is NULL, of f32 rows at PLAIN. */
struct kv_rows kv_rows_of(const struct buffer *p, const float *plain, size_t heads,
                          size_t dim, size_t apart);
/* Bytes of a number of TYPE, which loops know when they are compiled. */
static inline __attribute__((always_inline)) size_t kv_rows_size(enum format type)
{
    return type == FORMAT_F32 ? 4 : type == FORMAT_BF16 ? 2 : 1;
}

/* HEAD's part of ROW, of TYPE. */
static inline __attribute__((always_inline)) const char *
kv_rows_part(const struct kv_rows *k, enum format type, size_t head, size_t row)
{
    return k->data + row * k->bytes + k->scales * sizeof(float) +
           head * k->apart * kv_rows_size(type);
}

/* Bytes between what is read and what is prefetched, row by row: 128 KiB or a little
 * more, an even number of rows.  With an odd one, Zen 4 read rows of 2 KiB at two
 * thirds of the rate. */
static inline size_t kv_rows_ahead(const struct kv_rows *k)
{
    return ((128 << 10) / k->bytes / 2 + 1) * 2 * k->bytes;
}

/* What HEAD's part of ROW is multiplied by; 1 for types without. */
float kv_rows_scale(const struct kv_rows *k, size_t row, size_t head);
/* y[N][dim] = HEAD's part of the rows from FIRST on as f32, without those scales. */
void kv_rows_widen(float *y, const struct kv_rows *k, size_t head, size_t first,
                   size_t n);

#endif
