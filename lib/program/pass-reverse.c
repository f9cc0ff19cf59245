/* pass-reverse - appends the derivative of a program to it */
#include "lib/program/pass-reverse.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/model/option.h"
#include "lib/program/pass.h"

/* The two sums of a value's gradient so far; -1: no term yet. */
struct sums {
    int partial, whole; /* a sharded value uses only whole */
};

struct reverse {
    struct builder *b;
    struct program *p;
    struct sums *sums; /* [nvalues of the forward pass] */
    int *maker;        /* [nvalues of it]: instruction that makes the value, or -1 */
    struct inst inst;  /* copy of the instruction being reversed: p->inst moves */
};

typedef int rule(struct reverse *r, int d);

/* ---- instructions ---- */

static enum place place_of(const struct reverse *r, int v)
{
    return r->p->value[v].place;
}

/* The row space of source K of the instruction being reversed. */
static int rows_of(const struct reverse *r, int k)
{
    return r->p->value[r->inst.src[k]].rows;
}

/* Emits OP with the fields of the instruction being reversed.  The result has LIKE's
 * rows and placement, and COLS columns. */
static struct inst *emit(struct reverse *r, enum op op, int like, uint64_t cols,
                         uint64_t whole_cols)
{
    struct value model = r->p->value[like], *v;
    struct inst *inst = build_emit_plain(r->b, op, cols, DTYPE_F32, model.rows);
    int dst = inst->dst;

    *inst = r->inst;
    inst->op = op;
    inst->dst = dst;
    inst->nsrc = 0;
    inst->weight = inst->weight2 = -1;
    memset(inst->src, 0, sizeof(inst->src));
    v = &r->p->value[dst];
    v->section = model.section;
    v->layer = model.layer;
    v->mixture = model.mixture;
    v->place = model.place;
    v->whole_cols = whole_cols;
    return inst;
}

/* The same with the columns of LIKE and with N sources. */
static struct inst *emit_like(struct reverse *r, enum op op, int like, int n,
                              const int *src)
{
    struct inst *inst =
        emit(r, op, like, r->p->value[like].cols, r->p->value[like].whole_cols);

    for (int k = 0; k < n; k++)
        inst->src[k] = src[k];
    inst->nsrc = n;
    return inst;
}

/* Emits OP, which adds to the gradient of weight W, with N sources.  If that gradient
 * is summed over the ranks later, only rank 0 adds a replicated term: elsewhere
 * pass_recompute takes it out.  So it is over the ranks that share a sequence, over
 * which every gradient is summed, with rows that all of them have of each text.  A
 * frozen weight's gradient stays zero. */
static void emit_gradient(struct reverse *r, enum op op, int w, int n, const int *src)
{
    struct value like = r->p->value[r->inst.dst];
    struct weight *its = &r->p->weight[w];
    struct inst *inst;
    struct value *v;
    int dst;

    if (!program_trains(r->p, w))
        return;
    inst = build_emit_plain(r->b, op, its->rows * its->cols, DTYPE_F32, ROWS_ONE);
    its->by_some |= like.rows == ROWS_ONE && r->p->mesh.size[MESH_SP] > 1;
    dst = inst->dst;
    *inst = r->inst;
    inst->op = op;
    inst->dst = dst;
    inst->weight = w;
    inst->weight2 = -1;
    memcpy(inst->src, src, (size_t)n * sizeof(*src));
    inst->nsrc = n;
    v = &r->p->value[dst];
    v->section = like.section;
    v->layer = like.layer;
    v->gradient = w + 1;
    v->elsewhere =
        (its->summed && like.place == PLACE_WHOLE && r->p->coord[MESH_TP] > 0) ||
        (like.rows == ROWS_ONE && r->p->coord[MESH_SP] > 0);
}

/* ---- sums ---- */

static int add_terms(struct reverse *r, int sum, int term)
{
    return sum < 0 ? term
                   : emit_like(r, OP_ADD, term, 2, (const int[]){ sum, term })->dst;
}

/* Emits the all-reduce of PARTIAL, a gradient of V. */
static int reduce(struct reverse *r, int v, int partial)
{
    struct inst *sum = emit_like(r, OP_ALL_REDUCE, v, 1, &partial);
    int whole = sum->dst;

    sum->over = MESH_TP;
    r->p->value[partial].place = PLACE_PARTIAL;
    r->p->value[whole].place = PLACE_WHOLE;
    return whole;
}

