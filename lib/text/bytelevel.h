/* bytelevel - GPT-2's byte alphabet: a printable character for each byte (Radford et
 * al.  2019) */
#ifndef LIB_TEXT_BYTELEVEL_H
#define LIB_TEXT_BYTELEVEL_H

#include "lib/base/str.h"

/* Appends the characters for N bytes. */
void bytelevel_encode(struct str *out, const char *bytes, size_t n);
/* Appends the bytes for N bytes of such characters; if a character is not in the
 * alphabet, appends the text unchanged. */
void bytelevel_decode(struct str *out, const char *text, size_t n);

#endif
