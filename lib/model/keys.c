/* keys - checks every key of a config.json */
#include "lib/model/keys.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/model/quant.h"
#include "lib/model/state.h"

/* Keys that change no output of the forward pass of any family. */
static const char *const harmless[] = {
    /* names and versions */
    "_*", "model_type", "architectures", "auto_map", "name_or_path", "tokenizer_class",
    "transformers_version", "transformers.js_config", "prefix", "task_specific_params",
    "finetuning_task", "problem_type", "*_token", "language",
    /* data types and implementations of the same result */
    "dtype", "torch_dtype", "use_bfloat16", "torchscript", "use_cache",
    "attn_implementation", "gradient_checkpointing*", "chunk_size_feed_forward",
    "pretraining_tp", "ep_size", "base_model_*_plan", "slow_but_exact",
    "*softmax_in_fp32", "reorder_and_upcast_attn", "fp32_attention", "init_device",
    /* outputs */
    "return_dict*", "output_attentions", "output_hidden_states", "output_router_logits",
    "output_scores", "output_past", "id2label", "label2id", "num_labels",
    "is_encoder_decoder", "keys_to_ignore_at_inference",
    /* training */
    "*dropout*", "*pdrop*", "*layerdrop*", "initializer_*", "init_*",
    "router_aux_loss_coef", "router_jitter_noise", "router_z_loss_coef", "*aux_loss*",
    "seq_aux", "rescale_prenorm_residual", "use_mup", "label_smoothing",
    /* token ids and generation (generate checks these itself) */
    "*_token_id", "max_length", "min_length", "max_new_tokens", "do_sample",
    "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size",
    "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "num_return_sequences",
    "remove_invalid_values", "exponential_decay_length_penalty", "forced_bos_token_id",
    "forced_eos_token_id", "generation_config",
    /* the additional head of GPT2DoubleHeadsModel */
    "summary_*"
};

bool keys_is_harmless(const char *key)
{
    for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++)
        if (fnmatch(harmless[i], key, 0) == 0)
            return true;
    return false;
}

/* ---- what the family reads ---- */

/* Paths into the config, such as "rope_scaling.factor". */
struct paths {
    char **v;
    size_t n, cap;
};

static void paths_add(struct paths *p, char *path)
{
    for (size_t i = 0; i < p->n; i++)
        if (!strcmp(p->v[i], path)) {
            free(path);
            return;
        }
    p->v = xgrow(p->v, &p->cap, p->n + 1, sizeof(*p->v));
    p->v[p->n++] = path;
}

static void paths_clear(struct paths *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->v[i]);
    free(p->v);
    *p = (struct paths){ 0 };
}

struct scan {
    const struct family *f;
    struct paths *out;
    int depth; /* nesting of symbols in symbols */
};

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static void scan_text(struct scan *s, const char *text, const char *self,
                      const char *members, bool is_line);

/* Handles NAME, followed by ".member.member" in MEMBERS. */
static void scan_name(struct scan *s, const char *name, const char *self,
                      const char *members, bool is_line)
{
    const struct family_entry *e = family_get(&s->f->symbols, name);

    if (is_line && family_get(&s->f->tensors, name))
        return;
    for (size_t i = 0; is_line && i < s->f->nsections; i++)
        for (size_t k = 0; k < s->f->section[i].n; k++)
            if (!strcmp(s->f->section[i].line[k].name, name))
                return;
    if (!e || (self && !strcmp(self, name))) {
        paths_add(s->out, str_dupf("%s%s", name, members));
        return;
    }
    /* the symbol stands for an object: the members are members of its definition */
    if (*members && json_string(e->json) && s->depth < 8) {
        s->depth++;
        scan_text(s, e->json->text, name, members, false);
        s->depth--;
    }
}

/* Finds the names in TEXT, the definition of SELF (or NULL), and appends MEMBERS to
 * each. */
