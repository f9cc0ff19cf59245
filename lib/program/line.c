/* line - parses one equation of a family's forward pass into a tree */
#include "lib/program/line.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

struct reader {
    const char *text, *p;
    int depth;
    struct err *err;
};

static int parse_sum(struct reader *r, struct node **out);

static int fail(struct reader *r, const char *what)
{
    return err_set(r->err, ERR_INPUT, "column %d: %s", (int)(r->p - r->text) + 1, what);
}

static void skip_space(struct reader *r)
{
    while (*r->p == ' ')
        r->p++;
}

static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (*r->p != c)
        return false;
    r->p++;
    return true;
}

static size_t word_length(const char *p)
{
    size_t n = 0;

    if (isalpha((unsigned char)*p) || *p == '_')
        while (isalnum((unsigned char)p[n]) || p[n] == '_')
            n++;
    return n;
}

static struct node *node_new(struct reader *r, enum node_kind kind, const char *at,
                             size_t len)
{
    struct node *n = xcalloc(1, sizeof(*n));

    n->kind = kind;
    n->at = (size_t)(at - r->text);
    n->text = at;
    n->len = len;
    return n;
}

void node_free(struct node *n)
{
    while (n) {
        struct node *next = n->next;

        node_free(n->kid);
        free(n);
        n = next;
    }
}

/* "name = expression" up to the ',' or ')' that ends it; NULL if the argument is not an
 * option. */
static struct node *parse_option(struct reader *r)
{
    const char *at, *p;
    size_t len;
    int depth = 0;
    bool word = false;
    struct node *n;

    skip_space(r);
    at = r->p;
    len = word_length(at);
    p = at + len;
    while (*p == ' ')
        p++;
    if (!len || *p != '=' || p[1] == '=')
        return NULL;
    for (p++; *p == ' '; p++)
        ;
    n = node_new(r, NODE_OPTION, at, len);
    n->expr = p;
    for (; *p; p++) {
        word ^= *p == '\'';
        if (word)
            continue;
        if (depth == 0 && (*p == ',' || *p == ')'))
            break;
        depth += *p == '(' || *p == '[';
        depth -= *p == ')' || *p == ']';
    }
    n->expr_len = (size_t)(p - n->expr);
    r->p = p;
    return n;
}

/* "name = sum" */
static int parse_let(struct reader *r, struct node **out)
{
    struct node *let;
    size_t len;

    skip_space(r);
    len = word_length(r->p);
    let = node_new(r, NODE_LET, r->p, len);
    *out = let;
    r->p += len;
    if (!len || !take(r, '='))
        return fail(r, "expected 'name = expression'");
    return parse_sum(r, &let->kid);
}

/* "route, name = rows, name = sum, ... : sum)" */
static int parse_each(struct reader *r, struct node *each)
{
    struct node *route = NULL, *rows = NULL, *body = NULL, *last;
    size_t len;

    each->kind = NODE_EACH;
    if (parse_sum(r, &route) < 0)
        return -1;
    each->kid = route;
    if (!take(r, ','))
        return fail(r, "expected ','");
    skip_space(r);
    len = word_length(r->p);
    each->text = r->p;
    each->len = len;
    r->p += len;
    if (!len || !take(r, '='))
        return fail(r, "expected 'name = rows : line'");
    if (parse_sum(r, &rows) < 0)
        return -1;
    route->next = last = rows;
    while (take(r, ',')) {
        if (parse_let(r, &last->next) < 0)
            return -1;
        last = last->next;
    }
    if (!take(r, ':'))
        return fail(r, "expected ',' or ':'");
    if (parse_sum(r, &body) < 0)
        return -1;
    last->next = body;
    return take(r, ')') ? 0 : fail(r, "expected ')'");
}

static int parse_call(struct reader *r, struct node *call)
{
    struct node **tail = &call->kid;

    if (take(r, ')'))
        return 0;
    do {
        struct node *arg = parse_option(r);

        if (!arg && parse_sum(r, &arg) < 0)
            return -1;
        *tail = arg;
        tail = &arg->next;
    } while (take(r, ','));
    return take(r, ')') ? 0 : fail(r, "expected ',' or ')'");
}

static int parse_primary(struct reader *r, struct node **out)
{
    const char *at;
    size_t len;

    skip_space(r);
    at = r->p;
    if (take(r, '(')) {
        if (parse_sum(r, out) < 0)
            return -1;
        if (take(r, ')'))
            return 0;
        node_free(*out);
        return fail(r, "expected ')'");
    }
    if (isdigit((unsigned char)*at)) {
        char *end;
        double x = strtod(at, &end);

        r->p = end;
        *out = node_new(r, NODE_NUMBER, at, (size_t)(end - at));
        (*out)->number = x;
        return 0;
    }
    len = word_length(at);
    if (!len)
        return fail(r, "expected a name, a number or '('");
    r->p += len;
    *out = node_new(r, *r->p == '(' ? NODE_CALL : NODE_NAME, at, len);
    if ((*out)->kind == NODE_NAME)
        return 0;
    r->p++;
    if ((len == 7 && !memcmp(at, "experts", 7) ? parse_each(r, *out)
                                               : parse_call(r, *out)) == 0)
        return 0;
    node_free(*out);
    return -1;
}

static int parse_part(struct reader *r, struct node **out)
{
    if (parse_primary(r, out) < 0)
        return -1;
    while (*r->p == '.') {
        size_t len = word_length(r->p + 1);
        struct node *n;

        if (!len) {
            node_free(*out);
            return fail(r, "expected a segment after '.'");
        }
        n = node_new(r, NODE_SEGMENT, r->p + 1, len);
        n->kid = *out;
        *out = n;
        r->p += 1 + len;
    }
    return 0;
}

/* One or more kids joined by OP; a single kid is returned without a node around it. */
static int parse_joined(struct reader *r, struct node **out, char op,
                        enum node_kind kind,
                        int (*parse)(struct reader *, struct node **))
{
    struct node *first, **tail;

    if (parse(r, &first) < 0)
        return -1;
    if (!take(r, op)) {
        *out = first;
        return 0;
    }
    *out = node_new(r, kind, r->text + first->at, 0);
    (*out)->kid = first;
    tail = &first->next;
    do {
        if (parse(r, tail) < 0) {
            *tail = NULL;
            node_free(*out);
            return -1;
        }
        tail = &(*tail)->next;
    } while (take(r, op));
    return 0;
}

static int parse_product(struct reader *r, struct node **out)
{
    return parse_joined(r, out, '*', NODE_PRODUCT, parse_part);
}

static int parse_sum(struct reader *r, struct node **out)
{
    int ret;

    if (++r->depth > 64)
        return fail(r, "nested too deeply");
    ret = parse_joined(r, out, '+', NODE_SUM, parse_product);
    r->depth--;
    return ret;
}

int line_parse_tree(struct node **out, const char *line, struct err *err)
{
    struct reader r = { .text = line, .p = line, .err = err };

    if (parse_sum(&r, out) < 0)
        return -1;
    skip_space(&r);
    if (!*r.p)
        return 0;
    node_free(*out);
    return fail(&r, "expected an operator or the end");
}
