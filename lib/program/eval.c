/* eval - evaluates the tree of a line: sums, products, names and segments
 *
 * A sum is flattened: its partial terms are added first and all-reduced once, then the
 * replicated terms and the biases are added. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/program/build.h"

/* No digit of an axis has this symbol. */
enum { NO_EXPERTS = -2 };

static enum place place_of(const struct builder *b, const struct operand *o)
{
    return b->p->value[o->index].place;
}

static const struct type *type_of(const struct builder *b, const struct operand *o)
{
    return &b->type[o->index];
}

/* ---- sums and products ---- */

struct terms {
    struct operand *v;
    size_t n, cap;
};

static bool word_is(const struct node *n, const char *word)
{
    return strlen(word) == n->len && !memcmp(n->text, word, n->len);
}

/* Replaces *n by the argument of dropout() if its rate is 0 in this program. */
static int skip_dropout(struct builder *b, const struct node **n)
{
    struct operand rate;

    while ((*n)->kind == NODE_CALL && word_is(*n, "dropout") && (*n)->kid &&
           (*n)->kid->next && !(*n)->kid->next->next) {
        if (eval_tree(b, (*n)->kid->next, &rate) < 0)
            return -1;
        if (rate.kind != OPERAND_NUMBER && rate.kind != OPERAND_ABSENT)
            return build_error(b, (*n)->kid->next->at, "expected a rate");
        if (build_drop_rate(b, rate.kind == OPERAND_NUMBER ? rate.number : 0) != 0)
            return 0;
        *n = (*n)->kid;
    }
    return 0;
}

/* The terms of a sum and of the sums nested in it, without absent tensors. */
static int eval_terms(struct builder *b, const struct node *sum, struct terms *t)
{
    for (const struct node *next = sum->kid; next; next = next->next) {
        const struct node *k = next;
        struct operand o;

        if (skip_dropout(b, &k) < 0)
            return -1;
        if (k->kind == NODE_SUM) {
            if (eval_terms(b, k, t) < 0)
                return -1;
            continue;
        }
        if (eval_tree(b, k, &o) < 0)
            return -1;
        o.at = k->at;
        if (o.kind == OPERAND_ABSENT)
            continue;
        if (o.kind != OPERAND_VALUE && o.kind != OPERAND_WEIGHT)
            return build_error(b, k->at, "only values and bias tensors can be added");
        if (o.kind == OPERAND_VALUE && build_need_value(b, &o) < 0)
            return -1;
        /* reuse the all-reduced value if there is one */
        if (o.kind == OPERAND_VALUE && place_of(b, &o) == PLACE_PARTIAL &&
            type_of(b, &o)->whole >= 0)
            o.index = type_of(b, &o)->whole;
        t->v = xgrow(t->v, &t->cap, t->n + 1, sizeof(*t->v));
        t->v[t->n++] = o;
    }
    return 0;
}

static int emit_pair(struct builder *b, enum op op, int x, int y, enum place place)
{
    struct axis col;
    struct inst *inst;

    axis_copy(&col, &b->type[x].col);
    inst = build_emit(b, op, &col, place, b->p->value[x].rows);
    axis_clear(&col);
    inst->src[inst->nsrc++] = x;
    inst->src[inst->nsrc++] = y;
    return inst->dst;
}

/* Fails unless X and Y have equal columns and rows. */
static int check_pair(struct builder *b, const struct operand *x,
                      const struct operand *y, const char *what)
{
    if (!axis_equal(&type_of(b, x)->col, &type_of(b, y)->col))
        return build_type_error(b, y->at, what, &type_of(b, x)->col,
                                &type_of(b, y)->col);
    if (b->p->value[x->index].rows != b->p->value[y->index].rows)
        return build_error(b, y->at, "%s: the rows differ", what);
    return 0;
}

/* Adds the bias of operand O to X: a vector, or a tensor whose axes, joined, are those
 * of X. */