static void scan_text(struct scan *s, const char *text, const char *self,
                      const char *members, bool is_line)
{
    const char *p = text;

    while (*p) {
        const char *begin = p, *end, *next;
        char *name, *path;

        if (*p == '\'') {
            p = strchr(p + 1, '\'');
            if (!p)
                return;
            p++;
            continue;
        }
        if (isdigit((unsigned char)*p)) {
            while (is_word(*p) || *p == '.' ||
                   ((*p == '-' || *p == '+') && (p[-1] == 'e' || p[-1] == 'E')))
                p++;
            continue;
        }
        if (!is_word(*p)) {
            p++;
            continue;
        }
        while (is_word(*p))
            p++;
        end = p;
        while (*p == '.' && is_word(p[1]))
            for (p++; is_word(*p); p++)
                ;
        next = p + strspn(p, " ");
        if (*next == '(' || (is_line && *next == '=' && next[1] != '='))
            continue; /* a function, or the name of an argument */
        name = xstrndup(begin, (size_t)(end - begin));
        path = str_dupf("%.*s%s", (int)(p - end), end, members);
        scan_name(s, name, self, path, is_line);
        free(name);
        free(path);
    }
}

/* Every config path that F's expressions may read, in any branch. */
static void find_paths(struct paths *out, const struct family *f)
{
    struct scan s = { .f = f, .out = out };

    for (size_t i = 0; i < f->symbols.n; i++)
        if (json_string(f->symbols.v[i].json))
            scan_text(&s, f->symbols.v[i].json->text, f->symbols.v[i].key, "", false);
    for (size_t i = 0; i < f->rope.n; i++)
        for (const struct json *j = f->rope.v[i].json->first; j; j = j->next)
            if (json_string(j))
                scan_text(&s, j->text, NULL, "", false);
    for (size_t i = 0; i < f->tensors.n; i++)
        for (const struct json *j = f->tensors.v[i].json->first; j; j = j->next)
            if (json_string(json_get(j, "when")))
                scan_text(&s, json_get(j, "when")->text, NULL, "", false);
    for (size_t i = 0; i < f->nsections; i++)
        for (size_t k = 0; k < f->section[i].n; k++) {
            const struct family_line *l = &f->section[i].line[k];

            scan_text(&s, l->text, NULL, "", true);
            if (l->when)
                scan_text(&s, l->when->text, NULL, "", false);
        }
}

/* ---- one key ---- */

struct check {
    const struct model *m;
    const struct family *f;
    struct paths read;
    enum keys_need need;
    struct str *ignored;
    struct err *err;
};

static bool is_below(const char *path, const char *object)
{
    size_t n = strlen(object);

    return !strncmp(path, object, n) && path[n] == '.';
}

/* Is PATH itself read?  (has_members: are members of it read or listed?) */
static bool is_read(const struct check *c, const char *path)
{
    for (size_t i = 0; i < c->read.n; i++)
        if (!strcmp(c->read.v[i], path))
            return true;
    return false;
}

static bool has_members(const struct check *c, const char *path)
{
    for (size_t i = 0; i < c->read.n; i++)
        if (is_below(c->read.v[i], path))
            return true;
    for (size_t i = 0; i < c->f->config.n; i++)
        if (is_below(c->f->config.v[i].key, path))
            return true;
    return false;
}

