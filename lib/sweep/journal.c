/* journal - studies in Optuna's journal file
 *
 * A line of JSON for each change, appended under a lock; the state is what all lines in
 * turn make.  Operations and the lock (a symbolic link beside the file, given up when
 * the file has not changed for 30 seconds) are those of Optuna's JournalStorage with
 * its default file backend, so that its workers share the file, on NFS as well.  A line
 * that a dead writer left unfinished is cut off under the lock. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/sweep/storage.h"

enum { GRACE_S = 30, CHUNK = 1 << 20, TIME_SIZE = 40 };

/* Optuna's JournalOperation. */
enum op {
    OP_CREATE_STUDY,
    OP_DELETE_STUDY,
    OP_STUDY_USER_ATTR,
    OP_STUDY_SYSTEM_ATTR,
    OP_CREATE_TRIAL,
    OP_TRIAL_PARAM,
    OP_TRIAL_STATE,
    OP_TRIAL_REPORT,
    OP_TRIAL_USER_ATTR,
    OP_TRIAL_SYSTEM_ATTR,
    OP_DISCARD_TRIALS, /* of another implementation; Optuna passes it over */
    OPS
};

struct journal_study {
    char *name;
    bool deleted;
    int64_t trials;
};

/* Where a trial of the file is: its study and number there. */
struct journal_trial {
    int64_t study;
    int number;
    enum study_state state;
};

struct journal {
    struct storage base;
    char *path, *lock;
    char worker[64];
    int fd;
    bool locked;
    uint64_t begun; /* size of the file when the change began */
    uint64_t read;  /* bytes that were applied */
    int line;
    struct journal_study *study;
    size_t nstudies, studies_cap;
    struct journal_trial *trial;
    size_t ntrials, trials_cap;
    struct study *target; /* what load filled: follows what is applied */
};

/* ---- applying a line ---- */

/* The study that J is loading, when ID is its. */
static struct study *target_of(const struct journal *j, int64_t id)
{
    return j->target && j->target->name && j->target->id == id ? j->target : NULL;
}

static struct study_trial *trial_in_target(const struct journal *j, int64_t id)
{
    struct study *s;

    if (id < 0 || (size_t)id >= j->ntrials)
        return NULL;
    s = target_of(j, j->trial[id].study);
    return s ? study_find(s, j->trial[id].number) : NULL;
}

static bool is_finished(enum study_state s)
{
    return s == STUDY_COMPLETE || s == STUDY_PRUNED || s == STUDY_FAIL;
}

/* May trial ID be changed?  Optuna passes over changes of what is not there or is
 * finished. */
static bool updatable(const struct journal *j, int64_t id)
{
    return id >= 0 && (size_t)id < j->ntrials && !is_finished(j->trial[id].state);
}

/* "2024-05-06T07:08:09.123456+00:00" as a study has it. */
static char *time_dup(const char *iso)
{
    char *out;

    if (!iso || strlen(iso) < 19)
        return NULL;
    out = xstrndup(iso, strcspn(iso, "+Z"));
    if (out[10] == 'T')
        out[10] = ' ';
    return out;
}

static void set_time(char **at, const char *iso)
{
    if (!iso)
        return;
    free(*at);
    *at = time_dup(iso);
}

/* A number, or one of the words that stand for what JSON has no number for. */
static double number_of(const struct json *v)
{
    const char *word = json_string(v);
    double x = NAN;

    if (word && !strcmp(word, "Infinity"))
        return INFINITY;
    if (word && !strcmp(word, "-Infinity"))
        return -INFINITY;
    return json_double(v, &x) ? x : NAN;
}

static void apply_attr(struct study_attrs *to, const struct json *attr)
{
    struct str text = { 0 };

    if (!attr || !attr->first)
        return;
    json_print(&text, attr->first);
    study_set_attr(to, attr->first->key, str_text(&text));
    str_clear(&text);
}

static void apply_attrs(struct study_attrs *to, const struct json *attrs)
{
    for (const struct json *a = attrs ? attrs->first : NULL; a; a = a->next) {
        struct str text = { 0 };

        json_print(&text, a);
        study_set_attr(to, a->key, str_text(&text));
        str_clear(&text);
    }
}

static void apply_values(struct study_trial *t, const struct json *values)
{
    size_t i = 0;

    for (const struct json *v = values ? values->first : NULL; v; v = v->next)
        study_set_value(t, i++, number_of(v));
}

