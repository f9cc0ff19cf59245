/* asked - the model's generation settings: generation_config.json */
#include "cmd/tp-run/asked.h"

#include <cjson/cJSON.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/tp-run/sampling.h"
#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/str.h"

enum effect {
    NOTHING, /* whatever its value */
    READ,    /* by asked_read or session_open */
    ALWAYS,  /* it changes the text, unless it is NEUTRAL */
    SEARCHES /* the same, where the caller does not search; else it is read */
};

/* The keys of transformers' GenerationConfig, including those of older versions, beside
 * those of processors.h. */
static const struct {
    const char *key;
    enum effect effect;
    double neutral;
} keys[] = {
    { "max_new_tokens", READ, 0 },
    { "max_length", READ, 0 },
    { "do_sample", READ, 0 },
    { "stop_strings", READ, 0 },
    { "decoder_start_token_id", READ, 0 },
    { "*_token_id", NOTHING, 0 },
    { "max_time", ALWAYS, 0 },
    { "num_beams", SEARCHES, 1 },
    { "num_beam_groups", ALWAYS, 1 },
    { "num_return_sequences", SEARCHES, 1 },
    { "force_words_ids", ALWAYS, 0 },
    { "constraints", ALWAYS, 0 },
    { "guidance_scale", ALWAYS, 1 },
    { "token_healing", ALWAYS, 0 },
    { "watermarking_config", ALWAYS, 0 },
    { "penalty_alpha", ALWAYS, 0 },
    { "dola_layers", ALWAYS, 0 },
    { "early_stopping", READ, 0 },
    { "length_penalty", READ, 0 },
    { "renormalize_logits", READ, 0 },
    { "diversity_penalty", NOTHING, 0 }, /* of groups */
    /* implementation, drafts, and what is returned */
    { "use_*", NOTHING, 0 },
    { "cache_*", NOTHING, 0 },
    { "max_cache_len", NOTHING, 0 },
    { "output_*", NOTHING, 0 },
    { "return_*", NOTHING, 0 },
    { "remove_invalid_values", NOTHING, 0 },
    { "assistant_*", NOTHING, 0 },
    { "is_assistant", NOTHING, 0 },
    { "num_assistant_*", NOTHING, 0 },
    { "prompt_lookup_num_tokens", NOTHING, 0 },
    { "max_matching_ngram_size", NOTHING, 0 },
    { "target_lookbehind", NOTHING, 0 },
    { "speculation_type", NOTHING, 0 },
    { "compile_config", NOTHING, 0 },
    { "disable_compile", NOTHING, 0 },
    { "continuous_batching_config", NOTHING, 0 },
    { "low_memory", NOTHING, 0 },
    { "prefill_chunk_size", NOTHING, 0 },
    { "trust_remote_code", NOTHING, 0 },
    { "transformers_version", NOTHING, 0 },
    { "_*", NOTHING, 0 },
};
enum { NKEYS = sizeof(keys) / sizeof(*keys) };

/* The place of NAME in keys; NKEYS: it is a processor's; -1: neither. */
static int find_key(const char *name)
{
    int i = 0;

    if (processors_find(name) >= 0)
        return NKEYS;
    while (i < NKEYS && fnmatch(keys[i].key, name, 0) != 0)
        i++;
    return i < NKEYS ? i : -1;
}

/* Does VALUE leave the text unchanged? */
static bool is_neutral(const cJSON *value, double neutral)
{
    if (cJSON_IsNumber(value))
        return value->valuedouble == neutral;
    return cJSON_IsNull(value) || cJSON_IsFalse(value) ||
           ((cJSON_IsArray(value) || cJSON_IsObject(value)) && !value->child);
}

static int refuse(const char *path, const cJSON *value, const char *neutral,
                  struct err *err)
{
    char *text = cJSON_PrintUnformatted(value);

    err_set(err, ERR_INPUT,
            "%s: tp-run cannot follow %s = %.60s (the default is %s); "
            "--ignore-generation-config passes over it",
            path, value->string, text ? text : "?", neutral);
    free(text);
    return -1;
}

