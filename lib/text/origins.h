/* origins - which bytes of a text the bytes made of it stand for
 *
 * As in the `tokenizers` library (NormalizedString::transform): a character that takes
 * the place of another stands for what that one stood for, one that is added for what
 * the character before it in the old text did, and what is removed is nobody's. */
#ifndef LIB_TEXT_ORIGINS_H
#define LIB_TEXT_ORIGINS_H

#include <stddef.h>

/* A range of bytes of the original. */
struct origin {
    size_t start, end;
};

/* One for each byte of a text.  `struct origins o = { 0 }` is empty. */
struct origins {
    struct origin *v;
    size_t n, cap;
};

void origins_clear(struct origins *o);
/* Appends those of the LEN bytes at TEXT, which begin at byte AT of the original, and
 * of which nothing is changed. */
void origins_begin(struct origins *o, const char *text, size_t len, size_t at);
/* Appends N times O. */
void origins_add(struct origins *o, struct origin one, size_t n);
/* The range of the bytes [START, END) of a text. */
struct origin origins_range(const struct origins *o, size_t start, size_t end);

/* A text is rewritten from left to right; where nobody wants to know, R is NULL. */
struct rewriting {
    const char *text; /* the old one */
    size_t len, at;   /* at: of its next byte */
    size_t held;      /* bytes of a character that more may be removed with; 0: none */
    int change;       /* and what it does */
    struct origins from, to;
};

/* Begins with the old text TEXT[LEN], whose origins are R->to. */
void rewriting_begin(struct rewriting *r, const char *text, size_t len);
/* The next N bytes of the new text are a character: CHANGE 0, or -K: it takes the place
 * of a character, and K more are removed; above 0: it is added. */
void rewriting_char(struct rewriting *r, size_t n, int change);
/* Characters of N bytes are removed; or stay as they are. */
void rewriting_skip(struct rewriting *r, size_t n);
void rewriting_copy(struct rewriting *r, size_t n);
/* The N bytes at PART become the characters MADE[LEN], as the library's Precompiled
 * does it: fewer characters than before remove the others after the last one, which is
 * that before them where MADE is empty; at the very beginning that is overlooked.  To
 * be ended by rewriting_flush. */
void rewriting_replace(struct rewriting *r, const char *part, size_t n,
                       const char *made, size_t len);
void rewriting_flush(struct rewriting *r);
void rewriting_clear(struct rewriting *r);

#endif
