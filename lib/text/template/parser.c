/* parser - reads a template into a tree
 *
 * The grammar is Jinja's (jinja2 3.1, parser.py).  Errors name the construct; the
 * scratch's line is that of the token that is read. */
#include "lib/text/template/parser.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/str.h"
#include "lib/text/template/filters.h"
#include "lib/text/template/tests.h"

struct parser {
    struct scratch *s;
    struct parsed *out;
    const struct token *t; /* the current one */
    int loops;             /* around the current statement, in the same body */
    int conditions;        /* ifs around it: an unknown filter there fails when run */
    struct node *macro;    /* around it, or NULL */
};

/* ---- names ---- */

static uint32_t *name_slot(const struct names *names, const char *name, size_t n)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)name[i]) * 1099511628211u;
    for (h ^= h >> 32;; h++) {
        uint32_t *slot = &names->slot[h & (names->slots - 1)];

        if (!*slot ||
            (strlen(names->v[*slot - 1]) == n && !memcmp(names->v[*slot - 1], name, n)))
            return slot;
    }
}

const char *names_find(const struct names *names, const char *name, size_t n)
{
    uint32_t *slot = names->slots ? name_slot(names, name, n) : NULL;

    return slot && *slot ? names->v[*slot - 1] : NULL;
}

static int grow_names(struct scratch *s, struct names *names)
{
    size_t cap = names->cap ? 2 * names->cap : 64;
    const char **v = scratch_take(s, cap * sizeof(*v));

    names->slot = scratch_zeroed(s, 2 * cap * sizeof(*names->slot));
    if (!v || !names->slot)
        return -1;
    if (names->n)
        memcpy(v, names->v, names->n * sizeof(*v));
    names->v = v;
    names->cap = cap;
    names->slots = 2 * cap;
    for (size_t i = 0; i < names->n; i++)
        *name_slot(names, v[i], strlen(v[i])) = (uint32_t)(i + 1);
    return 0;
}

const char *names_intern(struct scratch *s, struct names *names, const char *name,
                         size_t n)
{
    const char *found = names_find(names, name, n);
    char *copy;

    if (found)
        return found;
    if (names->n == names->cap && grow_names(s, names) < 0)
        return NULL;
    copy = scratch_take(s, n + 1);
    if (!copy)
        return NULL;
    memcpy(copy, name, n);
    copy[n] = '\0';
    names->v[names->n++] = copy;
    *name_slot(names, copy, n) = (uint32_t)names->n;
    return copy;
}

/* ---- tokens ---- */

static void advance(struct parser *p)
{
    if (p->t->type != TOKEN_END)
        p->t++;
    p->s->line = p->t->line;
}

static bool is_sign(const struct parser *p, const char *sign)
{
    return p->t->type == TOKEN_SIGN && !strcmp(p->t->s, sign);
}

static bool is_name(const struct parser *p, const char *name)
{
    return p->t->type == TOKEN_NAME && !strcmp(p->t->s, name);
}

static bool take_sign(struct parser *p, const char *sign)
{
    if (!is_sign(p, sign))
        return false;
    advance(p);
    return true;
}

static bool take_name(struct parser *p, const char *name)
{
    if (!is_name(p, name))
        return false;
    advance(p);
    return true;
}

static int fail_here(struct parser *p, const char *expected)
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

static int need_sign(struct parser *p, const char *sign)
{
    char expected[8];

    if (take_sign(p, sign))
        return 0;
    snprintf(expected, sizeof(expected), "'%s'", sign);
    return fail_here(p, expected);
}

static struct node *make(struct parser *p, enum node_type type)
{
    struct node *n = scratch_zeroed(p->s, sizeof(*n));

    if (n) {
        n->type = type;
        n->line = p->s->line;
    }
    return n;
}

/* A node of TYPE with the operands A and B; NULL if one of them is missing. */
static struct node *make_of(struct parser *p, enum node_type type, struct node *a,
                            struct node *b)
{
    struct node *n = a && b ? make(p, type) : NULL;

