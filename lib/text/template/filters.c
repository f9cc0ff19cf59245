/* filters - {{ value|filter }} */
#include "lib/text/template/filters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/str.h"
#include "lib/text/chars.h"
#include "lib/text/template/formatting.h"
#include "lib/text/template/lookup.h"
#include "lib/text/template/methods.h"
#include "lib/text/template/printing.h"
#include "lib/text/template/sorting.h"
#include "lib/text/template/tests.h"
#include "lib/text/template/strings.h"

struct filter {
    const char *name;
    struct parameters parameters;
    /* one of the two */
    int (*run)(struct render *r, struct value *out, const struct value *in,
               const struct value *const *arg);
    int (*run_any)(struct render *r, struct value *out, const struct value *in,
                   const struct arguments *a);
};

static int use_undefined(struct render *r, const struct value *v)
{
    return v->type == VALUE_UNDEFINED ? scratch_fail(r->s, "%s", v->u.cause) : 0;
}

/* ---- texts ---- */

static int run_string(struct render *r, struct value *out, const struct value *in,
                      const struct value *const *arg)
{
    (void)arg;
    return printing_to_text(r->s, out, in);
}

static int to_case(struct render *r, struct value *out, const struct value *in,
                   enum strings_case c)
{
    struct value text;

    if (printing_to_text(r->s, &text, in) < 0)
        return -1;
    return strings_to_case(r->s, out, text.u.text, c);
}

static int run_lower(struct render *r, struct value *out, const struct value *in,
                     const struct value *const *arg)
{
    (void)arg;
    return to_case(r, out, in, STRINGS_LOWER);
}

static int run_upper(struct render *r, struct value *out, const struct value *in,
                     const struct value *const *arg)
{
    (void)arg;
    return to_case(r, out, in, STRINGS_UPPER);
}

static int run_capitalize(struct render *r, struct value *out, const struct value *in,
                          const struct value *const *arg)
{
    (void)arg;
    return to_case(r, out, in, STRINGS_CAPITALIZED);
}

/* Jinja's title: a word begins after white space, -, and opening brackets. */
static int run_title(struct render *r, struct value *out, const struct value *in,
                     const struct value *const *arg)
{
    struct builder b = builder_start(r->s);
    const struct text *t;
    struct value text, part;
    size_t start = 0;

    (void)arg;
    if (printing_to_text(r->s, &text, in) < 0)
        return -1;
    t = text.u.text;
    for (size_t at = 0, used; at < t->n; at += used) {
        uint32_t cp = chars_at(t->s + at, t->n - at, &used);

        if (!(chars_is_space(cp) || (cp && cp < 0x80 && strchr("-({[<", (int)cp))))
            continue;
        if (value_slice(r->s, &part, t, start, at + used) < 0 ||
            strings_to_case(r->s, &part, part.u.text, STRINGS_UPPER_FIRST) < 0 ||
            builder_add_text(&b, part.u.text) < 0)
            return -1;
        start = at + used;
    }
    if (value_slice(r->s, &part, t, start, t->n) < 0 ||
        strings_to_case(r->s, &part, part.u.text, STRINGS_UPPER_FIRST) < 0 ||
        builder_add_text(&b, part.u.text) < 0)
        return -1;
    return builder_value(&b, out);
}

static int run_trim(struct render *r, struct value *out, const struct value *in,
                    const struct value *const *arg)
{
    struct value text;
    const struct text *set = NULL;

    if (arg[0] && arg[0]->type == VALUE_TEXT)
        set = arg[0]->u.text;
    else if (arg[0] && arg[0]->type != VALUE_NONE)
        return scratch_fail(r->s, "trim: the characters are a %s",
                            value_type_name(arg[0]));
    if (printing_to_text(r->s, &text, in) < 0)
        return -1;
    return strings_strip(r->s, out, text.u.text, set, STRINGS_BOTH);
}