/* Adds the term D to V's gradient.  With .deterministic each partial term is reduced by
 * itself, so that the order of additions is that of one rank. */
static void add_term(struct reverse *r, int v, int d, bool partial)
{
    struct sums *s = &r->sums[v];

    if (partial && r->b->opt->deterministic) {
        d = reduce(r, v, d);
        partial = false;
    }
    if (partial) {
        r->p->value[d].place = PLACE_PARTIAL;
        s->partial = add_terms(r, s->partial, d);
    } else {
        s->whole = add_terms(r, s->whole, d);
    }
}

/* The same for source K of the instruction. */
static void add_to_source(struct reverse *r, int k, int d)
{
    int v = r->inst.src[k];

    add_term(r, v, d,
             place_of(r, v) != PLACE_CUT && place_of(r, r->inst.dst) == PLACE_CUT);
}

/* The complete gradient of V, replicated or sharded as V is; -1: no term. */
static int final(struct reverse *r, int v)
{
    struct sums *s = &r->sums[v];

    if (s->partial >= 0) {
        int whole = reduce(r, v, s->partial);

        s->partial = -1;
        s->whole = s->whole < 0 ? whole : add_terms(r, whole, s->whole);
    }
    return s->whole;
}

/* Fails: a sum over the ranks without a tree has other bits on other meshes. */
static int refuse_sum(const struct reverse *r, const char *what)
{
    return err_set(r->b->err, ERR_NO,
                   "tp %d: deterministic training: %s is a sum over ranks that no tree "
                   "fixes",
                   r->p->mesh.size[MESH_TP], what);
}

static bool is_spread(const struct reverse *r)
{
    return r->b->opt->deterministic && r->p->mesh.size[MESH_TP] > 1;
}

/* ---- the reverse of each operation ---- */

/* The operation that reads the result reverses both. */
static int by_reader(struct reverse *r, int d)
{
    (void)r;
    (void)d;
    return 0;
}

/* Each source gets the gradient of the result; a bias gets its sum over the rows. */
static int pass_on(struct reverse *r, int d)
{
    for (int k = 0; k < op_table[r->inst.op].grads; k++)
        add_to_source(r, k, d);
    if (r->inst.weight >= 0)
        emit_gradient(r, OP_COLUMN_SUM, r->inst.weight, 1, &d);
    return 0;
}

static int reverse_embedding(struct reverse *r, int d)
{
    const struct model_tensor *t =
        &r->b->m->tensor[r->p->weight[r->inst.weight].tensor];
    uint64_t *row = &r->inst.embedding.padding;
    bool is;

    if (option_padding(r->b->m, t, &is, row, r->b->err) < 0)
        return -1;
    if (!is)
        *row = UINT64_MAX;
    emit_gradient(r, OP_EMBEDDING_BACK, r->inst.weight, 1, &d);
    return 0;
}

/* Chooses the tree for INST, which sums over the columns of the reversed result.  No
 * tree describes a sharded fused product: its shards interleave the segments. */
static int choose_tree(struct reverse *r, struct inst *inst)
{
    const struct axis *over = &r->b->type[r->inst.dst].col;

    inst->tree = 0;
    if (over->n < 2)
        return build_tree(r->b, over, &inst->tree);
    return is_spread(r) && place_of(r, r->inst.dst) == PLACE_CUT
               ? refuse_sum(r, "the gradient before a fused product")
               : 0;
}

/* A product with a weight: the source's gradient is the product BACK with the
 * transpose. TURNED: the weight's rows are the columns of the result. */
