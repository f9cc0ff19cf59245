/* run - run a command for one trial after another */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmd/hpo-sweep/hpo-sweep.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/sweep/job.h"
#include "lib/sweep/words.h"

#define OWNER_KEY "hpo-sweep:owner"

static const double GRACE = 10; /* seconds between SIGTERM and SIGKILL */
static const double TICK = 0.1; /* seconds between two looks at reports and clocks */

extern char **environ;

struct runner_options {
    struct wish wish;
    int jobs, trials, failures;
    double timeout, budget;
    const char *until, *require;
    bool shell, quiet;
};

struct loop {
    const struct runner_options *o;
    struct session *s;
    char **require; /* words of a check that runs before each trial, or NULL; owned */
    char *const *command;  /* the user's words, or NULL: the file's command */
    char *base;            /* where trial directories are made; owned */
    char *url;             /* the storage, for commands that go elsewhere; owned */
    char *identity;        /* this process; owned */
    struct job *jobs;      /* [o->jobs] */
    int running, failures; /* failures in a row */
    double end;            /* draw nothing after this, or infinity */
    bool exhausted, pruning;
    int signal; /* that ends the run */
};

/* Seconds of "90", "90s", "15m", "8h", "2d". */
static bool parse_duration(double *out, const char *text)
{
    static const char units[] = "smhd";
    static const double factors[] = { 1, 60, 3600, 86400 };
    size_t n = strlen(text);
    const char *unit = n ? strchr(units, text[n - 1]) : NULL;
    char *number = xstrndup(text, unit ? n - 1 : n);
    bool ok = str_double(number, out) && *out >= 0;

    free(number);
    if (ok && unit)
        *out *= factors[unit - units];
    return ok;
}

/* Seconds from now to the next HH:MM. */
static bool parse_until(double *out, const char *text)
{
    int hour, minute, used = 0;
    time_t now = time(NULL), then;
    struct tm tm;

    if (sscanf(text, "%2d:%2d%n", &hour, &minute, &used) != 2 || text[used] ||
        hour > 23 || minute > 59)
        return false;
    localtime_r(&now, &tm);
    tm.tm_hour = hour;
    tm.tm_min = minute;
    tm.tm_sec = 0;
    then = mktime(&tm);
    if (then <= now) {
        tm.tm_mday++;
        then = mktime(&tm);
    }
    *out = difftime(then, now);
    return true;
}

/* Trials that this host's dead processes left running have failed. */
static int reap(struct session *s, struct err *err)
{
    for (size_t i = 0; i < s->study.n; i++) {
        struct study_trial *t = &s->study.trials[i];
        const char *owner = study_attr(&t->system, OWNER_KEY);
        size_t n = owner ? strlen(owner) : 0;
        char *identity;
        bool dead;

        if (t->state != STUDY_RUNNING || n < 2)
            continue;
        identity = xstrndup(owner + 1, n - 2); /* a JSON string of plain words */
        dead = job_is_dead(identity);
        free(identity);
        if (dead && session_finish(s, t, STUDY_FAIL, NULL, 0, err) < 0)
            return -1;
    }
    return 0;
}

static void add_variable(char ***env, size_t *n, char *text)
{
    *env = xrealloc(*env, (*n + 2) * sizeof(**env));
    (*env)[(*n)++] = text;
    (*env)[*n] = NULL;
}

/* The caller's environment, what a trial is told, and HPO_NAME=value of each parameter
 * (what is no letter or digit becomes '_'). */
