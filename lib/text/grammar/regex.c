/* regex - regular expressions as terms */
#include "lib/text/grammar/regex.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { LAST = 0x10ffff, MOST_DEPTH = 100, MOST_TIMES = 100000, MOST_RANGES = 2000 };

/* A set of characters: ranges in any order. */
struct set {
    struct range {
        uint32_t first, last;
    } * v; /* [n] */
    size_t n, cap;
};

struct reader {
    struct terms *t;
    const char *text, *p;
    bool json;
    bool without; /* in [^...] */
    int depth;
    struct err *err;
};

static int refuse(const struct reader *r, const char *what)
{
    return err_set(r->err, ERR_INPUT, "%s, at byte %zu of the regular expression", what,
                   (size_t)(r->p - r->text));
}

/* ---- characters ---- */

/* Characters whose encodings have LEN bytes, all but the first of which are free from
 * byte K on, between the encodings A and B. */
static uint32_t between(struct terms *t, const unsigned char *a, const unsigned char *b,
                        size_t len)
{
    static const unsigned char low[4] = { 0x80, 0x80, 0x80, 0x80 },
                               high[4] = { 0xbf, 0xbf, 0xbf, 0xbf };
    uint32_t out = TERM_NONE, rest;
    unsigned first = *a, last = *b;

    if (len == 1)
        return terms_range(t, first, last);
    if (first == last)
        return terms_cat(t, terms_range(t, first, first),
                         between(t, a + 1, b + 1, len - 1));
    if (memcmp(a + 1, low, len - 1) != 0) {
        rest = between(t, a + 1, high, len - 1);
        out = terms_cat(t, terms_range(t, first, first), rest);
        first++;
    }
    if (memcmp(b + 1, high, len - 1) != 0) {
        rest = between(t, low, b + 1, len - 1);
        out = terms_alt(t, out, terms_cat(t, terms_range(t, last, last), rest));
        last--;
    }
    if (first <= last)
        out = terms_alt(
            t, out,
            terms_cat(t, terms_range(t, first, last), between(t, low, high, len - 1)));
    return out;
}

uint32_t regex_characters(struct terms *t, uint32_t first, uint32_t last)
{
    static const uint32_t end[] = { 0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff, LAST };
    uint32_t out = TERM_NONE;

    for (size_t i = 0; i < 6 && first <= last; i++) {
        const uint32_t to = last < end[i] ? last : end[i];
        char a[4], b[4];

        if (first > end[i])
            continue;
        if (i != 3) { /* surrogates */
            const size_t len = str_utf8_encode(first, a);

            str_utf8_encode(to, b);
            out = terms_alt(
                t, out,
                between(t, (const unsigned char *)a, (const unsigned char *)b, len));
        }
        first = to + 1;
    }
    return out;
}

static void add(struct set *s, uint32_t first, uint32_t last)
{
    s->v = xgrow(s->v, &s->cap, s->n + 1, sizeof(*s->v));
    s->v[s->n++] = (struct range){ first, last };
}

static int by_first(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    return (x->first > y->first) - (x->first < y->first);
}

/* S becomes what is not in it, up to MOST. */
static void negate(struct set *s, uint32_t most)
{
    struct set out = { 0 };
    uint32_t next = 0;

    if (s->n)
        qsort(s->v, s->n, sizeof(*s->v), by_first);
    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i].first > next && next <= most)
            add(&out, next, s->v[i].first - 1 < most ? s->v[i].first - 1 : most);
        if (s->v[i].last + 1 > next)
            next = s->v[i].last + 1;
    }
    if (next <= most)
        add(&out, next, most);
    free(s->v);
    *s = out;
}

/* A character that strings of JSON have escaped, or as it is. */
static uint32_t escaped(struct terms *t, uint32_t c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *at = c ? strchr(from, (int)c) : NULL;
    char text[8] = "\\u00";

    if (at)
        return terms_literal(t, (char[]){ '\\', to[at - from] }, 2);
    text[4] = c < 16 ? '0' : '1';
    text[5] = "0123456789abcdef"[c % 16];
    return terms_literal(t, text, 6);
}

