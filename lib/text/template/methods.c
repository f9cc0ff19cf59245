/* methods - the methods of texts, dicts, lists and loops */
#include "lib/text/template/methods.h"

#include <string.h>

#include "lib/base/str.h"
#include "lib/text/chars.h"
#include "lib/text/template/formatting.h"
#include "lib/text/template/python.h"
#include "lib/text/template/printing.h"
#include "lib/text/template/strings.h"

struct method {
    const char *name;
    struct parameters parameters;
    /* one of the two; both NULL: templates cannot use it */
    int (*run)(struct render *r, struct value *out, const struct value *self,
               const struct value *const *arg);
    int (*run_any)(struct render *r, struct value *out, const struct value *self,
                   const struct arguments *a);
    bool makes_text; /* of its arguments, which a safe text would escape */
};

/* ---- arguments ---- */

static int need_text(struct render *r, const struct value *v, const struct text **out)
{
    *out = NULL; /* gcc does not see that a failure is below 0 */
    if (v->type == VALUE_UNDEFINED)
        return scratch_fail(r->s, "%s", v->u.cause);
    if (v->type != VALUE_TEXT)
        return scratch_fail(r->s, "expected a str, not %s", value_type_name(v));
    *out = v->u.text;
    return 0;
}

/* The same; *out is NULL for none and a missing argument. */
static int maybe_text(struct render *r, const struct value *v, const struct text **out)
{
    *out = NULL;
    return v && v->type != VALUE_NONE ? need_text(r, v, out) : 0;
}

static int maybe_int(struct render *r, const struct value *v, int64_t otherwise,
                     int64_t *out)
{
    *out = otherwise;
    if (!v)
        return 0;
    if (!value_is_integer(v))
        return scratch_fail(r->s, "expected an int, not %s", value_type_name(v));
    *out = value_to_int(v);
    return 0;
}

/* ---- texts: parts ---- */

static int strip(struct render *r, struct value *out, const struct value *self,
                 const struct value *set, enum strings_side side)
{
    const struct text *chars;

    if (maybe_text(r, set, &chars) < 0)
        return -1;
    return strings_strip(r->s, out, self->u.text, chars, side);
}

static int run_strip(struct render *r, struct value *out, const struct value *self,
                     const struct value *const *arg)
{
    return strip(r, out, self, arg[0], STRINGS_BOTH);
}

static int run_lstrip(struct render *r, struct value *out, const struct value *self,
                      const struct value *const *arg)
{
    return strip(r, out, self, arg[0], STRINGS_LEFT);
}

static int run_rstrip(struct render *r, struct value *out, const struct value *self,
                      const struct value *const *arg)
{
    return strip(r, out, self, arg[0], STRINGS_RIGHT);
}

static int run_split(struct render *r, struct value *out, const struct value *self,
                     const struct value *const *arg)
{
    const struct text *separator;
    int64_t most;

    if (maybe_text(r, arg[0], &separator) < 0 || maybe_int(r, arg[1], -1, &most) < 0)
        return -1;
    return strings_split(r->s, out, self->u.text, separator, most);
}

static int run_rsplit(struct render *r, struct value *out, const struct value *self,
                      const struct value *const *arg)
{
    const struct text *separator;
    int64_t most;

    if (maybe_text(r, arg[0], &separator) < 0 || maybe_int(r, arg[1], -1, &most) < 0)
        return -1;
    return strings_split_last(r->s, out, self->u.text, separator, most);
}

static int run_splitlines(struct render *r, struct value *out, const struct value *self,
                          const struct value *const *arg)
{
    return strings_split_lines(r->s, out, self->u.text,
                               arg[0] && value_is_true(arg[0]));
}

/* (before, separator, after); what is missing is empty. */
static int partition(struct render *r, struct value *out, const struct value *self,
                     const struct value *separator, bool last)
{
    const struct text *t = self->u.text, *what;
    struct value *v;
    size_t at;

    if (need_text(r, separator, &what) < 0 || value_list(r->s, out, VALUE_TUPLE, 3) < 0)
        return -1;
    if (!what->n)
        return scratch_fail(r->s, "empty separator");
    if ((last ? strings_find_last(r->s, &at, t, what, t->n)
              : strings_find(r->s, &at, t, what, 0)) < 0)
        return -1;
    v = out->u.list->v;
    if (at == SIZE_MAX) {
        size_t middle = last ? 0 : t->n;

        return value_slice(r->s, &v[0], t, 0, middle) < 0 ||
                       value_slice(r->s, &v[1], t, 0, 0) < 0 ||
                       value_slice(r->s, &v[2], t, middle, t->n) < 0
                   ? -1
                   : 0;
    }
    return value_slice(r->s, &v[0], t, 0, at) < 0 ||
                   value_slice(r->s, &v[1], t, at, at + what->n) < 0 ||
                   value_slice(r->s, &v[2], t, at + what->n, t->n) < 0
               ? -1
               : 0;
}

