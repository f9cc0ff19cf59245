/* jsonschema - the texts of JSON that a JSON schema describes, as terms */
#include "lib/text/grammar/jsonschema.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/grammar/numbers.h"
#include "lib/text/grammar/regex.h"

enum {
    MOST_TOGETHER = 64, /* schemas that one value meets */
    MOST_KNOWN = 5000,  /* sets of such schemas */
    MOST_DEPTH = 500,
    MOST_NAME = 512, /* bytes of a property's name, beside which others are allowed */
    MOST_COUNT = 1000000,
    LOOKS = 100 /* times that a keyword is looked for in a schema, at most */
};

enum type { NUL, BOOLEAN, INTEGER, NUMBER, STRING, ARRAY, OBJECT, NTYPES };
static const char *const type_names[NTYPES] = { "null",   "boolean", "integer",
                                                "number", "string",  "array",
                                                "object" };
enum { ANY_TYPE = (1 << NTYPES) - 1 };

/* A schema of those that one value meets; alternatives of which one has been taken. */
struct part {
    const struct json *schema;
    bool any_of, one_of;
};

struct all {
    struct part v[MOST_TOGETHER];
    size_t n;
};

struct known {
    struct part *v; /* [n] */
    size_t n;
    uint32_t rule;
};

struct maker {
    struct terms *t;
    const struct json_doc *doc;
    const struct json *root; /* to which references are relative */
    struct err *err;
    uint32_t unit, string, value, space, comma;
    struct known *known; /* [nknown] */
    size_t nknown, cap;
    int depth;
};

static int refuse(const struct maker *m, const struct json *at, const char *word,
                  const char *what)
{
    return json_error(m->doc, at, m->err, "'%s' %s", word, what);
}

static int unsupported(const struct maker *m, const struct json *at, const char *word)
{
    return refuse(m, at, word, "is not supported");
}

/* Schemas come from strangers: each loop over one of their lists takes N steps. */
static int spend(const struct maker *m, size_t n)
{
    return terms_spend(m->t, n)
               ? 0
               : json_error(m->doc, NULL, m->err, "%s", terms_failed(m->t));
}

static uint32_t literal(const struct maker *m, const char *text)
{
    return terms_literal(m->t, text, strlen(text));
}

/* ---- any JSON ---- */

/* A character of a string: as it is, or escaped; surrogates are not. */
static uint32_t string_unit(struct terms *t)
{
    const uint32_t digit = terms_range(t, '0', '9');
    const uint32_t hex = terms_alt(
        t, digit, terms_alt(t, terms_range(t, 'a', 'f'), terms_range(t, 'A', 'F')));
    const uint32_t d = terms_alt(t, terms_range(t, 'd', 'd'), terms_range(t, 'D', 'D'));
    uint32_t first = digit, out, code, letter = TERM_NONE;

    first = terms_alt(t, first, terms_range(t, 'a', 'c'));
    first = terms_alt(t, first, terms_range(t, 'A', 'C'));
    first = terms_alt(t, first, terms_range(t, 'e', 'f'));
    first = terms_alt(t, first, terms_range(t, 'E', 'F'));
    code = terms_alt(
        t, terms_cat(t, first, terms_repeat(t, hex, 3, 3)),
        terms_cat(t, d,
                  terms_cat(t, terms_range(t, '0', '7'), terms_repeat(t, hex, 2, 2))));
    for (const char *p = "\"\\/bfnrt"; *p; p++)
        letter = terms_alt(t, letter, terms_range(t, (unsigned)*p, (unsigned)*p));
    out = terms_cat(t, terms_range(t, 'u', 'u'), code);
    out = terms_cat(t, terms_range(t, '\\', '\\'), terms_alt(t, letter, out));
    out = terms_alt(t, out, regex_characters(t, 0x20, 0x21));
    out = terms_alt(t, out, regex_characters(t, 0x23, 0x5b));
    return terms_alt(t, out, regex_characters(t, 0x5d, 0x10ffff));
}

static uint32_t quoted(const struct maker *m, uint32_t inside)
{
    const uint32_t quote = literal(m, "\"");

    return terms_cat(m->t, quote, terms_cat(m->t, inside, quote));
}

/* OPEN and CLOSE around INSIDE, with space. */
static uint32_t enclosed(const struct maker *m, const char *open, uint32_t inside,
                         const char *close)
{
    uint32_t out = terms_cat(m->t, m->space, literal(m, close));

    out = terms_cat(m->t, inside, out);
    return terms_cat(m->t, literal(m, open), terms_cat(m->t, m->space, out));
}

static uint32_t member(const struct maker *m, uint32_t key, uint32_t value)
{
    return terms_cat(
        m->t, key, terms_cat(m->t, literal(m, ":"), terms_cat(m->t, m->space, value)));
}

/* From MIN to MAX times ONE, with commas. */
static uint32_t list(const struct maker *m, uint32_t one, uint32_t min, uint32_t max)
{
    const uint32_t next = terms_cat(m->t, m->comma, one);
    uint32_t out;

    if (!max || max < min)
        return max < min ? TERM_NONE : TERM_EMPTY;
    out = terms_repeat(m->t, next, min ? min - 1 : 0,
                       max == TERMS_MANY ? TERMS_MANY : max - 1);
    out = terms_cat(m->t, one, out);
    return min ? out : terms_optional(m->t, out);
}

