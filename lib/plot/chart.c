/* chart - a plot frame with axes, ticks, points, lines and bars */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/sort.h"
#include "lib/plot/chart.h"

static const double TEXT = 9, TITLE = 12, ROW = 22, LEGEND_ROW = 14; /* points */
static const double FAR = 1e300;

/* Can V be on axis A?  Beyond it, the span of an axis has no number. */
static bool is_drawn(const struct chart_axis *a, double v)
{
    return isfinite(v) && fabs(v) <= FAR && (!a->log || v >= 1 / FAR);
}

void chart_fit(struct chart_axis *a, double v)
{
    if (!is_drawn(a, v))
        return;
    a->min = a->fitted ? fmin(a->min, v) : v;
    a->max = a->fitted ? fmax(a->max, v) : v;
    a->fitted = true;
}

void chart_fit_most(struct chart_axis *a, double *v, size_t n)
{
    size_t kept = 0, last;

    for (size_t i = 0; i < n; i++)
        if (is_drawn(a, v[i]))
            v[kept++] = v[i];
    if (!kept)
        return;
    sort_doubles(v, kept);
    /* the 95th percentile by nearest rank */
    last = (size_t)ceil(0.95 * (double)kept) - 1;
    if (v[kept - 1] - v[0] <= 2 * (v[last] - v[0]) || v[last] <= v[0])
        last = kept - 1;
    chart_fit(a, v[0]);
    chart_fit(a, v[last]);
}

size_t chart_beyond(const struct chart_axis *a, const double *v, size_t n)
{
    size_t beyond = 0;

    for (size_t i = 0; i < n; i++)
        beyond += is_drawn(a, v[i]) && (v[i] < a->min || v[i] > a->max);
    return beyond;
}

/* A logarithmic axis of less than two powers of ten has ticks at 1, 2 and 5, one of
 * less than a factor of 3 the ticks of an even one (whose step is less than its lower
 * end). */
static bool is_fine(const struct chart_axis *a)
{
    return a->log && a->max / a->min < 100;
}

static bool has_even_ticks(const struct chart_axis *a)
{
    return !a->log || a->max / a->min < 3;
}

/* The largest of 1, 2 and 5 times a power of ten that is not above V, or with UP the
 * smallest that is not below. */
static double round_log(double v, bool up)
{
    static const double leads[] = { 1, 2, 5, 10 };
    double power = pow(10, floor(log10(v) + 1e-9));
    int i = 0;

    if (up)
        while (leads[i] * power < v * (1 - 1e-9))
            i++;
    else
        for (i = 3; leads[i] * power > v * (1 + 1e-9);)
            i--;
    return leads[i] * power;
}

/* Distance between ticks: 1, 2 or 5 times a power of ten; gives about five ticks. */
static double step_of(const struct chart_axis *a)
{
    double rough = (a->max - a->min) / (a->most ? a->most : 5),
           power = pow(10, floor(log10(rough)));
    double lead = rough / power;
    double step = (lead <= 1.5 ? 1 : lead <= 3 ? 2 : lead <= 7 ? 5 : 10) * power;

    return a->integer ? fmax(1, step) : step;
}

void chart_settle(struct chart_axis *a)
{
    if (a->names) {
        a->min = -0.5;
        a->max = (double)a->nnames - 0.5;
        return;
    }
    if (!a->fitted) {
        a->min = a->log ? 0.1 : 0;
        a->max = 1;
    }
    if (is_fine(a) && !has_even_ticks(a)) {
        a->min = round_log(a->min, false);
        a->max = round_log(a->max, true);
        return;
    }
    if (!has_even_ticks(a)) {
        a->min = pow(10, floor(log10(a->min) + 1e-9));
        a->max = pow(10, ceil(log10(a->max) - 1e-9));
        return;
    }
    if (a->max - a->min <= 1e-12 * fmax(fabs(a->min), fabs(a->max)) ||
        a->max == a->min) {
        double room = a->integer ? 1 : a->max != 0 ? 0.1 * fabs(a->max) : 1;

        a->min -= a->integer ? 0 : room;
        a->max += room;
    }
    a->min = step_of(a) * floor(a->min / step_of(a) + 1e-9);
    a->max = step_of(a) * ceil(a->max / step_of(a) - 1e-9);
}

double chart_fraction(const struct chart_axis *a, double v)
{
    return a->log ? log10(v / a->min) / log10(a->max / a->min)
                  : (v - a->min) / (a->max - a->min);
}

bool chart_place(const struct chart *c, double vx, double vy, double *px, double *py)
{
    double fx = chart_fraction(&c->ax, vx), fy = chart_fraction(&c->ay, vy);

    *px = c->x + fx * c->w;
    *py = c->y + (1 - fy) * c->h;
    return fx >= -1e-9 && fx <= 1 + 1e-9 && fy >= -1e-9 && fy <= 1 + 1e-9;
}

