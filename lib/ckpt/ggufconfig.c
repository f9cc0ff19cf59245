/* ggufconfig - the metadata of a GGUF file as a config.json */
#include "lib/ckpt/ggufconfig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

/* What is written of a key. */
enum what { NUMBER, REAL };

/* A key of the config, and the key that has its value behind the architecture's name.
 */
struct field {
    const char *key, *name;
    enum what what;
    bool required;
};

static const struct field fields[] = {
    { "num_hidden_layers", "block_count", NUMBER, true },
    { "hidden_size", "embedding_length", NUMBER, true },
    { "num_attention_heads", "attention.head_count", NUMBER, true },
    { "intermediate_size", "feed_forward_length", NUMBER, true },
    { "max_position_embeddings", "context_length", NUMBER, true },
    { "rms_norm_eps", "attention.layer_norm_rms_epsilon", REAL, true },
    { "num_key_value_heads", "attention.head_count_kv", NUMBER, false },
    { "head_dim", "attention.key_length", NUMBER, false },
    { NULL, NULL, NUMBER, false },
};

static const struct field phi_fields[] = {
    { "sliding_window", "attention.sliding_window", NUMBER, false },
    { NULL, NULL, NUMBER, false },
};

static const struct field gemma2_fields[] = {
    { "sliding_window", "attention.sliding_window", NUMBER, true },
    { "attn_logit_softcapping", "attn_logit_softcapping", REAL, true },
    { "final_logit_softcapping", "final_logit_softcapping", REAL, true },
    { NULL, NULL, NUMBER, false },
};

static const struct field gemma3_fields[] = {
    { "sliding_window", "attention.sliding_window", NUMBER, true },
    { NULL, NULL, NUMBER, false },
};

static const struct field moe_fields[] = {
    { "num_local_experts", "expert_count", NUMBER, true },
    { "num_experts_per_tok", "expert_used_count", NUMBER, true },
    { NULL, NULL, NUMBER, false },
};

/* An architecture, with experts or without, and the model that it is. */
static const struct kind {
    const char *arch;
    bool experts;
    const char *model, *type;
    const struct field *more;
    const char *text; /* of the config */
    bool partial;     /* can a part of a head turn? */
    int largest; /* layers of the model whose scores are scaled by its width, and not by
                  * the width of a head, as in llama.cpp's models/gemma2.cpp; 0: scores
                  * are not scaled apart */
} kinds[] = {
    { "llama", false, "LlamaForCausalLM", "llama", NULL, "\"hidden_act\":\"silu\"",
      false, 0 },
    { "llama", true, "MixtralForCausalLM", "mixtral", moe_fields,
      "\"hidden_act\":\"silu\",\"sliding_window\":null", false, 0 },
    { "qwen2", false, "Qwen2ForCausalLM", "qwen2", NULL, "\"hidden_act\":\"silu\"",
      false, 0 },
    { "qwen3", false, "Qwen3ForCausalLM", "qwen3", NULL, "\"hidden_act\":\"silu\"",
      false, 0 },
    { "phi3", false, "Phi3ForCausalLM", "phi3", phi_fields,
      "\"hidden_act\":\"silu\",\"pad_token_id\":null", true, 0 },
    { "gemma", false, "GemmaForCausalLM", "gemma", NULL,
      "\"hidden_act\":\"gelu_pytorch_tanh\"", false, 0 },
    { "gemma2", false, "Gemma2ForCausalLM", "gemma2", gemma2_fields,
      "\"hidden_activation\":\"gelu_pytorch_tanh\"", false, 46 },
    { "gemma3", false, "Gemma3ForCausalLM", "gemma3_text", gemma3_fields,
      "\"hidden_activation\":\"gelu_pytorch_tanh\",\"rope_local_base_freq\":10000.0",
      false, 62 },
};

enum { NKINDS = sizeof(kinds) / sizeof(*kinds) };

struct making {
    struct source *s;
    const struct gguf *g;
    char *arch;
    struct str text;
};

static bool refuse(struct making *m, const char *what, const char *name)
{
    m->s->unmade =
        str_dupf("%s: %s %s%s%s, of which no config.json is made", m->g->path, what,
                 name ? m->arch : "", name ? "." : "", name ? name : m->arch);
    return false;
}

/* ---- values ---- */

