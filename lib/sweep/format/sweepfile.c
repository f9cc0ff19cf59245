/* sweepfile - the file that defines a sweep, in any of four formats */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/sweep/format/formats.h"
#include "lib/sweep/format/sweepfile.h"
#include "lib/sweep/format/yaml.h"

enum { SIZE_MAX_BYTES = 16 << 20 };

/* A normal prior ends here: what is beyond has probability 6e-7. */
static const double NORMAL_WIDTHS = 5;

int formats_error(const struct formats_reader *r, const struct json *j,
                  const char *name, const char *cause)
{
    return json_error(r->doc, j, r->err, "%s: %s", name, cause);
}

int formats_check_keys(const struct formats_reader *r, const struct json *j,
                       const char *name, const char *const *known)
{
    if (j->type != JSON_OBJECT)
        return json_error(r->doc, j, r->err, "%s%snot an object", name,
                          *name ? ": " : "");
    for (const struct json *k = j->first; k; k = k->next) {
        const char *const *w = known;

        while (*w && strcmp(*w, k->key))
            w++;
        if (!*w && k->type != JSON_NULL)
            return json_error(r->doc, k, r->err, "%s%sunknown key '%s'", name,
                              *name ? ": " : "", k->key);
    }
    return 0;
}

int formats_number(double *out, const struct formats_reader *r, const struct json *j,
                   const char *name, const char *key)
{
    const struct json *member = json_get(j, key);

    if (!member)
        return json_error(r->doc, j, r->err, "%s: '%s' is missing", name, key);
    if (!json_double(member, out))
        return json_error(r->doc, member, r->err, "%s: '%s' is not a number", name,
                          key);
    return 0;
}

/* YAML reads (3, 3) within brackets as the texts "(3" and "3)". */
static bool opens_tuple(const struct json *j)
{
    const struct json *k = j->type == JSON_STRING && j->text[0] == '(' ? j : NULL;

    for (; k && k->type != JSON_ARRAY && k->type != JSON_OBJECT; k = k->next) {
        const char *close = k->text ? strchr(k->text, ')') : NULL;

        if (close)
            return k != j && !close[1];
    }
    return false;
}

int formats_choices(struct dist *d, const struct formats_reader *r,
                    const struct json *list, const char *name)
{
    struct str text = { 0 };
    const struct json *value = list->first;
    long twice;

    d->kind = DIST_CATEGORICAL;
    if (list->type != JSON_ARRAY)
        return formats_error(r, list, name, "the values are not a list");
    for (const struct json *j = list->first; j; j = j->next) {
        if (opens_tuple(j))
            return json_error(
                r->doc, j, r->err,
                "%s: '%s' is a part of a tuple of Python, which YAML does "
                "not have: write a list, as in [[3, 3], [5, 5]]",
                name, j->text);
        json_print(&text, j);
        dist_add_choice(d, str_steal(&text));
    }
    twice = dist_repeated_choice(d);
    for (long i = 0; i < twice; i++)
        value = value->next;
    return twice < 0 ? 0 : formats_error(r, value, name, "a value is listed twice");
}

static void param_clear(struct space_param *p)
{
    struct space one = { 0 };

    space_add(&one, p);
    space_clear(&one);
}

/* A name becomes a word of commands, a key and part of a variable's name. */
static const char *name_cause(const char *name)
{
    if (!*name)
        return "a parameter without a name";
    for (; *name; name++)
        if ((unsigned char)*name < 0x20 || *name == 0x7f || strchr("{}=\"'", *name))
            return "the name has a control character, a brace, '=' or a quote";
    return NULL;
}

int formats_add(struct formats_reader *r, const struct json *j, struct space_param *p)
{
    const char *cause = name_cause(p->name);

    p->parent = -1;
    if (!cause && space_find(&r->file->space, p->name) >= 0)
        cause = "a parameter for the second time";
    if (!cause)
        cause = dist_settle(&p->dist);
    if (!cause) {
        space_add(&r->file->space, p);
        return 0;
    }
    formats_error(r, j, p->name, cause);
    param_clear(p);
    return -1;
}