size_t chart_ticks(double ticks[CHART_TICKS], const struct chart_axis *a)
{
    double step = has_even_ticks(a) ? step_of(a) : 0;
    int decades = a->log ? (int)lround(log10(a->max / a->min)) : 0;
    size_t n = 0;

    if (a->names) {
        for (; n < a->nnames && n < CHART_TICKS; n++)
            ticks[n] = (double)n;
        return n;
    }
    if (is_fine(a) && !has_even_ticks(a)) {
        for (double v = a->min; v <= a->max * (1 + 1e-9) && n < CHART_TICKS;
             v = round_log(1.5 * v, true))
            ticks[n++] = v;
        return n;
    }
    if (!has_even_ticks(a)) {
        int every = decades / (a->most ? a->most : 8) + 1;

        for (int i = 0; i <= decades && n < CHART_TICKS; i += every)
            ticks[n++] = a->min * pow(10, i);
        return n;
    }
    for (; a->min + (double)n * step <= a->max + 1e-9 * step && n < CHART_TICKS; n++) {
        ticks[n] = a->min + (double)n * step;
        if (fabs(ticks[n]) < 1e-9 * step)
            ticks[n] = 0;
    }
    return n;
}

void chart_number(char out[32], double v)
{
    snprintf(out, 32, "%.6g", v);
}

/* Draws a tick at V and its grid line across the frame. */
static void tick(const struct chart *c, bool vertical, double v)
{
    const struct chart_axis *a = vertical ? &c->ay : &c->ax;
    char number[32];
    const char *text = a->names ? a->names[(size_t)v] : number;
    double x, y;

    chart_number(number, v);
    if (vertical) {
        chart_place(c, c->ax.min, v, &x, &y);
        canvas_line(c->canvas, c->x, y, c->x + c->w, y, 0.5, canvas_faint);
        canvas_text(c->canvas, c->x - 6, y, TEXT, ALIGN_RIGHT, canvas_ink, text);
    } else {
        chart_place(c, v, c->ay.min, &x, &y);
        canvas_line(c->canvas, x, c->y, x, c->y + c->h, 0.5, canvas_faint);
        if (!c->bare)
            canvas_text(c->canvas, x, c->y + c->h + 10, TEXT, ALIGN_CENTRE, canvas_ink,
                        text);
    }
}

static void ticks(const struct chart *c, bool vertical)
{
    double at[CHART_TICKS];
    const struct chart_axis *a = vertical ? &c->ay : &c->ax;
    size_t n = chart_ticks(at, a), every = 1;
    double longest = vertical ? TEXT : 0;

    /* Names are skipped evenly when there is no room for all. */
    for (size_t i = 0; i < a->nnames && !vertical; i++)
        longest = fmax(longest, canvas_text_width(c->canvas, TEXT, a->names[i]) + 4);
    if (a->names && n > 0)
        every = (size_t)fmax(1, ceil(longest * (double)n / (vertical ? c->h : c->w)));
    for (size_t i = 0; i < n; i += every)
        tick(c, vertical, at[i]);
}

void chart_begin(struct chart *c, const char *title)
{
    c->legend = c->x + c->w;
    ticks(c, false);
    ticks(c, true);
    canvas_line(c->canvas, c->x, c->y, c->x, c->y + c->h, 1, canvas_ink);
    canvas_line(c->canvas, c->x, c->y + c->h, c->x + c->w, c->y + c->h, 1, canvas_ink);
    if (title)
        canvas_text(c->canvas, c->x - 30, c->y - 38, TITLE, ALIGN_LEFT, canvas_ink,
                    title);
    canvas_text(c->canvas, c->x - 30, c->y - 16, TEXT, ALIGN_LEFT, canvas_ink,
                c->ay.label);
    if (!c->bare)
        canvas_text(c->canvas, c->x + c->w / 2, c->y + c->h + 27, TEXT, ALIGN_CENTRE,
                    canvas_ink, c->ax.label);
}

void chart_point(const struct chart *c, double vx, double vy, double radius,
                 struct colour colour)
{
    double x, y;

    if (is_drawn(&c->ax, vx) && is_drawn(&c->ay, vy) && chart_place(c, vx, vy, &x, &y))
        canvas_circle(c->canvas, x, y, radius, colour);
}

void chart_ring(const struct chart *c, double vx, double vy, double radius,
                struct colour colour)
{
    double x, y;

    if (is_drawn(&c->ax, vx) && is_drawn(&c->ay, vy) && chart_place(c, vx, vy, &x, &y))
        canvas_ring(c->canvas, x, y, radius, 0.45 * radius, colour);
}

void chart_crowd(const struct chart *c, size_t marks)
{
    const double around = 4; /* points: what stands at an end of the scales */

    canvas_crowd_begin(c->canvas, c->x - around, c->y - around, c->w + 2 * around,
                       c->h + 2 * around, marks);
}

/* Cuts the line from (*AX, *AY) to (*BX, *BY) off where it leaves the frame (Liang and
 * Barsky 1984, "A New Concept and Method for Line Clipping"); false when nothing is
 * left. */
