/* bf16tile - products of tiles of bf16, by AMX or by AVX512-BF16 */
#include "lib/cpu/simd/bf16tile.h"

#include "lib/cpu/simd/avx512bf16.h"

bool bf16tile_has(void)
{
    return amx_has() || avx512bf16_has();
}

void bf16tile_begin(void)
{
    if (amx_has())
        amx_begin();
}

void bf16tile_multiply(const struct amx_product *p)
{
    (amx_has() ? amx_multiply : avx512bf16_multiply)(p);
}

void bf16tile_end(void)
{
    if (amx_has())
        amx_end();
}