static void create_study(struct journal *j, const struct json *log)
{
    const char *name = json_string(json_get(log, "study_name"));
    const struct json *directions = json_get(log, "directions");

    for (size_t i = 0; name && i < j->nstudies; i++)
        if (!j->study[i].deleted && !strcmp(j->study[i].name, name))
            return;
    j->study = xgrow(j->study, &j->studies_cap, j->nstudies + 1, sizeof(*j->study));
    j->study[j->nstudies++] =
        (struct journal_study){ .name = xstrdup(name ? name : "") };
    if (!j->target || !j->target->name || !name || strcmp(j->target->name, name) != 0 ||
        j->target->id >= 0)
        return;
    j->target->id = (int64_t)j->nstudies - 1;
    for (const struct json *d = directions ? directions->first : NULL; d; d = d->next) {
        uint64_t way = 1;

        json_u64(d, &way);
        j->target->maximize =
            xrealloc(j->target->maximize,
                     sizeof(*j->target->maximize) * (j->target->nobjectives + 1));
        j->target->maximize[j->target->nobjectives++] = way == 2;
    }
}

/* A trial that comes with all it has, as enqueued ones do. */
static int apply_template(struct journal *j, struct study_trial *t,
                          const struct json *log, struct err *err)
{
    const struct json *params = json_get(log, "params"),
                      *value = json_get(log, "value");
    const struct json *reports = json_get(log, "intermediate_values");
    const struct json *dists = json_get(log, "distributions");

    for (const struct json *p = params ? params->first : NULL; p; p = p->next) {
        const char *dist = json_string(json_get(dists, p->key));

        if (!dist || study_add_param(j->target, t, p->key, number_of(p), dist, err) < 0)
            return dist ? -1
                        : err_set(err, ERR_INPUT, "parameter '%s' has no distribution",
                                  p->key);
    }
    if (value && value->type != JSON_NULL)
        study_set_value(t, 0, number_of(value));
    apply_values(t, json_get(log, "values"));
    for (const struct json *r = reports ? reports->first : NULL; r; r = r->next) {
        int64_t step;

        if (str_i64(r->key, &step))
            study_set_report(t, step, number_of(r));
    }
    apply_attrs(&t->user, json_get(log, "user_attrs"));
    apply_attrs(&t->system, json_get(log, "system_attrs"));
    set_time(&t->start, json_string(json_get(log, "datetime_start")));
    set_time(&t->complete, json_string(json_get(log, "datetime_complete")));
    return 0;
}

static int create_trial(struct journal *j, const struct json *log, int64_t study,
                        struct err *err)
{
    uint64_t state = STUDY_RUNNING;
    struct journal_study *in;
    struct study *s = target_of(j, study);

    if (study < 0 || (size_t)study >= j->nstudies || j->study[study].deleted)
        return 0;
    json_u64(json_get(log, "state"), &state);
    if (state >= STUDY_NSTATES)
        return err_set(err, ERR_INPUT, "no state %" PRIu64, state);
    in = &j->study[study];
    j->trial = xgrow(j->trial, &j->trials_cap, j->ntrials + 1, sizeof(*j->trial));
    j->trial[j->ntrials++] = (struct journal_trial){ .study = study,
                                                     .number = (int)in->trials++,
                                                     .state = (enum study_state)state };
    if (!s)
        return 0;
    return apply_template(
        j, study_add_trial(s, (int64_t)j->ntrials - 1, (enum study_state)state), log,
        err);
}

static int set_param(struct journal *j, const struct json *log, int64_t id,
                     struct err *err)
{
    struct study_trial *t = trial_in_target(j, id);
    const char *name = json_string(json_get(log, "param_name"));
    const char *dist = json_string(json_get(log, "distribution"));

    if (!t || !name || !dist)
        return 0;
    return study_add_param(j->target, t, name,
                           number_of(json_get(log, "param_value_internal")), dist, err);
}

static int set_state(struct journal *j, const struct json *log, int64_t id,
                     struct err *err)
{
    struct study_trial *t = trial_in_target(j, id);
    uint64_t state = STUDY_NSTATES;