static int run_partition(struct render *r, struct value *out, const struct value *self,
                         const struct value *const *arg)
{
    return partition(r, out, self, arg[0], false);
}

static int run_rpartition(struct render *r, struct value *out, const struct value *self,
                          const struct value *const *arg)
{
    return partition(r, out, self, arg[0], true);
}

static int remove_affix(struct render *r, struct value *out, const struct value *self,
                        const struct value *affix, bool last)
{
    const struct text *t = self->u.text, *what;
    bool found;

    if (need_text(r, affix, &what) < 0 || scratch_step(r->s, what->n) < 0)
        return -1;
    found = last ? strings_ends(t, what) : strings_begins(t, what);
    return value_slice(r->s, out, t, found && !last ? what->n : 0,
                       found && last ? t->n - what->n : t->n);
}

static int run_removeprefix(struct render *r, struct value *out,
                            const struct value *self, const struct value *const *arg)
{
    return remove_affix(r, out, self, arg[0], false);
}

static int run_removesuffix(struct render *r, struct value *out,
                            const struct value *self, const struct value *const *arg)
{
    return remove_affix(r, out, self, arg[0], true);
}

/* ---- texts: made anew ---- */

static int run_replace(struct render *r, struct value *out, const struct value *self,
                       const struct value *const *arg)
{
    const struct text *old, *new;
    int64_t most;

    if (need_text(r, arg[0], &old) < 0 || need_text(r, arg[1], &new) < 0 ||
        maybe_int(r, arg[2], -1, &most) < 0)
        return -1;
    return strings_replace(r->s, out, self->u.text, old, new, most);
}

static int run_lower(struct render *r, struct value *out, const struct value *self,
                     const struct value *const *arg)
{
    (void)arg;
    return strings_to_case(r->s, out, self->u.text, STRINGS_LOWER);
}

static int run_upper(struct render *r, struct value *out, const struct value *self,
                     const struct value *const *arg)
{
    (void)arg;
    return strings_to_case(r->s, out, self->u.text, STRINGS_UPPER);
}

static int run_capitalize(struct render *r, struct value *out, const struct value *self,
                          const struct value *const *arg)
{
    (void)arg;
    return strings_to_case(r->s, out, self->u.text, STRINGS_CAPITALIZED);
}

static int run_title(struct render *r, struct value *out, const struct value *self,
                     const struct value *const *arg)
{
    (void)arg;
    return strings_to_case(r->s, out, self->u.text, STRINGS_TITLE);
}

static int run_join(struct render *r, struct value *out, const struct value *self,
                    const struct value *const *arg)
{
    struct builder b = builder_start(r->s);
    const struct list *l;

    if (value_elements(r->s, &l, arg[0]) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        struct value v = list_at(l, i);
        const struct text *t;

        if (need_text(r, &v, &t) < 0 || (i && builder_add_text(&b, self->u.text) < 0) ||
            builder_add_text(&b, t) < 0)
            return -1;
    }
    return builder_value(&b, out);
}

/* SELF in WIDTH code points: at the left, the right, or in the middle. */
static int pad(struct render *r, struct value *out, const struct value *self,
               const struct value *const *arg, enum strings_side side)
{
    struct builder b = builder_start(r->s);
    const struct text blank = { .s = " ", .n = 1 }, *fill = NULL;
    int64_t width, have = (int64_t)value_chars(self->u.text), before, room;

    if (maybe_int(r, arg[0], 0, &width) < 0 || maybe_text(r, arg[1], &fill) < 0)
        return -1;
    fill = fill ? fill : &blank;
    if (value_chars(fill) != 1)
        return scratch_fail(r->s, "the fill character must be one character");
    room = width > have ? width - have : 0;
    /* an odd blank is put where CPython puts it */
    before = side == STRINGS_BOTH    ? room / 2 + (room & width & 1)
             : side == STRINGS_RIGHT ? room
                                     : 0;
    for (int64_t i = 0; i < before; i++)
        if (builder_add_text(&b, fill) < 0)
            return -1;
    if (builder_add_text(&b, self->u.text) < 0)
        return -1;
    for (int64_t i = before; i < room; i++)
        if (builder_add_text(&b, fill) < 0)
            return -1;
    return builder_value(&b, out);
}