static int run_replace(struct render *r, struct value *out, const struct value *in,
                       const struct value *const *arg)
{
    struct value text, old, new;
    int64_t most = -1;

    if (arg[2] && arg[2]->type != VALUE_NONE) {
        if (!value_is_integer(arg[2]))
            return scratch_fail(r->s, "replace: the count is a %s",
                                value_type_name(arg[2]));
        most = value_to_int(arg[2]);
    }
    if (printing_to_text(r->s, &text, in) < 0 ||
        printing_to_text(r->s, &old, arg[0]) < 0 ||
        printing_to_text(r->s, &new, arg[1]) < 0)
        return -1;
    return strings_replace(r->s, out, text.u.text, old.u.text, new.u.text, most);
}

static int run_join(struct render *r, struct value *out, const struct value *in,
                    const struct value *const *arg)
{
    struct builder b = builder_start(r->s);
    const struct list *l;

    if (value_elements(r->s, &l, in) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        struct value v = list_at(l, i);

        if (arg[1] && arg[1]->type != VALUE_NONE &&
            lookup_path(r->s, &v, &v, arg[1]) < 0)
            return -1;
        if ((i && arg[0] && printing_str(&b, arg[0]) < 0) || printing_str(&b, &v) < 0)
            return -1;
    }
    return builder_value(&b, out);
}

static int add_times(struct builder *b, const struct text *t, int64_t n)
{
    for (; n > 0; n--)
        if (builder_add_text(b, t) < 0)
            return -1;
    return 0;
}

/* The margin of indent and tojson: a text, or a number of blanks. */
static int margin(struct render *r, struct value *out, const struct value *width)
{
    const struct text blank = { .s = " ", .n = 1 };
    struct builder b = builder_start(r->s);

    if (width && width->type == VALUE_TEXT) {
        *out = *width;
        return 0;
    }
    if (width && !value_is_integer(width))
        return scratch_fail(r->s, "an indent of type %s", value_type_name(width));
    return add_times(&b, &blank, width ? value_to_int(width) : 4) < 0
               ? -1
               : builder_value(&b, out);
}

/* The margin before each line but the first, and but empty ones. */
static int run_indent(struct render *r, struct value *out, const struct value *in,
                      const struct value *const *arg)
{
    bool first = arg[1] && value_is_true(arg[1]);
    bool blank = arg[2] && value_is_true(arg[2]);
    struct builder ended = builder_start(r->s), b = builder_start(r->s);
    struct value text, space, lines;

    if (use_undefined(r, in) < 0 || margin(r, &space, arg[0]) < 0)
        return -1;
    if (in->type != VALUE_TEXT)
        return scratch_fail(r->s, "indent: a %s", value_type_name(in));
    /* as jinja2 does, so that a last line end is kept */
    if (builder_add_text(&ended, in->u.text) < 0 ||
        builder_add_word(&ended, "\n", 0) < 0 || builder_value(&ended, &text) < 0 ||
        strings_split_lines(r->s, &lines, text.u.text, false) < 0)
        return -1;
    for (size_t i = 0; i < lines.u.list->n; i++) {
        const struct text *line = lines.u.list->v[i].u.text;

        if ((i && builder_add_word(&b, "\n", 0) < 0) ||
            ((i ? blank || line->n : first) &&
             builder_add_text(&b, space.u.text) < 0) ||
            builder_add_text(&b, line) < 0)
            return -1;
    }
    return builder_value(&b, out);
}

static int run_safe(struct render *r, struct value *out, const struct value *in,
                    const struct value *const *arg)
{
    struct value text;
    struct text *safe = scratch_take(r->s, sizeof(*safe));

    (void)arg;
    if (!safe || printing_to_text(r->s, &text, in) < 0)
        return -1;
    *safe = *text.u.text;
    safe->safe = true;
    *out = (struct value){ VALUE_TEXT, { .text = safe } };
    return 0;
}

