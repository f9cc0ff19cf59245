/* quant - the companions of quantized weights: scales, zero points, packed values
 *
 * FP8 blocks: as in DeepSeek-V3's checkpoints.  GPTQ: Frantar et al. 2022, AutoGPTQ's
 * layout; AWQ: Lin et al. 2023, AutoAWQ's "gemm" layout; LLM.int8: Dettmers et al.
 * 2022; compressed-tensors: that library's formats "float-quantized" and
 * "pack-quantized", with the settings in config_groups, and its "nvfp4-pack-quantized"
 * (NVIDIA's blocks of 16 with a scale in FP8, and one of all) and
 * "mxfp4-pack-quantized" (OCP Microscaling Formats 1.0, 2023). */
#include "lib/model/quant.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/ggml.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/model/bind.h"

/* The axis of the weight that a companion's axis follows, and its divisor. */
enum along { ALONG_NONE, ALONG_OUT, ALONG_IN };
enum by {
    BY_ONE,
    BY_PAIR,
    BY_HALF,
    BY_PACK,
    BY_GROUP,
    BY_BLOCK_OUT,
    BY_BLOCK_IN,
    BY_NUMBERS, /* of one of ggml's blocks */
    BY_BYTES    /* of one: not divided, so many */
};

/* When files have it, as the config tells; not at all in a form that is read, but that
 * its method no longer writes. */
enum stated {
    STATED_NEVER,
    STATED_ALWAYS,
    STATED_BLOCKS,    /* weights have scales by blocks, */
    STATED_NO_BLOCKS, /* or one */
    STATED_WHOLE,     /* one scale, as "strategy" has it */
    STATED_STATIC,    /* activations have scales that are known before */
    STATED_WORDS,     /* values are in words of 32 bits, */
    STATED_ZEROS,     /* and not symmetric */
    STATED_FOURS,     /* they are FP4, two in a byte, */
    STATED_NO_FOURS   /* or something else */
};

struct companion {
    const char *method; /* "method/strategy" if for one strategy only */
    const char *suffix;
    enum model_packed role;
    bool replaces; /* stored in place of the weight */
    int ndim;
    struct {
        enum along along;
        enum by by;
    } axis[3];
    enum stated when;
    enum dtype dtype; /* as files have it, */
    bool plain;       /* unless it is that of weights that are not quantized */
};

