/* chart - axes with round ticks, and what stands between them
 *
 * Fill an axis with chart_fit, settle it, then chart_begin draws frame, ticks and
 * labels; points and lines are given in the units of the axes. */
#ifndef LIB_PLOT_CHART_H
#define LIB_PLOT_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/plot/canvas.h"

struct chart_axis {
    const char *label;
    bool log;     /* base 10; values that are not above 0 are left out */
    bool integer; /* ticks at whole numbers */
    int most;     /* ticks where there is little room, about; 0 for five */
    char **names; /* [nnames]: what 0, 1, ... are called, or none; borrowed */
    size_t nnames;
    double min, max; /* private until chart_settle */
    bool fitted;
};

/* Make room for V; what is not finite (or not above 0 on a log axis) needs none. */
void chart_fit(struct chart_axis *a, double v);
/* Round the ends outward to ticks; an axis that was given nothing is 0 to 1. */
void chart_settle(struct chart_axis *a);

/* Where V lies between the ends of a settled axis, 0 to 1. */
double chart_fraction(const struct chart_axis *a, double v);
/* The round values of a settled axis at which to say which it is; returns how many. */
enum { CHART_TICKS = 64 };
size_t chart_ticks(double ticks[CHART_TICKS], const struct chart_axis *a);
void chart_number(char out[32], double v);

struct chart {
    struct canvas *canvas; /* borrowed */
    double x, y, w, h;     /* of the frame, in points */
    struct chart_axis ax, ay;
    double legend; /* private: where the next entry goes */
};

/* Draw title (NULL: none), frame, ticks and labels of C, whose axes are settled. */
void chart_begin(struct chart *c, const char *title);
/* Where a value is drawn; false when it is outside the frame. */
bool chart_place(const struct chart *c, double vx, double vy, double *px, double *py);
void chart_point(const struct chart *c, double vx, double vy, double radius,
                 struct colour colour);
/* Both ends are inside, or nothing is drawn. */
void chart_line(const struct chart *c, double x0, double y0, double x1, double y1,
                double width, struct colour colour);
/* Add NAME to the legend, right above the frame. */
void chart_legend(struct chart *c, const char *name, struct colour colour);

/* A horizontal bar for each of N names, value written behind it, longest 1. */
void chart_bars(struct canvas *canvas, const char *title, double width,
                const char *const *names, const double *values, size_t n);
/* A bar of shades that ends at X, Y, and what its ends mean on either side. */
void chart_shades(struct canvas *canvas, double x, double y, const char *pale,
                  const char *deep);
/* The height chart_bars needs. */
double chart_bars_height(size_t n);

#endif