/* The number of the key NAME of the architecture; a list must have one value. */
static bool find_number(const struct making *m, const char *name, double *out)
{
    const struct gguf_value *v = gguf_get(m->g, m->arch, name);
    double x;

    if (!gguf_number(v, 0, out) || !isfinite(*out))
        return false;
    for (uint64_t i = 1; i < v->n; i++)
        if (!gguf_number(v, i, &x) || x != *out)
            return false;
    return true;
}

/* Adds X, an f32, as the shortest decimal that is it: 1e-05 became 9.9999997e-06. */
static void add_real(struct making *m, double x)
{
    char text[32];
    int digits = 1;

    if (x == floor(x) && fabs(x) < 1e15) {
        str_addf(&m->text, "%.1f", x);
        return;
    }
    do
        snprintf(text, sizeof(text), "%.*g", digits++, x);
    while (digits < 10 && strtof(text, NULL) != (float)x);
    str_add(&m->text, text);
}

static bool add_field(struct making *m, const struct field *f)
{
    double x;

    if (!gguf_get(m->g, m->arch, f->name))
        return !f->required || refuse(m, "no", f->name);
    if (!find_number(m, f->name, &x) || x < 0 ||
        (f->what == NUMBER && (x > 1e9 || x != (double)(int)x)))
        return refuse(m, "an unusual", f->name);
    str_addf(&m->text, ",\"%s\":", f->key);
    if (f->what == NUMBER)
        str_addf(&m->text, "%d", (int)x);
    else
        add_real(m, x);
    return true;
}

static bool add_fields(struct making *m, const struct field *f)
{
    bool all = true;

    for (; all && f && f->key; f++)
        all = add_field(m, f);
    return all;
}

/* What the conversion leaves out: the number whose root scales the scores. */
static bool add_scale(struct making *m, int largest)
{
    double layers, width, heads, head;

    if (!largest)
        return true;
    if (!find_number(m, "block_count", &layers) ||
        !find_number(m, "embedding_length", &width) ||
        !find_number(m, "attention.head_count", &heads) || heads < 1 ||
        !find_number(m, "attention.key_length", &head))
        return refuse(m, "no", "attention.key_length");
    str_addf(&m->text, ",\"query_pre_attn_scalar\":%.0f",
             layers == largest ? floor(width / heads) : head);
    return true;
}

/* ---- what tensors say ---- */

static const struct tensor *find_tensor(const struct making *m, const char *name)
{
    for (size_t i = 0; i < m->s->nraw; i++)
        if (!strcmp(m->s->raw[i].name, name))
            return &m->s->raw[i];
    return NULL;
}

/* The vocabulary is the table's; without an output it is tied. */
static bool add_vocabulary(struct making *m)
{
    const struct tensor *t = find_tensor(m, "token_embd.weight");

    if (!t || t->ndim < 2)
        return refuse(m, "no tensor token_embd.weight in a model of", NULL);
    str_addf(&m->text, ",\"vocab_size\":%llu,\"tie_word_embeddings\":%s",
             (unsigned long long)t->shape[0],
             find_tensor(m, "output.weight") ? "false" : "true");
    return true;
}

/* Numbers in blocks are dequantized to f32, unless the config says otherwise; plain
 * ones have a type of their own. */
static void add_type(struct making *m)
{
    const struct tensor *t = find_tensor(m, "token_embd.weight");
    bool blocks = false;

    for (size_t i = 0; i < m->s->nraw; i++)
        blocks |= m->s->raw[i].blocks != NULL;
    str_addf(&m->text, ",\"torch_dtype\":\"%s\"",
             blocks || !dtype_is_float(t->dtype) ? "float32" : dtype_pytorch(t->dtype));
    if (blocks)
        str_add(&m->text, ",\"quantization_config\":{\"quant_method\":\"gguf\"}");
}

/* ---- positions ---- */

/* The numbers of the tensor NAME, which are f32: [*n] in the file; NULL: it has none.
 */
static const unsigned char *find_factors(const struct making *m, const char *name,
                                         uint64_t *n)
{
    const struct gguf *g = m->g;

    for (size_t i = 0; i < g->n; i++) {
        const struct tensor *t = &g->tensor[i].t;

        if (strcmp(t->name, name))
            continue;
        *n = t->ndim == 1 ? t->shape[0] : 0;
        return *n && t->dtype == DTYPE_F32 ? g->map + t->offset : NULL;
    }
    return NULL;
}

