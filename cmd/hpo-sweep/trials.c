/* trials - list trials: all, the best, the Pareto front; and what mattered */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/mem.h"
#include "lib/sweep/sampler/importance.h"
#include "lib/sweep/sampler/pareto.h"

static void add_values(struct str *out, const struct study_trial *t)
{
    bool some = false;

    str_addc(out, '[');
    for (size_t i = 0; i < t->nvalues; i++)
        if (!isnan(t->values[i])) {
            str_add(out, some ? ", " : "");
            str_add_double(out, t->values[i]);
            some = true;
        }
    str_addc(out, ']');
}

static void add_time(struct str *out, const char *key, const char *time)
{
    str_addf(out, ", \"%s\": ", key);
    if (time)
        str_add_json(out, time);
    else
        str_add(out, "null");
}

static void print_json(const struct study *s, const struct study_trial *t)
{
    struct str out = { 0 };

    str_addf(&out,
             "{\"type\": \"trial\", \"trial\": %d, \"state\": \"%s\", \"values\": ",
             t->number, study_state_name(t->state));
    add_values(&out, t);
    str_add(&out, ", \"params\": {");
    for (size_t i = 0; i < t->nparams; i++) {
        str_add(&out, i ? ", " : "");
        str_add_json(&out, s->names[t->params[i].name]);
        str_add(&out, ": ");
        dist_write_value(&out, t->params[i].dist, t->params[i].value);
    }
    str_addc(&out, '}');
    add_time(&out, "start", t->start);
    add_time(&out, "complete", t->complete);
    str_addc(&out, '}');
    puts(out.s);
    str_clear(&out);
}

void print_trial(const struct study *s, const struct study_trial *t, bool json)
{
    struct str out = { 0 };

    if (json) {
        print_json(s, t);
        return;
    }
    str_addf(&out, "%6d  %-8s", t->number, study_state_name(t->state));
    for (size_t i = 0; i < t->nvalues; i++)
        if (isnan(t->values[i]))
            str_addf(&out, "  %12s", "-");
        else
            str_addf(&out, "  %12.6g", t->values[i]);
    for (size_t i = 0; i < t->nparams; i++) {
        str_addf(&out, "  %s=", s->names[t->params[i].name]);
        dist_write_word(&out, t->params[i].dist, t->params[i].value);
    }
    cmd_puts(out.s);
    str_clear(&out);
}

/* What the four commands do with the loaded study; returns the exit status, or -1. */
typedef int (*listing)(const struct study *s, bool json, struct err *err);

static int list_main(const struct cmd *shape, const char *program, int argc,
                     char **argv, listing list)
{
    struct where w = { 0 };
    bool json = false;
    const struct opt opts[] = {
        WHERE_OPTIONS(w),
        { OPT_FLAG, '\0', "json", &json, NULL, "print one JSON object per line", NULL,
          NULL },
        { .type = OPT_END },
    };
    struct cmd cmd = *shape;
    struct session s;
    struct err err = { 0 };
    int status;

    cmd.program = program;
    cmd.opts = opts;
    cmd.synopsis = "[OPTION]...";
    cmd_parse(&cmd, argc, argv);
    if (session_open(&s, &w, false, &err) < 0)
        return cmd_fail(&cmd, &err);
    status = list(&s.study, json, &err);
    session_close(&s);
    return status < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, status);
}

static int list_all(const struct study *s, bool json, struct err *err)
{
    (void)err;
    for (size_t i = 0; i < s->n; i++)
        print_trial(s, &s->trials[i], json);
    return 0;
}

static int list_best(const struct study *s, bool json, struct err *err)
{
    const struct study_trial *best = study_best(s);

    if (s->nobjectives > 1)
        return err_set(err, ERR_USAGE,
                       "'%s' has %zu objectives, and no best trial: see "
                       "pareto",
                       s->name, s->nobjectives);
    if (best)
        print_trial(s, best, json);
    return best ? 0 : 1;
}

