/* format-wandb - a sweep in the configuration format of Weights & Biases */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/format/formats.h"
#include "lib/sweep/format/words.h"

enum { DEPTH_MAX = 32 };

/* How min and max are meant. */
enum ends { ENDS_NONE, ENDS_PLAIN, ENDS_LOG, ENDS_EXPONENT, ENDS_INVERSE };

static const struct distribution {
    const char *name;
    enum { FORM_RANGE, FORM_NORMAL, FORM_BETA, FORM_LIST, FORM_CONSTANT } form;
    enum ends ends;
    bool integer, quantized, logarithm;
} distributions[] = {
    { .name = "constant", .form = FORM_CONSTANT },
    { .name = "categorical", .form = FORM_LIST },
    { .name = "categorical_w_probabilities", .form = FORM_LIST },
    { .name = "int_uniform", .ends = ENDS_PLAIN, .integer = true },
    { .name = "uniform", .ends = ENDS_PLAIN },
    { .name = "q_uniform", .ends = ENDS_PLAIN, .quantized = true },
    { .name = "log_uniform", .ends = ENDS_EXPONENT },
    { .name = "log_uniform_values", .ends = ENDS_LOG },
    { .name = "q_log_uniform", .ends = ENDS_EXPONENT, .quantized = true },
    { .name = "q_log_uniform_values", .ends = ENDS_LOG, .quantized = true },
    { .name = "inv_log_uniform", .ends = ENDS_INVERSE },
    { .name = "inv_log_uniform_values", .ends = ENDS_LOG },
    { .name = "normal", .form = FORM_NORMAL },
    { .name = "q_normal", .form = FORM_NORMAL, .quantized = true },
    { .name = "log_normal", .form = FORM_NORMAL, .logarithm = true },
    { .name = "q_log_normal",
      .form = FORM_NORMAL,
      .quantized = true,
      .logarithm = true },
    { .name = "beta", .form = FORM_BETA },
    { .name = "q_beta", .form = FORM_BETA, .quantized = true },
};

static const struct distribution *find(const char *name)
{
    for (size_t i = 0; i < sizeof(distributions) / sizeof(*distributions); i++)
        if (!strcmp(distributions[i].name, name))
            return &distributions[i];
    return NULL;
}

static bool is_integer(const struct json *j)
{
    int64_t x;

    return json_i64(j, &x);
}

/* What W&B takes when a parameter has no "distribution". */
static const char *infer(const struct json *j)
{
    if (json_get(j, "value"))
        return "constant";
    if (json_get(j, "values"))
        return "categorical";
    if (!json_get(j, "min") || !json_get(j, "max"))
        return NULL;
    return is_integer(json_get(j, "min")) && is_integer(json_get(j, "max"))
               ? "int_uniform"
               : "uniform";
}

/* The number KEY, or FALLBACK; NaN as fallback means that it must be there. */
static int number(double *out, struct formats_reader *r, const struct json *param,
                  const char *name, const char *key, double fallback)
{
    *out = fallback;
    return isnan(fallback) || json_get(param, key)
               ? formats_number(out, r, param, name, key)
               : 0;
}

static int read_range(struct formats_reader *r, const struct json *j,
                      const struct distribution *d, struct space_param *p)
{
    struct dist *out = &p->dist;
    double low, high, q;

    if (number(&low, r, j, p->name, "min", NAN) < 0 ||
        number(&high, r, j, p->name, "max", NAN) < 0 ||
        number(&q, r, j, p->name, "q", 1) < 0)
        return -1;
    if (low > high)
        return formats_error(r, j, p->name, "'min' is above 'max'");
    if (d->ends == ENDS_LOG && low <= 0)
        return formats_error(r, json_get(j, "min"), p->name,
                             "a logarithmic scale needs 'min' above zero");
    if (d->quantized && q <= 0)
        return formats_error(r, json_get(j, "q"), p->name, "'q' is not above zero");
    out->kind = d->integer ? DIST_INT : DIST_FLOAT;
    out->log = d->ends != ENDS_PLAIN;
    out->low = d->ends == ENDS_EXPONENT  ? exp(low)
               : d->ends == ENDS_INVERSE ? exp(-high)
                                         : low;
    out->high = d->ends == ENDS_EXPONENT  ? exp(high)
                : d->ends == ENDS_INVERSE ? exp(-low)
                                          : high;
    if (d->quantized)
        formats_quantize(p, q);
    return 0;
}