static double factor_at(const unsigned char *at, uint64_t i)
{
    float x;

    memcpy(&x, at + 4 * i, sizeof(x));
    return (double)x;
}

static void add_factors(struct making *m, const char *key, const unsigned char *at,
                        uint64_t n)
{
    str_addf(&m->text, ",\"%s\":[", key);
    for (uint64_t i = 0; i < n; i++) {
        if (i)
            str_addc(&m->text, ',');
        add_real(m, factor_at(at, i));
    }
    str_addc(&m->text, ']');
}

/* Are the N divisors at AT those of Llama 3.1 and later, with which waves below 2048
 * positions stay, those above 8192 are *FACTOR times as long, and others lie between
 * (llama-models' apply_scaling)?  The conversion keeps the divisors alone. */
static bool is_llama3(const unsigned char *at, uint64_t n, double base, double *factor)
{
    const double original = 8192, high = 4, pi = 3.14159265358979323846;

    *factor = 1;
    for (uint64_t i = 0; i < n; i++)
        *factor = fmax(*factor, factor_at(at, i));
    for (uint64_t i = 0; i < n; i++) {
        double turns = original / (2 * pi * pow(base, (double)i / (double)n));
        double share = fmin(fmax((turns - 1) / (high - 1), 0), 1);
        double want = 1 / ((1 - share) / *factor + share);

        if (!(fabs(factor_at(at, i) - want) <= 1e-5 * want))
            return false;
    }
    return *factor > 1;
}

/* One divisor of each pair's frequency, at any length. */
static bool add_divisors(struct making *m, double base)
{
    double factor, context;
    uint64_t n = 0;
    const unsigned char *at = find_factors(m, "rope_freqs.weight", &n);

    if (!at || !find_number(m, "context_length", &context))
        return refuse(m, "unusual numbers rope_freqs.weight in a model of", NULL);
    str_add(&m->text, ",\"rope_scaling\":{\"rope_type\":");
    if (is_llama3(at, n, base, &factor)) {
        str_add(&m->text, "\"llama3\",\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                          "\"original_max_position_embeddings\":8192,\"factor\":");
        add_real(m, factor);
    } else { /* two lists that are one, and no other scale */
        str_addf(&m->text,
                 "\"longrope\",\"attention_factor\":1.0,"
                 "\"original_max_position_embeddings\":%.0f",
                 context);
        add_factors(m, "short_factor", at, n);
        add_factors(m, "long_factor", at, n);
    }
    str_addc(&m->text, '}');
    return true;
}

/* One list of divisors up to the original context, and another beyond it. */
static bool add_long(struct making *m)
{
    static const char original_key[] = "rope.scaling.original_context_length";
    double context, original, attention = 1, usual;
    uint64_t nshort = 0, nlong = 0;
    const unsigned char *few = find_factors(m, "rope_factors_short.weight", &nshort);
    const unsigned char *many = find_factors(m, "rope_factors_long.weight", &nlong);

    if (!few || !many || nshort != nlong || !find_number(m, "context_length", &context))
        return refuse(m, "unusual numbers rope_factors_long.weight in a model of",
                      NULL);
    if (!find_number(m, original_key, &original) || original < 2 || original > 1e9)
        return refuse(m, "no", original_key);
    if (gguf_get(m->g, m->arch, "rope.scaling.attn_factor") &&
        !find_number(m, "rope.scaling.attn_factor", &attention))
        return refuse(m, "an unusual", "rope.scaling.attn_factor");
    str_addf(&m->text,
             ",\"original_max_position_embeddings\":%.0f,"
             "\"rope_scaling\":{\"type\":\"longrope\"",
             original);
    add_factors(m, "short_factor", few, nshort);
    add_factors(m, "long_factor", many, nlong);
    /* transformers' _compute_longrope_parameters */
    usual = context <= original ? 1 : sqrt(1 + log(context / original) / log(original));
    if (fabs(attention - usual) > 1e-6 * usual) {
        str_add(&m->text, ",\"attention_factor\":");
        add_real(m, attention);
    }
    str_addc(&m->text, '}');
    return true;
}

/* The keys of YaRN that transformers has not in this form: factors, which may only be
 * 1, as without them. */
