/* lexer - the tokens of a template */
#include "lib/text/template/lexer.h"

#include <stdbool.h>
#include <string.h>

#include "lib/base/str.h"
#include "lib/text/chars.h"
#include "lib/text/template/python.h"

enum { MOST_BRACKETS = 256 };

struct lexer {
    struct scratch *s;
    struct tokens_of_template *out;
    const char *p, *end;
    bool line_starts; /* the last tag ended with a newline, or nothing was read */
    char closing[MOST_BRACKETS]; /* brackets that are open, as what closes them */
    size_t open;
};

static int add(struct lexer *x, enum token_type type, const char *text, size_t n)
{
    struct tokens_of_template *out = x->out;

    if (out->n == out->cap) {
        size_t cap = out->cap ? 2 * out->cap : 64;
        struct token *v = scratch_take(x->s, cap * sizeof(*v));

        if (!v)
            return -1;
        if (out->n)
            memcpy(v, out->v, out->n * sizeof(*v));
        out->v = v;
        out->cap = cap;
    }
    out->v[out->n++] = (struct token){ type, x->s->line, text, n };
    return 0;
}

/* As add, with a copy of the text that ends with a NUL. */
static int add_copy(struct lexer *x, enum token_type type, const char *text, size_t n)
{
    char *copy = scratch_take(x->s, n + 1);

    if (!copy)
        return -1;
    memcpy(copy, text, n);
    copy[n] = '\0';
    return add(x, type, copy, n);
}

static void pass(struct lexer *x, const char *to)
{
    for (; x->p < to; x->p++)
        x->s->line += *x->p == '\n';
}

static bool at(const struct lexer *x, const char *p, const char *word)
{
    size_t n = strlen(word);

    return (size_t)(x->end - p) >= n && !memcmp(p, word, n);
}

static const char *skip_space(const struct lexer *x, const char *p)
{
    size_t used;

    while (p < x->end && python_is_space(chars_at(p, (size_t)(x->end - p), &used)))
        p += used;
    return p;
}

/* The end of the text before a tag at TAG that begins with a sign such as "{%-". */
static const char *text_end(const struct lexer *x, const char *text, const char *tag,
                            bool is_print, char sign)
{
    const char *end = tag, *line = tag;
    size_t used;

    if (sign == '-') {
        while (end > text &&
               python_is_space(chars_before(text, (size_t)(end - text), &used)))
            end -= used;
        return end;
    }
    if (sign == '+' || is_print)
        return end;
    while (line > text && line[-1] != '\n') {
        if (!python_is_space(chars_before(text, (size_t)(line - text), &used)))
            return end;
        line -= used;
    }
    return line > text || x->line_starts ? line : end;
}

/* Steps over the end of a block or comment, CLOSE such as "%}", if it is next: with "-"
 * also the white space behind it, else one newline (if TRIMS). */
static bool take_close(struct lexer *x, const char *close, bool plus, bool trims)
{
    const char *p = x->p;
    bool minus = p < x->end && *p == '-';

    if (minus || (plus && p < x->end && *p == '+'))
        p++;
    if (!at(x, p, close))
        return false;
    p += strlen(close);
    if (minus)
        p = skip_space(x, p);
    else if (p == x->p + strlen(close) && trims && p < x->end && *p == '\n')
        p++;
    pass(x, p);
    x->line_starts = p[-1] == '\n';
    return true;
}

/* ---- literals ---- */

static bool is_name(const struct lexer *x, const char *p, size_t *used)
{
    uint32_t cp;

    if (p == x->end)
        return false;
    cp = chars_at(p, (size_t)(x->end - p), used);
    return cp == '_' || (cp < 0x80 ? strchr("abcdefghijklmnopqrstuvwxyz"
                                            "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
                                            (int)cp) != NULL &&
                                         cp
                                   : chars_is_word(cp));
}

static bool is_digit(const struct lexer *x, const char *p)
{
    return p < x->end && *p >= '0' && *p <= '9';
}

/* The end of digits at P, between which an underscore may stand; P if there are none.
 */
static const char *skip_digits(const struct lexer *x, const char *p)
{
    while (is_digit(x, p) || (p < x->end && *p == '_' && is_digit(x, p + 1) &&
                              p > x->p && p[-1] >= '0' && p[-1] <= '9'))
        p++;
    return p;
}