static int read_normal(struct formats_reader *r, const struct json *j,
                       const struct distribution *d, struct space_param *p)
{
    double mu, sigma, q;

    if (number(&mu, r, j, p->name, "mu", 0) < 0 ||
        number(&sigma, r, j, p->name, "sigma", 1) < 0 ||
        number(&q, r, j, p->name, "q", 1) < 0)
        return -1;
    if (sigma <= 0)
        return formats_error(r, json_get(j, "sigma"), p->name,
                             "'sigma' is not above zero");
    if (d->quantized && q <= 0)
        return formats_error(r, json_get(j, "q"), p->name, "'q' is not above zero");
    formats_normal(p, mu, sigma, d->logarithm, d->quantized ? q : 0);
    return 0;
}

static int read_beta(struct formats_reader *r, const struct json *j,
                     const struct distribution *d, struct space_param *p)
{
    double q;

    if (number(&p->a, r, j, p->name, "a", NAN) < 0 ||
        number(&p->b, r, j, p->name, "b", NAN) < 0 ||
        number(&q, r, j, p->name, "q", 1) < 0)
        return -1;
    if (p->a <= 0 || p->b <= 0)
        return formats_error(r, j, p->name, "'a' and 'b' are not above zero");
    p->dist.kind = DIST_FLOAT;
    p->dist.high = 1;
    if (d->quantized)
        formats_quantize(p, q);
    p->shape = SPACE_BETA;
    return 0;
}

/* The weights of the choices: as many numbers, not negative, of sum 1. */
static int read_probabilities(struct formats_reader *r, const struct json *list,
                              struct space_param *p)
{
    double sum = 0;
    size_t i = 0;

    if (list->type != JSON_ARRAY || list->n != p->dist.nchoices)
        return formats_error(r, list, p->name,
                             "'probabilities' is not one number per value");
    p->weights = xcalloc(list->n + 1, sizeof(*p->weights));
    for (const struct json *j = list->first; j; j = j->next, i++) {
        if (!json_double(j, &p->weights[i]))
            return formats_error(r, j, p->name, "a probability is not a number");
        if (p->weights[i] < 0)
            return formats_error(r, j, p->name, "a probability below zero");
        sum += p->weights[i];
    }
    if (fabs(sum - 1) > 1e-6)
        return formats_error(r, list, p->name, "the probabilities do not add up to 1");
    for (i = 0; i < list->n; i++)
        p->weights[i] /= sum;
    p->shape = SPACE_WEIGHTED;
    return 0;
}

static int read_list(struct formats_reader *r, const struct json *j,
                     struct space_param *p)
{
    const struct json *values = json_get(j, "values");
    const struct json *probabilities = json_get(j, "probabilities");

    if (!values)
        return formats_error(r, j, p->name, "'values' is missing");
    if (formats_choices(&p->dist, r, values, p->name) < 0)
        return -1;
    return probabilities ? read_probabilities(r, probabilities, p) : 0;
}

static int read_constant(struct formats_reader *r, const struct json *j,
                         struct space_param *p)
{
    const struct json *value = json_get(j, "value");
    struct str text = { 0 };

    if (!value)
        return formats_error(r, j, p->name, "'value' is missing");
    json_print(&text, value);
    p->dist.kind = DIST_CATEGORICAL;
    dist_add_choice(&p->dist, str_steal(&text));
    return 0;
}

