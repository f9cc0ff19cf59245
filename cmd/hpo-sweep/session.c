/* session - an open study: begun, loaded, drawn from, told */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"

void session_close(struct session *s)
{
    if (s->open)
        s->st->ops->give_up(s->st);
    study_clear(&s->study);
    sweepfile_clear(&s->file);
    storage_close(s->st);
    free(s->name);
    free(s->url);
    *s = (struct session){ 0 };
}

static int load(struct session *s, struct err *err)
{
    int found = s->st->ops->load(s->st, &s->study, s->name, err);

    if (found == 0)
        return err_set(err, ERR_INPUT, "%s: no study '%s'", s->st->name, s->name);
    return found < 0 ? -1 : 0;
}

/* The only study of the storage. */
static int only_study(struct session *s, struct err *err)
{
    char **names;
    size_t n;
    int ret = -1;

    if (s->st->ops->list(s->st, &names, &n, err) < 0)
        return -1;
    if (n == 1) {
        s->name = xstrdup(names[0]);
        ret = 0;
    } else if (!n) {
        err_set(err, ERR_INPUT, "%s holds no study", s->st->name);
    } else {
        struct str all = { 0 };

        for (size_t i = 0; i < n && all.len < 200; i++)
            str_addf(&all, "%s%.100s", i ? ", " : "", names[i]);
        err_set(err, ERR_USAGE, "%s holds %zu studies: choose one with --study: %.200s",
                s->st->name, n, all.s);
        str_clear(&all);
    }
    fs_list_free(names, n);
    return ret;
}

/* Another process has the lock: a person may want to know why nothing happens. */
static void say_waiting(const char *what)
{
    struct str shown = { 0 };

    str_add_printable(&shown, what);
    fprintf(stderr, "hpo-sweep: %s: waiting for another's lock\n", str_text(&shown));
    str_clear(&shown);
}

static int begin_and_load(struct session *s, bool change, struct err *err)
{
    if (s->st->ops->begin(s->st, change, err) < 0)
        return -1;
    s->open = true;
    if (!s->name && only_study(s, err) < 0)
        return -1;
    return load(s, err);
}

int session_open(struct session *s, const struct where *w, bool change, struct err *err)
{
    const char *url = w->storage ? w->storage : getenv("HPO_STORAGE");
    const char *name = w->study || w->storage ? w->study : getenv("HPO_STUDY");

    *s = (struct session){ 0 };
    if (!url)
        return err_set(err, ERR_USAGE, "which study? give --storage");
    s->url = xstrdup(url);
    if (storage_open(&s->st, url, false, say_waiting, err) < 0)
        goto fail;
    s->name = name ? xstrdup(name) : NULL;
    while (begin_and_load(s, change, err) < 0)
        if (!change || session_again(s, err) < 0)
            goto fail;
    return 0;
fail:
    session_close(s);
    return -1;
}

/* PATH without its directory, if BARE, and its suffix. */
static char *stem_dup(const char *path, bool bare)
{
    const char *base = fs_basename(path);
    const char *dot = strrchr(base, '.');
    size_t n = dot && dot > base ? (size_t)(dot - base) : strlen(base);

    return bare ? xstrndup(base, n) : xstrndup(path, (size_t)(base - path) + n);
}

/* One direction per objective: the options, else the file's metrics, else minimize. */
static int directions(bool **out, size_t *n, const struct sweepfile *f,
                      const struct wish *w, struct err *err)
{
    size_t objectives = w->directions.n ? w->directions.n
                        : f->nmetrics   ? f->nmetrics
                                        : 1;

    if (w->metrics.n && !w->directions.n && !f->nmetrics)
        objectives = w->metrics.n;
    *out = xcalloc(objectives, sizeof(**out));
    *n = objectives;
    for (size_t i = 0; i < objectives; i++) {
        if (i < w->directions.n) {
            const char *word = w->directions.v[i];

            (*out)[i] = !strcmp(word, "maximize") || !strcmp(word, "max");
            if (!(*out)[i] && strcmp(word, "minimize") && strcmp(word, "min"))
                return err_set(err, ERR_USAGE,
                               "a direction is minimize or maximize, not '%s'", word);
        } else if (i < f->nmetrics) {
            (*out)[i] = f->metrics[i].maximize;
        }
    }
    if (w->metrics.n && w->metrics.n != objectives)
        return err_set(err, ERR_USAGE, "%zu metrics for %zu objectives", w->metrics.n,
                       objectives);
    return 0;
}