/* Complete and feasible trials that no other dominates. */
static int list_front(const struct study *s, bool json, struct err *err)
{
    size_t m = s->nobjectives, n = 0;
    double *losses = xcalloc(s->n + 1, m * sizeof(*losses));
    size_t *which = xcalloc(s->n + 1, sizeof(*which));
    size_t *rank = xcalloc(s->n + 1, sizeof(*rank));

    (void)err;
    for (size_t i = 0; i < s->n; i++) {
        const struct study_trial *t = &s->trials[i];

        if (t->state != STUDY_COMPLETE || study_violation(t) > 0)
            continue;
        for (size_t k = 0; k < m; k++)
            losses[n * m + k] = s->maximize[k] ? -t->values[k] : t->values[k];
        which[n++] = i;
    }
    pareto_ranks(rank, losses, n, m, 1);
    for (size_t i = 0; i < n; i++)
        if (rank[i] == 0)
            print_trial(s, &s->trials[which[i]], json);
    free(losses);
    free(which);
    free(rank);
    return n ? 0 : 1;
}

static int compare_importance(const void *a, const void *b)
{
    const struct importance *x = a, *y = b;

    if (x->importance != y->importance)
        return x->importance > y->importance ? -1 : 1;
    return strcmp(x->name, y->name);
}

void importances_init(struct importances *all, const struct study *s)
{
    struct history h;
    double *out;

    study_space(&all->space, s);
    study_history(&h, s, &all->space, NULL, -1);
    all->n = all->space.n;
    all->v = xcalloc(all->n + 1, sizeof(*all->v));
    out = xcalloc(all->n + 1, sizeof(*out));
    importance_ped_anova(out, &h, &all->space, -1, true);
    for (size_t i = 0; i < all->n; i++)
        all->v[i] = (struct importance){ all->space.params[i].name, out[i] };
    qsort(all->v, all->n, sizeof(*all->v), compare_importance);
    history_clear(&h);
    free(out);
}

void importances_clear(struct importances *all)
{
    space_clear(&all->space);
    free(all->v);
}

static int list_importance(const struct study *s, bool json, struct err *err)
{
    struct importances all;
    size_t n, complete = 0;

    (void)err;
    for (size_t i = 0; i < s->n; i++)
        complete += s->trials[i].state == STUDY_COMPLETE;
    if (!complete)
        return 1;
    importances_init(&all, s);
    n = all.n;
    for (size_t i = 0; i < n; i++) {
        struct str line = { 0 };

        if (json) {
            str_add(&line, "{\"type\": \"importance\", \"name\": ");
            str_add_json(&line, all.v[i].name);
            str_add(&line, ", \"importance\": ");
            str_add_double(&line, all.v[i].importance);
            str_addc(&line, '}');
        } else {
            str_addf(&line, "%.4f  %s", all.v[i].importance, all.v[i].name);
        }
        cmd_puts(line.s);
        str_clear(&line);
    }
    importances_clear(&all);
    return n ? 0 : 1;
}

int trials_main(const char *program, int argc, char **argv)
{
    static const struct cmd cmd = { .name = "show", .summary = "List the trials" };

    return list_main(&cmd, program, argc, argv, list_all);
}

int best_main(const char *program, int argc, char **argv)
{
    static const struct cmd cmd = { .name = "best", .summary = "Print the best trial" };

    return list_main(&cmd, program, argc, argv, list_best);
}

int pareto_main(const char *program, int argc, char **argv)
{
    static const struct cmd cmd = { .name = "pareto",
                                    .summary =
                                        "Print the trials that no other dominates" };

    return list_main(&cmd, program, argc, argv, list_front);
}

int importance_main(const char *program, int argc, char **argv)
{
    static const struct cmd cmd = {
        .name = "importance",
        .summary = "Say how much each parameter matters to being among the best"
    };

    return list_main(&cmd, program, argc, argv, list_importance);
}