static char **environment_new(const struct loop *l, const struct job *job,
                              const double *x)
{
    const struct space *space = &l->s->file.space;
    char **env = NULL;
    size_t n = 0;

    for (char **e = environ; *e; e++)
        if (!str_starts(*e, "HPO_"))
            add_variable(&env, &n, xstrdup(*e));
    add_variable(&env, &n, str_dupf("HPO_STUDY=%s", l->s->name));
    add_variable(&env, &n, str_dupf("HPO_STORAGE=%s", l->url));
    add_variable(&env, &n, str_dupf("HPO_TRIAL_NUMBER=%d", job->number));
    add_variable(&env, &n, str_dupf("HPO_TRIAL_DIR=%s", job->dir));
    add_variable(&env, &n, str_dupf("HPO_PARAMS_JSON=%s/params.json", job->dir));
    add_variable(&env, &n, str_dupf("HPO_RESULT=%s/result.json", job->dir));
    add_variable(&env, &n, str_dupf("HPO_REPORT=%s/report", job->dir));
    add_variable(&env, &n, str_dupf("HPO_SLOT=%d", job->slot));
    for (size_t i = 0; i < space->n; i++) {
        struct str text = { 0 };

        if (isnan(x[i]))
            continue;
        str_addf(&text, "HPO_%s", space->params[i].name);
        for (char *p = text.s; *p; p++)
            if (!strchr(
                    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
                    *p))
                *p = '_';
        str_addc(&text, '=');
        dist_write_word(&text, &space->params[i].dist, x[i]);
        add_variable(&env, &n, str_steal(&text));
    }
    return env;
}

/* The words to execute, the program's path first. */
static char **words_new(const struct loop *l, const struct job *job, const double *x,
                        struct err *err)
{
    char **words, *path;

    if (l->o->shell) {
        words = xcalloc(4, sizeof(*words));
        words[0] = xstrdup("/bin/sh");
        words[1] = xstrdup("-c");
        words[2] = xstrdup(l->command[0]);
    } else if (l->command) {
        words = words_expand_new(l->command, &l->s->file.space, x);
    } else {
        char *json = str_dupf("%s/params.json", job->dir);

        words = sweepfile_command_new(&l->s->file, x, json, getenv, err);
        free(json);
        if (!words)
            return NULL;
    }
    path = job_which(words[0], getenv("PATH"));
    if (!path) {
        err_set(err, ERR_USAGE, "%s: no such program", words[0]);
        words_free(words);
        return NULL;
    }
    free(words[0]);
    words[0] = path;
    return words;
}

static int start_words(struct loop *l, struct job *job, char **words, const double *x,
                       struct err *err)
{
    char **env = words ? environment_new(l, job, x) : NULL;
    struct str params = { 0 };
    int ret = -1;

    if (words) {
        sweepfile_write_params(&params, &l->s->file.space, x);
        str_addc(&params, '\n');
        ret = job_start(job, words, env, params.s, err);
    }
    str_clear(&params);
    words_free(words);
    words_free(env);
    return ret;
}

/* Record that the check found JOB's point infeasible: samplers keep away from there. */
static int record_infeasible(struct loop *l, struct job *job, struct err *err)
{
    struct session *s = l->s;
    struct study_trial *t;

    if (session_begin(s, err) < 0)
        return -1;
    t = study_find(&s->study, job->number);
    if (s->st->ops->set_attr(s->st, s->study.id, t->id, true, "constraints", "[1.0]",
                             err) < 0 ||
        session_finish(s, t, STUDY_FAIL, NULL, 0, err) < 0)
        return -1;
    job_clear(job);
    l->running--;
    return session_end(s, err);
}

/* Run the check to its end: 0 feasible, 1 not, -1 that it failed itself. */
static int check_feasible(struct loop *l, struct job *job, const double *x,
                          struct err *err)
{
    char **words = words_expand_new(l->require, &l->s->file.space, x);
    char *path = job_which(words[0], getenv("PATH"));
    int status = -1;

    free(words[0]);
    words[0] = path; /* looked up before the first trial */
    if (start_words(l, job, words, x, err) < 0)
        return -1;
    while (waitpid(job->pid, &status, 0) < 0 && errno == EINTR)
        ;
    job->pid = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) <= 1)
        return WEXITSTATUS(status);
    return err_set(err, ERR_SYSTEM,
                   "trial %d: the check of --require failed: see %s/stderr",
                   job->number, job->dir);
}