static int set_study_attr(struct session *s, const char *key, const char *json,
                          struct err *err)
{
    study_set_attr(&s->study.system, key, json);
    return s->st->ops->set_attr(s->st, s->study.id, -1, true, key, json, err);
}

static int fresh_seed(uint64_t *out, struct err *err)
{
    static const char path[] = "/dev/urandom";
    uint64_t seed;
    FILE *fp = fopen(path, "rb");
    bool ok = fp && fread(&seed, sizeof(seed), 1, fp) == 1;
    int ret = ok ? 0 : err_errno(err, "%s", path);

    if (fp)
        fclose(fp);
    if (ok)
        *out = seed >> 12; /* exact in every reader of JSON */
    return ret;
}

static int note_names(struct session *s, const struct wish *w, struct err *err)
{
    struct str json = { 0 };
    size_t n = w->metrics.n ? w->metrics.n : s->file.nmetrics;
    int ret;

    if (!n || n != s->study.nobjectives)
        return 0;
    for (size_t i = 0; i < n; i++) {
        str_add(&json, i ? ", " : "[");
        str_add_json(&json, w->metrics.n ? w->metrics.v[i] : s->file.metrics[i].name);
    }
    str_addc(&json, ']');
    ret = set_study_attr(s, STUDY_NAMES_KEY, json.s, err);
    str_clear(&json);
    return ret;
}

/* What a study keeps from its start. */
static int note_beginning(struct session *s, const struct wish *w, bool wider,
                          struct err *err)
{
    char *space, *seed, *id;
    uint64_t number[2] = { 0 };
    int ret = 0;

    if (fresh_seed(&number[0], err) < 0 || fresh_seed(&number[1], err) < 0)
        return -1;
    space = study_space_text(&s->file.space);
    seed = str_dupf("%" PRIu64, w->has_seed ? w->seed : number[0]);
    id = str_dupf("%" PRIu64, number[1]);

    if (wider || !study_attr(&s->study.system, STUDY_SPACE_KEY))
        ret = set_study_attr(s, STUDY_SPACE_KEY, space, err);
    if (ret == 0 && !study_attr(&s->study.system, STUDY_SEED_KEY)) {
        ret = set_study_attr(s, STUDY_SEED_KEY, seed, err);
        if (ret == 0)
            ret = note_names(s, w, err);
    }
    if (ret == 0 && !study_attr(&s->study.system, STUDY_ID_KEY))
        ret = set_study_attr(s, STUDY_ID_KEY, id, err);
    free(space);
    free(seed);
    free(id);
    return ret;
}

static int check_pruner(const char *spec, size_t nobjectives, struct err *err)
{
    struct pruner_choice pruner;

    if (pruner_parse(&pruner, spec, err) < 0)
        return -1;
    if (pruner.pruner != &pruner_none && nobjectives > 1)
        return err_set(err, ERR_USAGE, "no trial of several objectives is pruned");
    return 0;
}

/* The pruner is kept in the study, so that should-prune needs no sweep file. */
static int note_pruner(struct session *s, const char *spec, struct err *err)
{
    const char *old = study_attr(&s->study.system, STUDY_PRUNER_KEY);
    struct str json = { 0 };
    int ret = 0;

    if (!spec)
        return 0;
    if (check_pruner(spec, s->study.nobjectives, err) < 0)
        return -1;
    str_add_json(&json, spec);
    if (!old || strcmp(old, json.s))
        ret = set_study_attr(s, STUDY_PRUNER_KEY, json.s, err);
    str_clear(&json);
    return ret;
}

/* Where nothing is said of them, those of the study hold. */
static bool says_objectives(const struct session *s, const struct wish *w)
{
    return w->directions.n || w->metrics.n || s->file.nmetrics;
}

static int refuse_objectives(const struct session *s, struct err *err)
{
    struct str ways = { 0 };

    for (size_t i = 0; i < s->study.nobjectives; i++)
        str_addf(&ways, "%s%s", i ? ", " : "",
                 s->study.maximize[i] ? "maximize" : "minimize");
    err_set(err, ERR_INPUT, "study '%s' has other objectives: %.200s", s->name,
            str_text(&ways));
    str_clear(&ways);
    return -1;
}