static int product(struct reverse *r, int d, enum op back, enum op outer, bool turned)
{
    int x = r->inst.src[0], w = r->inst.weight;
    struct inst *inst = emit_like(r, back, x, 1, &d);

    if (place_of(r, x) == PLACE_PARTIAL) /* between the two products of an adapter */
        r->p->value[inst->dst].place = PLACE_WHOLE;
    inst->weight = w;
    inst->back = true;
    if (back == OP_HEAD_LINEAR || back == OP_HEAD_MATMUL) {
        inst->head.a = r->inst.head.b;
        inst->head.b = r->inst.head.a;
    } else if (choose_tree(r, inst) < 0) {
        return -1;
    }
    add_to_source(r, 0, inst->dst);
    if (turned && outer == OP_HEAD_OUTER) {
        uint64_t a = r->inst.head.a;

        r->inst.head.a = r->inst.head.b;
        r->inst.head.b = a;
    }
    emit_gradient(r, outer, w, 2,
                  turned ? (const int[]){ d, x } : (const int[]){ x, d });
    return 0;
}

static int reverse_linear(struct reverse *r, int d)
{
    return product(r, d, OP_MATMUL, OP_OUTER, true);
}

static int reverse_matmul(struct reverse *r, int d)
{
    return product(r, d, OP_LINEAR, OP_OUTER, false);
}

static int reverse_head_linear(struct reverse *r, int d)
{
    return product(r, d, OP_HEAD_MATMUL, OP_HEAD_OUTER, true);
}

static int reverse_head_matmul(struct reverse *r, int d)
{
    return product(r, d, OP_HEAD_LINEAR, OP_HEAD_OUTER, false);
}

static int reverse_mul(struct reverse *r, int d)
{
    for (int k = 0; k < 2; k++)
        add_to_source(
            r, k,
            emit_like(r, OP_MUL, d, 2, (const int[]){ d, r->inst.src[1 - k] })->dst);
    return 0;
}

/* The weight's gradient is the sum of d a over the rows; the norms of DoRA, which are
 * frozen, have none. */
static int reverse_mul_vector(struct reverse *r, int d)
{
    const int src[] = { d, r->inst.src[0] };
    struct inst *inst = emit_like(r, OP_MUL_VECTOR, d, 1, &d);
    int w = r->inst.weight, each;

    inst->weight = w;
    add_to_source(r, 0, inst->dst);
    if (program_trains(r->p, w)) {
        each = emit_like(r, OP_MUL, d, 2, src)->dst;
        emit_gradient(r, OP_COLUMN_SUM, w, 1, &each);
    }
    return 0;
}

static int reverse_scale(struct reverse *r, int d)
{
    add_to_source(r, 0, emit_like(r, OP_SCALE, d, 1, &d)->dst);
    return 0;
}

static int reverse_temper(struct reverse *r, int d)
{
    add_to_source(r, 0, emit_like(r, OP_TEMPER, d, 1, &d)->dst);
    return 0;
}

/* The seed is the same, so the same elements are dropped. */
static int reverse_dropout(struct reverse *r, int d)
{
    add_to_source(r, 0, emit_like(r, OP_DROPOUT, d, 1, &d)->dst);
    return 0;
}

/* The one-column factor's gradient sums over the columns of all ranks. */
static int reverse_mul_rows(struct reverse *r, int d)
{
    int x = r->inst.src[0], s = r->inst.src[1];
    struct inst *dot;

    if (is_spread(r) && place_of(r, x) != PLACE_WHOLE)
        return refuse_sum(r, "the weight of a row");
    add_to_source(r, 0, emit_like(r, OP_MUL_ROWS, d, 2, (const int[]){ d, s })->dst);
    dot = emit_like(r, OP_ROW_DOT, s, 2, (const int[]){ d, x });
    add_term(r, s, dot->dst, place_of(r, x) != PLACE_WHOLE);
    return 0;
}

/* OP reads the gradient and the source. */
static int elementwise(struct reverse *r, int d, enum op op)
{
    add_to_source(r, 0,
                  emit_like(r, op, d, 2, (const int[]){ d, r->inst.src[0] })->dst);
    return 0;
}

static int reverse_activation(struct reverse *r, int d)
{
    return elementwise(r, d, OP_ACTIVATION_BACK);
}

static int reverse_xielu(struct reverse *r, int d)
{
    int src[] = { d, r->inst.src[0] };
    struct inst *inst = emit_like(r, OP_XIELU_BACK, d, 2, src);

    inst->weight = r->inst.weight;
    inst->weight2 = r->inst.weight2;
    add_to_source(r, 0, inst->dst);
    r->inst.scalar = 1;
    emit_gradient(r, OP_XIELU_WEIGHT, r->inst.weight, 2, src);
    r->inst.scalar = 0;
    emit_gradient(r, OP_XIELU_WEIGHT, r->inst.weight2, 2, src);
    return 0;
}

