/* tile-bf16 - tile loops for bf16 weights */
#include "lib/cpu/product/tile-loops.h"

TILE_KERNELS(tile_bf16, FORMAT_BF16)
