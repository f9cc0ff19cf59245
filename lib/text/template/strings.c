/* strings - Python's operations on strings, with marks */
#define _GNU_SOURCE /* memmem */
#include "lib/text/template/strings.h"

#include <string.h>
#include <utf8proc.h>

#include "lib/base/str.h"
#include "lib/text/chars.h"
#include "lib/text/template/casing.h"
#include "lib/text/template/python.h"

enum { CHAR_COST = 8 }; /* looking at a character, in bytes copied */

/* ---- finding ---- */

int strings_find(struct scratch *s, size_t *at, const struct text *t,
                 const struct text *what, size_t from)
{
    const char *found;

    *at = SIZE_MAX;
    if (from > t->n || what->n > t->n - from)
        return 0;
    if (!what->n) {
        *at = from;
        return 0;
    }
    found = memmem(t->s + from, t->n - from, what->s, what->n);
    if (found)
        *at = (size_t)(found - t->s);
    return scratch_step(s, (found ? *at : t->n) - from);
}

int strings_find_last(struct scratch *s, size_t *at, const struct text *t,
                      const struct text *what, size_t to)
{
    *at = SIZE_MAX;
    if (what->n > to)
        return 0;
    for (size_t i = to - what->n + 1; i-- > 0;) {
        if (!what->n || !memcmp(t->s + i, what->s, what->n)) {
            *at = i;
            return 0;
        }
        if (scratch_step(s, 0) < 0)
            return -1;
    }
    return 0;
}

bool strings_begins(const struct text *t, const struct text *with)
{
    return with->n <= t->n && (!with->n || !memcmp(t->s, with->s, with->n));
}

bool strings_ends(const struct text *t, const struct text *with)
{
    return with->n <= t->n &&
           (!with->n || !memcmp(t->s + t->n - with->n, with->s, with->n));
}

size_t strings_offset(const struct text *t, size_t i)
{
    size_t at = 0;

    for (; i; i--)
        for (at++; at < t->n && ((unsigned char)t->s[at] & 0xc0) == 0x80;)
            at++;
    return at;
}

/* ---- stripping ---- */

static bool is_stripped(uint32_t cp, const struct text *set)
{
    size_t used;

    if (!set)
        return python_is_space(cp);
    for (size_t i = 0; i < set->n; i += used)
        if (chars_at(set->s + i, set->n - i, &used) == cp)
            return true;
    return false;
}

int strings_strip(struct scratch *s, struct value *out, const struct text *t,
                  const struct text *set, enum strings_side side)
{
    size_t start = 0, end = t->n, used, cost = set ? set->n : 0;

    while (side & STRINGS_LEFT && start < end &&
           is_stripped(chars_at(t->s + start, end - start, &used), set)) {
        start += used;
        if (scratch_step(s, cost) < 0)
            return -1;
    }
    while (side & STRINGS_RIGHT && end > start &&
           is_stripped(chars_before(t->s, end, &used), set)) {
        end -= used;
        if (scratch_step(s, cost) < 0)
            return -1;
    }
    return value_slice(s, out, t, start, end);
}

/* ---- splitting ---- */

struct parts {
    struct scratch *s;
    const struct text *t;
    struct value *v;
    size_t n, cap;
};

static int add_part(struct parts *p, size_t start, size_t end)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 8;
        struct value *v = scratch_take(p->s, cap * sizeof(*v));

        if (!v)
            return -1;
        if (p->n)
            memcpy(v, p->v, p->n * sizeof(*v));
        p->v = v;
        p->cap = cap;
    }
    if (scratch_step(p->s, 0) < 0)
        return -1;
    return value_slice(p->s, &p->v[p->n++], p->t, start, end);
}

static int parts_value(struct parts *p, struct value *out)
{
    if (value_list(p->s, out, VALUE_LIST, 0) < 0)
        return -1;
    out->u.list->v = p->v ? p->v : out->u.list->v;
    out->u.list->n = p->n;
    return 0;
}

static void reverse(struct parts *p)
{
    for (size_t i = 0; i < p->n / 2; i++) {
        struct value v = p->v[i];

        p->v[i] = p->v[p->n - 1 - i];
        p->v[p->n - 1 - i] = v;
    }
}

static size_t skip_space(const struct text *t, size_t at, bool space)
{
    size_t used;

    while (at < t->n && python_is_space(chars_at(t->s + at, t->n - at, &used)) == space)
        at += used;
    return at;
}

