/* apikeys - who may ask: the API keys of a server
 *
 * Keys are compared by their SHA-256, all of them each time, so that the time that an
 * answer takes does not tell how much of a guess is right.  They can be read again
 * while threads compare. */
#ifndef LIB_SERVE_APIKEYS_H
#define LIB_SERVE_APIKEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

struct apikeys;

/* Keys of the file PATH, a line each (empty lines and those that begin with '#' are
 * passed over), and of LIST, separated by commas; either may be NULL.  ERR_INPUT: there
 * is no key, or one with other characters than visible ASCII. */
MUST_CHECK int apikeys_open(struct apikeys **out, const char *path, const char *list,
                            struct err *err);
/* Reads the file again; the keys stay as they are when that fails. */
MUST_CHECK int apikeys_reload(struct apikeys *k, struct err *err);
void apikeys_close(struct apikeys *k); /* NULL is allowed */
/* Is the value of the header Authorization (or NULL) "Bearer KEY", or "Basic" with one
 * of the keys as its password, which browsers send? */
bool apikeys_allow(struct apikeys *k, const char *authorization);

#endif