/* Checks all members of CONFIG and appends unknown ones to UNKNOWN. */
static int check_keys(const char *path, const cJSON *config, bool searches,
                      struct str *unknown, struct err *err)
{
    const cJSON *value;

    cJSON_ArrayForEach(value, config)
    {
        int i = find_key(value->string);
        const double neutral = i >= 0 && i < NKEYS ? keys[i].neutral : 0;
        bool counts =
            i >= 0 && i < NKEYS &&
            (keys[i].effect == ALWAYS || (keys[i].effect == SEARCHES && !searches));

        if (counts && !is_neutral(value, neutral))
            return refuse(path, value, neutral != 0 ? "1" : "none", err);
        if (i == -1 && !cJSON_IsNull(value))
            str_addf(unknown, "%s%s", unknown->len ? ", " : "", value->string);
    }
    return 0;
}

/* Sets *out to the number KEY; leaves it unchanged if KEY is null or missing. */
static int take_number(const char *path, const cJSON *config, const char *key,
                       double least, double most, double *out, struct err *err)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, key);

    if (!value || cJSON_IsNull(value))
        return 0;
    if (!cJSON_IsNumber(value) ||
        !(value->valuedouble >= least && value->valuedouble <= most))
        return err_set(err, ERR_INPUT, "%s: %s is no number from %g to %g", path, key,
                       least, most);
    *out = value->valuedouble;
    return 0;
}

/* The same for the token id KEY, which may be a list with one element. */
static int take_id(const char *path, const cJSON *config, const char *key, int32_t *out,
                   struct err *err)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, key);
    const cJSON *one = value;

    if (cJSON_IsArray(value) && value->child && !value->child->next)
        one = value->child;
    if (!value || cJSON_IsNull(value))
        return 0;
    if (cJSON_IsArray(one))
        return refuse(path, value, "one id", err);
    if (!cJSON_IsNumber(one) ||
        !(one->valuedouble >= 0 && one->valuedouble <= INT32_MAX))
        return err_set(err, ERR_INPUT, "%s: %s is no id", path, key);
    *out = (int32_t)one->valuedouble;
    return 0;
}

static int take_stops(struct asked *a, const char *path, const cJSON *config,
                      struct err *err)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, "stop_strings");
    const cJSON *one;

    if (!value || cJSON_IsNull(value))
        return 0;
    if (cJSON_IsString(value) && *value->valuestring) {
        stops_add(&a->stops, value->valuestring);
        return 0;
    }
    if (!cJSON_IsArray(value))
        return err_set(err, ERR_INPUT, "%s: stop_strings is no list of texts", path);
    cJSON_ArrayForEach(one, value)
    {
        if (!cJSON_IsString(one) || !*one->valuestring)
            return err_set(err, ERR_INPUT,
                           "%s: stop_strings has an element that is no "
                           "text",
                           path);
        stops_add(&a->stops, one->valuestring);
    }
    return 0;
}

/* The settings of the processors; those about drawing only where tokens are SAMPLED. */
static int take_processors(struct asked *a, const struct session *s, const char *path,
                           const cJSON *config, bool sampled, struct err *err)
{
    const cJSON *value;
    double vocab = 0;

    if (sampled) { /* transformers' defaults for missing keys */
        a->how.v[PROCESSOR_TEMPERATURE].number = 1;
        a->how.v[PROCESSOR_TOP_K].number = 50;
    }
    (void)!(s->checkpoint->model &&
            model_number(s->checkpoint->model, "vocab", &vocab));
    cJSON_ArrayForEach(value, config)
    {
        const int row = processors_find(value->string);

        if (row >= 0 && (sampled || !processors_is_drawn((enum processor)row)) &&
            processors_read(&a->how, (enum processor)row, value,
                            vocab > 0 ? (uint64_t)vocab : INT32_MAX, path, err) < 0)
            return -1;
    }
    return 0;
}

