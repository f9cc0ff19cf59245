/* format-ray - a sweep in a short form like Ray Tune's
 *
 *     lr:       loguniform(1e-6, 1e-4)
 *     batch:    choice([16, 32])
 *     opt:      choice([sgd, adam])
 *     momentum: uniform(0.5, 0.99) if opt == sgd
 *     epochs:   3
 *
 * The names and meanings of the functions are Ray's, with or without "tune.": the upper
 * end of randint and lograndint is left out, that of qrandint and qlograndint is not.
 * Objects nest, and their parameters are called outer.inner. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/format/formats.h"

enum { ARGS_MAX = 3, DEPTH_MAX = 32 };

/* A value's text while it is read.  Lists hold JSON texts. */
struct scanner {
    const struct formats_reader *r;
    const struct json *node;
    const char *name; /* the parameter */
    const char *p;
};

struct list {
    char **texts; /* [n] */
    size_t n;
};

static const struct function {
    const char *name;
    int nargs;
    bool integer, log, quantized, exclusive, normal;
} functions[] = {
    { .name = "uniform", .nargs = 2 },
    { .name = "quniform", .nargs = 3, .quantized = true },
    { .name = "loguniform", .nargs = 2, .log = true },
    { .name = "qloguniform", .nargs = 3, .log = true, .quantized = true },
    { .name = "randint", .nargs = 2, .integer = true, .exclusive = true },
    { .name = "qrandint", .nargs = 3, .integer = true, .quantized = true },
    { .name = "lograndint",
      .nargs = 2,
      .integer = true,
      .log = true,
      .exclusive = true },
    { .name = "qlograndint",
      .nargs = 3,
      .integer = true,
      .log = true,
      .quantized = true },
    { .name = "randn", .nargs = 2, .normal = true },
    { .name = "qrandn", .nargs = 3, .normal = true, .quantized = true },
};

static void list_clear(struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->texts[i]);
    free(l->texts);
    *l = (struct list){ 0 };
}

static void list_add(struct list *l, char *text)
{
    l->texts = xrealloc(l->texts, (l->n + 1) * sizeof(*l->texts));
    l->texts[l->n++] = text;
}

static int fail(const struct scanner *s, const char *cause)
{
    return json_error(s->r->doc, s->node, s->r->err, "%s: %s at '%.20s'", s->name,
                      cause, s->p);
}

/* A complaint about what the words mean together. */
static int refuse(const struct scanner *s, const char *cause)
{
    return json_error(s->r->doc, s->node, s->r->err, "%s: %s", s->name, cause);
}

static void skip_blanks(struct scanner *s)
{
    while (*s->p == ' ' || *s->p == '\t' || *s->p == '\n')
        s->p++;
}

static bool take(struct scanner *s, const char *token)
{
    skip_blanks(s);
    if (!str_starts(s->p, token))
        return false;
    s->p += strlen(token);
    return true;
}

/* 'text' or "text"; a backslash keeps the character after it. */
static int scan_quoted(struct scanner *s, struct str *raw)
{
    char quote = *s->p++;

    while (*s->p && *s->p != quote) {
        if (*s->p == '\\' && s->p[1])
            s->p++;
        str_addc(raw, *s->p++);
    }
    if (*s->p != quote)
        return fail(s, "a quote that is not closed");
    s->p++;
    return 0;
}

static char *json_of_word(const char *word)
{
    static const char *const literals[][2] = {
        { "True", "true" },   { "true", "true" }, { "False", "false" },
        { "false", "false" }, { "None", "null" }, { "null", "null" },
    };
    struct str out = { 0 };
    double x;

    for (size_t i = 0; i < sizeof(literals) / sizeof(*literals); i++)
        if (!strcmp(word, literals[i][0]))
            return xstrdup(literals[i][1]);
    if (!str_double(word, &x))
        str_add_json(&out, word);
    else if (strspn(word, "0123456789") == strlen(word) && word[0] != '0')
        str_add(&out, word); /* an integer stays one, however long */
    else
        str_add_double(&out, x);
    return str_steal(&out);
}

