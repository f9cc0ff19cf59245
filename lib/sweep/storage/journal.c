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

#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/sweep/storage/replay.h"
#include "lib/sweep/storage/storage.h"

enum { GRACE_S = 30, CHUNK = 1 << 20, TIME_SIZE = 40 };

struct journal {
    struct storage base;
    char *path, *lock, *away; /* away: what the lock is renamed to as it is removed */
    char worker[64];
    int fd;
    int unwritable; /* 0, or the errno that tells why it is open only to be read */
    bool locked;
    bool named;           /* the directory is synced: the file's name is not lost */
    struct journal *next; /* of those whose lock is held */
    uint64_t begun;       /* size of the file when the change began */
    uint64_t read;        /* bytes that were applied */
    struct str pending;   /* lines of the change, not yet in the file */
    size_t applied;       /* bytes of them that were */
    struct replay replay;
};

/* ---- reading ---- */

static void drop_pending(struct journal *j)
{
    str_reset(&j->pending);
    j->applied = 0;
}

static int write_pending(struct journal *j, struct err *err)
{
    if (j->pending.len &&
        fs_write(j->fd, j->pending.s, j->pending.len, j->path, err) < 0)
        return -1;         /* and the change is given up */
    j->read += j->applied; /* after all that was in the file, as the lock is ours */
    drop_pending(j);
    return 0;
}

/* Apply the whole lines of the file that are new. */
static int read_file(struct journal *j, struct err *err)
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
        if (replay_lines(&j->replay, buf, want, &used, err) < 0)
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

/* Apply what is new, our own lines included.  These stay where they are: written one by
 * one, a trial would be there for a while without what tells whose it is. */
static int catch_up(struct journal *j, struct err *err)
{
    size_t used;

    if (!j->applied && read_file(j, err) < 0)
        return -1;
    if (j->applied == j->pending.len)
        return 0;
    if (replay_lines(&j->replay, j->pending.s + j->applied, j->pending.len - j->applied,
                     &used, err) < 0)
        return -1;
    j->applied += used;
    return 0;
}

static void forget(struct journal *j)
{
    replay_forget(&j->replay);
    j->read = 0;
    j->applied = 0;
}

/* ---- the lock ---- */

/* Locks that are held.  Whoever runs out of bookkeeping memory ends at once, and nobody
 * else may have the journal for GRACE_S when the lock stays behind; nothing has been
 * written then, as a change's lines are appended at its end. */
static struct journal *holders;
static pid_t holding; /* a child that is forked holds none */

static void remove_lock(const struct journal *j)
{
    if (rename(j->lock, j->away) == 0)
        unlink(j->away);
}

static void remove_locks(void)
{
    for (const struct journal *j = holding == getpid() ? holders : NULL; j; j = j->next)
        remove_lock(j);
}

static void note_lock(struct journal *j)
{
    if (!holding)
        atexit(remove_locks);
    if (holding != getpid())
        holders = NULL;
    holding = getpid();
    j->next = holders;
    holders = j;
    j->locked = true;
}

static void release_lock(struct journal *j)
{
    struct journal **p = &holders;

    while (*p && *p != j)
        p = &(*p)->next;
    if (*p)
        *p = j->next;
    remove_lock(j);
    j->locked = false;
}

/* The lock is its holder's while the journal changes within GRACE_S. */
static int take_lock(struct journal *j, struct err *err)
{
    struct timespec nap = { .tv_nsec = 1000000 };
    struct timespec changed = { 0 };
    double since = clock_seconds();

    while (symlink(j->path, j->lock) < 0) {
        struct stat st;

        if (errno != EEXIST)
            return err_errno(err, "%s", j->lock);
        if (fstat(j->fd, &st) < 0)
            return err_errno(err, "%s", j->path);
        if (st.st_mtim.tv_sec != changed.tv_sec ||
            st.st_mtim.tv_nsec != changed.tv_nsec) {
            changed = st.st_mtim;
            since = clock_seconds();
        }
        if (clock_seconds() - since > 1 && j->base.waits) {
            j->base.waits(j->lock);
            j->base.waits = NULL;
        }
        if (clock_seconds() - since > GRACE_S) {
            remove_lock(j);
            since = clock_seconds();
            continue;
        }
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < 64000000)
            nap.tv_nsec *= 2;
    }
    note_lock(j);
    return 0;
}