static int add_vector(struct builder *b, const struct operand *o, int *x)
{
    const struct model_tensor *t = build_tensor(b, o->tensor);
    bool row = t->ndim == 2 && t->axis[0]->size == 1;
    struct axis over;
    struct weight *w;
    struct inst *inst;
    int ret = -1;

    if (!build_need_weight(b, o, t->ndim ? t->ndim : 1) ||
        build_join(b, o, t, row, &over) < 0)
        return -1;
    if (!axis_equal(&b->type[*x].col, &over)) {
        build_type_error(b, o->at, "the bias", &b->type[*x].col, &over);
        goto out;
    }
    if (b->p->value[*x].place == PLACE_WHOLE)
        *x = build_cut(b, *x); /* a sharded bias needs a sharded value */
    inst = build_unary(b, OP_ADD_VECTOR, *x);
    inst->weight = build_weight(b, o->tensor);
    w = &b->p->weight[inst->weight];
    if (t->ndim > 1 && !w->experts) {
        w->cols *= w->rows;
        w->rows = 1;
    }
    *x = inst->dst;
    ret = 0;
out:
    axis_clear(&over);
    return ret;
}

/* Adds the bias vectors among the terms T to X, sharded as X is. */
static int add_vectors(struct builder *b, const struct terms *t, int x, int *out)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->v[i].kind == OPERAND_WEIGHT && add_vector(b, &t->v[i], &x) < 0)
            return -1;
    *out = x;
    return 0;
}

/* See the top of this file. */
static int eval_sum(struct builder *b, const struct node *n, struct operand *out)
{
    struct terms t = { 0 };
    const struct operand *first = NULL;
    int partial = -1, sum = -1, ret = -1;
    bool any_cut = false, all_partial = true;

    if (eval_terms(b, n, &t) < 0)
        goto out;
    for (size_t i = 0; i < t.n; i++) {
        if (t.v[i].kind != OPERAND_VALUE) {
            all_partial = false;
            continue;
        }
        if (first && check_pair(b, first, &t.v[i], "the terms of a sum") < 0)
            goto out;
        first = first ? first : &t.v[i];
        any_cut |= place_of(b, &t.v[i]) == PLACE_CUT;
        all_partial &= place_of(b, &t.v[i]) == PLACE_PARTIAL;
    }
    if (!first) {
        build_error(b, n->at, "a sum needs a value");
        goto out;
    }
    for (size_t i = 0; i < t.n; i++)
        if (t.v[i].kind == OPERAND_VALUE && place_of(b, &t.v[i]) == PLACE_PARTIAL)
            partial = partial < 0
                          ? t.v[i].index
                          : emit_pair(b, OP_ADD, partial, t.v[i].index, PLACE_PARTIAL);
    if (!all_partial && partial >= 0)
        sum = build_whole(b, partial);
    else
        sum = partial;
    if (any_cut && sum >= 0)
        sum = build_cut(b, sum);
    for (size_t i = 0; i < t.n; i++) {
        int v = t.v[i].index;

        if (t.v[i].kind != OPERAND_VALUE || place_of(b, &t.v[i]) == PLACE_PARTIAL)
            continue;
        v = any_cut ? build_cut(b, v) : v;
        sum = sum < 0 ? v : emit_pair(b, OP_ADD, v, sum, b->p->value[v].place);
    }
    if (add_vectors(b, &t, sum, &sum) < 0)
        goto out;
    *out = (struct operand){ .kind = OPERAND_VALUE, .index = sum };
    ret = 0;
out:
    free(t.v);
    return ret;
}

static bool is_column(const struct builder *b, const struct operand *o)
{
    return type_of(b, o)->col.size == 1;
}

/* Scales each row by a one-column value.  Linear in the rows, so partial rows give a
 * partial result. */
static int multiply_rows(struct builder *b, struct operand *x, const struct operand *y)
{
    int rows = is_column(b, x) ? y->index : x->index;
    int column = is_column(b, x) ? x->index : y->index;
    struct inst *inst;

    if (b->p->value[rows].rows != b->p->value[column].rows)
        return build_error(b, y->at, "the factors of a product: the rows differ");
    column = build_whole(b, column);
    inst = build_unary(b, OP_MUL_ROWS, rows);
    inst->src[inst->nsrc++] = column;
    build_operand(x, inst);
    return 0;
}