    if (n) {
        n->a = a;
        n->b = b;
    }
    return n;
}

static const char *intern(struct parser *p, const struct token *t)
{
    return names_intern(p->s, &p->out->names, t->s, t->n);
}

/* The name that comes next, stepped over; NULL fails. */
static const char *need_name(struct parser *p)
{
    const struct token *t = p->t;

    if (t->type != TOKEN_NAME) {
        fail_here(p, "a name");
        return NULL;
    }
    advance(p);
    return intern(p, t);
}

/* ---- expressions ---- */

static struct node *read_expression(struct parser *p);
static struct node *read_or(struct parser *p);
static struct node *read_unary(struct parser *p, bool with_filters);

static bool ends_tuple(const struct parser *p, const char *end)
{
    return p->t->type == TOKEN_PRINT_END || p->t->type == TOKEN_BLOCK_END ||
           is_sign(p, ")") || (end && is_name(p, end));
}

/* One expression, or several with commas as a tuple.  READ reads each; END is a name
 * that ends them. */
static struct node *read_tuple(struct parser *p, struct node *(*read)(struct parser *),
                               const char *end, bool may_be_empty)
{
    struct node *list = NULL, **last = &list, *tuple;
    bool is_tuple = false;

    while (!ends_tuple(p, end)) {
        *last = read(p);
        if (!*last)
            return NULL;
        last = &(*last)->next;
        if (!take_sign(p, ","))
            break;
        is_tuple = true;
    }
    if (list && !is_tuple)
        return list;
    if (!list && !may_be_empty) {
        fail_here(p, "an expression");
        return NULL;
    }
    tuple = make(p, NODE_TUPLE);
    if (tuple)
        tuple->b = list;
    return tuple;
}

static struct node *read_any(struct parser *p)
{
    return read_tuple(p, read_expression, NULL, false);
}

static struct node *read_number(struct parser *p)
{
    struct node *n = make(p, NODE_CONST);
    const struct token *t = p->t;
    int64_t i;
    double x;

    if (!n)
        return NULL;
    advance(p);
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
    struct node *n = make(p, NODE_CONST);
    size_t len = 0;
    char *joined;

    if (!n)
        return NULL;
    for (const struct token *t = p->t; t->type == TOKEN_STRING; t++)
        len += t->n;
    joined = scratch_take(p->s, len);
    if (!joined || value_text(p->s, &n->value, joined, NULL, len) < 0)
        return NULL;
    for (; p->t->type == TOKEN_STRING; advance(p)) {
        memcpy(joined, p->t->s, p->t->n);
        joined += p->t->n;
    }
    return n;
}

static struct node *read_list(struct parser *p)
{
    struct node *n = make(p, NODE_LIST), **last;

    if (!n)
        return NULL;
    for (last = &n->b; !is_sign(p, "]"); last = &(*last)->next) {
        if (n->b && need_sign(p, ",") < 0)
            return NULL;
        if (is_sign(p, "]"))
            break;
        *last = read_expression(p);
        if (!*last)
            return NULL;
    }
    advance(p);
    return n;
}

static struct node *read_dict(struct parser *p)
{
    struct node *n = make(p, NODE_DICT), **last;

    if (!n)
        return NULL;
    for (last = &n->b; !is_sign(p, "}"); last = &(*last)->next) {
        struct node *key, *value;

        if (n->b && need_sign(p, ",") < 0)
            return NULL;
        if (is_sign(p, "}"))
            break;
        key = read_expression(p);
        value = key && need_sign(p, ":") == 0 ? read_expression(p) : NULL;
        *last = make_of(p, NODE_PAIR, key, value);
        if (!*last)
            return NULL;
    }
    advance(p);
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
    struct node *n = make(p, NODE_CONST);

