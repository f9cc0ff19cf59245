/* value - what a template computes with: Python's values, and marks on characters */
#include "lib/text/template/value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/str.h"

/* ---- making values ---- */

int value_text(struct scratch *s, struct value *out, const char *bytes,
               const unsigned char *mark, size_t n)
{
    struct text *t = scratch_take(s, sizeof(*t));

    if (!t)
        return -1;
    *t = (struct text){ .s = bytes, .mark = mark, .n = n };
    *out = (struct value){ VALUE_TEXT, { .text = t } };
    return 0;
}

int value_slice(struct scratch *s, struct value *out, const struct text *t,
                size_t start, size_t end)
{
    struct text *part = scratch_take(s, sizeof(*part));

    if (!part)
        return -1;
    *part = (struct text){ t->s ? t->s + start : NULL, t->mark ? t->mark + start : NULL,
                           end - start, t->safe };
    *out = (struct value){ VALUE_TEXT, { .text = part } };
    return 0;
}

int value_list(struct scratch *s, struct value *out, enum value_type type, size_t n)
{
    struct list *l = scratch_take(s, sizeof(*l));
    struct value *v =
        l && n <= SIZE_MAX / sizeof(*v) ? scratch_take(s, n * sizeof(*v)) : NULL;

    if (!v)
        return -1;
    *l = (struct list){ .n = n, .v = v };
    *out = (struct value){ type, { .list = l } };
    return 0;
}

int value_pair(struct scratch *s, struct value *out, struct value a, struct value b)
{
    if (value_list(s, out, VALUE_TUPLE, 2) < 0)
        return -1;
    out->u.list->v[0] = a;
    out->u.list->v[1] = b;
    return 0;
}

int value_dict(struct scratch *s, struct value *out, enum value_type type)
{
    struct dict *d = scratch_zeroed(s, sizeof(*d));

    if (!d)
        return -1;
    *out = (struct value){ type, { .dict = d } };
    return 0;
}

int value_missing(struct scratch *s, struct value *out, const char *fmt, ...)
{
    char cause[256];
    char *copy;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(cause, sizeof(cause), fmt, ap);
    va_end(ap);
    copy = scratch_take(s, strlen(cause) + 1);
    if (!copy)
        return -1;
    memcpy(copy, cause, strlen(cause) + 1);
    *out = value_undefined(copy);
    return 0;
}

/* A number as Python's json reads it: an integer unless it has a dot or exponent. */
static int number_of_json(struct scratch *s, struct value *out, const struct json *j)
{
    int64_t i;
    double x;

    if (strspn(j->text, "-0123456789") != strlen(j->text)) {
        if (json_double(j, &x))
            *out = value_float(x);
        else /* an overflow is infinite, like the constants */
            *out = value_float(*j->text == 'N'   ? (double)NAN
                               : *j->text == '-' ? -(double)INFINITY
                                                 : (double)INFINITY);
        return 0;
    }
    if (json_i64(j, &i) || str_i64(j->text, &i)) {
        *out = value_int(i);
        return 0;
    }
    if (value_text(s, out, j->text, NULL, strlen(j->text)) < 0)
        return -1;
    out->type = VALUE_BIG;
    return 0;
}

static int list_of_json(struct scratch *s, struct value *out, const struct json *j,
                        const unsigned char *ones)
{
    struct value *v;

    if (value_list(s, out, VALUE_LIST, j->n) < 0)
        return -1;
    v = out->u.list->v;
    for (const struct json *e = j->first; e; e = e->next)
        if (value_of_json(s, v++, e, ones) < 0)
            return -1;
    return 0;
}

static int dict_of_json(struct scratch *s, struct value *out, const struct json *j,
                        const unsigned char *ones)
{
    if (value_dict(s, out, VALUE_DICT) < 0)
        return -1;
    for (const struct json *e = j->first; e; e = e->next) {
        struct value key, value;

        if (value_text(s, &key, e->key, ones, strlen(e->key)) < 0 ||
            value_of_json(s, &value, e, ones) < 0 ||
            dict_set(s, out->u.dict, key, value) < 0)
            return -1;
    }
    return 0;
}