static const struct companion companions[] = {
    { "fp8",
      "weight_scale_inv",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_OUT, BY_BLOCK_OUT }, { ALONG_IN, BY_BLOCK_IN } },
      .when = STATED_BLOCKS,
      .dtype = DTYPE_F32 },
    { "fp8",
      "weight_scale",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_OUT, BY_ONE }, { ALONG_NONE, BY_ONE } },
      .when = STATED_NEVER },
    { "fp8",
      "weight_scale",
      PACKED_SCALES,
      false,
      1,
      { { ALONG_NONE, BY_ONE } },
      .when = STATED_NEVER },
    { "fp8",
      "weight_scale",
      PACKED_SCALES,
      false,
      0,
      { { ALONG_NONE, BY_ONE } },
      .when = STATED_NO_BLOCKS,
      .dtype = DTYPE_F32 },
    { "fp8",
      "input_scale",
      PACKED_OTHER,
      false,
      1,
      { { ALONG_NONE, BY_ONE } },
      .when = STATED_NEVER },
    { "fp8",
      "input_scale",
      PACKED_OTHER,
      false,
      0,
      { { ALONG_NONE, BY_ONE } },
      .when = STATED_STATIC,
      .dtype = DTYPE_F32 },
    { "fbgemm_fp8",
      "weight_scale",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_OUT, BY_ONE }, { ALONG_NONE, BY_ONE } },
      .when = STATED_ALWAYS,
      .dtype = DTYPE_F32 },
    { "gptq",
      "qweight",
      PACKED_VALUES,
      true,
      2,
      { { ALONG_IN, BY_PACK }, { ALONG_OUT, BY_ONE } },
      .when = STATED_ALWAYS,
      .dtype = DTYPE_I32 },
    { "gptq",
      "qzeros",
      PACKED_ZEROS,
      false,
      2,
      { { ALONG_IN, BY_GROUP }, { ALONG_OUT, BY_PACK } },
      .when = STATED_ALWAYS,
      .dtype = DTYPE_I32 },
    { "gptq",
      "scales",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_IN, BY_GROUP }, { ALONG_OUT, BY_ONE } },
      .when = STATED_ALWAYS,
      .dtype = DTYPE_F16 },
    { "gptq",
      "g_idx",
      PACKED_GROUPS,
      false,
      1,
      { { ALONG_IN, BY_ONE } },
      .when = STATED_ALWAYS,
      .dtype = DTYPE_I32 },
    { "awq",
      "qweight",
      PACKED_VALUES,
      true,
      2,
      { { ALONG_IN, BY_ONE }, { ALONG_OUT, BY_PACK } },
      .when = STATED_ALWAYS,
      .dtype = DTYPE_I32 },
    { "awq",
      "qzeros",
      PACKED_ZEROS,
      false,
      2,
      { { ALONG_IN, BY_GROUP }, { ALONG_OUT, BY_PACK } },
      .when = STATED_ALWAYS,
      .dtype = DTYPE_I32 },
    { "awq",
      "scales",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_IN, BY_GROUP }, { ALONG_OUT, BY_ONE } },
      .when = STATED_ALWAYS,
      .dtype = DTYPE_F16 },
    { "compressed-tensors",
      "weight_packed",
      PACKED_VALUES,
      true,
      2,
      { { ALONG_OUT, BY_ONE }, { ALONG_IN, BY_PACK } },
      .when = STATED_WORDS,
      .dtype = DTYPE_I32 },
    { "compressed-tensors",
      "weight_packed",
      PACKED_VALUES,
      true,
      2,
      { { ALONG_OUT, BY_ONE }, { ALONG_IN, BY_HALF } },
      .when = STATED_FOURS,
      .dtype = DTYPE_U8 },
    { "compressed-tensors/group",
      "weight_scale",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_OUT, BY_ONE }, { ALONG_IN, BY_GROUP } },
      .when = STATED_NO_FOURS,
      .plain = true },
    { "compressed-tensors/group",
      "weight_scale",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_OUT, BY_ONE }, { ALONG_IN, BY_GROUP } },
      .when = STATED_FOURS,
      .dtype = DTYPE_U8 },
    { "compressed-tensors/tensor_group",
      "weight_scale",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_OUT, BY_ONE }, { ALONG_IN, BY_GROUP } },
      .when = STATED_FOURS,
      .dtype = DTYPE_F8_E4M3 },
    { "compressed-tensors/tensor_group",
      "weight_global_scale",
      PACKED_WHOLE,
      false,
      1,
      { { ALONG_NONE, BY_ONE } },
      .when = STATED_FOURS,
      .dtype = DTYPE_F32 },
    { "compressed-tensors/tensor_group",
      "input_global_scale",
      PACKED_OTHER,
      false,
      1,
      { { ALONG_NONE, BY_ONE } },
      .when = STATED_FOURS,
      .dtype = DTYPE_F32 },
    { "compressed-tensors/block",
      "weight_scale",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_OUT, BY_BLOCK_OUT }, { ALONG_IN, BY_BLOCK_IN } },
      .when = STATED_ALWAYS,
      .plain = true },
    { "compressed-tensors/channel",
      "weight_scale",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_OUT, BY_ONE }, { ALONG_NONE, BY_ONE } },
      .when = STATED_ALWAYS,
      .plain = true },
    { "compressed-tensors",
      "weight_scale",
      PACKED_SCALES,
      false,
      1,
      { { ALONG_NONE, BY_ONE } },
      .when = STATED_WHOLE,
      .plain = true },
    { "compressed-tensors",
      "weight_scale",
      PACKED_SCALES,
      false,
      0,
      { { ALONG_NONE, BY_ONE } },
      .when = STATED_NEVER },
    { "compressed-tensors",
      "input_scale",
      PACKED_OTHER,
      false,
      1,
      { { ALONG_NONE, BY_ONE } },
      .when = STATED_STATIC,
      .plain = true },
    { "compressed-tensors",
      "input_scale",
      PACKED_OTHER,
      false,
      0,
      { { ALONG_NONE, BY_ONE } },
      .when = STATED_NEVER },
    { "compressed-tensors/group",
      "weight_zero_point",
      PACKED_ZEROS,
      false,
      2,
      { { ALONG_OUT, BY_PACK }, { ALONG_IN, BY_GROUP } },
      .when = STATED_ZEROS,
      .dtype = DTYPE_I32 },
    { "compressed-tensors/channel",
      "weight_zero_point",
      PACKED_ZEROS,
      false,
      2,
      { { ALONG_OUT, BY_PACK }, { ALONG_NONE, BY_ONE } },
      .when = STATED_ZEROS,
      .dtype = DTYPE_I32 },
    { "compressed-tensors",
      "weight_shape",
      PACKED_OTHER,
      false,
      1,
      { { ALONG_NONE, BY_PAIR } },
      .when = STATED_WORDS,
      .dtype = DTYPE_I64 },
    { "bitsandbytes",
      "SCB",
      PACKED_SCALES,
      false,
      1,
      { { ALONG_OUT, BY_ONE } },
      .when = STATED_ALWAYS,
      .dtype = DTYPE_F32 },
    { "bitsandbytes",
      "weight_format",
      PACKED_FORMAT,
      false,
      0,
      { { ALONG_NONE, BY_ONE } },
      .when = STATED_ALWAYS,
      .dtype = DTYPE_U8 },
    /* shardutils-checkpoint(5): outputs are rows or columns of the weight; the shape
     * tells which */
    { "shardutils",
      "weight.scale",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_OUT, BY_ONE }, { ALONG_NONE, BY_ONE } },
      .when = STATED_NEVER },
    { "shardutils",
      "weight.scale",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_NONE, BY_ONE }, { ALONG_IN, BY_ONE } },
      .when = STATED_NEVER },
    { "shardutils",
      "weight.scale",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_OUT, BY_ONE }, { ALONG_IN, BY_GROUP } },
      .when = STATED_NEVER },
    { "shardutils",
      "weight.scale",
      PACKED_SCALES,
      false,
      2,
      { { ALONG_OUT, BY_GROUP }, { ALONG_IN, BY_ONE } },
      .when = STATED_NEVER },
    { "shardutils",
      "weight.int4",
      PACKED_VALUES,
      true,
      2,
      { { ALONG_OUT, BY_ONE }, { ALONG_IN, BY_HALF } },
      .when = STATED_NEVER },
    { "shardutils",
      "weight.int4",
      PACKED_VALUES,
      true,
      2,
      { { ALONG_OUT, BY_HALF }, { ALONG_IN, BY_ONE } },
      .when = STATED_NEVER },
};

