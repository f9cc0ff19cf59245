/* plot - plots the losses of runs of tp-run train */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "cmd/tp-run/commands.h"
#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/plot/chart.h"

/* WIDE: losses with a larger ratio get a logarithmic axis */
enum { MOST = 1 << 30, WIDE = 10 };

static const double WIDTH = 720, HEIGHT = 440;

struct point {
    double step, loss;
};

struct points {
    struct point *v;
    size_t n, cap;
};

/* A run's losses, of steps and of evaluations. */
struct course {
    const char *name;
    struct points steps, evals;
};

/* Adds a point; a step that was repeated after a resumed run replaces the earlier
 * one. */
static void add_point(struct points *p, double step, double loss)
{
    while (p->n && p->v[p->n - 1].step >= step)
        p->n--;
    p->v = xgrow(p->v, &p->cap, p->n + 1, sizeof(*p->v));
    p->v[p->n++] = (struct point){ step, loss };
}

static int add_line(struct course *c, const char *path, const char *line, size_t n,
                    struct err *err)
{
    struct json_doc doc;
    const char *type;
    double step, loss;

    if (json_parse(&doc, path, line, n, err) < 0)
        return -1;
    type = json_string(json_get(doc.root, "type"));
    if (json_double(json_get(doc.root, "step"), &step) && type) {
        if (!strcmp(type, "step") && json_double(json_get(doc.root, "loss"), &loss))
            add_point(&c->steps, step, loss);
        if (!strcmp(type, "eval") &&
            json_double(json_get(doc.root, "eval_loss"), &loss))
            add_point(&c->evals, step, loss);
    }
    json_clear(&doc);
    return 0;
}

/* Reads the log of the run in directory PATH, or the file PATH; ignores an incomplete
 * last line. */
static int read_course(struct course *c, const char *path, struct err *err)
{
    char *file = fs_is_dir(path) ? fs_join_dup(path, "log.jsonl") : xstrdup(path);
    char *text = NULL, *end;
    size_t n = 0, number = 0;
    int ret = fs_read_regular(&text, &n, file, MOST, err);

    c->name = path;
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

static void fit(struct chart_axis *ax, struct chart_axis *ay, const struct points *p)
{
    for (size_t i = 0; i < p->n; i++) {
        chart_fit(ax, p->v[i].step);
        chart_fit(ay, p->v[i].loss);
    }
}

static void draw_course(const struct chart *chart, const struct course *c,
                        struct colour colour)
{
    const struct point *s = c->steps.v, *e = c->evals.v;
    bool both = c->evals.n > 0;

    for (size_t i = 1; i < c->steps.n; i++)
        chart_line(chart, s[i - 1].step, s[i - 1].loss, s[i].step, s[i].loss,
                   both ? 0.5 : 1.2, colour);
    for (size_t i = 0; i < c->evals.n; i++) {
        if (i)
            chart_line(chart, e[i - 1].step, e[i - 1].loss, e[i].step, e[i].loss, 1.6,
                       colour);
        chart_point(chart, e[i].step, e[i].loss, 2.5, colour);
    }
}

static int draw(const struct course *c, size_t n, const char *path, struct err *err)
{
    struct chart chart = { .x = 60, .y = 60, .w = WIDTH - 90, .h = HEIGHT - 110 };
    struct chart_axis ax = { .label = "step", .integer = true },
                      ay = { .label = "loss" };
    double least = (double)INFINITY, most = 0;

    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < c[i].steps.n; k++) {
            least = fmin(least, c[i].steps.v[k].loss);
            most = fmax(most, c[i].steps.v[k].loss);
        }
    }
    ay.log = least > 0 && most > WIDE * least;
    for (size_t i = 0; i < n; i++) {
        fit(&ax, &ay, &c[i].steps);
        fit(&ax, &ay, &c[i].evals);
    }
    chart_settle(&ax);
    chart_settle(&ay);
    chart.ax = ax;
    chart.ay = ay;
    if (canvas_open(&chart.canvas, path, WIDTH, HEIGHT, err) < 0)
        return -1;
    chart_begin(&chart, NULL);
    for (size_t i = 0; i < n; i++) {
        draw_course(&chart, &c[i], canvas_colour((int)i));
        chart_legend(&chart, c[i].name, canvas_colour((int)i));
    }
    return canvas_close(chart.canvas, err);
}

int plot_main(const char *program, int argc, char **argv)
{
    const char *out = NULL;
    const struct opt opts[] = {
        { OPT_STRING, 'o', "output", &out, "FILE",
          "the picture: .svg, .png or .pdf (needed)", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "plot",
                             .program = program,
                             .own_page = true,
                             .synopsis = "-o FILE RUN...",
                             .summary = "Draw the losses of runs of train",
                             .opts = opts,
                             .min_args = 1,
                             .max_args = -1 };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct course *course;
    struct err err = { 0 };
    size_t n = 0;
    int ret = 0;

    if (!out || !canvas_can_draw(out))
        return cmd_usage(&cmd, "give -o FILE, whose name ends in .svg, .png or .pdf");
    while (operand[n])
        n++;
    course = xcalloc(n, sizeof(*course));
    for (size_t i = 0; i < n && ret == 0; i++)
        ret = read_course(&course[i], operand[i], &err);
    if (ret == 0)
        ret = draw(course, n, out, &err);
    for (size_t i = 0; i < n; i++) {
        free(course[i].steps.v);
        free(course[i].evals.v);
    }
    free(course);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, EXIT_SUCCESS);
}
