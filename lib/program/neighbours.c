/* neighbours - operations that read the rows beside a token's own, and values made of
 * several */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/program/build.h"

/* Fails unless O has rows of whole texts, or of what was made of them, in order. */
static int need_texts(struct builder *b, const struct operand *o)
{
    const struct row_spaces *r = &b->p->rows;
    int root;

    if (build_need_value(b, o) < 0)
        return -1;
    root = rows_root(r, b->p->value[o->index].rows);
    b->beside |= root == ROWS_TOKENS;
    return r->v[root].how == HOW_GIVEN
               ? 0
               : build_error(b, o->at, "expected the rows of all tokens");
}

/* The space with the rows of OF, as the option "rows" of CALL names it; -1 with an
 * error. */
static int derive(struct builder *b, const struct node *call,
                  const struct row_space *of)
{
    const struct node *name = build_word_option(call, "rows");
    int k = rows_derive(&b->p->rows, of, name ? name->expr : NULL,
                        name ? name->expr_len : 0);

    return k >= 0 ? k
                  : build_error(b, name ? name->at : call->at,
                                "there are such rows already, or too many kinds");
}

/* unfold(x, reach, stride = s, before = b): REACH rows side by side, from row s t - b
 * on, which a product with a convolution's weight [out, in, reach] contracts. */
int apply_unfold(struct builder *b, enum op op, const struct node *call,
                 const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "stride", "before", "rows", NULL };
    struct row_space of = { .how = HOW_RATIO, .times = 1 };
    double stride = 0, before = 0;
    struct digit reach;
    const char *name;
    struct inst *inst;
    struct axis col;
    int x, rows;

    (void)n;
    if (need_texts(b, &arg[0]) < 0 || build_check_options(b, call, known) < 0 ||
        build_symbol(b, call, 1, &reach, &name) < 0 ||
        build_number_option(b, call, "stride", 1, &stride) < 0 ||
        build_number_option(b, call, "before", (double)(reach.size / 2), &before) < 0)
        return -1;
    if (!(stride >= 1 && stride < 1 << 20) || stride != floor(stride) ||
        !(before >= 0 && before < 1 << 20) || before != floor(before) ||
        reach.size >= 1 << 20)
        return build_error(b, call->at, "'stride' and 'before' are numbers of rows");
    x = arg[0].index;
    if (b->type[x].col.n != 1)
        return build_error(b, arg[0].at, "expected one segment");
    if (b->p->value[x].place == PLACE_PARTIAL)
        x = build_whole(b, x);
    of.parent = b->p->value[x].rows;
    of.by = (uint64_t)stride; /* floor((rows + 2 before - reach) / stride) + 1 */
    of.plus = 2 * (int64_t)before - (int64_t)reach.size + (int64_t)stride;
    rows = derive(b, call, &of);
    if (rows < 0)
        return -1;
    if (!axis_append(&col, &b->type[x].col, &reach, name))
        return build_error(b, arg[0].at, "the axis has too many factors");
    inst = build_emit(b, op, &col, b->p->value[x].place, rows);
    axis_clear(&col);
    inst->src[inst->nsrc++] = x;
    inst->unfold.reach = reach.size;
    inst->unfold.stride = (uint64_t)stride;
    inst->unfold.before = (uint64_t)before;
    build_operand(out, inst);
    return 0;
}

/* shift(x, by = n) */
int apply_shift(struct builder *b, enum op op, const struct node *call,
                const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "by", NULL };
    struct inst *inst;
    double by;

    (void)n;
    if (need_texts(b, &arg[0]) < 0 || build_check_options(b, call, known) < 0 ||
        build_number_option(b, call, "by", 0, &by) < 0)
        return -1;
    if (!(fabs(by) < 1 << 20) || by != floor(by))
        return build_error(b, call->at, "'by' is a whole number of tokens");
    inst = build_unary(b, op, arg[0].index);
    inst->shift = (int64_t)by;
    build_operand(out, inst);
    return 0;
}

int build_pooling(struct builder *b, const struct node *call, struct pooled_text *out)
{
    double apart = 0, cut = 0;

    if (build_number_option(b, call, "apart", 0, &apart) < 0 ||
        build_number_option(b, call, "cut", 0, &cut) < 0)
        return -1;
    *out = (struct pooled_text){ .apart = apart != 0, .cut = cut != 0 };
    return 0;
}

/* pool(x): two neighbours into one.  unpool(x): back to all tokens (Dai et al. 2020,
 * "Funnel-Transformer", arXiv:2006.03236, sections 2.2 and 2.3, and its code). */
