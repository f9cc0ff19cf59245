/* pipechart - a picture of a pipeline's schedule */
#include "cmd/pipechart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/picture.h"
#include "lib/base/str.h"
#include "lib/plot/chart.h"

static const double LEFT = 64, RIGHT = 16, TOP = 58, ROW = 26, BAR = 20, BOTTOM = 46;
static const double CAPTION = 18; /* above each of two halves */
/* Below this text size the number of a micro-batch is omitted. */
static const double SMALLEST = 5;
/* Kinds of actions, model chunks, idle. */
enum { MOST_ENTRIES = 6 };

struct drawing {
    const struct pipechart *t;
    double width, scale; /* points per unit of time */
    double longest;      /* makespan of what is drawn */
    struct legend_entry legend[MOST_ENTRIES];
    size_t nlegend;
};

/* Okabe and Ito's sky blue, orange, vermilion and bluish green; later chunks are
 * lighter. */
static struct colour colour_of(const struct drawing *d, const struct action *a)
{
    static const struct colour kinds[ACTION_KINDS] = {
        [ACTION_FORWARD] = { 0.34, 0.71, 0.91 },
        [ACTION_BACKWARD] = { 0.90, 0.62, 0.00 },
        [ACTION_INPUT] = { 0.90, 0.62, 0.00 },
        [ACTION_WEIGHT] = { 0.00, 0.62, 0.45 },
    };
    struct colour colour = kinds[a->kind];
    int chunk = a->stage / d->t->table->ranks;

    for (int i = 0; i < chunk && i < 3; i++) {
        colour.r += (1 - colour.r) * 0.4;
        colour.g += (1 - colour.g) * 0.4;
        colour.b += (1 - colour.b) * 0.4;
    }
    return colour;
}

/* A bar of A, from START for TIME units, HIGH points from Y on. */
static void draw_bar(struct canvas *canvas, const struct drawing *d,
                     const struct action *a, double start, double time, double y,
                     double high)
{
    double x = LEFT + start * d->scale, w = time * d->scale, size = high < BAR ? 7 : 8;
    char number[16];

    canvas_rectangle(canvas, x, y, w, high, canvas_paper);
    canvas_rectangle(canvas, x, y, w > 2 ? w - 0.6 : w, high, colour_of(d, a));
    snprintf(number, sizeof(number), "%d", a->micro_batch);
    while (size >= SMALLEST && canvas_text_width(canvas, size, number) + 1.5 > w)
        size -= 0.5;
    if (size >= SMALLEST)
        canvas_text(canvas, x + w / 2, y + high / 2, size, ALIGN_CENTRE, canvas_ink,
                    number);
}

/* Draws rank R at Y.  The two actions of a pair have a half of the row each. */
static void draw_row(struct canvas *canvas, const struct drawing *d, int r, double y)
{
    const struct action_row *row = &d->t->table->row[r];
    const double *start = d->t->result->start[r];

    for (size_t i = 0; i < row->n; i++) {
        const struct action *a = &row->v[i];
        double time = pipe_duration(d->t->table, d->t->times, a);

        if (!a->paired || i + 1 == row->n) {
            draw_bar(canvas, d, a, start[i], time, y, BAR);
            continue;
        }
        time += pipe_duration(d->t->table, d->t->times, a + 1);
        draw_bar(canvas, d, a, start[i], time, y, BAR / 2);
        draw_bar(canvas, d, a + 1, start[i], time, y + BAR / 2, BAR / 2);
        i++;
    }
}

/* Draws rank R at Y as it was measured. */
static void draw_measured(struct canvas *canvas, const struct drawing *d, int r,
                          double y)
{
    const struct action_row *row = &d->t->table->row[r];

    for (size_t i = 0; i < row->n; i++)
        draw_bar(canvas, d, &row->v[i], row->v[i].start - d->t->measured->first,
                 row->v[i].seconds, y, BAR);
}

/* Draws a row for each rank from Y on, over a time of MAKESPAN; returns where they
 * end. */
static double
draw_rows(struct canvas *canvas, const struct drawing *d, double y, double makespan,
          void (*row)(struct canvas *, const struct drawing *, int, double))
{
    char text[48];

    for (int r = 0; r < d->t->table->ranks; r++, y += ROW) {
        snprintf(text, sizeof(text), "stage %d", r);
        canvas_text(canvas, LEFT - 8, y + BAR / 2, 9, ALIGN_RIGHT, canvas_ink, text);
        canvas_rectangle(canvas, LEFT, y, makespan * d->scale, BAR, canvas_faint);
        row(canvas, d, r, y);
    }
    return y;
}

/* Both halves from Y on, each with a line that says what it is; returns where they
 * end. */
static double draw_both(struct canvas *canvas, const struct drawing *d, double y)
{
    const double simulated = d->t->result->makespan,
                 measured = d->t->measured->makespan;
    char text[96];

    snprintf(text, sizeof(text), "simulated, with the mean time of each pass: %.4g",
             simulated);
    canvas_text(canvas, LEFT, y + CAPTION / 2 - 2, 9, ALIGN_LEFT, canvas_ink, text);
    y = draw_rows(canvas, d, y + CAPTION, simulated, draw_row);
    snprintf(text, sizeof(text), "measured: %.4g, %.1f %% %s", measured,
             simulated > 0 ? 100 * fabs(measured / simulated - 1) : 0,
             measured < simulated ? "less" : "more");
    canvas_text(canvas, LEFT, y + CAPTION / 2 - 2, 9, ALIGN_LEFT, canvas_ink, text);
    return draw_rows(canvas, d, y + CAPTION, measured, draw_measured);
}

