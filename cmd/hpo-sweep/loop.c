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
#include "lib/sweep/job/strays.h"

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

/* May a trial be started, whatever the study has? */
static bool may_start(const struct loop *l)
{
    return !l->signal && !l->failure.kind && !l->draining && !l->gave_up &&
           l->running < l->o->jobs && clock_seconds() < l->end;
}

bool loop_may_draw(const struct loop *l)
{
    return may_start(l) && !l->exhausted && !on_target(l) &&
           !session_is_full(l->s, loop_budget(l), pardoned(l));
}

/* What JOB is told of T's origin. */
static void take_origin(const struct loop *l, struct job *job,
                        const struct study_trial *t)
{
    struct origin o = session_origin(l->s, t);
    char **v = xcalloc(4, sizeof(*v));

    job->variables = v;
    job->checkpoint = o.checkpoint;
    if (o.checkpoint)
        *v++ = str_dupf("%s=%s", o.resumes ? "HPO_RESUME" : "HPO_PARENT", o.checkpoint);
    if (o.generation >= 0)
        *v++ = str_dupf("HPO_GENERATION=%d", o.generation);
    if (o.member >= 0)
        *v++ = str_dupf("HPO_MEMBER=%d", o.member);
}

/* T is JOB's from now on. */
static void take_trial(struct loop *l, struct job *job, const struct study_trial *t)
{
    *job = (struct job){ .number = t->number,
                         .slot = (int)(job - l->jobs),
                         .attempt = session_attempt(t) };
    job->dir = str_dupf(JOB_DIR, l->base, t->number);
    take_origin(l, job, t);
    l->running++;
}

/* Draw a trial into JOB, with the point in X; *drawn says whether there was one. */
static int draw(struct loop *l, struct job *job, double *x, bool *drawn,
                struct err *err)
{
    struct session *s = l->s;
    int number, ret = session_draw(s, &number, x, err);
    const struct study_trial *t;

    *drawn = ret == 1;
    l->exhausted |= ret == 0;
    l->later |= ret == SAMPLER_LATER;
    if (ret != 1)
        return ret < 0 ? -1 : 0;
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
    session_point(x, l->s, t);
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
static int record_pruned(struct loop *l, struct study_trial *t, bool has_checkpoint,
                         struct err *err)
{
    count_failure(l, false);
    if (l->pauses && !has_checkpoint && !l->lacks) {
        l->lacks = true;
        cmd_warn(l->cmd,
                 "trial %d is paused and cannot go on: its command wrote no path of a "
                 "checkpoint to HPO_CHECKPOINT",
                 t->number);
    }
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

/* Note the checkpoint that JOB, of trial T, ended with, if any: *has.  One that others
 * of a population could not begin with makes a result none, WHY. */
static int note_checkpoint(struct loop *l, const struct job *job,
                           const struct study_trial *t, bool *has, bool *ok,
                           struct str *why, struct err *err)
{
    char *path = NULL;
    int ret = job->infeasible ? 0 : job_checkpoint(&path, job, err);
    bool unusable = ret < 0 && err->kind == ERR_INPUT;