static int run_format(struct render *r, struct value *out, const struct value *in,
                      const struct arguments *a)
{
    struct value text, v;

    if (printing_to_text(r->s, &text, in) < 0)
        return -1;
    if (a->n && a->n_keywords)
        return scratch_fail(r->s, "format: arguments by position and by name");
    if (a->n_keywords)
        return scratch_fail(r->s, "format: arguments by name are not supported");
    if (value_list(r->s, &v, VALUE_TUPLE, a->n) < 0)
        return -1;
    if (a->n)
        memcpy(v.u.list->v, a->v, a->n * sizeof(*a->v));
    return formatting_percent(r, out, text.u.text, &v);
}

static int run_tojson(struct render *r, struct value *out, const struct value *in,
                      const struct value *const *arg)
{
    static const struct text comma = { .s = ",", .n = 1 },
                             comma_blank = { .s = ", ", .n = 2 },
                             colon = { .s = ": ", .n = 2 };
    struct printing_json how = { .ascii = arg[0] && value_is_true(arg[0]),
                                 .sort_keys = arg[3] && value_is_true(arg[3]),
                                 .between = &comma_blank,
                                 .colon = &colon };
    struct builder b = builder_start(r->s);
    struct value space;

    if (arg[1] && arg[1]->type != VALUE_NONE) {
        if (margin(r, &space, arg[1]) < 0)
            return -1;
        how.indent = space.u.text;
        how.between = &comma;
    }
    if (arg[2] && arg[2]->type != VALUE_NONE) {
        const struct list *l;

        if (value_elements(r->s, &l, arg[2]) < 0)
            return -1;
        if (l->n != 2 || !l->v || l->v[0].type != VALUE_TEXT ||
            l->v[1].type != VALUE_TEXT)
            return scratch_fail(r->s, "tojson: the separators are two texts");
        how.between = l->v[0].u.text;
        how.colon = l->v[1].u.text;
    }
    return printing_json(&b, in, &how) < 0 ? -1 : builder_value(&b, out);
}

/* ---- numbers ---- */

static int run_int(struct render *r, struct value *out, const struct value *in,
                   const struct value *const *arg)
{
    struct value stripped;
    char *text;
    int64_t i;
    double x = 0;

    if (use_undefined(r, in) < 0)
        return -1;
    if (arg[1] && !(arg[1]->type == VALUE_INT && arg[1]->u.integer == 10))
        return scratch_fail(r->s, "int: a base is not supported");
    *out = arg[0] ? *arg[0] : value_int(0);
    if (value_is_integer(in)) {
        *out = value_int(value_to_int(in));
        return 0;
    }
    if (in->type == VALUE_BIG) {
        *out = *in;
        return 0;
    }
    if (in->type == VALUE_TEXT) {
        if (strings_strip(r->s, &stripped, in->u.text, NULL, STRINGS_BOTH) < 0)
            return -1;
        text = scratch_take(r->s, stripped.u.text->n + 1);
        if (!text)
            return -1;
        if (stripped.u.text->n)
            memcpy(text, stripped.u.text->s, stripped.u.text->n);
        text[stripped.u.text->n] = '\0';
        if (str_i64(text + (*text == '+'), &i)) {
            *out = value_int(i);
            return 0;
        }
        if (!str_double(text, &x))
            return 0;
    } else if (in->type == VALUE_FLOAT) {
        x = in->u.number;
    } else {
        return 0;
    }
    if (x > -9.2e18 && x < 9.2e18)
        *out = value_int((int64_t)x);
    else if (isfinite(x))
        return scratch_fail(r->s, "integers of more than 64 bits are not supported");
    return 0;
}