static uint32_t term_of_range(const struct reader *r, struct range of)
{
    uint32_t out = TERM_NONE;

    if (!r->json)
        return regex_characters(r->t, of.first, of.last);
    for (uint32_t c = of.first; c < 0x20 && c <= of.last; c++)
        out = terms_alt(r->t, out, escaped(r->t, c));
    for (uint32_t from = of.first < 0x20 ? 0x20 : of.first; from <= of.last;) {
        uint32_t to = of.last;

        if (from == '"' || from == '\\') {
            out = terms_alt(r->t, out, escaped(r->t, from++));
            continue;
        }
        to = from < '"' && to >= '"' ? '"' - 1 : to;
        to = from < '\\' && from > '"' && to >= '\\' ? '\\' - 1 : to;
        out = terms_alt(r->t, out, regex_characters(r->t, from, to));
        from = to + 1;
    }
    return out;
}

static uint32_t term_of(const struct reader *r, const struct set *s)
{
    uint32_t out = TERM_NONE;

    for (size_t i = 0; i < s->n; i++)
        out = terms_alt(r->t, out, term_of_range(r, s->v[i]));
    return out;
}

static uint32_t any_character(const struct reader *r)
{
    return term_of_range(r, (struct range){ 0, LAST });
}

static int next_character(struct reader *r, uint32_t *c)
{
    const size_t used = str_utf8_decode(r->p, strlen(r->p), c);

    if (!used)
        return refuse(r, "ill-formed UTF-8");
    r->p += used;
    return 0;
}

static int hex(struct reader *r, int n, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < n; i++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const char *at = *r->p ? strchr(digits, *r->p) : NULL;

        if (!at)
            return refuse(r, "an escape without its digits");
        *out = *out * 16 + (uint32_t)(at - digits) % 16;
        r->p++;
    }
    return 0;
}

/* \d, \w, \s, and what is none of them.  WITHOUT: S is what a character must not be, so
 * that all are added that may be meant.  False: C is another letter. */
static bool add_class(struct set *s, char c, bool without)
{
    static const struct range spaces[] = {
        { 0x1c, 0x1f },     { 0x85, 0x85 },     { 0xa0, 0xa0 },     { 0x1680, 0x1680 },
        { 0x2000, 0x200a }, { 0x2028, 0x2029 }, { 0x202f, 0x202f }, { 0x205f, 0x205f },
        { 0x3000, 0x3000 }, { 0xfeff, 0xfeff },
    };
    struct set own = { 0 };

    if (c == 'd' || c == 'D' || c == 'w' || c == 'W')
        add(&own, '0', '9');
    if (c == 'w' || c == 'W') {
        add(&own, 'A', 'Z');
        add(&own, 'a', 'z');
        add(&own, '_', '_');
    }
    if (c == 's' || c == 'S') {
        add(&own, '\t', '\r');
        add(&own, ' ', ' ');
    }
    if (!own.n)
        return false;
    if (c == (without ? 's' : 'S')) /* which are white space to some */
        for (size_t i = 0; i < sizeof(spaces) / sizeof(*spaces); i++)
            add(&own, spaces[i].first, spaces[i].last);
    if (c < 'a')
        negate(&own, without ? LAST : 0x7f);
    for (size_t i = 0; i < own.n; i++)
        add(s, own.v[i].first, own.v[i].last);
    free(own.v);
    return true;
}

