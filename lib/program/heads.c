/* heads - operations on heads: attention, and products of each head for latent
 * attention
 *
 * DeepSeek-V2 (2024), section 2.1: the KV cache holds one latent vector for all heads.
 * Rather than expanding it to keys and values at each step, each head projects its
 * queries into the latent space, and its result back, by its own rows of one tensor. */
#include <math.h>
#include <string.h>

#include "lib/program/build.h"

/* X's axis with the columns of each head replaced: digit OF instead of the last one. */
static void head_axis(struct axis *out, const struct axis *x, const struct digit *of)
{
    struct leaf *l;
    uint64_t stride = 1;

    axis_copy(out, x);
    l = &out->leaf[0];
    l->digit[l->n - 1] = *of;
    for (int i = l->n - 1; i >= 0; i--) {
        l->digit[i].stride = stride;
        stride *= l->digit[i].size;
    }
    l->size = out->size = stride;
}

/* The digit that counts the columns of a head; NULL if there is none or it is
 * sharded. */
static const struct digit *last_digit(const struct builder *b, const struct axis *a)
{
    const struct leaf *l = &a->leaf[0];
    const struct digit *d = a->n == 1 && l->n ? &l->digit[l->n - 1] : NULL;

    return d && (d->sym < 0 || !b->m->scope.sym[d->sym].dealt) ? d : NULL;
}

static bool same_digits(const struct leaf *x, const struct leaf *y, int n)
{
    for (int i = 0; i < n; i++)
        if (x->digit[i].sym != y->digit[i].sym || x->digit[i].size != y->digit[i].size)
            return false;
    return true;
}

/* True if A and B have the same digits before the last: the same heads. */
static bool same_heads(const struct axis *a, const struct axis *b)
{
    const struct leaf *x = &a->leaf[0], *y = &b->leaf[0];

    if (x->n != y->n)
        return false;
    return same_digits(x, y, x->n - 1);
}

/* ---- attention ---- */

/* Fills in the head counts of the attention in INST from the digits of q and k.  False
 * if they do not match: k must have q's digits without the last head digit
 * ("group"). */
static bool head_layout(const struct builder *b, const struct axis *q,
                        const struct axis *k, struct inst *inst)
{
    const struct leaf *lq = &q->leaf[0], *lk = &k->leaf[0];
    int nq = lq->n - 1, nk = lk->n - 1;
    uint64_t all = 1;

    if (!last_digit(b, q) || !last_digit(b, k) || nq < nk || nq > nk + 1 || nk > 1)
        return false;
    if (lq->digit[nq].sym != lk->digit[nk].sym ||
        lq->digit[nq].size != lk->digit[nk].size)
        return false;
    inst->attention.groups = inst->attention.within = inst->attention.per_group = 1;
    inst->attention.group_start = inst->attention.within_start = 0;
    for (int i = 0; i < nq; i++) {
        int sym = lq->digit[i].sym;
        struct share s = { .count = lq->digit[i].size };

        if (sym >= 0 && b->m->scope.sym[sym].dealt)
            s = b->share[sym];
        if (i < nk &&
            (lk->digit[i].sym != sym || lk->digit[i].size != lq->digit[i].size))
            return false;
        all *= lq->digit[i].size;
        if (i < nk) {
            inst->attention.groups = s.count;
            inst->attention.group_start = s.start;
        } else {
            inst->attention.within = s.count;
            inst->attention.within_start = s.start;
            inst->attention.per_group = lq->digit[i].size;
        }
    }
    inst->attention.heads = inst->attention.groups * inst->attention.within;
    inst->attention.kv_heads = inst->attention.groups;
    inst->attention.all_heads = all;
    inst->attention.head_dim = lq->digit[nq].size;
    return true;
}

static int attention_mask(struct builder *b, const struct operand *o, bool *causal)
{
    if (o->kind == OPERAND_WORD && !strcmp(o->word, "causal"))
        *causal = true;
    else if (o->kind == OPERAND_WORD && !strcmp(o->word, "all"))
        *causal = false;
    else
        return build_error(b, o->at, "expected causal or all");
    return 0;
}

