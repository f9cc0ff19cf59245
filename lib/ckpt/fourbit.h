/* fourbit - matrices in bitsandbytes' 4 bits, read as the numbers that they stand for
 *
 * NF4 and FP4: Dettmers et al. 2023, "QLoRA: Efficient Finetuning of Quantized LLMs".
 * The numbers of a matrix lie in one row of codes of 4 bits, the first in the upper
 * half of a byte; the tensor .quant_map has the 16 values.  A block of them is
 * multiplied by its number in .absmax, in f32, or in 8 bits (double quantization):
 * .nested_quant_map, by .nested_absmax of a block of blocks, plus an offset, which
 * stands with the type and the shape in .quant_state.bitsandbytes__nf4 (or __fp4), as
 * JSON. */
#ifndef LIB_CKPT_FOURBIT_H
#define LIB_CKPT_FOURBIT_H

#include "lib/ckpt/source.h"

/* Presents such matrices of S, whose files are all read, in the type and the shape that
 * they had before, and the config without its quantization_config; without any it
 * changes nothing.  ERR_INPUT names what is missing or not as it is said to be. */
MUST_CHECK int fourbit_present(struct source *s, struct err *err);

#endif