static bool clip(const struct chart *c, double *ax, double *ay, double *bx, double *by)
{
    double dx = *bx - *ax, dy = *by - *ay, from = 0, to = 1;
    const double p[] = { -dx, dx, -dy, dy };
    const double q[] = { *ax - c->x, c->x + c->w - *ax, *ay - c->y, c->y + c->h - *ay };

    for (int i = 0; i < 4; i++) {
        if (p[i] < 0)
            from = fmax(from, q[i] / p[i]);
        else if (p[i] > 0)
            to = fmin(to, q[i] / p[i]);
        else if (q[i] < -1e-6)
            return false;
    }
    *bx = *ax + to * dx;
    *by = *ay + to * dy;
    *ax += from * dx;
    *ay += from * dy;
    return from <= to;
}

void chart_line(const struct chart *c, double x0, double y0, double x1, double y1,
                double width, struct colour colour)
{
    double ax, ay, bx, by;

    if (!is_drawn(&c->ax, x0) || !is_drawn(&c->ax, x1) || !is_drawn(&c->ay, y0) ||
        !is_drawn(&c->ay, y1))
        return;
    chart_place(c, x0, y0, &ax, &ay);
    chart_place(c, x1, y1, &bx, &by);
    if (clip(c, &ax, &ay, &bx, &by))
        canvas_line(c->canvas, ax, ay, bx, by, width, colour);
}

void chart_legend(struct chart *c, const char *name, struct colour colour)
{
    canvas_text(c->canvas, c->legend, c->y - 16, TEXT, ALIGN_RIGHT, canvas_ink, name);
    c->legend -= canvas_text_width(c->canvas, TEXT, name) + 9;
    canvas_circle(c->canvas, c->legend, c->y - 16, 3.5, colour);
    c->legend -= 16;
}

/* A step to the next entry of a legend: the mark, the name, a gap. */
static double entry_width(double name)
{
    return 16 + name + 18;
}

/* The name's width is not known before a picture is opened; no letter of the fonts in
 * use is wider on average. */
static double guessed_width(const struct legend_entry *e)
{
    return entry_width(0.65 * TEXT * (double)strlen(e->name));
}

double legend_height(double width, const struct legend_entry *entry, size_t n)
{
    double x = 0, rows = n > 0;

    for (size_t i = 0; i < n; i++) {
        if (x > 0 && x + guessed_width(&entry[i]) > width) {
            x = 0;
            rows++;
        }
        x += guessed_width(&entry[i]);
    }
    return rows * LEGEND_ROW;
}

double legend_draw(struct canvas *canvas, double x, double y, double width,
                   const struct legend_entry *entry, size_t n)
{
    double at = x, top = y;

    for (size_t i = 0; i < n; i++) {
        const struct legend_entry *e = &entry[i];
        double needs = entry_width(canvas_text_width(canvas, TEXT, e->name));

        if (at > x && at + needs > x + width) {
            at = x;
            y += LEGEND_ROW;
        }
        if (e->mark == LEGEND_BOX)
            canvas_rectangle(canvas, at, y - 5, 10, 10, e->colour);
        else if (e->mark == LEGEND_DOT)
            canvas_circle(canvas, at + 5, y, 3.5, e->colour);
        else
            canvas_line(canvas, at, y, at + 12, y, e->mark == LEGEND_THIN ? 0.6 : 2,
                        e->colour);
        canvas_text(canvas, at + 16, y, TEXT, ALIGN_LEFT, canvas_ink, e->name);
        at += needs;
    }
    return n ? y - top + LEGEND_ROW : 0;
}

void chart_shades(struct canvas *canvas, double x, double y, const char *pale,
                  const char *deep)
{
    const int steps = 40;
    const double width = 80;

    canvas_text(canvas, x, y, TEXT, ALIGN_RIGHT, canvas_ink, deep);
    x -= canvas_text_width(canvas, TEXT, deep) + 6 + width;
    for (int i = 0; i < steps; i++)
        canvas_rectangle(canvas, x + width * i / steps, y - 4, width / steps + 0.3, 8,
                         canvas_shade((i + 0.5) / steps));
    canvas_text(canvas, x - 6, y, TEXT, ALIGN_RIGHT, canvas_ink, pale);
}

double chart_bars_height(size_t n)
{
    return 50 + ROW * (double)(n ? n : 1);
}

void chart_bars(struct canvas *canvas, const char *title, double width,
                const char *const *names, const double *values, size_t n)
{
    double room = 0, x, span;

    for (size_t i = 0; i < n; i++)
        room = fmax(room, canvas_text_width(canvas, TEXT, names[i]));
    x = 20 + fmin(room, width / 2) + 8;
    span = width - x - 60;
    canvas_text(canvas, 20, 22, TITLE, ALIGN_LEFT, canvas_ink, title);
    for (size_t i = 0; i < n; i++) {
        double y = 40 + ROW * (double)i;
        char text[32];

        snprintf(text, sizeof(text), "%.3f", values[i]);
        canvas_text(canvas, x - 8, y + ROW / 2, TEXT, ALIGN_RIGHT, canvas_ink,
                    names[i]);
        canvas_rectangle(canvas, x, y + 3, fmax(0.5, span * values[i]), ROW - 6,
                         canvas_colour(0));
        canvas_text(canvas, x + span * values[i] + 6, y + ROW / 2, TEXT, ALIGN_LEFT,
                    canvas_ink, text);
    }
}