static int run_ljust(struct render *r, struct value *out, const struct value *self,
                     const struct value *const *arg)
{
    return pad(r, out, self, arg, STRINGS_LEFT);
}

static int run_rjust(struct render *r, struct value *out, const struct value *self,
                     const struct value *const *arg)
{
    return pad(r, out, self, arg, STRINGS_RIGHT);
}

static int run_center(struct render *r, struct value *out, const struct value *self,
                      const struct value *const *arg)
{
    return pad(r, out, self, arg, STRINGS_BOTH);
}

static int run_zfill(struct render *r, struct value *out, const struct value *self,
                     const struct value *const *arg)
{
    const struct text *t = self->u.text, zero = { .s = "0", .n = 1 };
    const struct value fill = { VALUE_TEXT, { .text = &zero } };
    const struct value *const padding[2] = { arg[0], &fill };
    size_t sign = t->n && (t->s[0] == '-' || t->s[0] == '+');
    struct builder b = builder_start(r->s);
    struct value digits, rest;
    int64_t width;

    if (maybe_int(r, arg[0], 0, &width) < 0 ||
        value_slice(r->s, &rest, t, sign, t->n) < 0)
        return -1;
    {
        struct value less = value_int(width - (int64_t)sign);
        const struct value *const narrower[2] = { &less, padding[1] };

        if (pad(r, &digits, &rest, narrower, STRINGS_RIGHT) < 0)
            return -1;
    }
    if ((sign && builder_add(&b, t->s, t->mark, 1) < 0) ||
        builder_add_text(&b, digits.u.text) < 0)
        return -1;
    return builder_value(&b, out);
}

static int run_format(struct render *r, struct value *out, const struct value *self,
                      const struct arguments *a)
{
    return formatting_braces(r, out, self->u.text, a);
}

/* ---- texts: questions ---- */

/* One text or a tuple of them. */
static int has_affix(struct render *r, struct value *out, const struct value *self,
                     const struct value *affix, bool last)
{
    const struct value *v = affix;
    size_t n = 1;
    bool found = false;

    if (affix->type == VALUE_TUPLE) {
        v = affix->u.list->v;
        n = affix->u.list->n;
    }
    for (size_t i = 0; i < n; i++) {
        const struct text *t = NULL;

        if (need_text(r, &v[i], &t) < 0 || scratch_step(r->s, t->n) < 0)
            return -1;
        found |= last ? strings_ends(self->u.text, t) : strings_begins(self->u.text, t);
    }
    *out = value_bool(found);
    return 0;
}

static int run_startswith(struct render *r, struct value *out, const struct value *self,
                          const struct value *const *arg)
{
    return has_affix(r, out, self, arg[0], false);
}

static int run_endswith(struct render *r, struct value *out, const struct value *self,
                        const struct value *const *arg)
{
    return has_affix(r, out, self, arg[0], true);
}

static int find(struct render *r, struct value *out, const struct value *self,
                const struct value *const *arg, bool last)
{
    const struct text *t = self->u.text, *what;
    int64_t n = (int64_t)value_chars(t), start, end;
    struct text part;
    size_t from, at;

    if (need_text(r, arg[0], &what) < 0 || maybe_int(r, arg[1], 0, &start) < 0 ||
        maybe_int(r, arg[2], n, &end) < 0 || scratch_step(r->s, t->n) < 0)
        return -1;
    start = start < 0 ? (start + n < 0 ? 0 : start + n) : start;
    end = end > n ? n : end < 0 ? (end + n < 0 ? 0 : end + n) : end;
    *out = value_int(-1);
    if (start > end)
        return 0;
    from = strings_offset(t, (size_t)start);
    part = *t;
    part.n = strings_offset(t, (size_t)end);
    if ((last ? strings_find_last(r->s, &at, &part, what, part.n)
              : strings_find(r->s, &at, &part, what, from)) < 0)
        return -1;
    if (at != SIZE_MAX && at >= from) {
        part.n = at;
        *out = value_int((int64_t)value_chars(&part));
    }
    return 0;
}

static int run_find(struct render *r, struct value *out, const struct value *self,
                    const struct value *const *arg)
{
    return find(r, out, self, arg, false);
}

static int run_rfind(struct render *r, struct value *out, const struct value *self,
                     const struct value *const *arg)
{
    return find(r, out, self, arg, true);
}