static uint32_t any_of_type(const struct maker *m, enum type type)
{
    static const struct number_bound none = { 0 };
    uint32_t out = TERM_NONE;

    switch (type) {
    case NUL:
        return literal(m, "null");
    case BOOLEAN:
        return terms_alt(m->t, literal(m, "true"), literal(m, "false"));
    case STRING:
        return m->string;
    case ARRAY:
        return enclosed(m, "[", list(m, m->value, 0, TERMS_MANY), "]");
    case OBJECT:
        return enclosed(m, "{", list(m, member(m, m->string, m->value), 0, TERMS_MANY),
                        "}");
    default:
        return numbers_between(m->t, type == INTEGER, &none, &none, &out, m->err) < 0
                   ? TERM_NONE
                   : out;
    }
}

static void make_basics(struct maker *m)
{
    struct terms *t = m->t;
    uint32_t any = TERM_NONE;

    m->unit = string_unit(t);
    m->string = quoted(m, terms_repeat(t, m->unit, 0, TERMS_MANY));
    m->space = terms_alt(t, terms_repeat(t, literal(m, " "), 0, 24),
                         terms_repeat(t, literal(m, "\t"), 0, 8));
    m->space = terms_cat(t, literal(m, "\n"), m->space);
    m->space = terms_optional(t, terms_alt(t, m->space, literal(m, " ")));
    m->comma = terms_cat(t, literal(m, ","), m->space);
    m->value = terms_rule(t);
    for (enum type i = 0; i < NTYPES; i++)
        if (i != INTEGER)
            any = terms_alt(t, any, any_of_type(m, i));
    terms_define(t, m->value, any);
}

/* ---- keywords ---- */

static const struct json *get(const struct part *p, const char *word)
{
    return json_get(p->schema, word);
}

static bool has(const struct all *a, const char *word)
{
    for (size_t i = 0; i < a->n; i++)
        if (get(&a->v[i], word))
            return true;
    return false;
}

/* The keywords for which there is no form, unless they ask for nothing. */
static int check_words(const struct maker *m, const struct json *s)
{
    static const char *const never[] = {
        "not",
        "if",
        "contains",
        "minContains",
        "maxContains",
        "propertyNames",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedItems",
        "$dynamicRef",
        "$recursiveRef",
        "disallow",
        "extends",
    };
    const struct json *j = json_get(s, "uniqueItems");
    double x;

    for (size_t i = 0; i < sizeof(never) / sizeof(*never); i++)
        if (json_get(s, never[i]))
            return unsupported(m, json_get(s, never[i]), never[i]);
    if (j && j->type != JSON_FALSE)
        return unsupported(m, j, "uniqueItems");
    j = json_get(s, "unevaluatedProperties");
    if (j && j->type != JSON_FALSE && j->type != JSON_TRUE)
        return unsupported(m, j, "unevaluatedProperties");
    j = json_get(s, "multipleOf");
    if (j && !(json_double(j, &x) && x == 1 && json_string(json_get(s, "type")) &&
               !strcmp(json_string(json_get(s, "type")), "integer")))
        return unsupported(m, j, "multipleOf");
    return 0;
}

static int take_count(const struct maker *m, const struct json *j, uint32_t *out)
{
    uint64_t n;
    double x;

    if (!json_u64(j, &n)) {
        if (!json_double(j, &x) || !(x >= 0 && x <= MOST_COUNT) ||
            x != (double)(uint32_t)x)
            return refuse(m, j, j->key, "is no count");
        n = (uint64_t)x;
    }
    if (n > MOST_COUNT)
        return refuse(m, j, j->key, "is above 1000000");
    *out = (uint32_t)n;
    return 0;
}

/* The largest of the counts WORD, or the smallest. */
static int count_of(const struct maker *m, const struct all *a, const char *word,
                    bool largest, uint32_t *out)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct json *j = get(&a->v[i], word);
        uint32_t n = 0;

        if (!j)
            continue;
        if (take_count(m, j, &n) < 0)
            return -1;
        if (largest ? n > *out : n < *out)
            *out = n;
    }
    return 0;
}

/* ---- references ---- */

/* Reads the next part of a JSON pointer (RFC 6901), which a URI may escape. */
static void pointer_part(const char **p, struct str *out)
{
    str_reset(out);
    while (**p && **p != '/') {
        unsigned c = (unsigned char)*(*p)++;
        char hex[3] = "";

        if (c == '%' && (*p)[0] && (*p)[1]) {
            char *end;

            memcpy(hex, *p, 2);
            c = (unsigned)strtoul(hex, &end, 16);
            *p += 2;
        }
        if (c == '~' && (**p == '0' || **p == '1'))
            c = *(*p)++ == '0' ? '~' : '/';
        str_addc(out, (char)c);
    }
}

static const struct json *step(const struct maker *m, const struct json *j,
                               const char *name)
{
    uint64_t n;

    if (spend(m, j->n) < 0)
        return NULL;
    if (j->type != JSON_ARRAY)
        return json_get(j, name);
    if (!str_u64(name, &n))
        return NULL;
    for (j = j->first; j && n; n--)
        j = j->next;
    return j;
}

static int resolve(const struct maker *m, const struct json *ref,
                   const struct json **out)
{
    const char *p = json_string(ref);
    const struct json *at = m->root;
    struct str name = { 0 };

    if (!p || *p != '#' || (p[1] && p[1] != '/'))
        return refuse(m, ref, "$ref",
                      "is no reference such as \"#/$defs/NAME\" within the schema");
    for (p++; *p && at;) {
        p++;
        pointer_part(&p, &name);
        at = step(m, at, str_text(&name));
    }
    str_clear(&name);
    *out = at;
    if (spend(m, strlen(json_string(ref))) < 0)
        return -1;
    return at ? 0 : refuse(m, ref, "$ref", "refers to nothing");
}