/* ERR_INPUT unless the file, of SIZE bytes, begins as a journal as far as it goes. */
static int check_head(const struct journal *j, uint64_t size, struct err *err)
{
    static const char begin[] = "{\"op_code\":";
    char head[sizeof(begin) - 1];
    size_t n = size < sizeof(head) ? (size_t)size : sizeof(head);

    if (fs_pread(j->fd, head, n, 0, j->path, err) < 0)
        return -1;
    return memcmp(head, begin, n) != 0
               ? err_set(err, ERR_INPUT, "%s: not a journal", j->path)
               : 0;
}

/* Cut off a last line that has no end: its writer is dead, as the lock is ours.  Of a
 * file that is no journal nothing is cut off, nor where its end cannot be read. */
static int repair_tail(struct journal *j, struct err *err)
{
    struct stat st;
    uint64_t end, size;

    if (fstat(j->fd, &st) < 0)
        return err_errno(err, "%s", j->path);
    end = size = (uint64_t)st.st_size;
    for (; end > j->read; end--) {
        char c;

        if (fs_pread(j->fd, &c, 1, end - 1, j->path, err) < 0)
            return -1;
        if (c == '\n')
            break;
    }
    if (end < size && check_head(j, size, err) < 0)
        return -1;
    if (end < size && ftruncate(j->fd, (off_t)end) < 0)
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
    if (ftruncate(j->fd, (off_t)j->begun) == 0 && (j->read > j->begun || j->applied))
        forget(j);
    drop_pending(j);
    release_lock(j);
}

static void journal_close(struct storage *st)
{
    struct journal *j = (struct journal *)st;

    journal_give_up(st);
    replay_clear(&j->replay);
    str_clear(&j->pending);
    free(j->path);
    free(j->base.name);
    free(j->lock);
    free(j->away);
    if (j->fd >= 0)
        close(j->fd);
    free(j);
}

static int journal_open(struct storage **st, const char *where, bool create,
                        double timeout_s, void (*waits)(const char *what),
                        struct err *err)
{
    struct journal *j = xcalloc(1, sizeof(*j));
    struct err why = { 0 };
    struct timespec t;

    (void)timeout_s;
    j->base.ops = &journal_storage;
    j->base.waits = waits;
    j->base.name = xstrdup(where);
    j->path = xstrdup(where);
    j->replay.path = j->path;
    j->lock = str_dupf("%s.lock", where);
    clock_gettime(CLOCK_REALTIME, &t);
    snprintf(j->worker, sizeof(j->worker), "hpo-sweep-%ld-%lld%09ld", (long)getpid(),
             (long long)t.tv_sec, t.tv_nsec);
    j->away = str_dupf("%s.%s.rename", j->lock, j->worker);
    j->fd = output_reopen(where, O_RDWR | O_APPEND | (create ? O_CREAT : 0), &why);
    if (j->fd < 0 && (errno == EACCES || errno == EROFS)) {
        j->unwritable = errno;
        j->fd = open(where, O_RDONLY | O_CLOEXEC); /* enough to look */
        errno = j->unwritable;
    }
    if (j->fd < 0) {
        if (errno == ENOENT && !create)
            err_set(err, ERR_INPUT, "%s: no such journal", where);
        else
            err_set(err, why.kind, "%s", why.text);
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
    if (j->unwritable) {
        errno = j->unwritable;
        return err_errno(err, "%s", j->path);
    }
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
    if (write_pending(j, err) < 0 ||
        (fdatasync(j->fd) < 0 && err_errno(err, "%s", j->path) < 0) ||
        (!j->named && output_sync_name(j->path, err) < 0)) {
        journal_give_up(st);
        return -1;
    }
    j->named = true;
    release_lock(j);
    return 0;
}

static int journal_list(struct storage *st, char ***names, size_t *n, struct err *err)
{
    struct journal *j = (struct journal *)st;

    if (catch_up(j, err) < 0)
        return -1;
    *names = xcalloc(j->replay.nstudies + 1, sizeof(**names));
    *n = 0;
    for (size_t i = 0; i < j->replay.nstudies; i++)
        if (!j->replay.study[i].deleted)
            (*names)[(*n)++] = xstrdup(j->replay.study[i].name);
    return 0;
}

static int journal_load(struct storage *st, struct study *s, const char *name,
                        struct err *err)
{
    struct journal *j = (struct journal *)st;

