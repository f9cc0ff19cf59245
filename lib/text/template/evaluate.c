/* evaluate - the expressions of a template */
#include "lib/text/template/evaluate.h"

#include <math.h>
#include <string.h>

#include "lib/text/template/filters.h"
#include "lib/text/template/formatting.h"
#include "lib/text/template/lookup.h"
#include "lib/text/template/printing.h"
#include "lib/text/template/tests.h"
#include "lib/text/template/strings.h"

/* ---- names and literals ---- */

static int get_variable(struct render *r, struct value *out, const struct node *n)
{
    const struct function *f;

    for (const struct scope *s = r->scope; s; s = s->around) {
        for (const struct variable *v = s->first; v; v = v->next) {
            if (v->name == n->name) {
                *out = v->value;
                return 0;
            }
        }
    }
    f = function_find(n->name);
    if (f) {
        *out = (struct value){ VALUE_FUNCTION, { .function = f } };
        return 0;
    }
    return value_missing(r->s, out, "'%.100s' is undefined", n->name);
}

static size_t count(const struct node *n)
{
    size_t i = 0;

    for (; n; n = n->next)
        i++;
    return i;
}

static int make_list(struct render *r, struct value *out, const struct node *n,
                     enum value_type type)
{
    struct value *v;

    if (value_list(r->s, out, type, count(n->b)) < 0)
        return -1;
    v = out->u.list->v;
    for (const struct node *e = n->b; e; e = e->next)
        if (evaluate(r, v++, e) < 0)
            return -1;
    return 0;
}

static int make_dict(struct render *r, struct value *out, const struct node *n)
{
    if (value_dict(r->s, out, VALUE_DICT) < 0)
        return -1;
    for (const struct node *e = n->b; e; e = e->next) {
        struct value key, value;

        if (evaluate(r, &key, e->a) < 0 || evaluate(r, &value, e->b) < 0 ||
            dict_set(r->s, out->u.dict, key, value) < 0)
            return -1;
    }
    return 0;
}

/* ---- arithmetic ---- */

static int bad_operands(struct render *r, const char *op, const struct value *a,
                        const struct value *b)
{
    if (a->type == VALUE_UNDEFINED || b->type == VALUE_UNDEFINED)
        return scratch_fail(r->s, "%s",
                            a->type == VALUE_UNDEFINED ? a->u.cause : b->u.cause);
    if (a->type == VALUE_BIG || b->type == VALUE_BIG)
        return scratch_fail(r->s, "integers of more than 64 bits are not supported");
    return scratch_fail(r->s, "'%s' is not possible for %s and %s", op,
                        value_type_name(a), value_type_name(b));
}

/* Of a text that is safe and one that is not, the other is escaped, as markupsafe does.
 */
static int join_texts(struct render *r, struct value *out, const struct text *a,
                      const struct text *b)
{
    struct builder text = builder_start(r->s);
    bool safe = a->safe || b->safe;
    struct text *joined = safe ? scratch_take(r->s, sizeof(*joined)) : NULL;

    if ((safe && !a->safe ? strings_add_escaped(&text, a)
                          : builder_add_text(&text, a)) < 0 ||
        (safe && !b->safe ? strings_add_escaped(&text, b)
                          : builder_add_text(&text, b)) < 0)
        return -1;
    if (!safe || !joined)
        return safe ? -1 : builder_value(&text, out);
    *joined = (struct text){ text.s, text.mark, text.n, true };
    *out = (struct value){ VALUE_TEXT, { .text = joined } };
    return 0;
}

static int join_lists(struct render *r, struct value *out, const struct value *a,
                      const struct value *b)
{
    size_t n = a->u.list->n, m = b->u.list->n;

    if (scratch_step(r->s, 8 * (n + m)) < 0 ||
        value_list(r->s, out, a->type, n + m) < 0)
        return -1;
    if (n)
        memcpy(out->u.list->v, a->u.list->v, n * sizeof(struct value));
    if (m)
        memcpy(out->u.list->v + n, b->u.list->v, m * sizeof(struct value));
    return 0;
}

