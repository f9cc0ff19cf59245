/* lookup - members, items, slices and membership */
#include "lib/text/template/lookup.h"

#include <string.h>

#include "lib/text/template/methods.h"
#include "lib/text/template/strings.h"

/* ---- members ---- */

static int set_loop_int(struct value *out, size_t n)
{
    *out = value_int((int64_t)n);
    return 0;
}

/* A member of "loop"; *found is false for a name that it lacks. */
static int loop_member(struct scratch *s, struct value *out, const struct loop *l,
                       const struct text *name, bool *found)
{
    size_t n = l->list->n, at = l->at;

    *found = true;
    if (text_is(name, "index"))
        return set_loop_int(out, at + 1);
    if (text_is(name, "index0"))
        return set_loop_int(out, at);
    if (text_is(name, "revindex"))
        return set_loop_int(out, n - at);
    if (text_is(name, "revindex0"))
        return set_loop_int(out, n - at - 1);
    if (text_is(name, "length"))
        return set_loop_int(out, n);
    if (text_is(name, "depth"))
        return set_loop_int(out, 1);
    if (text_is(name, "depth0"))
        return set_loop_int(out, 0);
    if (text_is(name, "first") || text_is(name, "last")) {
        *out = value_bool(text_is(name, "first") ? !at : at + 1 == n);
        return 0;
    }
    if (text_is(name, "previtem")) {
        if (!at)
            return value_missing(s, out, "there is no previous item");
        *out = list_at(l->list, at - 1);
        return 0;
    }
    if (text_is(name, "nextitem")) {
        if (at + 1 == n)
            return value_missing(s, out, "there is no next item");
        *out = list_at(l->list, at + 1);
        return 0;
    }
    *found = false;
    return 0;
}

/* Python's attribute of a value: a method, or a member of loop or a namespace. */
static int find_attribute(struct scratch *s, struct value *out, const struct value *of,
                          const struct text *name, bool *found)
{
    struct method_call *call;
    const struct method *m;
    struct value key = { VALUE_TEXT, { .text = name } };
    bool refused;
    size_t at;

    *found = false;
    if (of->type == VALUE_NAMESPACE) {
        if (dict_find(s, of->u.dict, &key, &at) < 0)
            return -1;
        *found = at != SIZE_MAX;
        if (*found)
            *out = of->u.dict->value[at];
        return 0;
    }
    if (of->type == VALUE_LOOP) {
        if (loop_member(s, out, of->u.loop, name, found) < 0)
            return -1;
        if (*found)
            return 0;
    }
    m = method_find(of, name, &refused);
    if (refused) {
        *found = true;
        return value_missing(s, out, "access to attribute '%.*s' of '%s' is unsafe",
                             (int)(name->n < 60 ? name->n : 60), name->s,
                             value_type_name(of));
    }
    if (!m)
        return 0;
    call = scratch_take(s, sizeof(*call));
    if (!call)
        return -1;
    *call = (struct method_call){ m, *of };
    *out = (struct value){ VALUE_METHOD, { .method = call } };
    *found = true;
    return 0;
}

/* OF[KEY] of Python; *found is false where that raises. */
static int find_item(struct scratch *s, struct value *out, const struct value *of,
                     const struct value *key, bool *found)
{
    bool hashable;
    size_t n, at;
    int64_t i;

    *found = false;
    if (of->type == VALUE_DICT) {
        if (value_is_hashable(s, &hashable, key) < 0)
            return -1;
        if (!hashable)
            return 0;
        if (dict_find(s, of->u.dict, key, &at) < 0)
            return -1;
        *found = at != SIZE_MAX;
        if (*found)
            *out = of->u.dict->value[at];
        return 0;
    }
    if (!value_is_integer(key) || !value_length(of, &n) || of->type == VALUE_VIEW ||
        of->type == VALUE_UNDEFINED)
        return 0;
    i = value_to_int(key);
    i = i < 0 ? i + (int64_t)n : i;
    if (i < 0 || i >= (int64_t)n)
        return 0;
    *found = true;
    if (of->type != VALUE_TEXT) {
        *out = list_at(of->u.list, (size_t)i);
        return 0;
    }
    if (scratch_step(s, of->u.text->n) < 0)
        return -1;
    at = strings_offset(of->u.text, (size_t)i);
    n = at + 1;
    while (n < of->u.text->n && ((unsigned char)of->u.text->s[n] & 0xc0) == 0x80)
        n++;
    return value_slice(s, out, of->u.text, at, n);
}

