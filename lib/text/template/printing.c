/* printing - values as text: Python's str and repr, and json.dumps */
#include "lib/text/template/printing.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/str.h"
#include "lib/text/chars.h"
#include "lib/text/template/python.h"
#include "lib/text/template/sorting.h"

/* ---- numbers and texts ---- */

/* A number as Python prints it; false for another type. */
static bool print_number(struct builder *b, const struct value *v, int *ret)
{
    char buf[PYTHON_FLOAT];

    switch (v->type) {
    case VALUE_INT:
        snprintf(buf, sizeof(buf), "%" PRId64, v->u.integer);
        *ret = builder_add_word(b, buf, 0);
        return true;
    case VALUE_BIG:
        *ret = builder_add_text(b, v->u.text);
        return true;
    case VALUE_FLOAT:
        *ret = builder_add_word(b, python_float(buf, v->u.number), 0);
        return true;
    default:
        return false;
    }
}

/* The next character of T at *at, which moves on, and its mark. */
static uint32_t next_char(const struct text *t, size_t *at, unsigned char *mark)
{
    size_t used;
    uint32_t cp = chars_at(t->s + *at, t->n - *at, &used);

    *mark = t->mark ? t->mark[*at] : 0;
    *at += used;
    return cp;
}

static int repr_char(struct builder *b, uint32_t cp, char quote, unsigned char mark)
{
    static const char plain[] = "\n\r\t\\", names[] = "nrt\\";
    const char *known = cp && cp < 0x80 ? strchr(plain, (int)cp) : NULL;
    char buf[16];

    if (known || cp == (unsigned char)quote)
        snprintf(buf, sizeof(buf), "\\%c", known ? names[known - plain] : quote);
    else if (python_is_printable(cp))
        return builder_add_char(b, cp, mark);
    else
        snprintf(buf, sizeof(buf),
                 cp < 0x100     ? "\\x%02" PRIx32
                 : cp < 0x10000 ? "\\u%04" PRIx32
                                : "\\U%08" PRIx32,
                 cp);
    return builder_add_word(b, buf, mark);
}

static int repr_text(struct builder *b, const struct text *t)
{
    char quote =
        t->n && memchr(t->s, '\'', t->n) && !memchr(t->s, '"', t->n) ? '"' : '\'';

    if ((t->safe && builder_add_word(b, "Markup(", 0) < 0) ||
        builder_add_char(b, (uint32_t)quote, 0) < 0)
        return -1;
    for (size_t at = 0; at < t->n;) {
        unsigned char mark;
        uint32_t cp = next_char(t, &at, &mark);

        if (repr_char(b, cp, quote, mark) < 0)
            return -1;
    }
    return builder_add_char(b, (uint32_t)quote, 0) < 0 ? -1
           : t->safe                                   ? builder_add_word(b, ")", 0)
                                                       : 0;
}

/* ---- str and repr ---- */

static int repr_list(struct builder *b, const struct list *l, const char *open,
                     const char *close)
{
    if (builder_add_word(b, open, 0) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        struct value v = list_at(l, i);

        if ((i && builder_add_word(b, ", ", 0) < 0) || printing_repr(b, &v) < 0)
            return -1;
    }
    return builder_add_word(b, close, 0);
}

static int repr_dict(struct builder *b, const struct dict *d)
{
    if (builder_add_word(b, "{", 0) < 0)
        return -1;
    for (size_t i = 0; i < d->n; i++)
        if ((i && builder_add_word(b, ", ", 0) < 0) ||
            printing_repr(b, &d->key[i]) < 0 || builder_add_word(b, ": ", 0) < 0 ||
            printing_repr(b, &d->value[i]) < 0)
            return -1;
    return builder_add_word(b, "}", 0);
}

static int repr_range(struct builder *b, const struct list *l)
{
    char buf[96];

    snprintf(buf, sizeof(buf), "range(%" PRId64 ", %" PRId64, l->start, l->stop);
    if (builder_add_word(b, buf, 0) < 0)
        return -1;
    snprintf(buf, sizeof(buf), ", %" PRId64 ")", l->step);
    return builder_add_word(b, l->step == 1 ? ")" : buf, 0);
}