/* Biases by relative distance: a table [buckets][heads], sharded as q's heads are. */
static int attention_bias(struct builder *b, const struct operand *o,
                          const struct axis *q, struct inst *inst)
{
    const struct model_tensor *t = build_need_weight(b, o, 2);
    const struct leaf *lq = &q->leaf[0], *lt;

    if (!t)
        return -1;
    lt = &t->axis[1]->leaf[0];
    if (t->axis[1]->n != 1 || lt->n != 1 || lq->n != 2 ||
        lt->digit[0].sym != lq->digit[0].sym ||
        lt->digit[0].size != lq->digit[0].size || build_cuts(b, t->axis[0]))
        return build_type_error(b, o->at, "the heads of q and the table's columns", q,
                                t->axis[1]);
    if (inst->attention.far < 1)
        return build_error(b, o->at, "a table of biases needs 'far', from 1");
    inst->weight = build_weight(b, o->tensor);
    return 0;
}

/* Attention sinks: a learned score per head, for a key that every query sees and that
 * has no value (Xiao et al. 2023, "Efficient Streaming Language Models with Attention
 * Sinks"; learned in gpt-oss). */
static int attention_sinks(struct builder *b, const struct operand *o,
                           const struct axis *q, struct inst *inst)
{
    const struct model_tensor *t = build_need_weight(b, o, 1);

    if (!t)
        return -1;
    if (t->axis[0]->n != 1 || t->axis[0]->leaf[0].n != q->leaf[0].n - 1 ||
        !same_digits(&t->axis[0]->leaf[0], &q->leaf[0], q->leaf[0].n - 1))
        return build_type_error(b, o->at, "the heads of q and their scores", q,
                                t->axis[0]);
    inst->attention.sinks = true;
    inst->attention.sink_per = inst->attention.within;
    inst->weight = build_weight(b, o->tensor);
    return 0;
}

/* The fifth argument: a table of biases by distance, or a vector of sinks. */
static int attention_more(struct builder *b, const struct operand *o,
                          const struct axis *q, struct inst *inst)
{
    if (o->kind == OPERAND_ABSENT)
        return 0;
    if (o->kind == OPERAND_WEIGHT && b->m->tensor[o->tensor].ndim == 1)
        return attention_sinks(b, o, q, inst);
    return attention_bias(b, o, q, inst);
}

/* Option "values": a symbol, the number of columns of v's heads that are values. */
static int attention_values(struct builder *b, const struct node *call,
                            struct digit *values)
{
    for (const struct node *n = call->kid; n; n = n->next) {
        if (n->kind != NODE_OPTION || n->len != 6 || memcmp(n->text, "values", 6) != 0)
            continue;
        for (int i = 0; i < b->m->scope.n; i++) {
            const struct axis_symbol *sym = &b->m->scope.sym[i];

            if (strlen(sym->name) != n->expr_len ||
                memcmp(sym->name, n->expr, n->expr_len) != 0)
                continue;
            if (sym->value > values->size || sym->dealt)
                break;
            *values =
                (struct digit){ .sym = i, .size = sym->value, .stride = 1, .div = 1 };
            return 0;
        }
        return build_error(b, n->at,
                           "'values' names a symbol, of at most the values' columns");
    }
    return 0;
}

/* Options "block", "over" and "copies": texts of more than "over" tokens are read in
 * blocks. */
static int attention_blocks(struct builder *b, const struct node *call,
                            struct inst *inst)
{
    double block = 0, over = 0, copies = 1;

    if (build_number_option(b, call, "block", 0, &block) < 0 ||
        build_number_option(b, call, "over", 0, &over) < 0 ||
        build_number_option(b, call, "copies", 1, &copies) < 0)
        return -1;
    if (block == 0)
        return 0;
    if (!(block >= 1 && block < 1 << 30) || block != floor(block) ||
        !(over >= 1 && over < 1 << 30) || over != floor(over) || !(copies >= 1))
        return build_error(b, call->at,
                           "'block' and 'over' are numbers of tokens, 'copies' is at "
                           "least 1");
    inst->attention.block = (uint64_t)block;
    inst->attention.over = (uint64_t)over;
    inst->attention.copies = copies;
    return 0;
}

