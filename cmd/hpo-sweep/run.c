/* run - run a command for one trial after another */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd/hpo-sweep/run.h"
#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/sweep/job/joblog.h"
#include "lib/sweep/format/words.h"

/* Options that say when, as they were written. */
struct runner_times {
    const char *budget, *until, *timeout;
};

/* Seconds from now to the next HH:MM. */
static bool parse_until(double *out, const char *text)
{
    const char *colon = strchr(text, ':');
    time_t now = time(NULL), then = now;
    int hour, minute;
    struct tm tm;

    if (strspn(text, "0123456789:") != strlen(text) ||
        sscanf(text, "%2d:%2d", &hour, &minute) != 2 || colon - text > 2 ||
        strlen(colon) != 3 || hour > 23 || minute > 59)
        return false;
    for (int days = 0; then <= now && days < 2; days++) {
        localtime_r(&now, &tm);
        tm.tm_mday += days;
        tm.tm_hour = hour;
        tm.tm_min = minute;
        tm.tm_sec = 0;
        tm.tm_isdst = -1; /* the clock may be changed before */
        then = mktime(&tm);
    }
    *out = difftime(then, now);
    return true;
}

static int check_budget(const struct loop *l, struct err *err)
{
    if (loop_budget(l) || l->s->sampler.sampler->ends || isfinite(l->end))
        return 0;
    return err_set(err, ERR_USAGE,
                   "%s has no end: give --trials, --time-budget or --until",
                   l->s->sampler.sampler->name);
}

/* Begin with another study's trials, if that is asked for. */
static int warm_start(struct loop *l, const struct cmd *cmd, struct err *err)
{
    size_t taken, total;

    if (!l->o->warm)
        return 0;
    if (session_warm_start(l->s, l->o->warm, &taken, &total, err) < 0)
        return -1;
    if (total && (taken < total || cmd_progress(l->o->quiet)))
        cmd_warn(cmd, "%zu of %zu trials of '%s' are in the space and taken over",
                 taken, total, l->o->warm);
    return 0;
}

void run_doubt(const struct loop *l)
{
    const struct space *space = &l->s->file.space;

    if (l->o->quiet)
        return;
    for (size_t i = 0; i < space->n; i++)
        if (space->params[i].dist.kind != DIST_CATEGORICAL &&
            dist_single(&space->params[i].dist))
            cmd_warn(l->cmd, "the range of %s has one value, %g", space->params[i].name,
                     space->params[i].dist.low);
    if (space->n && !spawn_uses_parameters(l))
        cmd_warn(
            l->cmd,
            "the command uses no parameter: it names none, such as {%s}, and has no "
            "HPO_ variable",
            space->params[0].name);
}

/* The first change, from what session_prepare has begun. */
static int begin(struct loop *l, const struct cmd *cmd, struct err *err)
{
    struct session *s = l->s;

    if (check_budget(l, err) < 0 ||
        measure_check(&l->o->measure, s->study.nobjectives, err) < 0 ||
        s->st->ops->hold(s->st, s->name, l->o->share, err) < 0 ||
        warm_start(l, cmd, err) < 0)
        return -1;
    if (l->o->joblog && l->log < 0 && (l->log = joblog_open(l->o->joblog, err)) < 0)
        return -1;
    l->pruning = study_attr(&s->study.system, STUDY_PRUNER_KEY) != NULL;
    if (session_pauses(&l->pauses, s, err) < 0)
        return -1;
    if (session_reap(s, l->o->requeue, err) < 0 ||
        session_end_leases(s, l->o->requeue, err) < 0 ||
        (l->o->retry_failed && session_retry_failed(s, err) < 0) ||
        (loop_may_draw(l) && directory_hold(l, err) < 0) || session_end(s, err) < 0)
        return -1;
    return 0;
}

static int execute(struct loop *l, const struct cmd *cmd, struct err *err)
{
    for (bool again = false;; again = true) {
        int ret = again ? session_prepare(l->s, &l->o->wish, err) : 0;

        if (ret == 0)
            ret = begin(l, cmd, err);
        if (ret == 0)
            break;
        if (session_again(l->s, err) < 0)
            return -1;
    }
    guard_name(&l->guard, l->base);
    return loop_run(l, err);
}

