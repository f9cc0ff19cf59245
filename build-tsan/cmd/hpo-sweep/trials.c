/* trials - print a trial, list the Pareto front */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/mem.h"
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

/* How T's command ended, where that was noted. */
static void add_ending(struct str *out, const struct study_trial *t)
{
    static const char *const keys[] = { SESSION_STATUS_KEY, SESSION_SIGNAL_KEY,
                                        SESSION_REASON_KEY };

    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        const char *json = study_attr(&t->user, keys[i]);

        str_addf(out, ", \"%s\": %s", keys[i], json ? json : "null");
    }
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
    add_ending(&out, t);
    str_addc(&out, '}');
    puts(out.s);
    str_clear(&out);
}

void print_trial(const struct study *s, const struct study_trial *t, bool json)
{
    struct str out = { 0 };
    char *reason;

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
    reason = session_reason_dup(t);
    if (reason)
        str_addf(&out, "  (%s)", reason);
    free(reason);
    cmd_puts(out.s);
    str_clear(&out);
}

/* What the two commands do with the loaded study; returns the exit status, or -1. */
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
    char **operand;
    struct session s;
    struct err err = { 0 };
    int status;

    cmd.program = program;
    cmd.opts = opts;
    cmd.synopsis = "[OPTION]... [FILE]";
    cmd.max_args = 1;
    operand = cmd_parse(&cmd, argc, argv);
    if (session_open_file(&s, &w, operand[0], &err) < 0)
        return cmd_fail(&cmd, &err);
    status = list(&s.study, json, &err);
    session_close(&s);
    return status < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, status);
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

int pareto_main(const char *program, int argc, char **argv)
{
    static const struct cmd cmd = { .name = "pareto",
                                    .summary =
                                        "Print the trials that no other dominates" };

    return list_main(&cmd, program, argc, argv, list_front);
}
