/* expressions - the parser's part that reads what has a value
 *
 * From literals over postfixes, filters and tests to operators, which come in the order
 * of their strength: each level reads its operands with the one above it. */
#include <string.h>

#include "lib/base/str.h"
#include "lib/text/template/filters.h"
#include "lib/text/template/parsing.h"
#include "lib/text/template/tests.h"

static bool ends_tuple(const struct parser *p, const char *end)
{
    return p->t->type == TOKEN_PRINT_END || p->t->type == TOKEN_BLOCK_END ||
           parser_is_sign(p, ")") || (end && parser_is_name(p, end));
}

struct node *expression_read_tuple(struct parser *p,
                                   struct node *(*read)(struct parser *),
                                   const char *end, bool may_be_empty)
{
    struct node *list = NULL, **last = &list, *tuple;
    bool is_tuple = false;

    while (!ends_tuple(p, end)) {
        *last = read(p);
        if (!*last)
            return NULL;
        last = &(*last)->next;
        if (!parser_take_sign(p, ","))
            break;
        is_tuple = true;
    }
    if (list && !is_tuple)
        return list;
    if (!list && !may_be_empty) {
        parser_fail_here(p, "an expression");
        return NULL;
    }
    tuple = parser_make(p, NODE_TUPLE);
    if (tuple)
        tuple->b = list;
    return tuple;
}

struct node *expression_read_any(struct parser *p)
{
    return expression_read_tuple(p, expression_read, NULL, false);
}

static struct node *read_number(struct parser *p)
{
    struct node *n = parser_make(p, NODE_CONST);
    const struct token *t = p->t;
    int64_t i;
    double x;

    if (!n)
        return NULL;
    parser_advance(p);
    if (t->type == TOKEN_INTEGER && str_i64(t->s, &i)) {
        n->value = value_int(i);
    } else if (t->type == TOKEN_FLOAT && str_double(t->s, &x)) {
        n->value = value_float(x);
    } else {
        scratch_fail(p->s, "the number %.40s is too large", t->s);
        return NULL;
    }
    return n;
}

/* One string or several in a row. */
static struct node *read_string(struct parser *p)
{
    struct node *n = parser_make(p, NODE_CONST);
    size_t len = 0;
    char *joined;

    if (!n)
        return NULL;
    for (const struct token *t = p->t; t->type == TOKEN_STRING; t++)
        len += t->n;
    joined = scratch_take(p->s, len);
    if (!joined || value_text(p->s, &n->value, joined, NULL, len) < 0)
        return NULL;
    for (; p->t->type == TOKEN_STRING; parser_advance(p)) {
        memcpy(joined, p->t->s, p->t->n);
        joined += p->t->n;
    }
    return n;
}

static struct node *read_list(struct parser *p)
{
    struct node *n = parser_make(p, NODE_LIST), **last;

    if (!n)
        return NULL;
    for (last = &n->b; !parser_is_sign(p, "]"); last = &(*last)->next) {
        if (n->b && parser_need_sign(p, ",") < 0)
            return NULL;
        if (parser_is_sign(p, "]"))
            break;
        *last = expression_read(p);
        if (!*last)
            return NULL;
    }
    parser_advance(p);
    return n;
}

static struct node *read_dict(struct parser *p)
{
    struct node *n = parser_make(p, NODE_DICT), **last;

    if (!n)
        return NULL;
    for (last = &n->b; !parser_is_sign(p, "}"); last = &(*last)->next) {
        struct node *key, *value;

        if (n->b && parser_need_sign(p, ",") < 0)
            return NULL;
        if (parser_is_sign(p, "}"))
            break;
        key = expression_read(p);
        value = key && parser_need_sign(p, ":") == 0 ? expression_read(p) : NULL;
        *last = parser_make_of(p, NODE_PAIR, key, value);
        if (!*last)
            return NULL;
    }
    parser_advance(p);
    return n;
}

/* Notes that the macro around uses one of the names that Jinja passes to it. */
static void note_name(struct parser *p, const char *name)
{
    if (!p->macro)
        return;
    p->macro->takes_rest |= !strcmp(name, "varargs");
    p->macro->takes_keywords |= !strcmp(name, "kwargs");
    p->macro->takes_caller |= !strcmp(name, "caller");
}