/* A key that the distribution does not have would be passed over in silence. */
static int check_leaf(struct formats_reader *r, const struct json *j, const char *name,
                      const struct distribution *d)
{
    static const char *const keys[][4] = {
        [FORM_RANGE] = { "distribution", "min", "max" },
        [FORM_NORMAL] = { "distribution", "mu", "sigma" },
        [FORM_BETA] = { "distribution", "a", "b" },
        [FORM_LIST] = { "distribution", "values", "probabilities" },
        [FORM_CONSTANT] = { "distribution", "value" },
    };
    static const char *const all[] = { "value",
                                       "values",
                                       "probabilities",
                                       "distribution",
                                       "min",
                                       "max",
                                       "mu",
                                       "sigma",
                                       "q",
                                       "a",
                                       "b",
                                       NULL };

    const struct json *scale =
        json_get(j, "scale") ? json_get(j, "scale") : json_get(j, "log");

    if (scale)
        return formats_error(r, scale, name,
                             "write distribution: log_uniform_values for a "
                             "logarithmic scale");
    if (formats_check_keys(r, j, name, all) < 0)
        return -1;
    for (const struct json *k = d ? j->first : NULL; k; k = k->next) {
        const char *const *w = keys[d->form];

        while (*w && strcmp(*w, k->key))
            w++;
        if (!*w && k->type != JSON_NULL && !(d->quantized && !strcmp(k->key, "q")))
            return json_error(r->doc, k, r->err, "%s: '%s' does not go with '%s'", name,
                              k->key, d->name);
    }
    return 0;
}

static int read_leaf(struct formats_reader *r, const struct json *j, const char *name)
{
    const struct json *named = json_get(j, "distribution");
    const char *word = named ? json_string(named) : infer(j);
    const struct distribution *d = word ? find(word) : NULL;
    struct space_param p = { .name = xstrdup(name) };
    int ret = -1;

    if (check_leaf(r, j, name, d) < 0)
        goto out;
    if (!d) {
        json_error(
            r->doc, named ? named : j, r->err,
            word ? "%s: unknown distribution '%s'"
                 : "%s: none of 'value', 'values', 'min' and 'max', 'distribution'",
            name, word);
        goto out;
    }
    ret = d->form == FORM_RANGE    ? read_range(r, j, d, &p)
          : d->form == FORM_NORMAL ? read_normal(r, j, d, &p)
          : d->form == FORM_BETA   ? read_beta(r, j, d, &p)
          : d->form == FORM_LIST   ? read_list(r, j, &p)
                                   : read_constant(r, j, &p);
    if (ret == 0)
        return formats_add(r, j, &p);
out:
    free(p.name);
    free(p.weights);
    dist_clear(&p.dist);
    return -1;
}

/* The parameters of OBJ; those nested in NAME are called NAME.key. */
static int read_params(struct formats_reader *r, const struct json *obj,
                       const char *prefix, int depth)
{
    static const char *const alone[] = { "parameters", NULL };

    if (obj->type != JSON_OBJECT || depth > DEPTH_MAX)
        return json_error(r->doc, obj, r->err, "'parameters' is not an object");
    for (const struct json *j = obj->first; j; j = j->next) {
        char *name = str_dupf("%s%s%s", prefix, *prefix ? "." : "", j->key);
        const struct json *nested = json_get(j, "parameters");
        int ret;

        if (j->type != JSON_OBJECT)
            ret = formats_error(r, j, name, "not an object such as {value: ...}");
        else if (nested)
            ret = formats_check_keys(r, j, name, alone) < 0
                      ? -1
                      : read_params(r, nested, name, depth + 1);
        else
            ret = read_leaf(r, j, name);
        free(name);
        if (ret < 0)
            return -1;
    }
    return 0;
}