static bool is_plain_yarn(struct making *m)
{
    static const char *const factors[] = { "rope.scaling.attn_factor",
                                           "rope.scaling.yarn_ext_factor",
                                           "rope.scaling.yarn_attn_factor" };
    double x;

    for (size_t k = 0; k < sizeof(factors) / sizeof(*factors); k++)
        if (gguf_get(m->g, m->arch, factors[k]) &&
            (!find_number(m, factors[k], &x) || x != 1))
            return refuse(m, "an unusual", factors[k]);
    return !gguf_get(m->g, m->arch, "rope.scaling.yarn_log_multiplier") ||
           refuse(m, "an unusual", "rope.scaling.yarn_log_multiplier");
}

static bool add_scaling(struct making *m, const char *type)
{
    static const struct field linear[] = {
        { "factor", "rope.scaling.factor", REAL, true }, { NULL, NULL, NUMBER, false }
    };
    static const struct field yarn[] = {
        { "factor", "rope.scaling.factor", REAL, true },
        { "original_max_position_embeddings", "rope.scaling.original_context_length",
          NUMBER, true },
        { "beta_fast", "rope.scaling.yarn_beta_fast", REAL, false },
        { "beta_slow", "rope.scaling.yarn_beta_slow", REAL, false },
        { NULL, NULL, NUMBER, false }
    };
    bool is_yarn = !strcmp(type, "yarn");

    str_addf(&m->text, ",\"rope_scaling\":{\"rope_type\":\"%s\"", type);
    if ((is_yarn && !is_plain_yarn(m)) || !add_fields(m, is_yarn ? yarn : linear))
        return false;
    str_addc(&m->text, '}');
    return true;
}

/* How much of a head turns. */
static bool add_part(struct making *m, const struct kind *k)
{
    double dim, head, width, heads;

    if (!gguf_get(m->g, m->arch, "rope.dimension_count"))
        return true;
    if (!find_number(m, "attention.key_length", &head)) {
        if (!find_number(m, "embedding_length", &width) ||
            !find_number(m, "attention.head_count", &heads) || heads < 1)
            return refuse(m, "no", "attention.head_count");
        head = floor(width / heads);
    }
    if (!find_number(m, "rope.dimension_count", &dim) || !(dim > 0 && dim <= head))
        return refuse(m, "an unusual", "rope.dimension_count");
    if (dim == head)
        return true;
    if (!k->partial)
        return refuse(m, "an unusual", "rope.dimension_count");
    str_addf(&m->text, ",\"partial_rotary_factor\":%.17g", dim / head);
    return true;
}

static bool add_rotary(struct making *m, const struct kind *k)
{
    const struct gguf_value *type = gguf_get(m->g, m->arch, "rope.scaling.type");
    double base = 10000;

    if (gguf_get(m->g, m->arch, "rope.freq_base") &&
        (!find_number(m, "rope.freq_base", &base) || base <= 0))
        return refuse(m, "an unusual", "rope.freq_base");
    str_add(&m->text, ",\"rope_theta\":");
    add_real(m, base);
    if (!add_part(m, k))
        return false;
    if (find_tensor(m, "rope_factors_long.weight"))
        return add_long(m);
    if (find_tensor(m, "rope_freqs.weight"))
        return add_divisors(m, base);
    if (!type || gguf_is(type, "none"))
        return true;
    if (gguf_is(type, "linear"))
        return add_scaling(m, "linear");
    if (gguf_is(type, "yarn"))
        return add_scaling(m, "yarn");
    return refuse(m, "an unusual", "rope.scaling.type");
}

/* ---- tokens ---- */

static void add_token(struct making *m, const char *key, const char *name)
{
    double x;

    if (gguf_number(gguf_get(m->g, "tokenizer.ggml", name), 0, &x) && x >= 0 && x < 1e9)
        str_addf(&m->text, ",\"%s\":%d", key, (int)x);
    else
        str_addf(&m->text, ",\"%s\":null", key);
}

