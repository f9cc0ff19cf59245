/* format-sigopt - a sweep given as SigOpt's list of parameters
 *
 * Also a whole experiment: {"name", "parameters": [...], "metrics", "conditionals",
 * "observation_budget"}. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/format/formats.h"

static int read_scale(struct formats_reader *r, const struct json *param,
                      struct space_param *p)
{
    const struct json *j = json_get(param, "transformation");
    const char *s = json_string(j);

    p->dist.log = s && !strcmp(s, "log");
    if (j && j->type != JSON_NULL && !p->dist.log && !(s && !strcmp(s, "none")))
        return formats_error(r, j, p->name, "'transformation' is log or none");
    return 0;
}

/* {"name": "normal", "mean", "scale"} or {"name": "beta", "shape_a", "shape_b"} */
static int read_prior(struct formats_reader *r, const struct json *j,
                      struct space_param *p)
{
    const char *name = json_string(json_get(j, "name"));
    bool normal = name && !strcmp(name, "normal");

    if (!normal && !(name && !strcmp(name, "beta")))
        return formats_error(r, j, p->name, "unknown prior");
    if (p->dist.log)
        return formats_error(r, j, p->name, "a prior and a logarithmic scale");
    if (formats_number(&p->a, r, j, p->name, normal ? "mean" : "shape_a") < 0 ||
        formats_number(&p->b, r, j, p->name, normal ? "scale" : "shape_b") < 0)
        return -1;
    if (p->b <= 0 || (!normal && p->a <= 0))
        return formats_error(r, j, p->name, "the prior's numbers are not above zero");
    if (!normal && (p->dist.low != 0 || p->dist.high != 1))
        return formats_error(r, j, p->name, "a beta prior needs the bounds 0 and 1");
    p->shape = normal ? SPACE_NORMAL : SPACE_BETA;
    return 0;
}

static int read_numeric(struct formats_reader *r, const struct json *j,
                        struct space_param *p)
{
    const struct json *bounds = json_get(j, "bounds"), *grid = json_get(j, "grid");
    const struct json *precision = json_get(j, "precision"), *prior;
    double digits;

    if (grid && bounds)
        return formats_error(r, grid, p->name, "both 'grid' and 'bounds'");
    if (grid)
        return formats_choices(&p->dist, r, grid, p->name);
    if (!bounds)
        return formats_error(r, j, p->name, "'bounds' is missing");
    if (formats_number(&p->dist.low, r, bounds, p->name, "min") < 0 ||
        formats_number(&p->dist.high, r, bounds, p->name, "max") < 0 ||
        read_scale(r, j, p) < 0)
        return -1;
    if (precision && precision->type != JSON_NULL) {
        if (formats_number(&digits, r, j, p->name, "precision") < 0)
            return -1;
        if (p->dist.log || p->dist.kind == DIST_INT || digits < 0 || digits > 15 ||
            digits != floor(digits))
            return formats_error(r, precision, p->name,
                                 "'precision' is a number of decimals of a double");
        p->dist.step = pow(10, -digits);
    }
    prior = json_get(j, "prior");
    return prior && prior->type != JSON_NULL ? read_prior(r, prior, p) : 0;
}

/* Values are words, or objects that have a name. */
static int read_categorical(struct formats_reader *r, const struct json *j,
                            struct space_param *p)
{
    const struct json *list = json_get(j, "categorical_values"), *value;
    struct str text = { 0 };
    long twice;

    if (!list || list->type != JSON_ARRAY)
        return formats_error(r, list ? list : j, p->name,
                             "'categorical_values' is not a list");
    if (!list->first || list->first->type != JSON_OBJECT)
        return formats_choices(&p->dist, r, list, p->name);
    for (const struct json *v = list->first; v; v = v->next) {
        const char *name = json_string(json_get(v, "name"));

        if (!name)
            return formats_error(r, v, p->name, "a value without a name");
        str_add_json(&text, name);
        dist_add_choice(&p->dist, str_steal(&text));
    }
    twice = dist_repeated_choice(&p->dist);
    value = list->first;
    for (long i = 0; i < twice; i++)
        value = value->next;
    return twice < 0 ? 0 : formats_error(r, value, p->name, "a value is listed twice");
}

static int read_param(struct formats_reader *r, const struct json *j)
{
    /* A default is what trials before a parameter was added are taken to have had. */
    static const char *const known[] = {
        "name",       "type",           "bounds",        "categorical_values",
        "grid",       "transformation", "precision",     "prior",
        "conditions", "object",         "default_value", NULL,
    };
    const char *name = json_string(json_get(j, "name"));
    const char *type = json_string(json_get(j, "type"));
    struct space_param p = { 0 };
    int ret;

    if (!name)
        return json_error(r->doc, j, r->err, "a parameter without a name");
    if (formats_check_keys(r, j, name, known) < 0)
        return -1;
    p.name = xstrdup(name);
    if (type && !strcmp(type, "categorical")) {
        p.dist.kind = DIST_CATEGORICAL;
        ret = read_categorical(r, j, &p);
    } else if (type && (!strcmp(type, "double") || !strcmp(type, "int"))) {
        p.dist.kind = !strcmp(type, "int") ? DIST_INT : DIST_FLOAT;
        ret = read_numeric(r, j, &p);
    } else {
        ret = formats_error(r, j, name, "'type' is one of double, int, categorical");
    }
    if (ret == 0)
        return formats_add(r, j, &p);
    free(p.name);
    dist_clear(&p.dist);
    return -1;
}