int value_of_json(struct scratch *s, struct value *out, const struct json *j,
                  const unsigned char *ones)
{
    switch (j->type) {
    case JSON_NULL:
        *out = value_none();
        return 0;
    case JSON_FALSE:
    case JSON_TRUE:
        *out = value_bool(j->type == JSON_TRUE);
        return 0;
    case JSON_NUMBER:
        return number_of_json(s, out, j);
    case JSON_STRING:
        return value_text(s, out, j->text, ones, j->n);
    case JSON_ARRAY:
        return list_of_json(s, out, j, ones);
    case JSON_OBJECT:
        break;
    }
    return dict_of_json(s, out, j, ones);
}

/* ---- looking at them ---- */

const char *value_type_name(const struct value *v)
{
    switch (v->type) {
    case VALUE_UNDEFINED:
        return "Undefined";
    case VALUE_NONE:
        return "None";
    case VALUE_BOOL:
        return "bool";
    case VALUE_INT:
    case VALUE_BIG:
        return "int";
    case VALUE_FLOAT:
        return "float";
    case VALUE_TEXT:
        return "str";
    case VALUE_LIST:
        return "list";
    case VALUE_TUPLE:
        return "tuple";
    case VALUE_RANGE:
        return "range";
    case VALUE_VIEW:
        return v->u.list->kind;
    case VALUE_ITERATOR:
        return "generator";
    case VALUE_DICT:
        return "dict";
    case VALUE_NAMESPACE:
        return "namespace";
    case VALUE_LOOP:
        return "loop";
    case VALUE_MACRO:
        return "macro";
    case VALUE_METHOD:
        return "method";
    case VALUE_FUNCTION:
        break;
    }
    return "function";
}

bool value_is_true(const struct value *v)
{
    size_t n;

    switch (v->type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return v->u.boolean;
    case VALUE_INT:
        return v->u.integer != 0;
    case VALUE_FLOAT:
        return v->u.number != 0;
    default:
        return !value_length(v, &n) || n;
    }
}

size_t value_chars(const struct text *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += ((unsigned char)t->s[i] & 0xc0) != 0x80;
    return n;
}

bool value_length(const struct value *v, size_t *n)
{
    switch (v->type) {
    case VALUE_UNDEFINED:
        *n = 0;
        return true;
    case VALUE_TEXT:
        *n = value_chars(v->u.text);
        return true;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW:
        *n = v->u.list->n;
        return true;
    case VALUE_DICT:
        *n = v->u.dict->n;
        return true;
    default:
        return false;
    }
}

bool value_is_integer(const struct value *v)
{
    return v->type == VALUE_BOOL || v->type == VALUE_INT;
}

bool value_is_number(const struct value *v)
{
    return value_is_integer(v) || v->type == VALUE_FLOAT;
}

int64_t value_to_int(const struct value *v)
{
    return v->type == VALUE_BOOL ? v->u.boolean : v->u.integer;
}

double value_to_double(const struct value *v)
{
    return v->type == VALUE_FLOAT ? v->u.number : (double)value_to_int(v);
}

struct value list_at(const struct list *l, size_t i)
{
    return l->v ? l->v[i] : value_int(l->start + (int64_t)i * l->step);
}

/* ---- comparing ---- */

bool text_is(const struct text *t, const char *word)
{
    return strlen(word) == t->n && (!t->n || !memcmp(t->s, word, t->n));
}

int text_compare(const struct text *a, const struct text *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int order = n ? memcmp(a->s, b->s, n) : 0;

    return order ? order : (a->n > b->n) - (a->n < b->n);
}

static bool has_elements(const struct value *v)
{
    return v->type == VALUE_LIST || v->type == VALUE_TUPLE || v->type == VALUE_RANGE;
}

static int lists_equal(struct scratch *s, bool *equal, const struct list *a,
                       const struct list *b)
{
    *equal = a->n == b->n;
    if (scratch_enter(s) < 0)
        return -1;
    for (size_t i = 0; i < a->n && *equal; i++) {
        struct value x = list_at(a, i), y = list_at(b, i);

        if (value_equal(s, equal, &x, &y) < 0)
            return -1;
    }
    scratch_leave(s);
    return 0;
}

static int dicts_equal(struct scratch *s, bool *equal, const struct dict *a,
                       const struct dict *b)
{
    *equal = a->n == b->n;
    if (scratch_enter(s) < 0)
        return -1;
    for (size_t i = 0; i < a->n && *equal; i++) {
        size_t at;

        if (dict_find(s, b, &a->key[i], &at) < 0)
            return -1;
        *equal = at != SIZE_MAX;
        if (*equal && value_equal(s, equal, &a->value[i], &b->value[at]) < 0)
            return -1;
    }
    scratch_leave(s);
    return 0;
}