/* A number, a word or a quoted text; *TEXT is its JSON. */
static int scan_scalar(struct scanner *s, char **text)
{
    struct str raw = { 0 }, out = { 0 };
    int ret = -1;

    skip_blanks(s);
    if (*s->p == '\'' || *s->p == '"') {
        if (scan_quoted(s, &raw) < 0)
            goto out;
        str_add_jsonn(&out, str_text(&raw), raw.len);
        *text = str_steal(&out);
    } else {
        size_t n = strcspn(s->p, " \t\n,()[]{}'\"=");

        if (!n) {
            fail(s, "expected a value");
            goto out;
        }
        str_addn(&raw, s->p, n);
        s->p += n;
        *text = json_of_word(raw.s);
    }
    ret = 0;
out:
    str_clear(&raw);
    return ret;
}

/* Scalars between commas up to CLOSE, which is taken too. */
static int scan_scalars(struct scanner *s, const char *close, struct list *out)
{
    char *text;

    if (take(s, close))
        return 0;
    do {
        if (scan_scalar(s, &text) < 0)
            return -1;
        list_add(out, text);
    } while (take(s, ","));
    return take(s, close) ? 0 : fail(s, "expected a comma or the end of the list");
}

static const struct function *find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
        if (strlen(functions[i].name) == n && !memcmp(functions[i].name, name, n))
            return &functions[i];
    return NULL;
}

static int apply(const struct scanner *s, const struct function *f, const double *v,
                 struct space_param *p)
{
    struct dist *d = &p->dist;

    if (f->normal) {
        if (v[1] <= 0)
            return refuse(s, "the standard deviation is not above zero");
        formats_normal(p, v[0], v[1], false, f->quantized ? v[2] : 0);
        return 0;
    }
    d->kind = f->integer ? DIST_INT : DIST_FLOAT;
    d->log = f->log;
    d->low = v[0];
    d->high = f->exclusive ? v[1] - 1 : v[1];
    if (f->exclusive && v[0] >= v[1])
        return refuse(s, "an empty range (the upper end is left out)");
    if (f->log && v[0] <= 0)
        return refuse(s, "a logarithmic scale needs a lower bound above zero");
    if (f->quantized && v[2] <= 0)
        return refuse(s, "the step is not above zero");
    if (f->quantized)
        formats_quantize(p, v[2]);
    return 0;
}

static int scan_numeric(struct scanner *s, const struct function *f,
                        struct space_param *p)
{
    double v[ARGS_MAX];
    struct list args = { 0 };
    int ret = -1;

    if (scan_scalars(s, ")", &args) < 0)
        goto out;
    if (args.n != (size_t)f->nargs) {
        json_error(s->r->doc, s->node, s->r->err, "%s: %s takes %d numbers, not %zu",
                   s->name, f->name, f->nargs, args.n);
        goto out;
    }
    for (size_t i = 0; i < args.n; i++)
        if (!str_double(args.texts[i], &v[i])) {
            json_error(s->r->doc, s->node, s->r->err, "%s: %s is not a number", s->name,
                       args.texts[i]);
            goto out;
        }
    ret = apply(s, f, v, p);
out:
    list_clear(&args);
    return ret;
}

static int scan_choices(struct scanner *s, struct space_param *p)
{
    struct list args = { 0 };
    int ret = -1;
    long twice;

    bool listed = take(s, "["); /* or choice(8, 16, 32) */

    p->dist.kind = DIST_CATEGORICAL;
    if (scan_scalars(s, listed ? "]" : ")", &args) < 0)
        goto out;
    if (listed && !take(s, ")")) {
        fail(s, "expected ')'");
        goto out;
    }
    for (size_t i = 0; i < args.n; i++)
        dist_add_choice(&p->dist, xstrdup(args.texts[i]));
    twice = dist_repeated_choice(&p->dist);
    ret = twice < 0 ? 0
                    : json_error(s->r->doc, s->node, s->r->err,
                                 "%s: %s is listed twice", s->name, args.texts[twice]);
out:
    list_clear(&args);
    return ret;
}

static bool is_choice(const char *name, size_t n)
{
    return (n == 6 && !memcmp(name, "choice", n)) ||
           (n == 11 && !memcmp(name, "grid_search", n));
}

/* How much of TEXT is the name of a function in front of its parenthesis, 0 if it is a
 * text that calls nothing. */
