/* numbers - the numbers of a range, as JSON writes them */
#ifndef LIB_TEXT_GRAMMAR_NUMBERS_H
#define LIB_TEXT_GRAMMAR_NUMBERS_H

#include "lib/text/grammar/terms.h"

struct number_bound {
    const char *text; /* as JSON writes it; NULL: there is none */
    bool open;        /* the bound itself is outside */
};

/* *OUT becomes the numbers between LEAST and MOST, INTEGERS or with a fraction: up to
 * 18 digits before the point (or as many as a bound has) and 15 after it, and without
 * bounds an exponent of two digits.  ERR_INPUT: a bound has more than 30 digits. */
MUST_CHECK int numbers_between(struct terms *t, bool integers,
                               const struct number_bound *least,
                               const struct number_bound *most, uint32_t *out,
                               struct err *err);

#endif