static size_t skip_space_back(const struct text *t, size_t at, bool space)
{
    size_t used;

    while (at && python_is_space(chars_before(t->s, at, &used)) == space)
        at -= used;
    return at;
}

static int split_words(struct parts *p, int64_t most)
{
    const struct text *t = p->t;

    for (size_t at = skip_space(t, 0, true); at < t->n;) {
        size_t end = most-- ? skip_space(t, at, false) : t->n;

        if (add_part(p, at, end) < 0)
            return -1;
        at = skip_space(t, end, true);
    }
    return scratch_step(p->s, CHAR_COST * t->n);
}

int strings_split(struct scratch *s, struct value *out, const struct text *t,
                  const struct text *separator, int64_t most)
{
    struct parts p = { .s = s, .t = t };
    size_t start = 0, at;

    if (!separator)
        return split_words(&p, most) < 0 ? -1 : parts_value(&p, out);
    if (!separator->n)
        return scratch_fail(s, "empty separator");
    for (;;) {
        at = SIZE_MAX;
        if (most && strings_find(s, &at, t, separator, start) < 0)
            return -1;
        if (add_part(&p, start, at == SIZE_MAX ? t->n : at) < 0)
            return -1;
        if (at == SIZE_MAX)
            return parts_value(&p, out);
        start = at + separator->n;
        most -= most > 0;
    }
}

static int split_words_last(struct parts *p, int64_t most)
{
    const struct text *t = p->t;

    for (size_t end = skip_space_back(t, t->n, true); end;) {
        size_t at = most-- ? skip_space_back(t, end, false) : 0;

        if (add_part(p, at, end) < 0)
            return -1;
        end = skip_space_back(t, at, true);
    }
    return scratch_step(p->s, CHAR_COST * t->n);
}

int strings_split_last(struct scratch *s, struct value *out, const struct text *t,
                       const struct text *separator, int64_t most)
{
    struct parts p = { .s = s, .t = t };
    size_t end = t->n, at;
    int ret = 0;

    if (separator && !separator->n)
        return scratch_fail(s, "empty separator");
    if (!separator)
        ret = split_words_last(&p, most);
    while (separator && ret == 0) {
        at = SIZE_MAX;
        if (most && strings_find_last(s, &at, t, separator, end) < 0)
            return -1;
        ret = add_part(&p, at == SIZE_MAX ? 0 : at + separator->n, end);
        if (at == SIZE_MAX)
            break;
        end = at;
        most -= most > 0;
    }
    reverse(&p);
    return ret < 0 ? -1 : parts_value(&p, out);
}

/* str.splitlines ends a line at these. */
static bool ends_line(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
           cp == 0x2028 || cp == 0x2029;
}

int strings_split_lines(struct scratch *s, struct value *out, const struct text *t,
                        bool keep_ends)
{
    struct parts p = { .s = s, .t = t };
    size_t start = 0, used;

    for (size_t at = 0; at < t->n;) {
        uint32_t cp = chars_at(t->s + at, t->n - at, &used);
        size_t end = at;

        at += used;
        if (!ends_line(cp))
            continue;
        at += cp == '\r' && at < t->n && t->s[at] == '\n';
        if (add_part(&p, start, keep_ends ? at : end) < 0)
            return -1;
        start = at;
    }
    if (start < t->n && add_part(&p, start, t->n) < 0)
        return -1;
    return scratch_step(s, CHAR_COST * t->n) < 0 ? -1 : parts_value(&p, out);
}

/* ---- replacing ---- */

static int add_range(struct builder *b, const struct text *t, size_t start, size_t end)
{
    return builder_add(b, t->s + start, t->mark ? t->mark + start : NULL, end - start);
}

/* An empty OLD is found before each character and at the end. */
static int insert_everywhere(struct builder *b, const struct text *t,
                             const struct text *new, int64_t most)
{
    size_t used = 0;

    for (size_t at = 0; most && at <= t->n; at += used, most -= most > 0) {
        if (builder_add_text(b, new) < 0)
            return -1;
        if (at == t->n)
            return 0;
        (void)chars_at(t->s + at, t->n - at, &used);
        if (add_range(b, t, at, at + used) < 0)
            return -1;
        if (most == 1)
            return add_range(b, t, at + used, t->n);
    }
    return most ? 0 : add_range(b, t, 0, t->n);
}