static bool make_all(struct making *m)
{
    const struct kind *k = NULL;
    double experts = 0;

    find_number(m, "expert_count", &experts);
    for (size_t i = 0; i < NKINDS && !k; i++)
        if (!strcmp(kinds[i].arch, m->arch) && kinds[i].experts == (experts > 0))
            k = &kinds[i];
    if (!k)
        return refuse(m, experts > 0 ? "architecture, with experts," : "architecture",
                      NULL);
    str_addf(&m->text, "{\"architectures\":[\"%s\"],\"model_type\":\"%s\",%s", k->model,
             k->type, k->text);
    if (!add_fields(m, fields) || !add_fields(m, k->more) ||
        !add_scale(m, k->largest) || !add_rotary(m, k) || !add_vocabulary(m))
        return false;
    add_token(m, "bos_token_id", "bos_token_id");
    add_token(m, "eos_token_id", "eos_token_id");
    add_type(m);
    str_add(&m->text, "}\n");
    return true;
}

void gguf_config(struct source *s, const struct gguf *g)
{
    const struct gguf_text *arch =
        gguf_string(gguf_get(g, NULL, "general.architecture"));
    struct making m = { .s = s, .g = g };

    if (!arch || !arch->n || memchr(arch->s, '\0', (size_t)arch->n)) {
        s->unmade = str_dupf("%s: no general.architecture", g->path);
        return;
    }
    m.arch = xstrndup(arch->s, (size_t)arch->n);
    if (make_all(&m)) {
        s->config = str_steal(&m.text);
        free(s->config_path);
        s->config_path = xstrdup(g->path);
    }
    str_clear(&m.text);
    free(m.arch);
}

/* ---- writing ---- */

struct writing {
    struct ggufwriter *w;
    const struct json *root;
    const char *name; /* of the config */
    const struct kind *k;
    double width, heads, head, context, window;
};

static int refuse_key(const struct writing *m, const char *key, struct err *err)
{
    return err_set(err, ERR_NO, "%s: %s: GGUF cannot represent its value of a model %s",
                   m->name, key, m->k->type);
}

/* The value of KEY; NULL: it has none. */
static const struct json *find_key(const struct json *j, const char *key)
{
    const struct json *v = json_get(j, key);

    return v && v->type != JSON_NULL ? v : NULL;
}

static int write_field(const struct writing *m, const struct field *f, struct err *err)
{
    const struct json *v = find_key(m->root, f->key);
    double x;

    if (!v && !strcmp(f->key, "num_key_value_heads"))
        v = find_key(m->root, "num_attention_heads");
    if (!v)
        return f->required && !!strcmp(f->key, "head_dim")
                   ? err_set(err, ERR_NO, "%s: no %s, which GGUF needs", m->name,
                             f->key)
                   : 0;
    if (!json_double(v, &x) || x < 0 ||
        (f->what == NUMBER && (x > 1e9 || x != (double)(int)x)))
        return refuse_key(m, f->key, err);
    if (f->what == NUMBER)
        ggufwriter_u32(m->w, m->k->arch, f->name, (uint32_t)x);
    else
        ggufwriter_f32(m->w, m->k->arch, f->name, (float)x);
    return 0;
}

static int write_fields(const struct writing *m, const struct field *f, struct err *err)
{
    for (; f && f->key; f++)
        if (write_field(m, f, err) < 0)
            return -1;
    return 0;
}

/* What a file of the architecture is always read as must be so. */
static int check_text(const struct writing *m, struct err *err)
{
    char *text = str_dupf("{%s}", m->k->text);
    struct json_doc doc;
    int ret = json_parse(&doc, "kind", text, strlen(text), err);

    for (const struct json *j = ret == 0 ? doc.root->first : NULL; j && ret == 0;
         j = j->next) {
        const struct json *is = find_key(m->root, j->key);
        double x, y;

        if (!is || j->type == JSON_NULL)
            continue;
        if (j->type == JSON_STRING
                ? !json_string(is) || strcmp(is->text, j->text) != 0
                : !json_double(j, &x) || !json_double(is, &y) || x != y)
            ret = refuse_key(m, j->key, err);
    }
    if (doc.root)
        json_clear(&doc);
    free(text);
    return ret;
}