static int take_number(struct lexer *x)
{
    const char *p = skip_digits(x, x->p), *start = x->p, *exponent;
    bool is_float = false;
    char *copy;
    size_t n = 0;

    if (p == start + 1 && *start == '0' && p < x->end && strchr("bBoOxX", *p))
        return scratch_fail(x->s, "numbers such as 0x10 are not supported");
    if (p < x->end && *p == '.' && is_digit(x, p + 1)) {
        p = skip_digits(x, p + 1);
        is_float = true;
    }
    exponent = p + (p + 1 < x->end && (p[1] == '+' || p[1] == '-'));
    if (p < x->end && (*p == 'e' || *p == 'E') && is_digit(x, exponent + 1)) {
        p = skip_digits(x, exponent + 1);
        is_float = true;
    }
    copy = scratch_take(x->s, (size_t)(p - start) + 1);
    if (!copy)
        return -1;
    for (const char *q = start; q < p; q++)
        if (*q != '_')
            copy[n++] = *q;
    copy[n] = '\0';
    if (!is_float && n > 1 && *copy == '0' && strspn(copy, "0") != n)
        return scratch_fail(x->s, "a number begins with 0");
    pass(x, p);
    return add(x, is_float ? TOKEN_FLOAT : TOKEN_INTEGER, copy, n);
}

static int hex_value(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = c ? strchr(digits, c | (c >= 'A' ? 0x20 : 0)) : NULL;

    return found ? (int)(found - digits) : -1;
}

/* Reads the escape behind a backslash at *p to OUT; returns the bytes written, or -1.
 */
static int read_escape(struct lexer *x, const char **p, const char *end, char *out)
{
    static const char names[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    char c = *(*p)++;
    const char *name = c ? strchr(names, c) : NULL;
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t cp = 0;

    if (c == '\n')
        return 0;
    if (name) {
        *out = values[name - names];
        return 1;
    }
    if (c >= '0' && c <= '7') {
        cp = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *p < end && **p >= '0' && **p <= '7'; i++)
            cp = cp * 8 + (uint32_t)(*(*p)++ - '0');
        return (int)str_utf8_encode(cp, out);
    }
    if (c == 'N')
        return scratch_fail(x->s, "the escape \\N is not supported");
    if (!digits) {
        out[0] = '\\';
        out[1] = c;
        return 2;
    }
    for (int i = 0; i < digits; i++, (*p)++) {
        int value = *p < end ? hex_value(**p) : -1;

        if (value < 0)
            return scratch_fail(x->s, "an escape \\%c is cut short", c);
        cp = cp * 16 + (uint32_t)value;
    }
    if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
        return scratch_fail(x->s, "an escape \\%c is no character", c);
    return (int)str_utf8_encode(cp, out);
}

static int take_string(struct lexer *x)
{
    const char *start = x->p + 1, *p = start, *end;
    char *copy;
    size_t n = 0;

    for (end = start; end < x->end && *end != *x->p; end++)
        if (*end == '\\' && ++end == x->end)
            break;
    if (end >= x->end)
        return scratch_fail(x->s, "a string has no end");
    copy = scratch_take(x->s, (size_t)(end - start) + 5);
    if (!copy)
        return -1;
    while (p < end) {
        if (*p == '\\') {
            int used;

            p++;
            used = read_escape(x, &p, end, copy + n);
            if (used < 0)
                return -1;
            n += (size_t)used;
        } else {
            copy[n++] = *p++;
        }
    }
    copy[n] = '\0';
    if (add(x, TOKEN_STRING, copy, n) < 0)
        return -1;
    pass(x, end + 1);
    return 0;
}

/* ---- tags ---- */

static int take_sign(struct lexer *x)
{
    static const char *const signs[] = { "//", "**", "==", "!=", ">=", "<=" };
    static const char opening[] = "([{", closing[] = ")]}";
    const char *which;
    size_t n = 1;
    char c = *x->p;

    for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++)
        if (at(x, x->p, signs[i]))
            n = 2;
    if (n == 1 && (!c || !strchr("+-/*%~[](){}><=.:|,;", c)))
        return scratch_fail(
            x->s, "unexpected character '%.*s'",
            (int)(str_utf8_decode(x->p, (size_t)(x->end - x->p), &(uint32_t){ 0 })),
            x->p);
    which = n == 1 ? strchr(opening, c) : NULL;
    if (which) {
        if (x->open == MOST_BRACKETS)
            return scratch_fail(x->s, "more than %d brackets are open", MOST_BRACKETS);
        x->closing[x->open++] = closing[which - opening];
    } else if (n == 1 && strchr(closing, c)) {
        if (!x->open || x->closing[--x->open] != c)
            return scratch_fail(x->s, "unexpected '%c'", c);
    }
    if (add_copy(x, TOKEN_SIGN, x->p, n) < 0)
        return -1;
    pass(x, x->p + n);
    return 0;
}