int strings_replace(struct scratch *s, struct value *out, const struct text *t,
                    const struct text *old, const struct text *new, int64_t most)
{
    struct builder b = builder_start(s);
    size_t start = 0, at;

    if (!old->n) {
        if (insert_everywhere(&b, t, new, most) < 0)
            return -1;
        return builder_value(&b, out);
    }
    for (;;) {
        at = SIZE_MAX;
        if (most && strings_find(s, &at, t, old, start) < 0)
            return -1;
        if (at == SIZE_MAX)
            break;
        if (add_range(&b, t, start, at) < 0 || builder_add_text(&b, new) < 0)
            return -1;
        start = at + old->n;
        most -= most > 0;
    }
    if (!start)
        return value_slice(s, out, t, 0, t->n);
    return add_range(&b, t, start, t->n) < 0 ? -1 : builder_value(&b, out);
}

int strings_repeat(struct scratch *s, struct value *out, const struct text *t,
                   int64_t times)
{
    struct builder b = builder_start(s);

    for (int64_t i = 0; i < times && t->n; i++)
        if (builder_add_text(&b, t) < 0)
            return -1;
    return builder_value(&b, out);
}

int strings_add_escaped(struct builder *b, const struct text *t)
{
    static const char special[] = "&<>'\"";
    static const char *const escaped[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
    size_t start = 0;

    for (size_t at = 0; at < t->n; at++) {
        const char *found = t->s[at] ? strchr(special, t->s[at]) : NULL;

        if (!found)
            continue;
        if (add_range(b, t, start, at) < 0 ||
            builder_add_word(b, escaped[found - special], t->mark ? t->mark[at] : 0) <
                0)
            return -1;
        start = at + 1;
    }
    return add_range(b, t, start, t->n);
}

/* ---- case ---- */

static int add_case(struct builder *b, uint32_t cp, unsigned char mark,
                    enum strings_case to)
{
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    const char *special = to == STRINGS_LOWER   ? NULL
                          : to == STRINGS_UPPER ? casing_upper(cp)
                                                : casing_title(cp);

    if (cp == 0x130 && to == STRINGS_LOWER)
        special = "i\314\207"; /* with a dot above */
    if (special)
        return builder_add_word(b, special, mark);
    c = to == STRINGS_LOWER   ? utf8proc_tolower(c)
        : to == STRINGS_UPPER ? utf8proc_toupper(c)
                              : utf8proc_totitle(c);
    return builder_add_char(b, (uint32_t)c, mark);
}

/* Is the sigma at AT, of USED bytes, the last letter of a word?  Its small letter is
 * then another one. */
static bool is_final_sigma(const struct text *t, size_t at, size_t used)
{
    bool before = false, after = false;
    size_t i, n;

    for (i = at; i && !before; i -= n) {
        uint32_t cp = chars_before(t->s, i, &n);

        if (!python_is_case_ignorable(cp) && python_case(cp) == PYTHON_UNCASED)
            break;
        before = !python_is_case_ignorable(cp);
    }
    for (i = at + used; i < t->n && !after; i += n) {
        uint32_t cp = chars_at(t->s + i, t->n - i, &n);

        if (!python_is_case_ignorable(cp) && python_case(cp) == PYTHON_UNCASED)
            break;
        after = !python_is_case_ignorable(cp);
    }
    return before && !after;
}

int strings_to_case(struct scratch *s, struct value *out, const struct text *t,
                    enum strings_case to)
{
    struct builder b = builder_start(s);
    bool first = true;
    size_t used;

    for (size_t at = 0; at < t->n; at += used) {
        uint32_t cp = chars_at(t->s + at, t->n - at, &used);
        enum strings_case c = to == STRINGS_LOWER || to == STRINGS_UPPER ? to
                              : !first                                   ? STRINGS_LOWER
                              : to == STRINGS_UPPER_FIRST                ? STRINGS_UPPER
                                                          : STRINGS_TITLE;

        if (cp == 0x3a3 && c == STRINGS_LOWER && is_final_sigma(t, at, used))
            cp = 0x3c2;
        if (add_case(&b, cp, t->mark ? t->mark[at] : 0, c) < 0)
            return -1;
        first = to == STRINGS_TITLE && python_case(cp) == PYTHON_UNCASED;
    }
    return builder_value(&b, out);
}

bool strings_is_case(const struct text *t, bool upper)
{
    enum python_case wanted = upper ? PYTHON_UPPER : PYTHON_LOWER;
    bool any = false;
    size_t used;

    for (size_t at = 0; at < t->n; at += used) {
        enum python_case c = python_case(chars_at(t->s + at, t->n - at, &used));

        if (c != PYTHON_UNCASED && c != wanted)
            return false;
        any |= c == wanted;
    }
    return any;
}
