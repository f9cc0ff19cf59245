/* avx512bf16 - the products of tiles of amx.h, on CPUs with AVX512-BF16 alone
 *
 * Numbers lie as amx_pack lays them out: a register has a pair of terms of AMX_ROWS
 * rows of x, and is multiplied by the same pair of each output. */
#ifndef LIB_CPU_SIMD_AVX512BF16_H
#define LIB_CPU_SIMD_AVX512BF16_H

#include <stdbool.h>

#include "lib/cpu/simd/amx.h"

/* Does the CPU have products of pairs of bf16? */
bool avx512bf16_has(void);

/* y[outs][rows] = w x^T: P is TRANSPOSED, does not ADD and has nothing to prefetch.
 * Sums are made pair after pair, whatever the numbers of rows and outputs. */
void avx512bf16_multiply(const struct amx_product *p);

#endif