/* What the words of the options mean. */
static int read_times(struct loop *l, struct runner_options *o,
                      const struct runner_times *t, struct err *err)
{
    double seconds;

    if (t->timeout && !str_duration(t->timeout, &o->timeout))
        return err_set(err, ERR_USAGE, "'%s' is not a time", t->timeout);
    if (t->budget && !str_duration(t->budget, &seconds))
        return err_set(err, ERR_USAGE, "'%s' is not a time", t->budget);
    if (t->budget)
        l->end = clock_seconds() + seconds;
    if (t->until && !parse_until(&seconds, t->until))
        return err_set(err, ERR_USAGE, "'%s' is not HH:MM", t->until);
    if (t->until)
        l->end = fmin(l->end, clock_seconds() + seconds);
    return 0;
}

/* Deal the devices. */
static int deal_devices(struct runner_options *o, const char *list, int per,
                        struct err *err)
{
    if (!list && per != 1)
        return err_set(err, ERR_USAGE, "--devices-per-trial needs --devices");
    if (list && !*list)
        o->no_devices = true;
    else if (list && devices_deal(&o->devices, list, per,
                                  getenv("CUDA_VISIBLE_DEVICES"), err) < 0)
        return -1;
    return 0;
}

/* As many trials at once as devices, processors and memory serve, unless -j says fewer.
 */
static int fit_jobs(struct runner_options *o, bool has_jobs, struct err *err)
{
    const struct {
        int slots;
        const char *what;
    } all[] = { { o->devices.nslots, "devices" },
                { o->limits.nslots, "processors or memory" } };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        if (all[i].slots && has_jobs && o->jobs > all[i].slots)
            return err_set(err, ERR_USAGE, "%d jobs, but %s for %d", o->jobs,
                           all[i].what, all[i].slots);
        if (all[i].slots && !has_jobs &&
            (!i || !all[0].slots || all[i].slots < o->jobs))
            o->jobs = all[i].slots;
    }
    return 0;
}

/* What the objectives are called: by the options, else by the file. */
static void name_objectives(struct runner_options *o, const struct sweepfile *f)
{
    size_t n = o->wish.metrics.n ? o->wish.metrics.n : f->nmetrics;

    o->measure.names = xcalloc(n + 1, sizeof(*o->measure.names));
    o->measure.nnames = n;
    for (size_t i = 0; i < n; i++)
        o->measure.names[i] =
            o->wish.metrics.n ? o->wish.metrics.v[i] : f->metrics[i].name;
}

/* What is wrong with the options is said before anything is opened. */
static int check_run(struct loop *l, struct err *err)
{
    const struct sweepfile *f = &l->s->file;
    const struct wish *w = &l->o->wish;
    size_t n = w->directions.n ? w->directions.n
               : f->nmetrics   ? f->nmetrics
               : w->metrics.n  ? w->metrics.n
                               : 1;
    bool found;

    if (spawn_check(l, err) < 0 || spawn_read_require(l, err) < 0)
        return -1;
    if (storage_find(&found, l->s->url, err) < 0)
        return -1;
    if (found) /* the study may say how many objectives there are */
        return 0;
    return check_budget(l, err) < 0 ? -1 : measure_check(&l->o->measure, n, err);
}

/* What draws; where there are studies only the one that is opened may say how many
 * objectives there are, on which the default depends. */
static const char *sampler_name(const struct loop *l)
{
    const char *asked = l->o->wish.sampler ? l->o->wish.sampler : l->s->file.sampler;

    if (l->s->sampler.sampler)
        return l->s->sampler.sampler->name;
    return asked ? asked : "the default sampler";
}