static int missing(struct scratch *s, struct value *out, const struct value *of,
                   const struct value *key)
{
    if (key->type == VALUE_TEXT)
        return value_missing(
            s, out, "'%s' object has no attribute '%.*s'", value_type_name(of),
            (int)(key->u.text->n < 60 ? key->u.text->n : 60), key->u.text->s);
    return value_missing(s, out, "'%s' object has no such element",
                         value_type_name(of));
}

int lookup_member(struct scratch *s, struct value *out, const struct value *of,
                  const struct text *name)
{
    struct value key = { VALUE_TEXT, { .text = name } };
    bool found;

    if (of->type == VALUE_UNDEFINED)
        return scratch_fail(s, "%s", of->u.cause);
    if (find_attribute(s, out, of, name, &found) < 0 ||
        (!found && find_item(s, out, of, &key, &found) < 0))
        return -1;
    return found ? 0 : missing(s, out, of, &key);
}

int lookup_item(struct scratch *s, struct value *out, const struct value *of,
                const struct value *key)
{
    bool found;

    if (of->type == VALUE_UNDEFINED)
        return scratch_fail(s, "%s", of->u.cause);
    if (find_item(s, out, of, key, &found) < 0 ||
        (!found && key->type == VALUE_TEXT &&
         find_attribute(s, out, of, key->u.text, &found) < 0))
        return -1;
    return found ? 0 : missing(s, out, of, key);
}

/* Is T a number, which is then an index? */
static bool is_index(const struct text *t, struct value *out)
{
    *out = value_int(0);
    for (size_t i = 0; i < t->n; i++) {
        if (t->s[i] < '0' || t->s[i] > '9' || i > 8)
            return false;
        out->u.integer = out->u.integer * 10 + (t->s[i] - '0');
    }
    return t->n > 0;
}

int lookup_path(struct scratch *s, struct value *out, const struct value *of,
                const struct value *path)
{
    const struct text dot = { .s = ".", .n = 1 };
    struct value parts, v = *of, next;

    if (path->type != VALUE_TEXT) {
        v = *of;
        return lookup_item(s, out, &v, path);
    }
    if (strings_split(s, &parts, path->u.text, &dot, -1) < 0)
        return -1;
    for (size_t i = 0; i < parts.u.list->n; i++) {
        const struct value *name = &parts.u.list->v[i];
        const struct text *t = name->u.text;
        struct value number;

        if (is_index(t, &number))
            name = &number;
        if (lookup_item(s, &next, &v, name) < 0)
            return -1;
        v = next;
    }
    *out = v;
    return 0;
}

/* ---- slices ---- */

/* Where a slice of N elements starts and how many it has, as Python's slice.indices. */
static int slice_indices(struct scratch *s, const struct value *const bound[3],
                         int64_t n, int64_t *start, int64_t *stop, int64_t *step,
                         size_t *count)
{
    int64_t v[3];

    for (int i = 0; i < 3; i++) {
        bool given = bound[i] && bound[i]->type != VALUE_NONE;

        if (given && !value_is_integer(bound[i]))
            return scratch_fail(s, "slice indices must be integers, not %s",
                                value_type_name(bound[i]));
        v[i] = given ? value_to_int(bound[i]) : i == 2 ? 1 : INT64_MIN;
    }
    *step = v[2];
    if (!*step || *step == INT64_MIN)
        return scratch_fail(s, "slice step cannot be zero");
    for (int i = 0; i < 2; i++) {
        int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? n - 1 : n;

        if (!bound[i] || bound[i]->type == VALUE_NONE)
            v[i] = (i == 0) == (*step > 0) ? low : high;
        else if (v[i] < 0)
            v[i] = v[i] < -n ? low : v[i] + n;
        else if (v[i] > high)
            v[i] = high;
    }
    *start = v[0];
    *stop = v[1];
    if (*step > 0)
        *count = *start < *stop ? (size_t)((*stop - *start - 1) / *step + 1) : 0;
    else
        *count = *start > *stop ? (size_t)((*start - *stop - 1) / -*step + 1) : 0;
    return 0;
}

