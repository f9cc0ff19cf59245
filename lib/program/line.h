/* line - parses one equation of a family's forward pass into a tree
 *
 *   sum := product ('+' product)*      product := part ('*' part)*
 *   part := number | name | name '(' [arg (',' arg)*] ')' | '(' sum ')', each may be
 * followed by '.segment' arg := sum | name '=' expression (expr.h; stored as text)
 *   part := 'experts' '(' sum (',' name '=' sum)+ ':' sum ')' */
#ifndef LIB_PROGRAM_LINE_H
#define LIB_PROGRAM_LINE_H

#include <stddef.h>

#include "lib/base/err.h"

enum node_kind {
    NODE_NAME,    /* text */
    NODE_NUMBER,  /* number */
    NODE_CALL,    /* text(kids...) */
    NODE_SUM,     /* kid + kid + ... */
    NODE_PRODUCT, /* kid * kid * ... */
    NODE_SEGMENT, /* kid.text */
    NODE_OPTION,  /* in a call: text = expression; EXPR is the expression */
    NODE_EACH,    /* experts(kid 1, text = kid 2, lets... : last kid) */
    NODE_REPEAT,  /* repeat(kid 1, text = kid 2 : last kid); kid 1 a capture's name */
    NODE_LET,     /* in experts(): text = kid */
};

struct node {
    enum node_kind kind;
    size_t at;        /* byte offset in the line */
    const char *text; /* borrowed from the line */
    size_t len;
    const char *expr;
    size_t expr_len;
    double number;
    struct node *kid, *next;
};

/* Parses LINE, which must outlive the tree.  *out: release with node_free.  The error
 * text is "column C: cause". */
MUST_CHECK int line_parse_tree(struct node **out, const char *line, struct err *err);
void node_free(struct node *n);

#endif
