/* tile-f32 - loops of products by weights in f32 */
#include "lib/cpu/tile.h"

TILE_KERNELS(tile_f32, DTYPE_F32)