int apply_pool(struct builder *b, enum op op, const struct node *call,
               const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "apart", "cut", "most", "rows", NULL };
    struct row_space of = { .how = HOW_RATIO, .times = 1, .by = 2 };
    struct pooled_text at;
    struct inst *inst;
    double most;
    int rows, from;

    (void)n;
    if (need_texts(b, &arg[0]) < 0 || build_check_options(b, call, known) < 0 ||
        build_pooling(b, call, &at) < 0 ||
        build_number_option(b, call, "most", 0, &most) < 0)
        return -1;
    from = b->p->value[arg[0].index].rows;
    of.parent = from;
    of.plus = 1 + (at.apart && !at.cut);
    of.least = at.apart ? 2 : 1;
    at.times = (uint64_t)rows_depth(&b->p->rows, from) + (op == OP_POOL);
    rows = op == OP_POOL ? derive(b, call, &of) : rows_root(&b->p->rows, from);
    if (rows < 0)
        return -1;
    inst = build_unary(b, op, arg[0].index);
    b->p->value[inst->dst].rows = rows;
    inst->pool.at = at;
    inst->pool.most = most != 0;
    build_operand(out, inst);
    return 0;
}

/* block_sum(x, by = n): the sums of N rows each. */
int apply_block_sum(struct builder *b, enum op op, const struct node *call,
                    const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "by", "rows", NULL };
    struct row_space of = { .how = HOW_RATIO, .times = 1 };
    struct inst *inst;
    double by = 0;
    int rows;

    (void)n;
    if (need_texts(b, &arg[0]) < 0 || build_check_options(b, call, known) < 0 ||
        build_number_option(b, call, "by", 0, &by) < 0)
        return -1;
    if (!(by >= 1 && by < 1 << 30) || by != floor(by))
        return build_error(b, call->at, "'by' is a number of rows");
    of.parent = b->p->value[arg[0].index].rows;
    of.by = (uint64_t)by;
    rows = derive(b, call, &of);
    if (rows < 0)
        return -1;
    inst = build_unary(b, op, arg[0].index);
    b->p->value[inst->dst].rows = rows;
    inst->block = (uint64_t)by;
    build_operand(out, inst);
    return 0;
}

/* The tokens of a text, of which a step may have a part. */
static int need_tokens(struct builder *b, const struct operand *o)
{
    if (build_need_value(b, o) < 0)
        return -1;
    b->p->causal = true;
    return b->p->value[o->index].rows == ROWS_TOKENS
               ? 0
               : build_error(b, o->at, "expected the rows of all tokens");
}

/* convolve(x, w), causal_convolve(x, w): each column with its own taps, w
 * [columns][1][taps]. */
int apply_convolve(struct builder *b, enum op op, const struct node *call,
                   const struct operand *arg, int n, struct operand *out)
{
    const struct model_tensor *t = build_need_weight(b, &arg[1], 3);
    bool causal = op == OP_CAUSAL_CONVOLVE;
    struct inst *inst;

    (void)n;
    if (!t || (causal ? need_tokens : need_texts)(b, &arg[0]) < 0 ||
        build_check_options(b, call, NULL) < 0)
        return -1;
    if (!axis_equal(&b->type[arg[0].index].col, t->axis[0]))
        return build_type_error(b, arg[1].at, "each column has its taps",
                                &b->type[arg[0].index].col, t->axis[0]);
    if (t->axis[1]->size != 1 || (!causal && t->axis[2]->size % 2 == 0) ||
        build_cuts(b, t->axis[2]))
        return build_error(b, arg[1].at, "expected a tensor [columns][1][%s]",
                           causal ? "taps" : "an odd number of taps");
    inst = build_unary(b, op, build_cut(b, arg[0].index));
    inst->weight = build_weight(b, arg[1].tensor);
    inst->taps.count = t->axis[2]->size;
    inst->taps.heads = b->p->value[inst->dst].cols;
    inst->taps.dim = 1;
    build_operand(out, inst);
    return 0;
}

/* dynamic(x, scores): each head with taps that each row computes (Jiang et al. 2020,
 * "ConvBERT", arXiv:2008.02496, eq. 4; Wu et al. 2019, arXiv:1901.10430). */