/* An entry for each kind of action that there is, in the order of a step. */
static void make_legend(struct drawing *d)
{
    static const char *const names[ACTION_KINDS] = {
        [ACTION_FORWARD] = "forward",
        [ACTION_BACKWARD] = "backward",
        [ACTION_INPUT] = "backward of the input",
        [ACTION_WEIGHT] = "backward of the weights",
    };
    static const enum action_kind order[] = { ACTION_FORWARD, ACTION_BACKWARD,
                                              ACTION_INPUT, ACTION_WEIGHT };
    const struct action_table *t = d->t->table;
    bool some[ACTION_KINDS] = { false };

    for (int r = 0; r < t->ranks; r++)
        for (size_t i = 0; i < t->row[r].n; i++)
            some[t->row[r].v[i].kind] = true;
    for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
        struct action a = { .kind = order[i] };

        if (some[order[i]])
            d->legend[d->nlegend++] =
                (struct legend_entry){ names[order[i]], colour_of(d, &a), LEGEND_BOX };
    }
    if (t->stages > t->ranks) {
        struct action a = { .kind = ACTION_FORWARD, .stage = t->ranks };

        d->legend[d->nlegend++] =
            (struct legend_entry){ "lighter: a later chunk of the stage",
                                   colour_of(d, &a), LEGEND_BOX };
    }
    d->legend[d->nlegend++] = (struct legend_entry){ "idle", canvas_faint, LEGEND_BOX };
}

static void draw(struct canvas *canvas, const void *arg)
{
    const struct drawing *d = arg;
    const struct pipechart *t = d->t;
    struct chart_axis axis = { .most = 10 };
    double ticks[CHART_TICKS], bottom, room = d->width - LEFT - RIGHT;
    char text[48];
    size_t n;

    canvas_text(canvas, LEFT, 16, 11, ALIGN_LEFT, canvas_ink, t->title);
    bottom = TOP - 14 + legend_draw(canvas, LEFT, 37, room, d->legend, d->nlegend);
    bottom = t->measured ? draw_both(canvas, d, bottom)
                         : draw_rows(canvas, d, bottom, t->result->makespan, draw_row);
    canvas_line(canvas, LEFT, bottom, d->width - RIGHT, bottom, 0.8, canvas_ink);
    chart_fit(&axis, 0);
    chart_fit(&axis, d->longest);
    chart_settle(&axis);
    n = chart_ticks(ticks, &axis);
    for (size_t i = 0; i < n; i++) {
        double x = LEFT + ticks[i] * d->scale;

        if (ticks[i] > d->longest * (1 + 1e-9))
            continue;
        chart_number(text, ticks[i]);
        canvas_line(canvas, x, bottom, x, bottom + 4, 0.8, canvas_ink);
        canvas_text(canvas, x, bottom + 12, 9, ALIGN_CENTRE, canvas_ink, text);
    }
    canvas_text(canvas, LEFT + room / 2, bottom + 28, 9, ALIGN_CENTRE, canvas_ink,
                t->unit);
}

/* The page: what the program prints, and each stage's share of the time. */
static int write_page(const struct pipechart *t, const struct figure *f,
                      struct err *err)
{
    static const char *const heads[] = { "stage", ">works", ">idle, %",
                                         ">micro-batches held" };
    struct html page;

    html_init(&page, t->title);
    html_lines(&page, t->text);
    if (html_figure(&page, f, err) < 0) {
        html_clear(&page);
        return -1;
    }
    html_table(&page, heads, sizeof(heads) / sizeof(*heads));
    for (int r = 0; r < t->table->ranks; r++) {
        double work = 0;

        for (size_t i = 0; i < t->table->row[r].n; i++)
            work += pipe_duration(t->table, t->times, &t->table->row[r].v[i]);
        html_cell(&page, "%d", r);
        html_cell(&page, "%.6g", work);
        html_cell(&page, "%.2f",
                  t->result->makespan > 0
                      ? 100 * fmax(0, t->result->makespan - work) / t->result->makespan
                      : 0);
        html_cell(&page, "%.4g",
                  t->result->held[r] * t->table->ranks * t->table->chains /
                      t->table->stages);
    }
    html_table_end(&page);
    return picture_write_page(&page, t->path, t->command, err);
}

/* The passes that follow one another in the whole, about. */
static double count_passes(const struct pipechart *t)
{
    const double pass = t->times->each ? t->times->each[0] * t->table->stages /
                                             (t->table->ranks * t->table->chains)
                                       : t->times->forward[0];

    return t->result->makespan / (pass + 1e-9);
}

int pipechart_write(const struct pipechart *t, struct err *err)
{
    struct drawing d = { .t = t };
    struct figure f = { .caption = "When each stage works on which micro-batch",
                        .draw = draw,
                        .arg = &d };

    d.width = fmin(fmax(60 + 16.0 * count_passes(t), 720), 2400);
    d.longest = fmax(t->result->makespan, t->measured ? t->measured->makespan : 0);
    if (d.longest > 0)
        d.scale = (d.width - LEFT - RIGHT) / d.longest;
    make_legend(&d);
    f.width = d.width;
    f.height = TOP + legend_height(d.width - LEFT - RIGHT, d.legend, d.nlegend) +
               ROW * t->table->ranks + BOTTOM - 14;
    if (t->measured)
        f.height += ROW * t->table->ranks + 2 * CAPTION;
    return html_is_named(t->path) ? write_page(t, &f, err)
                                  : figure_write(&f, t->path, err);
}