static int repr_nested(struct builder *b, const struct value *v)
{
    switch (v->type) {
    case VALUE_LIST:
        return repr_list(b, v->u.list, "[", "]");
    case VALUE_TUPLE:
        return repr_list(b, v->u.list, "(", v->u.list->n == 1 ? ",)" : ")");
    case VALUE_RANGE:
        return repr_range(b, v->u.list);
    case VALUE_VIEW:
        if (builder_add_word(b, v->u.list->kind, 0) < 0)
            return -1;
        return repr_list(b, v->u.list, "([", "])");
    case VALUE_DICT:
        return repr_dict(b, v->u.dict);
    case VALUE_NAMESPACE:
        if (builder_add_word(b, "<Namespace ", 0) < 0 || repr_dict(b, v->u.dict) < 0)
            return -1;
        return builder_add_word(b, ">", 0);
    default:
        return scratch_fail(b->scratch, "a %s cannot be printed", value_type_name(v));
    }
}

int printing_repr(struct builder *b, const struct value *v)
{
    int ret;

    if (scratch_step(b->scratch, 0) < 0)
        return -1;
    if (print_number(b, v, &ret))
        return ret;
    switch (v->type) {
    case VALUE_UNDEFINED:
        return builder_add_word(b, "Undefined", 0);
    case VALUE_NONE:
        return builder_add_word(b, "None", 0);
    case VALUE_BOOL:
        return builder_add_word(b, v->u.boolean ? "True" : "False", 0);
    case VALUE_TEXT:
        return repr_text(b, v->u.text);
    default:
        break;
    }
    if (scratch_enter(b->scratch) < 0 || repr_nested(b, v) < 0)
        return -1;
    scratch_leave(b->scratch);
    return 0;
}

int printing_str(struct builder *b, const struct value *v)
{
    if (v->type == VALUE_UNDEFINED)
        return 0;
    if (v->type == VALUE_TEXT)
        return builder_add_text(b, v->u.text);
    return printing_repr(b, v);
}

int printing_to_text(struct scratch *s, struct value *out, const struct value *v)
{
    struct builder b = builder_start(s);

    if (v->type == VALUE_TEXT) {
        *out = *v;
        return 0;
    }
    return printing_str(&b, v) < 0 ? -1 : builder_value(&b, out);
}

/* ---- JSON ---- */

static int json_char(struct builder *b, uint32_t cp, bool ascii, unsigned char mark)
{
    static const char plain[] = "\"\\\n\r\t\b\f", names[] = "\"\\nrtbf";
    const char *known = cp && cp < 0x80 ? strchr(plain, (int)cp) : NULL;
    char buf[16];

    if (known)
        snprintf(buf, sizeof(buf), "\\%c", names[known - plain]);
    else if (cp >= 0x10000 && ascii)
        snprintf(buf, sizeof(buf), "\\u%04" PRIx32 "\\u%04" PRIx32,
                 0xd800 + ((cp - 0x10000) >> 10), 0xdc00 + ((cp - 0x10000) & 0x3ff));
    else if (cp < 0x20 || (ascii && cp > 0x7e))
        snprintf(buf, sizeof(buf), "\\u%04" PRIx32, cp);
    else
        return builder_add_char(b, cp, mark);
    return builder_add_word(b, buf, mark);
}

static int json_text(struct builder *b, const struct text *t, bool ascii)
{
    if (builder_add_word(b, "\"", 0) < 0)
        return -1;
    for (size_t at = 0; at < t->n;) {
        size_t start = at;
        unsigned char mark;
        uint32_t cp = 0;

        while (at < t->n && (unsigned char)t->s[at] >= 0x20 && t->s[at] != '"' &&
               t->s[at] != '\\' && (!ascii || (unsigned char)t->s[at] < 0x7f))
            at++;
        if (builder_add(b, t->s + start, t->mark ? t->mark + start : NULL, at - start) <
            0)
            return -1;
        if (at == t->n)
            break;
        cp = next_char(t, &at, &mark);
        if (json_char(b, cp, ascii, mark) < 0)
            return -1;
    }
    return builder_add_word(b, "\"", 0);
}