static struct node *read_name(struct parser *p)
{
    const struct token *t = p->t;
    struct node *n = parser_make(p, NODE_CONST);

    if (!n)
        return NULL;
    parser_advance(p);
    if (!strcmp(t->s, "true") || !strcmp(t->s, "True")) {
        n->value = value_bool(true);
    } else if (!strcmp(t->s, "false") || !strcmp(t->s, "False")) {
        n->value = value_bool(false);
    } else if (!strcmp(t->s, "none") || !strcmp(t->s, "None")) {
        n->value = value_none();
    } else {
        n->type = NODE_NAME;
        n->name = parser_intern(p, t);
        if (!n->name)
            return NULL;
        note_name(p, n->name);
    }
    return n;
}

static struct node *read_primary(struct parser *p)
{
    struct node *n;

    switch (p->t->type) {
    case TOKEN_NAME:
        return read_name(p);
    case TOKEN_STRING:
        return read_string(p);
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return read_number(p);
    default:
        break;
    }
    if (parser_take_sign(p, "(")) {
        n = expression_read_tuple(p, expression_read, NULL, true);
        return n && parser_need_sign(p, ")") == 0 ? n : NULL;
    }
    if (parser_take_sign(p, "["))
        return read_list(p);
    if (parser_take_sign(p, "{"))
        return read_dict(p);
    parser_fail_here(p, "an expression");
    return NULL;
}

/* Arguments up to ")", the "(" taken; *out may be NULL. */
static int read_arguments(struct parser *p, struct node **out)
{
    enum node_type before = NODE_CONST;

    for (struct node **last = out; !parser_is_sign(p, ")"); last = &(*last)->next) {
        enum node_type type = NODE_CONST;
        const char *name = NULL;
        struct node *n;

        if (*out && parser_need_sign(p, ",") < 0)
            return -1;
        if (parser_is_sign(p, ")"))
            break;
        if (parser_take_sign(p, "*")) {
            type = NODE_STAR;
        } else if (parser_take_sign(p, "**")) {
            type = NODE_STAR_STAR;
        } else if (p->t->type == TOKEN_NAME && p->t[1].type == TOKEN_SIGN &&
                   !strcmp(p->t[1].s, "=")) {
            type = NODE_KEYWORD;
            name = parser_need_name(p);
            parser_advance(p);
            if (!name)
                return -1;
        }
        if (before == NODE_STAR_STAR || (type == NODE_CONST && before != NODE_CONST) ||
            (type == NODE_STAR && before == NODE_STAR))
            return parser_fail_here(p, "arguments by position before those by name");
        before = type;
        n = expression_read(p);
        if (n && type != NODE_CONST) {
            n = parser_make_of(p, type, n, n);
            if (n)
                n->name = name;
        }
        if (!n)
            return -1;
        *last = n;
    }
    parser_advance(p);
    return 0;
}

static struct node *read_call(struct parser *p, struct node *callee)
{
    struct node *n = parser_make(p, NODE_CALL);

    parser_advance(p);
    if (!n || read_arguments(p, &n->b) < 0)
        return NULL;
    n->a = callee;
    return n;
}

/* One part of a slice, or NULL in *out before ":" and "]". */
static int read_bound(struct parser *p, struct node **out)
{
    *out = NULL;
    if (parser_is_sign(p, ":") || parser_is_sign(p, "]") || parser_is_sign(p, ","))
        return 0;
    *out = expression_read(p);
    return *out ? 0 : -1;
}

static struct node *read_subscript(struct parser *p, struct node *of)
{
    struct node *n = parser_make(p, NODE_ITEM);

    parser_advance(p);
    if (!n)
        return NULL;
    n->a = of;
    if (read_bound(p, &n->b) < 0)
        return NULL;
    if (parser_take_sign(p, ":")) {
        n->type = NODE_SLICE;
        if (read_bound(p, &n->c) < 0 ||
            (parser_take_sign(p, ":") && read_bound(p, &n->d) < 0))
            return NULL;
    } else if (!n->b) {
        parser_fail_here(p, "an index");
        return NULL;
    }
    return parser_need_sign(p, "]") < 0 ? NULL : n;
}

