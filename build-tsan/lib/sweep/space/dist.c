/* dist - the values one parameter may take */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/space/dist.h"

/* Integers beyond this are not exact as doubles. */
static const double EXACT = 0x1p53;

void dist_clear(struct dist *d)
{
    for (size_t i = 0; i < d->nchoices; i++)
        free(d->choices[i]);
    free(d->choices);
    *d = (struct dist){ 0 };
}

bool dist_same(const struct dist *a, const struct dist *b)
{
    if (a->kind != b->kind || a->log != b->log || a->low != b->low ||
        a->high != b->high || a->step != b->step || a->nchoices != b->nchoices)
        return false;
    for (size_t i = 0; i < a->nchoices; i++)
        if (strcmp(a->choices[i], b->choices[i]) != 0 &&
            dist_find_choice(b, a->choices[i]) != (int)i)
            return false;
    return true;
}

bool dist_single(const struct dist *d)
{
    if (d->kind == DIST_CATEGORICAL)
        return d->nchoices == 1;
    return d->low == d->high || (d->step > 0 && d->low + d->step > d->high);
}

bool dist_contains(const struct dist *d, double value)
{
    double steps;

    if (d->kind == DIST_CATEGORICAL)
        return value >= 0 && value < (double)d->nchoices && value == floor(value);
    if (!(value >= d->low && value <= d->high))
        return false;
    if (d->kind == DIST_INT)
        return fmod(value - d->low, d->step) == 0;
    steps = d->step > 0 ? (value - d->low) / d->step : 0;
    return fabs(steps - nearbyint(steps)) < 1e-8;
}

const char *dist_settle(struct dist *d)
{
    double steps;

    if (d->kind == DIST_CATEGORICAL)
        return d->nchoices ? NULL : "there are no choices";
    if (!isfinite(d->low) || !isfinite(d->high) || !isfinite(d->high - d->low))
        return "the bounds are not finite";
    if (d->low > d->high)
        return "the lower bound is above the upper bound";
    if (d->log && d->low <= 0)
        return "a logarithmic scale needs a lower bound above zero";
    if (d->step < 0 || !isfinite(d->step))
        return "the step is not above zero";
    if (d->log && d->step > 0 && !(d->kind == DIST_INT && d->step == 1))
        return "a logarithmic scale takes no step";
    if (d->kind == DIST_INT) {
        if (d->step == 0)
            d->step = 1;
        if (d->low != floor(d->low) || d->high != floor(d->high) ||
            d->step != floor(d->step))
            return "the bounds and the step of integers are integers";
        if (fabs(d->low) > EXACT || fabs(d->high) > EXACT)
            return "the bounds are beyond 2^53";
    }
    if (d->step > 0) {
        steps = floor((d->high - d->low) / d->step + 1e-9);
        d->high = dist_nth(d, steps);
    }
    return NULL;
}

double dist_nth(const struct dist *d, double k)
{
    double value = d->low + k * d->step;
    double most = fmax(fabs(d->low), fabs(d->high));
    char text[400];
    int decimals;

    if (d->kind == DIST_INT || !(most > 0))
        return value;
    /* The sum is as exact as the greater bound is, not as its own size would have it.
     */
    decimals = 14 - (int)floor(log10(most));
    if (decimals < 0 || d->step * pow(10, decimals) < 1)
        return value;
    snprintf(text, sizeof(text), "%.*f", decimals, value);
    return strtod(text, NULL) + 0.0; /* no -0 */
}

void dist_add_choice(struct dist *d, char *text)
{
    d->choices = xrealloc(d->choices, (d->nchoices + 1) * sizeof(*d->choices));
    d->choices[d->nchoices++] = text;
}

int dist_find_choice(const struct dist *d, const char *text)
{
    double x, y;
    bool number = str_double(text, &x);

    for (size_t i = 0; i < d->nchoices; i++) {
        if (!strcmp(d->choices[i], text))
            return (int)i;
        if (number && str_double(d->choices[i], &y) && x == y)
            return (int)i;
    }
    return -1;
}

