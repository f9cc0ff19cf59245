/* adapterconfig - adapter_config.json, as PEFT reads and writes it */
#include "lib/run/adapterconfig.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"

enum { MOST_CONFIG = 1 << 20 };

/* ---- reading ---- */

static bool is_in(const char *const *list, const char *word)
{
    while (*list && strcmp(*list, word) != 0)
        list++;
    return *list;
}

static bool is_nothing(const struct json *j)
{
    return j->type == JSON_NULL || j->type == JSON_FALSE ||
           ((j->type == JSON_ARRAY || j->type == JSON_OBJECT ||
             j->type == JSON_STRING) &&
            !j->n);
}

/* Settings that only training reads, or that the tensors tell. */
static const char *const told[] = { "peft_type",
                                    "r",
                                    "lora_alpha",
                                    "use_rslora",
                                    "rank_pattern",
                                    "alpha_pattern",
                                    "target_modules",
                                    "target_parameters",
                                    "exclude_modules",
                                    "layers_to_transform",
                                    "layers_pattern",
                                    "fan_in_fan_out",
                                    "lora_dropout",
                                    "task_type",
                                    "inference_mode",
                                    "base_model_name_or_path",
                                    "revision",
                                    "peft_version",
                                    "auto_mapping",
                                    "loftq_config",
                                    "runtime_config",
                                    "qalora_group_size",
                                    "ensure_weight_tying",
                                    "megatron_core",
                                    "modules_to_save",
                                    "use_dora",
                                    NULL };

/* Initializations that leave the model's own weights alone. */
static const char *const plain_starts[] = { "gaussian", "orthogonal", "eva", NULL };

static int check_settings(const struct adapter_config *a, struct err *err)
{
    const struct json *root = a->doc.root, *type = json_get(root, "peft_type");
    const struct json *rs = json_get(root, "use_rslora");

    if (root->type != JSON_OBJECT || !type)
        return json_error(&a->doc, root, err, "not an adapter's config: no peft_type");
    if (!json_string(type) || strcmp(type->text, "LORA") != 0)
        return err_set(err, ERR_NO, "%s: peft_type %s: only LORA is read", a->path,
                       json_string(type) ? type->text : "is no text");
    if (rs && rs->type != JSON_TRUE && rs->type != JSON_FALSE && rs->type != JSON_NULL)
        return json_error(&a->doc, rs, err, "use_rslora is neither true nor false");
    for (const struct json *j = root->first; j; j = j->next) {
        if (is_in(told, j->key) || is_nothing(j) ||
            (!strcmp(j->key, "bias") && json_string(j) && !strcmp(j->text, "none")) ||
            (!strcmp(j->key, "init_lora_weights") &&
             (j->type == JSON_TRUE ||
              (json_string(j) && is_in(plain_starts, j->text)))))
            continue;
        return err_set(err, ERR_NO, "%s: %s: an adapter with this setting is not read",
                       a->path, j->key);
    }
    return 0;
}

/* Is the module NAME one that PATTERN, a key of rank_pattern or alpha_pattern, names:
 * it or its end after a full stop.  Only names are read, not PEFT's expressions. */
static bool names(const char *pattern, const char *name)
{
    size_t n = strlen(pattern), all = strlen(name);

    return n <= all && !strcmp(name + all - n, pattern) &&
           (n == all || name[all - n - 1] == '.');
}

/* What the config states of the module NAME: the first member of PATTERNS that names
 * it, or the config's member KEY; NULL: nothing.  *other becomes a member of PATTERNS
 * before it that is not a name, or NULL. */
static const struct json *stated(const struct adapter_config *a, const char *patterns,
                                 const char *key, const char *name,
                                 const struct json **other)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    static const char any[] = ".*\\.";
    const struct json *pattern = json_get(a->doc.root, patterns);

    *other = NULL;
    for (const struct json *k = pattern ? pattern->first : NULL; k; k = k->next) {
        const char *word = k->key; /* PEFT itself writes this beginning */

        if (word && str_starts(word, any))
            word += strlen(any);
        if (!word || word[strspn(word, plain)])
            *other = k;
        else if (names(word, name))
            return k;
    }
    return json_get(a->doc.root, key);
}

