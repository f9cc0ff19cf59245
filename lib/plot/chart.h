/* chart - a plot frame with axes, ticks, points, lines and bars
 *
 * Call chart_fit for each value of an axis, then chart_settle; chart_begin draws frame,
 * ticks and labels.  Points and lines are given in the units of the axes. */
#ifndef LIB_PLOT_CHART_H
#define LIB_PLOT_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/plot/canvas.h"

struct chart_axis {
    const char *label;
    bool log;     /* base 10; values <= 0 are not drawn */
    bool integer; /* ticks at whole numbers */
    int most;     /* approximate number of ticks; 0: five */
    char **names; /* [nnames]: labels of the values 0, 1, ..., or NULL; borrowed */
    size_t nnames;
    double min, max; /* private until chart_settle */
    bool fitted;
};

/* Extends the axis to include V, unless V is not finite (or not positive on a log
 * axis), or so large that the length of the axis would not be. */
void chart_fit(struct chart_axis *a, double v);
/* Extends both ends to round ticks; an axis without values becomes [0, 1]. */
void chart_settle(struct chart_axis *a);
/* Fits the axis to N values (NaN: none) such that a few large ones do not flatten the
 * rest: its upper end is at their 95th percentile where they reach more than twice as
 * far.  Sorts V. */
void chart_fit_most(struct chart_axis *a, double *v, size_t n);
/* How many of the N values are beyond the ends of a settled axis. */
size_t chart_beyond(const struct chart_axis *a, const double *v, size_t n);

/* Position of V between the ends of a settled axis, from 0 to 1. */
double chart_fraction(const struct chart_axis *a, double v);
/* The ticks of a settled axis; returns their number. */
enum { CHART_TICKS = 64 };
size_t chart_ticks(double ticks[CHART_TICKS], const struct chart_axis *a);
void chart_number(char out[32], double v);

struct chart {
    struct canvas *canvas; /* borrowed */
    double x, y, w, h;     /* of the frame, in points */
    struct chart_axis ax, ay;
    bool bare;     /* without the labels of the x axis: another chart stands below */
    double legend; /* private: where the next entry goes */
};

/* Draws title (NULL: none), frame, ticks and labels of C; its axes are settled. */
void chart_begin(struct chart *c, const char *title);
/* Converts a value to a position; false when it is outside the frame. */
bool chart_place(const struct chart *c, double vx, double vy, double *px, double *py);
void chart_point(const struct chart *c, double vx, double vy, double radius,
                 struct colour colour);
/* Of the chart's frame; see canvas_crowd_begin, and canvas_crowd_end. */
void chart_crowd(const struct chart *c, size_t marks);
/* As chart_point, hollow. */
void chart_ring(const struct chart *c, double vx, double vy, double radius,
                struct colour colour);
/* Draws the part that is inside the frame. */
void chart_line(const struct chart *c, double x0, double y0, double x1, double y1,
                double width, struct colour colour);
/* Add NAME to the legend, right above the frame. */
void chart_legend(struct chart *c, const char *name, struct colour colour);

/* Draws a legend of N entries from the left, in their order, in as many rows as they
 * take, the first one centred at Y.  Returns the height of its rows. */
enum legend_mark { LEGEND_BOX, LEGEND_DOT, LEGEND_LINE, LEGEND_THIN };
struct legend_entry {
    const char *name;
    struct colour colour;
    enum legend_mark mark;
};
double legend_draw(struct canvas *canvas, double x, double y, double width,
                   const struct legend_entry *entry, size_t n);
/* An estimate of that height which is not too small, for the size of a picture. */
double legend_height(double width, const struct legend_entry *entry, size_t n);

/* A horizontal bar for each of N names with its value behind it; the longest value is
 * 1. */
void chart_bars(struct canvas *canvas, const char *title, double width,
                const char *const *names, const double *values, size_t n);
/* A bar of shades that ends at X, Y, with the labels of its two ends. */
void chart_shades(struct canvas *canvas, double x, double y, const char *pale,
                  const char *deep);
/* The height that chart_bars needs. */
double chart_bars_height(size_t n);

#endif
