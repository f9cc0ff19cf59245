/* dist - the values one parameter may take
 *
 * The three kinds of Optuna: a real interval, an integer range and a list of choices.
 * Inside the toolkit a value is one double: the number itself, or the index of the
 * choice; that is also what Optuna's storage keeps. */
#ifndef LIB_SWEEP_SPACE_DIST_H
#define LIB_SWEEP_SPACE_DIST_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/str.h"

enum dist_kind { DIST_FLOAT, DIST_INT, DIST_CATEGORICAL };

struct dist {
    enum dist_kind kind;
    bool log;         /* searched on a logarithmic scale; low > 0, no step but 1 */
    double low, high; /* both included, low <= high */
    double step;      /* 0: none (a continuous float); at least 1 for integers */
    char **choices;   /* [nchoices], each the JSON text of a scalar; owned */
    size_t nchoices;
};

void dist_clear(struct dist *d);
bool dist_same(const struct dist *a, const struct dist *b);
bool dist_single(const struct dist *d); /* one value only */
bool dist_contains(const struct dist *d, double value);

/* Bring D, numbers as a user wrote them, into order: HIGH moves down to the last value
 * a step reaches.  Returns NULL, or the cause why D is no distribution. */
const char *dist_settle(struct dist *d);

/* The value K steps above D's lowest; D has a step.  Rounded to 15 digits, so that
 * 0.1 + 2 * 0.1 is 0.3. */
double dist_nth(const struct dist *d, double k);

/* Append the JSON text of a scalar as a choice; takes ownership of TEXT. */
void dist_add_choice(struct dist *d, char *text);
/* Index of the choice whose JSON text has the value of TEXT (1 and 1.0 are the same
 * number), or -1. */
int dist_find_choice(const struct dist *d, const char *text);

/* Index of the first choice whose value an earlier one has, or -1. */
long dist_repeated_choice(const struct dist *d);

/* Read Optuna's JSON: {"name": "FloatDistribution", "attributes": {...}}, the names of
 * its versions before 3, and the short {"type": "float", "low": ...}.  ERR_INPUT names
 * DOC's file, line and column. */
MUST_CHECK int dist_read(struct dist *d, const struct json_doc *doc,
                         const struct json *j, struct err *err);
/* Append it as Optuna writes it. */
void dist_write(struct str *out, const struct dist *d);

/* Append VALUE as a JSON value: a number (an integer without a point, a float with one
 * or an exponent), or the choice. */
void dist_write_value(struct str *out, const struct dist *d, double value);
/* Append VALUE as a command's word: as in JSON, but a string without its quotes. */
void dist_write_word(struct str *out, const struct dist *d, double value);
/* The value that the JSON scalar J stands for; false when D does not contain it. */
bool dist_read_value(double *value, const struct dist *d, const struct json *j);

#endif