/* What follows a backslash.  *ONE: it is the single character *C. */
static int take_escape(struct reader *r, struct set *s, bool *one, uint32_t *c)
{
    static const char from[] = "nrtfv0", to[] = "\n\r\t\f\v\0";
    const char letter = *r->p;

    *one = false;
    if (!letter)
        return refuse(r, "a backslash at the end");
    if (add_class(s, letter, r->without)) {
        r->p++;
        return 0;
    }
    *one = true;
    r->p++;
    if (strchr(from, letter) && !(letter == '0' && *r->p >= '0' && *r->p <= '9')) {
        *c = (unsigned char)to[strchr(from, letter) - from];
        return 0;
    }
    if (letter == 'x')
        return hex(r, 2, c);
    if (letter == 'u' && *r->p == '{') {
        *c = 0;
        for (r->p++; *r->p && *r->p != '}' && *c <= LAST;) {
            uint32_t digit;

            if (hex(r, 1, &digit) < 0)
                return -1;
            *c = *c * 16 + digit;
        }
        if (*r->p != '}' || *c > LAST)
            return refuse(r, "a bad \\u{...}");
        r->p++;
        return 0;
    }
    if (letter == 'u')
        return hex(r, 4, c);
    r->p--;
    if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
        (letter >= '0' && letter <= '9'))
        return err_set(r->err, ERR_INPUT,
                       "\\%c is not supported in a regular expression", letter);
    return next_character(r, c);
}

/* After '['. */
static int take_set(struct reader *r, uint32_t *out)
{
    struct set s = { 0 };
    const bool negative = *r->p == '^';
    int ret = 0;

    r->p += negative;
    r->without = negative;
    while (*r->p != ']' && ret == 0) {
        uint32_t first = 0, last;
        bool one = true;

        if (!*r->p || s.n > MOST_RANGES)
            ret = refuse(r, *r->p ? "a set with too many parts" : "a set without ]");
        else if (*r->p == '\\') {
            r->p++;
            ret = take_escape(r, &s, &one, &first);
        } else
            ret = next_character(r, &first);
        if (ret < 0 || !one)
            continue;
        last = first;
        if (r->p[0] == '-' && r->p[1] && r->p[1] != ']') {
            r->p++;
            if (*r->p == '\\') {
                r->p++;
                ret = take_escape(r, &s, &one, &last);
            } else
                ret = next_character(r, &last);
            if (ret == 0 && (!one || last < first))
                ret = refuse(r, "a bad range");
        }
        if (ret == 0)
            add(&s, first, last);
    }
    r->without = false;
    r->p += ret == 0;
    if (ret == 0 && negative)
        negate(&s, LAST);
    if (ret == 0)
        *out = term_of(r, &s);
    free(s.v);
    return ret;
}

/* ---- expressions ---- */

static int take_alternatives(struct reader *r, uint32_t *out);

/* After '('. */
static int take_group(struct reader *r, uint32_t *out)
{
    if (*r->p == '?') {
        if (r->p[1] == ':')
            r->p += 2;
        else if (r->p[1] == '<' && r->p[2] != '=' && r->p[2] != '!') {
            while (*r->p && *r->p != '>')
                r->p++;
            r->p += *r->p == '>';
        } else
            return refuse(r, "lookaround and flags are not supported");
    }
    if (take_alternatives(r, out) < 0)
        return -1;
    return *r->p++ == ')' ? 0 : (r->p--, refuse(r, "a group without )"));
}

static int take_number(struct reader *r, uint32_t *n)
{
    *n = 0;
    if (*r->p < '0' || *r->p > '9')
        return refuse(r, "expected a number");
    for (; *r->p >= '0' && *r->p <= '9'; r->p++) {
        *n = *n * 10 + (uint32_t)(*r->p - '0');
        if (*n > MOST_TIMES)
            return refuse(r, "a number of times above 100000");
    }
    return 0;
}

/* Is P a quantifier in braces?  Else the brace is a character. */
static bool is_counted(const char *p)
{
    return *p == '{' && p[1] >= '0' && p[1] <= '9';
}