static int reverse_softmax(struct reverse *r, int d)
{
    return elementwise(r, d, OP_SOFTMAX_BACK);
}

static int reverse_softcap(struct reverse *r, int d)
{
    return elementwise(r, d, OP_SOFTCAP_BACK);
}

static int reverse_clip(struct reverse *r, int d)
{
    return elementwise(r, d, OP_CLIP_BACK);
}

/* The gradients of a norm's weight and bias; SRC are the sources of the former. */
static void norm_weights(struct reverse *r, int d, int n, const int *src)
{
    if (r->inst.weight >= 0)
        emit_gradient(r, OP_NORM_WEIGHT, r->inst.weight, n, src);
    if (r->inst.weight2 >= 0)
        emit_gradient(r, OP_COLUMN_SUM, r->inst.weight2, 1, &d);
}

static int norm(struct reverse *r, int d, bool centred)
{
    int src[] = { d, r->inst.src[0] };
    struct inst *inst;

    r->inst.norm.centred = centred;
    inst = emit_like(r, OP_NORM_BACK, d, 2, src);
    inst->weight = r->inst.weight;
    add_to_source(r, 0, inst->dst);
    norm_weights(r, d, 2, src);
    return 0;
}

static int reverse_rmsnorm(struct reverse *r, int d)
{
    return norm(r, d, false);
}

static int reverse_layernorm(struct reverse *r, int d)
{
    return norm(r, d, true);
}

/* A norm over sharded columns needs two more sums of each row over the ranks. */
static int norm_over_ranks(struct reverse *r, int d, bool centred)
{
    enum { TERMS = 2 };
    int x = r->inst.src[0], squares = r->inst.src[1], sum = r->inst.src[2];
    int terms[] = { d, x, squares, sum }, n = centred ? 4 : 3, all;
    struct inst *inst;

    if (is_spread(r))
        return refuse_sum(r, "a norm over a sharded axis");
    r->inst.norm.centred = centred;
    inst = emit(r, OP_NORM_TERMS, d, TERMS, TERMS);
    memcpy(inst->src, terms, sizeof(terms));
    inst->nsrc = n;
    inst->weight = r->inst.weight;
    all = inst->dst;
    r->p->value[all].dtype = DTYPE_F64;
    r->p->value[all].place = PLACE_PARTIAL;
    inst = emit_like(r, OP_ALL_REDUCE, all, 1, &all);
    inst->over = MESH_TP;
    all = inst->dst;
    r->p->value[all].dtype = DTYPE_F64;
    r->p->value[all].place = PLACE_WHOLE;
    inst = emit_like(r, OP_NORM_APPLY_BACK, d, n + 1,
                     (const int[]){ d, x, all, squares, sum });
    inst->weight = r->inst.weight;
    add_to_source(r, 0, inst->dst);
    norm_weights(r, d, n, terms);
    return 0;
}

static int reverse_rms_apply(struct reverse *r, int d)
{
    if (r->inst.norm.groups)
        return err_set(r->b->err, ERR_NO,
                       "family %s: a norm over groups of columns of which a rank has a "
                       "part cannot be trained",
                       r->p->model->family);
    return norm_over_ranks(r, d, false);
}

static int reverse_layer_apply(struct reverse *r, int d)
{
    return norm_over_ranks(r, d, true);
}

static int reverse_rope(struct reverse *r, int d)
{
    add_to_source(
        r, 0,
        emit_like(r, OP_ROPE_BACK, d, 2, (const int[]){ d, r->inst.src[1] })->dst);
    return 0;
}

/* Emits the gradients WHICH of an attention, with the sources [FROM, END) and MORE
 * columns beside theirs (WHOLE_MORE of all ranks) in the rows of LIKE, and adds the
 * sources' parts. */