/* ggml's blocks in the place of a weight, in a tensor whose name ends with theirs:
 * weight.q8_0. */
static const char GGUF[] = "gguf";

const cJSON *quant_setting(const struct model *m, const char *key)
{
    const cJSON *q =
        cJSON_GetObjectItemCaseSensitive(m->state->config, "quantization_config");

    return key ? cJSON_GetObjectItemCaseSensitive(q, key) : q;
}

/* The setting for weights: compressed-tensors keeps it in a group of targets, under the
 * name GROUPED. */
const cJSON *quant_weight_setting(const struct model *m, const char *key,
                                  const char *grouped)
{
    const cJSON *groups = quant_setting(m, "config_groups");

    if (!groups)
        return quant_setting(m, key);
    return cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(groups->child, "weights"), grouped);
}

static uint64_t number(const cJSON *j, uint64_t otherwise)
{
    return cJSON_IsNumber(j) && j->valuedouble >= 1 && j->valuedouble <= 1 << 24
               ? (uint64_t)j->valuedouble
               : otherwise;
}

/* Elements of the weight's axis of size N per element of the companion's axis. */
static uint64_t divisor(const struct model *m, enum by by, uint64_t n)
{
    const cJSON *blocks =
                    quant_weight_setting(m, "weight_block_size", "block_structure"),
                *group = quant_weight_setting(m, "group_size", "group_size");
    uint64_t bits = number(quant_weight_setting(m, "bits", "num_bits"), 4);

    switch (by) {
    case BY_ONE:
    case BY_PAIR:
    case BY_NUMBERS:
    case BY_BYTES:
        break;
    case BY_HALF: /* two values in a byte */
        return 2;
    case BY_PACK: /* values of that many bits in a 32-bit word */
        return bits <= 32 ? 32 / bits : 1;
    case BY_GROUP: /* -1: one group */
        return number(group, n);
    case BY_BLOCK_OUT:
        return number(cJSON_GetArrayItem(blocks, 0), 128);
    case BY_BLOCK_IN:
        return number(cJSON_GetArrayItem(blocks, 1), 128);
    }
    return 1;
}