/* Reads the inside of {{ }} or {% %} and its end. */
static int take_tag(struct lexer *x, bool is_print)
{
    const char *begin = x->p;
    uint32_t line = x->s->line;

    if (add(x, is_print ? TOKEN_PRINT : TOKEN_BLOCK, begin, 0) < 0)
        return -1;
    x->open = 0;
    for (;;) {
        size_t used;
        const char *p;
        int ret;

        if (!x->open && take_close(x, is_print ? "}}" : "%}", !is_print, !is_print))
            return add(x, is_print ? TOKEN_PRINT_END : TOKEN_BLOCK_END, begin, 0);
        p = skip_space(x, x->p);
        if (p > x->p) {
            pass(x, p);
            continue;
        }
        if (p == x->end) {
            x->s->line = line;
            return scratch_fail(x->s, "a tag has no end");
        }
        if (is_digit(x, p)) {
            ret = take_number(x);
        } else if (*p == '\'' || *p == '"') {
            ret = take_string(x);
        } else if (is_name(x, p, &used)) {
            while (is_name(x, p, &used))
                p += used;
            ret = add_copy(x, TOKEN_NAME, x->p, (size_t)(p - x->p));
            pass(x, p);
        } else {
            ret = take_sign(x);
        }
        if (ret < 0)
            return -1;
    }
}

static int take_comment(struct lexer *x)
{
    uint32_t line = x->s->line;

    for (const char *p = x->p; p < x->end; p++) {
        if (*p != '#' && *p != '-' && *p != '+')
            continue;
        pass(x, p);
        if (take_close(x, "#}", true, true))
            return 0;
    }
    x->s->line = line;
    return scratch_fail(x->s, "a comment has no end");
}

/* The position behind the words of a tag such as {% raw %}, whose first byte is at P;
 * NULL if it is another. */
static const char *find_word(const struct lexer *x, const char *p, const char *word)
{
    p += 2;
    if (p < x->end && (*p == '-' || *p == '+'))
        p++;
    p = skip_space(x, p);
    if (!at(x, p, word))
        return NULL;
    return skip_space(x, p + strlen(word));
}

static bool is_raw(const struct lexer *x, const char *tag)
{
    const char *p = find_word(x, tag, "raw");

    return p && (at(x, p, "%}") || at(x, p, "-%}"));
}

/* Text between {% raw %} and {% endraw %}. */
static int take_raw(struct lexer *x, const char *tag)
{
    uint32_t line = x->s->line;
    const char *text;

    pass(x, find_word(x, tag, "raw"));
    (void)take_close(x, "%}", false, false);
    text = x->p;
    for (const char *p = text; p < x->end; p++) {
        const char *word = at(x, p, "{%") ? find_word(x, p, "endraw") : NULL;
        const char *end;

        if (!word || !(at(x, word, "%}") || at(x, word, "-%}") || at(x, word, "+%}")))
            continue;
        end = text_end(x, text, p, false, p[2]);
        if (add(x, TOKEN_DATA, text, (size_t)(end - text)) < 0)
            return -1;
        pass(x, word);
        (void)take_close(x, "%}", true, true);
        return 0;
    }
    x->s->line = line;
    return scratch_fail(x->s, "{%% raw %%} has no end");
}

/* Text up to the next tag, and the tag. */
static int take_part(struct lexer *x)
{
    const char *text = x->p, *tag, *end;
    char kind, sign;

    for (tag = text; tag < x->end; tag++)
        if (*tag == '{' && tag + 1 < x->end && strchr("{%#", tag[1]) && tag[1])
            break;
    if (tag == x->end) {
        pass(x, x->end);
        return add(x, TOKEN_DATA, text, (size_t)(tag - text));
    }
    kind = tag[1];
    sign = tag + 2 < x->end ? tag[2] : '\0';
    end = text_end(x, text, tag, kind == '{', sign);
    if (end > text && add(x, TOKEN_DATA, text, (size_t)(end - text)) < 0)
        return -1;
    pass(x, tag);
    if (kind == '%' && is_raw(x, tag))
        return take_raw(x, tag);
    pass(x, tag + 2 + (sign == '-' || sign == '+'));
    return kind == '#' ? take_comment(x) : take_tag(x, kind == '{');
}

/* Copies the source with \n for each line end, without the last one. */
static char *unify_lines(struct scratch *s, const char *text, size_t *n)
{
    char *copy = scratch_take(s, *n + 1);
    size_t len = 0;

    if (!copy)
        return NULL;
    for (size_t i = 0; i < *n; i++) {
        if (text[i] == '\r') {
            copy[len++] = '\n';
            i += i + 1 < *n && text[i + 1] == '\n';
        } else {
            copy[len++] = text[i];
        }
    }
    if (len && copy[len - 1] == '\n')
        len--;
    copy[len] = '\0';
    *n = len;
    return copy;
}

int lexer_run(struct scratch *s, const char *text, size_t n,
              struct tokens_of_template *out)
{
    struct lexer x = { .s = s, .out = out, .line_starts = true };

    x.p = unify_lines(s, text, &n);
    if (!x.p)
        return -1;
    x.end = x.p + n;
    *out = (struct tokens_of_template){ 0 };
    while (x.p < x.end)
        if (take_part(&x) < 0)
            return -1;
    return add(&x, TOKEN_END, x.end, 0);
}
