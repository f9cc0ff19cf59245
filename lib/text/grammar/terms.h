/* terms - sets of byte strings, and what is left of them after a byte
 *
 * A term stands for a set of texts: one byte of a set, one term after another, one of
 * several, a term so many times, a rule that is defined elsewhere and may refer to
 * itself.  Equal terms have equal ids.  What may follow a first byte is the derivative
 * of the term by it (Brzozowski 1964, "Derivatives of regular expressions"), a term
 * again, which is made when it is first asked for.  No term but TERM_NONE is empty, so
 * that a text whose derivative is not TERM_NONE can always be finished.
 *
 * Memory and work are limited, as grammars come from strangers: whatever passes a limit
 * gives TERM_NONE, and terms_failed says so from then on. */
#ifndef LIB_TEXT_GRAMMAR_TERMS_H
#define LIB_TEXT_GRAMMAR_TERMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum {
    TERM_NONE, /* no text */
    TERM_EMPTY /* the empty text alone */
};
#define TERMS_MANY UINT32_MAX /* as often as one likes */

struct terms;
struct terms *terms_new(void);
void terms_free(struct terms *t);

/* A byte of SET, in which byte B is bit B % 64 of word B / 64. */
uint32_t terms_bytes(struct terms *t, const uint64_t set[4]);
/* A byte from FIRST to LAST. */
uint32_t terms_range(struct terms *t, unsigned first, unsigned last);
uint32_t terms_literal(struct terms *t, const char *text, size_t n);
uint32_t terms_cat(struct terms *t, uint32_t a, uint32_t b);
uint32_t terms_alt(struct terms *t, uint32_t a, uint32_t b);
/* A at least MIN times and at most MAX; TERMS_MANY: without limit. */
uint32_t terms_repeat(struct terms *t, uint32_t a, uint32_t min, uint32_t max);
uint32_t terms_optional(struct terms *t, uint32_t a);
/* A new rule, which terms_define is to give a body before terms_seal. */
uint32_t terms_rule(struct terms *t);
void terms_define(struct terms *t, uint32_t rule, uint32_t body);
/* Takes N small steps from what may be spent on reading a grammar.  False: there are
 * none left, or a limit was passed before, and what reads it should stop. */
bool terms_spend(struct terms *t, size_t n);

/* To be called once, when all is defined: *START becomes the term that it is without
 * rules that no text meets.  ERR_INPUT: no text meets it at all, a rule refers to
 * itself before anything else, or a limit is passed. */
MUST_CHECK int terms_seal(struct terms *t, uint32_t *start, struct err *err);

/* After that: */

/* What may follow BYTE in the texts of A. */
uint32_t terms_after(struct terms *t, uint32_t a, unsigned char byte);
/* Is the empty text one of A's? */
bool terms_is_nullable(const struct terms *t, uint32_t a);
/* Has A, or one of its alternatives, at least N more times UNIT at its beginning? */
bool terms_begins_with(const struct terms *t, uint32_t a, uint32_t unit, uint32_t n);
/* Forgets what terms_after has made, if that is much: other ids from it than KEEP[n],
 * which become the new ones, are invalid then, and the result is true. */
bool terms_trim(struct terms *t, uint32_t *keep, size_t n);
/* Why terms_after cannot go on; or NULL. */
const char *terms_failed(const struct terms *t);
/* Allows the work of another mask. */
void terms_allow(struct terms *t);

#endif
