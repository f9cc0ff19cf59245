/* onednn - products of matrices in 16 or 8 bits by oneDNN
 *
 * oneDNN uses what the CPU has: AMX, AVX512-BF16, AVX512-VNNI. */
#ifndef LIB_CPU_PRODUCT_ONEDNN_H
#define LIB_CPU_PRODUCT_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/dtype.h"

struct onednn;

/* y[m][n] = x[m][k] w[n][k]^T */
struct onednn_shape {
    size_t m, n, k;
    size_t x_stride, y_stride; /* elements between rows */
};

/* A product on the calling thread, with x in TYPE as w: DTYPE_BF16 with y in f32; or
 * DTYPE_I8, with x of unsigned bytes and y in int32.  oneDNN keeps the code of the last
 * thousand or so.  NULL if oneDNN is not built in or cannot do it. */
struct onednn *onednn_new(enum dtype type, const struct onednn_shape *shape);
void onednn_free(struct onednn *p);
/* Returns false if it failed; y is then undefined. */
bool onednn_run(struct onednn *p, void *y, const void *x, const void *w);

#endif