static int multiply(struct builder *b, struct operand *x, const struct operand *y)
{
    struct inst *inst;
    int u, v;

    if (y->kind == OPERAND_NUMBER) {
        inst = build_unary(b, OP_SCALE, x->index);
        inst->scalar = y->number;
        build_operand(x, inst);
        return 0;
    }
    if (build_need_value(b, x) < 0 || build_need_value(b, y) < 0)
        return -1;
    if (is_column(b, x) != is_column(b, y))
        return multiply_rows(b, x, y);
    if (check_pair(b, x, y, "the factors of a product") < 0)
        return -1;
    u = x->index;
    v = y->index;
    if (place_of(b, x) == PLACE_CUT || place_of(b, y) == PLACE_CUT) {
        u = build_cut(b, u);
        v = build_cut(b, v);
    } else {
        u = build_whole(b, u);
        v = build_whole(b, v);
    }
    *x = (struct operand){ .kind = OPERAND_VALUE,
                           .index = emit_pair(b, OP_MUL, u, v, b->p->value[u].place) };
    return 0;
}

/* Scales each column by its element of the tensor Y. */
static int multiply_columns(struct builder *b, struct operand *x,
                            const struct operand *y)
{
    const struct axis *over;
    struct inst *inst;

    if (build_need_value(b, x) < 0 || !build_need_vector(b, y, &over))
        return -1;
    if (!axis_equal(&type_of(b, x)->col, over))
        return build_type_error(b, y->at, "the factors of the columns",
                                &type_of(b, x)->col, over);
    inst = build_unary(b, OP_MUL_VECTOR, build_cut(b, x->index));
    inst->weight = build_vector(b, y->tensor);
    build_operand(x, inst);
    return 0;
}

static int eval_product(struct builder *b, const struct node *n, struct operand *out)
{
    double factor = 1;
    bool scaled = false, have = false;
    struct operand o;

    for (const struct node *k = n->kid; k; k = k->next) {
        if (eval_tree(b, k, &o) < 0)
            return -1;
        o.at = k->at;
        if (o.kind == OPERAND_NUMBER) {
            factor *= o.number;
            scaled = true;
        } else if (have) {
            if ((o.kind == OPERAND_WEIGHT ? multiply_columns : multiply)(b, out, &o) <
                0)
                return -1;
        } else if (o.kind != OPERAND_VALUE) {
            return build_error(b, k->at, "only values and numbers can be multiplied");
        } else {
            *out = o;
            have = true;
        }
    }
    if (!have) {
        *out = (struct operand){ .kind = OPERAND_NUMBER, .number = factor };
        return 0;
    }
    o = (struct operand){ .kind = OPERAND_NUMBER, .number = factor };
    return scaled ? multiply(b, out, &o) : build_need_value(b, out);
}

/* ---- names ---- */

/* In the last section, a value with a row per token is reduced to its output rows. */
static int take_rows(struct builder *b, int v)
{
    struct inst *inst;

    if (!b->opt->wanted || !b->last_section || b->p->value[v].rows != ROWS_TOKENS)
        return v;
    if (b->type[v].taken < 0) {
        int taken;

        inst = build_unary(b, OP_TAKE, v);
        taken = inst->dst;
        b->p->value[taken].rows = ROWS_WANTED;
        taken = build_shared_rows(b, taken);
        b->type[v].taken = taken;
    }
    return b->type[v].taken;
}

/* The rows of input FEED as a value. */
static void read_input(struct builder *b, int feed, struct operand *out)
{
    const struct program_input *in = &b->p->input[feed];
    struct inst *inst = build_emit(b, OP_INPUT, &in->feed->axis, PLACE_WHOLE, in->rows);

    inst->input = feed;
    b->p->source |= in->rows != ROWS_TOKENS;
    build_operand(out, inst);
}

