/* recover - the storage is gone for a while: trials go on, and nothing is done twice
 *
 * A transaction of the run is made again as a whole when the connection was lost, and
 * nobody may know whether it was committed.  So each of its steps may be taken twice: a
 * trial that is finished is not finished again, an attribute or report has the same
 * value again, and a trial that was drawn for this run, which its lease tells, is taken
 * instead of another.  What else a step would do (log, signal, forget) waits until the
 * transaction is committed. */
#include <stdlib.h>
#include <string.h>

#include "cmd/hpo-sweep/run.h"
#include "lib/base/clock.h"
#include "lib/base/mem.h"

/* Seconds without a storage, and without a command that runs, after which a run gives
 * up; and the longest between two tries. */
enum { PATIENCE = 3600, LONGEST_NAP = 10 };

static size_t jobs_bytes(const struct loop *l)
{
    return (size_t)l->o->jobs * sizeof(*l->jobs);
}

void recover_remember(struct remembered *r, const struct loop *l)
{
    *r = (struct remembered){ .jobs = xmalloc(jobs_bytes(l)),
                              .running = l->running,
                              .failures = l->failures,
                              .gave_up = l->gave_up,
                              .exhausted = l->exhausted,
                              .nended = l->nended,
                              .left = l->s->left,
                              .renewed = l->renewed };
    memcpy(r->jobs, l->jobs, jobs_bytes(l));
}

void recover_forget(struct remembered *r)
{
    free(r->jobs);
}

/* Jobs are as they were, but that those to be ended, their trials being pruned, are. */
static void take_back(struct loop *l, const struct remembered *r)
{
    for (int i = 0; i < l->o->jobs; i++) {
        struct job *job = &l->jobs[i];
        bool pruned = job->dir == r->jobs[i].dir && job->pruned;
        bool paused = pruned && job->paused;

        if (job->dir && job->dir != r->jobs[i].dir)
            job_clear(job); /* drawn, and not started */
        *job = r->jobs[i];
        job->pruned |= pruned;
        job->paused |= paused;
        l->over[i] = (struct job){ 0 };
    }
    l->running = r->running;
    l->failures = r->failures;
    l->gave_up = r->gave_up;
    l->exhausted = r->exhausted;
    l->nended = r->nended;
    l->s->left = r->left;
    l->renewed = r->renewed;
}

static bool some_run(const struct loop *l)
{
    for (int i = 0; i < l->o->jobs; i++)
        if (l->jobs[i].pid)
            return true;
    return false;
}

/* Let SECONDS pass, or until a signal comes to the run; commands go on. */
static void nap(struct loop *l, double seconds)
{
    double end = clock_seconds() + seconds;
    int signal = l->signal;

    while (clock_seconds() < end && signal == l->signal) {
        signals_wait(l);
        loop_tend(l);
    }
}

int recover_wait(struct loop *l, const struct remembered *r, struct err *err)
{
    double seconds = 0.1, begun = clock_seconds();

    take_back(l, r);
    l->recovered = true;
    if (!l->o->quiet)
        cmd_warn(l->cmd, "%s; trying again", err->text);
    while (session_recover(l->s, err) < 0) {
        if (!l->s->st->passing)
            return -1;
        nap(l, seconds);
        seconds = seconds < LONGEST_NAP / 2.0 ? 2 * seconds : LONGEST_NAP;
        if (some_run(l))
            begun = clock_seconds();
        if (clock_seconds() - begun > (l->signal ? JOB_GRACE : PATIENCE))
            return -1;
    }
    l->s->st->passing = false; /* what fails next may be no fault of the storage */
    return 0;
}

const struct study_trial *recover_find(const struct loop *l)
{
    struct study *s = &l->s->study;

    for (size_t i = study_first_open(s); l->recovered && i < s->n; i++) {
        const struct study_trial *t = &s->trials[i];
        bool known = t->state != STUDY_RUNNING;

        for (int k = 0; k < l->o->jobs && !known; k++)
            known = l->jobs[k].dir && l->jobs[k].number == t->number;
        if (!known && session_leased(t, l->identity))
            return t;
    }
    return NULL;
}
