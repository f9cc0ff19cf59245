/* words - a command whose words name parameters: {lr} is replaced, {{ is a brace */
#ifndef LIB_SWEEP_WORDS_H
#define LIB_SWEEP_WORDS_H

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/sweep/space.h"

/* ERR_USAGE when a word of COMMAND (NULL-terminated) names what is no parameter of the
 * space, or a brace stands alone. */
int words_check(char *const *command, const struct space *space, struct err *err);

/* The words at the point X, NULL-terminated, in fresh memory; each stays one word,
 * whatever the values hold.  A parameter that is not in force is empty.  The command
 * has passed words_check. */
char **words_expand_new(char *const *command, const struct space *space,
                        const double *x);
/* Append WORDS, NULL-terminated, as a shell would read them again. */
void words_quote(struct str *out, char *const *words);
void words_free(char **words);

#endif
