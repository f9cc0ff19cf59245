/* plot - draws training runs: losses, learning rate and norm of the gradient, as a
 * picture or as a page */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/picture.h"
#include "cmd/tp-run/commands.h"
#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/model/mesh.h"
#include "lib/plot/chart.h"

/* WIDE: losses with a larger ratio get a logarithmic axis */
enum { MOST = 1 << 30, WIDE = 10 };

/* Points: of the picture, of its charts, and between them. */
static const double WIDTH = 720, LEFT = 64, RIGHT = 26, TOP = 56, LOSS = 280,
                    PANEL = 70, APART = 34, BELOW = 40;

/* What a step reports; NaN where the log does not say. */
enum series { LOSS_OF_STEP, RATE, NORM, SPEED, NSERIES };
static const char *const keys[NSERIES] = { "loss", "learning_rate", "grad_norm",
                                           "tokens_per_second" };

struct point {
    double step, value[NSERIES]; /* of an evaluation: its loss alone */
};

struct points {
    struct point *v;
    size_t n, cap;
};

/* A run's steps and evaluations. */
struct course {
    const char *name;
    struct points steps, evals;
    double runtime; /* seconds, of the last part; NaN: it has not ended */
    char *begun;    /* what its last start says: model and layout; NULL: nothing */
    char *command;
    char *checkpoint;
};

struct style {
    double smooth; /* weight of the past */
    bool log;
    uint64_t first, last; /* steps */
};

/* Adds a point; a step that was repeated after a resumed run replaces the earlier
 * one. */
static struct point *add_point(struct points *p, double step)
{
    while (p->n && p->v[p->n - 1].step >= step)
        p->n--;
    p->v = xgrow(p->v, &p->cap, p->n + 1, sizeof(*p->v));
    p->v[p->n] = (struct point){ .step = step };
    return &p->v[p->n++];
}

static void replace(char **text, const struct json *value)
{
    const char *s = json_string(value);

    if (!s)
        return;
    free(*text);
    *text = xstrdup(s);
}

/* Reads a start's line: "llama, 2828736 parameters, tp 2, dp 2, cpu". */
static void read_start(struct course *c, const struct json *line)
{
    const struct json *mesh = json_get(line, "mesh");
    const char *model = json_string(json_get(line, "model")),
               *family = json_string(json_get(line, "family")),
               *backend = json_string(json_get(line, "backend"));
    struct str s = { 0 };
    double v;

    str_addf(&s, "%s: %s", model ? fs_basename(model) : "model", family ? family : "?");
    if (json_double(json_get(line, "params"), &v))
        str_addf(&s, ", %.4g M parameters", v / 1e6);
    for (int a = 0; a < MESH_NAXES; a++)
        if (json_double(json_get(mesh, mesh_axis_names[a]), &v) && v > 1)
            str_addf(&s, ", %s %.0f", mesh_axis_names[a], v);
    if (backend)
        str_addf(&s, ", %s", backend);
    free(c->begun);
    c->begun = str_steal(&s);
    replace(&c->command, json_get(line, "command"));
}

static int add_line(struct course *c, const char *path, const char *line, size_t n,
                    struct err *err)
{
    struct json_doc doc;
    const char *type;
    struct point p = { 0 };

    if (json_parse(&doc, path, line, n, err) < 0)
        return -1;
    type = json_string(json_get(doc.root, "type"));
    type = type ? type : "";
    for (int k = 0; k < NSERIES; k++)
        if (!json_double(json_get(doc.root, keys[k]), &p.value[k]))
            p.value[k] = (double)NAN;
    if (!json_double(json_get(doc.root, "step"), &p.step)) {
        /* of a kind that this program does not draw */
    } else if (!strcmp(type, "step") && !isnan(p.value[LOSS_OF_STEP])) {
        *add_point(&c->steps, p.step) = p;
    } else if (!strcmp(type, "eval") &&
               json_double(json_get(doc.root, "eval_loss"), &p.value[0])) {
        *add_point(&c->evals, p.step) = p;
    } else if (!strcmp(type, "train")) {
        if (!json_double(json_get(doc.root, "train_runtime"), &c->runtime))
            c->runtime = (double)NAN;
        replace(&c->checkpoint, json_get(doc.root, "checkpoint"));
    } else if (!strcmp(type, "start")) {
        read_start(c, doc.root);
    }
    json_clear(&doc);
    return 0;
}