    if (!n)
        return NULL;
    advance(p);
    if (!strcmp(t->s, "true") || !strcmp(t->s, "True")) {
        n->value = value_bool(true);
    } else if (!strcmp(t->s, "false") || !strcmp(t->s, "False")) {
        n->value = value_bool(false);
    } else if (!strcmp(t->s, "none") || !strcmp(t->s, "None")) {
        n->value = value_none();
    } else {
        n->type = NODE_NAME;
        n->name = intern(p, t);
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
    if (take_sign(p, "(")) {
        n = read_tuple(p, read_expression, NULL, true);
        return n && need_sign(p, ")") == 0 ? n : NULL;
    }
    if (take_sign(p, "["))
        return read_list(p);
    if (take_sign(p, "{"))
        return read_dict(p);
    fail_here(p, "an expression");
    return NULL;
}

/* Arguments up to ")", the "(" taken; *out may be NULL. */
static int read_arguments(struct parser *p, struct node **out)
{
    enum node_type before = NODE_CONST;

    for (struct node **last = out; !is_sign(p, ")"); last = &(*last)->next) {
        enum node_type type = NODE_CONST;
        const char *name = NULL;
        struct node *n;

        if (*out && need_sign(p, ",") < 0)
            return -1;
        if (is_sign(p, ")"))
            break;
        if (take_sign(p, "*")) {
            type = NODE_STAR;
        } else if (take_sign(p, "**")) {
            type = NODE_STAR_STAR;
        } else if (p->t->type == TOKEN_NAME && p->t[1].type == TOKEN_SIGN &&
                   !strcmp(p->t[1].s, "=")) {
            type = NODE_KEYWORD;
            name = need_name(p);
            advance(p);
            if (!name)
                return -1;
        }
        if (before == NODE_STAR_STAR || (type == NODE_CONST && before != NODE_CONST) ||
            (type == NODE_STAR && before == NODE_STAR))
            return fail_here(p, "arguments by position before those by name");
        before = type;
        n = read_expression(p);
        if (n && type != NODE_CONST) {
            n = make_of(p, type, n, n);
            if (n)
                n->name = name;
        }
        if (!n)
            return -1;
        *last = n;
    }
    advance(p);
    return 0;
}

static struct node *read_call(struct parser *p, struct node *callee)
{
    struct node *n = make(p, NODE_CALL);

    advance(p);
    if (!n || read_arguments(p, &n->b) < 0)
        return NULL;
    n->a = callee;
    return n;
}

/* One part of a slice, or NULL in *out before ":" and "]". */
static int read_bound(struct parser *p, struct node **out)
{
    *out = NULL;
    if (is_sign(p, ":") || is_sign(p, "]") || is_sign(p, ","))
        return 0;
    *out = read_expression(p);
    return *out ? 0 : -1;
}

static struct node *read_subscript(struct parser *p, struct node *of)
{
    struct node *n = make(p, NODE_ITEM);

    advance(p);
    if (!n)
        return NULL;
    n->a = of;
    if (read_bound(p, &n->b) < 0)
        return NULL;
    if (take_sign(p, ":")) {
        n->type = NODE_SLICE;
        if (read_bound(p, &n->c) < 0 || (take_sign(p, ":") && read_bound(p, &n->d) < 0))
            return NULL;
    } else if (!n->b) {
        fail_here(p, "an index");
        return NULL;
    }
    return need_sign(p, "]") < 0 ? NULL : n;
}

static struct node *read_member(struct parser *p, struct node *of)
{
    struct node *n = make(p, NODE_MEMBER);

    advance(p);
    if (!n)
        return NULL;
    n->a = of;
    if (p->t->type == TOKEN_INTEGER) {
        n->type = NODE_ITEM;
        n->b = read_number(p);
        return n->b ? n : NULL;
    }
    n->name = need_name(p);
    return n->name ? n : NULL;
}

static struct node *read_postfix(struct parser *p, struct node *n)
{
    while (n) {
        if (is_sign(p, "."))
            n = read_member(p, n);
        else if (is_sign(p, "["))
            n = read_subscript(p, n);
        else if (is_sign(p, "("))
            n = read_call(p, n);
        else
            break;
    }
    return n;
}

/* A filter's name and arguments, applied to INPUT. */
static struct node *read_filter(struct parser *p, struct node *input)
{
    struct node *n = make(p, NODE_FILTER);