int apply_attention(struct builder *b, enum op op, const struct node *call,
                    const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "scale", "window", "softcap", "alibi",
                                         "far",   "chunk",  "values",  "dropout",
                                         "block", "over",   "copies",  NULL };
    struct program *p = b->p;
    struct inst layout = { 0 }, *inst;
    double scale = 0, window = 0, softcap = 0, alibi = 0, far = 0, drop = 0, chunk = 0;
    struct inst blocks = { 0 };
    struct axis col;
    struct digit values;
    int src[3];
    bool causal = false;

    if (attention_mask(b, &arg[3], &causal) < 0 ||
        build_check_options(b, call, known) < 0 ||
        build_number_option(b, call, "scale", NAN, &scale) < 0 ||
        build_number_option(b, call, "window", 0, &window) < 0 ||
        build_number_option(b, call, "chunk", 0, &chunk) < 0 ||
        build_number_option(b, call, "softcap", 0, &softcap) < 0 ||
        build_number_option(b, call, "alibi", 0, &alibi) < 0 ||
        build_number_option(b, call, "far", 0, &far) < 0 ||
        build_number_option(b, call, "dropout", 0, &drop) < 0 ||
        attention_blocks(b, call, &blocks) < 0)
        return -1;
    if (blocks.attention.block && (window > 0 || softcap != 0 || causal))
        return build_error(b, call->at,
                           "'block' goes with all, without a window or a softcap");
    if (chunk > 0 && (window > 0 || !causal))
        return build_error(b, call->at, "'chunk' goes with causal, without a window");
    drop = build_drop_rate(b, drop);
    if (!(drop >= 0 && drop < 1))
        return build_error(b, call->at, "'dropout' is a rate from 0 to below 1");
    for (int i = 0; i < 3; i++) {
        if (arg[i].kind != OPERAND_VALUE || (i == 0 && p->value[arg[i].index].kept))
            return build_error(b, arg[i].at, "expected a value%s",
                               i ? "" : " that is not of keep()");
        if (!build_has_all_rows(b, &arg[i]))
            return build_error(b, arg[i].at, "attention needs the rows of all tokens");
        if (i && p->value[arg[i].index].rows != p->value[arg[0].index].rows &&
            (causal ||
             (!p->value[arg[i].index].kept && !b->opt->reverse && !b->opt->whole)))
            return build_error(b, arg[i].at,
                               "keys and values with other rows than the queries need "
                               "keep() and the mask all");
        src[i] =
            p->value[arg[i].index].kept ? arg[i].index : build_cut(b, arg[i].index);
    }
    if (!head_layout(b, &b->type[src[0]].col, &b->type[src[1]].col, &layout))
        return build_type_error(b, arg[1].at, "the heads of q and k",
                                &b->type[src[0]].col, &b->type[src[1]].col);
    if (!last_digit(b, &b->type[src[2]].col) ||
        !same_heads(&b->type[src[1]].col, &b->type[src[2]].col))
        return build_type_error(b, arg[2].at, "the heads of k and v",
                                &b->type[src[1]].col, &b->type[src[2]].col);
    values = *last_digit(b, &b->type[src[2]].col);
    if (attention_values(b, call, &values) < 0)
        return -1;
    head_axis(&col, &b->type[src[0]].col, &values);
    inst = build_emit(b, op, &col, b->p->value[src[0]].place, p->value[src[0]].rows);
    axis_clear(&col);
    inst->attention = layout.attention;
    memcpy(inst->src, src, sizeof(src));
    inst->nsrc = 3;
    inst->attention.value_cols = last_digit(b, &b->type[src[2]].col)->size;
    inst->attention.value_dim = values.size;
    inst->attention.scale =
        isnan(scale) ? 1 / sqrt((double)inst->attention.head_dim) : scale;
    inst->attention.softcap = softcap;
    inst->attention.alibi = alibi;
    inst->attention.chunked = chunk > 0;
    inst->attention.block = blocks.attention.block;
    inst->attention.over = blocks.attention.over;
    inst->attention.copies = blocks.attention.copies;
    window = chunk > 0 ? chunk : window;
    inst->attention.window = window > 0 ? (uint64_t)window : 0;
    inst->attention.causal = causal;
    inst->attention.drop = drop;
    inst->attention.site = build_site(b, call->at);
    inst->attention.far = far > 0 ? (uint64_t)far : 0;
    p->causal |= causal;
    if (n == 5 && attention_more(b, &arg[4], &b->type[src[0]].col, inst) < 0)
        return -1;
    build_operand(out, inst);
    return 0;
}

