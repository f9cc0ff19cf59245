/* unit-draft - what is looked up, and when a draft is given up
 *
 * The clock and the scheduler's numbers are the test's. */
#include <string.h>

#include "lib/base/clock.h"
#include "lib/run/draft.h"
#include "tests/tap.h"

static double now;
static struct scheduler_counts counts;

double __wrap_clock_seconds(void);
double __wrap_clock_seconds(void)
{
    return now;
}

struct scheduler_counts __wrap_scheduler_counts(const struct scheduler *s);
struct scheduler_counts __wrap_scheduler_counts(const struct scheduler *s)
{
    (void)s;
    return counts;
}

/* ---- looking up ---- */

static void look_up(const char *what, const int32_t *ids, size_t n, size_t most,
                    const int32_t *want, size_t nwant)
{
    struct drafter *d = drafter_lookup();
    int32_t next[DRAFTS_MOST];
    struct scheduler_draft v = { .ids = ids, .n = n, .most = most, .next = next };
    struct err err = { 0 };
    const bool right = drafter_draft(d, &v, 1, &err) == 0 && v.ndrafted == nwant &&
                       (!nwant || !memcmp(next, want, nwant * sizeof(*want)));

    tap_ok(right, "%s", what);
    drafter_close(d);
}

#define COUNT(v) (sizeof(v) / sizeof(*(v)))
#define LOOK_UP(what, ids, most, want) \
    look_up(what, ids, COUNT(ids), most, want, COUNT(want))

static void check_lookups(void)
{
    const int32_t three[] = { 1, 2, 3, 4, 5, 9, 2, 3, 6, 7, 1, 2, 3 },
                  after_three[] = { 4, 5, 9 }, two[] = { 8, 2, 3, 4, 5, 2, 3, 6, 2, 3 },
                  after_two[] = { 6, 2 }, one[] = { 3, 1, 2, 3 },
                  loop[] = { 5, 6, 7, 5, 6 }, after_loop[] = { 7, 5, 6, 7, 5, 6, 7, 5 },
                  same[] = { 4, 4, 4 }, after_same[] = { 4, 4, 4, 4 };

    LOOK_UP("three tokens alike come before two", three, 3, after_three);
    LOOK_UP("of several places, the last one", two, 2, after_two);
    look_up("one token alike is not enough", one, COUNT(one), 4, NULL, 0);
    look_up("of a text of one token there is nothing", one, 1, 4, NULL, 0);
    LOOK_UP("a loop goes on past the end", loop, 8, after_loop);
    LOOK_UP("and so does a token that is said again", same, 4, after_same);
}

/* ---- trials ---- */

/* Steps with a draft that takes SLOWER times as long and gains GAINED tokens, of which
 * the text has always some; every EVERY-th has a prompt, too.  Returns the steps with a
 * draft among STEPS. */
static size_t run_steps(struct drafter *d, size_t steps, double slower, uint64_t gained,
                        size_t every)
{
    const int32_t ids[] = { 4, 4, 4 };
    struct err err = { 0 };
    size_t drafts = 0;

    for (size_t i = 0; i < steps; i++) {
        int32_t next[DRAFTS_MOST];
        struct scheduler_draft v = {
            .ids = ids, .n = COUNT(ids), .most = 4, .next = next
        };

        if (drafter_draft(d, &v, 1, &err) < 0)
            return SIZE_MAX;
        drafts += v.ndrafted > 0;
        counts.growing++;
        counts.drafted += v.ndrafted;
        counts.accepted += v.ndrafted ? gained - 1 : 0;
        counts.computed += 1 + v.ndrafted;
        now += v.ndrafted ? slower : 1;
        if (every && i % every == 0) {
            counts.computed += 100;
            now += v.ndrafted ? 0 : 50;
        }
    }
    return drafts;
}

static struct drafter *open_trial(void)
{
    struct drafter *d = drafter_lookup();

    counts = (struct scheduler_counts){ 0 };
    drafter_try(d, (const struct scheduler *)(const void *)&counts, 1);
    return d;
}

static void check_trials(void)
{
    enum { TRIAL = 64, DRAFTED = 48, REST = 512 };
    struct drafter *d = open_trial();
    struct drafter_gain gain;
    size_t drafts = run_steps(d, TRIAL + 1, 1.5, 3, 0);

    gain = drafter_gain(d);
    tap_ok(gain.trials == 1 && !gain.given_up && gain.last > 1.99 && gain.last < 2.01,
           "three tokens in 1.5 steps' time are twice as fast");
    tap_ok(drafts <= DRAFTED + 1, "a trial has steps without a draft");
    tap_ok(run_steps(d, REST, 1.5, 3, 0) >= REST - 9, "a draft that pays goes on");
    run_steps(d, 3 * TRIAL, 4, 3, 0);
    gain = drafter_gain(d);
    tap_ok(gain.given_up && gain.last < 0.76,
           "and is given up when it does not pay any more");
    tap_ok(run_steps(d, TRIAL, 4, 3, 0) == 0 && drafter_gain(d).trials == gain.trials,
           "for good");
    drafter_close(d);

    d = open_trial();
    run_steps(d, 2 * TRIAL + 1, 2, 1, 0);
    gain = drafter_gain(d);
    tap_ok(gain.given_up && gain.trials == 2, "two trials decide");
    drafter_close(d);

    d = open_trial();
    run_steps(d, 4 * TRIAL, 2, 1, 5);
    gain = drafter_gain(d);
    tap_ok(gain.given_up, "steps with prompts, which are slower, do not count");
    drafter_close(d);
}

int main(void)
{
    check_lookups();
    check_trials();
    return tap_done();
}
