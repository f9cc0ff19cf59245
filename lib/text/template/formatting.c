/* formatting - str.format and the % operator */
#include "lib/text/template/formatting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/text/chars.h"
#include "lib/text/template/printing.h"
#include "lib/text/template/strings.h"

enum { MOST_WIDTH = 1000 };

struct spec {
    uint32_t fill;
    char align;           /* < > ^ =, or 0: by type */
    char sign;            /* + - or space */
    char type;            /* 0: by value */
    int width, precision; /* precision -1: not given */
};

struct reader {
    struct render *r;
    const struct text *t;
    size_t at;
};

static char peek(const struct reader *p, size_t offset)
{
    return p->at + offset < p->t->n ? p->t->s[p->at + offset] : '\0';
}

static int bad_format(struct reader *p)
{
    return scratch_fail(p->r->s, "the format '%.*s' is not supported",
                        (int)(p->t->n < 60 ? p->t->n : 60), p->t->s);
}

/* A number of decimal digits; OTHERWISE where there is none. */
static int read_int(struct reader *p, int otherwise, int *out)
{
    int n = 0;

    *out = otherwise;
    for (; peek(p, 0) >= '0' && peek(p, 0) <= '9'; p->at++) {
        n = n * 10 + (peek(p, 0) - '0');
        if (n > MOST_WIDTH)
            return bad_format(p);
        *out = n;
    }
    return 0;
}

/* ---- one value ---- */

static int number_text(struct reader *p, char *buf, size_t size, const struct value *v,
                       const struct spec *f)
{
    int precision = f->precision < 0 ? 6 : f->precision;

    if (f->type == 'f' && value_is_number(v))
        snprintf(buf, size, "%.*f", precision, value_to_double(v));
    else if ((f->type == 'd' || !f->type) && value_is_integer(v) && f->precision < 0)
        snprintf(buf, size, "%" PRId64, value_to_int(v));
    else if (f->type == 'x' && value_is_integer(v) && value_to_int(v) >= 0)
        snprintf(buf, size, "%" PRIx64, (uint64_t)value_to_int(v));
    else
        return bad_format(p);
    return 0;
}

static int fill(struct builder *b, uint32_t cp, size_t n)
{
    for (; n; n--)
        if (builder_add_char(b, cp, 0) < 0)
            return -1;
    return 0;
}

/* Appends T in the width of F; a number's digits follow its SIGN. */
static int add_padded(struct builder *b, const char *sign, const struct text *t,
                      const struct spec *f, char align)
{
    size_t have = value_chars(t) + strlen(sign);
    size_t room = (size_t)f->width > have ? (size_t)f->width - have : 0, before;

    align = f->align ? f->align : align;
    before = align == '<' ? 0 : align == '^' ? room / 2 : room;
    if ((align != '=' && fill(b, f->fill, before) < 0) ||
        builder_add_word(b, sign, 0) < 0 ||
        (align == '=' && fill(b, f->fill, before) < 0) || builder_add_text(b, t) < 0)
        return -1;
    return fill(b, f->fill, room - before);
}

static int add_value(struct reader *p, struct builder *b, const struct value *v,
                     const struct spec *f)
{
    char buf[MOST_WIDTH + 400], sign[2] = { 0 };
    struct text digits = { .s = buf, .n = 0 };
    struct value text;

    if ((f->type && f->type != 's') ||
        (!f->type && v->type == VALUE_INT && (f->width || f->sign))) {
        if (number_text(p, buf, sizeof(buf), v, f) < 0)
            return -1;
        if (*buf == '-') {
            sign[0] = '-';
            digits.s++;
        } else if (f->sign == '+' || f->sign == ' ') {
            sign[0] = f->sign;
        }
        digits.n = strlen(digits.s);
        return add_padded(b, sign, &digits, f, '>');
    }
    if (f->sign || (f->precision >= 0 && v->type == VALUE_FLOAT) ||
        (f->width && v->type != VALUE_TEXT && v->type != VALUE_FLOAT))
        return bad_format(p);
    if (printing_to_text(p->r->s, &text, v) < 0)
        return -1;
    digits = *text.u.text;
    if (f->precision >= 0 && (size_t)f->precision < value_chars(&digits))
        digits.n = strings_offset(&digits, (size_t)f->precision);
    return add_padded(b, sign, &digits, f, v->type == VALUE_TEXT ? '<' : '>');
}