/* false, true or "never". */
static int take_early(const char *path, const cJSON *config, enum beams_early *out,
                      struct err *err)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, "early_stopping");

    if (!value || cJSON_IsNull(value))
        return 0;
    if (cJSON_IsBool(value))
        *out = cJSON_IsTrue(value) ? BEAMS_EARLY : BEAMS_SOON;
    else if (cJSON_IsString(value) && !strcmp(value->valuestring, "never"))
        *out = BEAMS_NEVER;
    else
        return err_set(err, ERR_INPUT,
                       "%s: early_stopping is neither true nor false nor \"never\"",
                       path);
    return 0;
}

static int take_beams(struct asked *a, const char *path, const cJSON *config,
                      struct err *err)
{
    double n = 1, returns = 1;

    a->beams.length_penalty = 1;
    a->normal =
        cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(config, "renormalize_logits"));
    if (take_number(path, config, "num_beams", 1, SAMPLING_BEAMS, &n, err) < 0 ||
        take_number(path, config, "num_return_sequences", 1, SAMPLING_BEAMS, &returns,
                    err) < 0 ||
        take_number(path, config, "length_penalty", -1e3, 1e3, &a->beams.length_penalty,
                    err) < 0)
        return -1;
    a->beams.n = (size_t)n;
    a->returns = (size_t)returns;
    return take_early(path, config, &a->beams.early, err);
}

static int take_settings(struct asked *a, const struct session *s, const char *path,
                         const cJSON *config, struct err *err)
{
    const bool sampled =
        cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(config, "do_sample"));
    double max_new = 0, max_length = 0;

    if (take_number(path, config, "max_new_tokens", 1, 1e9, &max_new, err) < 0 ||
        take_number(path, config, "max_length", 1, 1e9, &max_length, err) < 0)
        return -1;
    a->max_new = (uint64_t)max_new;
    a->max_length = (uint64_t)max_length;
    if (take_beams(a, path, config, err) < 0 ||
        take_id(path, config, "decoder_start_token_id", &a->start, err) < 0 ||
        take_stops(a, path, config, err) < 0)
        return -1;
    return take_processors(a, s, path, config, sampled, err);
}

/* Removes all keys of config.json that are not generation settings. */
static void keep_generation_keys(cJSON *config)
{
    cJSON *next;

    for (cJSON *value = config->child; value; value = next) {
        next = value->next;
        if (find_key(value->string) == -1)
            cJSON_Delete(cJSON_DetachItemViaPointer(config, value));
    }
}

static int read_config(struct asked *a, const struct session *s, const char *path,
                       bool own, bool searches, struct err *err)
{
    struct str unknown = { 0 };
    char *text;
    cJSON *config;
    int ret = -1;

    if (fs_read_file(&text, NULL, path, 1 << 24, err) < 0)
        return -1;
    ret = json_read_config(&config, path, text, strlen(text), err);
    free(text);
    if (ret < 0)
        return -1;
    ret = -1;
    if (!cJSON_IsObject(config)) {
        cJSON_Delete(config);
        return err_set(err, ERR_INPUT, "%s: not a JSON object", path);
    }
    if (!own)
        keep_generation_keys(config);
    if (check_keys(path, config, searches, &unknown, err) == 0)
        ret = take_settings(a, s, path, config, err);
    if (ret == 0 && unknown.len && !s->opt.quiet)
        cmd_warn(s->cmd, "%s: not known and ignored: %s", path, str_text(&unknown));
    str_clear(&unknown);
    cJSON_Delete(config);
    return ret;
}

int asked_read(struct asked *a, const struct session *s, bool searches, struct err *err)
{
    static const char *const files[] = { "generation_config.json", "config.json" };
    int ret = 0;

    *a = (struct asked){ .how = PROCESSORS_NEUTRAL,
                         .start = -1,
                         .beams = { .n = 1, .length_penalty = 1 },
                         .returns = 1 };
    for (int i = 0; i < 2; i++) {
        char *path = fs_join_dup(s->checkpoint->home, files[i]);
        bool exists = false;

        ret = fs_find(&exists, path, err);
        if (exists)
            ret = read_config(a, s, path, i == 0, searches, err);
        free(path);
        if (ret < 0 || exists)
            break;
    }
    return ret;
}

void asked_clear(struct asked *a)
{
    processors_clear(&a->how);
    stops_clear(&a->stops);
}
