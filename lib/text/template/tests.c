/* tests - {{ value is test }} */
#include "lib/text/template/tests.h"

#include <string.h>

#include "lib/text/template/filters.h"
#include "lib/text/template/lookup.h"
#include "lib/text/template/printing.h"
#include "lib/text/template/strings.h"

struct test {
    const char *name;
    int required; /* arguments: none or one */
    int (*run)(struct render *r, bool *out, const struct value *v,
               const struct value *arg);
};

static int is_defined(struct render *r, bool *out, const struct value *v,
                      const struct value *arg)
{
    (void)r;
    (void)arg;
    *out = v->type != VALUE_UNDEFINED;
    return 0;
}

static int is_undefined(struct render *r, bool *out, const struct value *v,
                        const struct value *arg)
{
    (void)r;
    (void)arg;
    *out = v->type == VALUE_UNDEFINED;
    return 0;
}

static int is_none(struct render *r, bool *out, const struct value *v,
                   const struct value *arg)
{
    (void)r;
    (void)arg;
    *out = v->type == VALUE_NONE;
    return 0;
}

static int is_string(struct render *r, bool *out, const struct value *v,
                     const struct value *arg)
{
    (void)r;
    (void)arg;
    *out = v->type == VALUE_TEXT;
    return 0;
}

static int is_mapping(struct render *r, bool *out, const struct value *v,
                      const struct value *arg)
{
    (void)r;
    (void)arg;
    *out = v->type == VALUE_DICT;
    return 0;
}

static int is_iterable(struct render *r, bool *out, const struct value *v,
                       const struct value *arg)
{
    size_t n;

    (void)r;
    (void)arg;
    *out = value_length(v, &n) || v->type == VALUE_ITERATOR || v->type == VALUE_LOOP;
    return 0;
}

static int is_sequence(struct render *r, bool *out, const struct value *v,
                       const struct value *arg)
{
    size_t n;

    (void)r;
    (void)arg;
    *out = value_length(v, &n) && v->type != VALUE_VIEW;
    return 0;
}

static int is_boolean(struct render *r, bool *out, const struct value *v,
                      const struct value *arg)
{
    (void)r;
    (void)arg;
    *out = v->type == VALUE_BOOL;
    return 0;
}

static int is_true(struct render *r, bool *out, const struct value *v,
                   const struct value *arg)
{
    (void)r;
    (void)arg;
    *out = v->type == VALUE_BOOL && v->u.boolean;
    return 0;
}

static int is_false(struct render *r, bool *out, const struct value *v,
                    const struct value *arg)
{
    (void)r;
    (void)arg;
    *out = v->type == VALUE_BOOL && !v->u.boolean;
    return 0;
}

static int is_number(struct render *r, bool *out, const struct value *v,
                     const struct value *arg)
{
    (void)r;
    (void)arg;
    *out = value_is_number(v) || v->type == VALUE_BIG;
    return 0;
}

static int is_integer(struct render *r, bool *out, const struct value *v,
                      const struct value *arg)
{
    (void)r;
    (void)arg;
    *out = v->type == VALUE_INT || v->type == VALUE_BIG;
    return 0;
}

static int is_float(struct render *r, bool *out, const struct value *v,
                    const struct value *arg)
{
    (void)r;
    (void)arg;
    *out = v->type == VALUE_FLOAT;
    return 0;
}

static int is_callable(struct render *r, bool *out, const struct value *v,
                       const struct value *arg)
{
    (void)r;
    (void)arg;
    *out = v->type == VALUE_MACRO || v->type == VALUE_METHOD ||
           v->type == VALUE_FUNCTION || v->type == VALUE_UNDEFINED;
    return 0;
}

static int remainder_of(struct render *r, int64_t *out, const struct value *v,
                        const struct value *divisor)
{
    int64_t n;

    if (v->type == VALUE_UNDEFINED)
        return scratch_fail(r->s, "%s", v->u.cause);
    if (!value_is_integer(v) || !value_is_integer(divisor))
        return scratch_fail(r->s, "a remainder of %s is not supported",
                            value_type_name(v));
    n = value_to_int(divisor);
    if (!n)
        return scratch_fail(r->s, "integer modulo by zero");
    *out = n == -1 ? 0 : value_to_int(v) % n;
    return 0;
}

static int is_odd(struct render *r, bool *out, const struct value *v,
                  const struct value *arg)
{
    const struct value two = value_int(2);
    int64_t rest = 0;

    (void)arg;
    if (remainder_of(r, &rest, v, &two) < 0)
        return -1;
    *out = rest != 0;
    return 0;
}

static int is_even(struct render *r, bool *out, const struct value *v,
                   const struct value *arg)
{
    if (is_odd(r, out, v, arg) < 0)
        return -1;
    *out = !*out;
    return 0;
}

static int is_divisible(struct render *r, bool *out, const struct value *v,
                        const struct value *arg)
{
    int64_t rest = 0;

    if (remainder_of(r, &rest, v, arg) < 0)
        return -1;
    *out = !rest;
    return 0;
}

