/* tap - test results in the Test Anything Protocol
 *
 * A unit test is a main() of calls to OK and friends that ends `return tap_done();`.
 * The plan is printed last.  A check's name is a sentence that states the behaviour. */
#ifndef TESTS_TAP_H
#define TESTS_TAP_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_count, tap_failed;

/* Is this a run under a sanitizer, for which some layouts of a model are enough? */
static inline bool tap_short(void)
{
    const char *set = getenv("SHORT");

    return set && *set;
}

/* Of how many things of a kind one is tried: with LONG each, under a sanitizer one of
 * SHORTLY, else one of USUALLY. */
static inline size_t tap_one_of(size_t usually, size_t shortly)
{
    return getenv("LONG") ? 1 : tap_short() ? shortly : usually;
}

/* Report one check; returns whether it passed. */
static inline __attribute__((format(printf, 2, 3))) bool tap_ok(bool passed,
                                                                const char *fmt, ...)
{
    va_list ap;

    printf("%sok %d - ", passed ? "" : "not ", ++tap_count);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    tap_failed += !passed;
    fflush(stdout);
    return passed;
}

/* GOT equals WANT, both strings or NULL. */
static inline bool tap_is(const char *got, const char *want, const char *name)
{
    bool same = got == want || (got && want && !strcmp(got, want));

    tap_ok(same, "%s", name);
    if (!same)
        printf("#   got: %s\n#  want: %s\n", got ? got : "(null)",
               want ? want : "(null)");
    return same;
}

static inline bool tap_is_int(long long got, long long want, const char *name)
{
    tap_ok(got == want, "%s", name);
    if (got != want)
        printf("#   got: %lld\n#  want: %lld\n", got, want);
    return got == want;
}

/* |got - want| <= tolerance * max(1, |want|) */
static inline bool tap_is_near(double got, double want, double tolerance,
                               const char *name)
{
    bool near = fabs(got - want) <= tolerance * fmax(1, fabs(want)) ||
                (isnan(got) && isnan(want));

    tap_ok(near, "%s", name);
    if (!near)
        printf("#   got: %.17g\n#  want: %.17g\n", got, want);
    return near;
}

static inline void tap_skip(const char *name, const char *why)
{
    printf("ok %d - %s # SKIP %s\n", ++tap_count, name, why);
}

static inline int tap_done(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed > 0;
}

#endif
