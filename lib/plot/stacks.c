/* stacks - horizontal bars, each of several parts, on one scale */
#include "lib/plot/stacks.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/mem.h"

/* Points: of the picture, above the bars, of a row and its bar, below the bars. */
static const double WIDTH = 760, MARGIN = 20, TOP = 56, ROW = 22, BAR = 15, BELOW = 44,
                    TEXT = 9;

void stacks_init(struct stacks *s, size_t nparts, size_t nrows)
{
    *s = (struct stacks){ .nparts = nparts, .nrows = nrows };
    s->part = xcalloc(nparts + 1, sizeof(*s->part));
    s->row = xcalloc(nrows + 1, sizeof(*s->row));
    for (size_t i = 0; i < nrows; i++)
        s->row[i].value = xcalloc(nparts + 1, sizeof(double));
}

void stacks_clear(struct stacks *s)
{
    for (size_t i = 0; i < s->nrows; i++) {
        free(s->row[i].label);
        free(s->row[i].value);
        free(s->row[i].note);
    }
    free(s->row);
    free(s->part);
    *s = (struct stacks){ 0 };
}

static double total_of(const struct stacks *s, const struct stack *row)
{
    double total = 0;

    for (size_t k = 0; k < s->nparts; k++)
        total += row->value[k];
    return total;
}

/* The widest of the labels, or with NOTES of the notes, and a gap. */
static double room_for(struct canvas *canvas, const struct stacks *s, bool notes)
{
    double room = 0;

    for (size_t i = 0; i < s->nrows; i++) {
        const char *text = notes ? s->row[i].note : s->row[i].label;

        if (text)
            room = fmax(room, 8 + canvas_text_width(canvas, TEXT, text));
    }
    return room;
}

static void draw_row(struct canvas *canvas, const struct stacks *s,
                     const struct stack *row, const struct chart_axis *axis, double x,
                     double width, double y)
{
    double at = 0, total = total_of(s, row);

    canvas_text(canvas, x - 8, y, TEXT, ALIGN_RIGHT, canvas_ink, row->label);
    for (size_t k = 0; k < s->nparts; k++) {
        double from = chart_fraction(axis, at),
               to = chart_fraction(axis, at + row->value[k]);

        if (to > from)
            canvas_rectangle(canvas, x + from * width, y - BAR / 2, (to - from) * width,
                             BAR, s->part[k].colour);
        at += row->value[k];
    }
    if (row->note)
        canvas_text(canvas, x + chart_fraction(axis, total) * width + 6, y, TEXT,
                    ALIGN_LEFT, canvas_ink, row->note);
}

static double legend_room(const struct stacks *s)
{
    return legend_height(WIDTH - 2 * MARGIN, s->part, s->nparts);
}

static void draw(struct canvas *canvas, const void *arg)
{
    const struct stacks *s = arg;
    struct chart_axis axis = { .label = s->unit };
    double left = MARGIN + fmin(room_for(canvas, s, false), WIDTH / 2);
    double width = WIDTH - left - MARGIN - fmin(room_for(canvas, s, true), WIDTH / 4);
    double top = TOP + legend_room(s), bottom = top + ROW * (double)s->nrows;
    double ticks[CHART_TICKS];
    size_t n;

    canvas_text(canvas, MARGIN, 20, 12, ALIGN_LEFT, canvas_ink, s->title);
    legend_draw(canvas, MARGIN, 42, WIDTH - 2 * MARGIN, s->part, s->nparts);
    chart_fit(&axis, 0);
    for (size_t i = 0; i < s->nrows; i++)
        chart_fit(&axis, total_of(s, &s->row[i]));
    chart_fit(&axis, s->limit);
    chart_settle(&axis);
    n = chart_ticks(ticks, &axis);
    for (size_t i = 0; i < n; i++) {
        double x = left + chart_fraction(&axis, ticks[i]) * width;
        char number[32];

        chart_number(number, ticks[i]);
        canvas_line(canvas, x, top - 4, x, bottom, 0.5, canvas_faint);
        canvas_text(canvas, x, bottom + 9, TEXT, ALIGN_CENTRE, canvas_ink, number);
    }
    canvas_text(canvas, left + width / 2, bottom + 24, TEXT, ALIGN_CENTRE, canvas_ink,
                s->unit);
    canvas_line(canvas, left, top - 4, left, bottom, 1, canvas_ink);
    for (size_t i = 0; i < s->nrows; i++)
        draw_row(canvas, s, &s->row[i], &axis, left, width,
                 top + ROW * ((double)i + 0.5));
    if (s->limit > 0) {
        double x = left + chart_fraction(&axis, s->limit) * width;
        double half = canvas_text_width(canvas, TEXT, s->limit_label) / 2;

        canvas_line(canvas, x, top - 8, x, bottom, 1.5, canvas_colour(5));
        canvas_text(canvas, fmin(x, WIDTH - MARGIN - half), bottom + 37, TEXT,
                    ALIGN_CENTRE, canvas_colour(5), s->limit_label);
    }
}

static void remove_empty(struct stacks *s)
{
    size_t n = 0;

    for (size_t k = 0; k < s->nparts; k++) {
        bool used = false;

        for (size_t i = 0; i < s->nrows; i++)
            used |= s->row[i].value[k] > 0;
        for (size_t i = 0; i < s->nrows && used; i++)
            s->row[i].value[n] = s->row[i].value[k];
        if (used)
            s->part[n++] = s->part[k];
    }
    s->nparts = n;
}

struct figure stacks_figure(struct stacks *s, const char *caption)
{
    remove_empty(s);
    return (struct figure){ .caption = caption,
                            .width = WIDTH,
                            .height =
                                TOP + legend_room(s) + ROW * (double)s->nrows + BELOW,
                            .draw = draw,
                            .arg = s };
}