    if (!json_u64(json_get(log, "state"), &state) || state >= STUDY_NSTATES)
        return err_set(err, ERR_INPUT, "no such state");
    if (state == STUDY_RUNNING && j->trial[id].state == STUDY_RUNNING)
        return 0; /* another worker was first */
    j->trial[id].state = (enum study_state)state;
    if (!t)
        return 0;
    t->state = (enum study_state)state;
    if (state == STUDY_RUNNING)
        set_time(&t->start, json_string(json_get(log, "datetime_start")));
    if (is_finished(t->state))
        set_time(&t->complete, json_string(json_get(log, "datetime_complete")));
    apply_values(t, json_get(log, "values"));
    return 0;
}

static int apply_to_trial(struct journal *j, enum op op, const struct json *log,
                          struct err *err)
{
    struct study_trial *t;
    int64_t id = -1, step;

    json_i64(json_get(log, "trial_id"), &id);
    if (!updatable(j, id))
        return 0;
    t = trial_in_target(j, id);
    switch (op) {
    case OP_TRIAL_PARAM:
        return set_param(j, log, id, err);
    case OP_TRIAL_STATE:
        return set_state(j, log, id, err);
    case OP_TRIAL_REPORT:
        if (t && json_i64(json_get(log, "step"), &step))
            study_set_report(t, step, number_of(json_get(log, "intermediate_value")));
        return 0;
    case OP_TRIAL_USER_ATTR:
        if (t)
            apply_attr(&t->user, json_get(log, "user_attr"));
        return 0;
    default:
        if (t)
            apply_attr(&t->system, json_get(log, "system_attr"));
        return 0;
    }
}

static int apply(struct journal *j, const struct json *log, struct err *err)
{
    uint64_t op = OPS;
    int64_t study = -1;
    struct study *s;

    if (!json_u64(json_get(log, "op_code"), &op) || op >= OPS)
        return err_set(err, ERR_INPUT,
                       "unknown operation; a newer Optuna may have written it");
    json_i64(json_get(log, "study_id"), &study);
    s = target_of(j, study);
    switch ((enum op)op) {
    case OP_CREATE_STUDY:
        create_study(j, log);
        return 0;
    case OP_DELETE_STUDY:
        if (study >= 0 && (size_t)study < j->nstudies)
            j->study[study].deleted = true;
        if (s) { /* one of its name may follow */
            char *name = xstrdup(s->name);

            study_clear(s);
            s->name = name;
            s->id = -1;
        }
        return 0;
    case OP_STUDY_USER_ATTR:
        if (s)
            apply_attr(&s->user, json_get(log, "user_attr"));
        return 0;
    case OP_STUDY_SYSTEM_ATTR:
        if (s)
            apply_attr(&s->system, json_get(log, "system_attr"));
        return 0;
    case OP_CREATE_TRIAL:
        return create_trial(j, log, study, err);
    case OP_DISCARD_TRIALS:
        return 0;
    default:
        return apply_to_trial(j, (enum op)op, log, err);
    }
}

/* ---- reading ---- */

/* Python writes NaN and Infinity bare, which JSON has not: LINE (N bytes) with them as
 * texts. */
static void quote_numbers(struct str *out, const char *line, size_t n)
{
    static const char *const words[] = { "NaN", "-Infinity", "Infinity" };
    bool inside = false;

    str_reset(out);
    for (size_t i = 0; i < n;) {
        size_t k = 0;

        while (
            !inside && k < 3 &&
            (n - i < strlen(words[k]) || memcmp(line + i, words[k], strlen(words[k]))))
            k++;
        if (!inside && k < 3) {
            str_addf(out, "\"%s\"", words[k]);
            i += strlen(words[k]);
            continue;
        }
        if (line[i] == '"')
            inside = !inside;
        if (inside && line[i] == '\\' && i + 1 < n)
            str_addc(out, line[i++]);
        str_addc(out, line[i++]);
    }
}

static int apply_line(struct journal *j, struct str *scratch, const char *line,
                      size_t n, struct err *err)
{
    struct json_doc doc;
    int ret;

    if (memchr(line, 'N', n) || memmem(line, n, "Infinity", 8)) {
        quote_numbers(scratch, line, n);
        line = scratch->s;
        n = scratch->len;
    }
    if (json_parse(&doc, j->path, line, n, err) < 0)
        return -1;
    ret = apply(j, doc.root, err);
    json_clear(&doc);
    return ret;
}

/* Apply the whole lines among N bytes of TEXT; *used becomes what they take. */
static int apply_lines(struct journal *j, const char *text, size_t n, size_t *used,
                       struct err *err)
{
    struct str scratch = { 0 };
    const char *p = text, *feed;
    int ret = 0;

