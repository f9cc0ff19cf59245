/* functions - the global functions of a template */
#include <stdio.h>
#include <string.h>

#include "lib/text/template/printing.h"
#include "lib/text/template/render.h"

enum { MOST_RANGE = 100000 }; /* jinja2's sandbox: MAX_RANGE */

static int run_range(struct render *r, struct value *out,
                     const struct value *const *arg)
{
    int64_t v[3] = { 0, 0, 1 };
    struct list *l = scratch_zeroed(r->s, sizeof(*l));

    if (!l)
        return -1;
    for (int i = 0; i < 3; i++) {
        if (!arg[i])
            continue;
        if (arg[i]->type == VALUE_UNDEFINED)
            return scratch_fail(r->s, "%s", arg[i]->u.cause);
        if (!value_is_integer(arg[i]))
            return scratch_fail(r->s, "range: '%s' is no integer",
                                value_type_name(arg[i]));
        v[i] = value_to_int(arg[i]);
    }
    if (!arg[1]) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (!v[2])
        return scratch_fail(r->s, "range() arg 3 must not be zero");
    *l = (struct list){ .start = v[0], .stop = v[1], .step = v[2] };
    if (v[2] > 0 ? v[0] < v[1] : v[0] > v[1]) {
        uint64_t between = v[2] > 0 ? (uint64_t)v[1] - (uint64_t)v[0]
                                    : (uint64_t)v[0] - (uint64_t)v[1];
        uint64_t step = v[2] > 0 ? (uint64_t)v[2] : 0 - (uint64_t)v[2];

        if ((between - 1) / step + 1 > MOST_RANGE)
            return scratch_fail(r->s, "range too big: at most %d elements", MOST_RANGE);
        l->n = (size_t)((between - 1) / step + 1);
    }
    *out = (struct value){ VALUE_RANGE, { .list = l } };
    return 0;
}

/* dict(pairs or a dict, name=value...) as a value of TYPE. */
static int collect(struct render *r, struct value *out, const struct arguments *a,
                   enum value_type type)
{
    if (a->n > 1)
        return scratch_fail(r->s, "expected at most 1 argument, got %zu", a->n);
    if (value_dict(r->s, out, type) < 0)
        return -1;
    for (size_t i = 0; a->n && a->v->type == VALUE_DICT && i < a->v->u.dict->n; i++)
        if (dict_set(r->s, out->u.dict, a->v->u.dict->key[i], a->v->u.dict->value[i]) <
            0)
            return -1;
    if (a->n && a->v->type != VALUE_DICT) {
        const struct list *pairs, *pair;

        if (value_elements(r->s, &pairs, a->v) < 0)
            return -1;
        for (size_t i = 0; i < pairs->n; i++) {
            struct value v = list_at(pairs, i);

            if (value_elements(r->s, &pair, &v) < 0)
                return -1;
            if (pair->n != 2)
                return scratch_fail(r->s, "a dict is made of pairs");
            if (dict_set(r->s, out->u.dict, list_at(pair, 0), list_at(pair, 1)) < 0)
                return -1;
        }
    }
    for (size_t i = 0; i < a->n_keywords; i++) {
        const char *name = a->keyword[i].name;
        struct value key;

        if (value_text(r->s, &key, name, NULL, strlen(name)) < 0 ||
            dict_set(r->s, out->u.dict, key, a->keyword[i].value) < 0)
            return -1;
    }
    return 0;
}

static int run_dict(struct render *r, struct value *out, const struct arguments *a)
{
    return collect(r, out, a, VALUE_DICT);
}

static int run_namespace(struct render *r, struct value *out, const struct arguments *a)
{
    if (collect(r, out, a, VALUE_NAMESPACE) < 0)
        return -1;
    for (size_t i = 0; i < out->u.dict->n; i++) {
        const struct value *key = &out->u.dict->key[i];

        if (key->type == VALUE_TEXT && key->u.text->n && *key->u.text->s == '_')
            return scratch_fail(r->s, "a namespace cannot have names that begin "
                                      "with '_'");
    }
    return 0;
}

static int run_raise(struct render *r, struct value *out,
                     const struct value *const *arg)
{
    struct value text;

    (void)out;
    if (printing_to_text(r->s, &text, arg[0]) < 0)
        return -1;
    return scratch_fail(r->s, "the template raised an exception: %.*s",
                        (int)(text.u.text->n < 800 ? text.u.text->n : 800),
                        text.u.text->n ? text.u.text->s : "");
}

static int run_strftime(struct render *r, struct value *out,
                        const struct value *const *arg)
{
    struct builder b = builder_start(r->s);
    const struct text *t = arg[0]->u.text;
    char format[256], text[1024];

    if (arg[0]->type != VALUE_TEXT)
        return scratch_fail(r->s, "strftime_now: the format is a %s",
                            value_type_name(arg[0]));
    if (t->n + 2 > sizeof(format) || (t->n && memchr(t->s, '\0', t->n)))
        return scratch_fail(r->s, "strftime_now: the format is too long");
    /* one byte more, because an empty result has no length to tell it from a failure */
    format[0] = '.';
    if (t->n)
        memcpy(format + 1, t->s, t->n);
    format[t->n + 1] = '\0';
    if (!strftime(text, sizeof(text), format, &r->date))
        return scratch_fail(r->s, "strftime_now: the date is too long");
    return builder_add_word(&b, text + 1, 0) < 0 ? -1 : builder_value(&b, out);
}

static const struct function functions[] = {
    { "range", { "start stop step", 1 }, run_range, NULL },
    { "dict", { "", 0 }, NULL, run_dict },
    { "namespace", { "", 0 }, NULL, run_namespace },
    { "raise_exception", { "message", 1 }, run_raise, NULL },
    { "strftime_now", { "format", 1 }, run_strftime, NULL },
};

const struct function *function_find(const char *name)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
        if (!strcmp(name, functions[i].name))
            return &functions[i];
    return NULL;
}