static struct inst *attention_gradients(struct reverse *r, int d, int like,
                                        enum attention_gradients which, uint64_t more,
                                        uint64_t whole_more)
{
    const int *src = r->inst.src;
    const int from = which == GRADIENTS_KEYS, end = which == GRADIENTS_QUERIES ? 1 : 3;
    uint64_t first = 0, cols = more, whole_cols = whole_more;
    struct inst *inst;
    int all;

    for (int k = from; k < end; k++) {
        cols += r->p->value[src[k]].cols;
        whole_cols += r->p->value[src[k]].whole_cols;
    }
    inst = emit(r, OP_ATTENTION_BACK, like, cols, whole_cols);
    inst->attention.gradients = which;
    inst->weight = r->inst.weight;
    inst->src[0] = d;
    memcpy(inst->src + 1, src, 3 * sizeof(*src));
    inst->nsrc = 4;
    all = inst->dst;
    for (int k = from; k < end; k++) {
        struct inst *part = emit_like(r, OP_SEGMENT, src[k], 1, &all);

        part->segment.first = first;
        first += r->p->value[src[k]].cols;
        add_to_source(r, k, part->dst);
    }
    if (!more)
        return NULL;
    inst = emit(r, OP_SEGMENT, like, more, whole_more);
    inst->src[inst->nsrc++] = all;
    inst->segment.first = first;
    return inst;
}

/* Each row also has a gradient for what is added to its scores: the sink of each head,
 * or the table of biases. */
static int reverse_attention(struct reverse *r, int d)
{
    const bool sinks = r->inst.attention.sinks;
    const bool apart = rows_of(r, 0) != rows_of(r, 1);
    const int w = r->inst.weight;
    uint64_t more = 0, whole = 0;
    struct inst *added;

    if (w >= 0 && sinks) {
        more = r->inst.attention.heads;
        whole = r->inst.attention.all_heads;
    } else if (w >= 0 && program_trains(r->p, w)) {
        const uint64_t buckets = r->p->weight[w].rows;

        more = buckets * r->p->weight[w].cols;
        whole = buckets * r->inst.attention.all_heads;
    }
    added = attention_gradients(r, d, d, apart ? GRADIENTS_QUERIES : GRADIENTS_ALL,
                                more, whole);
    if (added)
        emit_gradient(r, OP_COLUMN_SUM, w, 1, (const int[]){ added->dst });
    if (apart)
        attention_gradients(r, d, r->inst.src[1], GRADIENTS_KEYS, 0, 0);
    return 0;
}

/* Adds to the gradient of source K the columns [FIRST, FIRST + COUNT) of HEADS heads
 * from HEAD on, taken out of D, which has heads of ALL columns. */
static void add_columns(struct reverse *r, int k, int d, uint64_t head, uint64_t heads,
                        uint64_t all, uint64_t first, uint64_t count)
{
    struct inst *inst = emit_like(r, OP_HEADS_PACK, r->inst.src[k], 1, &d);

    inst->heads = (struct head_part){ .groups = r->inst.head.count,
                                      .within = all,
                                      .dim = 1,
                                      .group_start = head,
                                      .group_count = heads,
                                      .within_start = first,
                                      .within_count = count };
    add_to_source(r, k, inst->dst);
}

static int reverse_concat(struct reverse *r, int d)
{
    uint64_t a = r->inst.head.a, b = r->inst.head.b, heads = r->inst.head.count;
    uint64_t together = r->inst.head.shared ? 1 : heads;

    add_columns(r, 0, d, 0, heads, a + b, 0, a);
    for (uint64_t h = 0; h < heads; h += together)
        add_columns(r, 1, d, h, together, a + b, a, b);
    return 0;
}

static int reverse_route(struct reverse *r, int d)
{
    int src[] = { d, r->inst.src[0], r->inst.src[1] };
    int bias = r->p->inst[r->maker[src[2]]].weight;

    add_to_source(r, 0, emit_like(r, OP_ROUTE_BACK, d, 3, src)->dst);
    if (r->b->opt->loads && bias >= 0)
        emit_gradient(r, OP_ROUTER_LOAD, bias, 1, &src[2]);
    return 0;
}

static int reverse_router_sums(struct reverse *r, int d)
{
    int logits = r->inst.src[0], src[] = { d, logits };

    add_to_source(r, 0, emit_like(r, OP_ROUTER_SUMS_BACK, logits, 2, src)->dst);
    return 0;
}

/* Like that of the likelihood, its gradient is not asked for: it is a term of the
 * loss. */
