/* ending - why a trial failed, and what a run says of its trials at its end */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/hpo-sweep/run.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"

/* ---- of a trial ---- */

void ending_find(struct ending *end, bool *cut_short, struct str *why,
                 const struct loop *l, const struct job *job)
{
    bool started = job->start > 0;
    char buf[16];

    *end = (struct ending){ .status = -1 };
    if (started && WIFEXITED(job->status))
        end->status = WEXITSTATUS(job->status);
    if (started && WIFSIGNALED(job->status))
        end->signal = WTERMSIG(job->status);
    *cut_short = !job->timed_out && !job->flooded && (l->signal || l->failure.kind);
    if (!why->len || *cut_short) {
        str_reset(why);
        if (*cut_short && l->signal)
            str_addf(why, "interrupted: the run got %s", signals_name(buf, l->signal));
        else if (*cut_short)
            str_add(why, "interrupted: the run ended");
        else if (job->timed_out)
            str_add(why, "timeout");
        else if (job->flooded)
            str_addf(why, "more than %" PRIu64 " bytes of output",
                     l->o->limits.output_bytes);
        else if (end->signal)
            str_addf(why, "killed by %s%s", signals_name(buf, end->signal),
                     end->signal == SIGKILL ? ", perhaps for want of memory" : "");
        else
            str_addf(why, "exit status %d", end->status);
    }
    end->reason = str_text(why);
}

bool ending_may_be_ours(const struct job *job)
{
    static const int ours[] = { SIGTERM, SIGINT, SIGHUP, SIGKILL };

    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
        if (!job->killed &&
            ((WIFSIGNALED(job->status) && WTERMSIG(job->status) == ours[i]) ||
             (WIFEXITED(job->status) && WEXITSTATUS(job->status) == 128 + ours[i])))
            return true;
    return false;
}

/* ---- of a run ---- */

/* Failures for the same reason, as far as its first colon. */
struct cause {
    char *reason; /* of the first; owned */
    size_t n;
    int trial;
};

struct tally {
    size_t complete, pruned, infeasible, failed, interrupted;
    struct cause *causes; /* [ncauses] */
    size_t ncauses, cap;
};

static void tally_clear(struct tally *t)
{
    for (size_t i = 0; i < t->ncauses; i++)
        free(t->causes[i].reason);
    free(t->causes);
}

static void add_cause(struct tally *t, char *reason, int trial)
{
    size_t len = strcspn(reason, ":");

    t->failed++;
    for (size_t i = 0; i < t->ncauses; i++)
        if (strcspn(t->causes[i].reason, ":") == len &&
            !memcmp(t->causes[i].reason, reason, len)) {
            t->causes[i].n++;
            free(reason);
            return;
        }
    t->causes = xgrow(t->causes, &t->cap, t->ncauses + 1, sizeof(*t->causes));
    t->causes[t->ncauses++] = (struct cause){ reason, 1, trial };
}

static void add_trial(struct tally *tally, const struct study_trial *t)
{
    char *reason;

    tally->complete += t->state == STUDY_COMPLETE;
    tally->pruned += t->state == STUDY_PRUNED;
    if (t->state != STUDY_FAIL)
        return;
    reason = session_reason_dup(t);
    if (study_violation(t) > 0)
        tally->infeasible++;
    else if (reason && str_starts(reason, "interrupted"))
        tally->interrupted++;
    else {
        add_cause(tally, reason ? reason : xstrdup("a reason not noted"), t->number);
        return;
    }
    free(reason);
}

static void add_count(struct str *out, size_t n, const char *what)
{
    if (n)
        str_addf(out, "%s%zu %s", out->len ? ", " : "", n, what);
}

/* Where to look, and what else to try. */
static void add_hint(struct str *out, const struct loop *l, const struct cause *c)
{
    bool many = str_starts(c->reason, "not the right count");
    bool no_value = many || str_starts(c->reason, "no ");
    char *path =
        str_dupf("%s/%06d/%s", l->base, c->trial, no_value ? "stdout" : "stderr");

    if (access(path, F_OK) == 0) /* a hint, and no more */
        str_addf(out, "; see %s", path);
    if (no_value && !l->o->measure.nregexes)
        str_addf(out, "; a number elsewhere is found by %s--metric-regex",
                 many ? "its name (the sweep file's metric), or by " : "");
    free(path);
}