/* ---- a new definition ---- */

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t r = a % b;

        a = b;
        b = r;
    }
    return a;
}

/* Raises the grain of A's sharded symbols so that shards are whole blocks; not possible
 * for symbols sharded in groups. */
static void raise_grain(struct model *m, const struct axis *a, uint64_t block)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < a->leaf[i].n; k++)
            for (int d = 0; d < m->state->ndeals; d++) {
                struct deal_def *deal = &m->state->deal[d];
                const struct digit *digit = &a->leaf[i].digit[k];
                uint64_t need = block / gcd(block, digit->stride);

                if (digit->sym != deal->sym || deal->group >= 0 ||
                    deal->grain > UINT32_MAX)
                    continue;
                deal->grain = deal->grain / gcd(deal->grain, need) * need;
            }
}

static int make_axis(struct model *m, struct axis *out, const struct tensor_def *base,
                     const struct companion *c, int k, const struct ggml_row *blocks,
                     struct err *err)
{
    enum along along = c->axis[k].along;
    enum by by = c->axis[k].by;
    const struct axis *from = &base->axis[along == ALONG_IN];
    uint64_t block;

    if (along == ALONG_NONE) {
        char *text = str_dupf("%d", by == BY_PAIR    ? 2
                                    : by == BY_BYTES ? (int)blocks->bytes
                                                     : 1);
        int ret = axis_parse(out, text, &m->scope, err);

        free(text);
        return ret;
    }
    block = by == BY_NUMBERS ? blocks->numbers : divisor(m, by, from->size);
    axis_divide(out, from, block);
    if (block > 1)
        raise_grain(m, from, block);
    return 0;
}

/* The base's name patterns with SUFFIX instead of "weight". */
static void make_names(struct tensor_def *d, const struct tensor_def *base,
                       const char *suffix)
{
    d->name = xcalloc(base->nnames, sizeof(*d->name));
    for (size_t i = 0; i < base->nnames; i++)
        d->name[i] = str_dupf("%.*s%s", (int)(strlen(base->name[i]) - strlen("weight")),
                              base->name[i], suffix);
}

/* Adds companion C, of BLOCKS if it has any, to the weights of definition BASE. */
static int add_definition(struct model *m, size_t base, const struct companion *c,
                          const struct ggml_row *blocks, struct err *err)
{
    struct model_state *s = m->state;
    struct tensor_def *d = &s->def[s->ndefs];

    *d = s->def[base];
    d->start = NULL;
    memset(d->axis, 0, sizeof(d->axis));
    d->companion_of = d->near = (int)base;
    d->role = c->role;
    d->blocks = blocks;
    d->tied_def = d->file_def = -1;
    d->optional = true;
    d->ndim = c->ndim;
    for (int k = 0; k < c->ndim; k++)
        if (make_axis(m, &d->axis[k], &s->def[base], c, k, blocks, err) < 0)
            return -1;
    make_names(d, &s->def[base], c->suffix);
    d->next_replacer = c->replaces ? s->def[base].replaced_by : -1;
    if (c->replaces)
        s->def[base].replaced_by = (int)s->ndefs;
    s->ndefs++;
    return bind_definition(m, s->ndefs - 1, err);
}

/* ---- matching ---- */

/* bitsandbytes in 4 bits is presented as numbers (ckpt/fourbit.h), unless it lacks what
 * describes it. */
int quant_check(const struct model *m, const struct model_input *in, size_t n,
                struct err *err)
{
    const cJSON *method = quant_setting(m, "quant_method");
    size_t i = 0;

