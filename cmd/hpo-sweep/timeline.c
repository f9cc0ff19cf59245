/* timeline - pictures of all trials: when each ran, and how their values spread */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/hpo-sweep/plot.h"
#include "lib/base/mem.h"
#include "lib/base/sort.h"

/* Seconds since 1970 of "YYYY-MM-DD HH:MM:SS.ffffff"; NaN of nothing and of others. */
static double seconds(const char *text)
{
    int year, month, day, hour, minute;
    double second;
    long days;

    if (!text || sscanf(text, "%d-%d-%d%*1[ T]%d:%d:%lf", &year, &month, &day, &hour,
                        &minute, &second) != 6)
        return NAN;
    /* Days of the proleptic calendar: years begin in March, so leap days end them. */
    year -= month < 3;
    month += month < 3 ? 9 : -3;
    days = 365L * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 +
           day - 719469;
    return 86400.0 * (double)days + 3600.0 * hour + 60.0 * minute + second;
}

static struct {
    const char *label;
    int colour;
} const kinds[] = {
    { "complete", 0 }, { "infeasible", 3 }, { "pruned", 1 },
    { "failed", 5 },   { "running", 7 },
};

static size_t kind_of(const struct study_trial *t)
{
    switch (t->state) {
    case STUDY_COMPLETE:
        return study_violation(t) > 0;
    case STUDY_PRUNED:
        return 2;
    case STUDY_FAIL:
        return 3;
    default:
        return 4;
    }
}

/* The unit in which a span of seconds reads well. */
static double unit_of(double span, const char **name)
{
    static const struct {
        double length, most;
        const char *name;
    } units[] = { { 1, 300, "seconds" },
                  { 60, 3 * 3600, "minutes" },
                  { 3600, 3 * 86400, "hours" },
                  { 86400, INFINITY, "days" } };
    size_t i = 0;

    while (span > units[i].most)
        i++;
    *name = units[i].name;
    return units[i].length;
}

void timeline_draw(struct canvas *canvas, const void *arg)
{
    const struct study *s = arg;
    struct chart_axis ax = { 0 }, ay = { .label = "trial", .integer = true };
    double first = INFINITY, last = -INFINITY, unit, high;
    const char *since = NULL, *name;
    bool some[sizeof(kinds) / sizeof(*kinds)] = { false };
    char *label;
    struct chart c;

    for (size_t i = 0; i < s->n; i++) {
        double start = seconds(s->trials[i].start);

        if (start < first) {
            first = start;
            since = s->trials[i].start;
        }
        last = fmax(last, fmax(start, seconds(s->trials[i].complete)));
    }
    unit = unit_of(isfinite(first) ? last - first : 1, &name);
    label = str_dupf("%s since %.19s UTC", name, since ? since : "the start");
    ax.label = label;
    chart_fit(&ax, 0);
    chart_fit(&ax, isfinite(first) ? (last - first) / unit : 1);
    chart_settle(&ax);
    chart_fit(&ay, 0);
    chart_fit(&ay, (double)s->n);
    chart_settle(&ay);
    c = plot_frame(canvas, &ax, &ay);
    chart_begin(&c, s->name);
    high = fmax(0.8, 0.8 * c.h / (ay.max - ay.min));
    chart_crowd(&c, s->n);
    for (size_t i = 0; i < s->n; i++) {
        const struct study_trial *t = &s->trials[i];
        double start = seconds(t->start), end = seconds(t->complete), x0, x1, y;
        size_t kind = kind_of(t);

        if (isnan(start) || t->state == STUDY_WAITING)
            continue;
        end = isnan(end) ? last : end;
        chart_place(&c, (start - first) / unit, (double)i + 0.5, &x0, &y);
        chart_place(&c, (end - first) / unit, (double)i + 0.5, &x1, &y);
        canvas_rectangle(canvas, x0, y - high / 2, fmax(0.8, x1 - x0), high,
                         canvas_colour(kinds[kind].colour));
        some[kind] = true;
    }
    canvas_crowd_end(canvas);
    for (size_t k = sizeof(kinds) / sizeof(*kinds); k-- > 0;)
        if (some[k])
            chart_legend(&c, kinds[k].label, canvas_colour(kinds[k].colour));
    free(label);
}

void timeline_draw_edf(struct canvas *canvas, const void *arg)
{
    const struct study *s = arg;
    double *values = xcalloc(s->n + 1, sizeof(*values));
    char *name = study_objective_dup(s, 0), *legend;
    struct chart_axis ax = { .label = name }, ay = { .label = "part of the trials" };
    size_t n = 0, infinite = 0;
    struct colour colour = canvas_colour(0);
    struct chart c;

    for (size_t i = 0; i < s->n; i++)
        if (plot_complete(&s->trials[i])) {
            if (isfinite(s->trials[i].values[0]))
                values[n++] = s->trials[i].values[0];
            else
                infinite++;
        }
    sort_doubles(values, n);
    plot_fit_values(&ax, s, 0, false);
    chart_fit(&ay, 0);
    chart_fit(&ay, 1);
    chart_settle(&ay);
    c = plot_frame(canvas, &ax, &ay);
    chart_begin(&c, s->name);
    chart_crowd(&c, n);
    for (size_t i = 0; i < n; i++) {
        double below = (double)i / (double)n, here = (double)(i + 1) / (double)n;

        chart_line(&c, i ? values[i - 1] : ax.min, below, values[i], below, 1.5,
                   colour);
        chart_line(&c, values[i], below, values[i], here, 1.5, colour);
    }
    if (n > 0)
        chart_line(&c, values[n - 1], 1, ax.max, 1, 1.5, colour);
    canvas_crowd_end(canvas);
    legend = infinite ? str_dupf("%zu trials, without %zu whose value is not finite", n,
                                 infinite)
                      : str_dupf("%zu trials", n);
    chart_legend(&c, legend, colour);
    free(legend);
    free(name);
    free(values);
}
