/* measure - the values of a trial, out of what its command wrote
 *
 * Without a request: the file result.json (a number, a list, or an object with "value",
 * "values" or the objectives' names), else the last line of standard output: such an
 * object, or the numbers that follow the objectives' names in it, or the numbers at its
 * end when it has no others.  Such a number is a word between blanks, or what follows
 * '=' or ':' after a name in it. */
#ifndef LIB_SWEEP_JOB_MEASURE_H
#define LIB_SWEEP_JOB_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct measure {
    const char *file; /* JSON, in the trial's directory unless absolute; NULL: what the
                         command left as result.json, else its last line of JSON */
    const char *const *keys; /* [nkeys]: members, "a.b" inside "a"; of a list the last
                                element that has it */
    size_t nkeys;
    const char *const *regexes; /* [nregexes]: the last number each finds on standard
                                   output (grep.h) */
    size_t nregexes;
    const char **names; /* [nnames]: of the objectives, members of result.json */
    size_t nnames;
    bool hf; /* Hugging Face's default objective of the JSON object */
};

/* ERR_USAGE unless M can give N values. */
MUST_CHECK int measure_check(const struct measure *m, size_t n, struct err *err);
/* Read VALUES[n] of the trial in DIR.  *ok is false when there are fewer: WHY says in
 * one line which file was read and what is wrong with it.  Where the system cannot read
 * a file the trial may have values, and *err is set. */
MUST_CHECK int measure_read(bool *ok, double *values, size_t n, const struct measure *m,
                            const char *dir, struct str *why, struct err *err);
/* The member "constraints" of the JSON file of the trial in DIR, a number or a list of
 * them, as the JSON text of a list, owned; NULL without one.  *ok is false, with WHY,
 * when it is none. */
MUST_CHECK int measure_constraints(bool *ok, char **json, const struct measure *m,
                                   const char *dir, struct str *why, struct err *err);
/* Leave VALUES[n] as DIR's result.json, unless the command did.  Returns -1 with *err
 * set. */
MUST_CHECK int measure_keep(const double *values, size_t n, const char *dir,
                            struct err *err);
/* A report on the way: "STEP VALUE", or a JSON object with "step" and M's first key, by
 * default "value".  False when LINE is neither. */
bool measure_report(int64_t *step, double *value, const struct measure *m,
                    const char *line);

#endif
