/* tekken - Mistral's tekken.json as a tokenizer.json
 *
 * The file has the byte strings of a byte-level BPE by rank, a pattern that splits
 * texts, and tokens that text never becomes.  These have the first ids, all others
 * follow by rank (mistral_common, tokens/tokenizers/tekken.py). */
#ifndef LIB_TEXT_TEKKEN_H
#define LIB_TEXT_TEKKEN_H

#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

/* Appends the tokenizer.json of the N bytes at TEXT.  A text begins with <s>. */
MUST_CHECK int tekken_convert(struct str *out, const char *path, const char *text,
                              size_t n, struct err *err);

#endif