/* Under -n: what the sweep would do. */
static int print_plan(const struct loop *l, struct err *err)
{
    struct str line = { 0 };
    uint64_t most = loop_budget(l);
    bool found;

    if (storage_find(&found, l->s->url, err) < 0)
        return -1;
    str_add(&line, "would run");
    for (char *const *word = l->command; word && *word; word++)
        str_addf(&line, " %s", *word);
    if (!l->command)
        str_add(&line, " the command of the sweep file");
    if (most)
        str_addf(&line, " until %" PRIu64 " trials are done", most);
    str_addf(&line, ", %d at once, drawn by %s; study '%s' of %s, which %s", l->o->jobs,
             sampler_name(l), l->s->name, l->s->url, found ? "exists" : "is new");
    cmd_puts(str_text(&line));
    str_clear(&line);
    run_doubt(l);
    return 0;
}

/* Run the sweep of the session, whose file is read, to its end; the exit status, or
 * -1. */
static int run_sweep(struct loop *l, const struct cmd *cmd, struct err *err)
{
    char *here = getcwd(NULL, 0);
    int ret;

    l->base = str_dupf("%s/%s.trials", here ? here : ".", l->s->name);
    l->url = storage_absolute_dup(l->s->url);
    l->identity = job_identity_dup();
    l->cmd = cmd;
    l->jobs = xcalloc((size_t)l->o->jobs, sizeof(*l->jobs));
    l->over = xcalloc((size_t)l->o->jobs, sizeof(*l->over));
    ret = check_run(l, err);
    if (ret == 0 && l->o->dry)
        ret = print_plan(l, err);
    if (ret == 0 && !l->o->dry)
        ret = session_open_study(l->s, &l->o->wish, err);
    if (ret == 0 && !l->o->dry) {
        session_advise(l->s, cmd);
        ret = execute(l, cmd, err);
    }
    if (ret == 0 && !l->o->dry)
        ret = ending_report(l, cmd);
    if (l->log >= 0)
        close(l->log);
    if (l->base_held >= 0)
        close(l->base_held);
    free(l->jobs);
    free(l->over);
    free(l->ended);
    words_free(l->require);
    free(l->program);
    free(l->program_path);
    free(here);
    free(l->base);
    free(l->url);
    free(l->identity);
    return ret;
}

