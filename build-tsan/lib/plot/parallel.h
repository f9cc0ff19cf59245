/* parallel - parallel coordinates: an upright axis for each column, a line for each row
 *
 * The last column tells how good a row is: the better, the darker its line, and the
 * best stands out. */
#ifndef LIB_PLOT_PARALLEL_H
#define LIB_PLOT_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/plot/chart.h"

struct parallel_axis {
    struct chart_axis scale; /* settled, with a label */
    char **choices;          /* [nchoices]: the names of 0, 1, ..., or none; borrowed */
    size_t nchoices;
};

struct parallel {
    const char *title;
    const struct parallel_axis *axes; /* [naxes] */
    size_t naxes;
    const double *rows; /* [nrows][naxes]; NaN, but in the last column, for nothing */
    size_t nrows;
    bool high_is_good; /* of the last column */
};

/* The size of its picture. */
double parallel_width(const struct parallel *p);
double parallel_height(const struct parallel *p);
void parallel_draw(struct canvas *canvas, const struct parallel *p);

#endif
