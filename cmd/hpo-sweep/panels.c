/* panels - pictures of many small charts: slice, contour, rank */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/plot.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/sort.h"

enum { PAIRED = 4, COLUMNS = 3, CELLS = 36, LEVELS = 12 };

static const double TITLE = 12, TEXT = 9;                        /* points */
static const double LEFT = 86, RIGHT = 14, TOP = 26, BELOW = 40; /* of a panel */
static const double HEAD = 50;                                   /* of the picture */
static const double DOT = 2.2;
static const double APART = 100;         /* of choices, in widths of the range */
static const double NEAR = 1.5, FAR = 5; /* in widths of the kernel */

/* A parameter on an axis. */
struct axis {
    const struct space_param *param;
    struct chart_axis scale;
};

struct panels {
    const struct study *s;
    struct space space;
    struct axis *axes; /* [n] */
    size_t n;
    char *objective;
    struct chart_axis values;
    bool ranks;                        /* of pairs: ranks, not the estimate */
    double width, height, w, h;        /* points: of the picture and of a panel */
    const struct study_trial **trials; /* [ntrials]: complete, values finite */
    double *good;                      /* [ntrials]: 0 for the worst, 1 for the best */
    size_t ntrials;
    const struct study_trial **pruned; /* [npruned] */
    size_t npruned;
};

static double param_of(const struct panels *p, const struct axis *a,
                       const struct study_trial *t)
{
    const struct study_param *v = study_find_param(p->s, t, a->param->name);

    return v ? v->value : NAN;
}

static double value_of(const struct panels *p, const struct axis *a, size_t trial)
{
    return param_of(p, a, p->trials[trial]);
}

static void add_axis(struct panels *p, const struct space_param *param)
{
    struct axis *a = &p->axes[p->n++];

    a->param = param;
    a->scale = plot_param_scale(p->s, param->name, &param->dist);
    a->scale.most = 4;
    if (param->dist.kind == DIST_CATEGORICAL) {
        a->scale.names = plot_choice_names_new(&param->dist);
        a->scale.nnames = param->dist.nchoices;
    }
    chart_settle(&a->scale);
}

/* Those that PARAMS names, or else the MOST that matter most. */
static int choose(struct panels *p, const struct opt_list *params, size_t most,
                  struct err *err)
{
    struct importances all;

    p->axes = xcalloc(p->space.n + params->n + 1, sizeof(*p->axes));
    for (size_t i = 0; i < params->n; i++) {
        int k = space_find(&p->space, params->v[i]);

        if (k < 0)
            return err_set(err, ERR_USAGE, "'%s' has no parameter '%s'", p->s->name,
                           params->v[i]);
        add_axis(p, &p->space.params[k]);
    }
    if (params->n)
        return 0;
    importances_init(&all, p->s, IMPORTANCE_PED_ANOVA);
    for (size_t i = 0; i < all.n && p->n < most; i++) {
        const struct space_param *param =
            &p->space.params[space_find(&p->space, all.v[i].name)];

        if (!dist_single(&param->dist))
            add_axis(p, param);
    }
    importances_clear(&all);
    return 0;
}

static void clear(struct panels *p)
{
    for (size_t i = 0; i < p->n; i++)
        fs_list_free(p->axes[i].scale.names, p->axes[i].scale.nnames);
    free(p->axes);
    free(p->trials);
    free(p->pruned);
    free(p->good);
    free(p->objective);
    space_clear(&p->space);
}

static int init(struct panels *p, const struct study *s, const struct opt_list *params,
                size_t most, struct err *err)
{
    *p = (struct panels){ .s = s, .objective = study_objective_dup(s, 0) };
    study_space(&p->space, s);
    p->values.label = p->objective;
    plot_fit_values(&p->values, s, 0, false);
    p->trials = xcalloc(s->n + 1, sizeof(*p->trials));
    p->good = xcalloc(s->n + 1, sizeof(*p->good));
    p->pruned = xcalloc(s->n + 1, sizeof(*p->pruned));
    for (size_t i = 0; i < s->n; i++)
        if (s->trials[i].state == STUDY_PRUNED)
            p->pruned[p->npruned++] = &s->trials[i];
    for (size_t i = 0; i < s->n; i++)
        if (plot_complete(&s->trials[i]) && isfinite(s->trials[i].values[0]))
            p->trials[p->ntrials++] = &s->trials[i];
    if (choose(p, params, most, err) == 0)
        return 0;
    clear(p);
    return -1;
}

