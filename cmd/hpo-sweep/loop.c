/* loop - trials drawn, started, watched and recorded, until there are enough */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cmd/hpo-sweep/run.h"
#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/sweep/job/joblog.h"

/* JOB was drawn but is not started, or was ended by us: it fails, whatever an earlier
 * run of its number left, and is not logged again. */
static void forgo(struct job *job)
{
    job->killed = clock_seconds();
    job->start = 0;
}

/* Start JOB's command, unless its point is infeasible. */
static int start(struct loop *l, struct job *job, const double *x, struct err *err)
{
    int infeasible = l->require && !job->tries ? spawn_feasible(l, job, x, err) : 0;

    if (infeasible < 0)
        return -1;
    if (l->signal) {
        forgo(job);
        return 0;
    }
    job->infeasible = infeasible;
    return infeasible ? 0 : spawn_command(l, job, x, err);
}

uint64_t loop_budget(const struct loop *l)
{
    return l->o->trials ? (uint64_t)l->o->trials : l->s->file.run_cap;
}

/* The failed trials that do not count. */
static uint64_t pardoned(const struct loop *l)
{
    return (uint64_t)(l->o->pardoned < 0 ? l->o->trials : l->o->pardoned);
}

uint64_t loop_done(const struct loop *l)
{
    return session_done(l->s, pardoned(l), false);
}

/* Whether the best trial is as good as the file's metric asks for. */
static bool on_target(const struct loop *l)
{
    const struct sweepfile *f = &l->s->file;
    const struct study *s = &l->s->study;
    const struct study_trial *best;
    double target = f->nmetrics == 1 ? f->metrics[0].target : NAN;

    if (isnan(target) || s->nobjectives != 1 || !(best = study_best(s)))
        return false;
    return s->maximize[0] ? best->values[0] >= target : best->values[0] <= target;
}

bool loop_may_draw(const struct loop *l)
{
    if (l->signal || l->failure.kind || l->draining || l->gave_up || l->exhausted ||
        l->running == l->o->jobs || clock_seconds() >= l->end)
        return false;
    return !session_is_full(l->s, loop_budget(l), pardoned(l)) && !on_target(l);
}

/* T is JOB's from now on. */
static void take_trial(struct loop *l, struct job *job, const struct study_trial *t)
{
    *job = (struct job){ .number = t->number,
                         .slot = (int)(job - l->jobs),
                         .attempt = session_attempt(t) };
    job->dir = str_dupf("%s/%06d", l->base, t->number);
    l->running++;
}

/* Draw a trial into JOB, with the point in X; *drawn says whether there was one. */
static int draw(struct loop *l, struct job *job, double *x, bool *drawn,
                struct err *err)
{
    struct session *s = l->s;
    int number, ret = session_draw(s, &number, x, err);
    const struct study_trial *t;

    *drawn = ret > 0;
    l->exhausted |= ret == 0;
    if (ret <= 0)
        return ret;
    if (s->st->ops->load(s->st, &s->study, s->name, err) < 0)
        return -1;
    t = &s->study.trials[number];
    take_trial(l, job, t);
    return session_lease(s, t->id, RUN_LEASE, l->identity, err);
}

/* Give JOB the trial T that was drawn for it, with its point in X. */
static void adopt(struct loop *l, struct job *job, const struct study_trial *t,
                  double *x)
{
    const struct space *space = &l->s->file.space;

    for (size_t i = 0; i < space->n; i++)
        x[i] = NAN;
    for (size_t k = 0; k < t->nparams; k++) {
        int at = space_find(space, l->s->study.names[t->params[k].name]);

        if (at >= 0)
            x[at] = t->params[k].value;
    }
    take_trial(l, job, t);
}

/* Note how JOB's command ended in the joblog. */
static int log_end(const struct loop *l, const struct job *job, struct err *err)
{
    char *path = fs_join_dup(job->dir, "stdout");
    struct joblog_entry e = { .number = job->number,
                              .start = job->start_time,
                              .seconds = clock_seconds() - job->start,
                              .status = job->status,
                              .killed = job->killed > 0,
                              .command = job->command };

    if (fs_size(&e.output_bytes, path, NULL) < 0)
        e.output_bytes = 0;
    free(path);
    return joblog_add(l->log, l->o->joblog, &e, err);
}

static bool ended_well(const struct job *job)
{
    return WIFEXITED(job->status) && !WEXITSTATUS(job->status) && !job->killed;
}

/* Whether JOB ended well, with its values, and its constraints if it has some; WHY says
 * why it has none. */
static int find_values(bool *ok, const struct loop *l, const struct job *job,
                       double *values, char **constraints, struct str *why,
                       struct err *err)
{
    const struct measure *m = &l->o->measure;