int adapter_config_scale(double *scale, const struct adapter_config *a,
                         const char *name, uint64_t rank, struct err *err)
{
    const struct json *rs = json_get(a->doc.root, "use_rslora"), *other;
    const struct json *j = stated(a, "alpha_pattern", "lora_alpha", name, &other);
    double alpha;

    if (other)
        return err_set(err, ERR_NO, "%s: alpha_pattern: %s: only names are read",
                       a->path, other->key ? other->key : "a list");
    if (!j || !json_double(j, &alpha) || !isfinite(alpha))
        return json_error(&a->doc, j, err, "lora_alpha is no number");
    *scale = alpha / (json_is_true(rs) ? sqrt((double)rank) : (double)rank);
    if (fabs(*scale) > (double)FLT_MAX)
        return json_error(&a->doc, j, err,
                          "lora_alpha %s of %s is more than f32 can hold", j->text,
                          name);
    return 0;
}

int adapter_config_check_rank(const struct adapter_config *a, const char *name,
                              const struct tensor *t, struct err *err)
{
    const struct json *other, *j = stated(a, "rank_pattern", "r", name, &other);
    const char *key = j == json_get(a->doc.root, "r") ? "r" : "rank_pattern";
    double rank;

    if (!j || other)
        return 0;
    if (!json_double(j, &rank))
        return json_error(&a->doc, j, err, "%s of %s is no number", key, name);
    if (rank != (double)t->shape[0])
        return json_error(&a->doc, j, err, "%s is %s, but tensor %s has rank %" PRIu64,
                          key, j->text, t->name, t->shape[0]);
    return 0;
}

int adapter_config_read(struct adapter_config *c, const char *path, struct err *err)
{
    size_t n;

    *c = (struct adapter_config){ .path = xstrdup(path) };
    if (fs_read_regular(&c->text, &n, path, MOST_CONFIG, err) < 0 ||
        json_parse_config(&c->doc, c->path, c->text, n, err) < 0)
        return -1;
    c->parsed = true;
    return check_settings(c, err);
}

void adapter_config_clear(struct adapter_config *c)
{
    if (c->parsed)
        json_clear(&c->doc);
    free(c->text);
    free(c->path);
    *c = (struct adapter_config){ 0 };
}

const char *adapter_config_base(const struct adapter_config *c)
{
    return json_string(json_get(c->doc.root, "base_model_name_or_path"));
}

double adapter_config_dropout(const struct adapter_config *c)
{
    double rate = 0;

    return json_double(json_get(c->doc.root, "lora_dropout"), &rate) && rate > 0 &&
                   rate < 1
               ? rate
               : 0;
}

const char *adapter_config_parameter(const struct adapter_config *c, size_t k)
{
    const struct json *list = json_get(c->doc.root, "target_parameters");
    const struct json *j = list && list->type == JSON_ARRAY ? list->first : NULL;

    while (j && k--)
        j = j->next;
    return json_string(j);
}

/* ---- writing ---- */

static void add_flag(struct str *out, const char *key, bool is)
{
    str_addf(out, ",\n  \"%s\": %s", key, is ? "true" : "false");
}

/* The names in LIST, between commas, or null. */
static void add_list(struct str *out, const char *list)
{
    str_add(out, list ? "[" : "null");
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, ",");
        char *one = xstrndup(p, n);

        str_add(out, p == list ? "" : ", ");
        str_add_json(out, one);
        free(one);
        p += n + (p[n] == ',');
    }
    str_add(out, list ? "]" : "");
}

void adapter_config_print(struct str *out, const struct adapter_wish *w,
                          const char *base, const char *modules, const char *parameters,
                          bool turned)
{
    str_add(out, "{\n  \"base_model_name_or_path\": ");
    str_add_json(out, base);
    str_add(out, ",\n  \"bias\": \"none\"");
    add_flag(out, "fan_in_fan_out", turned);
    add_flag(out, "inference_mode", true);
    str_add(out, ",\n  \"init_lora_weights\": true,\n  \"lora_alpha\": ");
    str_add_double(out, w->alpha);
    str_add(out, ",\n  \"lora_dropout\": ");
    str_add_double(out, w->dropout);
    str_add(out, ",\n  \"modules_to_save\": ");
    add_list(out, w->saved);
    str_addf(out, ",\n  \"peft_type\": \"LORA\"");
    str_addf(out, ",\n  \"r\": %" PRIu64 ",\n  \"target_modules\": ", w->rank);
    add_list(out, modules);
    if (*parameters) {
        str_add(out, ",\n  \"target_parameters\": ");
        add_list(out, parameters);
    }
    str_add(out, ",\n  \"task_type\": ");
    if (w->task)
        str_add_json(out, w->task);
    else
        str_add(out, "null");
    add_flag(out, "use_dora", w->dora);
    add_flag(out, "use_rslora", w->rslora);
    str_add(out, "\n}\n");
}
