/* chars - properties of code points, and access to well-formed UTF-8 */
#ifndef LIB_TEXT_CHARS_H
#define LIB_TEXT_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The code point at S, which has N > 0 bytes; *used is its length in bytes. */
uint32_t chars_at(const char *s, size_t n, size_t *used);
/* The code point that ends at S + AT (AT > 0); *used is its length in bytes. */
uint32_t chars_before(const char *s, size_t at, size_t *used);

/* Properties as the stages of the `tokenizers` library have them: see unicode.h. */
bool chars_is_space(uint32_t cp);  /* Unicode's White_Space */
bool chars_is_word(uint32_t cp);   /* UTS 18's \w */
bool chars_is_number(uint32_t cp); /* category N */
bool chars_is_mark(uint32_t cp);   /* category M */
bool chars_is_nonspacing(uint32_t cp);
bool chars_is_punctuation(uint32_t cp); /* category P, or a symbol of ASCII */
bool chars_is_other(uint32_t cp);       /* control, format, private use */
/* Is CP unknown to the normal forms, which then leave it unchanged, and in its place?
 */
bool chars_has_later_form(uint32_t cp);
/* The script of CP in the stage UnicodeScripts, a number from 1; CHARS_JOINS: it has
 * none, and belongs to what is before it. */
enum { CHARS_JOINS = -1 };
int chars_script(uint32_t cp);
/* 1 for \w, 2 for what is neither that nor white space, 0 for white space. */
int chars_word_kind(uint32_t cp);
/* The lower case of CP, if that is one character; otherwise CP. */
uint32_t chars_lower(uint32_t cp);
/* A code point of as many bytes in UTF-8 that has in every version of Unicode the
 * category that CP has in Oniguruma's; usually CP. */
uint32_t chars_stand_in(uint32_t cp);

#endif
