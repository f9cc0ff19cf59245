/* megatronargs - the arguments of a run of Megatron-LM as a config.json */
#include "lib/ckpt/megatronargs.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

/* What an argument must be: off (None, False or 0), 1 or True, or a text. */
enum want { OFF, ONE, TEXT };

/* A run whose argument NAME is something else is no Llama, and no Mixtral.  Versions
 * that lack an argument that is not REQUIRED lack what it turns on. */
static const struct rule {
    const char *name;
    enum want want;
    bool required, experts; /* of interest with experts only */
    const char *text;
} rules[] = {
    { "swiglu", ONE, true, false, NULL },
    { "normalization", TEXT, true, false, "RMSNorm" },
    { "position_embedding_type", TEXT, true, false, "rope" },
    { "add_bias_linear", OFF, true, false, NULL },
    { "qk_l2_norm", OFF, false, false, NULL },
    { "apply_layernorm_1p", OFF, false, false, NULL },
    { "apply_residual_connection_post_layernorm", OFF, false, false, NULL },
    { "squared_relu", OFF, false, false, NULL },
    { "openai_gelu", OFF, false, false, NULL },
    { "quick_geglu", OFF, false, false, NULL },
    { "glu_linear_offset", OFF, false, false, NULL },
    { "activation_func_clamp_value", OFF, false, false, NULL },
    { "rotary_percent", ONE, false, false, NULL },
    { "rotary_interleaved", OFF, false, false, NULL },
    { "rotary_seq_len_interpolation_factor", OFF, false, false, NULL },
    { "use_rope_scaling", OFF, false, false, NULL },
    { "no_rope_freq", OFF, false, false, NULL },
    { "window_size", OFF, false, false, NULL },
    { "softmax_type", TEXT, false, false, "vanilla" },
    { "multi_latent_attention", OFF, false, false, NULL },
    { "attention_output_gate", OFF, false, false, NULL },
    { "experimental_attention_variant", OFF, false, false, NULL },
    { "heterogeneous_layers_config_path", OFF, false, false, NULL },
    { "heterogeneous_layers_config_encoded_json", OFF, false, false, NULL },
    { "hybrid_override_pattern", OFF, false, false, NULL },
    { "hybrid_layer_pattern", OFF, false, false, NULL },
    { "mtp_num_layers", OFF, false, false, NULL },
    { "use_mup", OFF, false, false, NULL },
    { "moe_layer_freq", ONE, false, true, NULL },
    { "moe_router_score_function", TEXT, false, true, "softmax" },
    { "moe_router_pre_softmax", OFF, false, true, NULL },
    { "moe_router_enable_expert_bias", OFF, false, true, NULL },
    { "moe_router_topk_scaling_factor", OFF, false, true, NULL },
    { "moe_router_num_groups", OFF, false, true, NULL },
    { "moe_router_group_topk", OFF, false, true, NULL },
    { "moe_shared_expert_intermediate_size", OFF, false, true, NULL },
    { "moe_latent_size", OFF, false, true, NULL },
};

enum { NRULES = sizeof(rules) / sizeof(*rules) };

#define MOST_NUMBER (INT64_C(1) << 53)

struct making {
    struct source *s;
    const struct pickled *args;
    const char *path;
    struct str text; /* of the config */
    bool head;       /* head_dim must be said */
};

/* ---- values ---- */

static bool is_number(const struct pickled *v, double *x)
{
    if (pickled_is(v, PICKLED_NUMBER))
        *x = (double)v->number;
    else if (pickled_is(v, PICKLED_REAL))
        *x = v->real;
    else
        return false;
    return isfinite(*x);
}

static bool fits(const struct rule *rule, const struct pickled *v)
{
    double x = 0;

    if (rule->want == TEXT)
        return pickled_text_is(v, rule->text);
    if (rule->want == OFF && v->kind == PICKLED_NONE)
        return true;
    return is_number(v, &x) && x == (rule->want == ONE);
}