static int run_float(struct render *r, struct value *out, const struct value *in,
                     const struct value *const *arg)
{
    struct value stripped;
    char *text;
    double x;

    if (use_undefined(r, in) < 0)
        return -1;
    *out = arg[0] ? *arg[0] : value_float(0);
    if (in->type == VALUE_BIG) {
        *out = value_float(strtod(in->u.text->s, NULL)); /* a NUL follows in JSON's */
    } else if (value_is_number(in)) {
        *out = value_float(value_to_double(in));
    } else if (in->type == VALUE_TEXT) {
        if (strings_strip(r->s, &stripped, in->u.text, NULL, STRINGS_BOTH) < 0)
            return -1;
        text = scratch_take(r->s, stripped.u.text->n + 1);
        if (!text)
            return -1;
        if (stripped.u.text->n)
            memcpy(text, stripped.u.text->s, stripped.u.text->n);
        text[stripped.u.text->n] = '\0';
        if (str_double(text, &x))
            *out = value_float(x);
    }
    return 0;
}

static int run_abs(struct render *r, struct value *out, const struct value *in,
                   const struct value *const *arg)
{
    (void)arg;
    if (use_undefined(r, in) < 0)
        return -1;
    if (!value_is_number(in) || (value_is_integer(in) && value_to_int(in) == INT64_MIN))
        return scratch_fail(r->s, "abs of a %s", value_type_name(in));
    *out = in->type == VALUE_FLOAT ? value_float(fabs(in->u.number))
                                   : value_int(llabs(value_to_int(in)));
    return 0;
}

/* Python rounds half to even: the default of precision 0 is what fits in a double. */
static int run_round(struct render *r, struct value *out, const struct value *in,
                     const struct value *const *arg)
{
    int64_t precision = arg[0] && value_is_integer(arg[0]) ? value_to_int(arg[0]) : 0;
    char buf[400];
    double x;

    if (use_undefined(r, in) < 0)
        return -1;
    if (!value_is_number(in) || precision < 0 || precision > 15)
        return scratch_fail(r->s, "round of a %s to %lld digits", value_type_name(in),
                            (long long)precision);
    x = value_to_double(in);
    if (arg[1] && arg[1]->type == VALUE_TEXT && !text_is(arg[1]->u.text, "common")) {
        double power = pow(10, (double)precision);
        bool up = text_is(arg[1]->u.text, "ceil");

        *out = value_float((up ? ceil(x * power) : floor(x * power)) / power);
        return 0;
    }
    if (value_is_integer(in)) {
        *out = value_int(value_to_int(in));
        return 0;
    }
    if (fabs(x) > 1e300) {
        *out = value_float(x);
        return 0;
    }
    snprintf(buf, sizeof(buf), "%.*f", (int)precision, x);
    *out = value_float(strtod(buf, NULL));
    return 0;
}

/* ---- any value ---- */

static int run_default(struct render *r, struct value *out, const struct value *in,
                       const struct value *const *arg)
{
    bool missing = in->type == VALUE_UNDEFINED ||
                   (arg[1] && value_is_true(arg[1]) && !value_is_true(in));

    if (!missing)
        *out = *in;
    else if (arg[0])
        *out = *arg[0];
    else
        return value_text(r->s, out, "", NULL, 0);
    return 0;
}

static int run_length(struct render *r, struct value *out, const struct value *in,
                      const struct value *const *arg)
{
    size_t n;

    (void)arg;
    if (!value_length(in, &n))
        return scratch_fail(r->s, "object of type '%s' has no len()",
                            value_type_name(in));
    *out = value_int((int64_t)n);
    return scratch_step(r->s, in->type == VALUE_TEXT ? in->u.text->n : 0);
}

/* ---- lists ---- */

/* A list of the elements of IN that may be changed. */
static int copy_list(struct render *r, struct value *out, const struct value *in)
{
    const struct list *l;

    if (value_elements(r->s, &l, in) < 0 || scratch_step(r->s, 8 * l->n) < 0 ||
        value_list(r->s, out, VALUE_LIST, l->n) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++)
        out->u.list->v[i] = list_at(l, i);
    return 0;
}