static struct node *read_member(struct parser *p, struct node *of)
{
    struct node *n = parser_make(p, NODE_MEMBER);

    parser_advance(p);
    if (!n)
        return NULL;
    n->a = of;
    if (p->t->type == TOKEN_INTEGER) {
        n->type = NODE_ITEM;
        n->b = read_number(p);
        return n->b ? n : NULL;
    }
    n->name = parser_need_name(p);
    return n->name ? n : NULL;
}

static struct node *read_postfix(struct parser *p, struct node *n)
{
    while (n) {
        if (parser_is_sign(p, "."))
            n = read_member(p, n);
        else if (parser_is_sign(p, "["))
            n = read_subscript(p, n);
        else if (parser_is_sign(p, "("))
            n = read_call(p, n);
        else
            break;
    }
    return n;
}

struct node *expression_read_filter(struct parser *p, struct node *input)
{
    struct node *n = parser_make(p, NODE_FILTER);

    if (!n)
        return NULL;
    n->a = input;
    n->name = parser_need_name(p);
    if (!n->name)
        return NULL;
    n->found = filter_find(n->name);
    if (!n->found && !p->conditions) {
        p->s->line = n->line;
        scratch_fail(p->s, "the filter '%s' is not supported", n->name);
        return NULL;
    }
    if (parser_take_sign(p, "(") && read_arguments(p, &n->b) < 0)
        return NULL;
    return n;
}

static bool begins_argument(const struct parser *p)
{
    switch (p->t->type) {
    case TOKEN_NAME:
        return !parser_is_name(p, "else") && !parser_is_name(p, "or") &&
               !parser_is_name(p, "and");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return true;
    default:
        return parser_is_sign(p, "[") || parser_is_sign(p, "{");
    }
}

static struct node *read_test(struct parser *p, struct node *of)
{
    struct node *n = parser_make(p, NODE_TEST);
    bool negated;

    if (!n)
        return NULL;
    parser_advance(p);
    negated = parser_take_name(p, "not");
    n->a = of;
    n->name = parser_need_name(p);
    if (!n->name)
        return NULL;
    n->found = test_find(n->name);
    if (!n->found && !p->conditions) {
        p->s->line = n->line;
        scratch_fail(p->s, "the test '%s' is not supported", n->name);
        return NULL;
    }
    if (parser_take_sign(p, "(")) {
        if (read_arguments(p, &n->b) < 0)
            return NULL;
    } else if (begins_argument(p)) {
        if (parser_is_name(p, "is")) {
            parser_fail_here(p, "one test");
            return NULL;
        }
        n->b = read_postfix(p, read_primary(p));
        if (!n->b)
            return NULL;
    }
    return negated ? parser_make_of(p, NODE_NOT, n, n) : n;
}

static struct node *read_filters(struct parser *p, struct node *n)
{
    while (n) {
        if (parser_take_sign(p, "|"))
            n = expression_read_filter(p, n);
        else if (parser_is_name(p, "is"))
            n = read_test(p, n);
        else if (parser_is_sign(p, "("))
            n = read_call(p, n);
        else
            break;
    }
    return n;
}

static struct node *read_unary(struct parser *p, bool with_filters)
{
    struct node *n;

    if (scratch_enter(p->s) < 0)
        return NULL;
    if (parser_is_sign(p, "-") || parser_is_sign(p, "+")) {
        enum node_type type = parser_is_sign(p, "-") ? NODE_MINUS : NODE_PLUS;
        struct node *of;

        parser_advance(p);
        of = read_unary(p, false);
        n = parser_make_of(p, type, of, of);
    } else {
        n = read_primary(p);
    }
    n = read_postfix(p, n);
    if (with_filters)
        n = read_filters(p, n);
    scratch_leave(p->s);
    return n;
}

static struct node *read_power(struct parser *p)
{
    struct node *n = read_unary(p, true);

    while (n && parser_take_sign(p, "**")) {
        n = parser_make_of(p, NODE_BINARY, n, read_unary(p, true));
        if (n)
            n->op = OP_POWER;
    }
    return n;
}

