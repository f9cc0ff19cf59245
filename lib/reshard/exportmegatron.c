/* exportmegatron - Megatron-Core's torch_dist, as dist_checkpointing loads it
 *
 * A directory of torch.distributed.checkpoint with metadata.json and common.pt: the
 * arguments of the run, and, with an optimizer, its groups.  Layers, and experts, are
 * stacked, as they are where nothing else is asked for (no singleton_local_shards), and
 * an optimizer is fully reshardable: it has the shapes of the weights.  Tensors have no
 * prefix.  Facts: Megatron-Core 0.16.1, core/dist_checkpointing and
 * core/optimizer/distrib_optimizer.py. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/ckpt/pickler.h"
#include "lib/reshard/exportforms.h"
#include "lib/reshard/exportitems.h"
#include "lib/reshard/placed.h"

static const char METADATA[] = "metadata.json", COMMON[] = "common.pt";
static const char BACKEND[] =
    "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "
    "\"common_backend\": \"torch\", \"common_backend_version\": 1}";

enum { STACK_LAYERS = 1, STACK_EXPERTS = 2, VERSION = 3 };

struct megatron {
    bool singleton; /* nothing is stacked */
    struct placed set;
    struct exportitems items;
};

/* ---- tensors ---- */

/* Adds an item for each stored tensor, of the tensors at FROM ([nparts], of the parts;
 * -1: none), named with PREFIX. */
static int add_items(struct exporting *e, struct megatron *m, const char *prefix,
                     const long *from, const enum dtype *type, struct err *err)
{
    size_t *item = xcalloc(m->set.n + 1, sizeof(*item)), *there;
    int ret = 0;

    there = xcalloc(m->set.n + 1, sizeof(*there));
    for (size_t i = 0; i < m->set.nparts; i++)
        there[m->set.part[i].to] += from[i] >= 0;
    for (size_t i = 0; i < m->set.n && ret == 0; i++) {
        const struct placed_tensor *t = &m->set.tensor[i];
        char *name = str_dupf("%s%s", prefix, t->name);
        const char *key = name;
        enum dtype kind = type ? *type : exporting_type(e, (size_t)from[t->first]);

        if (there[i] && there[i] != t->nparts)
            ret = err_set(err, ERR_NO,
                          "%s: %s: %zu of its %zu tensors have a state of the "
                          "optimizer, which Megatron stores of all or none",
                          e->ckpt->path, name, there[i], t->nparts);
        if (there[i])
            item[i] = exportitems_tensor(&m->items, &key, 1, kind, t->ndim, t->shape);
        free(name);
    }
    for (size_t i = 0; i < m->set.nparts && ret == 0; i++) {
        const struct placed_part *p = &m->set.part[i];

        if (from[i] < 0)
            continue;
        exportitems_copy(&m->items, item[p->to], (size_t)from[i], &m->set, p);
        if (!type &&
            exporting_type(e, (size_t)from[i]) != m->items.item[item[p->to]].dtype)
            ret = err_set(err, ERR_NO,
                          "%s: %s: of another type than the rest of %s (--dtype makes "
                          "them one)",
                          e->ckpt->path, e->ckpt->tensor[p->from].name,
                          m->set.tensor[p->to].name);
    }
    free(item);
    free(there);
    return ret;
}

/* Adds the states in ROLE, or for "param" the masters, or the weights as f32. */
static int add_states(struct exporting *e, struct megatron *m, const char *role,
                      struct err *err)
{
    static const enum dtype single = DTYPE_F32;
    bool masters = !strcmp(role, "param");
    long *from = xcalloc(m->set.nparts + 1, sizeof(*from));
    char *prefix = str_dupf("optimizer.state.%s.", role);
    int ret;

    for (size_t i = 0; i < m->set.nparts; i++) {
        size_t w = m->set.part[i].from;

        from[i] = exporting_state(e, w, masters ? "master" : role);
        if (masters && from[i] < 0 && exporting_state(e, w, "exp_avg") >= 0)
            from[i] = (long)w;
    }
    ret = add_items(e, m, prefix, from, &single, err);
    free(prefix);
    free(from);
    return ret;
}

static int add_weights(struct exporting *e, struct megatron *m, struct err *err)
{
    long *from = xcalloc(m->set.nparts + 1, sizeof(*from));
    int ret;

    for (size_t i = 0; i < m->set.nparts; i++)
        from[i] = (long)m->set.part[i].from;
    ret = add_items(e, m, "", from, NULL, err);
    free(from);
    return ret;
}