static int read_metric(struct formats_reader *r, const struct json *j)
{
    static const char *const known[] = {
        "name", "goal", "target", "impute", "impute_while_running", NULL
    };
    const char *name = json_string(json_get(j, "name"));
    const struct json *way = json_get(j, "goal");
    const char *goal = json_string(way);
    struct sweepfile *f = r->file;
    double target = NAN;

    if (formats_check_keys(r, j, "metric", known) < 0 ||
        (json_get(j, "target") && number(&target, r, j, "metric", "target", NAN) < 0))
        return -1;
    if (!name)
        return json_error(r->doc, j, r->err, "metric: 'name' is missing");
    if (way && (!goal || (strcmp(goal, "minimize") && strcmp(goal, "maximize"))))
        return json_error(r->doc, way, r->err,
                          "metric: 'goal' is minimize or maximize, not '%s'",
                          way->text ? way->text : "");
    f->metrics = xrealloc(f->metrics, (f->nmetrics + 1) * sizeof(*f->metrics));
    f->metrics[f->nmetrics++] =
        (struct sweepfile_metric){ xstrdup(name), goal && !strcmp(goal, "maximize"),
                                   target };
    return 0;
}

/* Hyperband in W&B's words: rungs at min_iter * eta^k, or down from max_iter. */
static int read_early(struct formats_reader *r, const struct json *j)
{
    static const char *const known[] = { "type", "min_iter", "max_iter", "s",
                                         "eta",  "strict",   NULL };
    const struct json *strict = json_get(j, "strict");
    const char *type = json_string(json_get(j, "type"));
    double least, most, s, eta, resource;

    if (formats_check_keys(r, j, "early_terminate", known) < 0)
        return -1;
    if (!type || strcmp(type, "hyperband"))
        return json_error(r->doc, type ? json_get(j, "type") : j, r->err,
                          "early_terminate: 'type' is hyperband, not '%s'; --pruner "
                          "names others",
                          type ? type : "");
    if (strict && strict->type != JSON_TRUE && strict->type != JSON_FALSE)
        return json_error(r->doc, strict, r->err,
                          "early_terminate: 'strict' is true or false");
    if (number(&least, r, j, "early_terminate", "min_iter", 0) < 0 ||
        number(&most, r, j, "early_terminate", "max_iter", 0) < 0 ||
        number(&s, r, j, "early_terminate", "s", 0) < 0 ||
        number(&eta, r, j, "early_terminate", "eta", 3) < 0)
        return -1;
    if (eta < 2 || eta != floor(eta))
        return json_error(r->doc, json_get(j, "eta"), r->err,
                          "early_terminate: 'eta' is an integer from 2");
    resource = least > 0 ? least : most > 0 && s > 0 ? floor(most / pow(eta, s)) : 0;
    if (resource < 1)
        return json_error(
            r->doc, j, r->err,
            most > 0 && s <= 0
                ? "early_terminate: 'max_iter' needs 's', the number of brackets"
            : least <= 0 && most > 0
                ? "early_terminate: 'max_iter' divided 's' times by 'eta' is below 1"
                : "early_terminate: hyperband needs 'min_iter', or 'max_iter' and 's', "
                  "from 1");
    r->file->pruner = str_dupf("successive-halving:resource=%.0f,reduction=%.0f",
                               floor(resource), eta);
    return 0;
}

static bool known_macro(const char *name, size_t n)
{
    static const char *const macros[] = {
        "env",       "interpreter",     "program",
        "args",      "args_no_hyphens", "args_no_boolean_flags",
        "args_json", "args_json_file",
    };

    for (size_t i = 0; i < sizeof(macros) / sizeof(*macros); i++)
        if (strlen(macros[i]) == n && !memcmp(macros[i], name, n))
            return true;
    return n > 7 && !memcmp(name, "envvar:", 7);
}

