/* parsing - what the parser's parts share: parser.c, expressions.c and statements.c
 *
 * Each reader begins at the current token and leaves the one after what it read.  It
 * returns a node in the scratch, or NULL or -1 after it failed there. */
#ifndef LIB_TEXT_TEMPLATE_PARSING_H
#define LIB_TEXT_TEMPLATE_PARSING_H

#include "lib/text/template/parser.h"

struct parser {
    struct scratch *s;
    struct parsed *out;
    const struct token *t; /* the current one */
    int loops;             /* around the current statement, in the same body */
    int conditions;        /* ifs around it: an unknown filter there fails when run */
    struct node *macro;    /* around it, or NULL */
};

/* ---- tokens: parser.c ---- */

void parser_advance(struct parser *p);
bool parser_is_sign(const struct parser *p, const char *sign);
bool parser_is_name(const struct parser *p, const char *name);
/* Is it next?  Steps over it. */
bool parser_take_sign(struct parser *p, const char *sign);
bool parser_take_name(struct parser *p, const char *name);
MUST_CHECK int parser_need_sign(struct parser *p, const char *sign);
/* The name that comes next, stepped over; NULL fails. */
const char *parser_need_name(struct parser *p);
/* The address of T's name. */
const char *parser_intern(struct parser *p, const struct token *t);
/* "expected EXPECTED, not" the current token; returns -1. */
int parser_fail_here(struct parser *p, const char *expected);

struct node *parser_make(struct parser *p, enum node_type type);
/* A node of TYPE with the operands A and B; NULL if one of them is missing. */
struct node *parser_make_of(struct parser *p, enum node_type type, struct node *a,
                            struct node *b);

/* ---- expressions.c ---- */

/* One expression, or several with commas as a tuple.  READ reads each; END is a name
 * that ends them. */
struct node *expression_read_tuple(struct parser *p,
                                   struct node *(*read)(struct parser *),
                                   const char *end, bool may_be_empty);
/* The same of whole expressions, at least one. */
struct node *expression_read_any(struct parser *p);
/* A filter's name and arguments, applied to INPUT; NULL is a block's text. */
struct node *expression_read_filter(struct parser *p, struct node *input);
/* An expression without "if", at whose place a tag may have its own. */
struct node *expression_read_or(struct parser *p);
/* What may be skipped when it runs may have unknown filters. */
struct node *expression_read(struct parser *p);

/* ---- statements.c ---- */

/* Statements up to a tag of ENDS, whose "{%" is then next, or the template's end. */
MUST_CHECK int statements_read(struct parser *p, struct node **out,
                               const char *const *ends);

#endif