/* Has some stored tensor PART in its name? */
static bool has_part(const struct megatron *m, const char *part)
{
    for (size_t i = 0; i < m->set.n; i++)
        if (strstr(m->set.tensor[i].name, part))
            return true;
    return false;
}

/* Adds the extra state of the module whose name is the N bytes at NAME, which is
 * nothing, for each member of a stack of COUNT, or of COUNT x EACH. */
static void add_extra(struct megatron *m, const char *name, size_t n, int nlead,
                      const uint64_t *shape)
{
    uint64_t count = nlead > 0 ? shape[0] : 1, each = nlead > 1 ? shape[1] : 1;

    for (uint64_t i = 0; i < count * each; i++) {
        struct str value = { 0 };
        unsigned long long all = count, of = each, at = i / each, in = i % each;
        char *key = nlead > 1 ? str_dupf("%.*s_extra_state/shard_%llu.%llu_%llu.%llu",
                                         (int)n, name, at, in, all, of)
                              : str_dupf("%.*s_extra_state/shard_%llu_%llu", (int)n,
                                         name, at, all);

        pickler_begin(&value, 2);
        pickler_begin_list(&value);
        pickler_none(&value);
        pickler_end_list(&value);
        pickler_end(&value);
        exportitems_object(&m->items, (const char *const *)&key, 1, &value);
        free(key);
    }
}

/* Loading asks for the extra state of every linear module, and Transformer Engine's
 * also for that of the attention. */
static void add_extras(struct megatron *m)
{
    static const char linear[] = "linear_", proj[] = "self_attention.linear_proj.",
                      attention[] = "core_attention.";

    for (size_t i = 0; i < m->set.n; i++) {
        const struct placed_tensor *t = &m->set.tensor[i];
        int nlead = m->set.part[t->first].view.nlead;
        const char *dot = strrchr(t->name, '.'), *module;
        char *name;

        if (!dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".weight_w") != 0))
            continue;
        for (module = dot; module > t->name && module[-1] != '.';)
            module--;
        if (!str_starts(module, linear))
            continue;
        add_extra(m, t->name, (size_t)(dot + 1 - t->name), nlead, t->shape);
        if (!strstr(t->name, proj))
            continue;
        name = str_dupf("%.*s%s", (int)(module - t->name), t->name, attention);
        add_extra(m, name, strlen(name), nlead, t->shape);
        free(name);
    }
}

/* ---- positions ---- */

static int refuse_key(const struct exporting *e, const char *key, struct err *err)
{
    return err_set(err, ERR_NO, "%s: %s: Megatron cannot represent its value",
                   model_config_name(e->ckpt->model), key);
}

/* How positions turn, and the name of that; NULL: as ever.  Where a config has both
 * keys, transformers takes the older. */
static const struct json *find_rotary(const struct exporting *e, const char **type)
{
    const struct json *how = json_get(e->config.root, "rope_scaling");

    if (!how || how->type != JSON_OBJECT)
        how = json_get(e->config.root, "rope_parameters");
    *type = json_string(json_get(how, "rope_type"));
    *type = *type ? *type : json_string(json_get(how, "type"));
    if (*type && !strcmp(*type, "default"))
        *type = NULL;
    return how;
}

/* Megatron's use_rope_scaling is Llama 3's, of which it has the factor alone as an
 * argument: core/models/common/embeddings/rotary_pos_embedding.py.  No argument that is
 * written says a window. */
static int check_positions(const struct exporting *e, struct err *err)
{
    static const struct {
        const char *key;
        double value;
    } fixed[] = { { "low_freq_factor", 1 },
                  { "high_freq_factor", 4 },
                  { "original_max_position_embeddings", 8192 } };
    const char *type;
    const struct json *how = find_rotary(e, &type);
    const double window = exporting_window(e);
    double x;

    if (window > 0 && window < (double)model_context(e->ckpt->model))
        return refuse_key(e, "sliding_window", err);
    if (!type)
        return 0;
    if (strcmp(type, "llama3") != 0 || !json_double(json_get(how, "factor"), &x))
        return refuse_key(e, "rope_scaling", err);
    for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
        if (!json_double(json_get(how, fixed[i].key), &x) || x != fixed[i].value)
            return refuse_key(e, fixed[i].key, err);
    return json_double(json_get(how, "partial_rotary_factor"), &x) && x != 1
               ? refuse_key(e, "partial_rotary_factor", err)
               : 0;
}

/* ---- layout ---- */