/* Biases by distance for each head that every query brings: columns of heads and
 * buckets, in memory head by head. */
static int stream_biases(struct builder *b, const struct operand *o,
                         const struct axis *q, struct inst *inst)
{
    const struct axis *a = &b->type[o->index].col;
    const struct leaf *l = &a->leaf[0], *lq = &q->leaf[0];
    const struct digit *heads, *buckets;

    if (a->n != 1 || l->n != 2 || lq->n != 2)
        return build_type_error(b, o->at, "the heads, and their buckets", q, a);
    heads = &l->digit[l->digit[0].sym != lq->digit[0].sym];
    buckets = &l->digit[heads == &l->digit[0]];
    if (heads->sym != lq->digit[0].sym || heads->size != lq->digit[0].size ||
        heads->sym < 0 || !b->m->scope.sym[heads->sym].dealt ||
        (buckets->sym >= 0 && b->m->scope.sym[buckets->sym].dealt) || buckets->size < 2)
        return build_type_error(b, o->at, "the heads, and their buckets", q, a);
    inst->attention.span = buckets->size;
    return 0;
}

/* stream(q, k, v, biases, own_k, own_v): Qi et al. 2020, "ProphetNet"
 * (arXiv:2001.04063), section 3.2, and its code.  A stream of predictions sees the keys
 * of the main stream and its own at the same token. */
int apply_stream(struct builder *b, enum op op, const struct node *call,
                 const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "scale", "far", NULL };
    struct inst layout = { 0 }, *inst;
    double scale = 0, far = 0;
    struct axis col;
    int src[INST_SOURCES] = { 0 };

    if (build_check_options(b, call, known) < 0 ||
        build_number_option(b, call, "scale", NAN, &scale) < 0 ||
        build_number_option(b, call, "far", 0, &far) < 0)
        return -1;
    if (n == 5)
        return build_error(b, call->at, "a key of the query's own needs a value");
    for (int i = 0; i < n; i++) {
        bool kept = arg[i].kind == OPERAND_VALUE && b->p->value[arg[i].index].kept && i;

        if (!kept && build_need_value(b, &arg[i]) < 0)
            return -1;
        if (b->p->value[arg[i].index].rows != ROWS_TOKENS || (kept && i > 2))
            return build_error(b, arg[i].at, "expected the rows of all tokens");
        src[i] = kept ? arg[i].index : build_cut(b, arg[i].index);
    }
    for (int i = 1; i < n; i++)
        if (i != 3 && !axis_equal(&b->type[src[0]].col, &b->type[src[i]].col))
            return build_type_error(b, arg[i].at, "the heads", &b->type[src[0]].col,
                                    &b->type[src[i]].col);
    if (!head_layout(b, &b->type[src[0]].col, &b->type[src[1]].col, &layout))
        return build_type_error(b, arg[1].at, "the heads", &b->type[src[0]].col,
                                &b->type[src[1]].col);
    if (stream_biases(b, &arg[3], &b->type[src[0]].col, &layout) < 0)
        return -1;
    if (far <= (double)(layout.attention.span / 2))
        return build_error(b, call->at,
                           "biases by distance need 'far', above half of "
                           "the buckets");
    axis_copy(&col, &b->type[src[0]].col);
    inst = build_emit(b, op, &col, b->p->value[src[0]].place, ROWS_TOKENS);
    axis_clear(&col);
    inst->attention = layout.attention;
    memcpy(inst->src, src, (size_t)n * sizeof(*src));
    inst->nsrc = n;
    inst->attention.value_dim = inst->attention.value_cols = inst->attention.head_dim;
    inst->attention.scale =
        isnan(scale) ? 1 / sqrt((double)inst->attention.head_dim) : scale;
    inst->attention.far = (uint64_t)far;
    inst->attention.causal = true;
    b->p->causal = true;
    build_operand(out, inst);
    return 0;
}

/* Converts the N arguments of attention to sources, and types its heads.  Those from
 * the fourth on have a row of the table, if TABLE has their bit.  FEWER: queries may be
 * rows that were made of the keys'. */