    while (ret == 0 && (feed = memchr(p, '\n', (size_t)(text + n - p))) != NULL) {
        j->line++;
        if (feed > p && apply_line(j, &scratch, p, (size_t)(feed - p), err) < 0)
            ret = err_set(err, ERR_INPUT, "%s: line %d: bad journal: %.600s", j->path,
                          j->line, err->text);
        p = feed + 1;
    }
    *used = (size_t)(p - text);
    str_clear(&scratch);
    return ret;
}

/* Apply the whole lines that are new. */
static int catch_up(struct journal *j, struct err *err)
{
    char *buf = NULL;
    struct stat st;
    size_t cap = 0;
    int ret = -1;

    if (fstat(j->fd, &st) < 0)
        return err_errno(err, "%s", j->path);
    while (j->read < (uint64_t)st.st_size) {
        uint64_t left = (uint64_t)st.st_size - j->read;
        size_t want = left < CHUNK ? (size_t)left : CHUNK, used;

        for (;;) { /* a line may be longer than a chunk */
            buf = xgrow(buf, &cap, want, 1);
            if (fs_pread(j->fd, buf, want, j->read, j->path, err) < 0)
                goto out;
            if (memchr(buf, '\n', want) || want == left)
                break;
            want = 2 * want < left ? 2 * want : (size_t)left;
        }
        if (apply_lines(j, buf, want, &used, err) < 0)
            goto out;
        if (!used) /* unfinished: its writer is at it, or is dead */
            break;
        j->read += used;
    }
    ret = 0;
out:
    free(buf);
    return ret;
}

static void forget(struct journal *j)
{
    for (size_t i = 0; i < j->nstudies; i++)
        free(j->study[i].name);
    j->nstudies = j->ntrials = 0;
    j->read = 0;
    j->line = 0;
}

/* ---- the lock ---- */

static void release_lock(struct journal *j)
{
    char *away = str_dupf("%s.%s.rename", j->lock, j->worker);

    if (rename(j->lock, away) == 0)
        unlink(away);
    free(away);
    j->locked = false;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The lock is its holder's while the journal changes within GRACE_S. */
static int take_lock(struct journal *j, struct err *err)
{
    struct timespec nap = { .tv_nsec = 1000000 };
    struct timespec changed = { 0 };
    double since = seconds();

    while (symlink(j->path, j->lock) < 0) {
        struct stat st;

        if (errno != EEXIST)
            return err_errno(err, "%s", j->lock);
        if (fstat(j->fd, &st) == 0 && (st.st_mtim.tv_sec != changed.tv_sec ||
                                       st.st_mtim.tv_nsec != changed.tv_nsec)) {
            changed = st.st_mtim;
            since = seconds();
        }
        if (seconds() - since > GRACE_S) {
            release_lock(j);
            since = seconds();
            continue;
        }
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < 64000000)
            nap.tv_nsec *= 2;
    }
    j->locked = true;
    return 0;
}

/* Cut off a last line that has no end: its writer is dead, as the lock is ours. */
static int repair_tail(struct journal *j, struct err *err)
{
    struct stat st;
    uint64_t end;
    char c = '\n';

    if (fstat(j->fd, &st) < 0)
        return err_errno(err, "%s", j->path);
    end = (uint64_t)st.st_size;
    while (end > j->read && fs_pread(j->fd, &c, 1, end - 1, j->path, err) == 0 &&
           c != '\n')
        end--;
    if (end < (uint64_t)st.st_size && ftruncate(j->fd, (off_t)end) < 0)
        return err_errno(err, "%s", j->path);
    j->begun = end;
    return 0;
}

/* ---- the storage ---- */

static void journal_give_up(struct storage *st)
{
    struct journal *j = (struct journal *)st;

    if (!j->locked)
        return;
    if (ftruncate(j->fd, (off_t)j->begun) == 0 && j->read > j->begun)
        forget(j);
    release_lock(j);
}

static void journal_close(struct storage *st)
{
    struct journal *j = (struct journal *)st;

    journal_give_up(st);
    forget(j);
    free(j->study);
    free(j->trial);
    free(j->path);
    free(j->lock);
    if (j->fd >= 0)
        close(j->fd);
    free(j);
}