/* Start JOB's command; *started is false when its point is infeasible. */
static int start(struct loop *l, struct job *job, const double *x, bool *started,
                 struct err *err)
{
    int infeasible = l->require ? check_feasible(l, job, x, err) : 0;

    *started = infeasible == 0;
    if (infeasible)
        return infeasible < 0 ? -1 : record_infeasible(l, job, err);
    return start_words(l, job, words_new(l, job, x, err), x, err);
}

static uint64_t budget(const struct loop *l)
{
    return l->o->trials ? (uint64_t)l->o->trials : l->s->file.run_cap;
}

static bool may_draw(const struct loop *l)
{
    const struct study *s = &l->s->study;
    uint64_t taken = 0, cap = budget(l);

    if (l->signal || l->exhausted || l->running == l->o->jobs ||
        job_clock() >= l->end || (l->o->failures && l->failures >= l->o->failures))
        return false;
    for (size_t i = 0; i < s->n; i++)
        taken += s->trials[i].state != STUDY_WAITING;
    return !cap || taken < cap;
}

/* Draw a trial into JOB, with the point in X; *drawn says whether there was one. */
static int draw(struct loop *l, struct job *job, double *x, bool *drawn,
                struct err *err)
{
    struct session *s = l->s;
    int number, ret = session_draw(s, &number, x, err);
    struct str owner = { 0 };

    *drawn = ret > 0;
    l->exhausted |= ret == 0;
    if (ret <= 0)
        return ret;
    if (s->st->ops->load(s->st, &s->study, s->name, err) < 0)
        return -1;
    *job = (struct job){ .number = number, .slot = (int)(job - l->jobs) };
    job->dir = str_dupf("%s/%06d", l->base, number);
    str_add_json(&owner, l->identity);
    ret = s->st->ops->set_attr(s->st, s->study.id, s->study.trials[number].id, true,
                               OWNER_KEY, owner.s, err);
    str_clear(&owner);
    return ret;
}

/* Record how JOB ended. */
static int finish(struct loop *l, struct job *job, struct err *err)
{
    size_t n = l->s->study.nobjectives;
    double *values = xcalloc(n, sizeof(*values));
    struct study_trial *t = study_find(&l->s->study, job->number);
    bool ok = WIFEXITED(job->status) && WEXITSTATUS(job->status) == 0 && !job->killed &&
              job_values(values, n, job);
    int ret = 0;

    if (t && !study_finished(t)) { /* the command may have told it itself */
        for (size_t i = 0; i < n; i++)
            ok = ok && !isnan(values[i]);
        ret = session_finish(l->s, t, ok ? STUDY_COMPLETE : STUDY_FAIL, values, n, err);
        l->failures = ok ? 0 : l->failures + 1;
    } else if (t) {
        l->failures = t->state == STUDY_FAIL ? l->failures + 1 : 0;
    }
    free(values);
    job_clear(job);
    l->running--;
    return ret;
}

/* Take up JOB's new reports; end it when its pruner says so. */
static int watch(struct loop *l, struct job *job, struct err *err)
{
    struct session *s = l->s;
    struct study_trial *t = study_find(&s->study, job->number);
    bool news = false, prune = false;
    int64_t step;
    double value;

    while (t && !study_finished(t) && job_report(job, &step, &value)) {
        if (s->st->ops->set_report(s->st, t->id, step, value, err) < 0)
            return -1;
        study_set_report(t, step, value);
        news = true;
    }
    if (!news || job->killed || !job->pid)
        return 0;
    if (session_judge(s, t, &prune, err) < 0)
        return -1;
    if (!prune)
        return 0;
    job->killed = job_clock();
    job_kill(job, SIGTERM);
    return session_finish(s, t, STUDY_PRUNED, NULL, 0, err);
}

static void collect(struct loop *l)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < l->o->jobs; i++)
            if (l->jobs[i].pid == pid) {
                job_kill(&l->jobs[i], SIGKILL); /* what is left of its group */
                l->jobs[i].pid = 0;
                l->jobs[i].status = status;
            }
}

