/* words - a command whose words name parameters
 *
 * {lr} is replaced where lr is a parameter; {word} that looks like a name and is none
 * is an error; all other braces stand for themselves, and so does ${.  In a word that
 * has
 * {{, it and }} are braces.  With a mark such as @ it is @lr@ that is replaced, @@ is
 * the mark, and braces are nothing special. */
#ifndef LIB_SWEEP_FORMAT_WORDS_H
#define LIB_SWEEP_FORMAT_WORDS_H

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/sweep/space/space.h"

/* ERR_USAGE, with the nearest name, when a word of COMMAND (NULL-terminated) names what
 * is no parameter of the space.  MARK is NULL for braces. */
MUST_CHECK int words_check(char *const *command, const struct space *space,
                           const char *mark, struct err *err);
/* Whether a word of COMMAND, which has passed words_check, names a parameter. */
bool words_name_some(char *const *command, const struct space *space, const char *mark);
/* The first parameter that WORD names in braces, -1 without one. */
int words_find_name(const char *word, const struct space *space);

/* The same as words_check for a word of a sweep file: '{{' is a brace in '{{name}}'
 * alone, and the error is ERR_INPUT without a position. */
MUST_CHECK int words_check_loosely(const char *word, const struct space *space,
                                   struct err *err);
/* If a name begins at P, append its value to OUT and return the bytes read; else 0. */
size_t words_take_name(struct str *out, const char *p, const struct space *space,
                       const double *x);

/* The words at the point X, NULL-terminated, in fresh memory; each stays one word,
 * whatever the values hold.  A parameter that is not in force is empty.  The command
 * has passed words_check. */
char **words_expand_new(char *const *command, const struct space *space,
                        const double *x, const char *mark);
/* Append WORDS, NULL-terminated, as a shell would read them again. */
void words_quote(struct str *out, char *const *words);
void words_free(char **words);

#endif