static int journal_open(struct storage **st, const char *where, bool create,
                        struct err *err)
{
    struct journal *j = xcalloc(1, sizeof(*j));
    struct timespec t;

    j->base.ops = &journal_storage;
    j->path = xstrdup(where);
    j->lock = str_dupf("%s.lock", where);
    clock_gettime(CLOCK_REALTIME, &t);
    snprintf(j->worker, sizeof(j->worker), "hpo-sweep-%ld-%lld%09ld", (long)getpid(),
             (long long)t.tv_sec, t.tv_nsec);
    j->fd = open(where, O_RDWR | O_APPEND | O_CLOEXEC | (create ? O_CREAT : 0), 0666);
    if (j->fd < 0 && (errno == EACCES || errno == EROFS))
        j->fd = open(where, O_RDONLY | O_CLOEXEC); /* enough to look */
    if (j->fd < 0) {
        if (errno == ENOENT)
            err_set(err, ERR_INPUT, "%s: no such journal", where);
        else
            err_errno(err, "%s", where);
        journal_close(&j->base);
        return -1;
    }
    *st = &j->base;
    return 0;
}

static int journal_begin(struct storage *st, bool change, struct err *err)
{
    struct journal *j = (struct journal *)st;

    if (!change)
        return 0;
    if (take_lock(j, err) < 0)
        return -1;
    if (repair_tail(j, err) == 0)
        return 0;
    release_lock(j);
    return -1;
}

static int journal_end(struct storage *st, struct err *err)
{
    struct journal *j = (struct journal *)st;

    if (!j->locked)
        return 0;
    if (fdatasync(j->fd) < 0) {
        err_errno(err, "%s", j->path);
        journal_give_up(st);
        return -1;
    }
    release_lock(j);
    return 0;
}

static int journal_list(struct storage *st, char ***names, size_t *n, struct err *err)
{
    struct journal *j = (struct journal *)st;

    if (catch_up(j, err) < 0)
        return -1;
    *names = xcalloc(j->nstudies + 1, sizeof(**names));
    *n = 0;
    for (size_t i = 0; i < j->nstudies; i++)
        if (!j->study[i].deleted)
            (*names)[(*n)++] = xstrdup(j->study[i].name);
    return 0;
}

static int journal_load(struct storage *st, struct study *s, const char *name,
                        struct err *err)
{
    struct journal *j = (struct journal *)st;

    if (j->target != s || !s->name || !j->read) { /* from the beginning */
        study_clear(s);
        forget(j);
        j->target = s;
        s->name = xstrdup(name);
        s->id = -1;
    }
    if (catch_up(j, err) < 0 || s->id < 0) {
        int ret = s->id < 0 && !err->kind ? 0 : -1;

        study_clear(s);
        j->target = NULL;
        forget(j);
        return ret;
    }
    return 1;
}

/* ---- writing ---- */

static void now(char out[TIME_SIZE])
{
    struct timespec t;
    struct tm tm;
    size_t n;

    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    n = strftime(out, TIME_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, TIME_SIZE - n, ".%06d+00:00", (int)(t.tv_nsec / 1000));
}

static void begin_line(const struct journal *j, struct str *s, enum op op)
{
    str_addf(s, "{\"op_code\":%d,\"worker_id\":\"%s\"", (int)op, j->worker);
}

/* Append the line, which ends here. */
static int end_line(struct journal *j, struct str *s, struct err *err)
{
    int ret;

    str_add(s, "}\n");
    ret = fs_write(j->fd, s->s, s->len, j->path, err);
    str_clear(s);
    return ret;
}

/* As Python writes a float. */
static void add_number(struct str *s, double x)
{
    if (isnan(x))
        str_add(s, "NaN");
    else if (isinf(x))
        str_add(s, x > 0 ? "Infinity" : "-Infinity");
    else
        str_add_double(s, x);
}

static int journal_create(struct storage *st, const char *name, const bool *maximize,
                          size_t n, struct err *err)
{
    struct journal *j = (struct journal *)st;
    struct str s = { 0 };

    begin_line(j, &s, OP_CREATE_STUDY);
    str_add(&s, ",\"study_name\":");
    str_add_json(&s, name);
    str_add(&s, ",\"directions\":[");
    for (size_t i = 0; i < n; i++)
        str_addf(&s, "%s%d", i ? "," : "", maximize[i] ? 2 : 1);
    str_addc(&s, ']');
    return end_line(j, &s, err);
}