static struct node *read_product(struct parser *p)
{
    struct node *n = read_power(p);

    while (n && (parser_is_sign(p, "*") || parser_is_sign(p, "/") ||
                 parser_is_sign(p, "//") || parser_is_sign(p, "%"))) {
        int op = p->t->n == 2 ? OP_DIVIDE : *p->t->s;

        parser_advance(p);
        n = parser_make_of(p, NODE_BINARY, n, read_power(p));
        if (n)
            n->op = op;
    }
    return n;
}

static struct node *read_concat(struct parser *p)
{
    struct node *n = read_product(p), *list = n;

    if (!n || !parser_is_sign(p, "~"))
        return n;
    n = parser_make(p, NODE_CONCAT);
    if (!n)
        return NULL;
    n->b = list;
    while (parser_take_sign(p, "~")) {
        list->next = read_product(p);
        list = list->next;
        if (!list)
            return NULL;
    }
    return n;
}

static struct node *read_sum(struct parser *p)
{
    struct node *n = read_concat(p);

    while (n && (parser_is_sign(p, "+") || parser_is_sign(p, "-"))) {
        int op = *p->t->s;

        parser_advance(p);
        n = parser_make_of(p, NODE_BINARY, n, read_concat(p));
        if (n)
            n->op = op;
    }
    return n;
}

/* Is a comparison next?  Steps over it. */
static bool take_comparison(struct parser *p, int *op)
{
    static const char *const signs[] = { "==", "!=", "<", "<=", ">", ">=" };

    for (int i = 0; i < (int)(sizeof(signs) / sizeof(*signs)); i++) {
        if (parser_take_sign(p, signs[i])) {
            *op = i;
            return true;
        }
    }
    *op = COMPARE_IN;
    if (parser_take_name(p, "in"))
        return true;
    if (!parser_is_name(p, "not") || p->t[1].type != TOKEN_NAME ||
        strcmp(p->t[1].s, "in"))
        return false;
    *op = COMPARE_NOT_IN;
    parser_advance(p);
    parser_advance(p);
    return true;
}

static struct node *read_comparison(struct parser *p)
{
    struct node *n = read_sum(p), **last = NULL;
    int op;

    while (n && take_comparison(p, &op)) {
        struct node *operand = read_sum(p);

        operand = parser_make_of(p, NODE_OPERAND, operand, operand);
        if (operand && !last) {
            n = parser_make_of(p, NODE_COMPARE, n, operand);
            last = n ? &n->b : NULL;
        }
        if (!operand || !last)
            return NULL;
        operand->op = op;
        *last = operand;
        last = &operand->next;
    }
    return n;
}

static struct node *read_not(struct parser *p)
{
    struct node *n;

    if (!parser_take_name(p, "not"))
        return read_comparison(p);
    if (scratch_enter(p->s) < 0)
        return NULL;
    n = read_not(p);
    scratch_leave(p->s);
    return parser_make_of(p, NODE_NOT, n, n);
}

static struct node *read_and(struct parser *p)
{
    struct node *n = read_not(p);

    while (n && parser_take_name(p, "and"))
        n = parser_make_of(p, NODE_AND, n, read_not(p));
    return n;
}

struct node *expression_read_or(struct parser *p)
{
    struct node *n = read_and(p);

    while (n && parser_take_name(p, "or"))
        n = parser_make_of(p, NODE_OR, n, read_and(p));
    return n;
}

struct node *expression_read(struct parser *p)
{
    struct node *n;

    if (scratch_enter(p->s) < 0)
        return NULL;
    n = expression_read_or(p);
    p->conditions++;
    while (n && parser_take_name(p, "if")) {
        struct node *test = expression_read_or(p), *otherwise = NULL;

        if (test && parser_take_name(p, "else")) {
            otherwise = expression_read(p);
            if (!otherwise)
                return NULL;
        }
        n = parser_make_of(p, NODE_COND, test, n);
        if (n)
            n->c = otherwise;
    }
    p->conditions--;
    scratch_leave(p->s);
    return n;
}
