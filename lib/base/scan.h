/* scan - reading a short text from left to right: blanks, operators, words
 *
 * For the small languages of family files (axes, lines, expressions).  All that is
 * taken is behind p; nothing is read at or behind end. */
#ifndef LIB_BASE_SCAN_H
#define LIB_BASE_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

struct scan {
    const char *text, *p, *end;
    int depth; /* of nesting: see scan_enter */
    struct err *err;
};

struct scan scan_start(const char *text, size_t n, struct err *err);

/* Set the error CAUSE, whose column is that of AT, and return -1. */
int scan_fail(const struct scan *s, const char *at, const char *cause);

/* Skip blanks. */
void scan_space(struct scan *s);
/* The byte OFFSET bytes on; '\0' behind the end. */
char scan_peek(const struct scan *s, size_t offset);
/* Skip blanks, and step over the byte C if it is next. */
bool scan_take(struct scan *s, char c);
/* Skip blanks, and step over the text OP if it is next. */
bool scan_take_text(struct scan *s, const char *op);
/* Bytes of the word (a letter or _, then letters, digits and _) OFFSET bytes on; 0
 * where there is none. */
size_t scan_word(const struct scan *s, size_t offset);
/* Skip blanks; fail unless the whole text was read. */
int scan_end(struct scan *s, const char *cause);

/* Count one level of nesting, and fail beyond MOST; s->depth-- leaves it. */
int scan_enter(struct scan *s, int most);

#endif