static int journal_add_trial(struct storage *st, const struct study *study,
                             enum study_state state, int64_t *id, int *number,
                             struct err *err)
{
    struct journal *j = (struct journal *)st;
    struct str s = { 0 };
    char time[TIME_SIZE];

    if (catch_up(j, err) < 0)
        return -1;
    now(time);
    begin_line(j, &s, OP_CREATE_TRIAL);
    str_addf(&s, ",\"study_id\":%" PRId64, study->id);
    if (state == STUDY_RUNNING)
        str_addf(&s, ",\"datetime_start\":\"%s\"", time);
    else
        str_addf(&s,
                 ",\"datetime_start\":null,\"state\":%d,\"value\":null,\"values\":null,"
                 "\"distributions\":{},\"params\":{},\"user_attrs\":{},"
                 "\"system_attrs\":{},\"intermediate_values\":{}",
                 (int)state);
    *id = (int64_t)j->ntrials;
    *number = (int)j->study[study->id].trials;
    return end_line(j, &s, err) < 0 ? -1 : catch_up(j, err);
}

static int journal_set_param(struct storage *st, int64_t trial, const char *name,
                             double value, const struct dist *d, struct err *err)
{
    struct journal *j = (struct journal *)st;
    struct str s = { 0 }, dist = { 0 };

    begin_line(j, &s, OP_TRIAL_PARAM);
    str_addf(&s, ",\"trial_id\":%" PRId64 ",\"param_name\":", trial);
    str_add_json(&s, name);
    str_add(&s, ",\"param_value_internal\":");
    add_number(&s, value);
    str_add(&s, ",\"distribution\":");
    dist_write(&dist, d);
    str_add_json(&s, dist.s);
    str_clear(&dist);
    return end_line(j, &s, err);
}

static int journal_set_state(struct storage *st, int64_t trial, enum study_state state,
                             const double *values, size_t n, struct err *err)
{
    struct journal *j = (struct journal *)st;
    struct str s = { 0 };
    char time[TIME_SIZE];

    now(time);
    begin_line(j, &s, OP_TRIAL_STATE);
    str_addf(&s, ",\"trial_id\":%" PRId64 ",\"state\":%d,\"values\":", trial,
             (int)state);
    for (size_t i = 0; i < n; i++) {
        str_add(&s, i ? "," : "[");
        add_number(&s, values[i]);
    }
    str_add(&s, n ? "]" : "null");
    str_addf(&s, ",\"%s\":\"%s\"",
             state == STUDY_RUNNING ? "datetime_start" : "datetime_complete", time);
    return end_line(j, &s, err);
}

static int journal_set_report(struct storage *st, int64_t trial, int64_t step,
                              double value, struct err *err)
{
    struct journal *j = (struct journal *)st;
    struct str s = { 0 };

    begin_line(j, &s, OP_TRIAL_REPORT);
    str_addf(&s,
             ",\"trial_id\":%" PRId64 ",\"step\":%" PRId64 ",\"intermediate_value\":",
             trial, step);
    add_number(&s, value);
    return end_line(j, &s, err);
}

static int journal_set_attr(struct storage *st, int64_t study, int64_t trial,
                            bool system, const char *key, const char *json,
                            struct err *err)
{
    struct journal *j = (struct journal *)st;
    struct str s = { 0 };
    enum op op = trial < 0 ? system ? OP_STUDY_SYSTEM_ATTR : OP_STUDY_USER_ATTR
                 : system  ? OP_TRIAL_SYSTEM_ATTR
                           : OP_TRIAL_USER_ATTR;

    begin_line(j, &s, op);
    str_addf(&s, ",\"%s\":%" PRId64 ",\"%s\":{", trial < 0 ? "study_id" : "trial_id",
             trial < 0 ? study : trial, system ? "system_attr" : "user_attr");
    str_add_json(&s, key);
    str_addf(&s, ":%s}", json);
    return end_line(j, &s, err);
}

const struct storage_ops journal_storage = {
    .scheme = "journal",
    .open = journal_open,
    .close = journal_close,
    .begin = journal_begin,
    .end = journal_end,
    .give_up = journal_give_up,
    .list = journal_list,
    .load = journal_load,
    .create = journal_create,
    .add_trial = journal_add_trial,
    .set_param = journal_set_param,
    .set_state = journal_set_state,
    .set_report = journal_set_report,
    .set_attr = journal_set_attr,
};