static struct chart panel(const struct panels *p, struct canvas *canvas, size_t column,
                          size_t row)
{
    return (struct chart){ .canvas = canvas,
                           .x = LEFT + (double)column * (LEFT + p->w + RIGHT),
                           .y = HEAD + TOP + (double)row * (TOP + p->h + BELOW),
                           .w = p->w,
                           .h = p->h };
}

static void head(struct canvas *canvas, const struct panels *p, const char *kind,
                 const char *pale, const char *deep)
{
    char *title = str_dupf("%s: %s", p->s->name, kind);

    canvas_text(canvas, 20, 22, TITLE, ALIGN_LEFT, canvas_ink, title);
    if (p->ntrials)
        chart_shades(canvas, p->width - RIGHT, 22, pale, deep);
    free(title);
}

static void draw_slice(const struct panels *p, size_t i, struct chart *c)
{
    const struct axis *a = &p->axes[i];
    double last = p->s->n > 1 ? (double)(p->s->n - 1) : 1;

    c->ax = a->scale;
    c->ay = p->values;
    chart_begin(c, NULL);
    chart_crowd(c, p->n * p->ntrials);
    for (size_t t = 0; t < p->ntrials; t++)
        chart_point(c, value_of(p, a, t), p->trials[t]->values[0], DOT,
                    canvas_shade(p->trials[t]->number / last));
    canvas_crowd_end(c->canvas);
}

static size_t columns_of(const struct panels *p)
{
    return p->n < COLUMNS ? (p->n ? p->n : 1) : COLUMNS;
}

static void draw_slices(struct canvas *canvas, const void *arg)
{
    const struct panels *p = arg;
    size_t columns = columns_of(p);

    head(canvas, p, "slice", "first trial", "last");
    for (size_t i = 0; i < p->n; i++) {
        struct chart c = panel(p, canvas, i % columns, i / columns);

        draw_slice(p, i, &c);
    }
}

static void release(void *arg)
{
    clear(arg);
    free(arg);
}

static struct figure figure_of(struct panels *p, const char *caption,
                               void (*draw)(struct canvas *, const void *))
{
    return (struct figure){ .caption = caption,
                            .width = p->width,
                            .height = p->height,
                            .draw = draw,
                            .arg = p,
                            .release = release };
}

int panels_slice(struct figure *f, const struct study *s, const struct opt_list *params,
                 struct err *err)
{
    struct panels *p = xcalloc(1, sizeof(*p));
    size_t columns, rows;

    if (init(p, s, params, SIZE_MAX, err) < 0) {
        free(p);
        return -1;
    }
    columns = columns_of(p);
    rows = (p->n + columns - 1) / columns;
    p->w = 170;
    p->h = 150;
    p->width = fmax(320, (double)columns * (LEFT + p->w + RIGHT));
    p->height = HEAD + fmax(1, (double)rows) * (TOP + p->h + BELOW);
    *f = figure_of(p, "The objective against each parameter; darker is later",
                   draw_slices);
    return 0;
}

/* How good each trial is: by its place on the scale of values, on which the worst tenth
 * are all at the end, so that a few do not take all shades; or, with RANKS, among the
 * others, equals in the middle of their places. */
static void rate(struct panels *p, bool ranks)
{
    double *sorted = xcalloc(p->ntrials + 1, sizeof(*sorted)), low = 0, high = 0;

    for (size_t t = 0; t < p->ntrials; t++)
        sorted[t] = p->trials[t]->values[0];
    sort_doubles(sorted, p->ntrials);
    if (p->ntrials) {
        size_t tenth = p->ntrials / 10, last = p->ntrials - 1;

        low = chart_fraction(&p->values, sorted[p->s->maximize[0] ? tenth : 0]);
        high =
            chart_fraction(&p->values, sorted[last - (p->s->maximize[0] ? 0 : tenth)]);
    }
    for (size_t t = 0; t < p->ntrials; t++) {
        double value = p->trials[t]->values[0];
        double f = chart_fraction(&p->values, value);
        size_t below = 0, equal = 0;

        f = low < high ? fmin(fmax((f - low) / (high - low), 0), 1) : 0.5;
        for (size_t k = 0; ranks && k < p->ntrials; k++) {
            below += sorted[k] < value;
            equal += sorted[k] == value;
        }
        if (ranks)
            f = p->ntrials > 1 ? ((double)below + 0.5 * (double)(equal - 1)) /
                                     (double)(p->ntrials - 1)
                               : 0;
        p->good[t] = p->s->maximize[0] ? f : 1 - f;
    }
    free(sorted);
}

