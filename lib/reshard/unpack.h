/* unpack - the values of quantized weights
 *
 * A table has one row per storage format (model_packing).  Every format is dequantized
 * to a row-major matrix in the order of the program's shard of the weight. */
#ifndef LIB_RESHARD_UNPACK_H
#define LIB_RESHARD_UNPACK_H

#include "lib/base/format.h"
#include "lib/reshard/checkpoint.h"

/* *F = the format that keeps the codes of tensor T of M, packed as P, and *PER = how
 * many inputs share a scale (0: all).  STORED[source] are the types of M's sources.
 * False: they can only be dequantized. */
bool unpack_keeps(enum format *f, uint64_t *per, const struct model *m,
                  const enum dtype *stored, size_t t, const struct model_packing *p);
/* OUT[n] = L's shard of tensor T as codes of F, unchanged: ROWS x COLS of each matrix
 * in turn, whose memory is clear.  ERR_INPUT: a tensor is missing or inconsistent, or a
 * code or a scale is no number; ERR_NO: the layout divides a block. */
MUST_CHECK int unpack_codes(const struct format_codes *out, size_t n, struct loader *l,
                            const struct checkpoint *c, size_t t,
                            const struct model_packing *p, enum format f, int threads,
                            struct err *err);

/* Dequantizes L's shard of tensor T, ROWS x COLS, into OUT as type TO, on THREADS
 * threads.  ERR_INPUT names a tensor that is missing or inconsistent. */
MUST_CHECK int unpack_weight(struct loader *l, const struct checkpoint *c, size_t t,
                             const struct model_packing *p, uint64_t rows,
                             uint64_t cols, enum dtype to, void *out, int threads,
                             struct err *err);

#endif