static void add_tally(struct str *out, const struct loop *l, const struct tally *t)
{
    struct str text = { 0 };

    str_addf(&text, "%zu complete", t->complete);
    add_count(&text, t->pruned, "pruned");
    add_count(&text, t->infeasible, "infeasible");
    add_count(&text, t->interrupted, "interrupted");
    add_count(&text, t->failed, "failed");
    for (size_t i = 0; i < t->ncauses; i++)
        str_addf(&text, "%s%s (%zu)", i ? ", " : ": ", t->causes[i].reason,
                 t->causes[i].n);
    if (t->ncauses)
        add_hint(&text, l, &t->causes[0]);
    str_add(out, text.s);
    str_clear(&text);
}

/* The best trial of a single objective, and what it tried. */
static void add_best(struct str *out, const struct study *s)
{
    const struct study_trial *best = s->nobjectives == 1 ? study_best(s) : NULL;

    if (!best)
        return;
    str_addf(out, "; best %g (trial %d)", best->values[0], best->number);
    for (size_t k = 0; k < best->nparams; k++) {
        const struct study_param *p = &best->params[k];

        str_addf(out, "%s%s=", k ? " " : ": ", s->names[p->name]);
        if (p->dist->kind == DIST_FLOAT)
            str_addf(out, "%g", p->value);
        else
            dist_write_word(out, p->dist, p->value);
    }
}

/* Is the condition of --fail-on met?  WHY explains it if no trial does. */
static bool goes_wrong(const struct loop *l, struct str *why)
{
    const struct space *space = &l->s->file.space;
    struct study_counts counts;
    struct points points;
    uint64_t want;
    bool wrong;

    study_count(&counts, &l->s->study);
    if (l->o->fail_on == FAIL_ON_NEVER)
        return false;
    if (l->gave_up || !counts.complete || l->o->fail_on == FAIL_ON_ALL)
        return l->gave_up || !counts.complete;
    points_init(&points, l->s);
    wrong = points.nfailed > 0;
    if (l->s->sampler.sampler->ends) {
        want = space_size(space);
        if (loop_budget(l) && loop_budget(l) < want)
            want = loop_budget(l);
        if (points.filled < want)
            str_addf(why, "%zu of %" PRIu64 " points have a value: ", points.filled,
                     want);
        wrong |= points.filled < want;
    } else if (wrong) {
        str_addf(why, "%zu points have no value: ", points.nfailed);
    }
    points_clear(&points);
    return wrong;
}

int ending_report(struct loop *l, const struct cmd *cmd)
{
    const struct study *s = &l->s->study;
    struct tally tally = { 0 };
    struct str line = { 0 };
    bool wrong = goes_wrong(l, &line);
    bool all =
        wrong && !l->nended; /* nothing was left to do: report the earlier results */
    char buf[16];

    for (size_t i = 0; i < (all ? s->n : l->nended); i++)
        add_trial(&tally, &s->trials[all ? (int)i : l->ended[i]]);
    if (l->signal)
        str_addf(&line, "ended by %s: ", signals_name(buf, l->signal));
    else if (l->gave_up)
        str_addf(&line, "%d trials in a row failed: ", l->failures);
    else if (all && loop_budget(l))
        str_addf(&line, "%" PRIu64 " of %" PRIu64 " trials reached: ", loop_done(l),
                 loop_budget(l));
    add_tally(&line, l, &tally);
    if (l->s->left)
        str_addf(
            &line,
            "; points left after too many interruptions: %zu, which --retry-failed "
            "tries again",
            l->s->left);
    if (!wrong)
        add_best(&line, s);
    if (!wrong && cmd_progress(l->o->quiet))
        str_addf(&line, "; study '%s' of %s", l->s->name, l->s->url);
    if ((wrong && !l->signal) ||
        (!l->o->quiet && (l->nended || l->s->left || l->signal)))
        cmd_warn(cmd, "%s", line.s);
    tally_clear(&tally);
    str_clear(&line);
    return l->signal ? 128 + l->signal : wrong;
}
