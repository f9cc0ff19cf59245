/* charsmap - SentencePiece's compiled rules: texts and what each becomes
 *
 * The blob is a length, a double-array trie (Aoe 1989; the layout of darts-clone), and
 * the replacements, each ended by a NUL. */
#ifndef LIB_TEXT_CHARSMAP_H
#define LIB_TEXT_CHARSMAP_H

#include "lib/base/err.h"
#include "lib/base/str.h"

struct charsmap;

/* From its base64.  WHERE begins the message. */
MUST_CHECK int charsmap_open(struct charsmap **out, const char *where,
                             const char *base64, struct err *err);
void charsmap_free(struct charsmap *c);
/* Append what the LEN bytes at TEXT become. */
void charsmap_run(const struct charsmap *c, const char *text, size_t len,
                  struct str *out);

#endif