/* Load the study, or create it first. */
static int find_or_create(struct session *s, const struct wish *w, struct err *err)
{
    bool *maximize = NULL;
    size_t n;
    int ret = directions(&maximize, &n, &s->file, w, err);

    if (ret == 0)
        ret = s->st->ops->load(s->st, &s->study, s->name, err);
    if (ret == 0) {
        ret = s->st->ops->create(s->st, s->name, maximize, n, err);
        if (ret == 0)
            ret = load(s, err);
    } else if (ret > 0) {
        ret = 0;
        if (says_objectives(s, w) &&
            (n != s->study.nobjectives || memcmp(maximize, s->study.maximize, n)))
            ret = refuse_objectives(s, err);
    }
    free(maximize);
    return ret;
}

static int choose_sampler(struct sampler_choice *out, const struct sweepfile *f,
                          size_t nobjectives, const struct wish *w, struct err *err)
{
    const char *spec = w->sampler ? w->sampler : f->sampler;

    if (!spec)
        spec = nobjectives > 1 ? "nsga-ii" : "tpe";
    if (sampler_parse(out, spec, err) < 0 ||
        sampler_check(out, &f->space, nobjectives, err) < 0)
        return -1;
    return 0;
}

const char *const direction_words[] = { "minimize", "maximize", NULL };

const char *const *wish_samplers(struct wish *w)
{
    size_t n = 0;

    for (; sampler_all[n]; n++) {
        assert(n + 1 < WISH_WORDS);
        w->samplers[n] = sampler_all[n]->name;
    }
    w->samplers[n] = NULL;
    return w->samplers;
}

const char *const *wish_pruners(struct wish *w)
{
    size_t n = 0;

    for (; pruner_all[n]; n++) {
        assert(n + 1 < WISH_WORDS);
        w->pruners[n] = pruner_all[n]->name;
    }
    w->pruners[n] = NULL;
    return w->pruners;
}

int wish_check(const struct wish *w, struct sampler_choice *sampler,
               const struct sweepfile *f, struct err *err)
{
    const char *pruner = w->pruner ? w->pruner : f->pruner;
    bool *maximize = NULL;
    size_t n;
    int ret = directions(&maximize, &n, f, w, err);

    free(maximize);
    if (ret == 0)
        ret = choose_sampler(sampler, f, n, w, err);
    return ret == 0 && pruner ? check_pruner(pruner, n, err) : ret;
}

int session_read_sweep(struct session *s, const char *path, const struct wish *w,
                       struct err *err)
{
    bool found;

    *s = (struct session){ 0 };
    if (sweepfile_read(&s->file, path, err) < 0)
        return -1;
    if (!strcmp(path, "-") &&
        (!w->where.storage || (!w->where.study && !s->file.name))) {
        err_set(err, ERR_USAGE,
                "a sweep on standard input needs --storage and --study");
        goto fail;
    }
    if (w->where.study)
        s->name = xstrdup(w->where.study);
    else
        s->name = s->file.name ? xstrdup(s->file.name) : stem_dup(path, true);
    if (!*s->name) {
        err_set(err, ERR_USAGE, "%s: the study's name is empty", path);
        goto fail;
    }
    if (w->where.storage) {
        s->url = xstrdup(w->where.storage);
    } else {
        char *stem = stem_dup(path, false);

        s->url = str_dupf("%s.db", stem);
        free(stem);
    }
    /* Where there is a study, it may say how many objectives there are. */
    if (storage_find(&found, s->url, err) < 0 ||
        (!found && wish_check(w, &s->sampler, &s->file, err) < 0))
        goto fail;
    return 0;
fail:
    session_close(s);
    return -1;
}

/* As study_check_space, and what to do about a difference. */
static int check_space(const struct session *s, struct err *err)
{
    int wider = study_check_space(&s->study, &s->file.space, err);
    char *cause;

    if (wider >= 0)
        return wider;
    cause = xstrdup(err->text);
    err_set(err, err->kind, "%s; run --study NEW --warm-start %s takes its trials over",
            cause, s->name);
    free(cause);
    return -1;
}

int session_open_study(struct session *s, const struct wish *w, struct err *err)
{
    int ret;

    if (storage_open(&s->st, s->url, true, say_waiting, err) < 0)
        return -1;
    while ((ret = session_prepare(s, w, err)) < 0 && session_again(s, err) == 0)
        ;
    return ret;
}