static int repeat(struct render *r, struct value *out, const struct value *v,
                  const struct value *times)
{
    int64_t n = value_to_int(times);
    size_t len;

    if (v->type == VALUE_TEXT)
        return strings_repeat(r->s, out, v->u.text, n);
    len = n > 0 ? v->u.list->n : 0;
    if (len && (uint64_t)n > SIZE_MAX / sizeof(struct value) / len)
        return scratch_fail(r->s, "a list repeated %lld times is too long",
                            (long long)n);
    if (value_list(r->s, out, v->type, len ? len * (size_t)n : 0) < 0)
        return -1;
    for (size_t i = 0; i < out->u.list->n; i++) {
        if (scratch_step(r->s, 0) < 0)
            return -1;
        out->u.list->v[i] = v->u.list->v[i % len];
    }
    return 0;
}

static bool can_repeat(const struct value *v, const struct value *times)
{
    return (v->type == VALUE_TEXT || v->type == VALUE_LIST || v->type == VALUE_TUPLE) &&
           value_is_integer(times);
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b && (a < 0) != (b < 0));
}

/* Both are integers. */
static int integer_operation(struct render *r, struct value *out, int op, int64_t a,
                             int64_t b)
{
    bool overflow = false;
    int64_t n = 0;

    if ((op == '/' || op == '%' || op == OP_DIVIDE) && !b)
        return scratch_fail(r->s, "division by zero");
    if (op == '/') {
        *out = value_float((double)a / (double)b);
        return 0;
    }
    switch (op) {
    case '+':
        overflow = __builtin_add_overflow(a, b, &n);
        break;
    case '-':
        overflow = __builtin_sub_overflow(a, b, &n);
        break;
    case '*':
        overflow = __builtin_mul_overflow(a, b, &n);
        break;
    case '%':
        n = b == -1 ? 0 : a - b * floor_divide(a, b);
        break;
    case OP_DIVIDE:
        overflow = a == INT64_MIN && b == -1;
        n = overflow ? 0 : floor_divide(a, b);
        break;
    default: /* ** */
        if (b < 0) {
            if (!a)
                return scratch_fail(r->s, "0 to a negative power");
            *out = value_float(pow((double)a, (double)b));
            return 0;
        }
        n = 1;
        for (; b && !overflow; b--) {
            overflow = __builtin_mul_overflow(n, a, &n);
            if (scratch_step(r->s, 0) < 0)
                return -1;
        }
    }
    if (overflow)
        return scratch_fail(r->s, "integers of more than 64 bits are not supported");
    *out = value_int(n);
    return 0;
}

static int float_operation(struct render *r, struct value *out, int op, double a,
                           double b)
{
    double x;

    if ((op == '/' || op == '%' || op == OP_DIVIDE) && b == 0)
        return scratch_fail(r->s, "division by zero");
    switch (op) {
    case '+':
        x = a + b;
        break;
    case '-':
        x = a - b;
        break;
    case '*':
        x = a * b;
        break;
    case '/':
        x = a / b;
        break;
    case '%':
        x = fmod(a, b);
        x = x != 0 && (x < 0) != (b < 0) ? x + b : x != 0 ? x : copysign(0, b);
        break;
    case OP_DIVIDE:
        x = floor(a / b);
        break;
    default:
        x = pow(a, b);
        if (isnan(x) && !isnan(a) && !isnan(b))
            return scratch_fail(r->s, "complex numbers are not supported");
    }
    *out = value_float(x);
    return 0;
}

static int arithmetic(struct render *r, struct value *out, const struct node *n)
{
    const char op[3] = { n->op == OP_DIVIDE  ? '/'
                         : n->op == OP_POWER ? '*'
                                             : (char)n->op,
                         n->op == OP_DIVIDE  ? '/'
                         : n->op == OP_POWER ? '*'
                                             : '\0' };
    struct value a, b;

    if (evaluate(r, &a, n->a) < 0 || evaluate(r, &b, n->b) < 0)
        return -1;
    r->s->line = n->line;
    if (value_is_integer(&a) && value_is_integer(&b))
        return integer_operation(r, out, n->op, value_to_int(&a), value_to_int(&b));
    if (value_is_number(&a) && value_is_number(&b))
        return float_operation(r, out, n->op, value_to_double(&a), value_to_double(&b));
    if (n->op == '+' && a.type == b.type) {
        if (a.type == VALUE_TEXT)
            return join_texts(r, out, a.u.text, b.u.text);
        if (a.type == VALUE_LIST || a.type == VALUE_TUPLE)
            return join_lists(r, out, &a, &b);
    }
    if (n->op == '*' && (can_repeat(&a, &b) || can_repeat(&b, &a)))
        return can_repeat(&a, &b) ? repeat(r, out, &a, &b) : repeat(r, out, &b, &a);
    if (n->op == '%' && a.type == VALUE_TEXT && !a.u.text->safe)
        return formatting_percent(r, out, a.u.text, &b);
    return bad_operands(r, op, &a, &b);
}