/* Adds SCHEMA, and what it refers to or has to be met with it.  *NEVER: nothing meets
 * them. */
static int gather(struct maker *m, struct all *a, const struct json *schema,
                  bool *never)
{
    const struct json *ref, *j;
    size_t i = 0;
    int ret = 0;

    if (spend(m, MOST_TOGETHER) < 0)
        return -1;
    if (schema->type == JSON_TRUE)
        return 0;
    *never |= schema->type == JSON_FALSE;
    if (schema->type == JSON_FALSE)
        return 0;
    if (schema->type != JSON_OBJECT)
        return json_error(m->doc, schema, m->err,
                          "a schema is an object, or a boolean");
    while (i < a->n && a->v[i].schema != schema)
        i++;
    /* an alternative that leads back to those it is one of adds nothing to them */
    *never |= i < a->n && (a->v[i].any_of || a->v[i].one_of);
    if (i < a->n)
        return 0;
    if (a->n == MOST_TOGETHER)
        return json_error(m->doc, schema, m->err, "too many schemas of one value");
    if (spend(m, LOOKS * schema->n) < 0 || check_words(m, schema) < 0)
        return -1;
    a->v[a->n++] = (struct part){ .schema = schema };
    ref = json_get(schema, "$ref");
    if (ref && (resolve(m, ref, &j) < 0 || gather(m, a, j, never) < 0))
        return -1;
    j = json_get(schema, "allOf");
    if (j && j->type != JSON_ARRAY)
        return refuse(m, j, "allOf", "is no list");
    for (j = j ? j->first : NULL; j && ret == 0; j = j->next)
        ret = gather(m, a, j, never);
    return ret;
}

/* ---- what oneOf needs ---- */

static unsigned type_bit(const char *name)
{
    for (enum type i = 0; i < NTYPES; i++)
        if (!strcmp(name, type_names[i]))
            return i == NUMBER ? 1U << NUMBER | 1U << INTEGER : 1U << i;
    return 0;
}

static unsigned types_of_json(const struct json *j)
{
    static const unsigned bit[] = {
        [JSON_NULL] = 1U << NUL,      [JSON_FALSE] = 1U << BOOLEAN,
        [JSON_TRUE] = 1U << BOOLEAN,  [JSON_NUMBER] = 1U << NUMBER,
        [JSON_STRING] = 1U << STRING, [JSON_ARRAY] = 1U << ARRAY,
        [JSON_OBJECT] = 1U << OBJECT,
    };
    double x;

    if (j->type == JSON_NUMBER && json_double(j, &x) && x < 1e18 && x > -1e18 &&
        x == (double)(int64_t)x)
        return 1U << INTEGER | 1U << NUMBER;
    return bit[j->type];
}

static int add_types(const struct maker *m, const struct json *j, unsigned *out)
{
    unsigned types = 0;

    for (const struct json *k = j->type == JSON_ARRAY ? j->first : j; k;
         k = j->type == JSON_ARRAY ? k->next : NULL) {
        if (!json_string(k) || !type_bit(json_string(k)))
            return refuse(m, j, "type", "is no type of JSON");
        types |= type_bit(json_string(k));
    }
    *out &= types;
    return 0;
}

static bool is_same(const struct maker *m, const struct json *a, const struct json *b)
{
    struct str x = { 0 }, y = { 0 };
    double p, q;
    bool same;

    if (!terms_spend(m->t, 16) || a->type != b->type)
        return false;
    if (json_double(a, &p) && json_double(b, &q))
        return p == q;
    json_print(&x, a);
    json_print(&y, b);
    same = x.len == y.len && !memcmp(str_text(&x), str_text(&y), x.len);
    terms_spend(m->t, x.len + y.len);
    str_clear(&x);
    str_clear(&y);
    return same;
}

/* The values that S lists: one after another from *first on, *alone: that one only. */
static const struct json *values_of(const struct json *s, bool *alone)
{
    const struct json *j = json_get(s, "const"), *list_of = json_get(s, "enum");

    *alone = j != NULL;
    return j ? j : list_of ? list_of->first : NULL;
}

static bool share_value(const struct maker *m, const struct json *a,
                        const struct json *b)
{
    bool one, other;

    for (const struct json *x = values_of(a, &one); x; x = one ? NULL : x->next)
        for (const struct json *y = values_of(b, &other); y; y = other ? NULL : y->next)
            if (is_same(m, x, y) || terms_failed(m->t))
                return true;
    return false;
}

static bool requires(const struct json *s, const char *name)
{
    const struct json *j = json_get(s, "required");

    for (j = j && j->type == JSON_ARRAY ? j->first : NULL; j; j = j->next)
        if (json_string(j) && !strcmp(json_string(j), name))
            return true;
    return false;
}

/* Does A, an object, ask for what B has no room for? */
static bool asks_for_more(const struct maker *m, const struct json *a,
                          const struct json *b)
{
    const struct json *more = json_get(b, "additionalProperties");
    const struct json *j = json_get(a, "required"), *own = json_get(b, "properties");

    if (!more || more->type != JSON_FALSE || json_get(b, "patternProperties"))
        return false;
    for (j = j && j->type == JSON_ARRAY ? j->first : NULL; j; j = j->next)
        if (!terms_spend(m->t, own ? own->n : 1))
            return false;
        else if (json_string(j) && !json_get(own, json_string(j)))
            return true;
    return false;
}

static size_t size_of(const struct json *s, const char *word)
{
    const struct json *j = json_get(s, word);

    return j ? j->n : 0;
}

