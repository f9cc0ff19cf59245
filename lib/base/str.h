/* str - growing strings, and strict parsing of numbers */
#ifndef LIB_BASE_STR_H
#define LIB_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing string; `struct str s = { 0 }` is empty.  s.s is NULL until something is
 * added and NUL-terminated afterwards; str_text returns "" in the first case. */
struct str {
    char *s;
    size_t len; /* bytes, without the NUL */
    size_t cap;
};

/* release the memory; *s is empty and can be used again */
void str_clear(struct str *s);
void str_reset(struct str *s);           /* make it empty, keep the memory */
void str_cut(struct str *s, size_t len); /* keep the first LEN bytes, at most all */
const char *str_text(const struct str *s);
/* returns the text, which the caller frees; *s is empty */
char *str_steal(struct str *s);
void str_add(struct str *s, const char *text);
void str_addn(struct str *s, const void *bytes, size_t n);
void str_addc(struct str *s, char c);
void str_addf(struct str *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Append TEXT escaped for display on one line of a terminal.  Control characters become
 * \n, \t, \r or \xHH; Unicode's control characters and bidirectional marks become
 * \uHHHH; bytes that are not UTF-8 become \xHH. */
void str_add_printable(struct str *s, const char *text);
/* Writes the escaped form of the first character of TEXT to OUT; returns the
 * character's bytes in TEXT. */
enum { STR_PRINTABLE = 8 };
size_t str_printable(char out[STR_PRINTABLE], const char *text);
/* Append TEXT as a quoted JSON string.  Bytes that are not UTF-8 become U+FFFD, so the
 * output is always valid JSON. */
void str_add_json(struct str *s, const char *text);
void str_add_jsonn(struct str *s, const char *text, size_t n);
/* Append the shortest decimal that parses back to X.  NaN and infinities become the
 * JSON strings "NaN", "Infinity" and "-Infinity". */
void str_add_double(struct str *s, double x);

char *str_dupf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);

/* Parse the whole of TEXT.  False, with *out unchanged, when it is not such a number or
 * is out of range. */
bool str_u64(const char *text, uint64_t *out);
bool str_i64(const char *text, int64_t *out);
bool str_int(const char *text, int *out);
bool str_double(const char *text, double *out); /* finite */
/* A byte count: a decimal number, optionally with a suffix: B, KiB MiB GiB TiB or K M G
 * T (powers of 1024), KB MB GB TB (powers of 1000). */
bool str_size(const char *text, uint64_t *out);
/* A time in seconds, not negative: "90", "1.5s", "500ms", "15m", "8h", "2d" or a sum
 * such as "3h50m". */
bool str_duration(const char *text, double *out);

/* Formats BYTES for people ("1.50 GiB") in BUF.  Returns BUF. */
const char *str_human(char buf[32], uint64_t bytes);

/* True when the N bytes are well-formed UTF-8 (RFC 3629). */
bool str_is_utf8(const char *s, size_t n);
/* Decode the code point at S, which has N > 0 bytes, to *cp.  Returns the bytes used; 0
 * when they are ill-formed. */
size_t str_utf8_decode(const char *s, size_t n, uint32_t *cp);
/* Bytes of the byte order mark with which TEXT[n] begins: 3, or 0. */
size_t str_mark(const char *text, size_t n);
/* For ill-formed bytes at S: how many of them one U+FFFD replaces.  This is the longest
 * prefix of a well-formed character, or one byte (maximal subparts, the Unicode
 * Standard, section 3.9). */
size_t str_utf8_bad(const char *s, size_t n);
/* Encode CP to OUT (room for 4); returns bytes written. */
size_t str_utf8_encode(uint32_t cp, char out[4]);

/* Edit distance of two words (optimal string alignment), for "did you mean". */
size_t str_distance(const char *a, const char *b);

#endif