/* ---- str.format ---- */

/* [[fill]align][sign][0][width][.precision][type] */
static int read_spec(struct reader *p, struct spec *f)
{
    size_t used = 0;
    uint32_t cp;

    *f = (struct spec){ .fill = ' ', .precision = -1 };
    cp = chars_at(p->t->s + p->at, p->t->n - p->at, &used);
    if (peek(p, used) && strchr("<>^=", peek(p, used))) {
        f->fill = cp;
        p->at += used;
    }
    if (peek(p, 0) && strchr("<>^=", peek(p, 0)))
        f->align = p->t->s[p->at++];
    if (peek(p, 0) && strchr("+- ", peek(p, 0)))
        f->sign = p->t->s[p->at++];
    if (peek(p, 0) == '0' && !f->align) {
        f->fill = '0';
        f->align = '=';
    }
    if (read_int(p, 0, &f->width) < 0)
        return -1;
    if (peek(p, 0) == '.') {
        p->at++;
        if (read_int(p, -1, &f->precision) < 0)
            return -1;
    }
    if (peek(p, 0) && strchr("dfsx", peek(p, 0)))
        f->type = p->t->s[p->at++];
    return peek(p, 0) == '}' ? 0 : bad_format(p);
}

/* The argument that is named at P: a number, a name, or the next one. */
static int read_field(struct reader *p, const struct arguments *a, size_t *next,
                      const struct value **out)
{
    size_t start = p->at;
    int i;

    while (peek(p, 0) && !strchr("}!:.[{", peek(p, 0)))
        p->at++;
    if (peek(p, 0) == '.' || peek(p, 0) == '[' || peek(p, 0) == '{')
        return bad_format(p);
    if (p->at == start) {
        i = (int)(*next)++;
    } else if (p->t->s[start] >= '0' && p->t->s[start] <= '9') {
        size_t end = p->at;

        p->at = start;
        if (read_int(p, 0, &i) < 0 || p->at != end)
            return bad_format(p);
    } else {
        for (size_t k = 0; k < a->n_keywords; k++) {
            if (strlen(a->keyword[k].name) == p->at - start &&
                !memcmp(a->keyword[k].name, p->t->s + start, p->at - start)) {
                *out = &a->keyword[k].value;
                return 0;
            }
        }
        return scratch_fail(p->r->s, "format: '%.*s' is not given",
                            (int)(p->at - start < 60 ? p->at - start : 60),
                            p->t->s + start);
    }
    if ((size_t)i >= a->n)
        return scratch_fail(p->r->s, "format: argument %d is not given", i);
    *out = &a->v[i];
    return 0;
}

/* The inside of "{...}". */
static int add_field(struct reader *p, struct builder *b, const struct arguments *a,
                     size_t *next)
{
    struct spec f = { .fill = ' ', .precision = -1 };
    struct builder repr = builder_start(p->r->s);
    const struct value *v = NULL;
    struct value text;

    if (read_field(p, a, next, &v) < 0)
        return -1;
    if (peek(p, 0) == '!') {
        if (peek(p, 1) != 'r' && peek(p, 1) != 's')
            return bad_format(p);
        if ((peek(p, 1) == 'r' ? printing_repr(&repr, v) : printing_str(&repr, v)) <
                0 ||
            builder_value(&repr, &text) < 0)
            return -1;
        v = &text;
        p->at += 2;
    }
    if (peek(p, 0) == ':') {
        p->at++;
        if (read_spec(p, &f) < 0)
            return -1;
    }
    if (peek(p, 0) != '}')
        return bad_format(p);
    p->at++;
    return add_value(p, b, v, &f);
}