/* Reads the log of the run in directory PATH, or the file PATH; ignores an incomplete
 * last line. */
static int read_course(struct course *c, const char *path, struct err *err)
{
    char *file, *text = NULL, *end;
    size_t n = 0, number = 0;
    bool is_dir;
    int ret;

    if (fs_find_dir(&is_dir, path, err) < 0)
        return -1;
    file = is_dir ? fs_join_dup(path, "log.jsonl") : xstrdup(path);
    ret = fs_read_regular(&text, &n, file, MOST, err);
    c->name = path;
    c->runtime = (double)NAN;
    for (char *line = text;
         ret == 0 && (end = memchr(line, '\n', (size_t)(text + n - line)));
         line = end + 1) {
        char *name = str_dupf("%s:%zu", file, ++number);

        ret = add_line(c, name, line, (size_t)(end - line), err);
        free(name);
    }
    if (ret == 0 && !c->steps.n)
        ret = err_set(err, ERR_INPUT, "%s: has no step of a training", file);
    free(text);
    free(file);
    return ret;
}

static void course_clear(struct course *c)
{
    free(c->steps.v);
    free(c->evals.v);
    free(c->begun);
    free(c->command);
    free(c->checkpoint);
}

/* Leaves the points of the wanted steps. */
static void keep(struct points *p, const struct style *style)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].step >= (double)style->first && p->v[i].step <= (double)style->last)
            p->v[n++] = p->v[i];
    p->n = n;
}

/* An exponential moving average: WEIGHT of the past, 1 - WEIGHT of the present, divided
 * by the sum of all weights so far, since the past begins empty (the correction of
 * Adam, Kingma and Ba 2015, section 3). */
struct average {
    double weight, sum, total;
};

static double average_add(struct average *a, double v)
{
    a->sum = a->weight * a->sum + (1 - a->weight) * v;
    a->total = a->weight * a->total + (1 - a->weight);
    return a->sum / a->total;
}

struct drawing {
    const struct course *c;
    size_t n;
    struct style style;
    const char *title;
    struct legend_entry *legend;
    size_t nlegend;
    bool panel[NSERIES];
};

static struct colour paler(struct colour c)
{
    return (struct colour){ (c.r + 2) / 3, (c.g + 2) / 3, (c.b + 2) / 3 };
}

static struct colour colour_of(const struct drawing *d, size_t course, bool eval)
{
    /* one run: its evaluations in a colour of their own */
    return canvas_colour(d->n == 1 ? eval : (int)course);
}

static void draw_steps(const struct chart *chart, const struct drawing *d, size_t i,
                       enum series k)
{
    const struct points *p = &d->c[i].steps;
    struct colour colour = colour_of(d, i, false);
    bool smooth = k == LOSS_OF_STEP && d->style.smooth > 0;
    struct average a = { .weight = d->style.smooth };
    double before = 0;

    if (p->n == 1)
        chart_point(chart, p->v[0].step, p->v[0].value[k], 2, colour);
    for (size_t s = 1; s < p->n; s++)
        chart_line(chart, p->v[s - 1].step, p->v[s - 1].value[k], p->v[s].step,
                   p->v[s].value[k], smooth || d->c[i].evals.n ? 0.6 : 1.2,
                   smooth ? paler(colour) : colour);
    for (size_t s = 0; s < p->n && smooth; s++) {
        double v = p->v[s].value[k], now;

        if (!isfinite(v))
            continue;
        now = average_add(&a, v);
        if (s)
            chart_line(chart, p->v[s - 1].step, before, p->v[s].step, now, 1.4, colour);
        before = now;
    }
}