    if (!n)
        return NULL;
    n->a = input;
    n->name = need_name(p);
    if (!n->name)
        return NULL;
    n->found = filter_find(n->name);
    if (!n->found && !p->conditions) {
        p->s->line = n->line;
        scratch_fail(p->s, "the filter '%s' is not supported", n->name);
        return NULL;
    }
    if (take_sign(p, "(") && read_arguments(p, &n->b) < 0)
        return NULL;
    return n;
}

static bool begins_argument(const struct parser *p)
{
    switch (p->t->type) {
    case TOKEN_NAME:
        return !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return true;
    default:
        return is_sign(p, "[") || is_sign(p, "{");
    }
}

static struct node *read_test(struct parser *p, struct node *of)
{
    struct node *n = make(p, NODE_TEST);
    bool negated;

    if (!n)
        return NULL;
    advance(p);
    negated = take_name(p, "not");
    n->a = of;
    n->name = need_name(p);
    if (!n->name)
        return NULL;
    n->found = test_find(n->name);
    if (!n->found && !p->conditions) {
        p->s->line = n->line;
        scratch_fail(p->s, "the test '%s' is not supported", n->name);
        return NULL;
    }
    if (take_sign(p, "(")) {
        if (read_arguments(p, &n->b) < 0)
            return NULL;
    } else if (begins_argument(p)) {
        if (is_name(p, "is")) {
            fail_here(p, "one test");
            return NULL;
        }
        n->b = read_postfix(p, read_primary(p));
        if (!n->b)
            return NULL;
    }
    return negated ? make_of(p, NODE_NOT, n, n) : n;
}

static struct node *read_filters(struct parser *p, struct node *n)
{
    while (n) {
        if (take_sign(p, "|"))
            n = read_filter(p, n);
        else if (is_name(p, "is"))
            n = read_test(p, n);
        else if (is_sign(p, "("))
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
    if (is_sign(p, "-") || is_sign(p, "+")) {
        enum node_type type = is_sign(p, "-") ? NODE_MINUS : NODE_PLUS;
        struct node *of;

        advance(p);
        of = read_unary(p, false);
        n = make_of(p, type, of, of);
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

    while (n && take_sign(p, "**")) {
        n = make_of(p, NODE_BINARY, n, read_unary(p, true));
        if (n)
            n->op = OP_POWER;
    }
    return n;
}

static struct node *read_product(struct parser *p)
{
    struct node *n = read_power(p);

    while (n && (is_sign(p, "*") || is_sign(p, "/") || is_sign(p, "//") ||
                 is_sign(p, "%"))) {
        int op = p->t->n == 2 ? OP_DIVIDE : *p->t->s;

        advance(p);
        n = make_of(p, NODE_BINARY, n, read_power(p));
        if (n)
            n->op = op;
    }
    return n;
}

static struct node *read_concat(struct parser *p)
{
    struct node *n = read_product(p), *list = n;

    if (!n || !is_sign(p, "~"))
        return n;
    n = make(p, NODE_CONCAT);
    if (!n)
        return NULL;
    n->b = list;
    while (take_sign(p, "~")) {
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

    while (n && (is_sign(p, "+") || is_sign(p, "-"))) {
        int op = *p->t->s;

        advance(p);
        n = make_of(p, NODE_BINARY, n, read_concat(p));
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
        if (take_sign(p, signs[i])) {
            *op = i;
            return true;
        }
    }
    *op = COMPARE_IN;
    if (take_name(p, "in"))
        return true;
    if (!is_name(p, "not") || p->t[1].type != TOKEN_NAME || strcmp(p->t[1].s, "in"))
        return false;
    *op = COMPARE_NOT_IN;
    advance(p);
    advance(p);
    return true;
}

static struct node *read_comparison(struct parser *p)
{
    struct node *n = read_sum(p), **last = NULL;
    int op;

    while (n && take_comparison(p, &op)) {
        struct node *operand = read_sum(p);

        operand = make_of(p, NODE_OPERAND, operand, operand);
        if (operand && !last) {
            n = make_of(p, NODE_COMPARE, n, operand);
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

    if (!take_name(p, "not"))
        return read_comparison(p);
    if (scratch_enter(p->s) < 0)
        return NULL;
    n = read_not(p);
    scratch_leave(p->s);
    return make_of(p, NODE_NOT, n, n);
}

static struct node *read_and(struct parser *p)
{
    struct node *n = read_not(p);

    while (n && take_name(p, "and"))
        n = make_of(p, NODE_AND, n, read_not(p));
    return n;
}

static struct node *read_or(struct parser *p)
{
    struct node *n = read_and(p);

    while (n && take_name(p, "or"))
        n = make_of(p, NODE_OR, n, read_and(p));
    return n;
}

/* What may be skipped when it runs may have unknown filters. */
static struct node *read_expression(struct parser *p)
{
    struct node *n;

    if (scratch_enter(p->s) < 0)
        return NULL;
    n = read_or(p);
    p->conditions++;
    while (n && take_name(p, "if")) {
        struct node *test = read_or(p), *otherwise = NULL;

        if (test && take_name(p, "else")) {
            otherwise = read_expression(p);
            if (!otherwise)
                return NULL;
        }
        n = make_of(p, NODE_COND, test, n);
        if (n)
            n->c = otherwise;
    }
    p->conditions--;
    scratch_leave(p->s);
    return n;
}

/* ---- statements ---- */

static int read_body(struct parser *p, struct node **out, const char *const *ends);

/* What {% set %}, {% for %} and {% with %} assign to. */
static struct node *read_target_part(struct parser *p)
{
    struct node *n = make(p, NODE_NAME);

    if (!n)
        return NULL;
    if (take_sign(p, "(")) {
        n = read_tuple(p, read_target_part, NULL, false);
        return n && need_sign(p, ")") == 0 ? n : NULL;
    }
    n->name = need_name(p);
    if (!n->name)
        return NULL;
    if (take_sign(p, ".")) {
        n = make_of(p, NODE_MEMBER, n, n);
        if (!n)
            return NULL;
        n->name = need_name(p);
    }
    return n->name ? n : NULL;
}

static struct node *read_target(struct parser *p, const char *end)
{
    return read_tuple(p, read_target_part, end, false);
}

/* The end of a tag, a body, and the name of the tag after it, one of ENDS: returned. */
static const char *read_block(struct parser *p, struct node **body,
                              const char *const *ends)
{
    (void)take_sign(p, ":");
    if (p->t->type != TOKEN_BLOCK_END) {
        fail_here(p, "'%}'");
        return NULL;
    }
    advance(p);
    if (read_body(p, body, ends) < 0)
        return NULL;
    if (p->t->type == TOKEN_END) {
        fail_here(p, ends[0]);
        return NULL;
    }
    advance(p);
    return need_name(p);
}

/* The same for a body that runs by itself, as a macro's does. */
static int read_own_body(struct parser *p, struct node **body, const char *end)
{
    const char *const ends[] = { end, NULL };
    int loops = p->loops;
    const char *found;

    p->loops = 0;
    found = read_block(p, body, ends);
    p->loops = loops;
    return found ? 0 : -1;
}

static int read_if(struct parser *p, struct node *n)
{
    static const char *const ends[] = { "endif", "elif", "else", NULL };
    const char *end;

    n->type = NODE_IF;
    n->a = read_tuple(p, read_or, NULL, false);
    end = n->a ? read_block(p, &n->b, ends) : NULL;
    if (!end || !strcmp(end, "endif"))
        return end ? 0 : -1;
    if (!strcmp(end, "else"))
        return read_block(p, &n->c, (const char *const[]){ "endif", NULL }) ? 0 : -1;
    n->c = make(p, NODE_IF);
    if (!n->c || scratch_enter(p->s) < 0 || read_if(p, n->c) < 0)
        return -1;
    scratch_leave(p->s);
    return 0;
}

static int read_for(struct parser *p, struct node *n)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    const char *end;

    n->type = NODE_FOR;
    n->a = read_target(p, "in");
    if (!n->a)
        return -1;
    if (!take_name(p, "in"))
        return fail_here(p, "'in'");
    n->b = read_tuple(p, read_or, "recursive", false);
    if (!n->b)
        return -1;
    if (take_name(p, "if")) {
        n->e = read_expression(p);
        if (!n->e)
            return -1;
    }
    if (is_name(p, "recursive"))
        return scratch_fail(p->s, "'recursive' is not supported");
    p->loops++;
    end = read_block(p, &n->c, ends);
    p->loops--;
    if (!end || !strcmp(end, "endfor"))
        return end ? 0 : -1;
    return read_block(p, &n->d, (const char *const[]){ "endfor", NULL }) ? 0 : -1;
}

static int read_set(struct parser *p, struct node *n)
{
    n->a = read_target(p, NULL);
    if (!n->a)
        return -1;
    if (take_sign(p, "=")) {
        n->type = NODE_SET;
        n->b = read_any(p);
        return n->b ? 0 : -1;
    }
    n->type = NODE_SET_BLOCK;
    while (take_sign(p, "|")) {
        n->b = read_filter(p, n->b);
        if (!n->b)
            return -1;
    }
    return read_block(p, &n->c, (const char *const[]){ "endset", NULL }) ? 0 : -1;
}

/* Parameters in parentheses. */
static int read_parameters(struct parser *p, struct node **out)
{
    bool defaults = false;

    if (need_sign(p, "(") < 0)
        return -1;
    for (struct node **last = out; !is_sign(p, ")"); last = &(*last)->next) {
        struct node *n;

        if (*out && need_sign(p, ",") < 0)
            return -1;
        n = make(p, NODE_NAME);
        if (n)
            n->name = need_name(p);
        if (!n || !n->name)
            return -1;
        if (take_sign(p, "=")) {
            n->b = read_expression(p);
            if (!n->b)
                return -1;
            defaults = true;
        } else if (defaults) {
            return fail_here(p, "a default");
        }
        *last = n;
    }
    advance(p);
    return 0;
}

static int read_macro(struct parser *p, struct node *n)
{
    struct node *around = p->macro;
    int ret;

    n->type = NODE_MACRO;
    n->name = need_name(p);
    if (!n->name || read_parameters(p, &n->a) < 0)
        return -1;
    p->macro = n;
    ret = read_own_body(p, &n->c, "endmacro");
    p->macro = around;
    return ret;
}

static int read_call_block(struct parser *p, struct node *n)
{
    n->type = NODE_CALL_BLOCK;
    if (is_sign(p, "(") && read_parameters(p, &n->a) < 0)
        return -1;
    n->b = read_expression(p);
    if (!n->b)
        return -1;
    if (n->b->type != NODE_CALL)
        return scratch_fail(p->s, "expected a call after 'call'");
    return read_own_body(p, &n->c, "endcall");
}

static int read_filter_block(struct parser *p, struct node *n)
{
    n->type = NODE_FILTER_BLOCK;
    do {
        n->b = read_filter(p, n->b);
        if (!n->b)
            return -1;
    } while (take_sign(p, "|"));
    return read_block(p, &n->c, (const char *const[]){ "endfilter", NULL }) ? 0 : -1;
}

static int read_generation(struct parser *p, struct node *n)
{
    n->type = NODE_GENERATION;
    p->out->has_generation = true;
    return read_own_body(p, &n->c, "endgeneration");
}

static int read_with(struct parser *p, struct node *n)
{
    n->type = NODE_WITH;
    for (struct node **last = &n->a; p->t->type != TOKEN_BLOCK_END;
         last = &(*last)->next) {
        struct node *target;

        if (n->a && need_sign(p, ",") < 0)
            return -1;
        target = read_target_part(p);
        if (!target || need_sign(p, "=") < 0)
            return -1;
        *last = make_of(p, NODE_SET, target, read_expression(p));
        if (!*last)
            return -1;
    }
    return read_block(p, &n->c, (const char *const[]){ "endwith", NULL }) ? 0 : -1;
}

static int read_leave(struct parser *p, struct node *n)
{
    if (!p->loops)
        return scratch_fail(p->s, "break or continue outside a loop");
    (void)n;
    return 0;
}

static int read_break(struct parser *p, struct node *n)
{
    n->type = NODE_BREAK;
    return read_leave(p, n);
}

static int read_continue(struct parser *p, struct node *n)
{
    n->type = NODE_CONTINUE;
    return read_leave(p, n);
}

static const struct statement {
    const char *name;
    int (*read)(struct parser *p, struct node *n);
} statements[] = {
    { "if", read_if },
    { "for", read_for },
    { "set", read_set },
    { "macro", read_macro },
    { "call", read_call_block },
    { "filter", read_filter_block },
    { "generation", read_generation },
    { "with", read_with },
    { "break", read_break },
    { "continue", read_continue },
};

static const struct statement *find_statement(const char *name)
{
    for (size_t i = 0; i < sizeof(statements) / sizeof(*statements); i++)
        if (!strcmp(name, statements[i].name))
            return &statements[i];
    return NULL;
}

/* The tag after "{%", and all that belongs to it. */
static struct node *read_statement(struct parser *p)
{
    struct node *n = make(p, NODE_TEXT);
    const struct token *t = p->t;
    const struct statement *found;
    bool is_condition;
    int ret;

    if (t->type != TOKEN_NAME) {
        fail_here(p, "the name of a tag");
        return NULL;
    }
    found = find_statement(t->s);
    if (!found) {
        scratch_fail(p->s, "the tag {%% %.60s %%} is not supported%s", t->s,
                     str_starts(t->s, "end") || !strcmp(t->s, "else") ||
                             !strcmp(t->s, "elif")
                         ? " here"
                         : "");
        return NULL;
    }
    is_condition = found->read == read_if;
    advance(p);
    if (!n || scratch_enter(p->s) < 0)
        return NULL;
    p->conditions += is_condition;
    ret = found->read(p, n);
    p->conditions -= is_condition;
    scratch_leave(p->s);
    if (ret < 0)
        return NULL;
    if (p->t->type != TOKEN_BLOCK_END) {
        fail_here(p, "'%}'");
        return NULL;
    }
    advance(p);
    return n;
}

static struct node *read_print(struct parser *p)
{
    struct node *n = make(p, NODE_PRINT);

    advance(p);
    if (!n)
        return NULL;
    n->a = read_any(p);
    if (!n->a)
        return NULL;
    if (p->t->type != TOKEN_PRINT_END) {
        fail_here(p, "'}}'");
        return NULL;
    }
    advance(p);
    return n;
}

static struct node *read_text(struct parser *p)
{
    struct node *n = make(p, NODE_TEXT);

    if (!n || value_text(p->s, &n->value, p->t->s, NULL, p->t->n) < 0)
        return NULL;
    advance(p);
    return n;
}

static bool ends_body(const struct parser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (p->t[1].type == TOKEN_NAME && !strcmp(p->t[1].s, *ends))
            return true;
    return false;
}

/* Statements up to a tag of ENDS, whose "{%" is then next, or the template's end. */
static int read_body(struct parser *p, struct node **out, const char *const *ends)
{
    for (struct node **last = out; p->t->type != TOKEN_END; last = &(*last)->next) {
        switch (p->t->type) {
        case TOKEN_DATA:
            *last = read_text(p);
            break;
        case TOKEN_PRINT:
            *last = read_print(p);
            break;
        default:
            if (ends_body(p, ends))
                return 0;
            advance(p);
            *last = read_statement(p);
            break;
        }
        if (!*last)
            return -1;
    }
    return 0;
}

int parser_run(struct scratch *s, const char *text, size_t n, struct parsed *out)
{
    struct parser p = { .s = s, .out = out };

    *out = (struct parsed){ 0 };
    if (lexer_run(s, text, n, &out->tokens) < 0)
        return -1;
    p.t = out->tokens.v;
    s->line = p.t->line;
    return read_body(&p, &out->body, (const char *const[]){ NULL });
}