    if (!cJSON_IsTrue(quant_setting(m, "load_in_4bit")) ||
        (cJSON_IsString(method) && strcmp(method->valuestring, "bitsandbytes") != 0))
        return 0;
    while (i < n && !strstr(in[i].name, ".quant_state.") &&
           !str_ends(in[i].name, ".SCB") && !str_ends(in[i].name, ".absmax"))
        i++;
    return i == n ? 0
                  : err_set(err, ERR_INPUT,
                            "tensor %s: 4-bit bitsandbytes weights without a "
                            "quant_state, which says how they are stored",
                            in[i].name);
}

/* Is C for METHOD?  C's method may be followed by "/strategy". */
static bool is_method(const struct companion *c, const char *method)
{
    size_t n = strcspn(c->method, "/");

    return !strncmp(c->method, method, n) && !method[n];
}

const char *quant_method(const struct model *m)
{
    const cJSON *method = quant_setting(m, "quant_method");

    return cJSON_IsString(method) ? method->valuestring
           : quant_setting(m, "load_in_8bit") || quant_setting(m, "load_in_4bit")
               ? "bitsandbytes"
               : "unnamed";
}

int quant_check_config(const struct model *m, bool known, struct err *err)
{
    /* layouts described in the table above */
    static const struct {
        const char *method, *key, *layout[3];
    } layouts[] = {
        { "awq", "version", { "gemm", "GEMM" } },
        { "gptq", "checkpoint_format", { "gptq", "gptq_v2" } },
    };
    const char *name = quant_method(m);

    for (size_t i = 0; i < sizeof(companions) / sizeof(*companions); i++)
        known |= is_method(&companions[i], name);
    known |= !strcmp(name, GGUF);
    if (!known)
        return err_set(
            err, ERR_INPUT,
            "%s: quantization_config: how weights quantized by '%s' are "
            "stored is not known (fp8, compressed-tensors, gptq, awq, bitsandbytes)",
            m->state->config_name, name);
    for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
        const cJSON *key = quant_setting(m, layouts[i].key);
        bool found = strcmp(layouts[i].method, name) != 0 || !cJSON_IsString(key);

        for (int k = 0; !found && layouts[i].layout[k]; k++)
            found = !strcmp(layouts[i].layout[k], key->valuestring);
        if (!found)
            return err_set(err, ERR_INPUT,
                           "%s: quantization_config.%s: the layout '%s' of %s is not "
                           "known",
                           m->state->config_name, layouts[i].key, key->valuestring,
                           name);
    }
    return 0;
}

uint64_t quant_index_group(const struct model *m, size_t t)
{
    const struct tensor_def *d = &m->state->def[m->tensor[t].kind];

    if (d->companion_of < 0 || d->ndim != 1 ||
        cJSON_IsTrue(quant_setting(m, "desc_act")) ||
        !str_ends(m->tensor[t].name, ".g_idx"))
        return 0;
    return divisor(m, BY_GROUP, d->axis[0].size);
}

static bool is_there(const struct model *m, enum stated when);

static bool fits(const struct model *m, const struct companion *c, const char *method,
                 const char *suffix, int ndim)
{
    const cJSON *strategy = quant_weight_setting(m, "strategy", "strategy");
    size_t n = strcspn(c->method, "/");

    if (!is_method(c, method))
        return false;
    if ((c->role == PACKED_VALUES || c->role == PACKED_ZEROS) &&
        (c->when == STATED_WORDS || c->when == STATED_FOURS) && !is_there(m, c->when))
        return false;
    if (c->method[n] && (!cJSON_IsString(strategy) ||
                         strcmp(c->method + n + 1, strategy->valuestring) != 0))
        return false;
    return !strcmp(c->suffix, suffix) && c->ndim == ndim;
}

/* Has IN the shape of companion C of the weight T?  Only the rows of "shardutils" are
 * told apart by it. */
static bool has_shape(const struct model *m, const struct companion *c,
                      const struct model_tensor *t, const struct model_input *in)
{
    for (int k = 0; k < in->ndim && !strcmp(c->method, "shardutils"); k++) {
        uint64_t size = t->axis[c->axis[k].along == ALONG_IN]->size;
        uint64_t by = divisor(m, c->axis[k].by, size);

        if (in->shape[k] != (c->axis[k].along == ALONG_NONE ? 1 : (size + by - 1) / by))
            return false;
    }
    return true;
}