/* Has the argument NAME a value other than None? */
static const struct pickled *given(const struct making *m, const char *name)
{
    const struct pickled *v = pickled_get(m->args, name);

    return v && v->kind != PICKLED_NONE ? v : NULL;
}

/* ---- reasons ---- */

static bool unsaid(struct making *m, const char *name)
{
    m->s->unmade = str_dupf("%s: args do not say %s", m->path, name);
    return false;
}

static bool unlike(struct making *m, const char *name, const struct pickled *v)
{
    struct str value = { 0 };

    if (v->kind == PICKLED_NONE)
        str_add(&value, "None");
    else if (v->kind == PICKLED_NUMBER)
        str_addf(&value, "%" PRId64, v->number);
    else if (v->kind == PICKLED_REAL)
        str_add_double(&value, v->real);
    else if (v->kind == PICKLED_TEXT)
        str_add_jsonn(&value, v->text.s, v->text.len < 64 ? v->text.len : 64);
    else
        str_add(&value, "something else");
    m->s->unmade = str_dupf("%s: args say %s = %s, of which no config.json is made",
                            m->path, name, str_text(&value));
    str_clear(&value);
    return false;
}

/* ---- the config ---- */

/* Adds KEY with the argument NAME, a positive number, whole if WHOLE. */
static bool add_number(struct making *m, const char *key, const char *name, bool whole)
{
    const struct pickled *v = given(m, name);
    double x;

    if (!v)
        return unsaid(m, name);
    if (!is_number(v, &x) || x <= 0 ||
        (whole && (v->kind != PICKLED_NUMBER || v->number > MOST_NUMBER)))
        return unlike(m, name, v);
    str_addf(&m->text, ",\"%s\":", key);
    if (whole)
        str_addf(&m->text, "%" PRId64, v->number);
    else
        str_add_double(&m->text, x);
    return true;
}

static bool check_rules(struct making *m, bool experts)
{
    for (size_t i = 0; i < NRULES; i++) {
        const struct pickled *v = pickled_get(m->args, rules[i].name);

        if (rules[i].experts && !experts)
            continue;
        if (!v && rules[i].required)
            return unsaid(m, rules[i].name);
        if (v && !fits(&rules[i], v))
            return unlike(m, rules[i].name, v);
    }
    return true;
}

/* Megatron looks at num_query_groups only where group_query_attention is set. */
static bool add_heads(struct making *m)
{
    const struct pickled *grouped = given(m, "group_query_attention");
    const struct pickled *width = given(m, "kv_channels");
    double on = 1, size = 0, heads = 0, head = 0;

    if (!add_number(m, "num_attention_heads", "num_attention_heads", true))
        return false;
    if (grouped && !is_number(grouped, &on))
        return unlike(m, "group_query_attention", grouped);
    if (!add_number(m, "num_key_value_heads",
                    on != 0 ? "num_query_groups" : "num_attention_heads", true))
        return false;
    /* not said, it is their quotient */
    if (m->head)
        return add_number(m, "head_dim", "kv_channels", true);
    return !width ||
           (is_number(given(m, "hidden_size"), &size) &&
            is_number(given(m, "num_attention_heads"), &heads) &&
            is_number(width, &head) && heads * head == size) ||
           add_number(m, "head_dim", "kv_channels", true);
}

/* The tensor whose name ends with NAME, or NULL. */
static const struct tensor *find(const struct source *s, const char *name)
{
    const struct tensor *t = s->nraw ? s->raw : s->tensor;

    for (size_t i = 0; i < (s->nraw ? s->nraw : s->n); i++)
        if (str_ends(t[i].name, name))
            return &t[i];
    return NULL;
}

