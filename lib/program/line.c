/* line - parses one equation of a family's forward pass into a tree */
#include "lib/program/line.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/scan.h"

static int parse_sum(struct scan *r, struct node **out);

static struct node *node_new(struct scan *r, enum node_kind kind, const char *at,
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
static struct node *parse_option(struct scan *r)
{
    const char *at, *p;
    size_t len;
    int depth = 0;
    bool word = false;
    struct node *n;

    scan_space(r);
    at = r->p;
    len = scan_word(r, 0);
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
static int parse_let(struct scan *r, struct node **out)
{
    struct node *let;
    size_t len;

    scan_space(r);
    len = scan_word(r, 0);
    let = node_new(r, NODE_LET, r->p, len);
    *out = let;
    r->p += len;
    if (!len || !scan_take(r, '='))
        return scan_fail(r, r->p, "expected 'name = expression'");
    return parse_sum(r, &let->kid);
}

/* "route, name = rows, name = sum, ... : sum)" of experts() and repeat() */
static int parse_each(struct scan *r, struct node *each)
{
    struct node *route = NULL, *rows = NULL, *body = NULL, *last;
    size_t len;

    if (parse_sum(r, &route) < 0)
        return -1;
    each->kid = route;
    if (!scan_take(r, ','))
        return scan_fail(r, r->p, "expected ','");
    scan_space(r);
    len = scan_word(r, 0);
    each->text = r->p;
    each->len = len;
    r->p += len;
    if (!len || !scan_take(r, '='))
        return scan_fail(r, r->p, "expected 'name = rows : line'");
    if (parse_sum(r, &rows) < 0)
        return -1;
    route->next = last = rows;
    while (scan_take(r, ',')) {
        if (parse_let(r, &last->next) < 0)
            return -1;
        last = last->next;
    }
    if (!scan_take(r, ':'))
        return scan_fail(r, r->p, "expected ',' or ':'");
    if (parse_sum(r, &body) < 0)
        return -1;
    last->next = body;
    return scan_take(r, ')') ? 0 : scan_fail(r, r->p, "expected ')'");
}

static int parse_call(struct scan *r, struct node *call)
{
    struct node **tail = &call->kid;

    if (scan_take(r, ')'))
        return 0;
    do {
        struct node *arg = parse_option(r);

        if (!arg && parse_sum(r, &arg) < 0)
            return -1;
        *tail = arg;
        tail = &arg->next;
    } while (scan_take(r, ','));
    return scan_take(r, ')') ? 0 : scan_fail(r, r->p, "expected ',' or ')'");
}

static int parse_primary(struct scan *r, struct node **out)
{
    const char *at;
    size_t len;

    scan_space(r);
    at = r->p;
    if (scan_take(r, '(')) {
        if (parse_sum(r, out) < 0)
            return -1;
        if (scan_take(r, ')'))
            return 0;
        node_free(*out);
        return scan_fail(r, r->p, "expected ')'");
    }
    if (isdigit((unsigned char)*at)) {
        char *end;
        double x = strtod(at, &end);

        r->p = end;
        *out = node_new(r, NODE_NUMBER, at, (size_t)(end - at));
        (*out)->number = x;
        return 0;
    }
    len = scan_word(r, 0);
    if (!len)
        return scan_fail(r, r->p, "expected a name, a number or '('");
    r->p += len;
    *out = node_new(r, *r->p == '(' ? NODE_CALL : NODE_NAME, at, len);
    if ((*out)->kind == NODE_NAME)
        return 0;
    r->p++;
    if (len == 7 && !memcmp(at, "experts", 7))
        (*out)->kind = NODE_EACH;
    if (len == 6 && !memcmp(at, "repeat", 6))
        (*out)->kind = NODE_REPEAT;
    if (((*out)->kind == NODE_CALL ? parse_call(r, *out) : parse_each(r, *out)) == 0)
        return 0;
    node_free(*out);
    return -1;
}

static int parse_part(struct scan *r, struct node **out)
{
    if (parse_primary(r, out) < 0)
        return -1;
    while (*r->p == '.') {
        size_t len = scan_word(r, 1);
        struct node *n;

        if (!len) /* a column's number */
            while (isdigit((unsigned char)r->p[1 + len]))
                len++;
        if (!len) {
            node_free(*out);
            return scan_fail(r, r->p, "expected a segment after '.'");
        }
        n = node_new(r, NODE_SEGMENT, r->p + 1, len);
        n->kid = *out;
        *out = n;
        r->p += 1 + len;
    }
    return 0;
}

/* One or more kids joined by OP; a single kid is returned without a node around it. */
static int parse_joined(struct scan *r, struct node **out, char op, enum node_kind kind,
                        int (*parse)(struct scan *, struct node **))
{
    struct node *first, **tail;

    if (parse(r, &first) < 0)
        return -1;
    if (!scan_take(r, op)) {
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
    } while (scan_take(r, op));
    return 0;
}

static int parse_product(struct scan *r, struct node **out)
{
    return parse_joined(r, out, '*', NODE_PRODUCT, parse_part);
}

static int parse_sum(struct scan *r, struct node **out)
{
    int ret;

    if (scan_enter(r, 64) < 0)
        return -1;
    ret = parse_joined(r, out, '+', NODE_SUM, parse_product);
    r->depth--;
    return ret;
}

int line_parse_tree(struct node **out, const char *line, struct err *err)
{
    struct scan r = scan_start(line, strlen(line), err);

    if (parse_sum(&r, out) < 0)
        return -1;
    if (scan_end(&r, "expected an operator or the end") == 0)
        return 0;
    node_free(*out);
    return -1;
}
