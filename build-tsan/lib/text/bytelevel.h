/* bytelevel - GPT-2's alphabet: a printable character for each byte (Radford et al.
 * 2019) */
#ifndef LIB_TEXT_BYTELEVEL_H
#define LIB_TEXT_BYTELEVEL_H

#include "lib/base/str.h"

/* Append the characters that stand for N bytes. */
void bytelevel_encode(struct str *out, const char *bytes, size_t n);
/* Append the bytes that N bytes of such characters stand for, or, when one of them
 * stands for none, the text as it is. */
void bytelevel_decode(struct str *out, const char *text, size_t n);

#endif