static int head_sources(struct builder *b, const struct operand *arg, int n,
                        unsigned table, bool fewer, int *src, struct inst *layout)
{
    const struct row_spaces *spaces = &b->p->rows;
    int queries = ROWS_TOKENS, keys = ROWS_TOKENS;

    for (int i = 0; i < n; i++) {
        int rows = table >> i & 1 ? ROWS_TABLE : i == 1 || i == 2 ? keys : queries;
        int own;

        if (build_need_value(b, &arg[i]) < 0)
            return -1;
        own = b->p->value[arg[i].index].rows;
        if (i == 0 && fewer && rows_root(spaces, own) == ROWS_TOKENS)
            rows = queries = keys = own;
        else if (i == 1 && fewer && spaces->v[queries].how == HOW_RATIO &&
                 own == spaces->v[queries].parent)
            rows = keys = own;
        if (own != rows)
            return build_error(b, arg[i].at, "expected rows of %s",
                               rows == ROWS_TOKENS  ? "all tokens"
                               : rows == ROWS_TABLE ? "a table"
                                                    : spaces->v[rows].name);
        src[i] = build_cut(b, arg[i].index);
        if (!axis_equal(&b->type[src[0]].col, &b->type[src[i]].col))
            return build_type_error(b, arg[i].at, "the heads", &b->type[src[0]].col,
                                    &b->type[src[i]].col);
    }
    if (!head_layout(b, &b->type[src[0]].col, &b->type[src[1]].col, layout))
        return build_type_error(b, arg[1].at, "the heads", &b->type[src[0]].col,
                                &b->type[src[1]].col);
    return 0;
}

/* The same for attention by distance, whose table has two halves. */
static int relate_sources(struct builder *b, const struct operand *arg, int n,
                          unsigned table, bool fewer, int *src, struct inst *layout)
{
    uint64_t rows = b->p->rows.v[ROWS_TABLE].bound;

    if (head_sources(b, arg, n, table, fewer, src, layout) < 0)
        return -1;
    if (rows % 2 || rows < 2)
        return build_type_error(b, arg[1].at, "the heads", &b->type[src[0]].col,
                                &b->type[src[1]].col);
    return 0;
}

static struct inst *emit_relate(struct builder *b, enum op op, const int *src, int n,
                                const struct inst *layout, double scale)
{
    struct inst *inst;
    struct axis col;

    axis_copy(&col, &b->type[src[0]].col);
    inst = build_emit(b, op, &col, b->p->value[src[0]].place, b->p->value[src[0]].rows);
    axis_clear(&col);
    inst->attention = layout->attention;
    memcpy(inst->src, src, (size_t)n * sizeof(*src));
    inst->nsrc = n;
    inst->attention.value_dim = inst->attention.value_cols = inst->attention.head_dim;
    inst->attention.scale =
        isnan(scale) ? 1 / sqrt((double)inst->attention.head_dim) : scale;
    inst->attention.span = b->p->rows.v[ROWS_TABLE].bound / 2;
    return inst;
}

/* relate(q, k, v, keys, queries): the last two are the position table's projections. */
int apply_relate(struct builder *b, enum op op, const struct node *call,
                 const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "scale", "far", NULL };
    struct inst layout = { 0 }, *inst;
    double scale = 0, far = 0;
    int src[INST_SOURCES];

    if (build_check_options(b, call, known) < 0 ||
        build_number_option(b, call, "scale", NAN, &scale) < 0 ||
        build_number_option(b, call, "far", 0, &far) < 0 ||
        relate_sources(b, arg, n, 1 << 3 | 1 << 4, false, src, &layout) < 0)
        return -1;
    inst = emit_relate(b, op, src, n, &layout, scale);
    inst->attention.far = far > 1 ? (uint64_t)far : 0;
    build_operand(out, inst);
    return 0;
}

/* relate_xl(q, k, v, q_far, far, q_type, types): far is the position table's
 * projection; types, a tensor [2, heads, dim], and the query for it may be omitted.
 * Queries and keys may be rows that were pooled. */
