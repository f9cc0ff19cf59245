/* regex - regular expressions as terms
 *
 * The expressions of JSON Schema (ECMA-262), of which a grammar can make texts: no
 * backreferences, lookaround or word boundaries, and ^ and $ only at the ends of the
 * whole expression's alternatives; what is not supported is refused by name.  \d, \w
 * and \s are ASCII's, and \D, \W and \S characters of ASCII that are none of them, so
 * that engines that mean more by them agree; in [^...] they leave out all that any of
 * these means. */
#ifndef LIB_TEXT_GRAMMAR_REGEX_H
#define LIB_TEXT_GRAMMAR_REGEX_H

#include "lib/text/grammar/terms.h"

enum regex_how {
    REGEX_WHOLE, /* the whole text matches, ^ and $ or not */
    REGEX_JSON   /* the inside of a string of JSON, of which a part matches */
};

/* *OUT becomes the texts that TEXT describes, in UTF-8. */
MUST_CHECK int regex_compile(struct terms *t, const char *text, enum regex_how how,
                             uint32_t *out, struct err *err);

/* A character from FIRST to LAST, in UTF-8, surrogates left out. */
uint32_t regex_characters(struct terms *t, uint32_t first, uint32_t last);

#endif
