/* progress - a line on the terminal: done, running, best so far, time left */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cmd/hpo-sweep/run.h"
#include "lib/base/clock.h"

struct progress progress_begin(const struct loop *l)
{
    return (struct progress){ .begun = clock_seconds(), .finished = loop_done(l) };
}

/* Seconds to the end, as far as the trials so far tell; NaN when nothing does. */
static double time_left(const struct progress *p, const struct loop *l,
                        uint64_t finished, double now)
{
    double goal = (double)loop_budget(l), done = (double)(finished - p->finished);
    double left = NAN;

    if (goal > 0 && done > 0)
        left = fmax(0, goal - (double)finished) * (now - p->begun) / done;
    return isfinite(l->end) ? fmin(left, fmax(0, l->end - now)) : left;
}

static void print_time(double seconds)
{
    if (seconds < 100)
        fprintf(stderr, ", %.0f s left", seconds);
    else if (seconds < 100 * 60.0)
        fprintf(stderr, ", %.0f min left", seconds / 60);
    else
        fprintf(stderr, ", %.0f h left", seconds / 3600);
}

static void show(struct progress *p, const struct loop *l, double now)
{
    const struct study *s = &l->s->study;
    const struct study_trial *best = s->nobjectives == 1 ? study_best(s) : NULL;
    uint64_t finished = loop_done(l);
    double left = time_left(p, l, finished, now);

    fprintf(stderr, "\r%" PRIu64, finished);
    if (loop_budget(l))
        fprintf(stderr, " of %" PRIu64, loop_budget(l));
    fprintf(stderr, " done, %d running", l->running);
    if (best)
        fprintf(stderr, ", best %g (trial %d)", best->values[0], best->number);
    if (!isnan(left) && l->running)
        print_time(left);
    fputs("\033[K", stderr);
    p->last = now;
    p->shown = true;
}

void progress_show(struct progress *p, const struct loop *l)
{
    double now = clock_seconds();

    if (!p->shown && !l->running) /* a finished sweep has none */
        return;
    if (cmd_progress(l->o->quiet) && (!p->shown || now - p->last >= 0.1))
        show(p, l, now);
}

void progress_end(struct progress *p, const struct loop *l)
{
    if (!p->shown)
        return;
    show(p, l, clock_seconds());
    fputc('\n', stderr);
}