static int reverse_balance(struct reverse *r, int d)
{
    int sums = r->inst.src[0];

    (void)d;
    add_to_source(r, 0, emit_like(r, OP_BALANCE_BACK, sums, 1, &sums)->dst);
    return 0;
}

static int reverse_expert_gather(struct reverse *r, int d)
{
    int src[] = { d, r->inst.src[1] };

    add_to_source(r, 0, emit_like(r, OP_EXPERT_SCATTER, r->inst.src[0], 2, src)->dst);
    return 0;
}

/* Rows that were sent to their experts come back, and the other way round. */
static int reverse_all_to_all(struct reverse *r, int d)
{
    const int src[] = { d, r->inst.src[1], r->inst.src[2] };
    struct inst *inst = emit_like(r, OP_ALL_TO_ALL, r->inst.src[0], 3, src);

    inst->all_to_all =
        r->inst.all_to_all == ALL_TO_ALL_ROWS ? ALL_TO_ALL_BACK : ALL_TO_ALL_ROWS;
    if (place_of(r, inst->dst) == PLACE_PARTIAL)
        r->p->value[inst->dst].place = PLACE_WHOLE;
    add_to_source(r, 0, inst->dst);
    return 0;
}

static int reverse_expert_combine(struct reverse *r, int d)
{
    const int *s = r->inst.src;
    int spread[] = { d, s[1], s[2], s[3] }, dot[] = { d, s[0], s[2], s[3] };

    if (is_spread(r) && place_of(r, s[0]) != PLACE_WHOLE)
        return refuse_sum(r, "the weight of an expert");
    add_to_source(r, 0, emit_like(r, OP_EXPERT_SPREAD, s[0], 4, spread)->dst);
    add_term(r, s[1], emit_like(r, OP_EXPERT_DOT, s[1], 4, dot)->dst,
             place_of(r, s[0]) != PLACE_WHOLE);
    return 0;
}

static int reverse_first(struct reverse *r, int d)
{
    add_to_source(r, 0, emit_like(r, OP_FIRST_BACK, r->inst.src[0], 1, &d)->dst);
    return 0;
}

/* Reverses the all-gather as well: each rank takes its own columns. */
static int reverse_arrange(struct reverse *r, int d)
{
    int own = r->p->inst[r->maker[r->inst.src[0]]].src[0];

    add_term(r, own, emit_like(r, OP_SLICE_OWNED, own, 1, &d)->dst, false);
    return 0;
}

static int reverse_slice(struct reverse *r, int d)
{
    add_to_source(r, 0, emit_like(r, OP_UNSLICE, r->inst.src[0], 1, &d)->dst);
    return 0;
}

/* The gradient of the logits comes from the row statistics over all ranks. */
static int reverse_nll(struct reverse *r, int d)
{
    int stats = r->inst.src[0], made = r->maker[stats], logits;
    struct inst *inst;

    (void)d; /* the loss is the sum of the rows: see reverse.h */
    if (r->p->inst[made].op == OP_ALL_GATHER)
        made = r->maker[r->p->inst[made].src[0]];
    logits = r->p->inst[made].src[0];
    inst = emit_like(r, OP_NLL_BACK, logits, 2, (const int[]){ stats, logits });
    inst->row = r->p->inst[made].row;
    inst->row.smooth = r->inst.nsrc > 1 ? r->inst.row.smooth : 0;
    inst->row.z = r->inst.row.z;
    add_term(r, logits, inst->dst, false);
    return 0;
}

/* Refuses a replicated segment of a sharded value: the axis says of its elements that
 * each rank owns them, so neither their gradients nor the norm would be right. */
static int reverse_segment(struct reverse *r, int d)
{
    int x = r->inst.src[0];

    if (place_of(r, x) == PLACE_CUT && place_of(r, r->inst.dst) != PLACE_CUT)
        return err_set(r->b->err, ERR_NO,
                       "family %s: a replicated segment of a sharded value cannot be "
                       "trained over tp",
                       r->p->model->family);
    add_to_source(r, 0, emit_like(r, OP_SEGMENT_BACK, x, 1, &d)->dst);
    return 0;
}

/* ---- the table ---- */