int session_prepare(struct session *s, const struct wish *w, struct err *err)
{
    const char *seed;
    int wider;

    if (s->st->ops->begin(s->st, true, err) < 0)
        return -1;
    s->open = true;
    if (find_or_create(s, w, err) < 0 || (wider = check_space(s, err)) < 0 ||
        choose_sampler(&s->sampler, &s->file, s->study.nobjectives, w, err) < 0 ||
        note_beginning(s, w, wider > 0, err) < 0 ||
        note_pruner(s, w->pruner ? w->pruner : s->file.pruner, err) < 0)
        return -1;
    seed = study_attr(&s->study.system, STUDY_SEED_KEY);
    if (!seed || !str_u64(seed, &s->seed))
        return err_set(err, ERR_INPUT, "%s: study '%s' has no seed", s->st->name,
                       s->name);
    return 0;
}

void session_advise(const struct session *s, const struct cmd *cmd)
{
    if (s->st->advice)
        cmd_warn(cmd, "%s %s", s->st->name, s->st->advice);
}

int session_begin(struct session *s, struct err *err)
{
    if (s->st->ops->begin(s->st, true, err) < 0)
        return -1;
    s->open = true;
    return load(s, err);
}

int session_end(struct session *s, struct err *err)
{
    if (s->st->ops->end(s->st, err) < 0)
        return -1;
    s->open = false;
    return 0;
}

bool session_is_busy(struct study *s)
{
    for (size_t i = study_first_open(s); i < s->n; i++)
        if (!study_finished(&s->trials[i]))
            return true;
    return false;
}

int session_look_again(struct session *s, struct err *err)
{
    int ret;

    if (s->open) /* what was read at first is one moment's */
        s->st->ops->give_up(s->st);
    s->open = false;
    if (s->st->ops->begin(s->st, false, err) < 0)
        return -1;
    ret = load(s, err);
    s->st->ops->give_up(s->st);
    return ret;
}

/* For which a command waits for a database, in seconds. */
static double patience(void)
{
    const char *text = getenv("HPO_PATIENCE");
    double seconds;

    return text && str_double(text, &seconds) && seconds >= 0 ? seconds : 60;
}

int session_again(struct session *s, struct err *err)
{
    struct err why = *err;
    double nap = 0.1;

    if (!s->st || !s->st->passing)
        return -1;
    if (s->given_up == 0) {
        struct str shown = { 0 };

        s->given_up = clock_seconds() + patience();
        str_add_printable(&shown, err->text);
        if (clock_seconds() < s->given_up)
            fprintf(stderr, "hpo-sweep: %s; trying again\n", str_text(&shown));
        str_clear(&shown);
    }
    for (;;) {
        struct timespec t = { .tv_sec = (time_t)nap };

        if (clock_seconds() >= s->given_up) {
            *err = why;
            return -1;
        }
        if (session_recover(s, &why) == 0)
            break;
        if (!s->st->passing) {
            *err = why;
            return -1;
        }
        t.tv_nsec = (long)((nap - (double)t.tv_sec) * 1e9);
        nanosleep(&t, NULL);
        nap = fmin(2 * nap, 5);
    }
    s->st->passing = false;
    return 0;
}

int session_change(struct session *s,
                   int (*change)(struct session *s, void *arg, bool again,
                                 struct err *err),
                   void *arg, struct err *err)
{
    for (bool again = false;; again = true) {
        int ret = again ? session_begin(s, err) : 0;

        if (ret == 0)
            ret = change(s, arg, again, err);
        if (ret == 0)
            ret = session_end(s, err);
        if (ret == 0 || session_again(s, err) < 0)
            return ret;
    }
}

#define MARK_KEY "hpo-sweep:mark"

int session_mark_new(char **mark, struct err *err)
{
    uint64_t number = 0;

    if (fresh_seed(&number, err) < 0)
        return -1;
    *mark = str_dupf("%" PRIu64, number);
    return 0;
}

int session_mark(struct session *s, int64_t id, const char *mark, struct err *err)
{
    return s->st->ops->recover
               ? s->st->ops->set_attr(s->st, s->study.id, id, true, MARK_KEY, mark, err)
               : 0;
}

const struct study_trial *session_marked(const struct session *s, const char *mark)
{
    for (size_t i = s->study.n; i-- > 0;) {
        const char *its = study_attr(&s->study.trials[i].system, MARK_KEY);

        if (its && !strcmp(its, mark))
            return &s->study.trials[i];
    }
    return NULL;
}

