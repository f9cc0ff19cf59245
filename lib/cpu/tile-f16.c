/* tile-f16 - loops of products by weights in f16 */
#include "lib/cpu/tile.h"

TILE_KERNELS(tile_f16, DTYPE_F16)