static int lay_out(struct exporting *e, struct err *err)
{
    static const char *const roles[] = { "param", "exp_avg", "exp_avg_sq" };
    struct megatron *m = e->own = xcalloc(1, sizeof(*m));

    m->items.flat = true;
    if (placed_make(&m->set, e->ckpt, "megatron", STACK_LAYERS | STACK_EXPERTS, err) <
        0)
        return -1;
    /* of a family that names the halves of linear_fc1 alone, as older ones do */
    m->singleton = has_part(m, "linear_fc1.weight_w");
    if (m->singleton) {
        placed_clear(&m->set);
        if (placed_make(&m->set, e->ckpt, "megatron", 0, err) < 0)
            return -1;
    }
    if (check_positions(e, err) < 0 || add_weights(e, m, err) < 0)
        return -1;
    add_extras(m);
    for (int k = 0; e->states && k < 3; k++)
        if (add_states(e, m, roles[k], err) < 0)
            return -1;
    return exportitems_place(&m->items, e, err);
}

static void name_files(struct exporting *e)
{
    exporting_own(e, DCP_METADATA);
    exporting_own(e, DCP_ITEMS);
    exporting_own(e, METADATA);
    exporting_own(e, COMMON);
}

/* ---- the arguments ---- */

/* An argument of Megatron-LM that has the value of a key of the config. */
static const struct argument {
    const char *name, *key, *instead; /* of a config that lacks KEY, or NULL */
} arguments[] = {
    { "num_layers", "num_hidden_layers", NULL },
    { "hidden_size", "hidden_size", NULL },
    { "ffn_hidden_size", "intermediate_size", NULL },
    { "num_attention_heads", "num_attention_heads", NULL },
    { "num_query_groups", "num_key_value_heads", "num_attention_heads" },
    { "max_position_embeddings", "max_position_embeddings", NULL },
    { "seq_length", "max_position_embeddings", NULL },
    { "norm_epsilon", "rms_norm_eps", NULL },
    { "padded_vocab_size", "vocab_size", NULL },
    { "num_experts", "num_local_experts", "num_experts" },
    { "moe_router_topk", "num_experts_per_tok", NULL },
    { "moe_ffn_hidden_size", "moe_intermediate_size", NULL },
};

static void put_number(struct str *s, const char *name, uint64_t value)
{
    pickler_text(s, name);
    pickler_count(s, value);
}

static void put_flag(struct str *s, const char *name, bool on)
{
    pickler_text(s, name);
    pickler_bool(s, on);
}

static void put_word(struct str *s, const char *name, const char *word)
{
    pickler_text(s, name);
    pickler_text(s, word);
}

static const struct json *find_key(const struct exporting *e, const struct argument *a)
{
    const struct json *j = json_get(e->config.root, a->key);

    return !j && a->instead ? json_get(e->config.root, a->instead) : j;
}

/* How positions turn: their base, and Llama 3's scaling. */
static void put_rotary(struct str *s, const struct exporting *e)
{
    const struct json *theta;
    const char *type;
    const struct json *how = find_rotary(e, &type);

    theta = json_get(how, "rope_theta");
    theta = theta ? theta : json_get(e->config.root, "rope_theta");
    pickler_text(s, "rotary_base");
    if (theta)
        pickler_json(s, theta);
    else
        pickler_real(s, 10000);
    put_flag(s, "use_rope_scaling", type != NULL);
    if (type) {
        pickler_text(s, "rope_scaling_factor");
        pickler_json(s, json_get(how, "factor"));
    }
}

static void put_args(struct str *s, const struct exporting *e, const struct megatron *m)
{
    const struct json *root = e->config.root, *head = json_get(root, "head_dim");
    uint64_t size = 0, heads = 0, groups = 0, width = 0;

    pickler_begin_object(s, "argparse", "Namespace");
    for (size_t i = 0; i < sizeof(arguments) / sizeof(*arguments); i++) {
        const struct json *j = find_key(e, &arguments[i]);

        if (j) {
            pickler_text(s, arguments[i].name);
            pickler_json(s, j);
        }
    }
    json_u64(json_get(root, "hidden_size"), &size);
    json_u64(json_get(root, "num_attention_heads"), &heads);
    if (!json_u64(json_get(root, "num_key_value_heads"), &groups))
        groups = heads;
    if (json_u64(head, &width) || heads)
        put_number(s, "kv_channels", width ? width : size / heads);
    put_flag(s, "group_query_attention", groups != heads);
    put_flag(s, "untie_embeddings_and_output_weights", has_part(m, "output_layer"));
    put_flag(s, "add_qkv_bias", has_part(m, "linear_qkv.bias"));
    put_flag(s, "qk_layernorm",
             has_part(m, "self_attention.q_layernorm") && !has_part(m, "kv_down_proj"));
    put_flag(s, "multi_latent_attention", has_part(m, "kv_down_proj"));
    put_flag(s, "swiglu", true);
    put_flag(s, "add_bias_linear", false);
    put_word(s, "normalization", "RMSNorm");
    put_word(s, "position_embedding_type", "rope");
    put_rotary(s, e);
    put_number(s, "tensor_model_parallel_size", 1);
    put_number(s, "pipeline_model_parallel_size", 1);
    put_number(s, "expert_model_parallel_size", 1);
    put_flag(s, "use_distributed_optimizer", e->states);
    put_number(s, "iteration", e->run.step);
    pickler_end_object(s);
}