/* Is there no value that meets both?  False, too, where that needs too much work. */
static bool are_apart(const struct maker *m, const struct json *a, const struct json *b,
                      int depth)
{
    struct maker quiet = *m;
    struct err unused = { 0 };
    unsigned x = ANY_TYPE, y = ANY_TYPE;
    bool one;

    quiet.err = &unused;
    if (!terms_spend(m->t, 16 * (1 + (size_t)a->n + b->n)))
        return false;
    for (int i = 0; i < 16 && json_get(a, "$ref"); i++)
        if (resolve(&quiet, json_get(a, "$ref"), &a) < 0)
            return false;
    for (int i = 0; i < 16 && json_get(b, "$ref"); i++)
        if (resolve(&quiet, json_get(b, "$ref"), &b) < 0)
            return false;
    if (a->type != JSON_OBJECT || b->type != JSON_OBJECT || depth > 8)
        return a->type == JSON_FALSE || b->type == JSON_FALSE;
    if ((json_get(a, "type") && add_types(&quiet, json_get(a, "type"), &x) < 0) ||
        (json_get(b, "type") && add_types(&quiet, json_get(b, "type"), &y) < 0))
        return false;
    if (!(x & y))
        return true;
    if (values_of(a, &one) && values_of(b, &one) && !share_value(m, a, b))
        return true;
    if ((x & y) != 1U << OBJECT)
        return false;
    for (const struct json *p =
             json_get(a, "properties") ? json_get(a, "properties")->first : NULL;
         p; p = p->next) {
        const struct json *q;

        if (!terms_spend(m->t, 1 + size_of(b, "properties") + size_of(a, "required") +
                                   size_of(b, "required")))
            return false;
        q = json_get(json_get(b, "properties"), p->key);
        if (q && requires(a, p->key) && requires(b, p->key) &&
            are_apart(m, p, q, depth + 1))
            return true;
    }
    return asks_for_more(m, a, b) || asks_for_more(m, b, a);
}

static int check_one_of(const struct maker *m, const struct json *alternatives)
{
    for (const struct json *a = alternatives->first; a; a = a->next)
        for (const struct json *b = a->next; b; b = b->next)
            if (!are_apart(m, a, b, 0))
                return spend(m, 0) < 0
                           ? -1
                           : refuse(
                                 m, alternatives, "oneOf",
                                 "has alternatives that may both be met; use 'anyOf'");
    return 0;
}

/* ---- values ---- */

static int compile(struct maker *m, const struct all *a, bool never, uint32_t *out);

static int compile_one(struct maker *m, const struct json *schema, uint32_t *out)
{
    struct all a = { .n = 0 };
    bool never = false;

    return gather(m, &a, schema, &never) < 0 ? -1 : compile(m, &a, never, out);
}

static int make_numbers(struct maker *m, const struct all *a, bool integers,
                        uint32_t *out)
{
    struct number_bound bound[2] = { { 0 }, { 0 } };
    double value[2] = { 0, 0 };

    for (size_t i = 0; i < a->n; i++)
        for (int k = 0; k < 4; k++) {
            static const char *const words[] = { "minimum", "maximum",
                                                 "exclusiveMinimum",
                                                 "exclusiveMaximum" };
            const struct json *j = get(&a->v[i], words[k]);
            const bool draft4 = k < 2 && json_is_true(get(&a->v[i], words[k + 2]));
            struct number_bound *b = &bound[k % 2];
            double x;

            if (!j || (k >= 2 && (j->type == JSON_TRUE || j->type == JSON_FALSE)))
                continue;
            if (!json_double(j, &x))
                return refuse(m, j, words[k], "is no number");
            if (!b->text || (k % 2 ? x < value[1] : x > value[0])) {
                *b = (struct number_bound){ j->text, k >= 2 || draft4 };
                value[k % 2] = x;
            } else if (x == value[k % 2])
                b->open |= k >= 2 || draft4;
        }
    return numbers_between(m->t, integers, &bound[0], &bound[1], out, m->err);
}

/* Formats of strings, as the patterns that they have. */
static const struct {
    const char *name, *pattern;
} formats[] = {
#define DATE                                               \
    "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|" \
    "(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
#define TIME                                                   \
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?" \
    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE  "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define LABEL "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?"
    { "date", "^" DATE "$" },
    { "time", "^" TIME "$" },
    { "date-time", "^" DATE "T" TIME "$" },
    { "duration",
      "^P([1-9][0-9]{0,3}D(T[1-9][0-9]{0,3}[HMS])?|T[1-9][0-9]{0,3}[HMS])$" },
    { "email", "^[a-zA-Z0-9_+-]{1,20}(\\.[a-zA-Z0-9_+-]{1,20}){0,2}@" LABEL "(\\." LABEL
               "){1,3}$" },
    { "hostname", "^" LABEL "(\\." LABEL "){0,4}$" },
    { "ipv4", "^" BYTE "(\\." BYTE "){3}$" },
    { "ipv6", "^[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}$" },
    { "uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$" },
    { "uri", "^https?://" LABEL "(\\." LABEL "){0,4}(/[a-zA-Z0-9_.~-]{0,40}){0,8}$" },
};

static int pattern_of_format(const struct maker *m, const struct json *j,
                             const char **out)
{
    const char *name = json_string(j);

    for (size_t i = 0; name && i < sizeof(formats) / sizeof(*formats); i++)
        if (!strcmp(formats[i].name, name)) {
            *out = formats[i].pattern;
            return 0;
        }
    return json_error(m->doc, j, m->err, "'format' \"%s\" is not supported",
                      name ? name : "");
}