int run_main(const char *program, int argc, char **argv)
{
    static const char *const objectives[] = { "plain", "hf", NULL };
    static const char *const failing[] = { "all", "any", "never", NULL };
    struct runner_options o = { .jobs = 1, .failures = 3, .pardoned = -1 };
    struct runner_times times = { 0 };
    struct opt_list keys = { 0 }, regexes = { 0 };
    const char *devices = NULL;
    int per_trial = 1, cpus = 0, objective = 0, fail_on = 0;
    uint64_t memory = 0;
    bool has_jobs = false, requeue = false, no_requeue = false;
    /* clang-format off */
    const struct opt opts[] = {
        WISH_OPTIONS(o.wish),
        { OPT_COUNT, 'j', "jobs", &o.jobs, "N", "trials at once", NULL, &has_jobs },
        { OPT_INT, '\0', "trials", &o.trials, "N", "finished trials to reach", NULL,
          NULL },
        { OPT_STRING, '\0', "time-budget", &times.budget, "TIME", NULL, NULL, NULL },
        { OPT_STRING, '\0', "devices", &devices, "LIST", NULL, NULL, NULL },
        { OPT_STRING, '\0', "warm-start", &o.warm, "STUDY", NULL, NULL, NULL },
        { OPT_STRING, '\0', "require", &o.require, "FILE", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "shell", &o.shell, NULL, NULL, NULL, NULL },
        { OPT_STRING, '\0', "replace", &o.mark, "MARK", NULL, NULL, NULL },
        { OPT_FLAG, 'n', "dry-run", &o.dry, NULL, "check, and say what would be done",
          NULL, NULL },
        { OPT_FLAG, 'q', "quiet", &o.quiet, NULL, "say nothing but errors", NULL,
          NULL },
        { OPT_STRING, '\0', "until", &times.until, "HH:MM", NULL, NULL, NULL },
        { OPT_STRING, '\0', "trial-timeout", &times.timeout, "TIME", NULL, NULL,
          NULL },
        { OPT_INT, '\0', "max-consecutive-failures", &o.failures, "N", NULL, NULL,
          NULL },
        { OPT_INT, '\0', "retries", &o.retries, "N", NULL, NULL, NULL },
        { OPT_INT, '\0', "devices-per-trial", &per_trial, "N", NULL, NULL, NULL },
        { OPT_COUNT, '\0', "cpus-per-trial", &cpus, "N", NULL, NULL, NULL },
        { OPT_SIZE, '\0', "mem-per-trial", &memory, "SIZE", NULL, NULL, NULL },
        { OPT_SIZE, '\0', "max-output", &o.limits.output_bytes, "SIZE", NULL, NULL,
          NULL },
        { OPT_CHOICE, '\0', "objective", &objective, "KIND", NULL, objectives, NULL },
        { OPT_STRING, '\0', "metric-file", &o.measure.file, "FILE", NULL, NULL, NULL },
        { OPT_LIST, '\0', "metric-key", &keys, "KEY", NULL, NULL, NULL },
        { OPT_LIST, '\0', "metric-regex", &regexes, "REGEX", NULL, NULL, NULL },
        { OPT_STRING, '\0', "joblog", &o.joblog, "FILE", NULL, NULL, NULL },
        { OPT_FLAG, '\0', "share", &o.share, NULL, NULL, NULL, NULL },
        { OPT_FLAG, '\0', "requeue", &requeue, NULL, NULL, NULL, NULL },
        { OPT_FLAG, '\0', "no-requeue", &no_requeue, NULL, NULL, NULL, NULL },
        { OPT_FLAG, '\0', "retry-failed", &o.retry_failed, NULL, NULL, NULL, NULL },
        { OPT_CHOICE, '\0', "fail-on", &fail_on, "WHAT", NULL, failing, NULL },
        { OPT_INT, '\0', "max-failures", &o.pardoned, "N", NULL, NULL, NULL },
        { .type = OPT_END },
    };
    /* clang-format on */
    const struct cmd cmd = { .name = "run",
                             .program = program,
                             .opts = opts,
                             .synopsis = "[OPTION]... SWEEP [-- COMMAND [WORD]...]",
                             .summary = "Run a command for one trial after another",
                             .min_args = 1,
                             .max_args = 1,
                             .stop_at_command = true };
    char **operand = cmd_parse(&cmd, argc, argv);
    struct session s = { 0 };
    struct err err = { 0 };
    struct loop l = {
        .o = &o, .s = &s, .end = INFINITY, .log = -1, .base_held = -1, .guard.fd = -1
    };
    int ret = -1;

    o.verbose = cmd_is_verbose();
    o.measure.keys = keys.v;
    o.measure.nkeys = keys.n;
    o.measure.regexes = regexes.v;
    o.measure.nregexes = regexes.n;
    o.measure.hf = objective == 1;
    o.fail_on = fail_on;
    o.requeue = !no_requeue;
    l.command = cmd_command(&cmd, argc, argv);
    if (requeue && no_requeue)
        return cmd_usage(&cmd, "--requeue and --no-requeue exclude one another");
    if (read_times(&l, &o, &times, &err) == 0 &&
        deal_devices(&o, devices, per_trial, &err) == 0 &&
        limits_deal(&o.limits, cpus, memory, &err) == 0 &&
        fit_jobs(&o, has_jobs, &err) == 0 && guard_open(&l.guard, o.jobs, &err) == 0 &&
        session_read_sweep(&s, operand[0], &o.wish, &err) == 0) {
        name_objectives(&o, &s.file);
        ret = run_sweep(&l, &cmd, &err);
    }
    guard_close(&l.guard);
    devices_clear(&o.devices);
    limits_clear(&o.limits);
    free(o.measure.names);
    session_close(&s);
    if (ret < 0 && err.kind == ERR_LOCKED && o.quiet && !o.verbose)
        ret = ERR_LOCKED; /* what cron need not mail */
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, ret);
}