int apply_dynamic(struct builder *b, enum op op, const struct node *call,
                  const struct operand *arg, int n, struct operand *out)
{
    const struct leaf *x, *s;
    uint64_t taps;
    struct inst *inst;
    int scores;
    bool same;

    (void)n;
    if (need_texts(b, &arg[0]) < 0 || need_texts(b, &arg[1]) < 0 ||
        build_check_options(b, call, NULL) < 0)
        return -1;
    x = &b->type[arg[0].index].col.leaf[0];
    s = &b->type[arg[1].index].col.leaf[0];
    same = b->type[arg[0].index].col.n == 1 && b->type[arg[1].index].col.n == 1 &&
           x->n == s->n && x->n > 1;
    for (int i = 0; same && i + 1 < x->n; i++)
        same =
            x->digit[i].sym == s->digit[i].sym && x->digit[i].size == s->digit[i].size;
    taps = same ? s->digit[s->n - 1].size : 0;
    if (taps % 2 == 0)
        return build_type_error(b, arg[1].at, "the heads, and an odd number of taps",
                                &b->type[arg[0].index].col, &b->type[arg[1].index].col);
    scores = build_cut(b, arg[1].index);
    inst = build_unary(b, op, build_cut(b, arg[0].index));
    inst->src[inst->nsrc++] = scores;
    inst->taps.count = taps;
    inst->taps.heads = b->p->value[scores].cols / taps;
    inst->taps.dim =
        inst->taps.heads ? b->p->value[inst->dst].cols / inst->taps.heads : 0;
    build_operand(out, inst);
    return 0;
}

/* ---- other columns ---- */

/* Appends A, of one segment, to OUT as the segment that NAME names. */
static void add_segment(struct axis *out, const struct axis *a, const struct node *name)
{
    struct leaf *l;

    out->leaf = xrealloc(out->leaf, ((size_t)out->n + 1) * sizeof(*out->leaf));
    l = &out->leaf[out->n++];
    *l = a->leaf[0];
    memset(l->segment, 0, sizeof(l->segment));
    memcpy(l->segment, name->text, name->len);
    l->base = out->size;
    out->size += l->size;
}

/* join(a, b, ...): the columns of all, as segments with the names of the values. */
int apply_join(struct builder *b, enum op op, const struct node *call,
               const struct operand *arg, int n, struct operand *out)
{
    const struct node *name = call->kid;
    struct axis col = { .text = (char *)"", .block = 1 };
    int all = -1, ret = -1;
    bool cut = false;

    if (build_check_options(b, call, NULL) < 0)
        return -1;
    for (int i = 0; i < n; i++) {
        if (build_need_value(b, &arg[i]) < 0)
            return -1;
        cut |= build_cuts(b, &b->type[arg[i].index].col);
    }
    for (int i = 0; i < n; i++, name = name->next) {
        const struct axis *a = &b->type[arg[i].index].col;
        int v = cut ? build_cut(b, arg[i].index) : build_whole(b, arg[i].index);
        uint64_t before = all < 0 ? 0 : b->p->value[all].cols;
        struct inst *inst;

        a = &b->type[arg[i].index].col;
        if (name->kind != NODE_NAME || name->len >= sizeof(a->leaf->segment) ||
            a->n != 1) {
            build_error(b, arg[i].at, "expected the name of a value of one segment");
            goto out;
        }
        if (b->p->value[v].rows != b->p->value[arg[0].index].rows) {
            build_error(b, arg[i].at, "the rows differ");
            goto out;
        }
        add_segment(&col, a, name);
        if (all < 0) {
            all = v;
            continue;
        }
        inst =
            build_emit(b, op, &col, cut ? PLACE_CUT : PLACE_WHOLE, b->p->value[v].rows);
        inst->src[inst->nsrc++] = all;
        inst->src[inst->nsrc++] = v;
        inst->head.count = 1;
        inst->head.a = before;
        inst->head.b = b->p->value[v].cols;
        all = inst->dst;
    }
    *out = (struct operand){ .kind = OPERAND_VALUE, .index = all };
    ret = 0;
out:
    free(col.leaf);
    return ret;
}

/* view(x, as = shape): the same columns, counted by other symbols. */
int apply_view(struct builder *b, enum op op, const struct node *call,
               const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "as", NULL };
    const struct node *as = build_word_option(call, "as");
    char *text;
    struct axis col;
    struct err e = { 0 };
    struct inst *inst;
    int x, ret;

    (void)n;
    if (build_need_value(b, &arg[0]) < 0 || build_check_options(b, call, known) < 0)
        return -1;
    if (!as)
        return build_error(b, call->at, "expected 'as = shape'");
    text = xstrndup(as->expr, as->expr_len);
    ret = axis_parse(&col, text, &b->m->scope, &e);
    free(text);
    if (ret < 0)
        return build_error(b, as->at, "%s", e.text);
    if (col.size != b->type[arg[0].index].col.size) {
        build_type_error(b, as->at, "the numbers of columns",
                         &b->type[arg[0].index].col, &col);
        axis_clear(&col);
        return -1;
    }
    x = build_whole(b, arg[0].index);
    inst = build_emit(b, op, &col, PLACE_WHOLE, b->p->value[x].rows);
    axis_clear(&col);
    inst->src[inst->nsrc++] = x;
    inst->segment.first = 0;
    build_operand(out, inst);
    return 0;
}
