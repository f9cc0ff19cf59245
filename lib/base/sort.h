/* sort - orders for qsort */
#ifndef LIB_BASE_SORT_H
#define LIB_BASE_SORT_H

#include <stddef.h>

/* V[n] in ascending order; where NaN go is not defined. */
void sort_doubles(double *v, size_t n);

#endif
