/* tell - finish a trial, note a value on the way, ask whether to go on */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/mem.h"

static int parse_values(double **out, size_t *n, char **words, struct err *err)
{
    *n = 0;
    while (words[*n])
        ++*n;
    *out = xcalloc(*n + 1, sizeof(**out));
    for (size_t i = 0; i < *n; i++)
        if (!study_value(&(*out)[i], words[i]))
            return err_set(err, ERR_USAGE, "'%s' is not a number", words[i]);
    return 0;
}

/* The constraints that WORDS name, on T. */
static int constrain(struct session *s, const struct study_trial *t,
                     const struct opt_list *words, struct err *err)
{
    struct str json = { 0 };
    double value;
    int ret = 0;

    for (size_t i = 0; i < words->n && ret == 0; i++) {
        if (!str_double(words->v[i], &value))
            ret = err_set(err, ERR_USAGE, "'%s' is not a number", words->v[i]);
        else
            str_addf(&json, i ? ", %.17g" : "[%.17g", value);
    }
    str_addc(&json, ']');
    if (ret == 0 && words->n)
        ret = session_constrain(s, t, json.s, err);
    str_clear(&json);
    return ret;
}

/* A trial with a NaN among its values fails, and a message says so. */
static int refuse_nan(struct session *s, const struct study_trial *t,
                      const double *values, size_t n, bool *refused, struct err *err)
{
    const struct ending end = { .status = -1, .reason = "nan is no value" };

    for (size_t i = 0; i < n; i++)
        *refused |= isnan(values[i]);
    return *refused ? session_explain(s, t, &end, err) : 0;
}

/* What tell is to do. */
struct telling {
    char **operand; /* the trial, and its values */
    const struct opt_list *constraints;
    enum study_state state;
    double *values; /* [n] */
    size_t n;
    bool refused; /* a value is NaN */
};

/* Has the trial ended as is to be told?  The answer to the first time was lost then. */
static bool is_told(const struct session *s, const struct telling *a)
{
    const struct study_trial *t = NULL;
    enum study_state state = a->state;
    int number;

    if (str_int(a->operand[0], &number))
        t = study_find(&s->study, number);
    for (size_t i = 0; i < a->n; i++)
        if (isnan(a->values[i]))
            state = STUDY_FAIL;
    if (!t || t->state != state)
        return false;
    for (size_t i = 0; i < a->n && state == STUDY_COMPLETE; i++)
        if (i >= t->nvalues || t->values[i] != a->values[i])
            return false;
    return true;
}

static int tell(struct session *s, void *arg, bool again, struct err *err)
{
    struct telling *a = arg;
    struct study_trial *t;

    if (again && is_told(s, a))
        return 0;
    t = session_trial(s, a->operand[0], a->state == STUDY_FAIL, err);
    if (!t || constrain(s, t, a->constraints, err) < 0 ||
        refuse_nan(s, t, a->values, a->n, &a->refused, err) < 0)
        return -1;
    return session_finish(s, t, a->state, a->values, a->n, err);
}

int tell_main(const char *program, int argc, char **argv)
{
    static const char *const states[] = { "complete", "pruned", "failed", NULL };
    static const enum study_state meant[] = { STUDY_COMPLETE, STUDY_PRUNED,
                                              STUDY_FAIL };
    struct where w = { 0 };
    struct opt_list constraints = { 0 };
    int state = 0, ret = -1;
    const struct opt opts[] = {
        WHERE_OPTIONS(w),
        { OPT_LIST, '\0', "constraint", &constraints, "X",
          "a constraint, violated above 0; once for each", NULL, NULL },
        { OPT_CHOICE, '\0', "state", &state, "STATE", "complete, pruned or failed",
          states, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "tell",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... TRIAL [VALUE]...",
                             .min_args = 1,
                             .max_args = -1,
                             .summary = "Finish a trial with its values" };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct telling a = { .operand = operand, .constraints = &constraints };
    struct session s;
    struct err err = { 0 };

    a.state = meant[state];
    if (state && operand[1])
        return cmd_usage(&cmd, "a trial that is %s has no values", states[state]);
    if (session_open(&s, &w, true, &err) < 0)
        return cmd_fail(&cmd, &err);
    if (session_trial(&s, operand[0], a.state == STUDY_FAIL, &err) &&
        parse_values(&a.values, &a.n, operand + 1, &err) == 0)
        ret = session_change(&s, tell, &a, &err);
    if (ret == 0 && a.refused)
        cmd_warn(&cmd, "trial %s: nan is no value: the trial is recorded as FAIL",
                 operand[0]);
    free(a.values);
    session_close(&s);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, 0);
}

/* What report is to do. */
struct reporting {
    const char *trial;
    int64_t step;
    double value;
};

static int report(struct session *s, void *arg, bool again, struct err *err)
{
    const struct reporting *a = arg;
    const struct study_trial *t = session_trial(s, a->trial, false, err);

    (void)again; /* the same once more is the same */
    if (!t || s->st->ops->set_report(s->st, t->id, a->step, a->value, err) < 0)
        return -1;
    return session_renew(s, t, err);
}

int report_main(const char *program, int argc, char **argv)
{
    struct where w = { 0 };
    const struct opt opts[] = { WHERE_OPTIONS(w), { .type = OPT_END } };
    const struct cmd cmd = { .name = "report",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... TRIAL STEP VALUE",
                             .min_args = 3,
                             .max_args = 3,
                             .summary = "Note a value on the way" };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct reporting a = { .trial = operand[0] };
    struct session s;
    struct err err = { 0 };
    int ret;

    if (!str_i64(operand[1], &a.step) || a.step < 0)
        return cmd_usage(&cmd, "'%s' is not a step", operand[1]);
    if (!study_value(&a.value, operand[2]))
        return cmd_usage(&cmd, "'%s' is not a number", operand[2]);
    if (session_open(&s, &w, true, &err) < 0)
        return cmd_fail(&cmd, &err);
    ret = session_change(&s, report, &a, &err);
    session_close(&s);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, 0);
}

/* What should-prune is to do, and its answer. */
struct judging {
    const char *trial;
    bool prune;
};

static int judge(struct session *s, void *arg, bool again, struct err *err)
{
    struct judging *a = arg;
    const struct study_trial *t = session_trial(s, a->trial, false, err);
    bool pauses;

    if (!t || session_pauses(&pauses, s, err) < 0 ||
        session_judge(s, t, &a->prune, err) < 0 ||
        (a->prune && session_condemn(s, t, err) < 0))
        return -1;
    /* of a pause the run waits for the end; and rungs are noted once */
    a->prune |= (pauses || again) && session_condemned(t);
    return 0;
}

int should_prune_main(const char *program, int argc, char **argv)
{
    struct where w = { 0 };
    const struct opt opts[] = { WHERE_OPTIONS(w), { .type = OPT_END } };
    const struct cmd cmd = { .name = "should-prune",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... TRIAL",
                             .min_args = 1,
                             .max_args = 1,
                             .summary =
                                 "Say whether a trial is worth finishing: status 0 "
                                 "to stop it, 1 to go on" };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct judging a = { .trial = operand[0] };
    struct session s;
    struct err err = { 0 };
    int ret;

    if (session_open(&s, &w, true, &err) < 0)
        return cmd_fail(&cmd, &err);
    ret = session_change(&s, judge, &a, &err);
    session_close(&s);
    if (ret < 0)
        return cmd_fail(&cmd, &err);
    puts(a.prune ? "prune" : "go on");
    return cmd_finish(&cmd, a.prune ? 0 : 1);
}
