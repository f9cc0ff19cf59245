/* parser - reads a template into a tree */
#ifndef LIB_TEXT_TEMPLATE_PARSER_H
#define LIB_TEXT_TEMPLATE_PARSER_H

#include "lib/text/template/lexer.h"
#include "lib/text/template/nodes.h"

struct parsed {
    struct node *body;
    struct names names;
    struct tokens_of_template tokens;
    bool has_generation;
};

/* Reads the N bytes at TEXT; the tree lives in S.  What the subset lacks fails. */
MUST_CHECK int parser_run(struct scratch *s, const char *text, size_t n,
                          struct parsed *out);

#endif
