/* report - a study on one page: its trials, and all pictures */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/hpo-sweep/plot.h"
#include "cmd/picture.h"
#include "lib/base/mem.h"

enum { TRIALS_SHOWN = 500 };

/* Has S what a picture of KIND shows? */
static bool has(const struct study *s, int kind)
{
    struct space space;
    size_t params = 0, complete = 0, reports = 0;

    study_space(&space, s);
    for (size_t i = 0; i < space.n; i++)
        params += !dist_single(&space.params[i].dist);
    space_clear(&space);
    for (size_t i = 0; i < s->n; i++) {
        complete += plot_complete(&s->trials[i]);
        reports += s->trials[i].nreports;
    }
    switch (kind) {
    case KIND_FRONT:
        return s->nobjectives == 2 && complete;
    case KIND_REPORTS:
        return reports > 0;
    case KIND_CONTOUR:
        return params >= 2 && complete > 1;
    case KIND_PARALLEL:
    case KIND_IMPORTANCE:
    case KIND_SLICE:
        return params >= 1 && complete > 1;
    case KIND_RANK: /* shows what the contour shows */
        return false;
    default:
        return true;
    }
}

/* How many trials are in each state, and the best one. */
static void add_summary(struct html *page, const struct study *s)
{
    static const struct {
        enum study_state state;
        const char *name;
    } states[] = { { STUDY_COMPLETE, "complete" },
                   { STUDY_PRUNED, "pruned" },
                   { STUDY_FAIL, "failed" },
                   { STUDY_RUNNING, "running" },
                   { STUDY_WAITING, "waiting" } };
    const struct study_trial *best = s->nobjectives == 1 ? study_best(s) : NULL;
    struct str line = { 0 };

    str_addf(&line, "%zu trials", s->n);
    for (size_t k = 0; k < sizeof(states) / sizeof(*states); k++) {
        size_t n = 0;

        for (size_t i = 0; i < s->n; i++)
            n += s->trials[i].state == states[k].state;
        if (n)
            str_addf(&line, ", %zu %s", n, states[k].name);
    }
    html_text(page, str_text(&line));
    str_reset(&line);
    if (best) {
        char *objective = study_objective_dup(s, 0);

        str_addf(&line, "Best: trial %d, %s %.9g (%s)", best->number, objective,
                 best->values[0], s->maximize[0] ? "maximized" : "minimized");
        html_text(page, str_text(&line));
        free(objective);
    }
    str_clear(&line);
}

/* By value, the lowest first: values to maximize are negated. */
struct placed {
    double value;
    const struct study_trial *trial;
};

static int by_value(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;

    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return x->trial->number - y->trial->number;
}

/* The best complete trials and their parameters. */
static void add_best(struct html *page, const struct study *s)
{
    enum { SHOWN = 10 };
    struct placed *v = xcalloc(s->n + 1, sizeof(*v));
    const char **heads = xcalloc(s->nnames + 2, sizeof(*heads));
    char *objective = study_objective_dup(s, 0), *value = str_dupf(">%s", objective);
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++)
        if (plot_complete(&s->trials[i]) && isfinite(s->trials[i].values[0]))
            v[n++] =
                (struct placed){ (s->maximize[0] ? -1 : 1) * s->trials[i].values[0],
                                 &s->trials[i] };
    qsort(v, n, sizeof(*v), by_value);
    heads[0] = ">trial";
    heads[1] = value;
    for (size_t k = 0; k < s->nnames; k++)
        heads[k + 2] = s->names[k];
    if (n)
        html_heading(page, "Best trials");
    if (n)
        html_table(page, heads, s->nnames + 2);
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        html_cell(page, "%d", v[i].trial->number);
        html_cell(page, "%.9g", v[i].trial->values[0]);
        for (size_t k = 0; k < s->nnames; k++) {
            const struct study_param *p = study_find_param(s, v[i].trial, s->names[k]);
            struct str word = { 0 };

            if (p)
                dist_write_word(&word, p->dist, p->value);
            html_cell(page, "%s", p ? str_text(&word) : "-");
            str_clear(&word);
        }
    }
    if (n)
        html_table_end(page);
    free(heads);
    free(value);
    free(objective);
    free(v);
}

/* The last trials: each its state, values, reason and parameters. */
static void add_trials(struct html *page, const struct study *s)
{
    static const char *const fixed[] = { ">trial", "state",  "started",
                                         ">value", "reason", "parameters" };
    size_t first = s->n > TRIALS_SHOWN ? s->n - TRIALS_SHOWN : 0;
    char *head =
        first ? str_dupf("The last %d trials", TRIALS_SHOWN) : xstrdup("Trials");

    if (s->n) {
        html_heading(page, head);
        html_table(page, fixed, sizeof(fixed) / sizeof(*fixed));
    }
    for (size_t i = s->n; i-- > first;) {
        const struct study_trial *t = &s->trials[i];
        char *reason = session_reason_dup(t);
        struct str text = { 0 };

        html_cell(page, "%d", t->number);
        html_cell(page, "%s", study_state_name(t->state));
        html_cell(page, "%.19s", t->start ? t->start : "-");
        for (size_t k = 0; k < t->nvalues; k++)
            if (!isnan(t->values[k]))
                str_addf(&text, "%s%.6g", text.len ? " " : "", t->values[k]);
        html_cell(page, "%s", text.len ? text.s : "-");
        html_cell(page, "%s", reason ? reason : "");
        str_reset(&text);
        for (size_t k = 0; k < t->nparams; k++) {
            const struct study_param *p = &t->params[k];

            str_addf(&text, "%s%s=", k ? " " : "", s->names[p->name]);
            if (p->dist->kind == DIST_FLOAT)
                str_addf(&text, "%g", p->value);
            else
                dist_write_word(&text, p->dist, p->value);
        }
        html_cell(page, "%s", str_text(&text));
        str_clear(&text);
        free(reason);
    }
    if (s->n)
        html_table_end(page);
    free(head);
}

static int write_page(const struct study *s, const struct opt_list *params,
                      const char *path, const char *command, double again,
                      struct err *err)
{
    char *title = str_dupf("Study %s", s->name), now[STUDY_TIME_SIZE], *line;
    struct figure f = { 0 };
    struct html page;
    int ret = 0;

    html_init(&page, title);
    free(title);
    if (again > 0) {
        study_now(now, true);
        line = str_dupf("As of %.19s; trials are running.", now);
        html_refresh(&page, again);
        html_text(&page, line);
        free(line);
    }
    add_summary(&page, s);
    if (s->nobjectives == 1)
        add_best(&page, s);
    for (int k = 0; k < NKINDS && ret == 0; k++) {
        if (!has(s, k))
            continue;
        ret = plot_figure(&f, s, k, params, err);
        if (ret == 0)
            ret = html_figure(&page, &f, err);
        figure_clear(&f);
    }
    if (ret < 0) {
        html_clear(&page);
        return -1;
    }
    add_trials(&page, s);
    return picture_write_page(&page, path, command, err);
}

static void wait_seconds(double seconds)
{
    struct timespec t = { .tv_sec = (time_t)seconds };

    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

int report_write(struct session *s, const struct opt_list *params, const char *path,
                 const char *command, double seconds, struct err *err)
{
    while (seconds > 0 && session_is_busy(&s->study)) {
        if (write_page(&s->study, params, path, command, seconds, err) < 0)
            return -1;
        wait_seconds(seconds);
        if (session_look_again(s, err) < 0)
            return -1;
    }
    return write_page(&s->study, params, path, command, 0, err);
}
