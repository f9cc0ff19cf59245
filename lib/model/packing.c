/* packing - the storage format of quantized weights: tensors, and quantization_config
 *
 * GPTQ: AutoGPTQ's layout, and "gptq_v2", which does not subtract 1 from the zero
 * points.  AWQ: AutoAWQ's "gemm".  FP8: weights times a scale per block, per row
 * (FBGEMM) or per tensor.  compressed-tensors: the same, and 32-bit words.
 * bitsandbytes: LLM.int8; a row's scale is its largest magnitude, which is stored as
 * 127.  GGUF: ggml's blocks (base/ggml.h). */
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/model/quant.h"

static const struct {
    const char *method;
    enum model_form plain, packed; /* form of unpacked values, and of packed ones */
    unsigned needs;                /* set of 1 << role: tensors that must exist */
    double scale;
} methods[] = {
    { "fp8", FORM_SCALED, FORM_SCALED, 0, 1 },
    { "fbgemm_fp8", FORM_SCALED, FORM_SCALED, 0, 1 },
    { "compressed-tensors", FORM_SCALED, FORM_WORDS, 0, 1 },
    { "bitsandbytes", FORM_SCALED, FORM_SCALED, 0, 1.0 / 127 },
    { "shardutils", FORM_SCALED, FORM_INT4, 0, 1 },
    { "gptq", FORM_GPTQ, FORM_GPTQ, 1 << PACKED_VALUES | 1 << PACKED_ZEROS, 1 },
    { "awq", FORM_AWQ, FORM_AWQ, 1 << PACKED_VALUES | 1 << PACKED_ZEROS, 1 },
    { "gguf", FORM_BLOCKS, FORM_BLOCKS, 1 << PACKED_VALUES, 1 },
};
enum { NMETHODS = sizeof(methods) / sizeof(*methods) };

static int find_method(const struct model *m)
{
    int i = 0;

    while (i < NMETHODS && strcmp(methods[i].method, quant_method(m)) != 0)
        i++;
    return i;
}

static bool is_string(const cJSON *j, const char *text)
{
    return cJSON_IsString(j) && !strcmp(j->valuestring, text);
}

static const cJSON *layout(const struct model *m)
{
    const cJSON *j = quant_setting(m, "checkpoint_format");

    return j ? j : quant_setting(m, "format");
}

const char *model_quantized(const struct model *m)
{
    return cJSON_IsObject(quant_setting(m, NULL)) ? quant_method(m) : NULL;
}

int model_code_bits(const struct model *m)
{
    const cJSON *bits = quant_setting(m, "bits");

    if (strcmp(quant_method(m), "shardutils") != 0)
        return 0;
    return cJSON_IsNumber(bits) && bits->valueint == 4 ? 4 : 8;
}

int model_in_nf4(const struct model *m)
{
    return !cJSON_IsTrue(quant_setting(m, "load_in_4bit"))               ? 0
           : cJSON_IsTrue(quant_setting(m, "bnb_4bit_use_double_quant")) ? 2
                                                                         : 1;
}

bool model_in_blocks(const struct model *m)
{
    return !strcmp(quant_method(m), "gguf");
}

bool model_packing(const struct model *m, size_t t, struct model_packing *out)
{
    const struct tensor_def *of = &m->state->def[m->tensor[t].kind];
    const cJSON *bits = quant_weight_setting(m, "bits", "num_bits");
    int method = find_method(m);
    bool found = false, family = false;

    for (int r = 0; r < PACKED_NROLES; r++)
        out->part[r] = -1;
    out->blocks = NULL;
    for (size_t i = 0; i < m->state->ndefs; i++) {
        const struct tensor_def *d = &m->state->def[i];
        size_t at = d->first + (t - of->first);

        if (d->companion_of != m->tensor[t].kind || d->count != of->count ||
            d->role == PACKED_OTHER || m->tensor[at].source < 0)
            continue;
        found = true;
        family |= d->packs != NULL;
        out->part[d->role] = (long)at;
        out->blocks = d->blocks;
    }
    if (!found || (!family && method == NMETHODS))
        return false;
    out->form = family                          ? FORM_MXFP4
                : out->part[PACKED_VALUES] >= 0 ? methods[method].packed
                                                : methods[method].plain;
    if (out->form == FORM_WORDS && quant_fours(m))
        out->form = FORM_FOURS;
    out->bits = cJSON_IsNumber(bits) ? bits->valueint : 4;
    out->zero_less_one = out->form == FORM_GPTQ && !is_string(layout(m), "gptq_v2");
    out->scale = family ? 1 : methods[method].scale;
    return true;
}