/* The parameter PARENT that parameter I is to depend on, -1 with the error set. */
static int find_parent(struct formats_reader *r, const struct json *j, size_t i,
                       const char *parent)
{
    struct space *s = &r->file->space;
    struct space_param *p = &s->params[i];
    int from = space_find(s, parent);

    if (from < 0 || from == (int)i)
        return json_error(r->doc, j, r->err,
                          "%s: depends on '%s', which is not another parameter",
                          p->name, parent);
    if (p->parent >= 0 && p->parent != from)
        return formats_error(r, j, p->name, "depends on more than one parameter");
    p->parent = from;
    if (s->params[from].dist.kind == DIST_CATEGORICAL && !p->when)
        p->when = xcalloc(s->params[from].dist.nchoices, sizeof(*p->when));
    return from;
}

static void add_range(struct space_param *p, double low, double high)
{
    p->ranges = xrealloc(p->ranges, (p->nranges + 1) * sizeof(*p->ranges));
    p->ranges[p->nranges++] = (struct space_range){ low, high };
}

int formats_condition(struct formats_reader *r, const struct json *j, size_t i,
                      const char *parent, const char *value)
{
    struct space_param *p = &r->file->space.params[i];
    int from = find_parent(r, j, i, parent), choice;
    const struct dist *d;
    double number;

    if (from < 0)
        return -1;
    d = &r->file->space.params[from].dist;
    if (d->kind != DIST_CATEGORICAL) {
        if (!str_double(value, &number) || !dist_contains(d, number))
            return json_error(r->doc, j, r->err, "%s: %s is no value of '%s'", p->name,
                              value, parent);
        if (d->step == 0 && !dist_single(d))
            return json_error(r->doc, j, r->err,
                              "%s: '%s' has no end of values: compare it by < or >",
                              p->name, parent);
        add_range(p, number, number);
        return 0;
    }
    choice = dist_find_choice(d, value);
    if (choice < 0)
        return json_error(r->doc, j, r->err, "%s: %s is no choice of '%s'", p->name,
                          value, parent);
    p->when[choice] = true;
    return 0;
}

static bool compares(double x, const char *op, double y)
{
    switch (*op) {
    case '<':
        return op[1] ? x <= y : x < y;
    case '>':
        return op[1] ? x >= y : x > y;
    default:
        return x != y;
    }
}

/* The choices that are numbers and compare so; all texts are unequal to any other. */
static bool compare_choices(struct space_param *p, const struct dist *d, const char *op,
                            const char *value)
{
    int same = dist_find_choice(d, value);
    double x, y;
    bool some = false;

    for (size_t c = 0; c < d->nchoices; c++) {
        if (*op == '!')
            p->when[c] = (int)c != same;
        else if (str_double(value, &y) && str_double(d->choices[c], &x))
            p->when[c] = compares(x, op, y);
        some |= p->when[c];
    }
    return some;
}

/* The part of D's range that compares so: for a strict comparison, up to the next
 * number there is. */
static bool compare_number(struct space_param *p, const struct dist *d, const char *op,
                           double y)
{
    bool whole = d->kind == DIST_INT, strict = !op[1] || *op == '!';
    double below = !strict ? y : whole ? ceil(y) - 1 : nextafter(y, -INFINITY);
    double above = !strict ? y : whole ? floor(y) + 1 : nextafter(y, INFINITY);
    bool some = false;

    if (*op != '>') {
        add_range(p, -INFINITY, below);
        some |= d->low <= below;
    }
    if (*op != '<') {
        add_range(p, above, INFINITY);
        some |= d->high >= above;
    }
    return some;
}