    if (unusable) { /* that is this trial's alone */
        *ok = false;
        str_reset(why);
        str_addf(why, "no checkpoint: %s", err->text);
        *err = (struct err){ 0 };
        ret = 0;
    }
    if (ret == 0 && path)
        ret = session_note_checkpoint(l->s, t, path, err);
    *has = path != NULL;
    if (ret == 0 && *ok && !path && l->s->sampler.sampler->forks) {
        *ok = false;
        str_add(why, "no checkpoint: the command wrote no path of one to "
                     "HPO_CHECKPOINT");
    }
    free(path);
    return ret;
}

/* Record how JOB ended; *again when it is to be started once more instead. */
static int finish(struct loop *l, struct job *job, bool *again, struct err *err)
{
    double *values = xcalloc(l->s->study.nobjectives, sizeof(*values));
    char *constraints = NULL;
    struct str why = { 0 };
    struct study_trial *t = study_find(&l->s->study, job->number);
    bool told = !t || study_finished(t); /* by the command itself, or pruned */
    bool ok = false, pruned, has_checkpoint = false;
    bool skip = told || job->infeasible;
    int ret = skip ? 0 : find_values(&ok, l, job, values, &constraints, &why, err);

    if (ret == 0 && !told)
        ret = note_checkpoint(l, job, t, &has_checkpoint, &ok, &why, err);

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
        ret = record_pruned(l, t, has_checkpoint, err);
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

/* JOB's command is to end, as T is pruned: at once, or when it has left a checkpoint,
 * which is noted on trials that are not finished. */
static int prune(struct loop *l, struct job *job, struct study_trial *t,
                 struct err *err)
{
    job->pruned = true;
    job->paused = l->pauses;
    return l->pauses ? session_condemn(l->s, t, err)
                     : session_finish(l->s, t, STUDY_PRUNED, NULL, 0, err);
}

/* Take up JOB's new reports; end it when its pruner says so. */
static int watch(struct loop *l, struct job *job, struct err *err)
{
    struct session *s = l->s;
    struct study_trial *t = study_find(&s->study, job->number);
    bool news, stop = false;

    if (!t || study_finished(t))
        return 0;
    if (job->pruned) /* but that was not committed, or it is paused */
        return session_condemned(t) ? 0 : prune(l, job, t, err);
    if (take_reports(l, job, t, &news, err) < 0)
        return -1;
    /* the command may have said `hpo-sweep report` as well */
    if (job->killed || !job->pid || (!news && t->nreports == job->judged))
        return 0;
    job->judged = t->nreports;
    if (session_judge(s, t, &stop, err) < 0)
        return -1;
    return stop ? prune(l, job, t, err) : 0;
}

/* End what JOB, whose command has ended, has left outside of its group; with NULL, what
 * any has. */
static void end_strays(const struct loop *l, const struct job *job)
{
    pid_t *keep = xcalloc((size_t)l->o->jobs + 1, sizeof(*keep));
    size_t n = 0;

    keep[n++] = l->guard.pid;
    for (int i = 0; i < l->o->jobs; i++)
        if (l->jobs[i].pid && &l->jobs[i] != job)
            keep[n++] = l->jobs[i].pid;
    strays_end(job ? job->dir : l->base, !job, keep, n);
    free(keep);
}

static void collect(struct loop *l)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (int i = 0; i < l->o->jobs; i++)
            if (l->jobs[i].pid == pid) {
                job_kill(&l->jobs[i], SIGKILL); /* what is left of its group */
                end_strays(l, &l->jobs[i]);
                guard_set(&l->guard, i, 0, 0);
                l->jobs[i].pid = 0;
                l->jobs[i].status = status;
                if (l->jobs[i].flooded)
                    job_cut_output(&l->jobs[i], l->o->limits.output_bytes);
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

/* *more says whether there is a trial to start.  One that goes on with a training is
 * there beside those that were asked for. */
static int find_more(struct loop *l, bool *more, struct err *err)
{
    if (may_start(l) && l->pauses && !session_goes_on(l->s) &&
        session_promote(l->s, err) < 0)
        return -1;
    *more = may_start(l) && (session_goes_on(l->s) || (!l->later && loop_may_draw(l)));
    return 0;
}

/* One transaction: reports, trials that ended, and new ones to start (or once more),
 * which are marked in FRESH. */
static int transact(struct loop *l, double *points, bool *fresh, struct err *err)
{
    size_t n = l->s->file.space.n;

    l->looked = clock_seconds();
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
    if (may_start(l) && session_end_leases(l->s, l->o->requeue, err) < 0)
        return -1;
    if (l->later && session_reap(l->s, l->o->requeue, err) < 0)
        return -1; /* another run of this host may be waited for in vain */
    l->later = false;
    for (int i = 0; i < l->o->jobs; i++) {
        double *x = points + (size_t)i * n;
        const struct study_trial *t = l->jobs[i].dir ? NULL : recover_find(l);
        bool more = false;

        if (t) {
            adopt(l, &l->jobs[i], t, x);
            fresh[i] = true;
        } else if (!l->jobs[i].dir && find_more(l, &more, err) < 0) {
            return -1;
        } else if (more && draw(l, &l->jobs[i], x, &fresh[i], err) < 0) {
            return -1;
        }
    }
    l->later = (l->later || l->pauses) && may_start(l) && session_some_run(l->s);
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
        if (!job->killed && l->o->limits.output_bytes &&
            job_output_bytes(job) > l->o->limits.output_bytes) {
            job->flooded = true; /* at once: it would go on writing */
            job->killed = now;
            job_kill(job, SIGKILL);
        } else if (!job->killed &&
                   (l->signal || l->failure.kind ||
                    (l->o->timeout > 0 && now - job->start > l->o->timeout))) {
            job->timed_out = !l->signal && !l->failure.kind;
            job->killed = now;
            job_kill(job, SIGTERM);
        } else if (job->killed &&
                   (l->hurry ||
                    now - job->killed >
                        JOB_GRACE + (job->paused && !l->signal ? JOB_SAVING : 0))) {
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

/* Seconds between two looks at what other runs have ended. */
enum { LOOK = 2 };

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
    news |= tick && l->later && clock_seconds() - l->looked >= LOOK;
    for (int i = 0; i < l->o->jobs; i++)
        news |= tick && job_reported(&l->jobs[i]);
    return news || clock_seconds() - l->renewed >= RUN_NEWS;
}

/* Is there nothing more to wait for? */
static bool is_over(const struct loop *l)
{
    return idle(l) && (!l->later || !may_start(l));
}

/* End JOB at once, when nothing can be recorded any more. */
static void drop(struct loop *l, struct job *job)
{
    if (job->pid) {
        job_kill(job, SIGKILL);
        waitpid(job->pid, NULL, 0);
        guard_set(&l->guard, job->slot, 0, 0);
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
    strays_adopt();
    l->renewed = clock_seconds();
    do {
        do {
            if (record_all(l, points, fresh, err) < 0)
                goto out;
            launch(l, points, fresh, &more);
        } while (more);
        do
            progress_show(&progress, l);
        while (!is_over(l) && !wait_for_news(l));
    } while (!is_over(l));
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
    end_strays(l, NULL);
    progress_end(&progress, l);
    free(points);
    free(fresh);
    return ret;
}
