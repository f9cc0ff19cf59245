/* layout - what lies in device memory beside values, as C and CUDA both read it */
#ifndef LIB_DEVICE_LAYOUT_H
#define LIB_DEVICE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"

/* A weight in device memory, row-major; types f32, bf16 and f16. */
struct matrix {
    const void *data;
    enum dtype dtype;
    uint64_t rows, cols;
};

/* Bytes of a cache's row of COLS numbers: f32, bf16 or (I8) bytes behind a f32 for each
 * WIDTH of them, which multiplies them.  Rows begin at multiples of 4. */
static inline uint64_t layout_cached_bytes(enum dtype dtype, uint64_t cols,
                                           uint64_t width)
{
    uint64_t bytes = dtype == DTYPE_I8     ? cols + cols / width * sizeof(float)
                     : dtype == DTYPE_BF16 ? cols * sizeof(uint16_t)
                                           : cols * sizeof(float);

    return (bytes + 3) / 4 * 4;
}

/* Some queries of one sequence, the keys that they attend to, and where their own keys
 * are appended.  Keys follow each other in position; in a cache they lie in blocks. */
struct range {
    int32_t row, rows; /* of the queries in their buffer */
    int32_t start;     /* position of the first query */
    int32_t keys;
    int32_t first_key; /* position of the first key */
    int32_t key_row;   /* its row: of the buffer, or counted over the blocks */
    int32_t write_row; /* row of the cache where the rows go, counted over the blocks */
    int32_t block;     /* index into step_view.block of the first block; -1: a buffer */
};

/* Ranges of a step, in device memory. */
struct ranges {
    const struct range *v;
    size_t n;
    const int32_t *block;        /* numbers of blocks */
    size_t block_rows;           /* of a block */
    size_t most_rows, most_keys; /* of one range */
};

/* How a sequence's next token is drawn. */
struct draw {
    double temperature, top_p;
    uint64_t top_k; /* 0: all */
    uint64_t seed, position;
};

#endif
