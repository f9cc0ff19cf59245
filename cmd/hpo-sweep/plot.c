/* plot - pictures of a study, alone or all on one page; here history, Pareto front,
 * reports, parallel coordinates, importance */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/plot.h"
#include "cmd/picture.h"
#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/plot/chart.h"
#include "lib/plot/parallel.h"

enum { WIDTH = 560, HEIGHT = 380 };

struct chart plot_frame(struct canvas *canvas, const struct chart_axis *ax,
                        const struct chart_axis *ay)
{
    return (struct chart){ .canvas = canvas,
                           .x = 56,
                           .y = 60,
                           .w = WIDTH - 80,
                           .h = HEIGHT - 106,
                           .ax = *ax,
                           .ay = *ay };
}

bool plot_complete(const struct study_trial *t)
{
    return t->state == STUDY_COMPLETE && study_violation(t) <= 0;
}

/* Do the values of a fitted axis span three powers of ten? */
static bool is_wide(const struct chart_axis *a)
{
    return a->min > 0 && a->max / a->min > 1000;
}

void plot_fit_values(struct chart_axis *axis, const struct study *s, size_t k,
                     bool pruned)
{
    struct chart_axis plain = { 0 };

    for (size_t i = 0; i < s->n; i++)
        if (s->trials[i].state == STUDY_COMPLETE ||
            (pruned && s->trials[i].state == STUDY_PRUNED))
            chart_fit(&plain, s->trials[i].values[k]);
    axis->log = plain.fitted && is_wide(&plain);
    if (plain.fitted) {
        chart_fit(axis, plain.min);
        chart_fit(axis, plain.max);
    }
    chart_settle(axis);
}

/* Does history show a value of T? */
static bool is_shown(const struct study_trial *t)
{
    return t->state == STUDY_COMPLETE || (t->state == STUDY_PRUNED && t->nvalues);
}

/* Fits the axis of the first objective's values; those of a few very bad trials do not
 * flatten the rest.  Returns the number of trials beyond its end. */
static size_t fit_history(struct chart_axis *a, const struct study *s)
{
    double *v = xcalloc(s->n + 1, sizeof(*v)), sign = s->maximize[0] ? -1 : 1;
    struct chart_axis plain = { 0 };
    size_t n = 0, beyond;

    for (size_t i = 0; i < s->n; i++)
        if (is_shown(&s->trials[i]))
            v[n++] = sign * s->trials[i].values[0];
    chart_fit_most(&plain, v, n);
    a->log = plain.fitted && sign > 0 && is_wide(&plain);
    if (plain.fitted) {
        chart_fit(a, sign * plain.min);
        chart_fit(a, sign * plain.max);
    }
    chart_settle(a);
    for (size_t i = 0; i < n; i++)
        v[i] *= sign;
    beyond = chart_beyond(a, v, n);
    free(v);
    return beyond;
}

/* Draws a trial's value; one beyond the scale at its end. */
static void draw_value(const struct chart *c, const struct study_trial *t, size_t i)
{
    double v = t->values[0];
    bool beyond = isfinite(v) && (v < c->ay.min || v > c->ay.max);

    chart_point(c, (double)i, beyond ? (v < c->ay.min ? c->ay.min : c->ay.max) : v, 2.5,
                canvas_colour(beyond             ? 3
                              : plot_complete(t) ? 0
                                                 : 1));
}

static void draw_history(struct canvas *canvas, const void *arg)
{
    const struct study *s = arg;
    char *name = study_objective_dup(s, 0);
    struct chart_axis ax = { .label = "trial", .integer = true };
    struct chart_axis ay = { .label = name };
    double best = NAN;
    size_t last = 0, beyond;
    struct chart c;

    chart_fit(&ax, 0);
    chart_fit(&ax, s->n ? (double)(s->n - 1) : 1);
    chart_settle(&ax);
    beyond = fit_history(&ay, s);
    c = plot_frame(canvas, &ax, &ay);
    chart_begin(&c, s->name);
    chart_crowd(&c, s->n);
    for (size_t i = 0; i < s->n; i++) {
        const struct study_trial *t = &s->trials[i];

        if (is_shown(t))
            draw_value(&c, t, i);
        if (!plot_complete(t) ||
            !(isnan(best) ||
              (s->maximize[0] ? t->values[0] > best : t->values[0] < best)))
            continue;
        chart_line(&c, (double)last, best, (double)i, best, 1.5, canvas_colour(2));
        chart_line(&c, (double)i, best, (double)i, t->values[0], 1.5, canvas_colour(2));
        best = t->values[0];
        last = i;
    }
    chart_line(&c, (double)last, best, (double)(s->n - 1), best, 1.5, canvas_colour(2));
    canvas_crowd_end(canvas);
    if (beyond)
        chart_legend(&c, "beyond the scale", canvas_colour(3));
    chart_legend(&c, "best so far", canvas_colour(2));
    chart_legend(&c, "pruned or infeasible", canvas_colour(1));
    chart_legend(&c, "complete", canvas_colour(0));
    free(name);
}