static bool ended(const struct job *job)
{
    return job->dir && !job->pid;
}

/* One transaction: reports, trials that ended, and new ones to start. */
static int transact(struct loop *l, double *points, bool *fresh, struct err *err)
{
    size_t n = l->s->file.space.n;

    if (session_begin(l->s, err) < 0)
        return -1;
    for (int i = 0; i < l->o->jobs; i++)
        if (l->jobs[i].dir && watch(l, &l->jobs[i], err) < 0)
            return -1;
    for (int i = 0; i < l->o->jobs; i++)
        if (ended(&l->jobs[i]) && finish(l, &l->jobs[i], err) < 0)
            return -1;
    if (l->s->st->ops->load(l->s->st, &l->s->study, l->s->name, err) < 0)
        return -1;
    for (int i = 0; i < l->o->jobs; i++) {
        fresh[i] = false;
        if (l->jobs[i].dir || !may_draw(l))
            continue;
        if (draw(l, &l->jobs[i], points + (size_t)i * n, &fresh[i], err) < 0)
            return -1;
        l->running += fresh[i];
    }
    return session_end(l->s, err);
}

/* End what takes too long, or everything after a signal. */
static void enforce(struct loop *l)
{
    double now = job_clock();

    for (int i = 0; i < l->o->jobs; i++) {
        struct job *job = &l->jobs[i];

        if (!job->pid)
            continue;
        if (!job->killed &&
            (l->signal || (l->o->timeout > 0 && now - job->start > l->o->timeout))) {
            job->killed = now;
            job_kill(job, SIGTERM);
        } else if (job->killed && now - job->killed > GRACE) {
            job_kill(job, SIGKILL);
        }
    }
}

static void progress(const struct loop *l)
{
    const struct study_trial *best;

    if (!cmd_progress(l->o->quiet))
        return;
    best = l->s->study.nobjectives == 1 ? study_best(&l->s->study) : NULL;
    fprintf(stderr, "\r%zu done, %d running", study_count_finished(&l->s->study),
            l->running);
    if (best)
        fprintf(stderr, ", best %g (trial %d)", best->values[0], best->number);
    fputs("\033[K", stderr);
}

static bool idle(const struct loop *l)
{
    for (int i = 0; i < l->o->jobs; i++)
        if (l->jobs[i].dir)
            return false;
    return true;
}

/* Start the trials that were drawn; *room says whether one was not, being infeasible.
 */
static int launch(struct loop *l, const double *points, const bool *fresh, bool *room,
                  struct err *err)
{
    size_t n = l->s->file.space.n;

    *room = false;
    for (int i = 0; i < l->o->jobs; i++) {
        bool started = true;

        if (fresh[i] &&
            start(l, &l->jobs[i], points + (size_t)i * n, &started, err) < 0)
            return -1;
        *room |= !started;
    }
    return 0;
}

/* Wait for a child, a signal or the next tick; returns whether there is something to
 * record. */
static bool wait_for_news(struct loop *l, const sigset_t *set)
{
    const struct timespec tick = { 0, (long)(TICK * 1e9) };
    int sig = sigtimedwait(set, NULL, &tick);
    bool news = sig < 0 && l->pruning; /* reports are looked at once per tick */

    if (sig == SIGTERM || sig == SIGINT)
        l->signal = sig;
    collect(l);
    enforce(l);
    for (int i = 0; i < l->o->jobs; i++)
        news |= ended(&l->jobs[i]);
    return news;
}

static int run_all(struct loop *l, struct err *err)
{
    double *points = xcalloc((size_t)l->o->jobs, l->s->file.space.n * sizeof(*points));
    bool *fresh = xcalloc((size_t)l->o->jobs, sizeof(*fresh)), room;
    sigset_t set;
    int ret = -1;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    do {
        do {
            if (transact(l, points, fresh, err) < 0 ||
                launch(l, points, fresh, &room, err) < 0)
                goto out;
        } while (room && may_draw(l));
        progress(l);
        while (!idle(l) && !wait_for_news(l, &set))
            ;
    } while (!idle(l));
    ret = 0;
out:
    for (int i = 0; i < l->o->jobs; i++) {
        job_kill(&l->jobs[i], SIGKILL);
        job_clear(&l->jobs[i]);
    }
    if (cmd_progress(l->o->quiet))
        fputc('\n', stderr);
    free(points);
    free(fresh);
    return ret;
}