int value_equal(struct scratch *s, bool *equal, const struct value *a,
                const struct value *b)
{
    if (scratch_step(s, 0) < 0)
        return -1;
    if (value_is_number(a) && value_is_number(b)) {
        *equal = value_is_integer(a) && value_is_integer(b)
                     ? value_to_int(a) == value_to_int(b)
                     : value_to_double(a) == value_to_double(b);
        return 0;
    }
    *equal = false;
    if (a->type != b->type)
        return 0;
    switch (a->type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        *equal = true;
        return 0;
    case VALUE_BIG:
    case VALUE_TEXT:
        if (a->u.text->n != b->u.text->n)
            return 0;
        *equal = !text_compare(a->u.text, b->u.text);
        return scratch_step(s, a->u.text->n);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
        return lists_equal(s, equal, a->u.list, b->u.list);
    case VALUE_DICT:
        return dicts_equal(s, equal, a->u.dict, b->u.dict);
    default:
        *equal = a->u.list == b->u.list;
        return 0;
    }
}

int value_less(struct scratch *s, bool *less, const char *op, const struct value *a,
               const struct value *b)
{
    if (scratch_step(s, 0) < 0)
        return -1;
    if (value_is_number(a) && value_is_number(b)) {
        *less = value_is_integer(a) && value_is_integer(b)
                    ? value_to_int(a) < value_to_int(b)
                    : value_to_double(a) < value_to_double(b);
        return 0;
    }
    if (value_is_text(a) && value_is_text(b)) {
        *less = text_compare(a->u.text, b->u.text) < 0;
        return scratch_step(s,
                            a->u.text->n < b->u.text->n ? a->u.text->n : b->u.text->n);
    }
    if (a->type == b->type && has_elements(a) && a->type != VALUE_RANGE) {
        const struct list *x = a->u.list, *y = b->u.list;
        bool equal = true;
        size_t i;

        for (i = 0; i < x->n && i < y->n; i++) {
            if (value_equal(s, &equal, &x->v[i], &y->v[i]) < 0)
                return -1;
            if (!equal)
                return value_less(s, less, op, &x->v[i], &y->v[i]);
        }
        *less = x->n < y->n;
        return 0;
    }
    if (a->type == VALUE_UNDEFINED || b->type == VALUE_UNDEFINED)
        return scratch_fail(s, "%s",
                            a->type == VALUE_UNDEFINED ? a->u.cause : b->u.cause);
    return scratch_fail(s, "'%s' is not supported between '%s' and '%s'", op,
                        value_type_name(a), value_type_name(b));
}

/* ---- elements ---- */

static int text_elements(struct scratch *s, struct value *out, const struct text *t)
{
    size_t n = value_chars(t), at = 0;

    if (scratch_step(s, t->n) < 0 || value_list(s, out, VALUE_LIST, n) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        size_t end = at + 1;

        while (end < t->n && ((unsigned char)t->s[end] & 0xc0) == 0x80)
            end++;
        if (value_slice(s, &out->u.list->v[i], t, at, end) < 0)
            return -1;
        at = end;
    }
    return 0;
}

int value_elements(struct scratch *s, const struct list **out, const struct value *v)
{
    static const struct list empty = { .n = 0 };
    struct value made;
    struct list *l;

    switch (v->type) {
    case VALUE_UNDEFINED:
        *out = &empty;
        return 0;
    case VALUE_ITERATOR:
        *out = v->u.list->spent ? &empty : v->u.list;
        v->u.list->spent = true;
        return 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW:
        *out = v->u.list;
        return 0;
    case VALUE_TEXT:
        if (text_elements(s, &made, v->u.text) < 0)
            return -1;
        *out = made.u.list;
        return 0;
    case VALUE_DICT:
        l = scratch_zeroed(s, sizeof(*l));
        if (!l)
            return -1;
        l->n = v->u.dict->n;
        l->v = v->u.dict->key;
        *out = l;
        return 0;
    default:
        return scratch_fail(s, "'%s' object is not iterable", value_type_name(v));
    }
}

/* ---- dicts ---- */

enum { MOST_WITHOUT_SLOTS = 8 };