/* Whether no other complete trial dominates T. */
static bool on_front(const struct study *s, const struct study_trial *t)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct study_trial *o = &s->trials[i];
        bool better = false, worse = false;

        if (!plot_complete(o))
            continue;
        for (size_t k = 0; k < s->nobjectives; k++) {
            double d = s->maximize[k] ? t->values[k] - o->values[k]
                                      : o->values[k] - t->values[k];

            better |= d < 0;
            worse |= d > 0;
        }
        if (better && !worse)
            return false;
    }
    return true;
}

static void draw_front(struct canvas *canvas, const void *arg)
{
    const struct study *s = arg;
    char *names[2] = { study_objective_dup(s, 0), study_objective_dup(s, 1) };
    struct chart_axis ax = { .label = names[0] }, ay = { .label = names[1] };
    struct chart c;

    plot_fit_values(&ax, s, 0, false);
    plot_fit_values(&ay, s, 1, false);
    c = plot_frame(canvas, &ax, &ay);
    chart_begin(&c, s->name);
    chart_crowd(&c, s->n);
    for (int front = 0; front < 2; front++)
        for (size_t i = 0; i < s->n; i++) {
            const struct study_trial *t = &s->trials[i];

            if (plot_complete(t) && on_front(s, t) == front)
                chart_point(&c, t->values[0], t->values[1], front ? 3.5 : 2,
                            canvas_colour(front));
        }
    canvas_crowd_end(canvas);
    chart_legend(&c, "Pareto front", canvas_colour(1));
    chart_legend(&c, "dominated", canvas_colour(0));
    free(names[0]);
    free(names[1]);
}

static void draw_reports(struct canvas *canvas, const void *arg)
{
    const struct study *s = arg;
    char *name = study_objective_dup(s, 0);
    struct chart_axis ax = { .label = "step", .integer = true };
    struct chart_axis ay = { .label = name };
    static const struct {
        const char *label;
        enum study_state state;
        int colour;
    } kinds[] = { { "complete", STUDY_COMPLETE, 0 }, { "pruned", STUDY_PRUNED, 1 } };
    size_t left_out = 0, marks = 0;
    struct str title = { 0 };
    struct chart c;

    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->trials[i].nreports; k++) {
            chart_fit(&ax, (double)s->trials[i].steps[k]);
            chart_fit(&ay, s->trials[i].reports[k]);
            left_out += !isfinite(s->trials[i].reports[k]);
            marks++;
        }
    ay.log = ay.fitted && is_wide(&ay);
    chart_settle(&ax);
    chart_settle(&ay);
    c = plot_frame(canvas, &ax, &ay);
    str_add(&title, s->name);
    if (left_out)
        str_addf(&title, " (%zu reports are not finite and left out)", left_out);
    chart_begin(&c, title.s);
    str_clear(&title);
    chart_crowd(&c, marks);
    for (size_t g = sizeof(kinds) / sizeof(*kinds); g-- > 0;)
        for (size_t i = 0; i < s->n; i++) {
            const struct study_trial *t = &s->trials[i];
            struct colour colour = canvas_colour(kinds[g].colour);

            if (t->state != kinds[g].state)
                continue;
            for (size_t k = 0; k + 1 < t->nreports; k++)
                chart_line(&c, (double)t->steps[k], t->reports[k],
                           (double)t->steps[k + 1], t->reports[k + 1], 1, colour);
            if (t->nreports)
                chart_point(&c, (double)t->steps[t->nreports - 1],
                            t->reports[t->nreports - 1], 2, colour);
        }
    canvas_crowd_end(canvas);
    for (size_t g = sizeof(kinds) / sizeof(*kinds); g-- > 0;)
        chart_legend(&c, kinds[g].label, canvas_colour(kinds[g].colour));
    free(name);
}

