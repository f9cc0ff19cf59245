/* unpack - the values of quantized weights
 *
 * A table has one row per storage format (model_packing).  Every format is dequantized
 * to a row-major matrix in the order of the program's shard of the weight. */
#ifndef LIB_RESHARD_UNPACK_H
#define LIB_RESHARD_UNPACK_H

#include "lib/reshard/checkpoint.h"

/* Dequantizes L's shard of tensor T, ROWS x COLS, into OUT as type TO, on THREADS
 * threads.  ERR_INPUT names a tensor that is missing or inconsistent. */
MUST_CHECK int unpack_weight(struct loader *l, const struct checkpoint *c, size_t t,
                             const struct model_packing *p, uint64_t rows,
                             uint64_t cols, enum dtype to, void *out, int threads,
                             struct err *err);

#endif