int formats_compare(struct formats_reader *r, const struct json *j, size_t i,
                    const char *parent, const char *op, const char *value)
{
    struct space_param *p = &r->file->space.params[i];
    int from = find_parent(r, j, i, parent);
    const struct dist *d;
    double number;
    bool some;

    if (from < 0)
        return -1;
    d = &r->file->space.params[from].dist;
    if (d->kind == DIST_CATEGORICAL)
        some = compare_choices(p, d, op, value);
    else if (str_double(value, &number))
        some = compare_number(p, d, op, number);
    else
        return json_error(r->doc, j, r->err, "%s: %s is not a number", p->name, value);
    if (!some)
        return json_error(r->doc, j, r->err, "%s: '%s' is never %s %s", p->name, parent,
                          op, value);
    return 0;
}

/* The multiple of Q that is next to X. */
static double next_multiple(double x, double q)
{
    const struct dist d = { .kind = DIST_FLOAT, .high = x, .step = q };

    return dist_nth(&d, nearbyint(x / q));
}

void formats_quantize(struct space_param *p, double q)
{
    struct dist *d = &p->dist;

    if (!(q > 0) || !isfinite(d->low) || !isfinite(d->high)) {
        d->step = -1; /* refused when settled */
        return;
    }
    if (d->log && d->low > 0) { /* steps and a logarithmic scale: in the prior */
        p->shape = SPACE_LOG;
        p->a = d->low;
        p->b = d->high;
    }
    d->low = next_multiple(d->low, q);
    d->high = next_multiple(d->high, q);
    d->step = q;
    if (q == floor(q))
        d->kind = DIST_INT;
    if (d->log && q == 1 && d->low >= 1)
        p->shape = SPACE_FLAT;
    else
        d->log = d->log && d->low <= 0 && p->shape != SPACE_LOG;
}

void formats_normal(struct space_param *p, double mu, double sigma, bool logarithm,
                    double q)
{
    struct dist *d = &p->dist;

    p->shape = SPACE_NORMAL;
    p->a = mu;
    p->b = sigma;
    d->kind = DIST_FLOAT;
    d->log = logarithm;
    d->low = mu - NORMAL_WIDTHS * sigma;
    d->high = mu + NORMAL_WIDTHS * sigma;
    if (logarithm) {
        d->low = exp(d->low);
        d->high = exp(d->high);
    }
    if (!(sigma > 0))
        d->low = NAN; /* refused when settled */
    if (q != 0) {
        formats_quantize(p, q);
        d->log = false;
        p->shape = logarithm ? SPACE_LOGNORMAL : SPACE_NORMAL;
        p->a = mu;
        p->b = sigma;
    }
}

static bool is_wandb(const struct json *root)
{
    const struct json *parameters = json_get(root, "parameters");
    const char *method = json_string(json_get(root, "method"));

    return parameters
               ? parameters->type == JSON_OBJECT
               : method && (!strcmp(method, "grid") || !strcmp(method, "random") ||
                            !strcmp(method, "bayes"));
}

static bool is_sigopt(const struct json *root)
{
    const struct json *parameters = json_get(root, "parameters");

    return root->type == JSON_ARRAY || (parameters && parameters->type == JSON_ARRAY);
}

/* One distribution is enough: what is none beside it is refused then. */
static bool is_optuna(const struct json *root)
{
    for (const struct json *j = root->first; j; j = j->next) {
        const char *type = json_string(json_get(j, "type"));

        if (json_get(j, "attributes") ||
            (type && (!strcmp(type, "float") || !strcmp(type, "int")) &&
             (json_get(j, "low") || json_get(j, "high"))) ||
            (type && !strcmp(type, "categorical") && json_get(j, "choices")))
            return true;
    }
    return false;
}