static int sign(struct render *r, struct value *out, const struct node *n)
{
    struct value v;
    int64_t i;

    if (evaluate(r, &v, n->a) < 0)
        return -1;
    if (v.type == VALUE_UNDEFINED)
        return scratch_fail(r->s, "%s", v.u.cause);
    if (!value_is_number(&v))
        return scratch_fail(r->s, "a sign before a %s", value_type_name(&v));
    if (v.type == VALUE_FLOAT) {
        *out = value_float(n->type == NODE_MINUS ? -v.u.number : v.u.number);
        return 0;
    }
    i = value_to_int(&v);
    if (n->type == NODE_MINUS && i == INT64_MIN)
        return scratch_fail(r->s, "integers of more than 64 bits are not supported");
    *out = value_int(n->type == NODE_MINUS ? -i : i);
    return 0;
}

static int concat(struct render *r, struct value *out, const struct node *n)
{
    struct builder b = builder_start(r->s);

    for (const struct node *e = n->b; e; e = e->next) {
        struct value v;

        if (evaluate(r, &v, e) < 0 || printing_str(&b, &v) < 0)
            return -1;
    }
    return builder_value(&b, out);
}

/* ---- comparisons ---- */

static int compare(struct render *r, bool *out, int op, const struct value *a,
                   const struct value *b)
{
    bool equal;

    switch (op) {
    case COMPARE_EQUAL:
        return value_equal(r->s, out, a, b);
    case COMPARE_UNEQUAL:
        if (value_equal(r->s, &equal, a, b) < 0)
            return -1;
        *out = !equal;
        return 0;
    case COMPARE_LESS:
        return value_less(r->s, out, "<", a, b);
    case COMPARE_GREATER:
        return value_less(r->s, out, ">", b, a);
    case COMPARE_LESS_EQUAL:
    case COMPARE_GREATER_EQUAL:
        if ((op == COMPARE_LESS_EQUAL ? value_less(r->s, out, "<=", a, b)
                                      : value_less(r->s, out, ">=", b, a)) < 0 ||
            value_equal(r->s, &equal, a, b) < 0)
            return -1;
        *out |= equal;
        return 0;
    default:
        if (lookup_contains(r->s, out, b, a) < 0)
            return -1;
        *out ^= op == COMPARE_NOT_IN;
        return 0;
    }
}

/* a < b < c is a < b and b < c. */
static int comparison(struct render *r, struct value *out, const struct node *n)
{
    struct value a, b;
    bool result = true;

    if (evaluate(r, &a, n->a) < 0)
        return -1;
    for (const struct node *e = n->b; e && result; e = e->next) {
        if (evaluate(r, &b, e->a) < 0)
            return -1;
        r->s->line = n->line;
        if (compare(r, &result, e->op, &a, &b) < 0)
            return -1;
        a = b;
    }
    *out = value_bool(result);
    return 0;
}

/* ---- calls ---- */

/* Room for the arguments of the list N, whose * and ** were evaluated to SPREAD. */
static int make_room(struct render *r, struct arguments *out, const struct node *n,
                     const struct list *star, const struct dict *stars)
{
    size_t positional = star ? star->n : 0, keywords = stars ? stars->n : 0;

    for (; n; n = n->next) {
        keywords += n->type == NODE_KEYWORD;
        positional += n->type != NODE_KEYWORD && n->type != NODE_STAR &&
                      n->type != NODE_STAR_STAR;
    }
    *out = (struct arguments){ 0 };
    if (positional)
        out->v = scratch_take(r->s, positional * sizeof(*out->v));
    if (keywords)
        out->keyword = scratch_take(r->s, keywords * sizeof(*out->keyword));
    return (positional && !out->v) || (keywords && !out->keyword) ? -1 : 0;
}