static int make_string(struct maker *m, const struct all *a, uint32_t *out)
{
    const char *pattern = NULL;
    uint32_t min = 0, max = TERMS_MANY;

    for (size_t i = 0; i < a->n; i++)
        for (int k = 0; k < 2; k++) {
            const struct json *j = get(&a->v[i], k ? "format" : "pattern");
            const char *text = json_string(j);

            if (!j)
                continue;
            if (k && pattern_of_format(m, j, &text) < 0)
                return -1;
            if (!text || strlen(text) != (k ? strlen(text) : j->n))
                return refuse(m, j, "pattern", "is no text");
            if (pattern && strcmp(pattern, text) != 0)
                return refuse(m, j, j->key, "beside another pattern is not supported");
            if (!pattern && regex_compile(m->t, text, REGEX_JSON, out, m->err) < 0)
                return err_prefix(m->err, "%s", m->doc->name);
            pattern = text;
        }
    if (count_of(m, a, "minLength", true, &min) < 0 ||
        count_of(m, a, "maxLength", false, &max) < 0)
        return -1;
    if (pattern && min)
        return json_error(m->doc, NULL, m->err,
                          "'minLength' beside a pattern is not supported");
    if (pattern && max < TERMS_MANY)
        return json_error(m->doc, NULL, m->err,
                          "'maxLength' beside a pattern is not supported");
    if (!pattern)
        *out = terms_repeat(m->t, m->unit, min, max);
    *out = quoted(m, *out);
    return 0;
}

/* ---- lists ---- */

static const struct json *prefix_of(const struct part *p)
{
    const struct json *j = get(p, "prefixItems"), *items = get(p, "items");

    if (j && j->type == JSON_ARRAY)
        return j;
    return items && items->type == JSON_ARRAY ? items : NULL;
}

/* What P says about elements that its prefix does not name. */
static const struct json *others_of(const struct part *p)
{
    const struct json *items = get(p, "items");

    return items && items->type != JSON_ARRAY ? items
           : items                            ? get(p, "additionalItems")
                                              : NULL;
}

/* Element I, or with I of SIZE_MAX one after all prefixes. */
static int make_element(struct maker *m, const struct all *a, size_t i, uint32_t *out)
{
    struct all own = { .n = 0 };
    bool never = false;

    for (size_t k = 0; k < a->n; k++) {
        const struct json *prefix = prefix_of(&a->v[k]), *j = others_of(&a->v[k]);

        if (prefix && i < prefix->n) {
            size_t at = 0;

            if (spend(m, i) < 0)
                return -1;
            for (j = prefix->first; at < i; at++)
                j = j->next;
        }
        if (j && gather(m, &own, j, &never) < 0)
            return -1;
    }
    return compile(m, &own, never, out);
}

static int make_array(struct maker *m, const struct all *a, uint32_t *out)
{
    uint32_t min = 0, max = TERMS_MANY, rest = TERM_NONE, one, tail;
    size_t n = 0;
    bool open = false;

    for (size_t k = 0; k < a->n; k++) {
        const struct json *prefix = prefix_of(&a->v[k]);

        n = prefix && prefix->n > n ? prefix->n : n;
        open |= others_of(&a->v[k]) != NULL;
    }
    if (count_of(m, a, "minItems", true, &min) < 0 ||
        count_of(m, a, "maxItems", false, &max) < 0)
        return -1;
    if ((!n || open || min > n) && make_element(m, a, SIZE_MAX, &rest) < 0)
        return -1;
    if (!n) {
        *out = enclosed(m, "[", list(m, rest, min, max), "]");
        return 0;
    }
    one = terms_cat(m->t, m->comma, rest);
    tail = max < n || rest == TERM_NONE
               ? (min > n ? TERM_NONE : TERM_EMPTY)
               : terms_repeat(m->t, one, min > n ? min - (uint32_t)n : 0,
                              max == TERMS_MANY ? max : max - (uint32_t)n);
    for (size_t i = n; i-- > 0;) {
        if (i >= max) {
            tail = i >= min ? TERM_EMPTY : TERM_NONE;
            continue;
        }
        if (make_element(m, a, i, &one) < 0)
            return -1;
        if (i)
            one = terms_cat(m->t, m->comma, one);
        tail = terms_cat(m->t, one, tail);
        if (i >= min)
            tail = terms_optional(m->t, tail);
    }
    *out = enclosed(m, "[", tail, "]");
    return 0;
}

/* ---- objects ---- */

struct names {
    const char **v; /* [n] */
    size_t n, cap;
};

static bool is_in(const struct names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++)
        if (!strcmp(names->v[i], name))
            return true;
    return false;
}

