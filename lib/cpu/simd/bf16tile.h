/* bf16tile - products of tiles of bf16, by AMX or by AVX512-BF16 */
#ifndef LIB_CPU_SIMD_BF16TILE_H
#define LIB_CPU_SIMD_BF16TILE_H

#include <stdbool.h>

#include "lib/cpu/simd/amx.h"

/* Does the CPU have either? */
bool bf16tile_has(void);

/* Products that are TRANSPOSED, do not ADD and have nothing to prefetch, by either: of
 * a thread that has begun. */
void bf16tile_begin(void);
void bf16tile_multiply(const struct amx_product *p);
void bf16tile_end(void);

#endif