    *ok = ended_well(job);
    if (*ok &&
        measure_read(ok, values, l->s->study.nobjectives, m, job->dir, why, err) < 0)
        return -1;
    return *ok ? measure_constraints(ok, constraints, m, job->dir, why, err) : 0;
}

/* Consecutive failures end the run, whatever the results of the trials still running.
 */
static void count_failure(struct loop *l, bool failed)
{
    if (l->gave_up)
        return;
    l->failures = failed ? l->failures + 1 : 0;
    l->gave_up = l->o->failures && l->failures >= l->o->failures;
}

/* Trial NUMBER is one of this run's. */
static void note_end(struct loop *l, int number)
{
    l->ended = xgrow(l->ended, &l->ended_cap, l->nended + 1, sizeof(*l->ended));
    l->ended[l->nended++] = number;
}

/* Record that T, which JOB ran, has its VALUES. */
static int record(struct loop *l, struct job *job, struct study_trial *t,
                  const double *values, const char *constraints, struct err *err)
{
    struct session *s = l->s;
    size_t n = s->study.nobjectives;
    bool kept = measure_keep(values, n, job->dir, NULL) == 0;

    (void)kept; /* the command may have removed the directory */
    if (constraints && session_constrain(s, t, constraints, err) < 0)
        return -1;
    count_failure(l, false);
    return session_finish(s, t, STUDY_COMPLETE, values, n, err);
}

/* Record that T, which JOB ran, has none, WHY if it ended well. */
static int record_failure(struct loop *l, const struct job *job, struct study_trial *t,
                          struct str *why, struct err *err)
{
    struct session *s = l->s;
    struct ending end;
    bool cut_short;

    ending_find(&end, &cut_short, why, l, job);
    if (session_explain(s, t, &end, err) < 0)
        return -1;
    if (cut_short)
        return session_interrupt(s, t, l->o->requeue, err);
    count_failure(l, true);
    return session_finish(s, t, STUDY_FAIL, NULL, 0, err);
}

/* Did JOB's command end by itself, without a result, because should-prune told T to
 * stop? The pruner is not asked again: other trials' reports may have changed its mind.
 */
static bool obeyed(const struct job *job, const struct study_trial *t)
{
    return job->pruned || (job->start > 0 && WIFEXITED(job->status) &&
                           WEXITSTATUS(job->status) == 0 && session_condemned(t));
}

/* Record that the check found the point of T infeasible: samplers keep away from
 * there. */
static int record_infeasible(struct loop *l, struct study_trial *t, struct err *err)
{
    const struct ending end = { .status = 1, .reason = "infeasible, says --require" };
    struct session *s = l->s;

    if (session_constrain(s, t, "[1.0]", err) < 0 ||
        session_explain(s, t, &end, err) < 0)
        return -1;
    return session_finish(s, t, STUDY_FAIL, NULL, 0, err);
}

/* Record that T was pruned. */
static int record_pruned(struct loop *l, struct study_trial *t, struct err *err)
{
    count_failure(l, false);
    return session_finish(l->s, t, STUDY_PRUNED, NULL, 0, err);
}

/* Start JOB, which failed, once more. */
static int try_again(struct loop *l, struct job *job, struct err *err)
{
    job->attempt++;
    job->tries++;
    return session_note_attempt(l->s, study_find(&l->s->study, job->number)->id,
                                job->attempt, err);
}

/* JOB has come to its end. */
static void let_go(struct loop *l, struct job *job)
{
    l->over[job->slot] = *job;
    *job = (struct job){ 0 };
    l->running--;
}

/* Record how JOB ended; *again when it is to be started once more instead. */
static int finish(struct loop *l, struct job *job, bool *again, struct err *err)
{
    double *values = xcalloc(l->s->study.nobjectives, sizeof(*values));
    char *constraints = NULL;
    struct str why = { 0 };
    struct study_trial *t = study_find(&l->s->study, job->number);
    bool told = !t || study_finished(t); /* by the command itself, or pruned */
    bool ok = false, pruned;
    bool skip = told || job->infeasible;
    int ret = skip ? 0 : find_values(&ok, l, job, values, &constraints, &why, err);

    pruned = !told && !ok && obeyed(job, t);
    *again = ret == 0 && !skip && !ok && !pruned && !l->signal && !l->failure.kind &&
             job->tries < l->o->retries;
    l->over[job->slot] = *job; /* for the log */
    if (ret == 0 && job->infeasible)
        ret = told ? 0 : record_infeasible(l, t, err);
    else if (ret == 0 && *again)
        ret = try_again(l, job, err);
    else if (ret == 0 && ok)
        ret = record(l, job, t, values, constraints, err);
    else if (ret == 0 && pruned)
        ret = record_pruned(l, t, err);
    else if (ret == 0 && !told)
        ret = record_failure(l, job, t, &why, err);
    else if (t)
        count_failure(l, t->state == STUDY_FAIL);
    free(values);
    free(constraints);
    str_clear(&why);
    if (*again)
        return ret;
    if (!job->infeasible)
        note_end(l, job->number);
    let_go(l, job);
    return ret;
}

