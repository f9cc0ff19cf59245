/* ask - start a trial and print its parameters; enqueue - have parameters tried next */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"

static void print_point(const struct session *s, int number, const double *x, bool json)
{
    const struct space *space = &s->file.space;
    struct str out = { 0 };

    if (json) {
        str_addf(&out, "{\"type\": \"trial\", \"trial\": %d, \"params\": ", number);
        sweepfile_write_params(&out, space, x);
        str_addc(&out, '}');
    } else {
        str_addf(&out, "trial\t%d", number);
        for (size_t i = 0; i < space->n; i++)
            if (!isnan(x[i])) {
                str_addf(&out, "\n%s\t", space->params[i].name);
                dist_write_word(&out, &space->params[i].dist, x[i]);
            }
    }
    puts(out.s);
    str_clear(&out);
}

static int take_lease(struct session *s, int number, double seconds, struct err *err)
{
    return session_lease(s, study_find(&s->study, number)->id, seconds, NULL, err);
}

/* What ask does, and what becomes of it. */
struct asking {
    double seconds; /* of the lease; 0: none */
    char *mark;
    double *x;
    int number, drawn;
};

static int ask(struct session *s, void *arg, bool again, struct err *err)
{
    struct asking *a = arg;
    const struct study_trial *t = again ? session_marked(s, a->mark) : NULL;

    if (t) { /* the answer to the first time was lost */
        a->number = t->number;
        a->drawn = 1;
        session_point(a->x, s, t);
        return 0;
    }
    a->drawn = 0;
    if (session_end_leases(s, true, err) < 0)
        return -1;
    if (!session_is_full(s, s->file.run_cap, 0))
        a->drawn = session_draw(s, &a->number, a->x, err);
    if (a->drawn < 0)
        return -1;
    if (!a->drawn)
        return 0;
    if (s->st->ops->load(s->st, &s->study, s->name, err) < 0 ||
        session_mark(s, study_find(&s->study, a->number)->id, a->mark, err) < 0)
        return -1;
    return a->seconds > 0 ? take_lease(s, a->number, a->seconds, err) : 0;
}

int ask_main(const char *program, int argc, char **argv)
{
    struct wish w = { 0 };
    bool json = false;
    const char *lease = NULL;
    const struct opt opts[] = {
        WISH_OPTIONS(w),
        { OPT_STRING, '\0', "lease", &lease, "TIME",
          "after this without news, it is another's", NULL, NULL },
        { OPT_FLAG, '\0', "json", &json, NULL, "print one JSON object", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "ask",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... SWEEP",
                             .min_args = 1,
                             .max_args = 1,
                             .summary = "Start a trial and print its parameters" };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct session s;
    struct err err = { 0 };
    struct asking a = { 0 };
    int ret;

    if (lease && !str_duration(lease, &a.seconds))
        return cmd_usage(&cmd, "'%s' is not a time", lease);
    if (session_read_sweep(&s, operand[0], &w, &err) < 0 ||
        session_open_study(&s, &w, &err) < 0) {
        session_close(&s);
        return cmd_fail(&cmd, &err);
    }
    if (s.sampler.sampler->forks) {
        const char *name = s.sampler.sampler->name;

        session_close(&s);
        return cmd_usage(&cmd, "%s needs run, which gives a trial its checkpoint",
                         name);
    }
    session_advise(&s, &cmd);
    a.x = xcalloc(s.file.space.n, sizeof(*a.x));
    ret = session_mark_new(&a.mark, &err);
    if (ret == 0)
        ret = session_change(&s, ask, &a, &err);
    if (ret == 0 && a.drawn)
        print_point(&s, a.number, a.x, json);
    free(a.x);
    free(a.mark);
    session_close(&s);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, a.drawn ? 0 : 1);
}

/* NAME=VALUE as a member of a JSON object. */
static int add_fixed(struct str *out, bool *named, const struct space *space,
                     const char *word, struct err *err)
{
    size_t n = strcspn(word, "=");
    char *name = xstrndup(word, n);
    int at = space_find(space, name), ret = -1;
    struct str quoted = { 0 };
    struct json_doc doc;
    double value;
    bool known = false;

    if (!word[n]) {
        err_set(err, ERR_USAGE, "'%s' is not NAME=VALUE", word);
        goto out;
    }
    if (at < 0) {
        err_set(err, ERR_USAGE, "the sweep has no parameter '%s'", name);
        goto out;
    }
    if (named[at]) {
        err_set(err, ERR_USAGE, "%s is given twice", name);
        goto out;
    }
    named[at] = true;
    /* A value is JSON, or a word without quotes. */
    str_add_json(&quoted, word + n + 1);
    for (int i = 0; i < 2 && !known; i++) {
        const char *text = i ? quoted.s : word + n + 1;

        if (json_parse(&doc, name, text, strlen(text), NULL) < 0)
            continue;
        known = dist_read_value(&value, &space->params[at].dist, doc.root);
        json_clear(&doc);
    }
    if (!known) {
        err_set(err, ERR_USAGE, "%s: '%s' is outside its distribution", name,
                word + n + 1);
        goto out;
    }
    str_add(out, out->len > 1 ? ", " : "");
    str_add_json(out, name);
    str_add(out, ": ");
    dist_write_value(out, &space->params[at].dist, value);
    ret = 0;
out:
    str_clear(&quoted);
    free(name);
    return ret;
}

struct enqueuing {
    const char *fixed; /* the parameters, as JSON */
    char *mark;
};

static int enqueue(struct session *s, void *arg, bool again, struct err *err)
{
    const struct enqueuing *q = arg;
    int64_t id;
    int number;

    if (again && session_marked(s, q->mark))
        return 0;
    if (s->st->ops->add_trial(s->st, &s->study, STUDY_WAITING, &id, &number, err) < 0 ||
        session_mark(s, id, q->mark, err) < 0)
        return -1;
    return s->st->ops->set_attr(s->st, s->study.id, id, true, "fixed_params", q->fixed,
                                err);
}

int enqueue_main(const char *program, int argc, char **argv)
{
    struct wish w = { 0 };
    const struct opt opts[] = { WISH_OPTIONS(w), { .type = OPT_END } };
    const struct cmd cmd = { .name = "enqueue",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... SWEEP NAME=VALUE...",
                             .min_args = 2,
                             .max_args = -1,
                             .summary = "Have parameters tried next" };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct session s;
    struct err err = { 0 };
    struct str fixed = { 0 };
    struct enqueuing q = { 0 };
    bool *named;
    int ret = 0;

    if (session_read_sweep(&s, operand[0], &w, &err) < 0)
        return cmd_fail(&cmd, &err);
    str_addc(&fixed, '{');
    named = xcalloc(s.file.space.n, sizeof(*named));
    for (char **word = operand + 1; *word && ret == 0; word++)
        ret = add_fixed(&fixed, named, &s.file.space, *word, &err);
    free(named);
    str_addc(&fixed, '}');
    if (ret == 0)
        ret = session_open_study(&s, &w, &err);
    if (ret == 0)
        session_advise(&s, &cmd);
    q.fixed = fixed.s;
    if (ret == 0)
        ret = session_mark_new(&q.mark, &err);
    if (ret == 0)
        ret = session_change(&s, enqueue, &q, &err);
    free(q.mark);
    str_clear(&fixed);
    session_close(&s);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, 0);
}