static int take_times(struct reader *r, uint32_t *a)
{
    uint32_t min = 0, max = TERMS_MANY;

    if (*r->p == '+')
        min = 1;
    else if (*r->p == '?')
        max = 1;
    if (is_counted(r->p)) {
        r->p++;
        if (take_number(r, &min) < 0)
            return -1;
        max = min;
        if (*r->p == ',') {
            r->p++;
            max = TERMS_MANY;
            if (*r->p != '}' && take_number(r, &max) < 0)
                return -1;
        }
        if (*r->p != '}' || max < min)
            return refuse(r, "a bad number of times");
    }
    r->p++;
    if (*r->p == '?') /* lazy: the same texts */
        r->p++;
    *a = terms_repeat(r->t, *a, min, max);
    return 0;
}

static int take_one(struct reader *r, uint32_t *out)
{
    struct set s = { 0 };
    uint32_t c = 0;
    bool one = true;
    int ret = 0;

    switch (*r->p) {
    case '(':
        r->p++;
        return take_group(r, out);
    case '[':
        r->p++;
        return take_set(r, out);
    case '.':
        r->p++;
        add(&s, '\n', '\n');
        add(&s, '\r', '\r');
        add(&s, 0x2028, 0x2029);
        negate(&s, LAST);
        break;
    case '\\':
        r->p++;
        ret = take_escape(r, &s, &one, &c);
        if (ret == 0 && one)
            add(&s, c, c);
        break;
    case '*':
    case '+':
    case '?':
        return refuse(r, "nothing to repeat");
    case '^':
    case '$':
        return refuse(r, "^ and $ are supported at the ends alone");
    default:
        ret = next_character(r, &c);
        add(&s, c, c);
    }
    if (ret == 0)
        *out = term_of(r, &s);
    free(s.v);
    return ret;
}

static bool is_end(const char *p)
{
    return !*p || *p == '|' || *p == ')';
}

/* One after another, with ^ and $ if they belong to the whole expression. */
static int take_sequence(struct reader *r, uint32_t *out)
{
    const bool outer = r->depth == 1;
    const uint32_t other = outer && r->json
                               ? terms_repeat(r->t, any_character(r), 0, TERMS_MANY)
                               : TERM_EMPTY;
    uint32_t *part = NULL, all = other;
    size_t n = 0, cap = 0;
    int ret = 0;

    *out = TERM_EMPTY;
    if (outer && *r->p == '^')
        r->p++;
    else
        *out = other;
    while (ret == 0 && !is_end(r->p)) {
        if (!terms_spend(r->t, 1))
            ret = refuse(r, terms_failed(r->t));
        if (ret < 0)
            break;
        if (outer && *r->p == '$' && is_end(r->p + 1)) {
            r->p++;
            all = TERM_EMPTY;
            break;
        }
        part = xgrow(part, &cap, n + 1, sizeof(*part));
        ret = take_one(r, &part[n]);
        while (ret == 0 && ((*r->p && strchr("*+?", *r->p)) || is_counted(r->p)))
            ret = take_times(r, &part[n]);
        n++;
    }
    while (ret == 0 && n-- > 0)
        all = terms_cat(r->t, part[n], all);
    *out = terms_cat(r->t, *out, all);
    free(part);
    return ret;
}

static int take_alternatives(struct reader *r, uint32_t *out)
{
    uint32_t one = TERM_NONE;

    if (r->depth >= MOST_DEPTH)
        return refuse(r, "too many groups inside one another");
    r->depth++;
    *out = TERM_NONE;
    for (;;) {
        if (take_sequence(r, &one) < 0)
            return -1;
        *out = terms_alt(r->t, *out, one);
        if (*r->p != '|')
            break;
        if (!terms_spend(r->t, 1))
            return refuse(r, terms_failed(r->t));
        r->p++;
    }
    r->depth--;
    return 0;
}

int regex_compile(struct terms *t, const char *text, enum regex_how how, uint32_t *out,
                  struct err *err)
{
    struct reader r = {
        .t = t, .text = text, .p = text, .json = how == REGEX_JSON, .err = err
    };

    if (take_alternatives(&r, out) < 0)
        return -1;
    return *r.p ? refuse(&r, "a ) without its group") : 0;
}