static void draw_evals(const struct chart *chart, const struct drawing *d, size_t i)
{
    const struct points *p = &d->c[i].evals;
    struct colour colour = colour_of(d, i, true);

    for (size_t s = 0; s < p->n; s++) {
        if (s)
            chart_line(chart, p->v[s - 1].step, p->v[s - 1].value[0], p->v[s].step,
                       p->v[s].value[0], 1.6, colour);
        chart_point(chart, p->v[s].step, p->v[s].value[0], 2.5, colour);
    }
}

/* Fits the axis of series K; returns the number of values beyond it. */
static size_t fit(struct chart_axis *a, const struct drawing *d, enum series k)
{
    size_t n = 0, beyond;
    double *v, least = (double)INFINITY, most = 0;

    for (size_t i = 0; i < d->n; i++)
        n += d->c[i].steps.n;
    v = xcalloc(n + 1, sizeof(*v));
    n = 0;
    for (size_t i = 0; i < d->n; i++)
        for (size_t s = 0; s < d->c[i].steps.n; s++) {
            v[n++] = d->c[i].steps.v[s].value[k];
            least = fmin(least, v[n - 1]);
            most = fmax(most, v[n - 1]);
        }
    if (k == LOSS_OF_STEP)
        a->log = d->style.log || (least > 0 && most > WIDE * least);
    if (k == RATE)
        chart_fit(a, 0);
    for (size_t i = 0; i < d->n && k == LOSS_OF_STEP; i++)
        for (size_t s = 0; s < d->c[i].evals.n; s++)
            chart_fit(a, d->c[i].evals.v[s].value[0]);
    if (!a->log)
        chart_fit_most(a, v, n);
    for (size_t s = 0; s < n && a->log; s++)
        chart_fit(a, v[s]);
    chart_settle(a);
    beyond = chart_beyond(a, v, n);
    free(v);
    return beyond;
}

static double legend_room(const struct drawing *d)
{
    return legend_height(WIDTH - LEFT - RIGHT, d->legend, d->nlegend);
}

static void draw(struct canvas *canvas, const void *arg)
{
    static const struct {
        const char *label;
        double height;
    } panels[NSERIES] = { { "loss, nats per token", 280 },
                          { "learning rate", 70 },
                          { "norm of the gradient", 70 },
                          { "tokens/s", 70 } };
    const struct drawing *d = arg;
    struct chart_axis ax = { .label = "step", .integer = true };
    double y = TOP + legend_room(d);
    int last = 0;

    canvas_text(canvas, LEFT - 30, 20, 12, ALIGN_LEFT, canvas_ink, d->title);
    legend_draw(canvas, LEFT - 30, 40, WIDTH - LEFT - RIGHT, d->legend, d->nlegend);
    for (size_t i = 0; i < d->n; i++) {
        const struct points *p[] = { &d->c[i].steps, &d->c[i].evals };

        for (int k = 0; k < 2; k++)
            for (size_t s = 0; s < p[k]->n; s++)
                chart_fit(&ax, p[k]->v[s].step);
    }
    chart_settle(&ax);
    for (int k = 0; k < NSERIES; k++)
        last = d->panel[k] ? k : last;
    for (int k = 0; k < NSERIES; k++) {
        struct chart chart = { .canvas = canvas,
                               .x = LEFT,
                               .y = y,
                               .w = WIDTH - LEFT - RIGHT,
                               .h = panels[k].height,
                               .ax = ax,
                               .bare = k != last };
        size_t beyond;
        char *label;

        if (!d->panel[k])
            continue;
        chart.ay.most = k == LOSS_OF_STEP ? 0 : 3;
        beyond = fit(&chart.ay, d, (enum series)k);
        label = beyond ? str_dupf("%s (%zu of the steps are above)", panels[k].label,
                                  beyond)
                       : xstrdup(panels[k].label);
        chart.ay.label = label;
        chart_begin(&chart, NULL);
        for (size_t i = 0; i < d->n; i++)
            draw_steps(&chart, d, i, (enum series)k);
        for (size_t i = 0; i < d->n && k == LOSS_OF_STEP; i++)
            draw_evals(&chart, d, i);
        free(label);
        y += panels[k].height + APART;
    }
}

