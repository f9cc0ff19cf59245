/* quantize - writes a Hugging Face directory in 8 or 4 bits, and back
 *
 * The format is that of shardutils-checkpoint(5).  Tensors are streamed: memory is
 * bounded by a few MiB and the scales of one tensor.  The output appears complete or
 * not at all. */
#ifndef LIB_RESHARD_QUANTIZE_H
#define LIB_RESHARD_QUANTIZE_H

#include "lib/reshard/convert.h"

/* Writes CKPT to PATH with opt->codes bits: matrices called NAME.weight, where
 * opt->outputs says which axis has their outputs.  ERR_INPUT: numbers that are not
 * finite, matrices of several types, or a model that is quantized already. */
MUST_CHECK int quantize(struct checkpoint *ckpt, const char *path,
                        const struct convert_options *opt,
                        struct convert_result *result, struct err *err);
/* The reverse: in the type of the original, or opt->dtype. */
MUST_CHECK int dequantize(struct checkpoint *ckpt, const char *path,
                          const struct convert_options *opt,
                          struct convert_result *result, struct err *err);
/* The type of the matrices that became codes. */
enum dtype quantize_type(const struct checkpoint *ckpt);

#endif