/* A scalar; false for another type. */
static bool json_scalar(struct builder *b, const struct value *v, bool ascii, int *ret)
{
    switch (v->type) {
    case VALUE_NONE:
        *ret = builder_add_word(b, "null", 0);
        return true;
    case VALUE_BOOL:
        *ret = builder_add_word(b, v->u.boolean ? "true" : "false", 0);
        return true;
    case VALUE_TEXT:
        *ret = json_text(b, v->u.text, ascii);
        return true;
    case VALUE_FLOAT:
        if (isfinite(v->u.number))
            return print_number(b, v, ret);
        *ret = builder_add_word(b,
                                isnan(v->u.number)  ? "NaN"
                                : v->u.number < 0.0 ? "-Infinity"
                                                    : "Infinity",
                                0);
        return true;
    default:
        return print_number(b, v, ret);
    }
}

static int json_key(struct builder *b, const struct value *key, bool ascii)
{
    int ret;

    if (key->type == VALUE_TEXT)
        return json_text(b, key->u.text, ascii);
    if (builder_add_word(b, "\"", 0) < 0)
        return -1;
    if (!json_scalar(b, key, ascii, &ret))
        return scratch_fail(b->scratch, "a %s cannot be a key in JSON",
                            value_type_name(key));
    return ret < 0 ? -1 : builder_add_word(b, "\"", 0);
}

static int json_any(struct builder *b, const struct value *v,
                    const struct printing_json *how, int level);

static int new_line(struct builder *b, const struct printing_json *how, int level)
{
    if (!how->indent)
        return 0;
    if (builder_add_word(b, "\n", 0) < 0)
        return -1;
    for (int i = 0; i < level; i++)
        if (builder_add_text(b, how->indent) < 0)
            return -1;
    return 0;
}

static int before_member(struct builder *b, const struct printing_json *how, size_t i,
                         int level)
{
    if (i && builder_add_text(b, how->between) < 0)
        return -1;
    return new_line(b, how, level);
}

static int json_list(struct builder *b, const struct list *l,
                     const struct printing_json *how, int level)
{
    if (!l->n)
        return builder_add_word(b, "[]", 0);
    if (builder_add_word(b, "[", 0) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        struct value v = list_at(l, i);

        if (before_member(b, how, i, level + 1) < 0 ||
            json_any(b, &v, how, level + 1) < 0)
            return -1;
    }
    return new_line(b, how, level) < 0 ? -1 : builder_add_word(b, "]", 0);
}

static int json_dict(struct builder *b, const struct dict *d,
                     const struct printing_json *how, int level)
{
    size_t *order = NULL;

    if (!d->n)
        return builder_add_word(b, "{}", 0);
    if (how->sort_keys && sorting_order(b->scratch, &order, d->key, d->n) < 0)
        return -1;
    if (builder_add_word(b, "{", 0) < 0)
        return -1;
    for (size_t i = 0; i < d->n; i++) {
        size_t at = order ? order[i] : i;

        if (before_member(b, how, i, level + 1) < 0 ||
            json_key(b, &d->key[at], how->ascii) < 0 ||
            builder_add_text(b, how->colon) < 0 ||
            json_any(b, &d->value[at], how, level + 1) < 0)
            return -1;
    }
    return new_line(b, how, level) < 0 ? -1 : builder_add_word(b, "}", 0);
}

static int json_any(struct builder *b, const struct value *v,
                    const struct printing_json *how, int level)
{
    int ret;

    if (scratch_step(b->scratch, 0) < 0)
        return -1;
    if (json_scalar(b, v, how->ascii, &ret))
        return ret;
    if (scratch_enter(b->scratch) < 0)
        return -1;
    if (v->type == VALUE_LIST || v->type == VALUE_TUPLE)
        ret = json_list(b, v->u.list, how, level);
    else if (v->type == VALUE_DICT)
        ret = json_dict(b, v->u.dict, how, level);
    else
        return scratch_fail(b->scratch, "a value of type %s is not JSON serializable",
                            value_type_name(v));
    scratch_leave(b->scratch);
    return ret;
}

int printing_json(struct builder *b, const struct value *v,
                  const struct printing_json *how)
{
    return json_any(b, v, how, 0);
}