/* What the colours and lines mean: of one run, training and evaluation; of several, the
 * runs, and then the kinds of lines. */
static void make_legend(struct drawing *d)
{
    bool evals = false, smooth = d->style.smooth > 0;
    struct legend_entry *e;

    for (size_t i = 0; i < d->n; i++)
        evals |= d->c[i].evals.n > 0;
    e = d->legend = xcalloc(d->n + 3, sizeof(*e));
    for (size_t i = 0; i < d->n; i++)
        *e++ = (struct legend_entry){ d->n > 1 ? d->c[i].name : "training",
                                      colour_of(d, i, false),
                                      evals && !smooth ? LEGEND_THIN : LEGEND_LINE };
    if (smooth)
        *e++ = (struct legend_entry){
            "each step", paler(d->n > 1 ? canvas_ink : colour_of(d, 0, false)),
            LEGEND_THIN
        };
    if (evals)
        *e++ = (struct legend_entry){ "evaluation",
                                      d->n > 1 ? canvas_ink : colour_of(d, 0, true),
                                      LEGEND_DOT };
    d->nlegend = (size_t)(e - d->legend);
}

static struct figure figure_of(struct drawing *d)
{
    struct figure f = { .caption = "Loss, learning rate and norm of the gradient of "
                                   "each step",
                        .width = WIDTH,
                        .height = TOP + LOSS + BELOW + legend_room(d),
                        .draw = draw,
                        .arg = d };

    for (int k = 0; k < NSERIES; k++) {
        d->panel[k] = k == LOSS_OF_STEP;
        for (size_t i = 0; i < d->n; i++)
            for (size_t s = 0; s < d->c[i].steps.n; s++)
                d->panel[k] |= isfinite(d->c[i].steps.v[s].value[k]);
        if (k != LOSS_OF_STEP && d->panel[k])
            f.height += PANEL + APART;
    }
    return f;
}

/* A row of the page's table for each run. */
static void add_runs(struct html *page, const struct drawing *d)
{
    static const char *const heads[] = { "run",        ">steps",     ">first loss",
                                         ">last loss", ">best eval", ">at step",
                                         ">last eval", ">tokens/s",  ">seconds" };

    html_table(page, heads, sizeof(heads) / sizeof(*heads));
    for (size_t i = 0; i < d->n; i++) {
        const struct course *c = &d->c[i];
        const struct point *s = c->steps.v, *best = NULL;
        const struct point *last_eval = c->evals.n ? &c->evals.v[c->evals.n - 1] : NULL;
        double speed = 0;
        size_t timed = 0;

        for (size_t k = 0; k < c->evals.n; k++)
            if (!best || c->evals.v[k].value[0] < best->value[0])
                best = &c->evals.v[k];
        for (size_t k = 0; k < c->steps.n; k++)
            if (isfinite(s[k].value[SPEED])) {
                speed += s[k].value[SPEED];
                timed++;
            }
        html_cell(page, "%s", c->name);
        html_cell(page, "%.0f to %.0f", s[0].step, s[c->steps.n - 1].step);
        html_cell(page, "%.4f", s[0].value[0]);
        html_cell(page, "%.4f", s[c->steps.n - 1].value[0]);
        html_cell(page, best ? "%.4f" : "-", best ? best->value[0] : 0);
        html_cell(page, best ? "%.0f" : "-", best ? best->step : 0);
        html_cell(page, last_eval ? "%.4f" : "-", last_eval ? last_eval->value[0] : 0);
        html_cell(page, timed ? "%.0f" : "-", timed ? speed / (double)timed : 0);
        html_cell(page, isnan(c->runtime) ? "-" : "%.1f", c->runtime);
    }
    html_table_end(page);
}