int formatting_braces(struct render *r, struct value *out, const struct text *format,
                      const struct arguments *a)
{
    struct reader p = { r, format, 0 };
    struct builder b = builder_start(r->s);
    size_t next = 0;

    while (p.at < format->n) {
        char c = peek(&p, 0);

        if ((c == '{' || c == '}') && peek(&p, 1) != c) {
            if (c == '}')
                return bad_format(&p);
            p.at++;
            if (add_field(&p, &b, a, &next) < 0)
                return -1;
            continue;
        }
        if (builder_add(&b, format->s + p.at, format->mark ? format->mark + p.at : NULL,
                        1) < 0)
            return -1;
        p.at += 1 + (c == '{' || c == '}');
    }
    return builder_value(&b, out);
}

/* ---- % ---- */

static int read_percent(struct reader *p, struct spec *f)
{
    *f = (struct spec){ .fill = ' ', .precision = -1, .align = '>' };
    for (; peek(p, 0) && strchr("-+ 0", peek(p, 0)); p->at++) {
        if (peek(p, 0) == '-')
            f->align = '<';
        else if (peek(p, 0) == '0')
            f->fill = '0';
        else
            f->sign = peek(p, 0);
    }
    if (f->fill == '0' && f->align == '<')
        f->fill = ' ';
    else if (f->fill == '0')
        f->align = '=';
    if (read_int(p, 0, &f->width) < 0)
        return -1;
    if (peek(p, 0) == '.') {
        p->at++;
        if (read_int(p, 0, &f->precision) < 0)
            return -1;
    }
    f->type = peek(p, 0) == 'i' ? 'd' : peek(p, 0);
    if (!f->type || !strchr("srdfx%", f->type))
        return bad_format(p);
    p->at++;
    return 0;
}

static int add_percent(struct reader *p, struct builder *b, const struct value *v,
                       size_t n, size_t *next)
{
    struct spec f;
    struct builder repr = builder_start(p->r->s);
    struct value made;

    if (read_percent(p, &f) < 0)
        return -1;
    if (f.type == '%')
        return builder_add_word(b, "%", 0);
    if (*next >= n)
        return scratch_fail(p->r->s, "not enough arguments for format string");
    v += (*next)++;
    if (f.type == 'r' || f.type == 's') {
        if ((f.type == 'r' ? printing_repr(&repr, v) : printing_str(&repr, v)) < 0 ||
            builder_value(&repr, &made) < 0)
            return -1;
        f.type = 's';
        f.sign = 0;
        f.fill = ' ';
        f.align = f.align == '=' ? '>' : f.align;
        return add_value(p, b, &made, &f);
    }
    if (f.type == 'd' && v->type == VALUE_FLOAT && v->u.number > -9e18 &&
        v->u.number < 9e18) {
        made = value_int((int64_t)v->u.number);
        v = &made;
    }
    return add_value(p, b, v, &f);
}

int formatting_percent(struct render *r, struct value *out, const struct text *format,
                       const struct value *v)
{
    struct reader p = { r, format, 0 };
    struct builder b = builder_start(r->s);
    size_t n = 1, next = 0;
    /* what Python calls a mapping here may be left over */
    bool is_mapping = v->type == VALUE_DICT || v->type == VALUE_LIST ||
                      v->type == VALUE_RANGE || v->type == VALUE_UNDEFINED;

    if (v->type == VALUE_TUPLE) {
        n = v->u.list->n;
        v = v->u.list->v;
    }
    while (p.at < format->n) {
        size_t start = p.at;

        if (peek(&p, 0) == '%') {
            p.at++;
            if (add_percent(&p, &b, v, n, &next) < 0)
                return -1;
            continue;
        }
        while (p.at < format->n && peek(&p, 0) != '%')
            p.at++;
        if (builder_add(&b, format->s + start,
                        format->mark ? format->mark + start : NULL, p.at - start) < 0)
            return -1;
    }
    if (next < n && !is_mapping)
        return scratch_fail(r->s, "not all arguments converted during formatting");
    return builder_value(&b, out);
}
