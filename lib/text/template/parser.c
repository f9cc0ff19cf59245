/* parser - reads a template into a tree: the steps from token to token
 *
 * The grammar is Jinja's (jinja2 3.1, parser.py): expressions.c has what makes a value,
 * statements.c the tags and what they enclose.  Errors name the construct; the
 * scratch's line is that of the token that is read. */
#include "lib/text/template/parser.h"

#include <stdio.h>
#include <string.h>

#include "lib/text/template/parsing.h"

void parser_advance(struct parser *p)
{
    if (p->t->type != TOKEN_END)
        p->t++;
    p->s->line = p->t->line;
}

bool parser_is_sign(const struct parser *p, const char *sign)
{
    return p->t->type == TOKEN_SIGN && !strcmp(p->t->s, sign);
}

bool parser_is_name(const struct parser *p, const char *name)
{
    return p->t->type == TOKEN_NAME && !strcmp(p->t->s, name);
}

bool parser_take_sign(struct parser *p, const char *sign)
{
    if (!parser_is_sign(p, sign))
        return false;
    parser_advance(p);
    return true;
}

bool parser_take_name(struct parser *p, const char *name)
{
    if (!parser_is_name(p, name))
        return false;
    parser_advance(p);
    return true;
}

int parser_fail_here(struct parser *p, const char *expected)
{
    switch (p->t->type) {
    case TOKEN_DATA:
    case TOKEN_PRINT:
    case TOKEN_BLOCK:
        return scratch_fail(p->s, "expected %s", expected);
    case TOKEN_PRINT_END:
        return scratch_fail(p->s, "expected %s, not '}}'", expected);
    case TOKEN_BLOCK_END:
        return scratch_fail(p->s, "expected %s, not '%%}'", expected);
    case TOKEN_END:
        return scratch_fail(p->s, "expected %s, not the end of the template", expected);
    default:
        return scratch_fail(p->s, "expected %s, not '%.60s'", expected, p->t->s);
    }
}

int parser_need_sign(struct parser *p, const char *sign)
{
    char expected[8];

    if (parser_take_sign(p, sign))
        return 0;
    snprintf(expected, sizeof(expected), "'%s'", sign);
    return parser_fail_here(p, expected);
}

struct node *parser_make(struct parser *p, enum node_type type)
{
    struct node *n = scratch_zeroed(p->s, sizeof(*n));

    if (n) {
        n->type = type;
        n->line = p->s->line;
    }
    return n;
}

struct node *parser_make_of(struct parser *p, enum node_type type, struct node *a,
                            struct node *b)
{
    struct node *n = a && b ? parser_make(p, type) : NULL;

    if (n) {
        n->a = a;
        n->b = b;
    }
    return n;
}

const char *parser_intern(struct parser *p, const struct token *t)
{
    return names_intern(p->s, &p->out->names, t->s, t->n);
}

const char *parser_need_name(struct parser *p)
{
    const struct token *t = p->t;

    if (t->type != TOKEN_NAME) {
        parser_fail_here(p, "a name");
        return NULL;
    }
    parser_advance(p);
    return parser_intern(p, t);
}

int parser_run(struct scratch *s, const char *text, size_t n, struct parsed *out)
{
    struct parser p = { .s = s, .out = out };

    *out = (struct parsed){ 0 };
    if (lexer_run(s, text, n, &out->tokens) < 0)
        return -1;
    p.t = out->tokens.v;
    s->line = p.t->line;
    return statements_read(&p, &out->body, (const char *const[]){ NULL });
}