static bool values_equal(const struct json *a, const cJSON *b)
{
    double x;

    switch (a->type) {
    case JSON_NULL:
        return cJSON_IsNull(b);
    case JSON_TRUE:
        return cJSON_IsTrue(b);
    case JSON_FALSE:
        return cJSON_IsFalse(b);
    case JSON_NUMBER:
        return cJSON_IsNumber(b) && json_double(a, &x) && x == b->valuedouble;
    case JSON_STRING:
        return cJSON_IsString(b) && !strcmp(a->text, b->valuestring);
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    /* of lists and objects only empty ones occur as defaults */
    return !a->n && (a->type == JSON_ARRAY ? cJSON_IsArray(b) : cJSON_IsObject(b)) &&
           !b->child;
}

static enum keys_need what_changes(const struct family_entry *e)
{
    const char *word = json_string(json_get(e->json, "changes"));

    return word && !strcmp(word, "cuts")       ? KEYS_CUTS
           : word && !strcmp(word, "costs")    ? KEYS_COSTS
           : word && !strcmp(word, "training") ? KEYS_TRAINING
           : word && !strcmp(word, "nothing")  ? KEYS_NOTHING
                                               : KEYS_NUMBERS;
}

/* Does entry E accept VALUE?  1, 0, or -1 with *err set. */
static int accepts(const struct check *c, const struct family_entry *e,
                   const cJSON *value)
{
    const struct json *is =
        e->json->type == JSON_OBJECT ? json_get(e->json, "is") : e->json;
    bool yes;

    if (json_string(is))
        return model_when(c->m, e->doc, is, -1, false, &yes, c->err) < 0 ? -1 : yes;
    if (!is || is->type != JSON_ARRAY || !is->first)
        return family_error(e->doc, e->json, 0, c->err,
                            "expected a list of values, or a condition");
    for (const struct json *j = is->first; j; j = j->next)
        if (values_equal(j, value))
            return 1;
    return 0;
}

static void add_ignored(struct check *c, const char *path)
{
    str_addf(c->ignored, "%s%s", c->ignored->len ? ", " : "", path);
}

static int refuse(struct check *c, const struct family_entry *e, const char *path,
                  const cJSON *value)
{
    const struct json *is =
        e->json->type == JSON_OBJECT ? json_get(e->json, "is") : e->json;
    struct str expected = { 0 };
    char *given = cJSON_PrintUnformatted(value);
    char *place = model_config_place_dup(c->m, path);

    if (is->type == JSON_ARRAY) {
        str_add(&expected, "; the default is ");
        json_print(&expected, is->first);
    }
    err_set(c->err, ERR_INPUT,
            what_changes(e) == KEYS_TRAINING
                ? "%s: family %s is not trained with %s = %.80s, which acts in "
                  "training%s"
                : "%s: family %s does not know %s = %.80s%s",
            place, c->m->family, path, given ? given : "?", str_text(&expected));
    free(place);
    free(given);
    str_clear(&expected);
    return -1;
}

static int check_object(struct check *c, const cJSON *object, const char *prefix);

/* The method's settings, whatever the family. */
static int check_quantization(struct check *c, const char *path)
{
    if (quant_check_config(c->m, has_members(c, path), c->err) < 0)
        return -1;
    return c->need == KEYS_NUMBERS ? quant_check_settings(c->m, c->ignored, c->err) : 0;
}

static int check_key(struct check *c, const cJSON *value, const char *path)
{
    const char *within = json_string(json_get(c->f->within, "key"));
    const struct family_entry *e = family_get(&c->f->config, path);
    int yes;

    if (within && !strcmp(path, within))
        return 0; /* its members are the model's keys: see family_config */
    if (e) {
        yes = accepts(c, e, value);
        if (yes < 0)
            return -1;
        if (!yes && what_changes(e) <= c->need)
            return refuse(c, e, path, value);
        if (!yes && what_changes(e) != KEYS_TRAINING)
            add_ignored(c, path);
        return 0;
    }
    if (!strcmp(path, "quantization_config") && cJSON_IsObject(value))
        return check_quantization(c, path);
    if (cJSON_IsObject(value) && has_members(c, path))
        return check_object(c, value, path);
    if (!is_read(c, path) && !cJSON_IsNull(value) && !keys_is_harmless(value->string))
        add_ignored(c, path);
    return 0;
}

static int check_object(struct check *c, const cJSON *object, const char *prefix)
{
    const cJSON *value;
    int ret = 0;

    cJSON_ArrayForEach(value, object)
    {
        char *path =
            *prefix ? str_dupf("%s.%s", prefix, value->string) : xstrdup(value->string);

        ret = check_key(c, value, path);
        free(path);
        if (ret < 0)
            break;
    }
    return ret;
}

int keys_check(const struct model *m, enum keys_need need, struct str *ignored,
               struct err *err)
{
    struct check c = {
        .m = m, .f = m->state->family, .need = need, .ignored = ignored, .err = err
    };
    int ret;

    find_paths(&c.read, c.f);
    ret = check_object(&c, m->state->config, "");
    paths_clear(&c.read);
    return ret;
}