/* What can be known to be wrong before the first trial. */
static int check_command(const struct loop *l, struct err *err)
{
    const struct sweepfile *f = &l->s->file;
    struct job job = { .dir = l->base };
    struct rng rng;
    double *x;
    char **words;

    if (!l->command && !sweepfile_has_command(f))
        return err_set(err, ERR_USAGE, "no command: write it after --");
    if (l->o->shell && (!l->command || !l->command[0] || l->command[1]))
        return err_set(err, ERR_USAGE, "--shell takes one word after --");
    if (l->command && !l->o->shell && words_check(l->command, &f->space, err) < 0)
        return -1;
    x = xcalloc(f->space.n, sizeof(*x));
    rng_init(&rng, 0, 0);
    sampler_prior(x, &f->space, &rng);
    space_settle(&f->space, x);
    words = words_new(l, &job, x, err);
    free(x);
    words_free(words);
    return words ? 0 : -1;
}

/* The words of the file that --require names, checked. */
static int read_require(struct loop *l, struct err *err)
{
    char *text, *save = NULL, *path;
    size_t n = 0;

    if (!l->o->require)
        return 0;
    if (fs_read_file(&text, NULL, l->o->require, 1 << 16, err) < 0)
        return -1;
    l->require = xcalloc(strlen(text) / 2 + 2, sizeof(*l->require));
    for (char *w = strtok_r(text, " \t\n", &save); w;
         w = strtok_r(NULL, " \t\n", &save))
        l->require[n++] = xstrdup(w);
    free(text);
    if (!n)
        return err_set(err, ERR_INPUT, "%s: no command", l->o->require);
    path = job_which(l->require[0], getenv("PATH"));
    if (!path)
        return err_set(err, ERR_USAGE, "%s: %s: no such program", l->o->require,
                       l->require[0]);
    free(path);
    return words_check(l->require, &l->s->file.space, err) < 0
               ? err_prefix(err, "%s", l->o->require)
               : 0;
}

static int check_budget(const struct loop *l, struct err *err)
{
    if (budget(l) || l->s->sampler.sampler->ends || isfinite(l->end))
        return 0;
    return err_set(err, ERR_USAGE,
                   "%s has no end: give --trials, --time-budget or --until",
                   l->s->sampler.sampler->name);
}

/* One run per storage at a time. */
static int lock(const char *url, struct err *err)
{
    char *path = str_dupf("%s.lck", url);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    if (fd < 0)
        err_errno(err, "%s", path);
    else if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        err_set(err, errno == EWOULDBLOCK ? ERR_LOCKED : ERR_SYSTEM, "%s: %s", path,
                errno == EWOULDBLOCK ? "another run holds it" : strerror(errno));
        close(fd);
        fd = -1;
    }
    free(path);
    return fd;
}

static int execute(struct loop *l, struct err *err)
{
    struct session *s = l->s;
    int fd, ret = -1;

    if (check_command(l, err) < 0 || read_require(l, err) < 0 ||
        check_budget(l, err) < 0)
        return -1;
    fd = lock(str_starts(s->url, "sqlite:///") ? s->url + 10 : s->url, err);
    if (fd < 0)
        return -1;
    l->pruning = study_attr(&s->study.system, STUDY_PRUNER_KEY) != NULL;
    if (reap(s, err) == 0 && session_end(s, err) == 0)
        ret = run_all(l, err);
    close(fd);
    return ret;
}