static int evaluate_spread(struct render *r, const struct node *n,
                           const struct list **star, const struct dict **stars)
{
    struct value v;

    *star = NULL;
    *stars = NULL;
    for (; n; n = n->next) {
        if (n->type != NODE_STAR && n->type != NODE_STAR_STAR)
            continue;
        if (evaluate(r, &v, n->a) < 0)
            return -1;
        if (n->type == NODE_STAR) {
            if (value_elements(r->s, star, &v) < 0)
                return -1;
        } else if (v.type != VALUE_DICT) {
            return scratch_fail(r->s, "the argument after ** must be a dict, not %s",
                                value_type_name(&v));
        } else {
            *stars = v.u.dict;
        }
    }
    return 0;
}

static int add_keyword(struct render *r, struct keyword *v, size_t *n, const char *name,
                       const struct value *value)
{
    for (size_t i = 0; i < *n; i++)
        if (!strcmp(v[i].name, name))
            return scratch_fail(r->s, "two arguments for '%.60s'", name);
    v[(*n)++] = (struct keyword){ name, *value };
    return scratch_step(r->s, 8 * *n);
}

static int add_keywords(struct render *r, struct arguments *out,
                        const struct dict *stars)
{
    struct keyword *v = (struct keyword *)out->keyword;

    for (size_t i = 0; stars && i < stars->n; i++) {
        const struct text *key = stars->key[i].u.text;
        char *name;

        if (stars->key[i].type != VALUE_TEXT)
            return scratch_fail(r->s, "keywords must be strings");
        name = scratch_take(r->s, key->n + 1);
        if (!name)
            return -1;
        memcpy(name, key->s, key->n);
        name[key->n] = '\0';
        if (add_keyword(r, v, &out->n_keywords, name, &stars->value[i]) < 0)
            return -1;
    }
    return 0;
}

int evaluate_arguments(struct render *r, struct arguments *out, const struct node *n)
{
    const struct list *star;
    const struct dict *stars;
    struct value *v, one;

    if (evaluate_spread(r, n, &star, &stars) < 0 ||
        make_room(r, out, n, star, stars) < 0)
        return -1;
    v = (struct value *)out->v;
    for (; n; n = n->next) {
        if (n->type == NODE_STAR || n->type == NODE_STAR_STAR)
            continue;
        if (n->type == NODE_KEYWORD) {
            if (evaluate(r, &one, n->a) < 0 ||
                add_keyword(r, (struct keyword *)out->keyword, &out->n_keywords,
                            n->name, &one) < 0)
                return -1;
        } else if (evaluate(r, &v[out->n++], n) < 0) {
            return -1;
        }
    }
    for (size_t i = 0; star && i < star->n; i++)
        v[out->n++] = list_at(star, i);
    return add_keywords(r, out, stars);
}

static int call(struct render *r, struct value *out, const struct node *n)
{
    struct arguments a;
    struct value callee;

    if (evaluate(r, &callee, n->a) < 0 || evaluate_arguments(r, &a, n->b) < 0)
        return -1;
    r->s->line = n->line;
    return render_call(r, out, &callee, &a);
}

static int run_filter(struct render *r, struct value *out, const struct node *n,
                      const struct value *text)
{
    struct arguments a;
    struct value in;

    if (!n->found) {
        r->s->line = n->line;
        return scratch_fail(r->s, "the filter '%.60s' is not supported", n->name);
    }
    if ((n->a ? evaluate_filters(r, &in, n->a, text)
              : (text ? (in = *text, 0) : scratch_fail(r->s, "a filter of nothing"))) <
            0 ||
        evaluate_arguments(r, &a, n->b) < 0)
        return -1;
    r->s->line = n->line;
    return filter_run(r, out, n->found, &in, &a);
}

int evaluate_filters(struct render *r, struct value *out, const struct node *n,
                     const struct value *text)
{
    return n->type == NODE_FILTER ? run_filter(r, out, n, text) : evaluate(r, out, n);
}

