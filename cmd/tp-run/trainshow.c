/* trainshow - what a terminal shows of a training: one line that fits it */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/terminal.h"
#include "cmd/tp-run/train.h"
#include "lib/base/clock.h"
#include "lib/base/str.h"

static const double OFTEN = 0.1; /* seconds between two lines */

/* Renews the line. */
static void renew(const struct str *line)
{
    fprintf(stderr, "\r%s\033[K", str_text(line));
}

void train_show_doing(bool progress, const char *what, double share)
{
    struct str line = { 0 };

    if (!progress)
        return;
    str_add(&line, what);
    if (share >= 0)
        str_addf(&line, ": %.0f %%", 100 * share);
    renew(&line);
    str_clear(&line);
}

void train_show_none(bool progress)
{
    if (progress)
        fputs("\r\033[K", stderr);
}

static void add_bar(struct str *line, double share, int width)
{
    static const char filled[] = "####################",
                      empty[] = "                    ";
    int bars = width >= 100 ? 20 : width >= 60 ? 10 : 0, done = (int)(share * bars);

    if (bars)
        str_addf(line, "[%.*s%.*s] ", done, filled, bars - done, empty);
}

/* Appends PART, which becomes empty, if the line has room for it in *WIDTH columns;
 * else it has none for those that follow, either. */
static void add_part(struct str *line, struct str *part, int *width)
{
    if (line->len + 2 + part->len < (size_t)*width)
        str_addf(line, "  %s", str_text(part));
    else
        *width = 0;
    str_reset(part);
}

static void add_left(struct str *part, const struct train_log *l)
{
    double done = (double)(l->state.step - l->first);
    double left = (double)l->t->o.steps - (double)l->state.step;
    double seconds = left * (clock_seconds() - l->begun) / (done > 0 ? done : 1);

    str_addf(part, "%02.0f:%02.0f:%02.0f left", floor(seconds / 3600),
             floor(fmod(seconds / 60, 60)), floor(fmod(seconds, 60)));
}

/* What matters less comes later, and is left out first. */
void train_show_step(struct train_log *l, double rate)
{
    int width = terminal_width(stderr);
    const bool last = l->state.step >= (uint64_t)l->t->o.steps;
    struct str line = { 0 }, part = { 0 };

    if (!l->progress || (!last && clock_seconds() - l->drawn < OFTEN))
        return;
    l->drawn = clock_seconds();
    add_bar(&line, (double)l->state.step / l->t->o.steps, width);
    str_addf(&line, "%" PRIu64 "/%d", l->state.step, l->t->o.steps);
    str_addf(&part, "loss %.4f", l->loss);
    add_part(&line, &part, &width);
    add_left(&part, l);
    add_part(&line, &part, &width);
    str_addf(&part, "%.4g tokens/s", l->worked > 0 ? (double)l->tokens / l->worked : 0);
    add_part(&line, &part, &width);
    if (!isnan(l->eval_loss)) {
        str_addf(&part, "eval %.4f", l->eval_loss);
        add_part(&line, &part, &width);
    }
    if (l->worked > 0 && l->peak > 0) {
        str_addf(&part, "%.0f %% of peak", 100 * l->flops / l->worked / l->peak);
        add_part(&line, &part, &width);
    }
    str_addf(&part, "lr %.3g", rate);
    add_part(&line, &part, &width);
    renew(&line);
    l->shown = true;
    str_clear(&line);
    str_clear(&part);
}