/* Note JOB's new reports; *news when there are some, at steps old or new. */
static int take_reports(struct loop *l, struct job *job, struct study_trial *t,
                        bool *news, struct err *err)
{
    struct session *s = l->s;
    int64_t step;
    double value;
    char *text, *line, *rest;
    int ret = 0;

    *news = false;
    while (ret == 0 && (ret = job_reports(&text, job, err)) == 0 && text) {
        for (rest = text; ret == 0 && (line = strsep(&rest, "\n"));) {
            if (!measure_report(&step, &value, &l->o->measure, line))
                continue;
            ret = s->st->ops->set_report(s->st, t->id, step, value, err);
            study_set_report(t, step, value);
            *news = true;
        }
        free(text);
    }
    return ret;
}

/* Take up JOB's new reports; end it when its pruner says so. */
static int watch(struct loop *l, struct job *job, struct err *err)
{
    struct session *s = l->s;
    struct study_trial *t = study_find(&s->study, job->number);
    bool news, prune = false;

    if (!t || study_finished(t))
        return 0;
    if (job->pruned) /* but that was not committed */
        return session_finish(s, t, STUDY_PRUNED, NULL, 0, err);
    if (take_reports(l, job, t, &news, err) < 0)
        return -1;
    /* the command may have said `hpo-sweep report` as well */
    if (job->killed || !job->pid || (!news && t->nreports == job->judged))
        return 0;
    job->judged = t->nreports;
    if (session_judge(s, t, &prune, err) < 0)
        return -1;
    if (!prune)
        return 0;
    job->pruned = true;
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
                guard_set(&l->guard, i, 0);
                l->jobs[i].pid = 0;
                l->jobs[i].status = status;
            }
}

static bool ended(const struct job *job)
{
    return job->dir && !job->pid;
}

static bool some_ended(const struct loop *l)
{
    for (int i = 0; i < l->o->jobs; i++)
        if (ended(&l->jobs[i]))
            return true;
    return false;
}

/* Say of the trials that run that they do, from time to time. */
static int renew_leases(struct loop *l, struct err *err)
{
    if (clock_seconds() - l->renewed < RUN_NEWS)
        return 0;
    l->renewed = clock_seconds();
    for (int i = 0; i < l->o->jobs; i++) {
        const struct study_trial *t =
            l->jobs[i].dir ? study_find(&l->s->study, l->jobs[i].number) : NULL;

        if (t && !study_finished(t) && session_renew(l->s, t, err) < 0)
            return -1;
    }
    return 0;
}

/* One transaction: reports, trials that ended, and new ones to start (or once more),
 * which are marked in FRESH. */
static int transact(struct loop *l, double *points, bool *fresh, struct err *err)
{
    size_t n = l->s->file.space.n;

    if (session_begin(l->s, err) < 0 || renew_leases(l, err) < 0)
        return -1;
    for (int i = 0; i < l->o->jobs; i++)
        if (l->jobs[i].dir && watch(l, &l->jobs[i], err) < 0)
            return -1;
    for (int i = 0; i < l->o->jobs; i++) {
        fresh[i] = false;
        if (ended(&l->jobs[i]) && finish(l, &l->jobs[i], &fresh[i], err) < 0)
            return -1;
    }
    if (l->s->st->ops->load(l->s->st, &l->s->study, l->s->name, err) < 0)
        return -1;
    if (loop_may_draw(l) && session_end_leases(l->s, l->o->requeue, err) < 0)
        return -1;
    for (int i = 0; i < l->o->jobs; i++) {
        double *x = points + (size_t)i * n;
        const struct study_trial *t = l->jobs[i].dir ? NULL : recover_find(l);

        if (t) {
            adopt(l, &l->jobs[i], t, x);
            fresh[i] = true;
        } else if (!l->jobs[i].dir && loop_may_draw(l) &&
                   draw(l, &l->jobs[i], x, &fresh[i], err) < 0) {
            return -1;
        }
    }
    l->recovered = false;
    return session_end(l->s, err);
}

/* What the transaction decided is committed: log ends, let commands go. */
static int settle(struct loop *l, struct err *err)
{
    int ret = 0;

    for (int i = 0; i < l->o->jobs; i++) {
        struct job *over = &l->over[i], *job = &l->jobs[i];
        bool goes_on = over->dir == job->dir; /* it is tried again */

        if (over->dir && l->log >= 0 && over->start > 0 && ret == 0)
            ret = log_end(l, over, err);
        if (!goes_on)
            job_clear(over);
        *over = (struct job){ 0 };
        if (job->pruned && job->pid && !job->killed) {
            job->killed = clock_seconds();
            job_kill(job, SIGTERM);
        }
    }
    return ret;
}