/* A window that no key says, and scores of another scale. */
static int check_attention(const struct writing *m, struct err *err)
{
    const struct json *use = json_get(m->root, "use_sliding_window");
    double window = m->window, layers = 0, scale;
    bool said = false;

    for (const struct field *f = m->k->more; f && f->key; f++)
        said |= !strcmp(f->key, "sliding_window");
    if (!use || json_is_true(use))
        json_double(find_key(m->root, "sliding_window"), &window);
    if (!said && window > 0 && window < m->context)
        return refuse_key(m, "sliding_window", err);
    if (!m->k->largest ||
        !json_double(find_key(m->root, "query_pre_attn_scalar"), &scale))
        return 0;
    json_double(find_key(m->root, "num_hidden_layers"), &layers);
    return scale == (layers == m->k->largest ? floor(m->width / m->heads) : m->head)
               ? 0
               : refuse_key(m, "query_pre_attn_scalar", err);
}

/* ---- positions that are written ---- */

static float *take_factors(struct ggufconfig_factors *f, const char *name, size_t n)
{
    f->name = name;
    f->n = n;
    f->v = xcalloc(n + 1, sizeof(*f->v));
    return f->v;
}

/* The divisors of Llama 3.1's scaling (llama-models' apply_scaling). */
static int write_llama3(const struct writing *m, const struct json *how, double base,
                        double turning, struct ggufconfig_factors *f, struct err *err)
{
    const double pi = 3.14159265358979323846;
    size_t n = (size_t)turning / 2;
    double factor, low, high, original;
    float *v;

    if (!json_double(find_key(how, "factor"), &factor) ||
        !json_double(find_key(how, "low_freq_factor"), &low) ||
        !json_double(find_key(how, "high_freq_factor"), &high) ||
        !json_double(find_key(how, "original_max_position_embeddings"), &original) ||
        high <= low)
        return refuse_key(m, "rope_scaling", err);
    v = take_factors(f, "rope_freqs.weight", n);
    for (size_t i = 0; i < n; i++) {
        double turns = original / (2 * pi * pow(base, (double)i / (double)n));
        double share = fmin(fmax((turns - low) / (high - low), 0), 1);

        v[i] = (float)(1 / ((1 - share) / factor + share));
    }
    return 0;
}

/* Two lists of divisors. */
static int write_longrope(const struct writing *m, const struct json *how,
                          double turning, struct ggufconfig_factors *f, struct err *err)
{
    static const char *const keys[] = { "short_factor", "long_factor" };
    static const char *const names[] = { "rope_factors_short.weight",
                                         "rope_factors_long.weight" };
    const struct json *given = find_key(m->root, "original_max_position_embeddings");
    double original, attention;

    given = given ? given : find_key(how, "original_max_position_embeddings");
    if (!json_double(given, &original) || original < 2)
        return refuse_key(m, "rope_scaling", err);
    for (int k = 0; k < 2; k++) {
        const struct json *list = find_key(how, keys[k]);
        double x;
        float *v;
        size_t i = 0;

        if (!list || list->type != JSON_ARRAY || list->n != (size_t)turning / 2)
            return refuse_key(m, keys[k], err);
        v = take_factors(&f[k], names[k], list->n);
        for (const struct json *j = list->first; j; j = j->next) {
            if (!json_double(j, &x))
                return refuse_key(m, keys[k], err);
            v[i++] = (float)x;
        }
    }
    ggufwriter_u32(m->w, m->k->arch, "rope.scaling.original_context_length",
                   (uint32_t)original);
    if (!json_double(find_key(how, "attention_factor"), &attention))
        attention = m->context <= original
                        ? 1
                        : sqrt(1 + log(m->context / original) / log(original));
    ggufwriter_f32(m->w, m->k->arch, "rope.scaling.attn_factor", (float)attention);
    return 0;
}

static int write_scaling(const struct writing *m, const struct json *how, double base,
                         double turning, struct ggufconfig_factors *f, struct err *err)
{
    const struct json *type = find_key(how, "rope_type");
    const char *word;
    double x;

    type = type ? type : find_key(how, "type");
    word = json_string(type);
    if (!word || !strcmp(word, "default"))
        return 0;
    if (!strcmp(word, "llama3"))
        return write_llama3(m, how, base, turning, f, err);
    if (!strcmp(word, "longrope") || !strcmp(word, "su"))
        return write_longrope(m, how, turning, f, err);
    if ((strcmp(word, "linear") != 0 && strcmp(word, "yarn") != 0) ||
        !json_double(find_key(how, "factor"), &x) ||
        find_key(how, "attention_factor") || find_key(how, "mscale"))
        return refuse_key(m, "rope_scaling", err);
    ggufwriter_text(m->w, m->k->arch, "rope.scaling.type", word, strlen(word));
    ggufwriter_f32(m->w, m->k->arch, "rope.scaling.factor", (float)x);
    if (json_double(find_key(how, "original_max_position_embeddings"), &x))
        ggufwriter_u32(m->w, m->k->arch, "rope.scaling.original_context_length",
                       (uint32_t)x);
    if (json_double(find_key(how, "beta_fast"), &x))
        ggufwriter_f32(m->w, m->k->arch, "rope.scaling.yarn_beta_fast", (float)x);
    if (json_double(find_key(how, "beta_slow"), &x))
        ggufwriter_f32(m->w, m->k->arch, "rope.scaling.yarn_beta_slow", (float)x);
    return 0;
}