/* The companion that has a weight's blocks, without its suffix. */
static const struct companion in_blocks = {
    .method = GGUF,
    .role = PACKED_VALUES,
    .replaces = true,
    .ndim = 3,
    .axis = { { ALONG_OUT, BY_ONE },
              { ALONG_IN, BY_NUMBERS },
              { ALONG_NONE, BY_BYTES } },
};

int quant_extend(struct model *m, const struct model_input *in, struct err *err)
{
    const struct ggml_row *blocks;
    const cJSON *method = quant_setting(m, "quant_method");
    const char *dot = strrchr(in->name, '.');
    size_t own = strlen(".weight");
    struct str how = { 0 };
    char *weight;
    long t;

    if (!cJSON_IsString(method) || !dot)
        return 0;
    if ((size_t)(dot - in->name) > own && !strncmp(dot - own, ".weight", own))
        dot -= own; /* the suffix follows the weight's own */
    weight = str_dupf("%.*s.weight", (int)(dot - in->name), in->name);
    t = bind_match(m, weight);
    free(weight);
    if (t < 0 || m->tensor[t].ndim != 2)
        return 0;
    if (quant_setting(m, "config_groups") && quant_setting(m, "config_groups")->child &&
        quant_setting(m, "config_groups")->child->next)
        return err_set(err, ERR_INPUT,
                       "tensor %s: weights quantized in more than one of config_groups "
                       "are not known",
                       in->name);
    for (size_t i = 0; i < sizeof(companions) / sizeof(*companions); i++)
        if (fits(m, &companions[i], method->valuestring, dot + 1, in->ndim) &&
            has_shape(m, &companions[i], &m->tensor[t], in)) {
            size_t base = (size_t)m->tensor[t].kind;

            return add_definition(m, base, &companions[i], NULL, err) < 0 ? -1 : 1;
        }
    blocks = !strcmp(method->valuestring, GGUF) && in->ndim == in_blocks.ndim &&
                     str_starts(dot + 1, "weight.")
                 ? ggml_named(dot + 1 + strlen("weight."))
                 : NULL;
    if (blocks) {
        struct companion made = in_blocks;

        made.suffix = dot + 1;
        return add_definition(m, (size_t)m->tensor[t].kind, &made, blocks, err) < 0 ? -1
                                                                                    : 1;
    }
    quant_describe(&how, m);
    err_set(err, ERR_INPUT, "tensor %s: not known of weights quantized by %s", in->name,
            str_text(&how));
    str_clear(&how);
    return -1;
}

void quant_describe(struct str *out, const struct model *m)
{
    static const char *const keys[] = { "format", "checkpoint_format", "version" };
    static const char *const of_weights[][2] = { { "bits", "num_bits" },
                                                 { "type", "type" },
                                                 { "strategy", "strategy" },
                                                 { "group_size", "group_size" },
                                                 { "weight_block_size",
                                                   "block_structure" } };
    const size_t first = sizeof(keys) / sizeof(*keys);
    const size_t all = first + sizeof(of_weights) / sizeof(*of_weights);
    const char *before = " (";

    str_add(out, quant_method(m));
    for (size_t i = 0; i < all; i++) {
        const char *const *two = of_weights[i < first ? 0 : i - first];
        const cJSON *j = i < first ? quant_setting(m, keys[i])
                                   : quant_weight_setting(m, two[0], two[1]);
        char *text = j && !cJSON_IsNull(j) ? cJSON_PrintUnformatted(j) : NULL;

        if (text)
            str_addf(out, "%s%s %.80s", before, j->string, text);
        before = text ? ", " : before;
        free(text);
    }
    str_add(out, *before == ',' ? ")" : "");
}

/* ---- what files would hold ---- */

static bool is_setting(const struct model *m, const char *key, const char *value)
{
    const cJSON *j = quant_setting(m, key);

    return cJSON_IsString(j) && !strcmp(j->valuestring, value);
}

bool quant_fours(const struct model *m)
{
    return is_setting(m, "format", "nvfp4-pack-quantized") ||
           is_setting(m, "format", "mxfp4-pack-quantized");
}