static int check_word(struct formats_reader *r, const struct json *j)
{
    struct err name = { 0 };

    if (words_check_loosely(j->text, &r->file->space, &name) < 0)
        return json_error(r->doc, j, r->err, "command: %s", name.text);
    for (const char *p = strstr(j->text, "${"); p; p = strstr(p + 2, "${")) {
        size_t n = strcspn(p + 2, "}");

        if (!p[2 + n] || !known_macro(p + 2, n))
            return json_error(r->doc, j, r->err, "command: unknown macro '%.*s'",
                              (int)(n + 3), p);
        if (str_starts(p + 2, "args") && !str_starts(p + 2, "args_json") &&
            strlen(j->text) != n + 3)
            return json_error(r->doc, j, r->err, "command: '%.*s' is a word of its own",
                              (int)(n + 3), p);
        if (n == 7 && !memcmp(p + 2, "program", 7) && !r->file->program)
            return json_error(r->doc, j, r->err,
                              "command: ${program} without a 'program'");
    }
    return 0;
}

static int read_command(struct formats_reader *r, const struct json *list)
{
    struct sweepfile *f = r->file;

    if (list->type != JSON_ARRAY || !list->n)
        return json_error(r->doc, list, r->err, "'command' is not a list of words");
    f->command = xcalloc(list->n, sizeof(*f->command));
    for (const struct json *j = list->first; j; j = j->next) {
        if (j->type != JSON_STRING && j->type != JSON_NUMBER)
            return json_error(r->doc, j, r->err, "command: not a word");
        if (check_word(r, j) < 0)
            return -1;
        f->command[f->ncommand++] = xstrdup(j->text);
    }
    return 0;
}

static int read_method(struct formats_reader *r, const struct json *j)
{
    static const char *const methods[][2] = { { "grid", "grid" },
                                              { "random", "random" },
                                              { "bayes", "tpe" } };
    const char *word = json_string(j);

    for (size_t i = 0; word && i < sizeof(methods) / sizeof(*methods); i++)
        if (!strcmp(word, methods[i][0])) {
            r->file->sampler = xstrdup(methods[i][1]);
            return 0;
        }
    return json_error(r->doc, j, r->err, "'method' is one of grid, random, bayes");
}

static int read_text(char **out, struct formats_reader *r, const struct json *j)
{
    if (j && !json_string(j))
        return json_error(r->doc, j, r->err, "'%s' is not a word", j->key);
    *out = j ? xstrdup(j->text) : NULL;
    return 0;
}

int formats_read_wandb(struct formats_reader *r, const struct json *root)
{
    static const char *const known[] = {
        "program",         "method",  "metric",  "metrics",   "parameters",
        "early_terminate", "command", "run_cap", "name",      "description",
        "project",         "entity",  "job",     "image_uri", NULL,
    };
    const struct json *metrics = json_get(root, "metrics"), *j;

    if (formats_check_keys(r, root, "", known) < 0)
        return -1;
    if (!json_get(root, "parameters"))
        return json_error(r->doc, root, r->err, "'parameters' is missing");
    if (read_text(&r->file->name, r, json_get(root, "name")) < 0 ||
        read_text(&r->file->program, r, json_get(root, "program")) < 0 ||
        read_params(r, json_get(root, "parameters"), "", 0) < 0)
        return -1;
    if ((j = json_get(root, "method")) && read_method(r, j) < 0)
        return -1;
    if ((j = json_get(root, "metric")) && read_metric(r, j) < 0)
        return -1;
    if (metrics && metrics->type != JSON_ARRAY)
        return json_error(r->doc, metrics, r->err, "'metrics' is not a list");
    for (j = metrics ? metrics->first : NULL; j; j = j->next)
        if (read_metric(r, j) < 0)
            return -1;
    if ((j = json_get(root, "early_terminate")) && j->type != JSON_NULL &&
        read_early(r, j) < 0)
        return -1;
    if ((j = json_get(root, "command")) && read_command(r, j) < 0)
        return -1;
    j = json_get(root, "run_cap");
    if (j && (!json_u64(j, &r->file->run_cap) || !r->file->run_cap))
        return json_error(r->doc, j, r->err, "'run_cap' is not a number of trials");
    return 0;
}