static int need_found(struct render *r, const struct value *out)
{
    return out->u.integer < 0 ? scratch_fail(r->s, "substring not found") : 0;
}

static int run_index(struct render *r, struct value *out, const struct value *self,
                     const struct value *const *arg)
{
    return find(r, out, self, arg, false) < 0 ? -1 : need_found(r, out);
}

static int run_rindex(struct render *r, struct value *out, const struct value *self,
                      const struct value *const *arg)
{
    return find(r, out, self, arg, true) < 0 ? -1 : need_found(r, out);
}

static int run_count(struct render *r, struct value *out, const struct value *self,
                     const struct value *const *arg)
{
    const struct text *t = self->u.text, *what;
    size_t at = 0;
    int64_t n = 0;

    if (need_text(r, arg[0], &what) < 0)
        return -1;
    if (!what->n) {
        *out = value_int((int64_t)value_chars(t) + 1);
        return 0;
    }
    for (;; n++) {
        if (strings_find(r->s, &at, t, what, at) < 0)
            return -1;
        if (at == SIZE_MAX)
            break;
        at += what->n;
    }
    *out = value_int(n);
    return 0;
}

/* Is every character, and at least one, such that IS? */
static int all_chars(struct render *r, struct value *out, const struct value *self,
                     bool (*is)(uint32_t cp))
{
    const struct text *t = self->u.text;
    bool all = t->n > 0;
    size_t used;

    for (size_t at = 0; at < t->n && all; at += used)
        all = is(chars_at(t->s + at, t->n - at, &used));
    *out = value_bool(all);
    return scratch_step(r->s, 8 * t->n);
}

static int run_isspace(struct render *r, struct value *out, const struct value *self,
                       const struct value *const *arg)
{
    (void)arg;
    return all_chars(r, out, self, python_is_space);
}

static int run_isdigit(struct render *r, struct value *out, const struct value *self,
                       const struct value *const *arg)
{
    (void)arg;
    return all_chars(r, out, self, python_is_digit);
}

static int run_isalpha(struct render *r, struct value *out, const struct value *self,
                       const struct value *const *arg)
{
    (void)arg;
    return all_chars(r, out, self, python_is_alpha);
}

static int run_isalnum(struct render *r, struct value *out, const struct value *self,
                       const struct value *const *arg)
{
    (void)arg;
    return all_chars(r, out, self, python_is_alnum);
}

static int run_islower(struct render *r, struct value *out, const struct value *self,
                       const struct value *const *arg)
{
    (void)arg;
    *out = value_bool(strings_is_case(self->u.text, false));
    return scratch_step(r->s, 8 * self->u.text->n);
}

static int run_isupper(struct render *r, struct value *out, const struct value *self,
                       const struct value *const *arg)
{
    (void)arg;
    *out = value_bool(strings_is_case(self->u.text, true));
    return scratch_step(r->s, 8 * self->u.text->n);
}

