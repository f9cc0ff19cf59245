/* timeline - draws a simulated schedule */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/pp-partition/pp-partition.h"
#include "lib/plot/canvas.h"

static const double LEFT = 64, TOP = 54, ROW = 26, BAR = 20, BOTTOM = 34;
/* Below this text size the number of a micro-batch is omitted. */
static const double SMALLEST = 5;

struct drawing {
    struct canvas *c;
    const struct action_table *t;
    double scale; /* points per unit of time */
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
    int chunk = a->stage / d->t->ranks;

    for (int i = 0; i < chunk && i < 3; i++) {
        colour.r += (1 - colour.r) * 0.4;
        colour.g += (1 - colour.g) * 0.4;
        colour.b += (1 - colour.b) * 0.4;
    }
    return colour;
}

static void draw_action(const struct drawing *d, const struct action *a, double start,
                        double duration, double y)
{
    double x = LEFT + start * d->scale, w = duration * d->scale;
    double size = 8;
    char number[16];

    canvas_rectangle(d->c, x, y, w, BAR, canvas_paper);
    canvas_rectangle(d->c, x, y, w > 2 ? w - 0.6 : w, BAR, colour_of(d, a));
    snprintf(number, sizeof(number), "%d", a->micro_batch);
    while (size >= SMALLEST && canvas_text_width(d->c, size, number) + 1.5 > w)
        size -= 0.5;
    if (size >= SMALLEST)
        canvas_text(d->c, x + w / 2, y + BAR / 2, size, ALIGN_CENTRE, canvas_ink,
                    number);
}

static void draw_legend(const struct drawing *d)
{
    static const char *const names[] = { "forward",
                                         "backward (of the input, where split)",
                                         "weights' gradient", "idle" };
    static const enum action_kind kinds[] = { ACTION_FORWARD, ACTION_INPUT,
                                              ACTION_WEIGHT };
    double x = LEFT;

    for (int i = 0; i < 4; i++) {
        struct action a = { i < 3 ? kinds[i] : ACTION_FORWARD, 0, 0, false };

        canvas_rectangle(d->c, x, 32, 10, 10, i < 3 ? colour_of(d, &a) : canvas_faint);
        canvas_text(d->c, x + 14, 37, 9, ALIGN_LEFT, canvas_ink, names[i]);
        x += 28 + canvas_text_width(d->c, 9, names[i]);
    }
}

int timeline_plot(const char *path, const struct action_table *t,
                  const struct pipe_times *times, const struct pipe_result *result,
                  const char *title, struct err *err)
{
    double width = 60 + 16.0 * result->makespan / (times->forward[0] + 1e-9);
    double height = TOP + ROW * t->ranks + BOTTOM;
    struct drawing d = { .t = t };
    char text[48];

    width = width < 720 ? 720 : width > 2400 ? 2400 : width;
    if (canvas_open(&d.c, path, width, height, err) < 0)
        return -1;
    d.scale = result->makespan > 0 ? (width - LEFT - 16) / result->makespan : 0;
    canvas_text(d.c, LEFT, 16, 11, ALIGN_LEFT, canvas_ink, title);
    draw_legend(&d);
    for (int r = 0; r < t->ranks; r++) {
        double y = TOP + ROW * r;

        snprintf(text, sizeof(text), "stage %d", r);
        canvas_text(d.c, LEFT - 8, y + BAR / 2, 9, ALIGN_RIGHT, canvas_ink, text);
        canvas_rectangle(d.c, LEFT, y, result->makespan * d.scale, BAR, canvas_faint);
        for (size_t i = 0; i < t->row[r].n; i++)
            draw_action(&d, &t->row[r].v[i], result->start[r][i],
                        pipe_duration(t, times, &t->row[r].v[i]), y);
    }
    canvas_line(d.c, LEFT, height - BOTTOM + 4, width - 16, height - BOTTOM + 4, 0.8,
                canvas_ink);
    canvas_text(d.c, LEFT, height - BOTTOM + 16, 9, ALIGN_LEFT, canvas_ink, "0");
    snprintf(text, sizeof(text), "%g", result->makespan);
    canvas_text(d.c, width - 16, height - BOTTOM + 16, 9, ALIGN_RIGHT, canvas_ink,
                text);
    return canvas_close(d.c, err);
}
