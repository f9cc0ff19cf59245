/* tile-f16 - tile loops for f16 weights */
#include "lib/cpu/product/tile-loops.h"

TILE_KERNELS(tile_f16, FORMAT_F16)
