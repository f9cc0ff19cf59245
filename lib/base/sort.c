/* sort - orders for qsort */
#include "lib/base/sort.h"

#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

void sort_doubles(double *v, size_t n)
{
    if (n)
        qsort(v, n, sizeof(*v), compare_doubles);
}