static const struct method text_methods[] = {
    { "strip", { "chars", 0 }, run_strip, NULL, false },
    { "lstrip", { "chars", 0 }, run_lstrip, NULL, false },
    { "rstrip", { "chars", 0 }, run_rstrip, NULL, false },
    { "split", { "sep maxsplit", 0 }, run_split, NULL, false },
    { "rsplit", { "sep maxsplit", 0 }, run_rsplit, NULL, false },
    { "splitlines", { "keepends", 0 }, run_splitlines, NULL, false },
    { "partition", { "sep", 1 }, run_partition, NULL, false },
    { "rpartition", { "sep", 1 }, run_rpartition, NULL, false },
    { "removeprefix", { "prefix", 1 }, run_removeprefix, NULL, false },
    { "removesuffix", { "suffix", 1 }, run_removesuffix, NULL, false },
    { "replace", { "old new count", 2 }, run_replace, NULL, true },
    { "lower", { "", 0 }, run_lower, NULL, true },
    { "upper", { "", 0 }, run_upper, NULL, true },
    { "capitalize", { "", 0 }, run_capitalize, NULL, true },
    { "title", { "", 0 }, run_title, NULL, true },
    { "join", { "iterable", 1 }, run_join, NULL, true },
    { "ljust", { "width fillchar", 1 }, run_ljust, NULL, true },
    { "rjust", { "width fillchar", 1 }, run_rjust, NULL, true },
    { "center", { "width fillchar", 1 }, run_center, NULL, true },
    { "zfill", { "width", 1 }, run_zfill, NULL, true },
    { "format", { "", 0 }, NULL, run_format, true },
    { "startswith", { "prefix", 1 }, run_startswith, NULL, false },
    { "endswith", { "suffix", 1 }, run_endswith, NULL, false },
    { "find", { "sub start end", 1 }, run_find, NULL, false },
    { "rfind", { "sub start end", 1 }, run_rfind, NULL, false },
    { "index", { "sub start end", 1 }, run_index, NULL, false },
    { "rindex", { "sub start end", 1 }, run_rindex, NULL, false },
    { "count", { "sub", 1 }, run_count, NULL, false },
    { "isspace", { "", 0 }, run_isspace, NULL, false },
    { "isdigit", { "", 0 }, run_isdigit, NULL, false },
    { "isalpha", { "", 0 }, run_isalpha, NULL, false },
    { "isalnum", { "", 0 }, run_isalnum, NULL, false },
    { "islower", { "", 0 }, run_islower, NULL, false },
    { "isupper", { "", 0 }, run_isupper, NULL, false },
    { "casefold", { "", 0 }, NULL, NULL, false },
    { "encode", { "", 0 }, NULL, NULL, false },
    { "expandtabs", { "", 0 }, NULL, NULL, false },
    { "format_map", { "", 0 }, NULL, NULL, false },
    { "isascii", { "", 0 }, NULL, NULL, false },
    { "isdecimal", { "", 0 }, NULL, NULL, false },
    { "isidentifier", { "", 0 }, NULL, NULL, false },
    { "isnumeric", { "", 0 }, NULL, NULL, false },
    { "isprintable", { "", 0 }, NULL, NULL, false },
    { "istitle", { "", 0 }, NULL, NULL, false },
    { "maketrans", { "", 0 }, NULL, NULL, false },
    { "swapcase", { "", 0 }, NULL, NULL, false },
    { "translate", { "", 0 }, NULL, NULL, false },
    { NULL, { NULL, 0 }, NULL, NULL, false },
};

/* ---- dicts ---- */

static int run_get(struct render *r, struct value *out, const struct value *self,
                   const struct value *const *arg)
{
    size_t at;

    if (dict_find(r->s, self->u.dict, arg[0], &at) < 0)
        return -1;
    *out = at != SIZE_MAX ? self->u.dict->value[at] : arg[1] ? *arg[1] : value_none();
    return 0;
}

static int view(struct render *r, struct value *out, struct value *v, size_t n,
                const char *kind)
{
    if (value_list(r->s, out, VALUE_VIEW, 0) < 0)
        return -1;
    out->u.list->v = v ? v : out->u.list->v;
    out->u.list->n = n;
    out->u.list->kind = kind;
    return 0;
}

static int run_keys(struct render *r, struct value *out, const struct value *self,
                    const struct value *const *arg)
{
    (void)arg;
    return view(r, out, self->u.dict->key, self->u.dict->n, "dict_keys");
}

static int run_values(struct render *r, struct value *out, const struct value *self,
                      const struct value *const *arg)
{
    (void)arg;
    return view(r, out, self->u.dict->value, self->u.dict->n, "dict_values");
}

static int run_items(struct render *r, struct value *out, const struct value *self,
                     const struct value *const *arg)
{
    const struct dict *d = self->u.dict;

    (void)arg;
    if (scratch_step(r->s, 64 * d->n) < 0 ||
        value_list(r->s, out, VALUE_VIEW, d->n) < 0)
        return -1;
    out->u.list->kind = "dict_items";
    for (size_t i = 0; i < d->n; i++)
        if (value_pair(r->s, &out->u.list->v[i], d->key[i], d->value[i]) < 0)
            return -1;
    return 0;
}

static int run_copy(struct render *r, struct value *out, const struct value *self,
                    const struct value *const *arg)
{
    (void)r;
    (void)arg;
    *out = *self;
    return 0;
}

static const struct method dict_methods[] = {
    { "get", { "key default", 1 }, run_get, NULL, false },
    { "keys", { "", 0 }, run_keys, NULL, false },
    { "values", { "", 0 }, run_values, NULL, false },
    { "items", { "", 0 }, run_items, NULL, false },
    { "copy", { "", 0 }, run_copy, NULL, false },
    { "fromkeys", { "", 0 }, NULL, NULL, false },
    { NULL, { NULL, 0 }, NULL, NULL, false },
};

/* ---- lists ---- */