static int write_page(struct drawing *d, const struct figure *f, const char *path,
                      const char *command, struct err *err)
{
    struct html page;

    html_init(&page, d->title);
    add_runs(&page, d);
    if (html_figure(&page, f, err) < 0) {
        html_clear(&page);
        return -1;
    }
    html_heading(&page, "Commands");
    for (size_t i = 0; i < d->n; i++)
        if (d->c[i].command)
            html_lines(&page, d->c[i].command);
    html_lines(&page, command);
    return html_write(&page, path, err);
}

/* "run, tp 2", or the names of the runs. */
static char *title_dup(const struct course *c, size_t n)
{
    if (n == 1 && c->begun)
        return str_dupf("%s", c->begun);
    if (n == 1)
        return str_dupf("training run %s", c->name);
    return str_dupf("%zu training runs", n);
}

/* Parses --steps: A:B, A: or :B. */
static bool parse_steps(struct style *s, const char *text)
{
    const char *colon = strchr(text, ':');
    char *first;
    bool ok;

    if (!colon || (colon == text && !colon[1]))
        return false;
    first = str_dupf("%.*s", (int)(colon - text), text);
    ok = (!*first || str_u64(first, &s->first)) &&
         (!colon[1] || str_u64(colon + 1, &s->last)) && s->first <= s->last;
    free(first);
    return ok;
}

int plot_main(const char *program, int argc, char **argv)
{
    const char *out = NULL, *steps = NULL;
    struct drawing d = { .style = { .last = UINT64_MAX } };
    const struct opt opts[] = {
        { OPT_STRING, 'o', "output", &out, "FILE",
          "the picture: " PICTURE_NAMES " (needed)", NULL, NULL },
        { OPT_DOUBLE, '\0', "smooth", &d.style.smooth, "WEIGHT",
          "average losses, with this weight of the past: 0.9", NULL, NULL },
        { OPT_FLAG, '\0', "log-y", &d.style.log, NULL, "logarithmic axis of losses",
          NULL, NULL },
        { OPT_STRING, '\0', "steps", &steps, "A:B", "draw these steps alone", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "plot",
                             .program = program,
                             .own_page = true,
                             .synopsis = "-o FILE RUN...",
                             .summary = "Draw runs of train",
                             .opts = opts,
                             .min_args = 1,
                             .max_args = -1 };
    const char *command = picture_command(program, argc, argv);
    char *title = NULL;
    char **operand = cmd_parse(&cmd, argc, argv);
    struct course *course;
    struct err err = { 0 };
    struct figure f;
    int ret = 0;

    if (!out)
        return cmd_usage(&cmd, "give -o FILE, whose name ends in " PICTURE_NAMES);
    if ((ret = picture_check(&cmd, "--output", out)) != 0)
        return ret;
    if (!(d.style.smooth >= 0 && d.style.smooth < 1))
        return cmd_usage(&cmd, "--smooth %g: not from 0 to below 1", d.style.smooth);
    if (steps && !parse_steps(&d.style, steps))
        return cmd_usage(&cmd, "--steps: '%s' is not of the form A:B", steps);
    while (operand[d.n])
        d.n++;
    d.c = course = xcalloc(d.n, sizeof(*course));
    for (size_t i = 0; i < d.n && ret == 0; i++) {
        ret = read_course(&course[i], operand[i], &err);
        keep(&course[i].steps, &d.style);
        keep(&course[i].evals, &d.style);
        if (ret == 0 && !course[i].steps.n)
            ret = err_set(&err, ERR_INPUT, "%s: has none of the steps %s", operand[i],
                          steps);
    }
    if (ret == 0) {
        d.title = title = title_dup(course, d.n);
        make_legend(&d);
        f = figure_of(&d);
        ret = html_is_named(out) ? write_page(&d, &f, out, command, &err)
                                 : figure_write(&f, out, &err);
    }
    for (size_t i = 0; i < d.n; i++)
        course_clear(&course[i]);
    free(course);
    free(d.legend);
    free(title);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, EXIT_SUCCESS);
}