int apply_relate_xl(struct builder *b, enum op op, const struct node *call,
                    const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "scale", "apart", "any", "reversed", NULL };
    const struct model_tensor *t;
    struct inst layout = { 0 }, *inst;
    int src[INST_SOURCES], sources = n > 5 ? 6 : 5;
    struct weight *w;
    struct axis over;
    struct pooled_text pool;
    double scale = 0, reversed = 0, any = 0;
    bool fits;

    if (build_check_options(b, call, known) < 0 ||
        build_number_option(b, call, "scale", NAN, &scale) < 0 ||
        build_pooling(b, call, &pool) < 0 ||
        build_number_option(b, call, "any", -1, &any) < 0 ||
        build_number_option(b, call, "reversed", 0, &reversed) < 0 ||
        relate_sources(b, arg, sources, 1 << 4, true, src, &layout) < 0)
        return -1;
    if (!(fabs(any) < 1 << 20))
        return build_error(b, call->at, "'any' is a token type");
    if (n == 6)
        return build_error(b, call->at, "a query for types needs a tensor");
    if (n > 5) {
        t = build_need_weight(b, &arg[6], 3);
        if (!t || build_join(b, &arg[6], t, 1, &over) < 0)
            return -1;
        fits = t->axis[0]->size == 2 && axis_equal(&b->type[src[0]].col, &over);
        axis_clear(&over);
        if (!fits)
            return build_type_error(b, arg[6].at, "the heads", &b->type[src[0]].col,
                                    t->axis[1]);
    }
    inst = emit_relate(b, op, src, sources, &layout, scale);
    pool.times = (uint64_t)rows_depth(&b->p->rows, b->p->value[src[0]].rows);
    inst->attention.pool = pool;
    inst->attention.keys_pooled =
        (uint64_t)rows_depth(&b->p->rows, b->p->value[src[1]].rows);
    inst->attention.any_type = (int64_t)any;
    inst->attention.other_first = reversed != 0;
    if (n > 5) {
        inst->weight = build_weight(b, arg[6].tensor);
        w = &b->p->weight[inst->weight];
        w->cols = w->cols * w->rows / 2;
        w->rows = 2;
    }
    build_operand(out, inst);
    return 0;
}

/* global_attention(q, k, v, q_all, k_all, v_all, mask): a token sees the window around
 * it and the global tokens, for which the input MASK is not 0; these see all, by q_all
 * to v_all (Beltagy et al. 2020, "Longformer", arXiv:2004.05150, section 3.1). */
int apply_global_attention(struct builder *b, enum op op, const struct node *call,
                           const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "window", NULL };
    struct inst layout = { 0 }, *inst;
    double window = 0;
    int src[INST_SOURCES];

    if (build_check_options(b, call, known) < 0 ||
        build_number_option(b, call, "window", 0, &window) < 0 ||
        head_sources(b, arg, n - 1, 0, false, src, &layout) < 0)
        return -1;
    if (!(window >= 1 && window < 1 << 30) || window != floor(window))
        return build_error(b, call->at, "'window' is a number of tokens");
    if (arg[6].kind != OPERAND_INDEX || b->p->input[arg[6].index].rows != ROWS_TOKENS ||
        b->p->input[arg[6].index].feed->axis.size != 1)
        return build_error(b, arg[6].at, "expected an input of a number a token");
    inst = emit_relate(b, op, src, n - 1, &layout, NAN);
    inst->attention.window = (uint64_t)window;
    inst->attention.mask = arg[6].index;
    build_operand(out, inst);
    return 0;
}

/* The arguments K and V of the side rows, of which BLOCK rows of Q have one. */
static int side_sources(struct builder *b, const struct operand *arg, uint64_t block,
                        int *src)
{
    const struct row_spaces *spaces = &b->p->rows;
    int rows = b->p->value[src[0]].rows;

    for (int i = 0; i < 2; i++) {
        const struct row_space *own;

        if (build_need_value(b, &arg[i]) < 0)
            return -1;
        own = &spaces->v[b->p->value[arg[i].index].rows];
        if (own->how != HOW_RATIO || own->parent != rows || own->times != 1 ||
            own->by != block || own->plus != 0)
            return build_error(b, arg[i].at,
                               "expected the rows of block_sum, of blocks of 'block'");
        src[3 + i] = build_cut(b, arg[i].index);
        if (!axis_equal(&b->type[src[0]].col, &b->type[src[3 + i]].col))
            return build_type_error(b, arg[i].at, "the heads", &b->type[src[0]].col,
                                    &b->type[src[3 + i]].col);
    }
    return 0;
}