static size_t call_name(const char **text)
{
    const char *name = *text + (str_starts(*text, "tune.") ? strlen("tune.") : 0);
    size_t n, blanks;

    for (n = 0; isalnum((unsigned char)name[n]) || name[n] == '_'; n++)
        ;
    blanks = strspn(name + n, " \t");
    if (name[n + blanks] != '(' || (blanks && !find(name, n) && !is_choice(name, n)))
        return 0;
    *text = name;
    return n;
}

static int scan_call(struct scanner *s, size_t n, struct space_param *p)
{
    const struct function *f = find(s->p, n);
    bool choice = is_choice(s->p, n);

    if (!f && !choice)
        return json_error(s->r->doc, s->node, s->r->err,
                          "%s: unknown distribution '%.*s'", s->name, (int)n, s->p);
    s->p += n;
    take(s, "(");
    return choice ? scan_choices(s, p) : scan_numeric(s, f, p);
}

static void set_constant(struct space_param *p, char *text)
{
    p->dist.kind = DIST_CATEGORICAL;
    dist_add_choice(&p->dist, text);
}

/* The distribution that a text says; a condition after it is left for later. */
static int scan_text(struct formats_reader *r, const struct json *j, const char *name,
                     struct space_param *p)
{
    struct scanner s = { r, j, name, j->text };
    struct str text = { 0 };
    size_t n = call_name(&s.p);

    if (strlen(j->text) != j->n)
        return formats_error(r, j, name, "a NUL byte");
    if (!n) {
        str_add_jsonn(&text, j->text, j->n);
        set_constant(p, str_steal(&text));
        return 0;
    }
    if (scan_call(&s, n, p) < 0)
        return -1;
    skip_blanks(&s);
    return *s.p && !str_starts(s.p, "if ")
               ? fail(&s, "something after the distribution")
               : 0;
}

/* A list alone could be a range or its values: ask back with the lines to write. */
static int refuse_list(const struct formats_reader *r, const struct json *j,
                       const char *name)
{
    double low, high;

    if (j->n == 2 && json_double(j->first, &low) && json_double(j->first->next, &high))
        return json_error(r->doc, j, r->err,
                          "%s: a list: write uniform(%.17g, %.17g), or loguniform, for "
                          "a range, choice([%.17g, %.17g]) for two values",
                          name, low, high, low, high);
    return formats_error(r, j, name, "a list: write choice([...])");
}

/* The member of J called by one of two names. */
static const struct json *either(const struct json *j, const char *a, const char *b)
{
    return json_get(j, a) ? json_get(j, a) : json_get(j, b);
}

/* An object such as {min: 1, max: 2, scale: log}, which is no group of parameters: say
 * which line to write. */
static int refuse_range(const struct formats_reader *r, const struct json *j,
                        const char *name)
{
    const struct json *scale = either(j, "scale", "log"), *type = json_get(j, "type");
    const struct json *low = either(j, "min", "low"), *high = either(j, "max", "high");
    bool log = (json_string(scale) && str_starts(scale->text, "log")) ||
               (scale && json_is_true(scale));
    bool whole = json_string(type) && str_starts(type->text, "int");
    double a, b;

    if (!low || !high || !json_double(low, &a) || !json_double(high, &b))
        return 0;
    for (const struct json *k = j->first; k; k = k->next)
        if (k->type == JSON_OBJECT || k->type == JSON_ARRAY)
            return 0;
    return json_error(r->doc, j, r->err, "%s: write %s: %s%s(%.17g, %.17g)", name, name,
                      log ? "log" : "", whole ? "randint" : "uniform", a, b + whole);
}

/* {"grid_search": [...]} is Ray's own spelling of a list. */
static int read_param(struct formats_reader *r, const struct json *j, const char *name)
{
    const struct json *list = json_get(j, "grid_search");
    struct space_param p = { .name = xstrdup(name) };
    struct str text = { 0 };
    int ret = 0;

    if (j->type == JSON_STRING) {
        ret = scan_text(r, j, name, &p);
    } else if (list) {
        ret = formats_choices(&p.dist, r, list, name);
    } else if (j->type == JSON_ARRAY) {
        ret = refuse_list(r, j, name);
    } else {
        json_print(&text, j);
        set_constant(&p, str_steal(&text));
    }
    if (ret == 0)
        return formats_add(r, j, &p);
    free(p.name);
    dist_clear(&p.dist);
    return -1;
}