/* The vocabulary with its padding, since only the tokenizer tells what is padding. */
static bool add_vocabulary(struct making *m, uint64_t shards)
{
    const struct tensor *t = find(m->s, "embedding.word_embeddings.weight");
    const char *type = t ? dtype_pytorch(t->dtype) : NULL;

    if (type)
        str_addf(&m->text, ",\"torch_dtype\":\"%s\"", type);
    if (given(m, "padded_vocab_size") || !t || t->ndim != 2 ||
        t->shape[0] > MOST_NUMBER / shards)
        return add_number(m, "vocab_size", "padded_vocab_size", true);
    str_addf(&m->text, ",\"vocab_size\":%" PRIu64, t->shape[0] * shards);
    return true;
}

static bool add_ties(struct making *m)
{
    static const char name[] = "untie_embeddings_and_output_weights";
    const struct pickled *v = pickled_get(m->args, name);
    double untied;

    if (!v)
        return unsaid(m, name);
    if (!is_number(v, &untied))
        return unlike(m, name, v);
    str_addf(&m->text, ",\"tie_word_embeddings\":%s", untied != 0 ? "false" : "true");
    return true;
}

/* What the arguments make of a Llama. */
static const struct kind {
    const char *name; /* of the argument that is set, or NULL */
    const char *model, *type;
    bool head; /* its head_dim has a default of its own */
} kinds[] = {
    { "add_qkv_bias", "Qwen2ForCausalLM", "qwen2", false },
    { "qk_layernorm", "Qwen3ForCausalLM", "qwen3", true },
    { NULL, "LlamaForCausalLM", "llama", false },
};

/* Begins the config with the model's kind: with EXPERTS Mixtral. */
static bool add_kind(struct making *m, bool experts)
{
    const struct kind *found = NULL;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        const struct pickled *v = kinds[i].name ? given(m, kinds[i].name) : NULL;
        double on = 0;

        if (v && !is_number(v, &on))
            return unlike(m, kinds[i].name, v);
        if (!kinds[i].name ? found != NULL : on == 0)
            continue;
        if (kinds[i].name && (experts || found))
            return unlike(m, kinds[i].name, v);
        found = &kinds[i];
    }
    m->head = found->head;
    if (experts)
        str_add(&m->text, "{\"architectures\":[\"MixtralForCausalLM\"],"
                          "\"model_type\":\"mixtral\",\"sliding_window\":null");
    else
        str_addf(&m->text, "{\"architectures\":[\"%s\"],\"model_type\":\"%s\"",
                 found->model, found->type);
    str_add(&m->text, ",\"hidden_act\":\"silu\"");
    return true;
}

static bool add_all(struct making *m, uint64_t shards)
{
    const struct pickled *experts = given(m, "num_experts");
    const char *ffn = experts && given(m, "moe_ffn_hidden_size") ? "moe_ffn_hidden_size"
                                                                 : "ffn_hidden_size";

    return add_kind(m, experts) && check_rules(m, experts) &&
           add_number(m, "hidden_size", "hidden_size", true) &&
           add_number(m, "num_hidden_layers", "num_layers", true) && add_heads(m) &&
           add_number(m, "intermediate_size", ffn, true) &&
           add_number(m, "max_position_embeddings", "max_position_embeddings", true) &&
           add_number(m, "rms_norm_eps", "norm_epsilon", false) &&
           add_number(m, "rope_theta", "rotary_base", false) && add_ties(m) &&
           add_vocabulary(m, shards) &&
           (!experts ||
            (add_number(m, "num_local_experts", "num_experts", true) &&
             add_number(m, "num_experts_per_tok", "moe_router_topk", true)));
}

void megatron_config(struct source *s, const struct pickled *args, uint64_t shards,
                     const char *path)
{
    struct making m = { .s = s, .args = args, .path = path };

    if (!pickled_is(args, PICKLED_RECORD)) {
        s->unmade = str_dupf("%s: no args of a run", path);
        return;
    }
    if (add_all(&m, shards)) {
        str_add(&m.text, "}\n");
        s->config = str_steal(&m.text);
        free(s->config_path);
        s->config_path = xstrdup(path);
    }
    str_clear(&m.text);
}