/* side_attention(q, k, v, bias, side_k, side_v, side_bias): a token sees the window
 * around it, and the side rows of all blocks (Guo et al. 2021, "LongT5",
 * arXiv:2112.07916, section 2.2). */
int apply_side_attention(struct builder *b, enum op op, const struct node *call,
                         const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "scale", "window", "far", "block", NULL };
    struct inst layout = { 0 }, other = { 0 }, *inst;
    double scale = 0, window = 0, far = 0, block = 0;
    int src[INST_SOURCES], rows = -1;

    (void)n;
    if (build_check_options(b, call, known) < 0 ||
        build_number_option(b, call, "scale", NAN, &scale) < 0 ||
        build_number_option(b, call, "window", 0, &window) < 0 ||
        build_number_option(b, call, "far", 0, &far) < 0 ||
        build_number_option(b, call, "block", 0, &block) < 0)
        return -1;
    if (!(window >= 1 && window < 1 << 30) || window != floor(window) ||
        !(block >= 1 && block < 1 << 30) || block != floor(block))
        return build_error(b, call->at, "'window' and 'block' are numbers of tokens");
    for (int i = 0; i < 3; i++) {
        if (build_need_value(b, &arg[i]) < 0)
            return -1;
        rows = i ? rows : b->p->value[arg[i].index].rows;
        if (!build_has_all_rows(b, &arg[i]) || b->p->value[arg[i].index].rows != rows)
            return build_error(b, arg[i].at, "expected the rows of all tokens");
        src[i] = build_cut(b, arg[i].index);
        if (!axis_equal(&b->type[src[0]].col, &b->type[src[i]].col))
            return build_type_error(b, arg[i].at, "the heads", &b->type[src[0]].col,
                                    &b->type[src[i]].col);
    }
    if (!head_layout(b, &b->type[src[0]].col, &b->type[src[1]].col, &layout))
        return build_type_error(b, arg[1].at, "the heads", &b->type[src[0]].col,
                                &b->type[src[1]].col);
    if (side_sources(b, &arg[4], (uint64_t)block, src) < 0)
        return -1;
    layout.attention.far = other.attention.far = far > 0 ? (uint64_t)far : 0;
    if (attention_bias(b, &arg[3], &b->type[src[0]].col, &layout) < 0 ||
        attention_bias(b, &arg[6], &b->type[src[0]].col, &other) < 0)
        return -1;
    inst = emit_relate(b, op, src, 5, &layout, scale);
    inst->weight = layout.weight;
    inst->weight2 = other.weight;
    inst->attention.window = (uint64_t)window;
    inst->attention.block = (uint64_t)block;
    b->beside |= rows_root(&b->p->rows, rows) == ROWS_TOKENS;
    build_operand(out, inst);
    return 0;
}

/* ---- concatenation and products of each head ---- */

/* concat(a, b): for each head the columns of a, then those of b; b may have one head
 * that all share. */
int apply_concat(struct builder *b, enum op op, const struct node *call,
                 const struct operand *arg, int n, struct operand *out)
{
    const struct digit *x, *y;
    struct digit both = { .sym = -1, .div = 1 };
    struct inst *inst;
    struct axis col;
    uint64_t columns[2];
    bool shared;
    int v[2];

    (void)n;
    if (build_need_value(b, &arg[0]) < 0 || build_need_value(b, &arg[1]) < 0 ||
        build_check_options(b, call, NULL) < 0)
        return -1;
    x = last_digit(b, &b->type[arg[0].index].col);
    y = last_digit(b, &b->type[arg[1].index].col);
    shared = x && y && b->type[arg[0].index].col.leaf[0].n > 1 &&
             b->type[arg[1].index].col.leaf[0].n == 1;
    if (!x || !y ||
        (!shared &&
         !same_heads(&b->type[arg[0].index].col, &b->type[arg[1].index].col)))
        return build_type_error(b, arg[1].at, "the heads", &b->type[arg[0].index].col,
                                &b->type[arg[1].index].col);
    if (b->p->value[arg[0].index].rows != b->p->value[arg[1].index].rows)
        return build_error(b, arg[1].at, "the rows differ");
    columns[0] = x->size;
    columns[1] = y->size;
    both.size = x->size + y->size;
    v[0] = build_cut(b, arg[0].index);
    v[1] = shared ? build_whole(b, arg[1].index) : build_cut(b, arg[1].index);
    head_axis(&col, &b->type[v[0]].col, &both);
    inst = build_emit(b, op, &col, b->p->value[v[0]].place, b->p->value[v[0]].rows);
    axis_clear(&col);
    inst->src[inst->nsrc++] = v[0];
    inst->src[inst->nsrc++] = v[1];
    inst->head.count = b->p->value[v[0]].cols / columns[0];
    inst->head.a = columns[0];
    inst->head.b = columns[1];
    inst->head.shared = shared;
    build_operand(out, inst);
    return 0;
}

