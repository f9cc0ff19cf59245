/* jsonlex - JSON token by token, for documents too large to hold as a tree
 *
 * The grammar is that of json.h, which is built on this lexer, except that the caller
 * must check for duplicate keys.  Memory is bounded by the longest string.
 *
 *     struct jsonlex lex;
 *     jsonlex_init(&lex, "file.json", text, n);
 *     while (jsonlex_next(&lex, &err) == 0 && lex.token != JSONLEX_END)
 *         ...
 *     jsonlex_clear(&lex); */
#ifndef LIB_BASE_JSONLEX_H
#define LIB_BASE_JSONLEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

enum jsonlex_token {
    JSONLEX_OBJECT, /* { */
    JSONLEX_OBJECT_END,
    JSONLEX_ARRAY, /* [ */
    JSONLEX_ARRAY_END,
    JSONLEX_KEY, /* its text; the value is the next token */
    JSONLEX_STRING,
    JSONLEX_NUMBER,
    JSONLEX_TRUE,
    JSONLEX_FALSE,
    JSONLEX_NULL,
    JSONLEX_END /* end of the document; further calls return it again */
};

enum { JSONLEX_DEPTH = 64 };

struct jsonlex {
    enum jsonlex_token token;
    uint32_t line, col; /* of the token's first byte, from 1; col counts bytes */
    size_t start, end;  /* the token's bytes in the text */
    struct str text;    /* key, string: unescaped; number: as written */
    int depth;          /* number of open objects and arrays */
    bool constants; /* set it after init: NaN, Infinity and -Infinity, which Python's
                     * json writes, are numbers */

    /* private */
    const char *name, *begin, *p, *limit, *line_start;
    uint32_t at_line;
    uint64_t in_object; /* bit d: the container at depth d + 1 is an object */
    int expect;
};

/* Read the N bytes at TEXT.  NAME (for messages) and TEXT are borrowed. */
void jsonlex_init(struct jsonlex *lex, const char *name, const char *text, size_t n);
/* The same for a TEXT that begins at line LINE, column COL of NAME; all of that line is
 * in memory. */
void jsonlex_init_at(struct jsonlex *lex, const char *name, uint32_t line, uint32_t col,
                     const char *text, size_t n);
void jsonlex_clear(struct jsonlex *lex);

/* Step to the next token.  Returns -1 with ERR_INPUT "NAME:LINE:COL: cause". */
MUST_CHECK int jsonlex_next(struct jsonlex *lex, struct err *err);

/* The current token begins a value: advance to the value's last token.  Its text is
 * then [start of the first token, lex->end). */
MUST_CHECK int jsonlex_skip(struct jsonlex *lex, struct err *err);

/* Is the first line of TEXT[n] that is not empty a JSON object? */
bool jsonlex_begins_object(const char *text, size_t n);

/* Sets ERR_INPUT "NAME:LINE:COL: " of the current token and the formatted cause. */
int jsonlex_error(const struct jsonlex *lex, struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