static int run_list(struct render *r, struct value *out, const struct value *in,
                    const struct value *const *arg)
{
    (void)arg;
    return copy_list(r, out, in);
}

static int run_first(struct render *r, struct value *out, const struct value *in,
                     const struct value *const *arg)
{
    const struct list *l;

    (void)arg;
    if (value_elements(r->s, &l, in) < 0)
        return -1;
    *out = l->n ? list_at(l, 0) : value_undefined("no first item, sequence was empty");
    return 0;
}

static int run_last(struct render *r, struct value *out, const struct value *in,
                    const struct value *const *arg)
{
    const struct list *l;

    (void)arg;
    if (in->type == VALUE_ITERATOR)
        return scratch_fail(r->s, "'generator' object is not reversible");
    if (value_elements(r->s, &l, in) < 0)
        return -1;
    *out = l->n ? list_at(l, l->n - 1)
                : value_undefined("no last item, sequence was empty");
    return 0;
}

static int run_reverse(struct render *r, struct value *out, const struct value *in,
                       const struct value *const *arg)
{
    struct builder b = builder_start(r->s);
    size_t n;

    (void)arg;
    if (copy_list(r, out, in) < 0)
        return -1;
    n = out->u.list->n;
    for (size_t i = 0; i < n / 2; i++) {
        struct value v = out->u.list->v[i];

        out->u.list->v[i] = out->u.list->v[n - 1 - i];
        out->u.list->v[n - 1 - i] = v;
    }
    if (in->type != VALUE_TEXT) {
        out->type = VALUE_ITERATOR;
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        if (builder_add_text(&b, out->u.list->v[i].u.text) < 0)
            return -1;
    return builder_value(&b, out);
}

static int run_items(struct render *r, struct value *out, const struct value *in,
                     const struct value *const *arg)
{
    const struct dict *d = in->u.dict;

    (void)arg;
    if (in->type == VALUE_UNDEFINED)
        return value_list(r->s, out, VALUE_ITERATOR, 0);
    if (in->type != VALUE_DICT)
        return scratch_fail(r->s, "can only get item pairs from a mapping, not %s",
                            value_type_name(in));
    if (scratch_step(r->s, 64 * d->n) < 0 ||
        value_list(r->s, out, VALUE_ITERATOR, d->n) < 0)
        return -1;
    for (size_t i = 0; i < d->n; i++)
        if (value_pair(r->s, &out->u.list->v[i], d->key[i], d->value[i]) < 0)
            return -1;
    return 0;
}

/* What sort, unique, min and max compare: texts in lower case unless SENSITIVE. */
static int sort_keys(struct render *r, struct value *out, const struct list *l,
                     const struct value *attribute, bool sensitive)
{
    if (value_list(r->s, out, VALUE_LIST, l->n) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        struct value *v = &out->u.list->v[i];

        *v = list_at(l, i);
        if ((attribute && attribute->type != VALUE_NONE &&
             lookup_path(r->s, v, v, attribute) < 0) ||
            (!sensitive && v->type == VALUE_TEXT &&
             strings_to_case(r->s, v, v->u.text, STRINGS_LOWER) < 0))
            return -1;
    }
    return 0;
}

static int sorted(struct render *r, struct value *out, const struct list *l,
                  const struct value *keys, bool descending)
{
    size_t *order, n = l->n;

    if (descending) {
        /* equal ones keep their order: sort the reverse, then reverse the result */
        struct value *v = keys->u.list->v;

        for (size_t i = 0; i < n / 2; i++) {
            struct value t = v[i];

            v[i] = v[n - 1 - i];
            v[n - 1 - i] = t;
        }
    }
    if (sorting_order(r->s, &order, keys->u.list->v, n) < 0 ||
        value_list(r->s, out, VALUE_LIST, n) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        out->u.list->v[i] =
            list_at(l, descending ? n - 1 - order[n - 1 - i] : order[i]);
    return 0;
}

/* The same for sort, whose keys are lists: of several attributes, with commas. */
static int sort_lists(struct render *r, struct value *out, const struct list *l,
                      const struct value *attribute, bool sensitive)
{
    const struct text comma = { .s = ",", .n = 1 };
    const struct value none = value_none();
    struct value names;

    if (value_list(r->s, &names, VALUE_LIST, 1) < 0)
        return -1;
    names.u.list->v[0] = attribute ? *attribute : none;
    if ((attribute && attribute->type == VALUE_TEXT &&
         strings_split(r->s, &names, attribute->u.text, &comma, -1) < 0) ||
        value_list(r->s, out, VALUE_LIST, l->n) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++)
        if (value_list(r->s, &out->u.list->v[i], VALUE_LIST, names.u.list->n) < 0)
            return -1;
    for (size_t k = 0; k < names.u.list->n; k++) {
        struct value keys;

        if (sort_keys(r, &keys, l, &names.u.list->v[k], sensitive) < 0)
            return -1;
        for (size_t i = 0; i < l->n; i++)
            out->u.list->v[i].u.list->v[k] = keys.u.list->v[i];
    }
    return 0;
}

static int run_sort(struct render *r, struct value *out, const struct value *in,
                    const struct value *const *arg)
{
    const struct list *l;
    struct value keys;

    if (value_elements(r->s, &l, in) < 0 ||
        sort_lists(r, &keys, l, arg[2], arg[1] && value_is_true(arg[1])) < 0)
        return -1;
    return sorted(r, out, l, &keys, arg[0] && value_is_true(arg[0]));
}

static int run_dictsort(struct render *r, struct value *out, const struct value *in,
                        const struct value *const *arg)
{
    bool by_value =
        arg[1] && arg[1]->type == VALUE_TEXT && text_is(arg[1]->u.text, "value");
    struct value pairs, keys, at = value_int(by_value);
    const struct value *none[MOST_PARAMETERS] = { NULL };

    if (use_undefined(r, in) < 0 || run_items(r, &pairs, in, none) < 0 ||
        sort_keys(r, &keys, pairs.u.list, &at, arg[0] && value_is_true(arg[0])) < 0)
        return -1;
    return sorted(r, out, pairs.u.list, &keys, arg[2] && value_is_true(arg[2]));
}

static int run_unique(struct render *r, struct value *out, const struct value *in,
                      const struct value *const *arg)
{
    const struct list *l;
    struct value keys, seen;
    size_t n = 0;

    if (value_elements(r->s, &l, in) < 0 ||
        sort_keys(r, &keys, l, arg[1], arg[0] && value_is_true(arg[0])) < 0 ||
        value_dict(r->s, &seen, VALUE_DICT) < 0 ||
        value_list(r->s, out, VALUE_ITERATOR, l->n) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        size_t at;

        if (dict_find(r->s, seen.u.dict, &keys.u.list->v[i], &at) < 0)
            return -1;
        if (at != SIZE_MAX)
            continue;
        if (dict_set(r->s, seen.u.dict, keys.u.list->v[i], value_none()) < 0)
            return -1;
        out->u.list->v[n++] = list_at(l, i);
    }
    out->u.list->n = n;
    return 0;
}

static int extreme(struct render *r, struct value *out, const struct value *in,
                   const struct value *const *arg, bool largest)
{
    const struct list *l;
    struct value keys;
    size_t best = 0;

    if (value_elements(r->s, &l, in) < 0 ||
        sort_keys(r, &keys, l, arg[1], arg[0] && value_is_true(arg[0])) < 0)
        return -1;
    for (size_t i = 1; i < l->n; i++) {
        const struct value *a = &keys.u.list->v[i], *b = &keys.u.list->v[best];
        bool better;

        if ((largest ? value_less(r->s, &better, ">", b, a)
                     : value_less(r->s, &better, "<", a, b)) < 0)
            return -1;
        best = better ? i : best;
    }
    *out = l->n ? list_at(l, best)
                : value_undefined("no aggregated item, sequence was empty");
    return 0;
}

static int run_min(struct render *r, struct value *out, const struct value *in,
                   const struct value *const *arg)
{
    return extreme(r, out, in, arg, false);
}

static int run_max(struct render *r, struct value *out, const struct value *in,
                   const struct value *const *arg)
{
    return extreme(r, out, in, arg, true);
}

/* ---- map and select ---- */

static const char *name_of(struct render *r, const struct value *v)
{
    char *name;

    if (v->type != VALUE_TEXT) {
        scratch_fail(r->s, "the name of a filter or test is a %s", value_type_name(v));
        return NULL;
    }
    name = scratch_take(r->s, v->u.text->n + 1);
    if (!name)
        return NULL;
    if (v->u.text->n)
        memcpy(name, v->u.text->s, v->u.text->n);
    name[v->u.text->n] = '\0';
    return name;
}

static const struct value *keyword(const struct arguments *a, const char *name)
{
    for (size_t i = 0; i < a->n_keywords; i++)
        if (!strcmp(a->keyword[i].name, name))
            return &a->keyword[i].value;
    return NULL;
}

/* map(attribute="name", default=x) or map("filter", arguments...) */
static int run_map(struct render *r, struct value *out, const struct value *in,
                   const struct arguments *a)
{
    const struct value *path = keyword(a, "attribute");
    const struct value *otherwise = keyword(a, "default");
    const struct filter *f = NULL;
    struct arguments rest = { 0 };
    const struct list *l;

    if (!a->n && path) {
        if (a->n_keywords != 1u + !!otherwise)
            return scratch_fail(r->s, "map: an argument is not supported");
    } else {
        const char *name = a->n ? name_of(r, a->v) : NULL;

        if (!a->n)
            return scratch_fail(r->s, "map requires a filter argument");
        if (!name)
            return -1;
        f = filter_find(name);
        if (!f)
            return scratch_fail(r->s, "the filter '%.60s' is not supported", name);
        rest = *a;
        rest.v++;
        rest.n--;
    }
    if (!value_is_true(in))
        return value_list(r->s, out, VALUE_ITERATOR, 0);
    if (value_elements(r->s, &l, in) < 0 ||
        value_list(r->s, out, VALUE_ITERATOR, l->n) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        struct value v = list_at(l, i), *to = &out->u.list->v[i];

        if (scratch_step(r->s, 0) < 0 ||
            (f ? filter_run(r, to, f, &v, &rest) : lookup_path(r->s, to, &v, path)) < 0)
            return -1;
        if (!f && otherwise && to->type == VALUE_UNDEFINED)
            *to = *otherwise;
    }
    return 0;
}

/* Keeps the elements for which a test is WANTED: of each itself, or of an attribute. */
static int choose(struct render *r, struct value *out, const struct value *in,
                  const struct arguments *a, bool by_attribute, bool wanted)
{
    struct arguments rest = *a;
    const struct value *path = NULL;
    const struct test *t = NULL;
    const struct list *l;
    size_t n = 0;

    if (by_attribute) {
        if (!rest.n)
            return scratch_fail(r->s, "an attribute's name is missing");
        path = rest.v++;
        rest.n--;
    }
    if (rest.n) {
        const char *name = name_of(r, rest.v);

        if (!name)
            return -1;
        t = test_find(name);
        if (!t)
            return scratch_fail(r->s, "the test '%.60s' is not supported", name);
        rest.v++;
        rest.n--;
    }
    if (!value_is_true(in))
        return value_list(r->s, out, VALUE_ITERATOR, 0);
    if (value_elements(r->s, &l, in) < 0 ||
        value_list(r->s, out, VALUE_ITERATOR, l->n) < 0)
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        struct value e = list_at(l, i), v = e;
        bool is;

        if (scratch_step(r->s, 0) < 0 || (path && lookup_path(r->s, &v, &e, path) < 0))
            return -1;
        is = value_is_true(&v);
        if (t && test_run(r, &is, t, &v, &rest) < 0)
            return -1;
        if (is == wanted)
            out->u.list->v[n++] = e;
    }
    out->u.list->n = n;
    return 0;
}

static int run_select(struct render *r, struct value *out, const struct value *in,
                      const struct arguments *a)
{
    return choose(r, out, in, a, false, true);
}

static int run_reject(struct render *r, struct value *out, const struct value *in,
                      const struct arguments *a)
{
    return choose(r, out, in, a, false, false);
}

static int run_selectattr(struct render *r, struct value *out, const struct value *in,
                          const struct arguments *a)
{
    return choose(r, out, in, a, true, true);
}

static int run_rejectattr(struct render *r, struct value *out, const struct value *in,
                          const struct arguments *a)
{
    return choose(r, out, in, a, true, false);
}

static const struct filter filters[] = {
    { "tojson", { "ensure_ascii indent separators sort_keys", 0 }, run_tojson, NULL },
    { "length", { "", 0 }, run_length, NULL },
    { "count", { "", 0 }, run_length, NULL },
    { "trim", { "chars", 0 }, run_trim, NULL },
    { "string", { "", 0 }, run_string, NULL },
    { "default", { "default_value boolean", 0 }, run_default, NULL },
    { "d", { "default_value boolean", 0 }, run_default, NULL },
    { "join", { "d attribute", 0 }, run_join, NULL },
    { "lower", { "", 0 }, run_lower, NULL },
    { "upper", { "", 0 }, run_upper, NULL },
    { "capitalize", { "", 0 }, run_capitalize, NULL },
    { "title", { "", 0 }, run_title, NULL },
    { "items", { "", 0 }, run_items, NULL },
    { "safe", { "", 0 }, run_safe, NULL },
    { "dictsort", { "case_sensitive by reverse", 0 }, run_dictsort, NULL },
    { "list", { "", 0 }, run_list, NULL },
    { "replace", { "old new count", 2 }, run_replace, NULL },
    { "indent", { "width first blank", 0 }, run_indent, NULL },
    { "format", { "", 0 }, NULL, run_format },
    { "int", { "default base", 0 }, run_int, NULL },
    { "float", { "default", 0 }, run_float, NULL },
    { "abs", { "", 0 }, run_abs, NULL },
    { "round", { "precision method", 0 }, run_round, NULL },
    { "first", { "", 0 }, run_first, NULL },
    { "last", { "", 0 }, run_last, NULL },
    { "reverse", { "", 0 }, run_reverse, NULL },
    { "sort", { "reverse case_sensitive attribute", 0 }, run_sort, NULL },
    { "unique", { "case_sensitive attribute", 0 }, run_unique, NULL },
    { "min", { "case_sensitive attribute", 0 }, run_min, NULL },
    { "max", { "case_sensitive attribute", 0 }, run_max, NULL },
    { "map", { "", 0 }, NULL, run_map },
    { "select", { "", 0 }, NULL, run_select },
    { "reject", { "", 0 }, NULL, run_reject },
    { "selectattr", { "", 0 }, NULL, run_selectattr },
    { "rejectattr", { "", 0 }, NULL, run_rejectattr },
};

const struct filter *filter_find(const char *name)
{
    for (size_t i = 0; i < sizeof(filters) / sizeof(*filters); i++)
        if (!strcmp(name, filters[i].name))
            return &filters[i];
    return NULL;
}

int filter_run(struct render *r, struct value *out, const struct filter *f,
               const struct value *in, const struct arguments *a)
{
    const struct value *arg[MOST_PARAMETERS];

    if (f->run_any)
        return f->run_any(r, out, in, a);
    if (render_bind(r, f->name, &f->parameters, a, arg) < 0)
        return -1;
    return f->run(r, out, in, arg);
}