static int slice_text(struct scratch *s, struct value *out, const struct text *t,
                      int64_t start, int64_t step, size_t count)
{
    struct value all = { VALUE_TEXT, { .text = t } };
    struct builder b = builder_start(s);
    const struct list *chars;
    size_t from, to;

    if (scratch_step(s, t->n) < 0)
        return -1;
    if (!count)
        return value_slice(s, out, t, 0, 0);
    if (step == 1) {
        from = strings_offset(t, (size_t)start);
        to = strings_offset(t, (size_t)start + count);
        return value_slice(s, out, t, from, to);
    }
    if (value_elements(s, &chars, &all) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (builder_add_text(&b, chars->v[start + (int64_t)i * step].u.text) < 0)
            return -1;
    return builder_value(&b, out);
}

/* The range of every STEP-th of its elements; its own step may become too large. */
static int slice_range(struct scratch *s, struct value *out, const struct list *of,
                       int64_t start, int64_t stop, int64_t step, size_t count)
{
    struct list *l = scratch_zeroed(s, sizeof(*l));

    if (!l)
        return -1;
    l->n = count;
    if (__builtin_mul_overflow(of->step, step, &l->step) ||
        __builtin_mul_overflow(of->step, stop, &l->stop) ||
        __builtin_add_overflow(of->start, l->stop, &l->stop) ||
        __builtin_mul_overflow(of->step, start, &l->start) ||
        __builtin_add_overflow(of->start, l->start, &l->start))
        return scratch_fail(s, "integers of more than 64 bits are not supported");
    *out = (struct value){ VALUE_RANGE, { .list = l } };
    return 0;
}

int lookup_slice(struct scratch *s, struct value *out, const struct value *of,
                 const struct value *const bound[3])
{
    int64_t start = 0, stop = 0, step = 1;
    size_t n = 0, count = 0;
    struct value *v;

    if (of->type == VALUE_UNDEFINED)
        return scratch_fail(s, "%s", of->u.cause);
    if (of->type != VALUE_TEXT && of->type != VALUE_LIST && of->type != VALUE_TUPLE &&
        of->type != VALUE_RANGE)
        return scratch_fail(s, "'%s' object has no slices", value_type_name(of));
    (void)value_length(of, &n);
    if (slice_indices(s, bound, (int64_t)n, &start, &stop, &step, &count) < 0)
        return -1;
    if (of->type == VALUE_TEXT)
        return slice_text(s, out, of->u.text, start, step, count);
    if (scratch_step(s, 8 * count) < 0)
        return -1;
    if (of->type == VALUE_RANGE)
        return slice_range(s, out, of->u.list, start, stop, step, count);
    v = of->u.list->v;
    if (value_list(s, out, of->type, step == 1 ? 0 : count) < 0)
        return -1;
    if (step == 1) {
        out->u.list->v = v + start;
        out->u.list->n = count;
    }
    for (size_t i = 0; step != 1 && i < count; i++)
        out->u.list->v[i] = v[start + (int64_t)i * step];
    return 0;
}

/* ---- in ---- */

int lookup_contains(struct scratch *s, bool *out, const struct value *of,
                    const struct value *v)
{
    const struct list *l;
    size_t at;

    *out = false;
    if (of->type == VALUE_TEXT) {
        if (v->type != VALUE_TEXT)
            return scratch_fail(s,
                                "'in <string>' requires string as left operand, "
                                "not %s",
                                value_type_name(v));
        if (strings_find(s, &at, of->u.text, v->u.text, 0) < 0)
            return -1;
        *out = at != SIZE_MAX;
        return 0;
    }
    if (of->type == VALUE_DICT) {
        if (dict_find(s, of->u.dict, v, &at) < 0)
            return -1;
        *out = at != SIZE_MAX;
        return 0;
    }
    if (value_elements(s, &l, of) < 0)
        return -1;
    for (size_t i = 0; i < l->n && !*out; i++) {
        struct value e = list_at(l, i);

        if (value_equal(s, out, &e, v) < 0)
            return -1;
    }
    return 0;
}