/* The position of VALUE in the parameter's range, from 0 to 1; choices are far apart,
 * because one says nothing about another. */
static double unit_of(const struct axis *a, double value)
{
    if (a->param->dist.kind == DIST_CATEGORICAL)
        return APART * value;
    return dist_single(&a->param->dist) ? 0.5 : space_to_unit(&a->param->dist, value);
}

/* The value a part U of the way between them, steps disregarded. */
static double value_at(const struct axis *a, double u)
{
    const struct dist *d = &a->param->dist;
    double low, high, t;

    space_scale_bounds(d, &low, &high);
    t = low + u * (high - low);
    return d->log ? exp(t) : t;
}

static size_t cells_of(const struct axis *a)
{
    const struct dist *d = &a->param->dist;

    return d->kind == DIST_CATEGORICAL ? d->nchoices : CELLS;
}

/* The middle of cell I, as unit_of has it. */
static double cell_at(const struct axis *a, size_t i)
{
    return a->param->dist.kind == DIST_CATEGORICAL ? APART * (double)i
                                                   : ((double)i + 0.5) / CELLS;
}

struct field {
    const double *x, *y, *good; /* [n] */
    size_t n;
    double width; /* of the kernel */
    double mean;  /* of all */
};

/* The mean of the values near (X, Y), by a normal kernel (Nadaraya 1964, Watson 1964);
 * the farther the nearest, the more it is that of all, so that nothing is best or worst
 * by one trial far away; NaN where none is near. */
static double estimate(const struct field *f, double x, double y)
{
    double sum = 0, weight = 0, nearest = 0, doubt;

    for (size_t t = 0; t < f->n; t++) {
        double dx = (f->x[t] - x) / f->width, dy = (f->y[t] - y) / f->width;
        double square = dx * dx + dy * dy, w;

        if (square > FAR * FAR)
            continue;
        w = exp(-0.5 * square);
        sum += w * f->good[t];
        weight += w;
        nearest = fmax(nearest, w);
    }
    doubt = 1 - nearest;
    return nearest > exp(-0.5 * NEAR * NEAR)
               ? (sum + doubt * f->mean) / (weight + doubt)
               : NAN;
}

/* A rectangle of the panel, between parts of the parameters' ranges. */
static void fill(const struct chart *c, const struct axis *ax, const struct axis *ay,
                 double u0, double u1, double v0, double v1, struct colour colour)
{
    double x0, y0, x1, y1;

    chart_place(c, value_at(ax, u0), value_at(ay, v1), &x0, &y0);
    chart_place(c, value_at(ax, u1), value_at(ay, v0), &x1, &y1);
    x0 = fmax(x0, c->x);
    y0 = fmax(y0, c->y);
    x1 = fmin(x1, c->x + c->w);
    y1 = fmin(y1, c->y + c->h);
    if (x0 < x1 && y0 < y1)
        canvas_rectangle(c->canvas, x0, y0, x1 - x0 + 0.3, y1 - y0 + 0.3, colour);
}

/* Draw the estimate in bands of that number of levels; adjacent cells of one level are
 * one rectangle. */
static void draw_field(const struct chart *c, const struct panels *p,
                       const struct axis *ax, const struct axis *ay)
{
    double *x = xcalloc(3 * p->ntrials + 1, sizeof(*x)), *y = x + p->ntrials;
    double *good = y + p->ntrials;
    struct field f = { .x = x, .y = y, .good = good };
    size_t columns = cells_of(ax), rows = cells_of(ay);

    for (size_t t = 0; t < p->ntrials; t++) {
        double vx = value_of(p, ax, t), vy = value_of(p, ay, t);

        if (isnan(vx) || isnan(vy))
            continue;
        x[f.n] = unit_of(ax, vx);
        y[f.n] = unit_of(ay, vy);
        f.mean += p->good[t];
        good[f.n++] = p->good[t];
    }
    f.mean /= (double)(f.n ? f.n : 1);
    f.width = fmax(0.04, 0.3 * pow((double)f.n + 1, -1.0 / 6));
    for (size_t row = 0; row < rows; row++) {
        int level = -1;
        size_t begin = 0;

        for (size_t column = 0; column <= columns; column++) {
            double e = column < columns
                           ? estimate(&f, cell_at(ax, column), cell_at(ay, row))
                           : NAN;
            int here = isnan(e) ? -1 : (int)fmin(e * LEVELS, LEVELS - 1);

            if (column > 0 && here == level && column < columns)
                continue;
            if (level >= 0)
                fill(c, ax, ay, (double)begin / columns, (double)column / columns,
                     (double)row / rows, (double)(row + 1) / rows,
                     canvas_shade((level + 0.5) / LEVELS));
            level = here;
            begin = column;
        }
    }
    free(x);
}

