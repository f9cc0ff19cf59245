/* stacks - horizontal bars, each of several parts, on one scale
 *
 * For memory by category, time by cause, layers of a stage. */
#ifndef LIB_PLOT_STACKS_H
#define LIB_PLOT_STACKS_H

#include "lib/plot/chart.h"
#include "lib/plot/html.h"

struct stack {
    char *label;   /* at the left */
    double *value; /* [nparts], none below 0 */
    char *note;    /* behind the bar, or NULL */
};

struct stacks {
    const char *title;
    const char *unit;          /* what the scale counts: "GiB", "ms a step" */
    struct legend_entry *part; /* [nparts]: names and colours, borrowed */
    size_t nparts;
    struct stack *row; /* [nrows] */
    size_t nrows;
    double limit;            /* a line across all bars; 0: none */
    const char *limit_label; /* what it is: "79.15 GiB of a100-80g" */
};

/* N rows of NPARTS zeros; release with stacks_clear, which frees labels, values and
 * notes. */
void stacks_init(struct stacks *s, size_t nparts, size_t nrows);
void stacks_clear(struct stacks *s);
/* A figure that draws S, which is borrowed.  Parts that are 0 in all rows are removed
 * first. */
struct figure stacks_figure(struct stacks *s, const char *caption);

#endif