    if (j->replay.target != s || !s->name || !j->read) { /* from the beginning */
        study_clear(s);
        forget(j);
        j->replay.target = s;
        s->name = xstrdup(name);
        s->id = -1;
    }
    if (catch_up(j, err) < 0 || s->id < 0) {
        int ret = s->id < 0 && !err->kind ? 0 : -1;

        study_clear(s);
        j->replay.target = NULL;
        forget(j);
        return ret;
    }
    return 1;
}

/* ---- writing ---- */

/* WHEN, which is UTC, or the time as Python's isoformat has it.  Version 4 of Optuna
 * cannot subtract a time with a zone from one without, so its studies go on without. */
static void write_time(const struct journal *j, char out[TIME_SIZE], const char *when)
{
    bool local = !when && j->replay.local_times;

    if (when)
        snprintf(out, TIME_SIZE - sizeof("+00:00"), "%s", when);
    else
        study_now(out, local);
    out[10] = 'T';
    if (!local)
        memcpy(out + strlen(out), "+00:00", sizeof("+00:00"));
}

static void begin_line(const struct journal *j, struct str *s, enum replay_op op)
{
    str_addf(s, "{\"op_code\":%d,\"worker_id\":\"%s\"", (int)op, j->worker);
}

/* Append the line, which ends here.  The file has it once the change ends: one that is
 * killed before leaves nothing of what it was about. */
static int end_line(struct journal *j, struct str *s, const struct err *err)
{
    (void)err; /* nothing can fail until then */
    str_add(s, "}\n");
    str_addn(&j->pending, s->s, s->len);
    str_clear(s);
    return 0;
}

static int journal_create(struct storage *st, const char *name, const bool *maximize,
                          size_t n, struct err *err)
{
    struct journal *j = (struct journal *)st;
    struct str s = { 0 };

    begin_line(j, &s, REPLAY_CREATE_STUDY);
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
    write_time(j, time, NULL);
    begin_line(j, &s, REPLAY_CREATE_TRIAL);
    str_addf(&s, ",\"study_id\":%" PRId64, study->id);
    if (state == STUDY_RUNNING)
        str_addf(&s, ",\"datetime_start\":\"%s\"", time);
    else
        str_addf(&s,
                 ",\"datetime_start\":null,\"state\":%d,\"value\":null,\"values\":null,"
                 "\"distributions\":{},\"params\":{},\"user_attrs\":{},"
                 "\"system_attrs\":{},\"intermediate_values\":{}",
                 (int)state);
    *id = (int64_t)j->replay.ntrials;
    *number = (int)j->replay.study[study->id].trials;
    return end_line(j, &s, err) < 0 ? -1 : catch_up(j, err);
}

static int journal_set_param(struct storage *st, int64_t trial, const char *name,
                             double value, const struct dist *d, struct err *err)
{
    struct journal *j = (struct journal *)st;
    struct str s = { 0 }, dist = { 0 };

    begin_line(j, &s, REPLAY_TRIAL_PARAM);
    str_addf(&s, ",\"trial_id\":%" PRId64 ",\"param_name\":", trial);
    str_add_json(&s, name);
    str_add(&s, ",\"param_value_internal\":");
    study_add_value(&s, value);
    str_add(&s, ",\"distribution\":");
    dist_write(&dist, d);
    str_add_json(&s, dist.s);
    str_clear(&dist);
    return end_line(j, &s, err);
}

static int journal_set_state(struct storage *st, int64_t trial, enum study_state state,
                             const double *values, size_t n, const char *when,
                             struct err *err)
{
    struct journal *j = (struct journal *)st;
    struct str s = { 0 };
    char time[TIME_SIZE];

    write_time(j, time, when);
    begin_line(j, &s, REPLAY_TRIAL_STATE);
    str_addf(&s, ",\"trial_id\":%" PRId64 ",\"state\":%d,\"values\":", trial,
             (int)state);
    for (size_t i = 0; i < n; i++) {
        str_add(&s, i ? "," : "[");
        study_add_value(&s, values[i]);
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

    begin_line(j, &s, REPLAY_TRIAL_REPORT);
    str_addf(&s,
             ",\"trial_id\":%" PRId64 ",\"step\":%" PRId64 ",\"intermediate_value\":",
             trial, step);
    study_add_value(&s, value);
    return end_line(j, &s, err);
}

static int journal_set_attr(struct storage *st, int64_t study, int64_t trial,
                            bool system, const char *key, const char *json,
                            struct err *err)
{
    struct journal *j = (struct journal *)st;
    struct str s = { 0 };
    enum replay_op op = trial < 0
                            ? system ? REPLAY_STUDY_SYSTEM_ATTR : REPLAY_STUDY_USER_ATTR
                        : system ? REPLAY_TRIAL_SYSTEM_ATTR
                                 : REPLAY_TRIAL_USER_ATTR;

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
    .hold = storage_hold_file,
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