static int is_case(struct render *r, bool *out, const struct value *v, bool upper)
{
    struct value text;

    if (printing_to_text(r->s, &text, v) < 0)
        return -1;
    *out = strings_is_case(text.u.text, upper);
    return scratch_step(r->s, 8 * text.u.text->n);
}

static int is_lower(struct render *r, bool *out, const struct value *v,
                    const struct value *arg)
{
    (void)arg;
    return is_case(r, out, v, false);
}

static int is_upper(struct render *r, bool *out, const struct value *v,
                    const struct value *arg)
{
    (void)arg;
    return is_case(r, out, v, true);
}

static int is_equal(struct render *r, bool *out, const struct value *v,
                    const struct value *arg)
{
    return value_equal(r->s, out, v, arg);
}

/* Python's identity, of values that have one here. */
static int is_same(struct render *r, bool *out, const struct value *v,
                   const struct value *arg)
{
    *out = false;
    if (v->type != arg->type)
        return 0;
    if (v->type >= VALUE_LIST) {
        *out = v->u.list == arg->u.list;
        return 0;
    }
    return value_equal(r->s, out, v, arg);
}

static int is_unequal(struct render *r, bool *out, const struct value *v,
                      const struct value *arg)
{
    int ret = value_equal(r->s, out, v, arg);

    *out = !*out;
    return ret;
}

static int is_less(struct render *r, bool *out, const struct value *v,
                   const struct value *arg)
{
    return value_less(r->s, out, "<", v, arg);
}

static int is_greater(struct render *r, bool *out, const struct value *v,
                      const struct value *arg)
{
    return value_less(r->s, out, ">", arg, v);
}

/* a >= b: b < a or a == b, as Python compares numbers and texts. */
static int at_least(struct render *r, bool *out, const char *op, const struct value *a,
                    const struct value *b)
{
    bool equal;

    if (value_less(r->s, out, op, b, a) < 0 || value_equal(r->s, &equal, a, b) < 0)
        return -1;
    *out |= equal;
    return 0;
}

static int is_at_least(struct render *r, bool *out, const struct value *v,
                       const struct value *arg)
{
    return at_least(r, out, ">=", v, arg);
}

static int is_at_most(struct render *r, bool *out, const struct value *v,
                      const struct value *arg)
{
    return at_least(r, out, "<=", arg, v);
}

static int is_in(struct render *r, bool *out, const struct value *v,
                 const struct value *arg)
{
    return lookup_contains(r->s, out, arg, v);
}

static int is_filter(struct render *r, bool *out, const struct value *v,
                     const struct value *arg)
{
    char name[64];

    (void)r;
    (void)arg;
    *out = false;
    if (v->type == VALUE_TEXT && v->u.text->n < sizeof(name)) {
        memcpy(name, v->u.text->s, v->u.text->n);
        name[v->u.text->n] = '\0';
        *out = filter_find(name) != NULL;
    }
    return 0;
}

static const struct test tests[] = {
    { "defined", 0, is_defined },
    { "undefined", 0, is_undefined },
    { "none", 0, is_none },
    { "string", 0, is_string },
    { "mapping", 0, is_mapping },
    { "iterable", 0, is_iterable },
    { "sequence", 0, is_sequence },
    { "boolean", 0, is_boolean },
    { "true", 0, is_true },
    { "false", 0, is_false },
    { "number", 0, is_number },
    { "integer", 0, is_integer },
    { "float", 0, is_float },
    { "callable", 0, is_callable },
    { "odd", 0, is_odd },
    { "even", 0, is_even },
    { "divisibleby", 1, is_divisible },
    { "lower", 0, is_lower },
    { "upper", 0, is_upper },
    { "eq", 1, is_equal },
    { "equalto", 1, is_equal },
    { "==", 1, is_equal },
    { "sameas", 1, is_same },
    { "ne", 1, is_unequal },
    { "!=", 1, is_unequal },
    { "lt", 1, is_less },
    { "<", 1, is_less },
    { "lessthan", 1, is_less },
    { "gt", 1, is_greater },
    { ">", 1, is_greater },
    { "greaterthan", 1, is_greater },
    { "ge", 1, is_at_least },
    { ">=", 1, is_at_least },
    { "le", 1, is_at_most },
    { "<=", 1, is_at_most },
    { "in", 1, is_in },
    { "filter", 0, is_filter },
};

const struct test *test_find(const char *name)
{
    for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
        if (!strcmp(name, tests[i].name))
            return &tests[i];
    return NULL;
}

int test_run(struct render *r, bool *out, const struct test *t, const struct value *v,
             const struct arguments *a)
{
    const struct parameters p = { t->required ? "other" : "", t->required };
    const struct value *arg[MOST_PARAMETERS];

    if (render_bind(r, t->name, &p, a, arg) < 0)
        return -1;
    return t->run(r, out, v, arg[0]);
}