struct chart_axis plot_param_scale(const struct study *s, const char *name,
                                   const struct dist *d)
{
    struct chart_axis a = { .label = name, .log = d->log };

    a.integer = d->kind == DIST_INT && !d->log;
    chart_fit(&a, d->kind == DIST_CATEGORICAL ? -0.5 : d->low);
    chart_fit(&a, d->kind == DIST_CATEGORICAL ? (double)d->nchoices - 0.5 : d->high);
    if (d->kind == DIST_CATEGORICAL)
        return a; /* all that is named */
    for (size_t i = 0; i < s->n; i++) {
        const struct study_param *p = study_find_param(s, &s->trials[i], name);

        if (p)
            chart_fit(&a, p->value);
    }
    chart_settle(&a);
    return a;
}

/* How much of TEXT its first N characters take, in UTF-8. */
static size_t characters(const char *text, size_t n)
{
    size_t i = 0;

    for (; text[i] && (n > 0 || (text[i] & 0xc0) == 0x80); i++)
        n -= (text[i] & 0xc0) != 0x80;
    return i;
}

/* WORD, which is freed, or both its ends, so that it does not reach the next axis. */
static char *shortened(char *word)
{
    enum { MOST = 14, HEAD = 6, TAIL = MOST - HEAD - 1 };
    size_t n = 0;
    char *out;

    for (const char *p = word; *p; p++)
        n += (*p & 0xc0) != 0x80;
    if (n <= MOST)
        return word;
    out = str_dupf("%.*s\u2026%s", (int)characters(word, HEAD), word,
                   word + characters(word, n - TAIL));
    free(word);
    return out;
}

char **plot_choice_names_new(const struct dist *d)
{
    char **names = xcalloc(d->nchoices + 1, sizeof(*names));

    for (size_t i = 0; i < d->nchoices; i++) {
        struct str word = { 0 };

        dist_write_word(&word, d, (double)i);
        names[i] = shortened(str_steal(&word));
    }
    return names;
}

/* One axis for each parameter, one for the first objective. */
static struct parallel_axis *axes_new(const struct study *s, const struct space *space,
                                      const char *objective)
{
    struct parallel_axis *axes = xcalloc(space->n + 1, sizeof(*axes));

    for (size_t i = 0; i < space->n; i++) {
        const struct space_param *p = &space->params[i];

        axes[i].scale = plot_param_scale(s, p->name, &p->dist);
        if (p->dist.kind == DIST_CATEGORICAL) {
            axes[i].choices = plot_choice_names_new(&p->dist);
            axes[i].nchoices = p->dist.nchoices;
        }
    }
    axes[space->n].scale.label = objective;
    plot_fit_values(&axes[space->n].scale, s, 0, false);
    return axes;
}

/* A row for each complete trial; *n becomes their number. */
static double *rows_new(size_t *n, const struct study *s, const struct space *space)
{
    size_t width = space->n + 1;
    double *rows = xcalloc(s->n + 1, width * sizeof(*rows));

    *n = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct study_trial *t = &s->trials[i];
        double *row = rows + *n * width;

        if (!plot_complete(t) || !isfinite(t->values[0]))
            continue;
        for (size_t k = 0; k < space->n; k++) {
            const struct study_param *p = study_find_param(s, t, space->params[k].name);

            row[k] = p ? p->value : NAN;
        }
        row[space->n] = t->values[0];
        ++*n;
    }
    return rows;
}

/* A picture of parallel coordinates and what it refers to. */
struct parallel_picture {
    struct parallel p;
    struct parallel_axis *axes;
    double *rows;
    char *objective;
    struct space space;
};

static void draw_parallel(struct canvas *canvas, const void *arg)
{
    const struct parallel_picture *pic = arg;

    parallel_draw(canvas, &pic->p);
}

static void release_parallel(void *arg)
{
    struct parallel_picture *pic = arg;

    for (size_t i = 0; i < pic->p.naxes; i++)
        fs_list_free(pic->axes[i].choices, pic->axes[i].nchoices);
    free(pic->axes);
    free(pic->rows);
    free(pic->objective);
    space_clear(&pic->space);
    free(pic);
}