/* A transaction, whatever becomes of the connection to the storage. */
static int record_all(struct loop *l, double *points, bool *fresh, struct err *err)
{
    for (;;) {
        struct remembered before;
        int ret;

        recover_remember(&before, l);
        ret = transact(l, points, fresh, err);
        if (ret < 0 && l->s->st->passing)
            ret = recover_wait(l, &before, err) < 0 ? -1 : 1;
        recover_forget(&before);
        if (ret <= 0)
            return ret < 0 ? -1 : settle(l, err);
    }
}

/* End commands past their timeout, and all commands after a signal or an error of our
 * own; at a second signal kill them at once. */
static void enforce(struct loop *l)
{
    double now = clock_seconds();

    for (int i = 0; i < l->o->jobs; i++) {
        struct job *job = &l->jobs[i];

        if (!job->pid)
            continue;
        if (!job->killed && (l->signal || l->failure.kind ||
                             (l->o->timeout > 0 && now - job->start > l->o->timeout))) {
            job->timed_out = !l->signal && !l->failure.kind;
            job->killed = now;
            job_kill(job, SIGTERM);
        } else if (job->killed && (l->hurry || now - job->killed > JOB_GRACE)) {
            job_kill(job, SIGKILL);
        }
    }
}

void loop_tend(struct loop *l)
{
    collect(l);
    enforce(l);
}

static bool idle(const struct loop *l)
{
    for (int i = 0; i < l->o->jobs; i++)
        if (l->jobs[i].dir)
            return false;
    return true;
}

/* Start the trials that were drawn; *more says whether one is over, being infeasible.
 * When one cannot be started, neither it nor the others are, and the run ends. */
static void launch(struct loop *l, const double *points, const bool *fresh, bool *more)
{
    size_t n = l->s->file.space.n;

    *more = false;
    for (int i = 0; i < l->o->jobs; i++) {
        struct job *job = &l->jobs[i];

        if (!fresh[i])
            continue;
        if (!l->doubted)
            run_doubt(l);
        l->doubted = true;
        if (l->failure.kind || start(l, job, points + (size_t)i * n, &l->failure) < 0)
            forgo(job);
        *more |= job->infeasible;
    }
}

/* What ended a command may be about to end the run, as when Slurm signals all processes
 * of a job: wait a little for it, so that the trial is not taken for failed. */
static void expect_signal(struct loop *l)
{
    double start = clock_seconds();
    bool expected = false;

    for (int i = 0; i < l->o->jobs; i++)
        expected |= ended(&l->jobs[i]) && ending_may_be_ours(&l->jobs[i]);
    while (expected && !l->signal && clock_seconds() - start < 0.5)
        signals_wait(l);
}

/* Wait for a child, a signal or the next tick; returns whether there is something to
 * record. */
static bool wait_for_news(struct loop *l)
{
    bool tick = false, news;

    collect(l); /* what ended while others were started */
    if (!some_ended(l))
        tick = !signals_wait(l);
    loop_tend(l);
    expect_signal(l);
    if (some_ended(l))
        return true;
    news = tick && l->pruning; /* the commands may report by themselves */
    for (int i = 0; i < l->o->jobs; i++)
        news |= tick && job_reported(&l->jobs[i]);
    return news || clock_seconds() - l->renewed >= RUN_NEWS;
}

/* End JOB at once, when nothing can be recorded any more. */
static void drop(struct loop *l, struct job *job)
{
    if (job->pid) {
        job_kill(job, SIGKILL);
        waitpid(job->pid, NULL, 0);
        guard_set(&l->guard, job->slot, 0);
    }
    job_clear(job);
}

int loop_run(struct loop *l, struct err *err)
{
    double *points = xcalloc((size_t)l->o->jobs, l->s->file.space.n * sizeof(*points));
    bool *fresh = xcalloc((size_t)l->o->jobs, sizeof(*fresh)), more;
    struct progress progress = progress_begin(l);
    int ret = -1;

    signals_block(l);
    l->renewed = clock_seconds();
    do {
        do {
            if (record_all(l, points, fresh, err) < 0)
                goto out;
            launch(l, points, fresh, &more);
        } while (more);
        do
            progress_show(&progress, l);
        while (!idle(l) && !wait_for_news(l));
    } while (!idle(l));
    ret = 0;
out:
    if (l->failure.kind) {
        *err = l->failure;
        ret = -1;
    }
    for (int i = 0; i < l->o->jobs; i++) {
        if (l->over[i].dir != l->jobs[i].dir)
            job_clear(&l->over[i]);
        drop(l, &l->jobs[i]);
    }
    progress_end(&progress, l);
    free(points);
    free(fresh);
    return ret;
}
