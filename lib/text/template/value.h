/* value - what a template computes with: Python's values, and marks on characters
 *
 * Values are small and copied freely; what they point to lives in a scratch and does
 * not change, except a namespace, an iterator and a loop.  Text is well-formed UTF-8;
 * each byte has a mark, bits of enum chat_mark, by which the origin of every character
 * of the result is known. */
#ifndef LIB_TEXT_TEMPLATE_VALUE_H
#define LIB_TEXT_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/text/template/scratch.h"

enum value_type {
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_BIG, /* an integer of more than 64 bits, which is only printed */
    VALUE_FLOAT,
    VALUE_TEXT,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_RANGE,
    VALUE_VIEW,     /* keys, values or items of a dict */
    VALUE_ITERATOR, /* the result of a filter such as map; it is read once */
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_METHOD,
    VALUE_FUNCTION
};

struct text {
    const char *s;             /* [n], not NUL-terminated */
    const unsigned char *mark; /* [n]; NULL: all zero */
    size_t n;
    bool safe; /* marked by the filter safe: what is added to it is escaped for HTML */
};

struct value {
    enum value_type type;
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *cause;       /* of an undefined value: what to say if it is used */
        const struct text *text; /* also of a big integer: its digits */
        struct list *list;       /* list, tuple, range, view, iterator */
        struct dict *dict;       /* dict, namespace */
        struct loop *loop;
        struct macro *macro;
        const struct method_call *method;
        const struct function *function;
    } u;
};

struct list {
    size_t n;
    struct value *v;           /* [n]; NULL: a range */
    int64_t start, stop, step; /* of a range */
    const char *kind;          /* of a view, such as "dict_keys" */
    bool spent;                /* an iterator was read */
};

struct dict {
    size_t n, cap;
    struct value *key, *value; /* [n], in order of insertion */
    uint32_t *slot;            /* [slots] of index + 1, where n is large; else NULL */
    size_t slots;              /* a power of two */
};

/* ---- making values ---- */

static inline struct value value_undefined(const char *cause)
{
    return (struct value){ VALUE_UNDEFINED, { .cause = cause } };
}
static inline struct value value_none(void)
{
    return (struct value){ VALUE_NONE, { .integer = 0 } };
}
static inline struct value value_bool(bool b)
{
    return (struct value){ VALUE_BOOL, { .boolean = b } };
}
static inline struct value value_int(int64_t i)
{
    return (struct value){ VALUE_INT, { .integer = i } };
}
static inline struct value value_float(double x)
{
    return (struct value){ VALUE_FLOAT, { .number = x } };
}
/* Those below allocate and can fail. The bytes S[n] and MARK[n] (or NULL) are borrowed
 * and must live as long as the scratch. */
MUST_CHECK int value_text(struct scratch *s, struct value *out, const char *bytes,
                          const unsigned char *mark, size_t n);
/* The range [start, end) of T's bytes. */
MUST_CHECK int value_slice(struct scratch *s, struct value *out, const struct text *t,
                           size_t start, size_t end);
/* A list, tuple, view or iterator of N values, which are not set. */
MUST_CHECK int value_list(struct scratch *s, struct value *out, enum value_type type,
                          size_t n);
MUST_CHECK int value_pair(struct scratch *s, struct value *out, struct value a,
                          struct value b);
MUST_CHECK int value_dict(struct scratch *s, struct value *out, enum value_type type);
/* "UNDEFINED cause" with a formatted text. */
MUST_CHECK int value_missing(struct scratch *s, struct value *out, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The value of JSON, whose texts are borrowed.  ONES are at least as many marks as its
 * longest string has bytes, or NULL. */
MUST_CHECK int value_of_json(struct scratch *s, struct value *out, const struct json *j,
                             const unsigned char *ones);

/* ---- looking at them ---- */

/* Python's name of the type, for messages: "str", "dict object". */
const char *value_type_name(const struct value *v);
bool value_is_true(const struct value *v);
/* Number of elements; false when Python's len() raises TypeError. */
bool value_length(const struct value *v, size_t *n);
size_t value_chars(const struct text *t); /* number of code points */
static inline bool value_is_text(const struct value *v)
{
    return v->type == VALUE_TEXT;
}
bool value_is_number(const struct value *v);  /* bool, int, float */
bool value_is_integer(const struct value *v); /* bool, int that fits: value_to_int */
int64_t value_to_int(const struct value *v);
double value_to_double(const struct value *v);

struct value list_at(const struct list *l, size_t i);

/* Python's == and <.  *less fails for types that have no order. */
MUST_CHECK int value_equal(struct scratch *s, bool *equal, const struct value *a,
                           const struct value *b);
MUST_CHECK int value_less(struct scratch *s, bool *less, const char *op,
                          const struct value *a, const struct value *b);
bool text_is(const struct text *t, const char *word);
int text_compare(const struct text *a, const struct text *b);

/* The elements of V as a list: Python's iter().  A text gives its characters, a dict
 * its keys, an undefined value nothing. */
MUST_CHECK int value_elements(struct scratch *s, const struct list **out,
                              const struct value *v);

/* ---- dicts ---- */

/* *at is the index of KEY, or SIZE_MAX.  Fails for a key that cannot be hashed. */
MUST_CHECK int dict_find(struct scratch *s, const struct dict *d,
                         const struct value *key, size_t *at);
/* The value of the text KEY, or NULL. */
MUST_CHECK int dict_get(struct scratch *s, const struct value **out,
                        const struct dict *d, const char *key);
MUST_CHECK int dict_set(struct scratch *s, struct dict *d, struct value key,
                        struct value value);
/* *is: can V be a key? */
MUST_CHECK int value_is_hashable(struct scratch *s, bool *is, const struct value *v);

#endif
