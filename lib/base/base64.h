/* base64 - bytes as text (RFC 4648, section 4) */
#ifndef LIB_BASE_BASE64_H
#define LIB_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/str.h"

/* Appends the text of the N bytes at P, padded. */
void base64_encode(const void *p, size_t n, struct str *out);
/* Appends the bytes of TEXT; false when it is invalid. */
bool base64_decode(const char *text, struct str *out);

#endif