static int read_params(struct formats_reader *r, const struct json *obj,
                       const char *prefix, int depth)
{
    if (depth > DEPTH_MAX)
        return json_error(r->doc, obj, r->err, "nested too deeply");
    for (const struct json *j = obj->first; j; j = j->next) {
        char *name = str_dupf("%s%s%s", prefix, *prefix ? "." : "", j->key);
        int ret;

        if (j->type == JSON_OBJECT && refuse_range(r, j, name) < 0)
            ret = -1;
        else if (j->type == JSON_OBJECT && !json_get(j, "grid_search"))
            ret = read_params(r, j, name, depth + 1);
        else
            ret = read_param(r, j, name);
        free(name);
        if (ret < 0)
            return -1;
    }
    return 0;
}

/* A comparison other than "==" at S, which is taken; NULL when there is none. */
static const char *take_comparison(struct scanner *s)
{
    static const char *const ops[] = { "<=", ">=", "!=", "<", ">" };

    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
        if (take(s, ops[i]))
            return ops[i];
    return NULL;
}

/* " if NAME == VALUE", another comparison, or " if NAME in [VALUE, ...]" */
static int scan_condition(struct scanner *s, size_t i)
{
    struct formats_reader r = *s->r;
    struct list values = { 0 };
    const char *op = NULL;
    char *parent, *text;
    size_t n;
    int ret = -1;

    skip_blanks(s);
    n = strcspn(s->p, " \t=<>!");
    parent = xstrndup(s->p, n);
    s->p += n;
    if (take(s, "==") || (op = take_comparison(s))) {
        if (scan_scalar(s, &text) < 0)
            goto out;
        list_add(&values, text);
    } else if (take(s, "in") && take(s, "[")) {
        if (scan_scalars(s, "]", &values) < 0)
            goto out;
    } else {
        fail(s, "expected '== value', '>= number' or 'in [values]'");
        goto out;
    }
    skip_blanks(s);
    if (*s->p) {
        fail(s, "something after the condition");
        goto out;
    }
    ret = op ? formats_compare(&r, s->node, i, parent, op, values.texts[0]) : 0;
    for (size_t k = 0; !op && k < values.n && ret == 0; k++)
        ret = formats_condition(&r, s->node, i, parent, values.texts[k]);
out:
    free(parent);
    list_clear(&values);
    return ret;
}

/* Step over a call that was read before: to behind its parenthesis. */
static void skip_call(struct scanner *s)
{
    struct space_param ignored = { 0 };
    const char *start = s->p;

    scan_call(s, call_name(&start), &ignored);
    dist_clear(&ignored.dist);
}

/* Whether TEXT, a constant, ends in a condition on one of the parameters. */
static bool ends_in_condition(const struct space *space, const char *text)
{
    bool found = false;

    while (!found && (text = strstr(text, " if "))) {
        size_t n = strcspn(text += strlen(" if "), " \t=<>!");
        const char *after = text + n + strspn(text + n, " \t");
        char *name = xstrndup(text, n);

        found = space_find(space, name) >= 0 &&
                (strchr("=<>!", *after) || str_starts(after, "in "));
        free(name);
    }
    return found;
}

/* Conditions, now that all parameters are there; *i counts them. */
static int read_conditions(struct formats_reader *r, const struct json *obj, size_t *i)
{
    for (const struct json *j = obj->first; j; j = j->next) {
        struct scanner s = { r, j, NULL, j->text };

        if (j->type == JSON_OBJECT && !json_get(j, "grid_search")) {
            if (read_conditions(r, j, i) < 0)
                return -1;
            continue;
        }
        s.name = r->file->space.params[*i].name;
        if (j->type == JSON_STRING && call_name(&s.p)) {
            skip_call(&s);
            if (take(&s, "if ") && scan_condition(&s, *i) < 0)
                return -1;
        } else if (j->type == JSON_STRING &&
                   ends_in_condition(&r->file->space, j->text)) {
            return refuse(&s, "a constant with a condition: write choice([...]) if");
        }
        ++*i;
    }
    return 0;
}

int formats_read_ray(struct formats_reader *r, const struct json *root)
{
    size_t i = 0;

    if (read_params(r, root, "", 0) < 0)
        return -1;
    return read_conditions(r, root, &i);
}
