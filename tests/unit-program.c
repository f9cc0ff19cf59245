/* unit-program - what programs cost: FLOPs, bytes and collectives counted by hand, and
 * the same in all that counts them */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/pp-partition/stages.h"
#include "lib/base/mem.h"
#include "lib/estimate/work.h"
#include "lib/program/print.h"
#include "tests/tap.h"

static const char llama[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": "
    "12,"
    " \"vocab_size\": 16, \"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-6}";
static const char mixtral[] =
    "{\"model_type\": \"mixtral\", \"hidden_size\": 8, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": "
    "12,"
    " \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"vocab_size\": 16,"
    " \"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-6, \"sliding_window\": 4}";
static const char deepseek[] =
    "{\"model_type\": \"deepseek_v2\", \"hidden_size\": 8, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"intermediate_size\": "
    "12,"
    " \"moe_intermediate_size\": 6, \"n_routed_experts\": 4, \"n_shared_experts\": 1,"
    " \"num_experts_per_tok\": 2, \"first_k_dense_replace\": 1, \"moe_layer_freq\": 1,"
    " \"topk_method\": \"greedy\", \"scoring_func\": \"softmax\","
    " \"routed_scaling_factor\": 1.0, \"norm_topk_prob\": false, \"n_group\": 1,"
    " \"topk_group\": 1, \"q_lora_rank\": null, \"kv_lora_rank\": 4,"
    " \"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 2, \"v_head_dim\": 4,"
    " \"vocab_size\": 16, \"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-6}";
static const char olmo2[] =
    "{\"model_type\": \"olmo2\", \"hidden_size\": 8, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"intermediate_size\": "
    "12,"
    " \"vocab_size\": 16, \"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-6}";

/* Without what is tested there is nothing to test. */
static _Noreturn void give_up(const struct err *err)
{
    printf("Bail out! %s\n", err->text);
    exit(99);
}

static struct model *open_model(const char *config)
{
    struct model *m = NULL;
    struct err err = { 0 };

    if (model_open(&m, "config.json", config, NULL, NULL, &err) < 0)
        give_up(&err);
    return m;
}

/* The program of rank RANK of TP that ends in the likelihood, FUSED or not. */
static struct program *build_fused(const struct model *m, int tp, int rank, bool fused)
{
    const struct program_options opt = { .tail = TAIL_NLL,
                                         .wanted = true,
                                         .fuse = fused ? program_fuse_all
                                                       : (struct program_fuse){ 0 } };
    const int size[MESH_NAXES] = { [MESH_TP] = tp };
    const int coord[MESH_NAXES] = { [MESH_TP] = rank };
    struct program *p = NULL;
    struct err err = { 0 };
    struct mesh mesh;

    if (mesh_set(&mesh, size, NULL, &err) < 0 ||
        program_build(&p, m, &mesh, coord, &opt, &err) < 0)
        give_up(&err);
    return p;
}

static struct program *build(const struct model *m, int tp, int rank)
{
    return build_fused(m, tp, rank, false);
}

/* ---- by hand ---- */

enum { TOKENS = 10 };

static void check_flops(const char *name, const char *config, double products,
                        double attention)
{
    struct model *m = open_model(config);
    struct program *p = build(m, 1, 0);
    struct cost_step token = cost_token(TOKENS), all = cost_prompt(TOKENS);
    struct cost c = cost_program(p, &token), whole;

    all.rows[ROWS_WANTED] = TOKENS;
    whole = cost_program(p, &all);
    tap_ok(c.products == products && c.attention == attention,
           "%s: FLOPs of a token: %g %g, by hand %g %g", name, c.products, c.attention,
           products, attention);
    tap_ok(fabs(whole.products - TOKENS * products) < 1e-6 &&
               fabs(whole.attention - TOKENS * attention) < 1e-6,
           "%s: a prompt costs its tokens", name);
    program_free(p);
    model_free(m);
}

static void test_flops(void)
{
    /* q and o are 8 x 8, k and v 4 x 8; gate, up and down 12 x 8; the head 16 x 8 */
    double gqa = 2 * 8 * 8 + 2 * 4 * 8, mlp = 3 * 12 * 8, head = 16 * 8;
    /* 2 heads of q k^T and of the weighted sum over 4 columns each; a row of 10 sees
     * 10 / 2 keys in the mean */
    double keys = TOKENS / 2.0, each = 2 * 2 * (4 + 4);

    check_flops("llama", llama, 2 * (2 * (gqa + mlp) + head), 2 * each * keys);
    /* the router is 4 x 8; 2 of 4 experts; of a window of 4: 4 - 4 * 4 / (2 * 10) */
    check_flops("mixtral", mixtral, 2 * (2 * (gqa + 4 * 8 + 2 * mlp) + head),
                2 * each * (4 - 16 / 20.0));
    /* q 2 * (4 + 2) x 8, the latent and the turned key 4 + 2 x 8; each head's 4 columns
     * of q to the latent's 4, and its result back; o 8 x 8.  One layer is dense; the
     * other has a router, 2 experts and the shared one of 6 x 8.  Scores are over 4 + 2
     * columns of the latent, and its 4 are summed. */
    check_flops("deepseek_v2", deepseek,
                2 * (2 * (12 * 8 + 6 * 8 + 2 * (2 * 4 * 4) + 8 * 8) + mlp + 4 * 8 +
                     3 * (3 * 6 * 8) + head),
                2 * (2 * 2 * (6 + 4)) * keys);
    check_flops("olmo2", olmo2, 2 * (2 * (4 * 8 * 8 + mlp) + head), 2 * each * keys);
}

static void test_bytes(void)
{
    struct model *m = open_model(llama);
    struct program *p = build(m, 1, 0);
    struct cost_step token = cost_token(TOKENS);
    struct cost c = cost_program(p, &token);
    /* elements: what each reads, then what it writes */
    double q = 8 + 8 + (8 + 4 + 8), k = 8 + 4 + (4 + 4 + 4) + (4 + 4);
    double v = 8 + 4 + (4 + 4), a = 8 + 4 + 4 + 8, o = 8 + 8 + (8 + 8 + 8);
    double norm = 8 + 8, gate = 8 + 12 + (12 + 12), up = 8 + 12;
    double mul = 12 + 12 + 12, down = 12 + 8 + (8 + 8 + 8);
    double layer = norm + q + k + v + a + o + norm + gate + up + mul + down;
    /* the angles' cosines and sines; the embedding's row; rows that are wanted are
     * taken before the last norm; statistics are 4 of f64 */
    double all = 4 + 8 + 2 * layer + (8 + 8) + norm + (8 + 16) + 16 + 1;
    double statistics = 4 + 4;

    tap_ok(c.sharded + c.whole == 4 * all + 8 * statistics,
           "llama: bytes moved for a token: %g, by hand %g", c.sharded + c.whole,
           4 * all + 8 * statistics);
    tap_ok(c.weights == 4 * (2 * (2 * 64 + 2 * 32 + 3 * 96) + 128),
           "llama: bytes of weights: %g", c.weights);
    program_free(p);
    model_free(m);
}

static void test_experts(void)
{
    struct model *m = open_model(mixtral);
    struct program *p = build(m, 1, 0);
    struct cost_step one = cost_prompt(1), two = cost_prompt(2),
                     many = cost_prompt(500);
    /* besides experts: q, o, k, v and the router of two layers, and the head */
    double others = 2 * (2 * 64 + 2 * 32 + 32) + 128, expert = 3 * 12 * 8;

    tap_ok(cost_program(p, &one).weights == 4 * (others + 2 * 2 * expert),
           "mixtral: a token reads two experts of a layer");
    tap_ok(cost_program(p, &two).weights == 4 * (others + 2 * 3 * expert),
           "two tokens, each of two of four, read three in the mean");
    tap_ok(cost_program(p, &many).weights == 4 * (others + 2 * 4 * expert),
           "many read all four");
    program_free(p);
    model_free(m);
}

/* ---- collectives ---- */

static void check_collectives(const char *name, const char *config, double reduces,
                              double bytes)
{
    struct model *m = open_model(config);

    for (int tp = 1; tp <= 2; tp++) {
        struct cost_collective all[COLLECTIVE_KINDS][MESH_NAXES] = { 0 };
        const struct cost_collective *sum = &all[COLLECTIVE_ALL_REDUCE][MESH_TP];
        const struct cost_collective *gather = &all[COLLECTIVE_ALL_GATHER][MESH_TP];
        struct program *p = build(m, tp, 0);
        struct cost_step token = cost_token(TOKENS);

        cost_collectives(all, p, &token);
        tap_ok(sum->count == (tp > 1 ? reduces : 0) &&
                   sum->bytes == (tp > 1 ? bytes : 0),
               "%s at tp %d: %g all-reduces of %g bytes", name, tp, sum->count,
               sum->bytes);
        /* the likelihood's statistics: 4 of f64 from each rank */
        tap_ok(gather->count == (tp > 1) && gather->bytes == (tp > 1 ? 2 * 4 * 8 : 0),
               "%s at tp %d: %g all-gathers of %g bytes", name, tp, gather->count,
               gather->bytes);
        program_free(p);
    }
    model_free(m);
}

static void test_collectives(void)
{
    double row = 4 * 8;

    /* the embedding; of each layer attention's and the MLP's result */
    check_collectives("llama", llama, 1 + 2 * 2, 5 * row);
    check_collectives("mixtral", mixtral, 1 + 2 * 2, 5 * row);
    check_collectives("deepseek_v2", deepseek, 1 + 2 * 2, 5 * row);
    /* and a sum of squares in f64 for the norms of q and of k: ten with the gather */
    check_collectives("olmo2", olmo2, 1 + 2 * 4, 5 * row + 2 * 2 * 8);
}

/* The step-time model has them, each once, going forward. */
static void test_step_time(void)
{
    struct model *m = open_model(olmo2);
    const int size[MESH_NAXES] = { [MESH_TP] = 2 }, origin[MESH_NAXES] = { 0 };
    struct memory_options o = {
        .train = true, .flash = true, .compute_bytes = 2, .seq = TOKENS
    };
    struct profile *profile;
    struct err err = { 0 };
    struct costmodel *a;
    const struct work *w;

    if (mesh_set(&o.mesh, size, NULL, &err) < 0 ||
        costmodel_open(&a, m, &o.mesh, origin, NULL, NULL, &err) < 0)
        give_up(&err);
    profile = profile_new(a, &o);
    w = &profile->all[profile->depths];
    tap_ok(w->reductions == 9 && w->gathers == 1,
           "olmo2: the time of a step has ten collectives: %g sums, %g gathers",
           w->reductions, w->gathers);
    profile_free(profile);
    costmodel_close(a);
    model_free(m);
}

/* ---- whoever counts ---- */

static void check_readers(const char *name, const char *config)
{
    struct model *m = open_model(config);
    const int origin[MESH_NAXES] = { 0 };
    struct memory_options o = {
        .train = true, .flash = true, .compute_bytes = 2, .seq = model_context(m)
    };
    struct program *p = build(m, 1, 0);
    struct cost_step token = cost_token((double)model_context(m));
    struct cost c = cost_program(p, &token);
    double flops = c.products + c.attention, stages;
    struct stage_costs costs;
    struct err err = { 0 };
    struct profile *profile;
    struct costmodel *a;
    const struct work *w;
    struct mesh one;

    mesh_one(&one);
    o.mesh = one;
    if (costmodel_open(&a, m, &one, origin, NULL, NULL, &err) < 0 ||
        stage_costs(&costs, m, "flops", &err) < 0)
        give_up(&err);
    profile = profile_new(a, &o);
    w = &profile->all[profile->depths];
    tap_ok(fabs(w->products + w->attention - flops) < 1e-6,
           "%s: mem-estimate counts %g FLOPs, the program has %g", name,
           w->products + w->attention, flops);
    stages = (double)costs.first + (double)costs.last;
    for (int i = 0; i < costs.nlayers; i++)
        stages += (double)costs.layer[i];
    tap_ok(fabs(stages - flops) <= 2, "%s: so does pp-partition: %g", name, stages);
    stage_costs_clear(&costs);
    profile_free(profile);
    costmodel_close(a);
    program_free(p);
    model_free(m);
}

/* ---- printing ---- */

static bool has(const struct str *s, const char *text)
{
    return strstr(str_text(s), text) != NULL;
}

static void test_print(void)
{
    struct model *m = open_model(llama);
    struct program *p = build(m, 2, 1);
    struct cost_step token = cost_token(TOKENS);
    struct str text = { 0 }, json = { 0 };
    int lines = 0, objects = 0;

    print_program(&text, p, &token);
    print_program_json(&json, p, &token, 1);
    tap_ok(has(&text, "%3 [tokens][4 of 8] f32 sharded = linear(%2 [tokens][8] f32 "
                      "replicated, model.layers.0.self_attn.q_proj.weight [4][8]); "
                      "rows 1, bytes 176, FLOPs 64\n"),
           "a product: result, operands, rows, bytes and FLOPs");
    tap_ok(has(&text, "%1 [tokens][8] f32 replicated = all-reduce(%0 [tokens][8] f32 "
                      "partial) over tp; rows 1, bytes 32, FLOPs 0\n"),
           "a collective: its group, and the bytes of its result");
    tap_ok(has(&text, "collectives: 5 all-reduce over tp of 2, bytes 160\n"),
           "collectives are summed");
    for (const char *c = str_text(&text); *c; c++)
        lines += *c == '\n';
    for (const char *c = str_text(&json); *c; c++)
        objects += *c == '\n';
    tap_is_int(lines, p->ninsts + 3, "a line each, two of collectives and the total");
    tap_is_int(objects, p->ninsts + 1, "an object each, and one of the sums");
    tap_ok(has(&json, "{\"type\":\"instruction\",\"rank\":1,\"index\":2,"
                      "\"op\":\"all-reduce\",\"result\":{\"value\":1,\"row_kind\":"
                      "\"tokens\",\"rows\":1,\"columns\":8,\"whole_columns\":8,"
                      "\"dtype\":\"f32\",\"placement\":\"replicated\"}"),
           "objects of JSON");
    str_clear(&text);
    str_clear(&json);
    program_free(p);
    model_free(m);
}

/* ---- fused operations ---- */

static uint64_t arena_of(const struct program *p)
{
    const uint64_t most[ROWS_MOST] = {
        [ROWS_TOKENS] = TOKENS, [ROWS_WANTED] = 1, [ROWS_ONE] = 1
    };
    uint64_t *offset = xcalloc((size_t)p->nvalues + 1, sizeof(*offset)), bytes = 0;

    if (!program_arena(p, most, offset, &bytes))
        bytes = 0;
    free(offset);
    return bytes;
}

static bool has_its_sources(const struct program *p)
{
    bool *made = xcalloc((size_t)p->nvalues + 1, sizeof(*made)), has = true;

    for (int i = 0; i < p->ninsts; i++) {
        for (int k = 0; k < p->inst[i].nsrc; k++)
            has = has && made[p->inst[i].src[k]];
        if (!p->inst[i].parts)
            made[p->inst[i].dst] = true;
    }
    free(made);
    return has;
}

/* WANT: how many GATED_LINEAR, LINEARS, ADD_NORM and ROPE_KEEP there are. */
static void check_fused(const char *name, const char *config, int tp, const int *want)
{
    static const enum op ops[] = { OP_GATED_LINEAR, OP_LINEARS, OP_ADD_NORM,
                                   OP_ROPE_KEEP };
    struct model *m = open_model(config);
    struct program *p = build(m, tp, 0), *f = build_fused(m, tp, 0, true);
    struct cost_step token = cost_token(TOKENS);
    struct cost a = cost_program(p, &token), b = cost_program(f, &token);
    bool same = f->nweights == p->nweights;
    int found[4] = { 0 }, all = 0;

    for (int i = 0; i < f->ninsts; i++)
        for (int k = 0; k < 4; k++)
            if (f->inst[i].op == ops[k]) {
                found[k]++;
                all++;
            }
    tap_ok(!memcmp(found, want, sizeof(found)),
           "%s on tp %d has %d gated products, %d of several, %d norms of sums and %d "
           "appends that rotate",
           name, tp, found[0], found[1], found[2], found[3]);
    tap_ok(f->ninsts == p->ninsts + all && has_its_sources(f),
           "%s on tp %d: the instructions are the same, after what they read", name,
           tp);
    tap_ok(a.products == b.products && a.attention == b.attention &&
               a.weights == b.weights && a.whole == b.whole && a.sharded == b.sharded,
           "%s on tp %d: fusing changes no FLOPs and no bytes", name, tp);
    for (int i = 0; i < p->nweights && same; i++)
        same = f->weight[i].tensor == p->weight[i].tensor;
    tap_ok(same, "%s on tp %d: nor the weights", name, tp);
    if (tp == 1)
        tap_ok(arena_of(f) < arena_of(p),
               "%s: and the arena is smaller: %llu bytes of %llu", name,
               (unsigned long long)arena_of(f), (unsigned long long)arena_of(p));
    program_free(p);
    program_free(f);
    model_free(m);
}

static void test_fused(void)
{
    /* two layers; the norm after the last sum is of fewer rows */
    check_fused("llama", llama, 1, (int[]){ 2, 2, 3, 2 });
    /* products in a row are reduced, and added, before the norm */
    check_fused("llama", llama, 2, (int[]){ 2, 2, 3, 2 });
    check_fused("mixtral", mixtral, 1, (int[]){ 2, 2, 3, 2 });
    /* q and k have norms of their own, and those of sums come after the norms */
    check_fused("olmo2", olmo2, 1, (int[]){ 2, 2, 0, 2 });
    check_fused("deepseek_v2", deepseek, 1, (int[]){ 3, 2, 3, 0 });
}

/* ---- types ---- */

/* Takes all, but not what REFUSED says: an operation's operands, and rows for the
 * weight of one tensor. */
struct refused {
    enum op op;
    unsigned bf16;
    const char *tensor; /* part of its name, or NULL: of every one */
};

static bool takes_but(void *arg, const struct program *p, const struct inst *inst,
                      unsigned bf16)
{
    const struct refused *r = arg;

    return inst->op != r->op || !(bf16 & r->bf16) ||
           (r->tensor &&
            !strstr(p->model->tensor[p->weight[inst->weight].tensor].name, r->tensor));
}

static struct program *build_typed(const struct model *m, enum mesh_axis axis,
                                   int ranks, const struct program_options *like,
                                   const struct refused *r)
{
    struct program_options opt = *like;
    const int coord[MESH_NAXES] = { 0 };
    int size[MESH_NAXES] = { 0 };
    struct program *p = NULL;
    struct err err = { 0 };
    struct mesh mesh;

    size[axis] = ranks;
    opt.types = program_types_all;
    if (r)
        opt.types = (struct program_types){ takes_but, (void *)(uintptr_t)r };
    if (mesh_set(&mesh, size, NULL, &err) < 0 ||
        program_build(&p, m, &mesh, coord, &opt, &err) < 0)
        give_up(&err);
    return p;
}

/* How many results of OP are bf16. */
static int held(const struct program *p, enum op op)
{
    int n = 0;

    for (int i = 0; i < p->ninsts; i++)
        n += p->inst[i].op == op && p->value[p->inst[i].dst].dtype == DTYPE_BF16;
    return n;
}

static int held_in_all(const struct program *p)
{
    int n = 0;

    for (int v = 0; v < p->nvalues; v++)
        n += p->value[v].dtype == DTYPE_BF16;
    return n;
}

/* Who reads V in bf16: products, and copies to a value in bf16; nobody in f32. */
static bool rounds_what_it_holds(const struct program *p)
{
    for (int i = 0; i < p->ninsts; i++)
        for (int k = 0; k < p->inst[i].nsrc; k++) {
            const struct inst *inst = &p->inst[i];
            bool copy = inst->op == OP_TAKE || inst->op == OP_EXPERT_GATHER ||
                        inst->op == OP_ALL_TO_ALL;
            bool narrow = p->value[inst->dst].dtype == DTYPE_BF16;

            if (copy && k == 0 &&
                narrow != (p->value[inst->src[0]].dtype == DTYPE_BF16))
                return false;
            if (p->value[inst->src[k]].dtype == DTYPE_BF16 && inst->op != OP_LINEAR &&
                !(copy && k == 0))
                return false;
        }
    for (int i = 0; i < p->noutputs; i++)
        if (p->value[p->output[i].value].dtype == DTYPE_BF16)
            return false;
    return true;
}

static void test_types(void)
{
    const struct program_options
        plain = { .tail = TAIL_NLL, .wanted = true },
        rounded = { .tail = TAIL_NLL, .wanted = true, .rounded = true },
        traced = { .tail = TAIL_NONE, .rounded = true, .trace = true },
        trained = { .tail = TAIL_NLL, .rounded = true, .reverse = true };
    const struct refused no_mul = { OP_MUL, BF16_RESULT, NULL },
                         no_up = { OP_LINEAR, 1 << 0, "up_proj" },
                         no_router = { OP_LINEAR, 1 << 0, "gate.weight" },
                         no_gather = { OP_EXPERT_GATHER, BF16_RESULT, NULL };
    struct model *m = open_model(llama);
    struct program *p = build_typed(m, MESH_TP, 1, &plain, NULL), *wide = p;

    tap_ok(!held_in_all(p), "without rounding all values are f32");
    p = build_typed(m, MESH_TP, 1, &trained, NULL);
    tap_ok(!held_in_all(p), "and with a derivative");
    program_free(p);
    p = build_typed(m, MESH_TP, 1, &rounded, NULL);
    /* of two layers: two norms, attention, and gate times up; and the last norm */
    tap_ok(held(p, OP_RMSNORM) == 5 && held(p, OP_ATTENTION) == 2 &&
               held(p, OP_MUL) == 2 && held_in_all(p) == 9,
           "llama: what products alone read is bf16: %d values", held_in_all(p));
    tap_ok(rounds_what_it_holds(p), "llama: and nothing else reads it");
    tap_ok(arena_of(p) < arena_of(wide), "llama: the arena is smaller: %llu of %llu",
           (unsigned long long)arena_of(p), (unsigned long long)arena_of(wide));
    program_free(wide);
    program_free(p);
    p = build_typed(m, MESH_TP, 2, &rounded, NULL);
    tap_ok(held_in_all(p) == 9 && rounds_what_it_holds(p),
           "llama on tp 2: the same values");
    program_free(p);
    p = build_typed(m, MESH_SP, 2, &rounded, NULL);
    tap_ok(held_in_all(p) == 7 && !held(p, OP_ATTENTION),
           "llama on sp 2: attention is merged in f32");
    program_free(p);
    p = build_typed(m, MESH_TP, 1, &traced, NULL);
    tap_ok(rounds_what_it_holds(p) && !held(p, OP_MUL), "outputs stay f32");
    program_free(p);
    p = build_typed(m, MESH_TP, 1, &rounded, &no_mul);
    tap_ok(held_in_all(p) == 7 && !held(p, OP_MUL),
           "a result that its kernel makes in f32 alone is f32");
    program_free(p);
    p = build_typed(m, MESH_TP, 1, &rounded, &no_up);
    tap_ok(held_in_all(p) == 7 && held(p, OP_RMSNORM) == 3,
           "and what one of several products does not round");
    program_free(p);
    model_free(m);

    m = open_model(mixtral);
    p = build_typed(m, MESH_EP, 2, &rounded, NULL);
    tap_ok(held(p, OP_EXPERT_GATHER) == 2 && held(p, OP_ALL_TO_ALL) == 2 &&
               rounds_what_it_holds(p),
           "mixtral on ep 2: rows are sent to experts in bf16, and come back in f32");
    program_free(p);
    p = build_typed(m, MESH_EP, 2, &rounded, &no_router);
    tap_ok(!held(p, OP_EXPERT_GATHER) && !held(p, OP_ALL_TO_ALL) &&
               held(p, OP_RMSNORM) == 3 && rounds_what_it_holds(p),
           "in f32 where the router needs them so: a copy has the type of its source");
    program_free(p);
    p = build_typed(m, MESH_EP, 2, &rounded, &no_gather);
    tap_ok(!held(p, OP_EXPERT_GATHER) && !held(p, OP_ALL_TO_ALL) &&
               rounds_what_it_holds(p),
           "and where they cannot be gathered");
    program_free(p);
    model_free(m);
}

int main(void)
{
    test_flops();
    test_bytes();
    test_experts();
    test_collectives();
    test_step_time();
    check_readers("llama", llama);
    check_readers("mixtral", mixtral);
    check_readers("deepseek_v2", deepseek);
    check_readers("olmo2", olmo2);
    test_print();
    test_fused();
    test_types();
    return tap_done();
}