#define reverse_row_sum     by_reader
#define reverse_row_squares by_reader
#define reverse_row_stats   by_reader
#define reverse_all_gather  by_reader

#define PASSED(word)                    pass_on
#define BY_RULE(word)                   reverse_##word
#define NOT_REVERSED(word)              NULL
#define RULE_PASSES(n)                  PASSED
#define RULE_GRADS(n)                   BY_RULE
#define RULE_NO_REVERSE                 NOT_REVERSED
#define APPLY(rule, word)               rule(word)
#define ROW(id, word, on, reverse, ...) [OP_##id] = APPLY(RULE_##reverse, word),

static rule *const rules[OP_COUNT] = { OPS(ROW) };

/* ---- weights ---- */

/* True if an element of axis A lies on several ranks of the tensor group (replicated KV
 * heads). */
static bool has_copies(const struct builder *b, const struct axis *a)
{
    int coord[MESH_NAXES];
    bool copies = false;

    memcpy(coord, b->p->coord, sizeof(coord));
    for (int i = 0; i < b->p->mesh.size[MESH_TP] && !copies; i++) {
        struct share *share;
        struct runs runs;

        coord[MESH_TP] = i;
        share = model_shares(b->m, &b->p->mesh, coord);
        axis_runs(&runs, a, &b->m->scope, share);
        for (size_t k = 0; k < runs.n; k++)
            copies |= !runs.v[k].owned;
        runs_clear(&runs);
        free(share);
    }
    return copies;
}

/* Marks weight W, which INST reads, if its gradient must be summed over the ranks. */
static void mark_weight(struct builder *b, const struct inst *inst, int w)
{
    struct weight *its = &b->p->weight[w];
    const struct axis *axis[MODEL_MAX_DIMS];
    int ndim = program_weight_axes(b->p, w, axis);
    bool cut = false, copies = false;

    for (int k = 0; k < ndim; k++) {
        cut |= build_cuts(b, axis[k]);
        copies |= build_cuts(b, axis[k]) && has_copies(b, axis[k]);
    }
    if (b->p->mesh.size[MESH_TP] > 1 &&
        (copies || (!cut && b->p->value[inst->dst].place != PLACE_WHOLE)))
        for (uint64_t e = 0; e < (its->experts ? its->experts : 1); e++)
            its[e].summed = true;
}

/* With .deterministic no weight may have a gradient that is summed over the ranks. */
static int check_weights(const struct reverse *r)
{
    const struct program *p = r->p;

    for (int i = 0; i < p->nweights && is_spread(r); i++)
        if (p->weight[i].summed && program_trains(p, i)) {
            char *name = program_weight_name_dup(p, i);
            char *what = str_dupf("the gradient of %s", name);

            refuse_sum(r, what);
            free(what);
            free(name);
            return -1;
        }
    return 0;
}

/* ERR_NO if the instruction, which has no derivative, lies between weights and the
 * loss. */
static int check_leaf(const struct reverse *r)
{
    const struct sums *s = &r->sums[r->inst.dst];

    if ((s->partial < 0 && s->whole < 0) || (!r->inst.nsrc && r->inst.weight < 0))
        return 0;
    return err_set(r->b->err, ERR_NO,
                   "family %s: '%s' has no derivative; the model cannot be trained",
                   r->p->model->family, op_table[r->inst.op].name);
}

/* ---- the whole program ---- */

/* Removes instructions of the reverse that no needed gradient depends on. */
static void drop_unused(struct program *p)
{
    bool *used = xcalloc((size_t)p->nvalues + 1, sizeof(*used));
    bool *kept = xcalloc((size_t)p->ninsts + 1, sizeof(*kept));
    int n = p->nforward;

    for (int i = 0; i < p->nimports; i++)
        used[p->back_export[i]] = true;
    for (int i = p->ninsts - 1; i >= p->nforward; i--) {
        kept[i] = used[p->inst[i].dst] || p->value[p->inst[i].dst].gradient;
        for (int k = 0; k < p->inst[i].nsrc && kept[i]; k++)
            used[p->inst[i].src[k]] = true;
    }
    for (int i = p->nforward; i < p->ninsts; i++)
        if (kept[i])
            p->inst[n++] = p->inst[i];
    p->ninsts = n;
    free(used);
    free(kept);
}