/* Values that must be one of those of CONDITION's parameter. */
static int add_values(struct formats_reader *r, size_t i, const char *parent,
                      const struct json *values)
{
    struct str text = { 0 };
    int ret = 0;

    if (!values || values->type != JSON_ARRAY)
        return json_error(r->doc, values, r->err, "%s: a condition without values",
                          r->file->space.params[i].name);
    for (const struct json *v = values->first; v && ret == 0; v = v->next) {
        str_reset(&text);
        json_print(&text, v);
        ret = formats_condition(r, v, i, parent, str_text(&text));
    }
    str_clear(&text);
    return ret;
}

/* [{"name": parent, "values": [...]}] or {parent: [...]} */
static int read_conditions(struct formats_reader *r, const struct json *j, size_t i)
{
    const struct json *conditions = json_get(j, "conditions");

    if (!conditions)
        return 0;
    for (const struct json *c = conditions->first; c; c = c->next) {
        bool listed = conditions->type == JSON_ARRAY;
        const char *parent = listed ? json_string(json_get(c, "name")) : c->key;

        if (!parent)
            return json_error(r->doc, c, r->err, "a condition without a name");
        if (add_values(r, i, parent, listed ? json_get(c, "values") : c) < 0)
            return -1;
    }
    return 0;
}

/* An experiment's conditionals are choices like any other. */
static int read_conditionals(struct formats_reader *r, const struct json *list)
{
    for (const struct json *j = list ? list->first : NULL; j; j = j->next) {
        const char *name = json_string(json_get(j, "name"));
        const struct json *values = json_get(j, "values");
        struct space_param p = { 0 };

        if (!name || !values)
            return json_error(r->doc, j, r->err,
                              "a conditional without name or values");
        p.name = xstrdup(name);
        if (formats_choices(&p.dist, r, values, name) < 0) {
            free(p.name);
            dist_clear(&p.dist);
            return -1;
        }
        if (formats_add(r, j, &p) < 0)
            return -1;
    }
    return 0;
}

static int read_metrics(struct formats_reader *r, const struct json *list)
{
    struct sweepfile *f = r->file;

    if (list && list->type != JSON_ARRAY)
        return json_error(r->doc, list, r->err, "'metrics' is not a list");
    for (const struct json *j = list ? list->first : NULL; j; j = j->next) {
        const char *name =
            j->type == JSON_STRING ? j->text : json_string(json_get(j, "name"));
        const struct json *way = json_get(j, "objective");
        const char *goal = json_string(way);

        if (!name)
            return json_error(r->doc, j, r->err, "a metric without a name");
        if (way && way->type != JSON_NULL &&
            !(goal && (!strcmp(goal, "minimize") || !strcmp(goal, "maximize"))))
            return json_error(r->doc, way, r->err,
                              "%s: 'objective' is minimize or maximize", name);
        f->metrics = xrealloc(f->metrics, (f->nmetrics + 1) * sizeof(*f->metrics));
        /* SigOpt maximizes unless told otherwise. */
        f->metrics[f->nmetrics++] =
            (struct sweepfile_metric){ xstrdup(name),
                                       !goal || strcmp(goal, "minimize") != 0, NAN };
    }
    return 0;
}

int formats_read_sigopt(struct formats_reader *r, const struct json *root)
{
    static const char *const known[] = {
        "name",    "parameters", "metrics", "conditionals", "observation_budget",
        "project", "type",       "object",  "metadata",     "parallel_bandwidth",
        NULL,
    };
    const struct json *list =
        root->type == JSON_ARRAY ? root : json_get(root, "parameters");
    const char *name = json_string(json_get(root, "name"));
    const struct json *budget = json_get(root, "observation_budget");
    size_t i;

    if ((root != list && formats_check_keys(r, root, "", known) < 0) ||
        read_conditionals(r, json_get(root, "conditionals")) < 0)
        return -1;
    i = r->file->space.n;
    for (const struct json *j = list->first; j; j = j->next)
        if (read_param(r, j) < 0)
            return -1;
    for (const struct json *j = list->first; j; j = j->next, i++)
        if (read_conditions(r, j, i) < 0)
            return -1;
    if (read_metrics(r, json_get(root, "metrics")) < 0)
        return -1;
    if (budget && !json_u64(budget, &r->file->run_cap))
        return json_error(r->doc, budget, r->err,
                          "'observation_budget' is not a number of trials");
    if (name)
        r->file->name = xstrdup(name);
    return 0;
}