/* Do files of a model with M's config have a companion that is there WHEN? */
static bool is_there(const struct model *m, enum stated when)
{
    const cJSON *groups = quant_setting(m, "config_groups");
    const cJSON *inputs =
        groups ? cJSON_GetObjectItemCaseSensitive(groups->child, "input_activations")
               : NULL;
    const cJSON *strategy = quant_weight_setting(m, "strategy", "strategy");
    bool blocks = cJSON_IsArray(quant_setting(m, "weight_block_size"));
    bool words = is_setting(m, "format", "pack-quantized"), fours = quant_fours(m);

    switch (when) {
    case STATED_NEVER:
        break;
    case STATED_ALWAYS:
        return true;
    case STATED_BLOCKS:
        return blocks;
    case STATED_NO_BLOCKS:
        return !blocks;
    case STATED_WHOLE:
        return cJSON_IsString(strategy) && !strcmp(strategy->valuestring, "tensor");
    case STATED_STATIC:
        return is_setting(m, "activation_scheme", "static") ||
               cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(inputs, "dynamic"));
    case STATED_WORDS:
        return words;
    case STATED_ZEROS:
        return words &&
               cJSON_IsFalse(quant_weight_setting(m, "symmetric", "symmetric"));
    case STATED_FOURS:
        return fours;
    case STATED_NO_FOURS:
        return !fours;
    }
    return false;
}

/* Sets the K'th size of companion C of a weight of ROWS x COLS; false: it has no whole
 * number of words. */
static bool set_size(struct quant_part *p, const struct model *m,
                     const struct companion *c, int k, const struct model_tensor *t)
{
    enum by by = c->axis[k].by;
    uint64_t size = t->axis[c->axis[k].along == ALONG_IN]->size;
    uint64_t each = divisor(m, by, size);

    if (c->axis[k].along == ALONG_NONE)
        p->shape[k] = by == BY_PAIR ? 2 : 1;
    else
        p->shape[k] = (size + each - 1) / each;
    return by != BY_PACK || size % each == 0;
}

int quant_parts(const struct model *m, size_t t,
                struct quant_part out[QUANT_MAX_COMPANIONS], bool *replaced)
{
    const char *method = quant_method(m);
    int n = 0;

    *replaced = false;
    for (size_t i = 0; i < sizeof(companions) / sizeof(*companions); i++) {
        const struct companion *c = &companions[i];
        struct quant_part *p = &out[n];

        if (!fits(m, c, method, c->suffix, c->ndim) || !is_there(m, c->when))
            continue;
        *p = (struct quant_part){
            .suffix = c->suffix, .dtype = c->dtype, .plain = c->plain, .ndim = c->ndim
        };
        for (int k = 0; k < c->ndim; k++)
            if (!set_size(p, m, c, k, &m->tensor[t]))
                return 0;
        *replaced |= c->replaces;
        n++;
    }
    return n;
}

enum dtype quant_values(const struct model *m)
{
    const cJSON *type = quant_weight_setting(m, "type", "type");

    if (!strcmp(quant_method(m), "bitsandbytes") ||
        (cJSON_IsString(type) && !strcmp(type->valuestring, "int")))
        return DTYPE_I8;
    return is_setting(m, "fmt", "e5m2") ? DTYPE_F8_E5M2 : DTYPE_F8_E4M3;
}

/* ---- cuts ---- */

int quant_check_cut(const struct model *m, const struct share *share, struct err *err)
{
    bool reordered = cJSON_IsTrue(quant_setting(m, "desc_act"));

    for (size_t i = 0; i < m->state->ndefs; i++) {
        const struct tensor_def *d = &m->state->def[i];

        if (d->companion_of < 0)
            continue;
        for (int k = 0; k < d->ndim; k++) {
            if (!axis_is_aligned(&d->axis[k], &m->scope, share))
                return err_set(err, ERR_NO,
                               "tensor %s: a shard would end inside a block of %llu",
                               d->name[0], (unsigned long long)d->axis[k].block);
            if (reordered && k == 0 && d->ndim == 2 &&
                axis_count(&d->axis[0], NULL, &m->scope, share) != d->axis[0].size)
                return err_set(err, ERR_NO,
                               "tensor %s: rows in the order of activations (desc_act) "
                               "cannot be sharded",
                               d->name[0]);
        }
    }
    return 0;
}
