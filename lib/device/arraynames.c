/* arraynames - the names of operations on flat arrays */
#include "lib/device/arrays.h"

#define ROW(id, word) #word,
const char *const array_names[ARRAY_COUNT] = { ARRAY_OPS(ROW) ARRAY_HOST_OPS(ROW) };