static int add_name(const struct maker *m, struct names *names, const char *name)
{
    if (spend(m, names->n) < 0)
        return -1;
    if (is_in(names, name))
        return 0;
    names->v = xgrow(names->v, &names->cap, names->n + 1, sizeof(*names->v));
    names->v[names->n++] = name;
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The characters of a key that is written as it is, but for the N ones OTHER, which
 * grow. */
static uint32_t key_characters(const struct maker *m, const uint32_t *other, size_t n)
{
    uint32_t out = TERM_NONE, from = 0x20;

    if (!terms_spend(m->t, (n + 2) * (n + 2)))
        return TERM_NONE;
    for (size_t i = 0; i <= n + 2 && from <= 0x10ffff; i++) {
        uint32_t stop = 0x110000;

        for (size_t k = 0; k < n + 2; k++) {
            const uint32_t c = k < n ? other[k] : k == n ? '"' : '\\';

            if (c >= from && c < stop)
                stop = c;
        }
        if (stop > from)
            out = terms_alt(m->t, out, regex_characters(m->t, from, stop - 1));
        from = stop + 1;
    }
    return out;
}

/* What may follow the first AT bytes of V[n], which are sorted and have these in
 * common, in a key that is none of them, with the quote that ends it. */
static uint32_t other_key(const struct maker *m, const char *const *v, size_t n,
                          size_t at)
{
    const uint32_t end = literal(m, "\"");
    const uint32_t any = terms_cat(
        m->t, terms_repeat(m->t, key_characters(m, NULL, 0), 0, TERMS_MANY), end);
    uint32_t out = n && !v[0][at] ? TERM_NONE : end;
    uint32_t *seen = xcalloc(n + 1, sizeof(*seen));
    size_t nseen = 0;

    if (!terms_spend(m->t, n))
        n = 0;
    for (size_t i = n && !v[0][at] ? 1 : 0, to; i < n; i = to) {
        uint32_t c;
        size_t used = str_utf8_decode(v[i] + at, strlen(v[i] + at), &c);

        for (to = i + 1; to < n && used && !strncmp(v[to] + at, v[i] + at, used);)
            to++;
        if (!used || c < 0x20 || c == '"' || c == '\\')
            continue; /* never written so */
        seen[nseen++] = c;
        out = terms_alt(m->t, out,
                        terms_cat(m->t, terms_literal(m->t, v[i] + at, used),
                                  other_key(m, v + i, to - i, at + used)));
    }
    out = terms_alt(m->t, out, terms_cat(m->t, key_characters(m, seen, nseen), any));
    free(seen);
    return out;
}

/* How many properties there may be, as of one that an object has. */
struct object {
    struct names names, required;
    bool closed;             /* no others */
    const struct json *each; /* the pattern of the others' names, or NULL */
    uint32_t other;          /* one of the others, with its name */
    uint32_t min, max;
};

static int gather_names(struct maker *m, const struct all *a, struct object *o)
{
    bool named = false, open = false;

    for (size_t i = 0; i < a->n; i++) {
        const struct json *own = get(&a->v[i], "properties");
        const struct json *more = get(&a->v[i], "additionalProperties");
        const struct json *left = get(&a->v[i], "unevaluatedProperties");
        const struct json *each = get(&a->v[i], "patternProperties");
        const struct json *need = get(&a->v[i], "required");

        if (own && own->type != JSON_OBJECT)
            return refuse(m, own, "properties", "is no object");
        named |= own && own->n;
        for (own = own ? own->first : NULL; own; own = own->next)
            if (add_name(m, &o->names, own->key) < 0)
                return -1;
        if (each && (each->type != JSON_OBJECT || each->n > 1 || o->each ||
                     get(&a->v[i], "properties")))
            return refuse(m, each, "patternProperties",
                          "is supported with one pattern and without 'properties'");
        if (each && each->n)
            o->each = each->first;
        o->closed |=
            (more && more->type == JSON_FALSE) || (left && left->type == JSON_FALSE);
        open |= more && more->type != JSON_FALSE;
        if (need && need->type != JSON_ARRAY && need->type != JSON_TRUE &&
            need->type != JSON_FALSE) /* which draft 3 has in properties */
            return refuse(m, need, "required", "is no list");
        for (need = need ? need->first : NULL; need; need = need->next) {
            if (!json_string(need))
                return refuse(m, need, "required", "has an element that is no text");
            if (add_name(m, &o->required, json_string(need)) < 0)
                return -1;
        }
    }
    if (o->each && o->names.n)
        return refuse(m, o->each, "patternProperties",
                      "is supported without 'properties'");
    o->closed |= named && !open;
    return 0;
}

/* The property NAME; NULL: one of the others. */
static int make_property(struct maker *m, const struct all *a, const char *name,
                         uint32_t *out)
{
    struct all own = { .n = 0 };
    bool never = false;

    for (size_t i = 0; i < a->n; i++) {
        const struct json *each = get(&a->v[i], "patternProperties");
        const struct json *j = name   ? json_get(get(&a->v[i], "properties"), name)
                               : each ? each->first
                                      : NULL;

        if (spend(m, name ? size_of(a->v[i].schema, "properties") : 0) < 0)
            return -1;
        if (!j)
            j = get(&a->v[i], "additionalProperties");
        if (j && gather(m, &own, j, &never) < 0)
            return -1;
    }
    return compile(m, &own, never, out);
}

static int make_other(struct maker *m, const struct all *a, struct object *o)
{
    uint32_t key = m->string, value;
    bool named = o->names.n > 0;

    o->other = TERM_NONE;
    if (o->closed && !o->each)
        return 0;
    if (make_property(m, a, NULL, &value) < 0)
        return -1;
    for (size_t i = 0; i < o->names.n; i++)
        if (strlen(o->names.v[i]) > MOST_NAME)
            return json_error(m->doc, NULL, m->err,
                              "a property's name has more than 512 bytes, and others "
                              "are allowed");
    if (o->each) {
        if (regex_compile(m->t, o->each->key, REGEX_JSON, &key, m->err) < 0)
            return err_prefix(m->err, "%s", m->doc->name);
        key = quoted(m, key);
    } else if (named) {
        const char **sorted = xcalloc(o->names.n, sizeof(*sorted));

        memcpy(sorted, o->names.v, o->names.n * sizeof(*sorted));
        qsort(sorted, o->names.n, sizeof(*sorted), by_text);
        key = terms_cat(m->t, literal(m, "\""), other_key(m, sorted, o->names.n, 0));
        free(sorted);
    }
    o->other = member(m, key, value);
    return 0;
}

static uint32_t key_of(const struct maker *m, const char *name)
{
    struct str text = { 0 };
    uint32_t out;

    str_add_json(&text, name);
    out = terms_literal(m->t, text.s, text.len);
    str_clear(&text);
    return out;
}

/* Members in order.  FIRST: what follows where none has come; NEXT: after one. */
static int make_members(struct maker *m, const struct all *a, struct object *o,
                        uint32_t *out)
{
    const size_t n = o->names.n;
    const uint32_t left = o->max == TERMS_MANY ? TERMS_MANY
                          : o->max > n         ? o->max - (uint32_t)n
                                               : 0;
    uint32_t first, next;

    next = o->other == TERM_NONE
               ? TERM_EMPTY
               : terms_repeat(m->t, terms_cat(m->t, m->comma, o->other), 0, left);
    first = o->other == TERM_NONE ? (o->min && !o->required.n ? TERM_NONE : TERM_EMPTY)
                                  : list(m, o->other, o->min ? 1 : 0, left);
    for (size_t i = n; i-- > 0;) {
        const bool must = is_in(&o->required, o->names.v[i]);
        uint32_t value, one, more;

        if (spend(m, o->required.n) < 0)
            return -1;
        if (make_property(m, a, o->names.v[i], &value) < 0)
            return -1;
        one = member(m, key_of(m, o->names.v[i]), value);
        more = terms_cat(m->t, terms_cat(m->t, m->comma, one), next);
        one = terms_cat(m->t, one, next);
        first = must ? one : terms_alt(m->t, first, one);
        next = must ? more : terms_alt(m->t, next, more);
    }
    *out = enclosed(m, "{", first, "}");
    return 0;
}

static int check_counts(const struct maker *m, const struct all *a, struct object *o)
{
    o->max = TERMS_MANY;
    if (count_of(m, a, "minProperties", true, &o->min) < 0 ||
        count_of(m, a, "maxProperties", false, &o->max) < 0)
        return -1;
    /* keys that are not named may be the same ones */
    if (o->min > 1 && o->min > o->required.n)
        return json_error(m->doc, NULL, m->err,
                          "'minProperties' above the properties that are required is "
                          "not supported");
    if (o->max < o->names.n && o->max > o->required.n)
        return json_error(m->doc, NULL, m->err,
                          "'maxProperties' below the properties that are named is not "
                          "supported");
    return 0;
}

static int make_object(struct maker *m, const struct all *a, uint32_t *out)
{
    struct object o = { 0 };
    int ret = gather_names(m, a, &o);

    if (ret == 0)
        ret = check_counts(m, a, &o);
    if (ret == 0 && o.max <= o.required.n && o.max < o.names.n) {
        /* no room but for those that are required */
        size_t n = 0;

        for (size_t i = 0; i < o.names.n; i++)
            if (is_in(&o.required, o.names.v[i]))
                o.names.v[n++] = o.names.v[i];
        o.names.n = n;
    }
    if (ret == 0 && o.max < o.required.n) {
        *out = TERM_NONE;
        goto out;
    }
    if (ret == 0 && o.each && o.required.n)
        ret = json_error(m->doc, NULL, m->err,
                         "'required' beside 'patternProperties' is not supported");
    for (size_t i = 0; i < o.required.n && ret == 0; i++)
        ret = add_name(m, &o.names, o.required.v[i]);
    if (ret == 0)
        ret = make_other(m, a, &o);
    if (ret == 0)
        ret = make_members(m, a, &o, out);
out:
    free(o.names.v);
    free(o.required.v);
    return ret;
}

/* ---- all of it ---- */

/* Keywords about one type, which also ask for it where no type is given. */
static const struct {
    const char *word;
    unsigned types;
} about[] = {
    { "properties", 1 << OBJECT },
    { "required", 1 << OBJECT },
    { "additionalProperties", 1 << OBJECT },
    { "patternProperties", 1 << OBJECT },
    { "minProperties", 1 << OBJECT },
    { "maxProperties", 1 << OBJECT },
    { "unevaluatedProperties", 1 << OBJECT },
    { "items", 1 << ARRAY },
    { "prefixItems", 1 << ARRAY },
    { "minItems", 1 << ARRAY },
    { "maxItems", 1 << ARRAY },
    { "additionalItems", 1 << ARRAY },
    { "minLength", 1 << STRING },
    { "maxLength", 1 << STRING },
    { "pattern", 1 << STRING },
    { "format", 1 << STRING },
    { "minimum", 1 << NUMBER | 1 << INTEGER },
    { "maximum", 1 << NUMBER | 1 << INTEGER },
    { "exclusiveMinimum", 1 << NUMBER | 1 << INTEGER },
    { "exclusiveMaximum", 1 << NUMBER | 1 << INTEGER },
};
enum { NABOUT = sizeof(about) / sizeof(*about) };

static int types_of(const struct maker *m, const struct all *a, unsigned *out)
{
    unsigned asked = 0;

    *out = ANY_TYPE;
    for (size_t i = 0; i < a->n; i++) {
        const struct json *j = get(&a->v[i], "type");

        if (j && add_types(m, j, out) < 0)
            return -1;
    }
    for (size_t i = 0; i < NABOUT; i++)
        asked |= has(a, about[i].word) ? about[i].types : 0;
    if (asked && !has(a, "type"))
        *out = asked;
    return 0;
}

/* The values that are listed, as far as all lists have them and TYPES allows them. */
static int make_values(struct maker *m, const struct all *a, unsigned types,
                       const struct json *first, bool alone, uint32_t *out)
{
    for (size_t i = 0; i < NABOUT; i++)
        if (has(a, about[i].word) && (types & about[i].types))
            return json_error(m->doc, first, m->err,
                              "'%s' beside 'enum' or 'const' is not supported",
                              about[i].word);
    *out = TERM_NONE;
    for (const struct json *j = first; j; j = alone ? NULL : j->next) {
        bool good = types_of_json(j) & types;
        struct str text = { 0 };

        for (size_t i = 0; i < a->n && good; i++) {
            bool one, found = false;
            const struct json *k = values_of(a->v[i].schema, &one);

            found = k == first; /* the list that J is of */
            for (; k && !found && !terms_failed(m->t); k = one ? NULL : k->next)
                found = is_same(m, j, k);
            good = found || (!get(&a->v[i], "const") && !get(&a->v[i], "enum"));
        }
        if (spend(m, 1) < 0)
            return -1;
        if (!good)
            continue;
        json_print(&text, j);
        *out = terms_alt(m->t, *out, terms_literal(m->t, text.s, text.len));
        str_clear(&text);
    }
    return 0;
}

/* Takes one alternative of part I after another. */
static int make_alternatives(struct maker *m, const struct all *a, size_t i,
                             bool one_of, uint32_t *out)
{
    const struct json *list_of = get(&a->v[i], one_of ? "oneOf" : "anyOf");

    *out = TERM_NONE;
    if (list_of->type != JSON_ARRAY)
        return refuse(m, list_of, list_of->key, "is no list");
    if (one_of && check_one_of(m, list_of) < 0)
        return -1;
    for (const struct json *j = list_of->first; j; j = j->next) {
        struct all own = *a;
        uint32_t term;
        bool never = false;

        *(one_of ? &own.v[i].one_of : &own.v[i].any_of) = true;
        if (gather(m, &own, j, &never) < 0 || compile(m, &own, never, &term) < 0)
            return -1;
        *out = terms_alt(m->t, *out, term);
    }
    return 0;
}

static int make(struct maker *m, const struct all *a, uint32_t *out)
{
    unsigned types;

    for (size_t i = 0; i < a->n; i++)
        if (spend(m, LOOKS * a->v[i].schema->n + size_of(a->v[i].schema, "type")) < 0)
            return -1;
    for (size_t i = 0; i < a->n; i++)
        for (int k = 0; k < 2; k++)
            if (!(k ? a->v[i].one_of : a->v[i].any_of) &&
                get(&a->v[i], k ? "oneOf" : "anyOf"))
                return make_alternatives(m, a, i, k, out);
    if (types_of(m, a, &types) < 0)
        return -1;
    for (size_t i = 0; i < a->n; i++) {
        bool alone;
        const struct json *first = values_of(a->v[i].schema, &alone);

        if (first || get(&a->v[i], "enum"))
            return make_values(m, a, types, first, alone, out);
    }
    *out = TERM_NONE;
    for (enum type i = 0; i < NTYPES; i++) {
        uint32_t one = TERM_NONE;
        int ret = 0;

        if (!(types >> i & 1) || (i == INTEGER && types >> NUMBER & 1))
            continue;
        if (i == INTEGER || i == NUMBER)
            ret = make_numbers(m, a, i == INTEGER, &one);
        else if (i == STRING)
            ret = make_string(m, a, &one);
        else if (i == ARRAY)
            ret = make_array(m, a, &one);
        else if (i == OBJECT)
            ret = make_object(m, a, &one);
        else
            one = any_of_type(m, i);
        if (ret < 0)
            return -1;
        *out = terms_alt(m->t, *out, one);
    }
    return 0;
}

static bool is_known(const struct known *k, const struct all *a)
{
    if (k->n != a->n)
        return false;
    for (size_t i = 0; i < k->n; i++)
        if (k->v[i].schema != a->v[i].schema || k->v[i].any_of != a->v[i].any_of ||
            k->v[i].one_of != a->v[i].one_of)
            return false;
    return true;
}

/* The rule of a value that meets all of A, which is made when it is first met. */
static int compile(struct maker *m, const struct all *a, bool never, uint32_t *out)
{
    uint32_t rule, body = TERM_NONE;
    int ret;

    *out = never ? TERM_NONE : m->value;
    if (never || !a->n)
        return 0;
    if (spend(m, m->nknown) < 0)
        return -1;
    for (size_t i = 0; i < m->nknown; i++)
        if (is_known(&m->known[i], a)) {
            *out = m->known[i].rule;
            return 0;
        }
    rule = terms_rule(m->t);
    if (rule == TERM_NONE || m->nknown >= MOST_KNOWN || m->depth >= MOST_DEPTH)
        return json_error(m->doc, a->v[0].schema, m->err, "the schema is too large");
    m->known = xgrow(m->known, &m->cap, m->nknown + 1, sizeof(*m->known));
    m->known[m->nknown].v = xcalloc(a->n, sizeof(*a->v));
    memcpy(m->known[m->nknown].v, a->v, a->n * sizeof(*a->v));
    m->known[m->nknown].n = a->n;
    m->known[m->nknown++].rule = rule;
    m->depth++;
    ret = make(m, a, &body);
    m->depth--;
    if (ret == 0)
        terms_define(m->t, rule, body);
    *out = rule;
    return ret;
}

int jsonschema_compile(struct terms *t, const struct json_doc *doc,
                       const struct json *schema, uint32_t *out, uint32_t *unit,
                       struct err *err)
{
    struct maker m = { .t = t, .doc = doc, .root = schema, .err = err };
    int ret = 0;

    make_basics(&m);
    *unit = m.unit;
    if (schema)
        ret = compile_one(&m, schema, out);
    else
        *out = any_of_type(&m, OBJECT);
    *out = terms_cat(t, m.space, *out);
    for (size_t i = 0; i < m.nknown; i++)
        free(m.known[i].v);
    free(m.known);
    return ret;
}