static int eval_name(struct builder *b, const struct node *n, struct operand *out)
{
    struct expr_value v;
    int feed;
    struct err e = { 0 };
    long tensor;

    for (size_t i = b->nbind; i-- > b->first_bind;)
        if (word_is(n, b->bind[i].name)) {
            *out = (struct operand){ .kind = OPERAND_VALUE,
                                     .index = take_rows(b, b->bind[i].value) };
            return 0;
        }
    feed = model_feed_find(b->m, n->text, n->len);
    if (feed >= 0) {
        *out = (struct operand){ .kind = OPERAND_INDEX, .index = feed, .whole = true };
        if (b->p->input[feed].feed->dtype == DTYPE_F32)
            read_input(b, feed, out);
        return 0;
    }
    tensor = model_tensor_at(b->m, n->text, n->len, b->layer, b->expert);
    if (tensor == -3)
        return build_error(b, n->at, "'%.*s' is read inside experts() only",
                           (int)n->len, n->text);
    if (tensor != -2) {
        *out = (struct operand){ .kind = tensor < 0 ? OPERAND_ABSENT : OPERAND_WEIGHT,
                                 .tensor = (size_t)tensor };
        return 0;
    }
    for (size_t i = 0; i < model_family(b->m)->rope.n; i++)
        if (word_is(n, model_family(b->m)->rope.v[i].key)) {
            *out = (struct operand){ .kind = OPERAND_ROPE, .index = (int)i };
            return 0;
        }
    *out = (struct operand){ .kind = OPERAND_WORD };
    if (word_is(n, "causal") || word_is(n, "all")) {
        memcpy(out->word, n->text, n->len);
        return 0;
    }
    for (size_t i = 0; i < model_family(b->m)->symbols.n; i++) {
        if (!word_is(n, model_family(b->m)->symbols.v[i].key))
            continue;
        if (model_eval(b->m, n->text, n->len, b->layer, &v, &e) < 0)
            return err_set(b->err, e.kind, "%s", e.text);
        if (v.kind == EXPR_NUMBER || v.kind == EXPR_BOOL)
            *out = (struct operand){ .kind = OPERAND_NUMBER, .number = v.number };
        else if (v.kind == EXPR_WORD && v.len < sizeof(out->word))
            memcpy(out->word, v.word, v.len);
        else
            *out = (struct operand){ .kind = OPERAND_ABSENT };
        return 0;
    }
    if (scan_kind_find(n->text, n->len) >= 0) {
        memcpy(out->word, n->text, n->len);
        return 0;
    }
    return build_error(b, n->at, "'%.*s' is no value, tensor or symbol here",
                       (int)n->len, n->text);
}

/* "input.0": a column of the input X. */
static int name_column(struct builder *b, const struct node *n, const struct operand *x,
                       struct operand *out)
{
    const struct model_feed *f = b->p->input[x->index].feed;
    uint64_t column;
    char text[8] = "";

    if (n->len < sizeof(text))
        memcpy(text, n->text, n->len);
    if (!str_u64(text, &column) || column >= f->axis.size)
        return build_error(b, n->at, "'%s' has %llu columns, from 0 on", f->name,
                           (unsigned long long)f->axis.size);
    *out = *x;
    out->column = (int)column;
    out->whole = false;
    return 0;
}

static int eval_segment(struct builder *b, const struct node *n, struct operand *out)
{
    char segment[32] = "";
    struct axis col;
    uint64_t first = 0;
    struct operand x;
    enum place place;
    struct inst *inst;

    if (eval_tree(b, n->kid, &x) < 0)
        return -1;
    x.at = n->kid->at;
    if (n->len < sizeof(segment))
        memcpy(segment, n->text, n->len);
    if (x.kind == OPERAND_WEIGHT && !x.segment[0]) {
        *out = x;
        memcpy(out->segment, segment, sizeof(segment));
        return 0;
    }
    if (x.kind == OPERAND_INDEX && x.whole)
        return name_column(b, n, &x, out);
    if (build_need_value(b, &x) < 0)
        return -1;
    if (!axis_segment(&col, &b->type[x.index].col, segment))
        return build_error(b, n->at, "no segment is called '%.*s'", (int)n->len,
                           n->text);
    place = b->p->value[x.index].place;
    for (int i = 0; i < b->type[x.index].col.n; i++) {
        const struct leaf *l = &b->type[x.index].col.leaf[i];

        if (!strcmp(l->segment, segment))
            break;
        first += place == PLACE_CUT ? axis_count(&b->type[x.index].col, l->segment,
                                                 &b->m->scope, b->share)
                                    : l->size;
    }
    if (place == PLACE_CUT && !build_cuts(b, &col))
        place = PLACE_WHOLE;
    inst = build_emit(b, OP_SEGMENT, &col, place, b->p->value[x.index].rows);
    axis_clear(&col);
    inst->src[inst->nsrc++] = x.index;
    inst->segment.first = first;
    build_operand(out, inst);
    return 0;
}