static int run_test(struct render *r, struct value *out, const struct node *n)
{
    struct arguments a;
    struct value v;
    bool result;

    r->s->line = n->line;
    if (!n->found)
        return scratch_fail(r->s, "the test '%.60s' is not supported", n->name);
    if (evaluate(r, &v, n->a) < 0 || evaluate_arguments(r, &a, n->b) < 0 ||
        test_run(r, &result, n->found, &v, &a) < 0)
        return -1;
    *out = value_bool(result);
    return 0;
}

/* ---- lookups ---- */

static int member(struct render *r, struct value *out, const struct node *n)
{
    const struct text name = { .s = n->name, .n = strlen(n->name) };
    struct value of;

    if (evaluate(r, &of, n->a) < 0)
        return -1;
    r->s->line = n->line;
    return lookup_member(r->s, out, &of, &name);
}

static int item(struct render *r, struct value *out, const struct node *n)
{
    struct value of, key;

    if (evaluate(r, &of, n->a) < 0 || evaluate(r, &key, n->b) < 0)
        return -1;
    r->s->line = n->line;
    return lookup_item(r->s, out, &of, &key);
}

static int slice(struct render *r, struct value *out, const struct node *n)
{
    const struct node *bounds[3] = { n->b, n->c, n->d };
    const struct value *bound[3];
    struct value of, v[3];

    if (evaluate(r, &of, n->a) < 0)
        return -1;
    for (int i = 0; i < 3; i++) {
        if (bounds[i] && evaluate(r, &v[i], bounds[i]) < 0)
            return -1;
        bound[i] = bounds[i] ? &v[i] : NULL;
    }
    r->s->line = n->line;
    return lookup_slice(r->s, out, &of, bound);
}

/* ---- all ---- */

static int logic(struct render *r, struct value *out, const struct node *n)
{
    if (evaluate(r, out, n->a) < 0)
        return -1;
    return value_is_true(out) == (n->type == NODE_AND) ? evaluate(r, out, n->b) : 0;
}

static int negate(struct render *r, struct value *out, const struct node *n)
{
    struct value v;

    if (evaluate(r, &v, n->a) < 0)
        return -1;
    *out = value_bool(!value_is_true(&v));
    return 0;
}

static int condition(struct render *r, struct value *out, const struct node *n)
{
    struct value test;

    if (evaluate(r, &test, n->a) < 0)
        return -1;
    if (value_is_true(&test))
        return evaluate(r, out, n->b);
    if (n->c)
        return evaluate(r, out, n->c);
    *out = value_undefined("an 'if' without 'else' was false");
    return 0;
}

static int evaluate_node(struct render *r, struct value *out, const struct node *n)
{
    switch (n->type) {
    case NODE_CONST:
        *out = n->value;
        return 0;
    case NODE_NAME:
        return get_variable(r, out, n);
    case NODE_MEMBER:
        return member(r, out, n);
    case NODE_ITEM:
        return item(r, out, n);
    case NODE_SLICE:
        return slice(r, out, n);
    case NODE_CALL:
        return call(r, out, n);
    case NODE_FILTER:
        return run_filter(r, out, n, NULL);
    case NODE_TEST:
        return run_test(r, out, n);
    case NODE_NOT:
        return negate(r, out, n);
    case NODE_MINUS:
    case NODE_PLUS:
        return sign(r, out, n);
    case NODE_AND:
    case NODE_OR:
        return logic(r, out, n);
    case NODE_BINARY:
        return arithmetic(r, out, n);
    case NODE_CONCAT:
        return concat(r, out, n);
    case NODE_COMPARE:
        return comparison(r, out, n);
    case NODE_COND:
        return condition(r, out, n);
    case NODE_LIST:
        return make_list(r, out, n, VALUE_LIST);
    case NODE_TUPLE:
        return make_list(r, out, n, VALUE_TUPLE);
    case NODE_DICT:
        return make_dict(r, out, n);
    default:
        return scratch_fail(r->s, "this is no expression");
    }
}

int evaluate(struct render *r, struct value *out, const struct node *n)
{
    int ret;

    if (scratch_step(r->s, 0) < 0 || scratch_enter(r->s) < 0)
        return -1;
    ret = evaluate_node(r, out, n);
    scratch_leave(r->s);
    return ret;
}