bool model_config_dtype(const struct model *m, enum dtype *out)
{
    static const char *const keys[] = { "dtype", "torch_dtype" };

    for (int i = 0; i < 2; i++) {
        const cJSON *j = cJSON_GetObjectItemCaseSensitive(model_config(m), keys[i]);

        if (cJSON_IsString(j) && dtype_parse(out, j->valuestring))
            return true;
    }
    return false;
}

enum dtype model_unpacked(const struct model *m, const struct model_packing *p,
                          enum dtype scales)
{
    enum dtype t = scales;

    if (p->form == FORM_MXFP4)
        return DTYPE_BF16;
    model_config_dtype(m, &t);
    return t == DTYPE_F16 || t == DTYPE_BF16 ? t : DTYPE_F32;
}

/* Does PATTERN, a regular expression, match NAME (N bytes) from its beginning? */
static bool is_matched(const char *pattern, const char *name, size_t n)
{
    char *text = xstrndup(name, n), *whole = str_dupf("^(%s)", pattern);
    regex_t re;
    bool found = false;

    if (regcomp(&re, whole, REG_EXTENDED | REG_NOSUB) == 0) {
        found = regexec(&re, text, 0, NULL, 0) == 0;
        regfree(&re);
    }
    free(text);
    free(whole);
    return found;
}

/* True if one of NAMES is a suffix of the weight's module NAME, a prefix of it up to a
 * dot, or a regular expression that matches it: compressed-tensors marks them with
 * "re:", transformers takes every name for one. */
static bool is_listed(const cJSON *names, const char *name)
{
    size_t n = strlen(name);
    const cJSON *j;

    if (str_ends(name, ".weight"))
        n -= strlen(".weight");
    cJSON_ArrayForEach(j, names)
    {
        const char *word = cJSON_IsString(j) ? j->valuestring : "";
        size_t len = strlen(word);

        if (str_starts(word, "re:") || strchr(word, '*')) {
            if (is_matched(word + (str_starts(word, "re:") ? 3 : 0), name, n))
                return true;
            continue;
        }
        if (!len || len > n)
            continue;
        if (!memcmp(name + n - len, word, len) ||
            (!memcmp(name, word, len) && (len == n || name[len] == '.')))
            return true;
    }
    return false;
}

bool quant_excludes(const struct model *m, const char *name, const char **key)
{
    static const char *const keys[] = { "modules_to_not_convert", "ignored_layers",
                                        "ignore", "llm_int8_skip_modules" };
    size_t i = 0, n = sizeof(keys) / sizeof(*keys);

    while (i < n && !is_listed(quant_setting(m, keys[i]), name))
        i++;
    if (i < n && key)
        *key = keys[i];
    return i < n;
}

static int check_listed(const struct model *m, const char *name, struct err *err)
{
    const char *key;

    return !quant_excludes(m, name, &key)
               ? 0
               : err_set(err, ERR_INPUT,
                         "tensor %s: is quantized, but quantization_config.%s names "
                         "it",
                         name, key);
}

int model_check_packing(const struct model *m, size_t t, const struct model_packing *p,
                        struct err *err)
{
    static const char *const what[] = { [PACKED_VALUES] = "values",
                                        [PACKED_SCALES] = "scales",
                                        [PACKED_ZEROS] = "zeros",
                                        [PACKED_GROUPS] = "g_idx",
                                        [PACKED_WHOLE] = "weight_global_scale" };
    const struct model_tensor *mt = &m->tensor[t];
    unsigned needs = 1 << PACKED_SCALES;
    int method = find_method(m);

    if (p->bits != 2 && p->bits != 4 && p->bits != 8)
        return err_set(err, ERR_INPUT, "tensor %s: values of %d bits are not supported",
                       mt->name, p->bits);
    if (p->form == FORM_MXFP4)
        needs |= 1 << PACKED_VALUES;
    else
        needs = (p->form == FORM_BLOCKS ? 0 : needs) | methods[method].needs;
    if (p->form == FORM_WORDS &&
        cJSON_IsFalse(quant_weight_setting(m, "sym", "symmetric")))
        needs |= 1 << PACKED_ZEROS;
    if (p->form == FORM_FOURS && is_string(layout(m), "nvfp4-pack-quantized"))
        needs |= 1 << PACKED_WHOLE;
    if (p->form == FORM_GPTQ && cJSON_IsTrue(quant_setting(m, "desc_act")))
        needs |= 1 << PACKED_GROUPS;
    for (int r = 0; r < PACKED_NROLES; r++)
        if (needs & 1U << r && p->part[r] < 0)
            return err_set(err, ERR_INPUT, "tensor %s: is quantized, but has no %s",
                           mt->name, what[r]);
    if (p->part[PACKED_VALUES] >= 0 && mt->source >= 0)
        return err_set(err, ERR_INPUT, "tensor %s: is stored again as %s", mt->name,
                       m->tensor[p->part[PACKED_VALUES]].name);
    return p->form == FORM_MXFP4 ? 0 : check_listed(m, mt->name, err);
}

