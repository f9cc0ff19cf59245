/* bytelevel - GPT-2's byte alphabet: a printable character for each byte (Radford et
 * al.  2019) */
#ifndef LIB_TEXT_BYTELEVEL_H
#define LIB_TEXT_BYTELEVEL_H

#include <stdbool.h>

#include "lib/base/str.h"

/* Appends the characters for N bytes. */
void bytelevel_encode(struct str *out, const char *bytes, size_t n);
/* Bytes of what stands for BYTE. */
size_t bytelevel_width(char byte);
/* Appends the bytes for N bytes of such characters; if a character is not in the
 * alphabet, appends the text unchanged. */
void bytelevel_decode(struct str *out, const char *text, size_t n);

/* How many characters at the start, or the END, of the token TEXT are spaces, or stand
 * for one. */
size_t bytelevel_spaces(const char *text, size_t len, bool end);

#endif