static struct figure parallel_figure(const struct study *s)
{
    struct parallel_picture *pic = xcalloc(1, sizeof(*pic));
    struct parallel *p = &pic->p;

    *p = (struct parallel){ .title = s->name, .high_is_good = s->maximize[0] };
    pic->objective = study_objective_dup(s, 0);
    study_space(&pic->space, s);
    pic->axes = axes_new(s, &pic->space, pic->objective);
    pic->rows = rows_new(&p->nrows, s, &pic->space);
    p->axes = pic->axes;
    p->naxes = pic->space.n + 1;
    p->rows = pic->rows;
    return (struct figure){ .caption = "A line for each complete trial through its "
                                       "parameters to its value; darker is better",
                            .width = parallel_width(p),
                            .height = parallel_height(p),
                            .draw = draw_parallel,
                            .arg = pic,
                            .release = release_parallel };
}

struct importance_picture {
    const struct study *s;
    struct importances all;
};

static void draw_importance(struct canvas *canvas, const void *arg)
{
    const struct importance_picture *pic = arg;
    const char **names = xcalloc(pic->all.n + 1, sizeof(*names));
    double *values = xcalloc(pic->all.n + 1, sizeof(*values));
    char *title = str_dupf("%s: importance", pic->s->name);

    for (size_t i = 0; i < pic->all.n; i++) {
        names[i] = pic->all.v[i].name;
        values[i] = pic->all.v[i].importance;
    }
    chart_bars(canvas, title, WIDTH, names, values, pic->all.n);
    free(names);
    free(values);
    free(title);
}

static void release_importance(void *arg)
{
    struct importance_picture *pic = arg;

    importances_clear(&pic->all);
    free(pic);
}

static struct figure importance_figure(const struct study *s)
{
    struct importance_picture *pic = xcalloc(1, sizeof(*pic));

    pic->s = s;
    importances_init(&pic->all, s, IMPORTANCE_PED_ANOVA);
    return (struct figure){ .caption = "How much of the good trials each parameter "
                                       "explains (PED-ANOVA)",
                            .width = WIDTH,
                            .height = chart_bars_height(pic->all.n),
                            .draw = draw_importance,
                            .arg = pic,
                            .release = release_importance };
}

int plot_figure(struct figure *f, const struct study *s, int kind,
                const struct opt_list *params, struct err *err)
{
    static const struct {
        void (*draw)(struct canvas *, const void *);
        const char *caption;
    } charts[NKINDS] = {
        [KIND_HISTORY] = { draw_history,
                           "The value of each trial, and the best so far" },
        [KIND_FRONT] = { draw_front, "Both objectives of each complete trial" },
        [KIND_REPORTS] = { draw_reports, "What each trial reported at each step" },
        [KIND_TIMELINE] = { timeline_draw, "When each trial ran" },
        [KIND_EDF] = { timeline_draw_edf, "The share of trials below each value" },
    };

    if (kind == KIND_FRONT && s->nobjectives != 2)
        return err_set(err, ERR_USAGE, "a front has two objectives, '%s' has %zu",
                       s->name, s->nobjectives);
    if (kind == KIND_SLICE)
        return panels_slice(f, s, params, err);
    if (kind == KIND_CONTOUR || kind == KIND_RANK)
        return panels_pairs(f, s, params, kind == KIND_RANK, err);
    if (kind == KIND_PARALLEL)
        *f = parallel_figure(s);
    else if (kind == KIND_IMPORTANCE)
        *f = importance_figure(s);
    else
        *f = (struct figure){ .caption = charts[kind].caption,
                              .width = WIDTH,
                              .height = HEIGHT,
                              .draw = charts[kind].draw,
                              .arg = (void *)s };
    return 0;
}

/* Draw KIND to PATH. */
static int draw(const struct study *s, int kind, const struct opt_list *params,
                const char *path, const char *command, struct err *err)
{
    struct figure f = { 0 };
    int ret = plot_figure(&f, s, kind, params, err);

    if (ret == 0)
        ret = picture_write(&f, path, s->name, command, err);
    figure_clear(&f);
    return ret;
}