void session_point(double *x, const struct session *s, const struct study_trial *t)
{
    const struct space *space = &s->file.space;

    for (size_t i = 0; i < space->n; i++)
        x[i] = NAN;
    for (size_t k = 0; k < t->nparams; k++) {
        int at = space_find(space, s->study.names[t->params[k].name]);

        if (at >= 0)
            x[at] = t->params[k].value;
    }
}

int session_recover(struct session *s, struct err *err)
{
    s->open = false;
    study_clear(&s->study); /* it has what was not committed */
    return s->st->ops->recover(s->st, err);
}

/* The parameters that an enqueued trial wants: an object of external values. */
static int read_fixed(double *fixed, const struct session *s,
                      const struct study_trial *t, struct err *err)
{
    const struct space *space = &s->file.space;
    const char *text = study_attr(&t->system, "fixed_params");
    struct json_doc doc;
    int ret = 0;

    for (size_t i = 0; i < space->n; i++)
        fixed[i] = NAN;
    if (!text)
        return 0;
    if (json_parse(&doc, "fixed_params", text, strlen(text), err) < 0)
        return err_prefix(err, "trial %d", t->number);
    if (doc.root->type != JSON_OBJECT)
        ret = err_set(err, ERR_INPUT, "trial %d: fixed_params is no object", t->number);
    for (const struct json *j = doc.root->first; j && ret == 0; j = j->next) {
        int at = space_find(space, j->key);

        if (at >= 0 && !dist_read_value(&fixed[at], &space->params[at].dist, j))
            ret = err_set(err, ERR_INPUT,
                          "trial %d: the enqueued value of %s is outside "
                          "its distribution",
                          t->number, j->key);
    }
    json_clear(&doc);
    return ret;
}

static int write_number(struct session *s, int64_t id, const char *key, int number,
                        struct err *err)
{
    char text[16];

    if (!key || number < 0)
        return 0;
    snprintf(text, sizeof(text), "%d", number);
    return s->st->ops->set_attr(s->st, s->study.id, id, true, key, text, err);
}

static int write_point(struct session *s, int64_t id, const double *x,
                       const struct sampler_note *note, struct err *err)
{
    const struct space *space = &s->file.space;

    for (size_t i = 0; i < space->n; i++)
        if (!isnan(x[i]) &&
            s->st->ops->set_param(s->st, id, space->params[i].name, x[i],
                                  &space->params[i].dist, err) < 0)
            return -1;
    if (write_number(s, id, s->sampler.sampler->generation_key, note->generation, err) <
            0 ||
        write_number(s, id, STUDY_MEMBER_KEY, note->member, err) < 0)
        return -1;
    return write_number(s, id, STUDY_PARENT_KEY, note->parent, err);
}

/* Does T go on with a training, so that its point is fixed? */
static bool continues(const struct study_trial *t)
{
    return study_attr(&t->system, STUDY_RESUMES_KEY) ||
           study_attr(&t->system, STUDY_MEMBER_KEY);
}

/* What goes on comes first. */
static const struct study_trial *first_waiting(struct study *s)
{
    const struct study_trial *first = NULL;

    for (size_t i = study_first_open(s); i < s->n; i++) {
        const struct study_trial *t = &s->trials[i];

        if (t->state == STUDY_WAITING && continues(t))
            return t;
        if (t->state == STUDY_WAITING && !first)
            first = t;
    }
    return first;
}

bool session_goes_on(struct session *s)
{
    const struct study_trial *t = first_waiting(&s->study);

    return t && continues(t);
}

uint64_t session_done(struct session *s, uint64_t pardoned, bool begun)
{
    struct study_counts c;
    uint64_t failed, done;

    study_count(&c, &s->study);
    failed = c.failed - c.infeasible;
    failed -= c.retried < failed ? c.retried : failed;
    done = c.complete + c.pruned - c.given - c.resumed + c.infeasible + failed +
           (begun ? c.running : 0);
    return done - (failed < pardoned ? failed : pardoned);
}

bool session_is_full(struct session *s, uint64_t cap, uint64_t pardoned)
{
    return cap && session_done(s, pardoned, true) >= cap;
}

