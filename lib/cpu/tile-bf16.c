/* tile-bf16 - loops of products by weights in bf16 */
#include "lib/cpu/tile.h"

TILE_KERNELS(tile_bf16, DTYPE_BF16)
