/* words - a command whose words name parameters: {lr} is replaced, {{ is a brace */
#ifndef LIB_SWEEP_FORMAT_WORDS_H
#define LIB_SWEEP_FORMAT_WORDS_H

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/sweep/space/space.h"

/* ERR_USAGE when a word of COMMAND (NULL-terminated) names what is no parameter of the
 * space, or a brace stands alone. */
int words_check(char *const *command, const struct space *space, struct err *err);

/* The same for a word among which braces may mean something else, such as JSON: only
 * '{' letters, digits, '_', '-' and '.' '}' is a name, and the error is ERR_INPUT
 * without a position.  '{{name}}' is '{name}'. */
int words_check_loosely(const char *word, const struct space *space, struct err *err);
/* Append to OUT what stands at P of such a word, when P begins a name; returns the
 * bytes taken, 0 when it is none. */
size_t words_take_name(struct str *out, const char *p, const struct space *space,
                       const double *x);

/* The words at the point X, NULL-terminated, in fresh memory; each stays one word,
 * whatever the values hold.  A parameter that is not in force is empty.  The command
 * has passed words_check. */
char **words_expand_new(char *const *command, const struct space *space,
                        const double *x);
/* Append WORDS, NULL-terminated, as a shell would read them again. */
void words_quote(struct str *out, char *const *words);
void words_free(char **words);

#endif
