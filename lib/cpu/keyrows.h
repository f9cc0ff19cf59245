/* keyrows - one query times rows of keys or values, in the type that stores them
 *
 * On CPUs with AVX-512 or AVX2, keyrows_dots and keyrows_add process all heads for a
 * few rows before the next rows, and widen bf16 and int8 in registers.  Elsewhere,
 * callers widen some rows with keyrows_widen and use cpu_dots and cpu_add_weighted,
 * which give the same bits.  The scales of int8 multiply scores and weights, not
 * elements.  keybytes.h is faster for int8, where the CPU has it. */
#ifndef LIB_CPU_KEYROWS_H
#define LIB_CPU_KEYROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/device/device.h"

struct keyrows {
    const char *data;
    enum dtype type;
    size_t bytes;       /* between rows */
    size_t heads, dim;  /* KV heads; columns of each */
    size_t apart;       /* columns between heads */
    size_t scales, per; /* I8: scales of a row, which precede its columns; columns per
                         * scale */
    bool by_head;       /* a head has one scale, or the type has none */
};

/* The heads of the cache P or, if it is NULL, of f32 rows at PLAIN. */
struct keyrows keyrows_of(const struct buffer *p, const float *plain, size_t heads,
                          size_t dim, size_t apart);
/* Have keyrows_dots and keyrows_add loops for K?  They do on such a CPU if dim
 * is a multiple of VEC and scales are by head.  Else do not call them. */
bool keyrows_are_whole(const struct keyrows *k);
/* Bytes of a number of TYPE, which loops know when they are compiled. */
static inline __attribute__((always_inline)) size_t keyrows_size(enum dtype type)
{
    return type == DTYPE_F32 ? 4 : type == DTYPE_BF16 ? 2 : 1;
}

/* HEAD's part of ROW, of TYPE. */
static inline __attribute__((always_inline)) const char *
keyrows_part(const struct keyrows *k, enum dtype type, size_t head, size_t row)
{
    return k->data + row * k->bytes + k->scales * sizeof(float) +
           head * k->apart * keyrows_size(type);
}

/* Bytes between what is read and what is prefetched, row by row: 128 KiB or a little
 * more, an even number of rows.  With an odd one, Zen 4 read rows of 2 KiB at two
 * thirds of the rate. */
static inline size_t keyrows_ahead(const struct keyrows *k)
{
    return ((128 << 10) / k->bytes / 2 + 1) * 2 * k->bytes;
}

/* What HEAD's part of ROW is multiplied by; 1 for other types than I8. */
float keyrows_scale(const struct keyrows *k, size_t row, size_t head);
/* y[N][dim] = HEAD's part of the rows from FIRST on as f32, without those scales. */
void keyrows_widen(float *y, const struct keyrows *k, size_t head, size_t first,
                   size_t n);

/* score[h][i] = q_h . row FIRST + I, over N rows and the HEADS KV heads from HEAD on,
 * each with GROUP query heads.  Q [heads][group][dim] and SCORE are those of head 0;
 * STRIDE is that between two heads of SCORE. */
void keyrows_dots(float *score, size_t stride, const float *q, size_t group,
                  const struct keyrows *k, size_t head, size_t heads, size_t first,
                  size_t n);
/* y_h += weight[h][i] row FIRST + I, row after row. */
void keyrows_add(float *y, const float *weight, size_t stride, size_t group,
                 const struct keyrows *k, size_t head, size_t heads, size_t first,
                 size_t n);

/* What loops get: the arguments of keyrows_dots, or of keyrows_add. */
struct keyrows_request {
    float *to;         /* scores, or sums */
    const float *from; /* queries, or weights */
    size_t stride;     /* of scores or weights */
    size_t group, head, heads, first, n;
    const struct keyrows *k;
};
/* For CPUs with AVX2. */
void keyrows_dots_avx2(const struct keyrows_request *r);
void keyrows_add_avx2(const struct keyrows_request *r);

#endif
