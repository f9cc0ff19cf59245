/* op - the functions in the columns of the table of operations */
#include "lib/program/op.h"

#include "lib/program/build.h"

/* ---- what a derivative reads ---- */

static unsigned saved_nothing(const struct inst *inst)
{
    (void)inst;
    return 0;
}

static unsigned saved_source(const struct inst *inst)
{
    (void)inst;
    return 1 << 0;
}

/* The gradient of the weight reads the source; the source's reads only the weight. */
static unsigned saved_product(const struct inst *inst)
{
    return saved_source(inst);
}

static unsigned saved_both(const struct inst *inst)
{
    (void)inst;
    return 1 << 0 | 1 << 1;
}

static unsigned saved_all(const struct inst *inst)
{
    return ((1U << inst->nsrc) - 1) | SAVES_RESULT;
}

static unsigned saved_by_act(const struct inst *inst)
{
    return activation_saves_result(inst->act) ? SAVES_RESULT : saved_source(inst);
}

/* ---- operations ---- */

static struct op_flops no_flops(const struct program *p, const struct inst *inst)
{
    (void)p;
    (void)inst;
    return (struct op_flops){ 0 };
}

static struct op_flops of_matrix(const struct program *p, const struct inst *inst)
{
    const struct weight *w = &p->weight[inst->weight];

    return (struct op_flops){ .row = 2 * (double)w->rows * (double)w->cols };
}

static struct op_flops of_heads(const struct program *p, const struct inst *inst)
{
    (void)p;
    return (struct op_flops){ .row = 2 * (double)inst->head.count *
                                     (double)inst->head.a * (double)inst->head.b };
}

static struct op_flops of_taps(const struct program *p, const struct inst *inst)
{
    (void)p;
    return (struct op_flops){ .row = 2 * (double)inst->taps.count *
                                     (double)inst->taps.heads *
                                     (double)inst->taps.dim };
}

/* q k^T and the weighted sum of v, for each head. */
static struct op_flops of_attention(const struct program *p, const struct inst *inst)
{
    (void)p;
    return (struct op_flops){ .key = 2 * (double)inst->attention.heads *
                                     ((double)inst->attention.head_dim +
                                      (double)inst->attention.value_dim) };
}

static struct op_scores no_scores(const struct inst *inst)
{
    (void)inst;
    return (struct op_scores){ 0 };
}

static struct op_scores of_query(const struct inst *inst)
{
    uint64_t each = inst->attention.head_dim + inst->attention.value_dim;

    return (struct op_scores){
        .heads = inst->attention.heads,
        .spread = (inst->attention.heads - inst->attention.kv_heads) * each,
        .window = inst->attention.window,
        .causal = inst->attention.causal,
        .capped = inst->attention.softcap > 0,
    };
}

/* ---- PyTorch in eager mode ---- */

static struct op_torch torch_kernel(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ 0 };
}

static struct op_torch torch_free(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ .free = true };
}

/* One kernel in PyTorch, also where it is three instructions here (sharded norms). */
static struct op_torch torch_statistic(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ .part = true };
}

/* The backward pass holds the gradients of its product, mean, power and cast.  Gemma
 * (weight + 1) computes all of it in f32. */
static struct op_torch torch_rmsnorm(const struct inst *inst)
{
    return (
        struct op_torch){ .upcast = true, .wide = inst->norm.plus_one, .gradients = 4 };
}

/* OLMo's, which has no weight, computes in f32. */
static struct op_torch torch_layernorm(const struct inst *inst)
{
    return (struct op_torch){ .upcast = inst->weight < 0 };
}

static struct op_torch torch_activation(const struct inst *inst)
{
    switch (inst->act) {
    case ACT_GELU_NEW: /* eight elementwise kernels */
        return (struct op_torch){ .copies = 3 };
    case ACT_QUICK_GELU:
        return (struct op_torch){ .copies = 1 };
    default:
        return (struct op_torch){ 0 };
    }
}

/* expm1 and its difference from x, two products, and which side of 0 x is on. */
static struct op_torch torch_xielu(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ .copies = 3, .flags = 1 };
}

/* The rows that its taps see are copied side by side, once for each tap. */
static struct op_torch torch_dynamic(const struct inst *inst)
{
    return (struct op_torch){ .copies = (int)inst->taps.count - 1 };
}

/* Selective recomputation saves every second product (as torchtitan does) and
 * attention's result. */
static struct op_torch torch_product(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ .spared = 2 };
}

static struct op_torch torch_attention(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ .spared = 1 };
}

static struct op_torch torch_relate(const struct inst *inst)
{
    (void)inst;
    return (struct op_torch){ .spared = 1, .related = true };
}

/* Scores again, then four products of their size (gradients of v, weights, q, k). */
static struct op_flops of_attention_back(const struct program *p,
                                         const struct inst *inst)
{
    (void)p;
    return (struct op_flops){ .key = 2 * (double)inst->attention.heads *
                                     (3 * (double)inst->attention.head_dim +
                                      2 * (double)inst->attention.value_dim) };
}

/* ---- the table ---- */

#define CALL(least, most, apply) least, most, apply
#define NO_CALL                  0, 0, NULL
#define NO_REVERSE               OP_NO_REVERSE
#define DEVICE                   true
#define COMM                     false
#define NO_ROLE                  ROLE_NONE
#define CACHE                    ROLE_CACHE
#define ATTENDS                  ROLE_ATTENDS
#define OF_TEXT                  ROLE_TEXT
#define DISPATCH                 ROLE_DISPATCH
#define LOSS                     ROLE_LOSS
#define NO_AXIS                  INNER_NONE
#define ROW(id, word, on, call, places, result, role, inner, saved, grads, passes, \
            flops, scores, traffic, comm, torch)                                   \
    [OP_##id] = { #word,                                                           \
                  on,                                                              \
                  call,                                                            \
                  PLACES_##places,                                                 \
                  RESULT_##result,                                                 \
                  role,                                                            \
                  inner,                                                           \
                  saved,                                                           \
                  grads,                                                           \
                  passes,                                                          \
                  flops,                                                           \
                  scores,                                                          \
                  TRAFFIC_##traffic,                                               \
                  COLLECTIVE_##comm,                                               \
                  torch },

const struct op_info op_table[OP_COUNT] = { OPS(ROW) };