static int run_list_count(struct render *r, struct value *out, const struct value *self,
                          const struct value *const *arg)
{
    int64_t n = 0;

    for (size_t i = 0; i < self->u.list->n; i++) {
        struct value v = list_at(self->u.list, i);
        bool equal;

        if (value_equal(r->s, &equal, &v, arg[0]) < 0)
            return -1;
        n += equal;
    }
    *out = value_int(n);
    return 0;
}

static int run_list_index(struct render *r, struct value *out, const struct value *self,
                          const struct value *const *arg)
{
    for (size_t i = 0; i < self->u.list->n; i++) {
        struct value v = list_at(self->u.list, i);
        bool equal;

        if (value_equal(r->s, &equal, &v, arg[0]) < 0)
            return -1;
        if (equal) {
            *out = value_int((int64_t)i);
            return 0;
        }
    }
    return scratch_fail(r->s, "the value is not in the list");
}

static const struct method list_methods[] = {
    { "count", { "value", 1 }, run_list_count, NULL, false },
    { "index", { "value", 1 }, run_list_index, NULL, false },
    { "copy", { "", 0 }, run_copy, NULL, false },
    { NULL, { NULL, 0 }, NULL, NULL, false },
};

static const struct method tuple_methods[] = {
    { "count", { "value", 1 }, run_list_count, NULL, false },
    { "index", { "value", 1 }, run_list_index, NULL, false },
    { NULL, { NULL, 0 }, NULL, NULL, false },
};

/* ---- loops ---- */

static int run_cycle(struct render *r, struct value *out, const struct value *self,
                     const struct arguments *a)
{
    if (!a->n)
        return scratch_fail(r->s, "loop.cycle without a value");
    *out = a->v[self->u.loop->at % a->n];
    return 0;
}

static int run_changed(struct render *r, struct value *out, const struct value *self,
                       const struct arguments *a)
{
    struct loop *l = self->u.loop;
    struct value now;
    bool equal = false;

    if (value_list(r->s, &now, VALUE_TUPLE, a->n) < 0)
        return -1;
    if (a->n)
        memcpy(now.u.list->v, a->v, a->n * sizeof(*a->v));
    if (l->has_changed && value_equal(r->s, &equal, &l->changed, &now) < 0)
        return -1;
    l->changed = now;
    l->has_changed = true;
    *out = value_bool(!equal);
    return 0;
}

static const struct method loop_methods[] = {
    { "cycle", { "", 0 }, NULL, run_cycle, false },
    { "changed", { "", 0 }, NULL, run_changed, false },
    { NULL, { NULL, 0 }, NULL, NULL, false },
};

/* ---- all ---- */

/* Methods that change their value, which the sandbox forbids. */
static bool changes(const struct value *v, const struct text *name)
{
    static const char *const of_dict[] = { "clear",  "pop",        "popitem",
                                           "update", "setdefault", NULL };
    static const char *const of_list[] = { "append", "clear", "extend",
                                           "insert", "pop",   "reverse",
                                           "remove", "sort",  NULL };
    const char *const *names = v->type == VALUE_DICT   ? of_dict
                               : v->type == VALUE_LIST ? of_list
                                                       : NULL;

    for (; names && *names; names++)
        if (text_is(name, *names))
            return true;
    return false;
}

const struct method *method_find(const struct value *v, const struct text *name,
                                 bool *refused)
{
    const struct method *m = v->type == VALUE_TEXT    ? text_methods
                             : v->type == VALUE_DICT  ? dict_methods
                             : v->type == VALUE_LIST  ? list_methods
                             : v->type == VALUE_TUPLE ? tuple_methods
                             : v->type == VALUE_LOOP  ? loop_methods
                                                      : NULL;

    *refused = changes(v, name);
    for (; m && m->name; m++)
        if (text_is(name, m->name))
            return m;
    return NULL;
}

int method_run(struct render *r, struct value *out, const struct method_call *m,
               const struct arguments *a)
{
    const struct value *arg[MOST_PARAMETERS];

    if (m->self.type == VALUE_TEXT && m->self.u.text->safe && m->method->makes_text)
        return scratch_fail(r->s, "the method '%s' of a safe text is not supported",
                            m->method->name);
    if (m->method->run_any)
        return m->method->run_any(r, out, &m->self, a);
    if (!m->method->run)
        return scratch_fail(r->s, "the method '%s' of %s is not supported",
                            m->method->name, value_type_name(&m->self));
    if (render_bind(r, m->method->name, &m->method->parameters, a, arg) < 0)
        return -1;
    return m->method->run(r, out, &m->self, arg);
}