/* ---- settings ---- */

/* A setting and its supported values as JSON, separated by bars.  "": any value,
 * because it does not affect the values or the tensors show it too.  "#": an integer of
 * at least 1.  "{}": an empty object.  A METHOD that ends in "/": settings of a group's
 * weights. */
struct setting {
    const char *method, *key, *is;
};

static const struct setting settings[] = {
    { "", "quant_method", "" },
    { "", "modules_to_not_convert", "" }, /* checked by check_listed */

    { "gptq", "bits", "2|4|8" },
    { "gptq", "group_size", "#|-1" },
    { "gptq", "desc_act", "true|false" },
    { "gptq", "sym", "" },
    { "gptq", "static_groups", "" },
    { "gptq", "lm_head", "" },
    { "gptq", "dynamic", "{}" },
    { "gptq", "pack_dtype", "\"int32\"" },
    { "gptq", "is_marlin_format", "false" },
    { "gptq", "checkpoint_format", "\"gptq\"|\"gptq_v2\"" },
    { "gptq", "format", "\"gptq\"|\"gptq_v2\"" },
    { "gptq", "true_sequential", "" },
    { "gptq", "act_group_aware", "" },
    { "gptq", "damp_percent", "" },
    { "gptq", "damp_auto_increment", "" },
    { "gptq", "mse", "" },
    { "gptq", "meta", "" },
    { "gptq", "backend", "" },
    { "gptq", "model_name_or_path", "" },
    { "gptq", "model_file_base_name", "" },
    { "gptq", "tokenizer", "" },
    { "gptq", "dataset", "" },
    { "gptq", "batch_size", "" },
    { "gptq", "pad_token_id", "" },
    { "gptq", "model_seqlen", "" },
    { "gptq", "max_input_length", "" },
    { "gptq", "block_name_to_quantize", "" },
    { "gptq", "module_name_preceding_first_block", "" },
    { "gptq", "modules_in_block_to_quantize", "" },
    { "gptq", "cache_block_outputs", "" },
    { "gptq", "use_cuda_fp16", "" },
    { "gptq", "use_exllama", "" },
    { "gptq", "disable_exllama", "" },
    { "gptq", "exllama_config", "" },

    { "awq", "bits", "4" },
    { "awq", "group_size", "#|-1" },
    { "awq", "zero_point", "true" },
    { "awq", "version", "\"gemm\"|\"GEMM\"" },
    { "awq", "format", "\"gemm\"|\"GEMM\"" },
    { "awq", "desc_act", "false" },
    { "awq", "sym", "" },
    { "awq", "backend", "\"auto\"|\"autoawq\"" },
    { "awq", "do_fuse", "" },
    { "awq", "fuse_max_seq_len", "" },
    { "awq", "modules_to_fuse", "" },
    { "awq", "exllama_config", "" },

    { "fp8", "weight_block_size", "[#,#]" },
    { "fp8", "activation_scheme", "" },
    { "fp8", "fmt", "\"e4m3\"|\"e5m2\"" },
    { "fp8", "scale_fmt", "" },
    { "fp8", "expert_dtype", "\"fp8\"" },
    { "fp8", "dequantize", "" },
    { "fp8", "ignored_layers", "" },
    { "fp8", "modules_to_convert", "" },

    { "fbgemm_fp8", "activation_scale_ub", "" },

    { "compressed-tensors", "config_groups", "" },
    { "compressed-tensors", "format",
      "\"float-quantized\"|\"int-quantized\"|\"naive-quantized\"|\"pack-quantized\"|"
      "\"nvfp4-pack-quantized\"|\"mxfp4-pack-quantized\"" },
    { "compressed-tensors", "kv_cache_scheme", "{}" },
    { "compressed-tensors", "sparsity_config", "{}" },
    { "compressed-tensors", "transform_config", "{}" },
    { "compressed-tensors", "ignore", "" },
    { "compressed-tensors", "quantization_status", "" },
    { "compressed-tensors", "global_compression_ratio", "" },
    { "compressed-tensors", "version", "" },
    { "compressed-tensors/", "num_bits", "2|4|8" },
    { "compressed-tensors/", "type", "\"int\"|\"float\"" },
    { "compressed-tensors/", "strategy",
      "\"tensor\"|\"channel\"|\"group\"|\"block\"|"
      "\"tensor_group\"" },
    { "compressed-tensors/", "group_size", "#|-1" },
    { "compressed-tensors/", "block_structure", "[#,#]" },
    { "compressed-tensors/", "symmetric", "true|false" },
    { "compressed-tensors/", "dynamic", "false" },
    { "compressed-tensors/", "actorder", "\"static\"|\"weight\"|false" },
    { "compressed-tensors/", "observer", "" },
    { "compressed-tensors/", "observer_kwargs", "" },
    { "compressed-tensors/", "scale_dtype", "" },
    { "compressed-tensors/", "zp_dtype", "" },

    { "gguf", "dtype", "\"float32\"|\"bfloat16\"|\"float16\"" },

    { "shardutils", "bits", "4|8" },
    { "shardutils", "group_size", "32" },
    { "shardutils", "dtype", "\"float32\"|\"bfloat16\"|\"float16\"" },

    { "bitsandbytes", "load_in_8bit", "true" },
    { "bitsandbytes", "load_in_4bit", "false" },
    { "bitsandbytes", "_load_in_8bit", "" },
    { "bitsandbytes", "_load_in_4bit", "" },
    { "bitsandbytes", "llm_int8_threshold", "" },
    { "bitsandbytes", "llm_int8_skip_modules", "" },
    { "bitsandbytes", "llm_int8_enable_fp32_cpu_offload", "" },
    { "bitsandbytes", "llm_int8_has_fp16_weight", "false" },
    { "bitsandbytes", "bnb_4bit_compute_dtype", "" },
    { "bitsandbytes", "bnb_4bit_quant_storage", "" },
    { "bitsandbytes", "bnb_4bit_quant_type", "" },
    { "bitsandbytes", "bnb_4bit_use_double_quant", "" },
};