/* The gradients of the exported values, which the next stage sends. */
static void import_gradients(struct reverse *r)
{
    struct program *p = r->p;

    p->back_import = xcalloc((size_t)p->nexports + 1, sizeof(*p->back_import));
    for (int i = 0; i < p->nexports; i++) {
        int v = emit_like(r, OP_ADD, p->export[i], 0, NULL)->dst;

        p->ninsts--; /* received: no instruction makes it */
        if (p->value[v].place == PLACE_PARTIAL)
            p->value[v].place = PLACE_WHOLE;
        p->back_import[i] = v;
        add_term(r, p->export[i], v, false);
    }
}

/* The gradient of the logits, which the caller gives where they are made. */
static void take_gradient(struct reverse *r)
{
    struct program *p = r->p;
    const int v = p->output[0].value;
    int d;

    if (r->b->opt->tail != TAIL_LOGITS || r->maker[v] < 0)
        return;
    d = emit_like(r, OP_ADD, v, 0, NULL)->dst;
    p->ninsts--; /* no instruction makes it */
    p->given = d + 1;
    add_term(r, v, d, false);
}

static void export_gradients(struct reverse *r)
{
    struct program *p = r->p;

    p->back_export = xcalloc((size_t)p->nimports + 1, sizeof(*p->back_export));
    for (int i = 0; i < p->nimports; i++) {
        int v = p->import[i], d = final(r, v);

        if (d < 0) { /* the loss does not depend on it: send zeros */
            struct inst *inst = emit_like(r, OP_SCALE, v, 1, &v);

            inst->scalar = 0;
            d = inst->dst;
        }
        p->back_export[i] = d;
    }
}

static bool is_loss(const struct program *p, int v)
{
    for (int i = 0; i < p->noutputs; i++)
        if (p->output[i].value == v)
            return true;
    return false;
}

int reverse_check_model(const struct program *p, struct err *err)
{
    for (int i = 0; i < p->nforward; i++) {
        /* Liu et al. 2023, "Sparse Backpropagation for MoE Training" */
        if (p->inst[i].op == OP_ROUTE && p->inst[i].route.near > 0)
            return err_set(
                err, ERR_NO,
                "family %s: in training SparseMixer draws experts at random, "
                "which is not computed; the model cannot be trained",
                p->model->family);
    }
    return 0;
}

int pass_reverse(struct builder *b)
{
    struct program *p = b->p;
    int nvalues = p->nvalues, ret = -1;
    struct reverse r = { .b = b, .p = p };

    p->nforward = p->ninsts;
    if (!b->opt->reverse)
        return 0;
    b->inst_cap = (size_t)p->ninsts; /* both arrays were reallocated to fit */
    b->weight_cap = (size_t)p->nweights;
    b->mixture = -1;
    r.sums = xmalloc(sizeof(*r.sums) * (size_t)(nvalues + 1));
    r.maker = xmalloc(sizeof(*r.maker) * (size_t)(nvalues + 1));
    for (int v = 0; v < nvalues; v++) {
        r.sums[v] = (struct sums){ -1, -1 };
        r.maker[v] = -1;
    }
    for (int i = 0; i < p->nforward; i++) {
        r.maker[p->inst[i].dst] = i;
        if (p->inst[i].weight >= 0)
            mark_weight(b, &p->inst[i], p->inst[i].weight);
        if (p->inst[i].weight2 >= 0)
            mark_weight(b, &p->inst[i], p->inst[i].weight2);
    }
    if (check_weights(&r) < 0)
        goto out;
    import_gradients(&r);
    take_gradient(&r);
    for (int i = p->nforward - 1; i >= 0; i--) {
        int d;

        r.inst = p->inst[i];
        if (!rules[r.inst.op] && check_leaf(&r) < 0)
            goto out;
        if (!rules[r.inst.op])
            continue;
        d = final(&r, r.inst.dst);
        if ((d >= 0 || (op_table[r.inst.op].loss && is_loss(p, r.inst.dst))) &&
            rules[r.inst.op](&r, d) < 0)
            goto out;
    }
    export_gradients(&r);
    drop_unused(p);
    ret = 0;
out:
    free(r.sums);
    free(r.maker);
    return ret;
}