/* Row of W on this rank at which SEGMENT begins. */
static uint64_t first_row(const struct builder *b, const struct axis *w,
                          const char *segment)
{
    uint64_t first = 0;

    for (int i = 0; i < w->n && strcmp(w->leaf[i].segment, segment) != 0; i++)
        first += axis_count(w, w->leaf[i].segment, &b->m->scope, b->share);
    return first;
}

/* The rows of T, of 2 axes; or of 3, of which the first two count them. */
static void row_axis(struct axis *out, const struct model_tensor *t)
{
    const struct leaf *more = &t->axis[1]->leaf[0];
    struct leaf *l;

    axis_copy(out, t->axis[0]);
    l = &out->leaf[0];
    if (t->ndim < 3 || t->axis[2]->size == 1 || out->n > 1 || t->axis[1]->n > 1 ||
        l->n + more->n > AXIS_MAX_DIGITS)
        return;
    for (int i = 0; i < l->n; i++)
        l->digit[i].stride *= more->size;
    memcpy(l->digit + l->n, more->digit, (size_t)more->n * sizeof(*more->digit));
    l->n += more->n;
    l->size = out->size = l->size * more->size;
}

/* Multiplies each head with its own rows of the tensor: x W^T or x W. */
int apply_head_product(struct builder *b, enum op op, const struct node *call,
                       const struct operand *arg, int n, struct operand *out)
{
    const struct model_tensor *t;
    const struct digit *in, *of, *to;
    struct operand whole = arg[1];
    struct axis rows, col;
    struct inst *inst;
    const struct axis *cols;
    int x, ret = -1;

    (void)n;
    whole.segment[0] = '\0';
    t = build_need_weight(
        b, &whole,
        arg[1].kind == OPERAND_WEIGHT && b->m->tensor[arg[1].tensor].ndim == 3 ? 3 : 2);
    if (!t || build_need_value(b, &arg[0]) < 0 ||
        build_check_options(b, call, NULL) < 0)
        return -1;
    cols = t->axis[t->ndim == 3 && t->axis[2]->size > 1 ? 2 : 1];
    if (!arg[1].segment[0])
        row_axis(&rows, t);
    else if (!axis_segment(&rows, t->axis[0], arg[1].segment))
        return build_error(b, arg[1].at, "no segment is called '%s'", arg[1].segment);
    x = build_cut(b, arg[0].index);
    in = last_digit(b, &b->type[x].col);
    of = op == OP_HEAD_LINEAR ? last_digit(b, cols) : last_digit(b, &rows);
    to = op == OP_HEAD_LINEAR ? last_digit(b, &rows) : last_digit(b, cols);
    if (!in || !of || !to || cols->leaf[0].n != 1 || build_cuts(b, cols) ||
        !same_heads(&b->type[x].col, &rows) || in->sym != of->sym ||
        in->size != of->size) {
        build_type_error(b, arg[1].at, "each head contracts", &b->type[x].col, &rows);
        goto out;
    }
    head_axis(&col, &b->type[x].col, to);
    inst = build_emit(b, op, &col, b->p->value[x].place, b->p->value[x].rows);
    axis_clear(&col);
    inst->src[inst->nsrc++] = x;
    in = last_digit(b, &b->type[x].col); /* build_emit may have moved b->type */
    inst->head.a = in->size;
    inst->head.b = to->size;
    inst->head.count = b->p->value[x].cols / in->size;
    inst->head.row = first_row(b, t->axis[0], arg[1].segment);
    inst->weight = build_weight(b, arg[1].tensor);
    build_operand(out, inst);
    ret = 0;
out:
    axis_clear(&rows);
    return ret;
}