int value_is_hashable(struct scratch *s, bool *is, const struct value *v)
{
    *is = v->type != VALUE_LIST && v->type != VALUE_DICT;
    if (scratch_step(s, v->type == VALUE_TEXT ? v->u.text->n : 0) < 0)
        return -1;
    if (v->type != VALUE_TUPLE)
        return 0;
    if (scratch_enter(s) < 0)
        return -1;
    for (size_t i = 0; i < v->u.list->n && *is; i++)
        if (value_is_hashable(s, is, &v->u.list->v[i]) < 0)
            return -1;
    scratch_leave(s);
    return 0;
}

/* Equal keys have equal hashes; FNV-1a of a text. */
static uint64_t hash(const struct value *v)
{
    uint64_t h = 14695981039346656037u;
    double x;
    unsigned char bytes[sizeof(x)];

    if (v->type == VALUE_TEXT) {
        for (size_t i = 0; i < v->u.text->n; i++)
            h = (h ^ (unsigned char)v->u.text->s[i]) * 1099511628211u;
    } else if (value_is_number(v)) {
        x = value_to_double(v) + 0.0; /* -0.0 equals 0 */
        memcpy(bytes, &x, sizeof(x));
        for (size_t i = 0; i < sizeof(x); i++)
            h = (h ^ bytes[i]) * 1099511628211u;
    }
    return h ^ h >> 32;
}

int dict_find(struct scratch *s, const struct dict *d, const struct value *key,
              size_t *at)
{
    bool equal, hashable;

    if (value_is_hashable(s, &hashable, key) < 0)
        return -1;
    if (!hashable)
        return scratch_fail(s, "unhashable type: '%s'", value_type_name(key));
    *at = SIZE_MAX;
    if (!d->slot) {
        for (size_t i = 0; i < d->n; i++) {
            if (value_equal(s, &equal, &d->key[i], key) < 0)
                return -1;
            if (equal) {
                *at = i;
                return 0;
            }
        }
        return 0;
    }
    for (size_t i = hash(key);; i++) {
        uint32_t found = d->slot[i & (d->slots - 1)];

        if (!found)
            return 0;
        if (value_equal(s, &equal, &d->key[found - 1], key) < 0)
            return -1;
        if (equal) {
            *at = found - 1;
            return 0;
        }
    }
}

int dict_get(struct scratch *s, const struct value **out, const struct dict *d,
             const char *key)
{
    struct text t = { .s = key, .n = strlen(key) };
    struct value k = { VALUE_TEXT, { .text = &t } };
    size_t at;

    if (dict_find(s, d, &k, &at) < 0)
        return -1;
    *out = at == SIZE_MAX ? NULL : &d->value[at];
    return 0;
}

static void add_slot(struct dict *d, size_t i)
{
    size_t at = hash(&d->key[i]);

    while (d->slot[at & (d->slots - 1)])
        at++;
    d->slot[at & (d->slots - 1)] = (uint32_t)(i + 1);
}

static int grow_dict(struct scratch *s, struct dict *d)
{
    size_t cap = d->cap ? 2 * d->cap : 4;
    struct value *key = scratch_take(s, cap * sizeof(*key));
    struct value *value = key ? scratch_take(s, cap * sizeof(*value)) : NULL;

    if (!value)
        return -1;
    if (d->n) {
        memcpy(key, d->key, d->n * sizeof(*key));
        memcpy(value, d->value, d->n * sizeof(*value));
    }
    d->key = key;
    d->value = value;
    d->cap = cap;
    if (cap <= MOST_WITHOUT_SLOTS)
        return 0;
    d->slots = 2 * cap;
    d->slot = scratch_zeroed(s, d->slots * sizeof(*d->slot));
    if (!d->slot)
        return -1;
    for (size_t i = 0; i < d->n; i++)
        add_slot(d, i);
    return 0;
}

int dict_set(struct scratch *s, struct dict *d, struct value key, struct value value)
{
    size_t at;

    if (dict_find(s, d, &key, &at) < 0)
        return -1;
    if (at != SIZE_MAX) {
        d->value[at] = value;
        return 0;
    }
    if (d->n == d->cap && grow_dict(s, d) < 0)
        return -1;
    d->key[d->n] = key;
    d->value[d->n++] = value;
    if (d->slot)
        add_slot(d, d->n - 1);
    return 0;
}