static bool is_whole(const cJSON *j)
{
    return cJSON_IsNumber(j) && j->valuedouble >= 1 && j->valuedouble <= 1 << 24 &&
           j->valuedouble == (double)(long)j->valuedouble;
}

static bool is_known(const char *is, const cJSON *j)
{
    char *text;
    bool found = false;

    if (!*is || cJSON_IsNull(j))
        return true;
    if (!strcmp(is, "{}"))
        return (cJSON_IsObject(j) || cJSON_IsArray(j)) && !j->child;
    if (!strcmp(is, "[#,#]"))
        return cJSON_GetArraySize(j) == 2 && is_whole(j->child) &&
               is_whole(j->child->next);
    if (*is == '#' && is_whole(j))
        return true;
    text = cJSON_PrintUnformatted(j);
    while (text && *is && !found) {
        size_t n = strcspn(is, "|");

        found = strlen(text) == n && !memcmp(text, is, n);
        is += n + (is[n] == '|');
    }
    free(text);
    return found;
}

/* Checks the members of OBJECT against METHOD's rows; a message names them WHEREKEY.
 * WHERE ends with a dot, or is empty: then OBJECT is the whole setting, and no list. */
static int check_members(const struct model *m, const cJSON *object, const char *method,
                         const char *where, struct str *ignored, struct err *err)
{
    const cJSON *j;

    if (cJSON_IsArray(object))
        return err_set(err, ERR_INPUT, "%s: quantization_config.%.*s is not an object",
                       m->state->config_name, (int)strlen(where) - 1, where);
    cJSON_ArrayForEach(j, object)
    {
        const struct setting *s = NULL;
        char *text;

        for (size_t i = 0; i < sizeof(settings) / sizeof(*settings) && !s; i++)
            if (!strcmp(settings[i].key, j->string) &&
                (!*settings[i].method || !strcmp(settings[i].method, method)))
                s = &settings[i];
        if (!s && !cJSON_IsNull(j))
            str_addf(ignored, "%squantization_config.%s%s", ignored->len ? ", " : "",
                     where, j->string);
        if (!s || is_known(s->is, j))
            continue;
        text = cJSON_PrintUnformatted(j);
        err_set(
            err, ERR_INPUT,
            "%s: quantization_config.%s%s = %.80s: not supported for weights quantized "
            "by %s",
            m->state->config_name, where, j->string, text ? text : "?",
            quant_method(m));
        free(text);
        return -1;
    }
    return 0;
}

int quant_check_settings(const struct model *m, struct str *ignored, struct err *err)
{
    const cJSON *groups = quant_setting(m, "config_groups");
    const char *method = quant_method(m);

    if (find_method(m) == NMETHODS) /* the family itself defines the format */
        return 0;
    if (check_members(m, quant_setting(m, NULL), method, "", ignored, err) < 0)
        return -1;
    if (!groups || !groups->child)
        return 0;
    return check_members(m, cJSON_GetObjectItemCaseSensitive(groups->child, "weights"),
                         "compressed-tensors/", "config_groups.weights.", ignored, err);
}