/* ---- repetition ---- */

/* Number of values of the capture that N names; -1: no capture has this name. */
static int64_t count_of(struct builder *b, const struct node *n)
{
    const struct family_table *t = &model_family(b->m)->captures;

    for (size_t i = 0; i < t->n && n->kind == NODE_NAME; i++)
        for (int k = 0; k < b->m->scope.n && word_is(n, t->v[i].key); k++)
            if (!strcmp(b->m->scope.sym[k].name, json_string(t->v[i].json)))
                return (int64_t)b->m->scope.sym[k].value;
    return build_error(b, n->at, "'%.*s' is no capture", (int)n->len, n->text);
}

/* Evaluates LINE COUNT times; the name is the value before, at first *x. */
static int run_repeat(struct builder *b, const struct node *repeat,
                      const struct node *line, int64_t count, struct operand *x)
{
    char *name = xstrndup(repeat->text, repeat->len);
    int ret = 0;

    for (b->expert = 0; b->expert < count && ret == 0; b->expert++) {
        b->bind = xgrow(b->bind, &b->bind_cap, b->nbind + 1, sizeof(*b->bind));
        b->bind[b->nbind++] =
            (struct binding){ .name = name, .value = x->index, .depth = 1 };
        ret = eval_tree(b, line, x);
        b->nbind--;
        x->at = line->at;
        ret = ret < 0 ? ret : build_need_value(b, x);
    }
    free(name);
    return ret;
}

/* repeat(capture, name = x : line), with the tensors of each value of the capture. */
static int eval_repeat(struct builder *b, const struct node *n, struct operand *out)
{
    const struct node *from = n->kid->next, *line = from->next;
    int64_t count = count_of(b, n->kid);
    uint64_t nexperts = b->nexperts;
    int experts = b->experts, ret;

    if (count < 0)
        return -1;
    if (b->expert >= 0)
        return build_error(b, n->at, "repeat() inside repeat() or experts()");
    if (line->kind == NODE_LET)
        return build_error(b, line->at, "expected ':'");
    if (eval_tree(b, from, out) < 0)
        return -1;
    out->at = from->at;
    if (build_need_value(b, out) < 0)
        return -1;
    b->experts = NO_EXPERTS;
    b->nexperts = 0; /* one weight for each value, not one after another */
    ret = run_repeat(b, n, line, count, out);
    b->experts = experts;
    b->nexperts = nexperts;
    b->expert = -1;
    return ret;
}

int eval_tree(struct builder *b, const struct node *n, struct operand *out)
{
    *out = (struct operand){ .kind = OPERAND_ABSENT };
    if (skip_dropout(b, &n) < 0)
        return -1;
    switch (n->kind) {
    case NODE_NUMBER:
        *out = (struct operand){ .kind = OPERAND_NUMBER, .number = n->number };
        return 0;
    case NODE_NAME:
        return eval_name(b, n, out);
    case NODE_CALL:
        return rules_call(b, n, out);
    case NODE_SUM:
        return eval_sum(b, n, out);
    case NODE_PRODUCT:
        return eval_product(b, n, out);
    case NODE_SEGMENT:
        return eval_segment(b, n, out);
    case NODE_EACH:
        return mixture_each(b, n, out);
    case NODE_REPEAT:
        return eval_repeat(b, n, out);
    case NODE_OPTION:
    case NODE_LET:
        break;
    }
    return build_error(b, n->at, "expected an operand");
}
