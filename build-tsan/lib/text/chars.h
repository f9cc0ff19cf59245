/* chars - what a code point is, for text that is well-formed UTF-8 */
#ifndef LIB_TEXT_CHARS_H
#define LIB_TEXT_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The code point at S (N > 0 bytes left), and the bytes it takes. */
uint32_t chars_at(const char *s, size_t n, size_t *used);
/* The code point that ends at S + AT (AT > 0), and the bytes it takes. */
uint32_t chars_before(const char *s, size_t at, size_t *used);

bool chars_is_space(uint32_t cp); /* Unicode's White_Space */
bool chars_is_word(uint32_t cp);  /* UTS 18's \w */
bool chars_is_mark(uint32_t cp);  /* category M */
bool chars_is_nonspacing(uint32_t cp);
bool chars_is_punctuation(uint32_t cp); /* category P, or a symbol of ASCII */
bool chars_is_other(uint32_t cp);       /* control, format, private use */
/* NFKC and NFKD as the `tokenizers` library has them leave it alone. */
bool chars_has_later_form(uint32_t cp);

#endif