static void draw_pair(const struct panels *p, const struct axis *ax,
                      const struct axis *ay, bool ranks, struct chart *c)
{
    const struct study_trial *best = study_best(p->s);
    /* many are smaller, so that the estimate is seen between them */
    double dot = fmin(1.2, fmax(0.4, 1.2 * sqrt(400 / ((double)p->s->n + 1))));
    size_t star = SIZE_MAX;

    c->ax = ax->scale;
    c->ay = ay->scale;
    if (!ranks) {
        chart_crowd(c, (p->n - 1) * CELLS * CELLS);
        draw_field(c, p, ax, ay);
        canvas_crowd_end(c->canvas);
    }
    chart_begin(c, NULL);
    chart_crowd(c, p->n * (p->n - 1) / 2 * p->s->n);
    for (size_t t = 0; t < p->npruned && !ranks; t++)
        chart_ring(c, param_of(p, ax, p->pruned[t]), param_of(p, ay, p->pruned[t]),
                   1.4 * dot, canvas_ink);
    for (size_t t = 0; t < p->ntrials; t++) {
        if (p->trials[t] == best)
            star = t;
        chart_point(c, value_of(p, ax, t), value_of(p, ay, t), ranks ? 3 : dot,
                    ranks ? canvas_shade(p->good[t]) : canvas_ink);
    }
    canvas_crowd_end(c->canvas);
    if (star != SIZE_MAX)
        chart_point(c, value_of(p, ax, star), value_of(p, ay, star), 3.2,
                    canvas_colour(5));
}

/* What marks stand for, from the right at Y. */
static void pairs_legend(struct canvas *canvas, const struct panels *p)
{
    const struct {
        const char *text;
        bool some, hollow;
        double radius;
        struct colour colour;
    } all[] = {
        { "best trial", study_best(p->s) != NULL, false, 3.2, canvas_colour(5) },
        { "pruned", p->npruned && !p->ranks, true, 1.7, canvas_ink },
        { "complete", p->ntrials && !p->ranks, false, 1.2, canvas_ink },
    };
    double x = p->width - RIGHT, y = 40;

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        if (!all[i].some)
            continue;
        canvas_text(canvas, x, y, TEXT, ALIGN_RIGHT, canvas_ink, all[i].text);
        x -= canvas_text_width(canvas, TEXT, all[i].text) + 8;
        if (all[i].hollow)
            canvas_ring(canvas, x, y, all[i].radius, 0.7, all[i].colour);
        else
            canvas_circle(canvas, x, y, all[i].radius, all[i].colour);
        x -= 14;
    }
}

static void draw_pairs(struct canvas *canvas, const void *arg)
{
    const struct panels *p = arg;

    head(canvas, p, p->ranks ? "rank" : "contour", "worst", "best");
    for (size_t row = 0; row + 1 < p->n; row++)
        for (size_t column = 0; column <= row; column++) {
            struct chart c = panel(p, canvas, column, row);

            draw_pair(p, &p->axes[column], &p->axes[row + 1], p->ranks, &c);
        }
    pairs_legend(canvas, p);
}

int panels_pairs(struct figure *f, const struct study *s, const struct opt_list *params,
                 bool ranks, struct err *err)
{
    struct panels *p = xcalloc(1, sizeof(*p));

    if (init(p, s, params, PAIRED, err) < 0) {
        free(p);
        return -1;
    }
    if (p->n < 2) {
        err_set(err, ERR_USAGE, "a picture of pairs takes two parameters, not %zu",
                p->n);
        release(p);
        return -1;
    }
    rate(p, ranks);
    p->ranks = ranks;
    p->w = p->n == 2 ? 380 : 160;
    p->h = p->n == 2 ? 300 : 140;
    p->width = (double)(p->n - 1) * (LEFT + p->w + RIGHT);
    p->height = HEAD + (double)(p->n - 1) * (TOP + p->h + BELOW);
    *f = figure_of(p,
                   ranks ? "The rank of each trial for each two parameters"
                         : "The objective for each two parameters, as estimated from "
                           "the trials nearby",
                   draw_pairs);
    return 0;
}