static int write_rotary(const struct writing *m, struct ggufconfig_factors *f,
                        struct err *err)
{
    const struct json *how = find_key(m->root, "rope_parameters"), *inner;
    const struct json *part = find_key(m->root, "partial_rotary_factor");
    double base = 10000, local = 10000, share = 1;

    inner = find_key(how, "full_attention"); /* of each kind of layer */
    if (inner &&
        json_double(find_key(find_key(how, "sliding_attention"), "rope_theta"),
                    &local) &&
        local != 10000)
        return refuse_key(m, "rope_parameters", err);
    /* where a config has both, transformers takes the older */
    how = inner                               ? inner
          : find_key(m->root, "rope_scaling") ? find_key(m->root, "rope_scaling")
                                              : how;
    if (!json_double(find_key(how, "rope_theta"), &base) &&
        !json_double(find_key(m->root, "rope_theta"), &base))
        base = 10000;
    part = part ? part : find_key(how, "partial_rotary_factor");
    if (part && (!json_double(part, &share) || (share != 1 && !m->k->partial)))
        return refuse_key(m, "partial_rotary_factor", err);
    ggufwriter_f32(m->w, m->k->arch, "rope.freq_base", (float)base);
    ggufwriter_u32(m->w, m->k->arch, "rope.dimension_count",
                   (uint32_t)(m->head * share));
    return write_scaling(m, how, base, floor(m->head * share), f, err);
}

int gguf_config_write(struct ggufwriter *w,
                      struct ggufconfig_factors factors[GGUFCONFIG_FACTORS],
                      const struct json *root, const char *name, double window,
                      struct err *err)
{
    struct writing m = { .w = w, .root = root, .name = name, .window = window };
    const char *type = json_string(json_get(root, "model_type"));
    double rows;

    for (int i = 0; i < NKINDS && type; i++)
        if (!strcmp(kinds[i].type, strcmp(type, "mistral") != 0 ? type : "llama"))
            m.k = &kinds[i];
    if (!m.k)
        return err_set(err, ERR_NO,
                       "%s: model_type %s: no GGUF is written of it; there are llama, "
                       "mistral, mixtral, qwen2, qwen3, phi3, gemma, gemma2 and "
                       "gemma3_text",
                       name, type ? type : "(none)");
    if (!json_double(find_key(root, "hidden_size"), &m.width) ||
        !json_double(find_key(root, "num_attention_heads"), &m.heads) || m.heads < 1 ||
        !json_double(find_key(root, "max_position_embeddings"), &m.context) ||
        !json_double(find_key(root, "vocab_size"), &rows))
        return err_set(err, ERR_NO, "%s: no sizes of a model", name);
    if (!json_double(find_key(root, "head_dim"), &m.head))
        m.head = floor(m.width / m.heads);
    ggufwriter_text(w, NULL, "general.architecture", m.k->arch, strlen(m.k->arch));
    if (check_text(&m, err) < 0 || check_attention(&m, err) < 0 ||
        write_fields(&m, fields, err) < 0 || write_fields(&m, m.k->more, err) < 0 ||
        write_rotary(&m, factors, err) < 0)
        return -1;
    if (!find_key(root, "head_dim"))
        ggufwriter_u32(w, m.k->arch, "attention.key_length", (uint32_t)m.head);
    ggufwriter_u32(w, m.k->arch, "attention.value_length", (uint32_t)m.head);
    ggufwriter_u32(w, m.k->arch, "vocab_size", (uint32_t)rows);
    return 0;
}
