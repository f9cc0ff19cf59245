/* lexer - the tokens of a template
 *
 * Jinja's signs with transformers' settings: one newline after a block or comment is
 * dropped (trim_blocks), and so are blanks between the start of a line and a block or
 * comment (lstrip_blocks). */
#ifndef LIB_TEXT_TEMPLATE_LEXER_H
#define LIB_TEXT_TEMPLATE_LEXER_H

#include <stddef.h>
#include <stdint.h>

#include "lib/text/template/scratch.h"

enum token_type {
    TOKEN_DATA, /* text between the signs */
    TOKEN_PRINT,
    TOKEN_PRINT_END,
    TOKEN_BLOCK,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING, /* without quotes, escapes resolved */
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_SIGN, /* an operator or bracket */
    TOKEN_END
};

struct token {
    enum token_type type;
    uint32_t line;
    const char *s; /* [n], NUL-terminated except data */
    size_t n;
};

struct tokens_of_template {
    struct token *v; /* the last is TOKEN_END */
    size_t n, cap;
};

/* Reads the N bytes at TEXT.  Fails with a syntax error of the signs or literals. */
MUST_CHECK int lexer_run(struct scratch *s, const char *text, size_t n,
                         struct tokens_of_template *out);

#endif