/* Which of KINDS, up to NULL, WORD is; -1 for none. */
static int find_kind(const char *const *kinds, const char *word)
{
    for (int i = 0; kinds[i]; i++)
        if (!strcmp(kinds[i], word))
            return i;
    return -1;
}

/* Take KINDS' word out of the operands, of which there is one or, with a file, two, in
 * either order. */
static int take_kind(const char *const *kinds, char **operand, const char **file)
{
    int first = operand[0] ? find_kind(kinds, operand[0]) : -1;
    int second = operand[0] && operand[1] ? find_kind(kinds, operand[1]) : -1;

    *file = first >= 0 ? operand[1] : operand[0];
    return first >= 0 ? first : second;
}

static int refuse_kind(const struct cmd *cmd, const char *const *kinds,
                       const char *word)
{
    struct str all = { 0 };
    int ret;

    for (int i = 0; kinds[i]; i++)
        str_addf(&all, "%s%s", i ? ", " : "", kinds[i]);
    ret = word ? cmd_usage(cmd,
                           "'%s' is no kind of picture; a file but .html needs one: %s",
                           word, all.s)
               : cmd_usage(cmd, "a kind of picture is missing; there are %s", all.s);
    str_clear(&all);
    return ret;
}

int plot_main(const char *program, int argc, char **argv)
{
    static const char *const kinds[NKINDS + 2] = {
        [KIND_HISTORY] = "history",       [KIND_FRONT] = "front",
        [KIND_REPORTS] = "reports",       [KIND_PARALLEL] = "parallel",
        [KIND_IMPORTANCE] = "importance", [KIND_SLICE] = "slice",
        [KIND_CONTOUR] = "contour",       [KIND_RANK] = "rank",
        [KIND_TIMELINE] = "timeline",     [KIND_EDF] = "edf",
        [KIND_REPORT] = "report",         [NKINDS + 1] = NULL,
    };
    struct where w = { 0 };
    struct opt_list params = { 0 };
    const char *output = NULL, *every = NULL, *file;
    double seconds = 0;
    bool page;
    const struct opt opts[] = {
        WHERE_OPTIONS(w),
        { OPT_STRING, 'o', "output", &output, "FILE", "picture: " PICTURE_NAMES, NULL,
          NULL },
        { OPT_LIST, '\0', "param", &params, "NAME",
          "parameters of slice, contour and rank", NULL, NULL },
        { OPT_STRING, '\0', "every", &every, "TIME",
          "write the page again and again while trials run", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "plot",
        .program = program,
        .opts = opts,
        .synopsis = "[OPTION]... [KIND] [FILE]",
        .max_args = 2,
        .summary =
            "Draw a study: history, front, reports, parallel, importance, slice,\n"
            "contour, rank, timeline or edf; report, or none: a page of all (.html)"
    };
    const char *command = picture_command(program, argc, argv);
    char **operand = cmd_parse(&cmd, argc, argv);
    struct session s;
    struct err err = { 0 };
    int kind = take_kind(kinds, operand, &file), ret;

    page = kind == KIND_REPORT || kind < 0;
    if (kind < 0 && !(output && html_is_named(output) && !(operand[0] && operand[1])))
        return refuse_kind(&cmd, kinds, operand[0]);
    if (!output)
        return cmd_usage(&cmd, "--output names a picture: " PICTURE_NAMES);
    if ((ret = picture_check(&cmd, "--output", output)) != 0)
        return ret;
    if (kind == KIND_REPORT && !html_is_named(output))
        return cmd_usage(&cmd, "a report is a page: its name ends in .html");
    if (every && !page)
        return cmd_usage(&cmd, "--every is for a report");
    if (every && (!str_duration(every, &seconds) || seconds < 1))
        return cmd_usage(&cmd, "'%s' is no time of at least a second", every);
    if (params.n && !page && kind != KIND_SLICE && kind != KIND_CONTOUR &&
        kind != KIND_RANK)
        return cmd_usage(&cmd, "%s takes no --param", kinds[kind]);
    if (session_open_file(&s, &w, file, &err) < 0)
        return cmd_fail(&cmd, &err);
    ret = page ? report_write(&s, &params, output, command, seconds, &err)
               : draw(&s.study, kind, &params, output, command, &err);
    session_close(&s);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, 0);
}
