/* str - growing strings, and numbers parsed whole or refused */
#ifndef LIB_BASE_STR_H
#define LIB_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing string; `struct str s = { 0 }` is empty.  s.s is NUL-terminated
 * once anything was added; use str_text when nothing may have been. */
struct str {
    char *s;
    size_t len; /* bytes, without the NUL */
    size_t cap;
};

void str_clear(struct str *s); /* release; *s is empty and usable again */
void str_reset(struct str *s); /* empty it, keep the room */
const char *str_text(const struct str *s);
char *str_steal(struct str *s); /* the text, now the caller's; *s is empty */
void str_add(struct str *s, const char *text);
void str_addn(struct str *s, const void *bytes, size_t n);
void str_addc(struct str *s, char c);
void str_addf(struct str *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Append TEXT as people may see it: one line, without what a terminal obeys.  Control
 * characters become \n, \t, \r or \xHH, those of Unicode and the marks that turn a
 * line's direction \uHHHH, bytes that are not UTF-8 \xHH. */
void str_add_printable(struct str *s, const char *text);
/* The same of the first character at TEXT, to OUT; returns the bytes of it. */
enum { STR_PRINTABLE = 8 };
size_t str_printable(char out[STR_PRINTABLE], const char *text);
/* Append TEXT as a JSON string with its quotes.  Bytes that are not UTF-8
 * become U+FFFD, so the output is always valid JSON. */
void str_add_json(struct str *s, const char *text);
void str_add_jsonn(struct str *s, const char *text, size_t n);
/* Append the shortest decimal that reads back as X; "NaN", "Infinity",
 * "-Infinity" are written as JSON strings. */
void str_add_double(struct str *s, double x);

char *str_dupf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Parse the whole of TEXT; false, and *out untouched, if it is anything else,
 * out of range included. */
bool str_u64(const char *text, uint64_t *out);
bool str_i64(const char *text, int64_t *out);
bool str_int(const char *text, int *out);
bool str_double(const char *text, double *out); /* finite */
/* A byte count: a decimal number and one of B, KiB MiB GiB TiB (1024), KB MB GB
 * TB (1000), or K M G T (1024); no suffix means bytes. */
bool str_size(const char *text, uint64_t *out);

/* Write BYTES for people ("1.50 GiB") to BUF.  Returns BUF. */
const char *str_human(char buf[32], uint64_t bytes);

/* True when the N bytes are well-formed UTF-8 (RFC 3629). */
bool str_is_utf8(const char *s, size_t n);
/* Decode one code point at S (N > 0 bytes left) to *cp; returns bytes used, 0 if
 * ill-formed. */
size_t str_utf8_decode(const char *s, size_t n, uint32_t *cp);
/* Bytes at S that one U+FFFD stands for when str_utf8_decode gives 0: the longest start
 * of a well-formed character, or one byte (the Unicode Standard 3.9, maximal subparts).
 */
size_t str_utf8_bad(const char *s, size_t n);
/* Encode CP to OUT (room for 4); returns bytes written. */
size_t str_utf8_encode(uint32_t cp, char out[4]);

/* How far apart two words are (optimal string alignment), for "did you mean". */
size_t str_distance(const char *a, const char *b);

#endif