/* Move parameters behind the ones they depend on; a circle is an error. */
static int order_params(struct formats_reader *r)
{
    struct space *s = &r->file->space;
    struct space_param *sorted = xcalloc(s->n + 1, sizeof(*sorted));
    int *place = xcalloc(s->n + 1, sizeof(*place)); /* where each went, from 1 */
    size_t n = 0, before;

    do {
        before = n;
        for (size_t i = 0; i < s->n; i++)
            if (!place[i] && (s->params[i].parent < 0 || place[s->params[i].parent])) {
                sorted[n] = s->params[i];
                place[i] = (int)++n;
            }
    } while (n > before);
    if (n == s->n && n > 0) {
        memcpy(s->params, sorted, n * sizeof(*sorted));
        for (size_t i = 0; i < n; i++)
            if (s->params[i].parent >= 0)
                s->params[i].parent = place[s->params[i].parent] - 1;
    }
    free(sorted);
    free(place);
    if (n < s->n)
        return err_set(r->err, ERR_INPUT,
                       "%s: parameters depend on each other in a circle", r->doc->name);
    return 0;
}

static int read_tree(struct sweepfile *f, const struct json_doc *doc, struct err *err)
{
    struct sweepfile out = { 0 };
    struct formats_reader r = { &out, doc, err };
    const struct json *root = doc->root;
    int ret;

    if (root->type != JSON_OBJECT && root->type != JSON_ARRAY)
        return json_error(doc, root, err, "not a sweep: neither an object nor a list");
    if (is_wandb(root))
        ret = formats_read_wandb(&r, root);
    else if (is_sigopt(root))
        ret = formats_read_sigopt(&r, root);
    else if (is_optuna(root))
        ret = formats_read_optuna(&r, root);
    else
        ret = formats_read_ray(&r, root);
    if (ret == 0)
        ret = order_params(&r);
    if (ret == 0 && !out.space.n)
        ret = json_error(doc, root, err, "no parameters");
    if (ret < 0)
        sweepfile_clear(&out);
    else
        *f = out;
    return ret;
}

/* JSON goes to the strict reader: its errors are clearer. */
static bool looks_like_json(const char *text, size_t n)
{
    size_t i = 0;

    while (i < n && strchr(" \t\r\n", text[i]))
        i++;
    if (i == n || (text[i] != '{' && text[i] != '['))
        return false;
    for (i++; i < n && strchr(" \t\r\n", text[i]); i++)
        ;
    return i < n && strchr("\"{[]}", text[i]);
}

int sweepfile_parse(struct sweepfile *f, const char *path, const char *text, size_t n,
                    struct err *err)
{
    struct json_doc doc;
    struct yaml yaml;
    int ret;

    if (looks_like_json(text, n)) {
        if (json_parse(&doc, path, text, n, err) < 0)
            return -1;
        ret = read_tree(f, &doc, err);
        json_clear(&doc);
        return ret;
    }
    if (yaml_parse(&yaml, path, text, n, err) < 0)
        return -1;
    ret = read_tree(f, &yaml.doc, err);
    yaml_clear(&yaml);
    return ret;
}

int sweepfile_read(struct sweepfile *f, const char *path, struct err *err)
{
    char *text;
    size_t n;
    int ret;

    if (fs_read_file(&text, &n, path, SIZE_MAX_BYTES, err) < 0)
        return -1;
    ret = sweepfile_parse(f, path, text, n, err);
    free(text);
    return ret;
}

void sweepfile_clear(struct sweepfile *f)
{
    space_clear(&f->space);
    for (size_t i = 0; i < f->nmetrics; i++)
        free(f->metrics[i].name);
    for (size_t i = 0; i < f->ncommand; i++)
        free(f->command[i]);
    free(f->metrics);
    free(f->command);
    free(f->name);
    free(f->sampler);
    free(f->pruner);
    free(f->program);
    *f = (struct sweepfile){ 0 };
}

void sweepfile_write_params(struct str *out, const struct space *s, const double *x)
{
    const char *comma = "";

    str_addc(out, '{');
    for (size_t i = 0; i < s->n; i++) {
        if (isnan(x[i]))
            continue;
        str_add(out, comma);
        str_add_json(out, s->params[i].name);
        str_add(out, ": ");
        dist_write_value(out, &s->params[i].dist, x[i]);
        comma = ", ";
    }
    str_addc(out, '}');
}