struct choice {
    const char *text;
    double value;
    bool number;
    size_t index;
};

/* Choices by their values, numbers first. */
static int compare_values(const struct choice *x, const struct choice *y)
{
    if (x->number != y->number)
        return x->number ? -1 : 1;
    if (x->number)
        return x->value < y->value ? -1 : x->value > y->value;
    return strcmp(x->text, y->text);
}

static int compare_choices(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    int order = compare_values(x, y);

    return order ? order : x->index < y->index ? -1 : x->index > y->index;
}

long dist_repeated_choice(const struct dist *d)
{
    struct choice *c = xcalloc(d->nchoices, sizeof(*c));
    long first = -1;

    for (size_t i = 0; i < d->nchoices; i++) {
        c[i] = (struct choice){ .text = d->choices[i], .index = i };
        c[i].number = str_double(c[i].text, &c[i].value);
    }
    if (d->nchoices)
        qsort(c, d->nchoices, sizeof(*c), compare_choices);
    for (size_t i = 1; i < d->nchoices; i++)
        if (!compare_values(&c[i - 1], &c[i]) &&
            (first < 0 || c[i].index < (size_t)first))
            first = (long)c[i].index;
    free(c);
    return first;
}

/* Optuna's names of every version. */
static const struct dist_name {
    const char *name;
    enum dist_kind kind;
    bool log;
} names[] = {
    { "FloatDistribution", DIST_FLOAT, false },
    { "IntDistribution", DIST_INT, false },
    { "CategoricalDistribution", DIST_CATEGORICAL, false },
    { "UniformDistribution", DIST_FLOAT, false },
    { "LogUniformDistribution", DIST_FLOAT, true },
    { "DiscreteUniformDistribution", DIST_FLOAT, false },
    { "IntUniformDistribution", DIST_INT, false },
    { "IntLogUniformDistribution", DIST_INT, true },
    { "float", DIST_FLOAT, false },
    { "int", DIST_INT, false },
    { "categorical", DIST_CATEGORICAL, false },
};

/* What is wrong at J with the distribution of PARAM, whose key is its name. */
static int refuse(const struct json_doc *doc, const struct json *param,
                  const struct json *j, struct err *err, const char *cause)
{
    return json_error(doc, j, err, "%s%s%s", param->key ? param->key : "",
                      param->key ? ": " : "", cause);
}

static int read_number(double *out, const char *key, bool required,
                       const struct json_doc *doc, const struct json *param,
                       const struct json *body, struct err *err)
{
    const struct json *j = json_get(body, key);
    char cause[40];

    if ((!j || j->type == JSON_NULL) && !required)
        return 0;
    if (json_double(j, out))
        return 0;
    snprintf(cause, sizeof(cause), j ? "'%s' is not a number" : "'%s' is missing", key);
    return refuse(doc, param, j ? j : param, err, cause);
}

static int read_choices(struct dist *d, const struct json_doc *doc,
                        const struct json *param, const struct json *body,
                        struct err *err)
{
    const struct json *list = json_get(body, "choices");
    struct str text = { 0 };

    if (!list || list->type != JSON_ARRAY)
        return refuse(doc, param, list ? list : param, err, "'choices' is not a list");
    for (const struct json *c = list->first; c; c = c->next) {
        json_print(&text, c); /* a list, too: Optuna warns of it, but keeps it */
        dist_add_choice(d, str_steal(&text));
    }
    return 0;
}

static int read_range(struct dist *d, const struct json_doc *doc,
                      const struct json *param, const struct json *body,
                      struct err *err)
{
    const struct json *log = json_get(body, "log"), *step = json_get(body, "step");

    if (log && log->type > JSON_TRUE)
        return refuse(doc, param, log, err, "'log' is not true or false");
    d->log |= json_is_true(log);
    if (read_number(&d->low, "low", true, doc, param, body, err) < 0 ||
        read_number(&d->high, "high", true, doc, param, body, err) < 0 ||
        read_number(&d->step, "step", false, doc, param, body, err) < 0 ||
        read_number(&d->step, "q", false, doc, param, body, err) < 0)
        return -1;
    if (step && step->type == JSON_NUMBER && d->step == 0)
        return refuse(doc, param, param, err, "the step is not above zero");
    return 0;
}