/* The status of a run that came to its end. */
static int outcome(const struct loop *l, struct err *err)
{
    if (l->signal)
        return 128 + l->signal;
    if (l->o->failures && l->failures >= l->o->failures)
        return err_set(err, ERR_NO, "%d trials in a row failed: see stderr in %s",
                       l->failures, l->base);
    for (size_t i = 0; i < l->s->study.n; i++)
        if (l->s->study.trials[i].state == STUDY_COMPLETE)
            return 0;
    return 1;
}

/* PATH as a command sees it that may change its directory. */
static char *absolute_dup(const char *path)
{
    char *here = path[0] == '/' || strchr(path, ':') ? NULL : getcwd(NULL, 0);
    char *out = here ? fs_join_dup(here, path) : xstrdup(path);

    free(here);
    return out;
}

int run_main(const char *program, int argc, char **argv)
{
    struct runner_options o = { .jobs = 1, .failures = 3 };
    const char *time_budget = NULL, *timeout = NULL;
    const struct opt opts[] = {
        WISH_OPTIONS(o.wish),
        { OPT_INT, 'j', "jobs", &o.jobs, "N", "trials at once", NULL, NULL },
        { OPT_INT, '\0', "trials", &o.trials, "N", "finished trials to reach", NULL,
          NULL },
        { OPT_STRING, '\0', "time-budget", &time_budget, "TIME",
          "start no trial after this: 90s, 15m, 8h", NULL, NULL },
        { OPT_STRING, '\0', "until", &o.until, "HH:MM",
          "start no trial after this hour", NULL, NULL },
        { OPT_STRING, '\0', "trial-timeout", &timeout, "TIME", "end a trial after this",
          NULL, NULL },
        { OPT_INT, '\0', "max-consecutive-failures", &o.failures, "N",
          "stop after so many, 0 for never", NULL, NULL },
        { OPT_STRING, '\0', "require", &o.require, "FILE",
          "a check that runs before each trial", NULL, NULL },
        { OPT_FLAG, '\0', "shell", &o.shell, NULL,
          "COMMAND is one word for sh, values in $HPO_NAME", NULL, NULL },
        { OPT_FLAG, 'q', "quiet", &o.quiet, NULL, "no progress", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = { .name = "run",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... SWEEP [-- COMMAND [WORD]...]",
                             .summary = "Run a command for one trial after another",
                             .min_args = 1,
                             .max_args = 1,
                             .stop_at_command = true };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct session s;
    struct err err = { 0 };
    struct loop l = { .o = &o, .s = &s, .end = INFINITY };
    double seconds;
    char *base;
    int ret;

    if (o.jobs < 1)
        return cmd_usage(&cmd, "--jobs is at least 1");
    if (timeout && !parse_duration(&o.timeout, timeout))
        return cmd_usage(&cmd, "'%s' is not a time", timeout);
    if (time_budget && !parse_duration(&seconds, time_budget))
        return cmd_usage(&cmd, "'%s' is not a time", time_budget);
    if (time_budget)
        l.end = job_clock() + seconds;
    if (o.until && !parse_until(&seconds, o.until))
        return cmd_usage(&cmd, "'%s' is not HH:MM", o.until);
    if (o.until)
        l.end = fmin(l.end, job_clock() + seconds);
    l.command = cmd_command(&cmd, argc, argv);
    if (session_open_sweep(&s, operand[0], &o.wish, &err) < 0)
        return cmd_fail(&cmd, &err);
    base = str_dupf("%s.trials", s.name);
    l.base = absolute_dup(base);
    l.url = absolute_dup(s.url);
    l.identity = job_identity_dup(0);
    l.jobs = xcalloc((size_t)o.jobs, sizeof(*l.jobs));
    ret = execute(&l, &err);
    if (ret == 0)
        ret = outcome(&l, &err);
    else if (err.kind == ERR_LOCKED)
        ret = ERR_LOCKED;
    free(l.jobs);
    words_free(l.require);
    free(base);
    free(l.base);
    free(l.url);
    free(l.identity);
    session_close(&s);
    wish_clear(&o.wish);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, ret);
}
