/* charsmap - SentencePiece's precompiled character map: strings and their replacements
 *
 * The blob consists of a length, a double-array trie (Aoe 1989; the layout of
 * darts-clone), and the NUL-terminated replacements. */
#ifndef LIB_TEXT_CHARSMAP_H
#define LIB_TEXT_CHARSMAP_H

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/text/origins.h"

struct charsmap;

/* Decodes the map from base64.  WHERE is the prefix of error messages. */
MUST_CHECK int charsmap_open(struct charsmap **out, const char *where,
                             const char *base64, struct err *err);
void charsmap_free(struct charsmap *c);
/* Appends the LEN bytes at TEXT with replacements applied, and tells R, or NULL. */
void charsmap_run(const struct charsmap *c, const char *text, size_t len,
                  struct str *out, struct rewriting *r);

#endif