/* ---- the optimizer ---- */

/* A group: of decay, or without. */
static void put_group(struct str *s, const struct exporting_run *r, bool undecayed)
{
    static const char *const off[] = {
        "is_expert_parallel", "is_decoupled_lr", "amsgrad",
        "maximize",           "capturable",      "differentiable"
    };
    static const char *const unset[] = { "foreach", "fused", "min_lr" };
    const struct {
        const char *name;
        double value;
    } reals[] = { { "wd_mult", undecayed ? 0 : 1 },
                  { "lr_mult", 1 },
                  { "max_lr", r->lr },
                  { "lr", r->lr },
                  { "eps", r->eps },
                  { "weight_decay", r->decay },
                  { "step", (double)r->step } };

    pickler_begin_dict(s);
    for (size_t i = 0; i < sizeof(off) / sizeof(*off); i++)
        put_flag(s, off[i], false);
    for (size_t i = 0; i < sizeof(unset) / sizeof(*unset); i++) {
        pickler_text(s, unset[i]);
        pickler_none(s);
    }
    for (size_t i = 0; i < sizeof(reals) / sizeof(*reals); i++) {
        pickler_text(s, reals[i].name);
        pickler_real(s, reals[i].value);
    }
    pickler_text(s, "betas");
    str_addc(s, '(');
    pickler_real(s, r->beta1);
    pickler_real(s, r->beta2);
    str_addc(s, 't');
    put_flag(s, "default_config", true);
    put_flag(s, "decoupled_weight_decay", true);
    pickler_end_dict(s);
}

static void put_optimizer(struct str *s, const struct exporting_run *r)
{
    pickler_begin_dict(s);
    pickler_text(s, "optimizer");
    pickler_begin_dict(s);
    pickler_text(s, "param_groups");
    pickler_begin_list(s);
    put_group(s, r, false);
    put_group(s, r, true);
    pickler_end_list(s);
    pickler_end_dict(s);
    put_word(s, "param_state_sharding_type", "fully_reshardable");
    pickler_end_dict(s);
}

/* The values that ranks have in common. */
static int write_common(struct exporting *e, const struct megatron *m, struct err *err)
{
    struct torchsave t = { 0 };
    struct str *s = &t.pickle;
    int ret;

    pickler_begin(s, 2);
    pickler_begin_dict(s);
    pickler_text(s, "args");
    put_args(s, e, m);
    put_number(s, "iteration", e->run.step);
    pickler_text(s, "checkpoint_version");
    pickler_real(s, VERSION);
    pickler_text(s, "content_metadata");
    pickler_begin_dict(s);
    put_flag(s, "singleton_local_shards", m->singleton);
    put_flag(s, "chained_optim_avoid_prefix", true);
    if (e->states)
        put_word(s, "distrib_optim_sharding_type", "fully_reshardable");
    pickler_end_dict(s);
    if (e->states) {
        pickler_text(s, "optimizer");
        put_optimizer(s, &e->run);
    }
    pickler_end_dict(s);
    pickler_end(s);
    ret = exporting_object(e, &e->out, COMMON, &t, err);
    torchsave_clear(&t);
    return ret;
}

static int write_all(struct exporting *e, struct err *err)
{
    struct megatron *m = e->own;

    if (exportitems_write(&m->items, e, err) < 0 || write_common(e, m, err) < 0)
        return -1;
    return outdir_write(&e->out, METADATA, BACKEND, strlen(BACKEND),
                        checkpoint_mode(e->ckpt), err);
}

static void clear(struct exporting *e)
{
    struct megatron *m = e->own;

    if (!m)
        return;
    placed_clear(&m->set);
    exportitems_clear(&m->items);
    free(m);
}

const struct export_form export_megatron_form = { .name = "megatron-dist",
                                                  .states = true,
                                                  .plain = true,
                                                  .name_files = name_files,
                                                  .lay_out = lay_out,
                                                  .write = write_all,
                                                  .clear = clear };