int session_draw(struct session *s, int *number, double *x, struct err *err)
{
    const struct study_trial *waiting;
    const struct space *space = &s->file.space;
    double *fixed;
    struct sampler_note note = { -1, -1, -1 };
    int ret = -1, drawn = 1, next;
    struct history h;
    int64_t id;

    waiting = first_waiting(&s->study);
    next = waiting ? waiting->number : (int)s->study.n;
    id = waiting ? waiting->id : 0;
    fixed = xcalloc(space->n, sizeof(*fixed));
    if (s->sampler.sampler->blind && !s->sampler.distinct)
        history_init(&h, space->n, s->study.nobjectives);
    else
        study_history(&h, &s->study, space, s->sampler.sampler->generation_key, next);
    if (waiting && read_fixed(fixed, s, waiting, err) < 0)
        goto out;
    if (waiting && continues(waiting)) {
        memcpy(x, fixed, space->n * sizeof(*x));
        space_settle(space, x);
    } else {
        drawn = sampler_draw(x, &note, &s->sampler, space, &h, s->seed, next,
                             waiting ? fixed : NULL);
    }
    if (drawn != 1) {
        ret = drawn;
        goto out;
    }
    if (waiting
            ? s->st->ops->set_state(s->st, id, STUDY_RUNNING, NULL, 0, NULL, err) < 0
            : s->st->ops->add_trial(s->st, &s->study, STUDY_RUNNING, &id, number, err) <
                  0)
        goto out;
    if (waiting)
        *number = next;
    if (write_point(s, id, x, &note, err) == 0)
        ret = 1;
out:
    history_clear(&h);
    free(fixed);
    return ret;
}

struct study_trial *session_trial(struct session *s, const char *text, bool waiting,
                                  struct err *err)
{
    struct study_trial *t = NULL;
    int number;

    if (!str_int(text, &number))
        err_set(err, ERR_USAGE, "'%s' is not the number of a trial", text);
    else if (!(t = study_find(&s->study, number)))
        err_set(err, ERR_INPUT, "study '%s' has no trial %d", s->name, number);
    else if (study_finished(t))
        err_set(err, ERR_INPUT, "trial %d is finished (%s)", number,
                study_state_name(t->state));
    else if (t->state == STUDY_WAITING && !waiting)
        err_set(err, ERR_INPUT, "trial %d waits to be tried", number);
    else
        return t;
    return NULL;
}

int session_finish(struct session *s, struct study_trial *t, enum study_state state,
                   const double *values, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(values[i]))
            state = STUDY_FAIL;
    if (state == STUDY_FAIL) {
        n = 0;
    } else if (state == STUDY_PRUNED) {
        values = t->nreports ? &t->reports[t->nreports - 1] : NULL;
        n = values && !isnan(*values) && s->study.nobjectives == 1;
    } else if (n != s->study.nobjectives) {
        return err_set(err, ERR_USAGE, "%zu values for %zu objectives", n,
                       s->study.nobjectives);
    }
    return s->st->ops->set_state(s->st, t->id, state, values, n, NULL, err);
}

int session_constrain(struct session *s, const struct study_trial *t, const char *json,
                      struct err *err)
{
    return s->st->ops->set_attr(s->st, s->study.id, t->id, true, "constraints", json,
                                err);
}

int session_condemn(struct session *s, const struct study_trial *t, struct err *err)
{
    return s->st->ops->set_attr(s->st, s->study.id, t->id, true, STUDY_PRUNE_KEY,
                                "true", err);
}

bool session_condemned(const struct study_trial *t)
{
    return study_attr(&t->system, STUDY_PRUNE_KEY) != NULL;
}

int session_judge(struct session *s, const struct study_trial *t, bool *prune,
                  struct err *err)
{
    struct curve *curves;
    struct pruner_choice pruner;
    struct pruner_verdict v;
    struct pruner_task task;
    struct str value = { 0 };
    int ret = 0;

    *prune = false;
    if (session_pruner(&pruner, s, err) < 0)
        return -1;
    if (pruner.pruner == &pruner_none)
        return 0;
    curves = study_curves_new(&s->study);
    task = (struct pruner_task){ s->name, s->study.maximize[0], curves, s->study.n,
                                 &curves[t->number] };
    pruner_judge(&v, &pruner, &task);
    study_add_value(&value, v.rung_value);
    for (int k = v.first_rung; k < v.end_rung && ret == 0; k++) {
        char key[40];

        snprintf(key, sizeof(key), PRUNER_RUNG_KEY, k);
        ret = s->st->ops->set_attr(s->st, s->study.id, t->id, true, key, value.s, err);
    }
    *prune = v.prune;
    str_clear(&value);
    study_curves_free(curves, s->study.n);
    return ret;
}
