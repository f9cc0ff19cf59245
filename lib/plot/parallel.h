/* parallel - parallel coordinates: a vertical axis for each column, a line for each row
 *
 * The last column is the objective: a better row has a darker line, and the best row is
 * emphasised. */
#ifndef LIB_PLOT_PARALLEL_H
#define LIB_PLOT_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/plot/chart.h"

struct parallel_axis {
    struct chart_axis scale; /* settled, with a label */
    char **choices;          /* [nchoices]: labels of the values 0, 1, ..., or NULL;
                              * borrowed */
    size_t nchoices;
};

struct parallel {
    const char *title;
    const struct parallel_axis *axes; /* [naxes] */
    size_t naxes;
    const double *rows; /* [nrows][naxes]; NaN: no value (not in the last column) */
    size_t nrows;
    bool high_is_good; /* of the last column */
};

/* Size of the picture, in points. */
double parallel_width(const struct parallel *p);
double parallel_height(const struct parallel *p);
void parallel_draw(struct canvas *canvas, const struct parallel *p);

#endif