int dist_read(struct dist *d, const struct json_doc *doc, const struct json *j,
              struct err *err)
{
    const struct json *label = json_get(j, "name"), *body = json_get(j, "attributes");
    const struct dist_name *n = NULL;
    struct dist out = { 0 };
    const char *cause;
    int ret;

    if (!label) {
        label = json_get(j, "type");
        body = j;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (json_string(label) && !strcmp(names[i].name, json_string(label)))
            n = &names[i];
    if (!n)
        return json_error(doc, label ? label : j, err, "%s%sunknown distribution '%s'",
                          j->key ? j->key : "", j->key ? ": " : "",
                          json_string(label) ? json_string(label) : "");
    out.kind = n->kind;
    out.log = n->log;
    ret = n->kind == DIST_CATEGORICAL ? read_choices(&out, doc, j, body, err)
                                      : read_range(&out, doc, j, body, err);
    if (ret == 0 && (cause = dist_settle(&out)))
        ret = refuse(doc, j, j, err, cause);
    if (ret < 0)
        dist_clear(&out);
    else
        *d = out;
    return ret;
}

/* A float shows that it is one, as in Python: 1.0, 1e-05. */
static void write_float(struct str *out, double x)
{
    struct str text = { 0 };

    str_add_double(&text, x);
    str_add(out, text.s);
    if (!strpbrk(text.s, ".e\""))
        str_add(out, ".0");
    str_clear(&text);
}

static void write_number(struct str *out, const struct dist *d, double x)
{
    if (d->kind == DIST_INT)
        str_addf(out, "%" PRId64, (int64_t)x);
    else
        write_float(out, x);
}

void dist_write(struct str *out, const struct dist *d)
{
    if (d->kind == DIST_CATEGORICAL) {
        str_add(out, "{\"name\": \"CategoricalDistribution\", "
                     "\"attributes\": {\"choices\": [");
        for (size_t i = 0; i < d->nchoices; i++)
            str_addf(out, "%s%s", i ? ", " : "", d->choices[i]);
        str_add(out, "]}}");
        return;
    }
    str_addf(out, "{\"name\": \"%s\", \"attributes\": {",
             d->kind == DIST_INT ? "IntDistribution" : "FloatDistribution");
    str_addf(out, "\"log\": %s, \"step\": ", d->log ? "true" : "false");
    if (d->step > 0)
        write_number(out, d, d->step);
    else
        str_add(out, "null");
    str_add(out, ", \"low\": ");
    write_number(out, d, d->low);
    str_add(out, ", \"high\": ");
    write_number(out, d, d->high);
    str_add(out, "}}");
}

void dist_write_value(struct str *out, const struct dist *d, double value)
{
    if (d->kind == DIST_CATEGORICAL)
        str_add(out, d->choices[(size_t)value]);
    else
        write_number(out, d, value);
}

void dist_write_word(struct str *out, const struct dist *d, double value)
{
    struct json_doc doc;
    struct str text = { 0 };

    dist_write_value(&text, d, value);
    /* A choice is JSON that was read or written here: it parses. */
    if (text.s[0] == '"' && json_parse(&doc, "choice", text.s, text.len, NULL) == 0) {
        str_addn(out, doc.root->text, doc.root->n);
        json_clear(&doc);
    } else {
        str_addn(out, text.s, text.len);
    }
    str_clear(&text);
}

bool dist_read_value(double *value, const struct dist *d, const struct json *j)
{
    struct str text = { 0 };
    double x;

    if (d->kind == DIST_CATEGORICAL) {
        json_print(&text, j);
        x = dist_find_choice(d, str_text(&text));
        str_clear(&text);
    } else if (!json_double(j, &x)) {
        return false;
    }
    if (!dist_contains(d, x))
        return false;
    *value = x;
    return true;
}
