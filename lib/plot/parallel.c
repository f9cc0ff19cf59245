/* parallel - parallel coordinates: a vertical axis for each column, a line for each row
 *
 * Where a row has no value, its line passes below the axis, at "none". */
#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/plot/parallel.h"

static const double TEXT = 9, TITLE = 12;                        /* points */
static const double LEFT = 90, RIGHT = 60, TOP = 72, HIGH = 270; /* of the axes */
static const double APART = 100, BELOW = 22, LABEL_ROW = 13;
static const double TICKS_APART = 11; /* least */

static double axis_x(size_t i)
{
    return LEFT + APART * (double)i;
}

/* Position of V on axis A; NaN lies below the axis. */
static double place(const struct parallel_axis *a, double v)
{
    return isnan(v) ? TOP + HIGH + BELOW
                    : TOP + HIGH * (1 - chart_fraction(&a->scale, v));
}

/* Rank of a row by its last column V: 0 worst, 1 best. */
static double goodness(const struct parallel *p, double v)
{
    double f = chart_fraction(&p->axes[p->naxes - 1].scale, v);

    return p->high_is_good ? f : 1 - f;
}

struct ranked {
    double good;
    size_t row;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->good != y->good)
        return x->good < y->good ? -1 : 1;
    return x->row > y->row ? -1
                           : x->row < y->row; /* of equal rows, the first is best */
}

static void draw_row(struct canvas *canvas, const struct parallel *p, size_t row,
                     double width, struct colour colour)
{
    const double *v = p->rows + row * p->naxes;

    for (size_t i = 0; i + 1 < p->naxes; i++)
        canvas_line(canvas, axis_x(i), place(&p->axes[i], v[i]), axis_x(i + 1),
                    place(&p->axes[i + 1], v[i + 1]), width, colour);
}

/* Draws the worst rows first, so that better ones lie on top. */
static void draw_rows(struct canvas *canvas, const struct parallel *p)
{
    struct ranked *r = xcalloc(p->nrows + 1, sizeof(*r));

    for (size_t i = 0; i < p->nrows; i++)
        r[i] = (struct ranked){ goodness(p, p->rows[(i + 1) * p->naxes - 1]), i };
    qsort(r, p->nrows, sizeof(*r), compare_ranked);
    canvas_crowd_begin(canvas, LEFT - 2, TOP - 2, axis_x(p->naxes - 1) - LEFT + 4,
                       HIGH + BELOW + 4, p->nrows * p->naxes);
    for (size_t i = 0; i < p->nrows; i++)
        if (i + 1 < p->nrows)
            draw_row(canvas, p, r[i].row, 1, canvas_shade(r[i].good));
        else
            draw_row(canvas, p, r[i].row, 2, canvas_colour(5));
    canvas_crowd_end(canvas);
    free(r);
}

/* Draws a tick's text at X on a white background. */
static void draw_tick(struct canvas *canvas, double x, double y, const char *text)
{
    double width = canvas_text_width(canvas, TEXT, text);

    canvas_rectangle(canvas, x - 7 - width, y - 5, width + 2, 10, canvas_paper);
    canvas_text(canvas, x - 6, y, TEXT, ALIGN_RIGHT, canvas_ink, text);
    canvas_line(canvas, x - 4, y, x, y, 1, canvas_ink);
}

static void draw_choices(struct canvas *canvas, double x, const struct parallel_axis *a)
{
    double apart =
        a->nchoices > 1
            ? HIGH * (chart_fraction(&a->scale, 1) - chart_fraction(&a->scale, 0))
            : HIGH;
    size_t every = (size_t)ceil(TICKS_APART / apart);

    for (size_t i = 0; i < a->nchoices; i += every)
        draw_tick(canvas, x, place(a, (double)i), a->choices[i]);
}

/* Draws the axis names; in two alternating rows when one is wider than the distance of
 * the axes. */
static void draw_names(struct canvas *canvas, const struct parallel *p)
{
    double longest = 0;

    for (size_t i = 0; i < p->naxes; i++)
        longest =
            fmax(longest, canvas_text_width(canvas, TEXT, p->axes[i].scale.label));
    for (size_t i = 0; i < p->naxes; i++) {
        bool high = longest > 0.9 * APART && i % 2;

        canvas_text(canvas, axis_x(i), TOP - (high ? 12 + LABEL_ROW : 12), TEXT,
                    ALIGN_CENTRE, canvas_ink, p->axes[i].scale.label);
    }
}

static void draw_axis(struct canvas *canvas, const struct parallel *p, size_t i)
{
    const struct parallel_axis *a = &p->axes[i];
    double ticks[CHART_TICKS], x = axis_x(i);
    size_t n = a->nchoices ? 0 : chart_ticks(ticks, &a->scale);
    char text[32];
    bool gaps = false;

    canvas_line(canvas, x, TOP, x, TOP + HIGH, 1, canvas_ink);
    for (size_t k = 0; k < n; k++) {
        chart_number(text, ticks[k]);
        draw_tick(canvas, x, place(a, ticks[k]), text);
    }
    draw_choices(canvas, x, a);
    for (size_t row = 0; row < p->nrows; row++)
        gaps |= isnan(p->rows[row * p->naxes + i]);
    if (gaps)
        draw_tick(canvas, x, place(a, NAN), "none");
}

/* Draws the colour scale beside the last axis. */
static void draw_scale(struct canvas *canvas, const struct parallel *p)
{
    const int steps = 54;
    double x = axis_x(p->naxes - 1) + 3;

    for (int i = 0; i < steps; i++) {
        double f = (i + 0.5) / steps;

        canvas_rectangle(canvas, x, TOP + HIGH * (1 - (i + 1.0) / steps), 8,
                         HIGH / steps + 0.3, canvas_shade(p->high_is_good ? f : 1 - f));
    }
}

double parallel_width(const struct parallel *p)
{
    return fmax(320, axis_x(p->naxes - 1) + RIGHT);
}

double parallel_height(const struct parallel *p)
{
    (void)p;
    return TOP + HIGH + BELOW + 20;
}

void parallel_draw(struct canvas *canvas, const struct parallel *p)
{
    draw_rows(canvas, p);
    for (size_t i = 0; i < p->naxes; i++)
        draw_axis(canvas, p, i);
    draw_names(canvas, p);
    draw_scale(canvas, p);
    canvas_text(canvas, 20, 22, TITLE, ALIGN_LEFT, canvas_ink, p->title);
    if (p->nrows) {
        double x = parallel_width(p) - 20;

        canvas_text(canvas, x, 22, TEXT, ALIGN_RIGHT, canvas_ink, "best");
        x -= canvas_text_width(canvas, TEXT, "best") + 6;
        canvas_line(canvas, x - 16, 22, x, 22, 2, canvas_colour(5));
    }
}
