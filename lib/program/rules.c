/* rules - how each operation of the family language is typed, placed and emitted
 *
 * Contracting a sharded axis gives a partial value.  An operation that is linear in an
 * argument keeps it partial; every other operation needs it replicated. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/program/build.h"

static const struct type *type_of(const struct builder *b, const struct operand *o)
{
    return &b->type[o->index];
}

/* ---- operations ---- */

/* With .deterministic no result stays partial: an operation on a partial value would
 * work on its terms, and round differently on each mesh. */
static void settle(struct builder *b, struct operand *o)
{
    if (b->opt->deterministic && b->p->value[o->index].place == PLACE_PARTIAL)
        o->index = build_whole(b, o->index);
}

/* Declares the position table, of ROWS rows. */
static int declare_table(struct builder *b, size_t at, uint64_t rows)
{
    uint64_t *known = &b->p->rows.v[ROWS_TABLE].bound;

    if (*known && *known != rows)
        return build_error(b, at, "there is a table of %llu rows already",
                           (unsigned long long)*known);
    *known = rows;
    return 0;
}

int apply_embedding(struct builder *b, enum op op, const struct node *call,
                    const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "offset", "minus", NULL };
    const struct model_tensor *t = build_need_weight(b, &arg[1], 2);
    const struct program_input *in;
    const struct axis *rows, *cols;
    bool cut_rows, cut_cols;
    double offset, minus;
    struct inst *inst;
    int dealt;

    (void)n;
    if (!t || build_check_options(b, call, known) < 0 ||
        build_number_option(b, call, "offset", 0, &offset) < 0 ||
        build_number_option(b, call, "minus", -1, &minus) < 0)
        return -1;
    if (arg[0].kind != OPERAND_INDEX)
        return build_error(b, arg[0].at,
                           "expected ids, positions, token_types, every, source, "
                           "source_positions, or another input of whole numbers");
    in = &b->p->input[arg[0].index];
    if (arg[0].whole && in->feed->axis.size != 1)
        return build_error(b, arg[0].at, "'%s' has %llu columns: name one, as in %s.0",
                           in->feed->name, (unsigned long long)in->feed->axis.size,
                           in->feed->name);
    if (!(minus >= -1 && minus < (double)in->feed->axis.size) || minus != floor(minus))
        return build_error(b, call->at, "'minus' is a column of '%s'", in->feed->name);
    rows = t->axis[0];
    cols = t->axis[1];
    cut_rows = build_cuts(b, rows);
    cut_cols = build_cuts(b, cols);
    if (cut_rows && cut_cols)
        return build_error(b, arg[1].at, "the table is sharded on both axes");
    dealt = axis_dealt(rows, &b->m->scope);
    if (in->rows == ROWS_TABLE && declare_table(b, arg[1].at, rows->size) < 0)
        return -1;
    inst = build_emit(b, op, cols,
                      cut_rows   ? PLACE_PARTIAL
                      : cut_cols ? PLACE_CUT
                                 : PLACE_WHOLE,
                      in->rows);
    b->p->source |= in->rows == ROWS_SOURCE;
    inst->weight = build_weight(b, arg[1].tensor);
    inst->embedding.input = arg[0].index;
    inst->embedding.column = arg[0].column;
    inst->embedding.minus = (int)minus;
    inst->embedding.first = cut_rows ? b->share[dealt].start : 0;
    inst->embedding.offset = (uint64_t)offset;
    build_operand(out, inst);
    settle(b, out);
    return 0;
}

int build_symbol(struct builder *b, const struct node *call, int arg, struct digit *out,
                 const char **name)
{
    const struct node *k = call->kid;

    for (; k && (arg || k->kind == NODE_OPTION); k = k->next)
        arg -= k->kind != NODE_OPTION;
    for (int i = 0; k && k->kind == NODE_NAME && i < b->m->scope.n; i++) {
        const struct axis_symbol *sym = &b->m->scope.sym[i];

        if (strlen(sym->name) != k->len || memcmp(sym->name, k->text, k->len) != 0 ||
            sym->dealt)
            continue;
        *out = (struct digit){ .sym = i, .size = sym->value, .stride = 1, .div = 1 };
        *name = sym->name;
        return 0;
    }
    return build_error(b, k ? k->at : call->at,
                       "expected a symbol that is not sharded");
}

/* A weight of a product with more than two axes is read as a matrix: its first axis,
 * and the others as one. */
static const struct model_tensor *matrix_of(struct builder *b, const struct operand *o,
                                            struct axis *first, struct axis *rest)
{
    const struct model_tensor *t =
        o->kind == OPERAND_WEIGHT ? build_tensor(b, o->tensor) : NULL;
    int ndim = t && t->ndim > 2 ? t->ndim : 2;

    t = build_need_weight(b, o, ndim);
    if (!t)
        return NULL;
    if (build_join(b, o, t, 1, rest) < 0)
        return NULL;
    axis_copy(first, t->axis[0]);
    return t;
}

/* x W^T (contracts W's axis 1) or x W (contracts axis 0). */
int apply_product(struct builder *b, enum op op, const struct node *call,
                  const struct operand *arg, int n, struct operand *out)
{
    const struct model_tensor *t;
    struct axis axis[2];
    const struct axis *in = &axis[op == OP_LINEAR], *to = &axis[op != OP_LINEAR];
    bool cut_in, cut_to;
    enum place place;
    struct inst *inst;
    struct weight *w;
    uint64_t n_alike;
    int x = arg[0].index, tree, ret = -1;

    (void)n;
    t = matrix_of(b, &arg[1], &axis[0], &axis[1]);
    if (!t)
        return -1;
    if (build_need_value(b, &arg[0]) < 0 || build_check_options(b, call, NULL) < 0)
        goto out;
    if (!axis_equal(&b->type[x].col, in)) {
        build_type_error(b, arg[1].at,
                         op == OP_LINEAR ? "linear contracts" : "matmul contracts",
                         &b->type[x].col, in);
        goto out;
    }
    cut_in = build_cuts(b, in);
    cut_to = build_cuts(b, to);
    if (cut_in && cut_to) {
        build_error(b, arg[1].at, "tensor '%s' is sharded on both axes", t->key);
        goto out;
    }
    if (build_tree(b, in, &tree) < 0)
        goto out;
    if (cut_in)
        x = build_cut(b, x);
    else if (b->p->value[x].place != PLACE_PARTIAL || cut_to)
        x = build_whole(b, x);
    place = cut_in ? PLACE_PARTIAL : cut_to ? PLACE_CUT : b->p->value[x].place;
    inst = build_emit(b, op, to, place, b->p->value[x].rows);
    inst->src[inst->nsrc++] = x;
    inst->weight = build_weight(b, arg[1].tensor);
    w = &b->p->weight[inst->weight];
    n_alike = w->experts + !w->experts;
    for (uint64_t k = 0; t->ndim > 2 && k < n_alike; k++) {
        w[k].rows = axis_count(&axis[0], NULL, &b->m->scope, b->share);
        w[k].cols = axis_count(&axis[1], NULL, &b->m->scope, b->share);
    }
    inst->tree = tree;
    build_operand(out, inst);
    settle(b, out);
    ret = 0;
out:
    axis_clear(&axis[0]);
    axis_clear(&axis[1]);
    return ret;
}

/* True if the digits of T's axes, one axis after another, are the last digits of X,
 * which has one unnamed leaf. */
static bool is_suffix(const struct axis *x, const struct model_tensor *t)
{
    const struct leaf *a = &x->leaf[0];
    int end = x->n == 1 ? a->n : 0;

    if (t->ndim == 1 && axis_equal(x, t->axis[0]))
        return true; /* all columns, which may be segments */
    for (int i = t->ndim - 1; i >= 0; i--) {
        const struct leaf *c = &t->axis[i]->leaf[0];

        if (t->axis[i]->n != 1 || c->n > end)
            return false;
        end -= c->n;
        for (int k = 0; k < c->n; k++)
            if (a->digit[end + k].sym != c->digit[k].sym ||
                a->digit[end + k].size != c->digit[k].size)
                return false;
    }
    return true;
}

static bool owns(const struct builder *b, const struct axis *a)
{
    struct runs r;
    bool owned = true;

    axis_runs(&r, a, &b->m->scope, b->share);
    for (size_t i = 0; i < r.n; i++)
        owned &= r.v[i].owned;
    runs_clear(&r);
    return owned;
}

/* Emits OP on X with LAYOUT's fields; the result has X's type. */
static struct inst *norm_step(struct builder *b, enum op op, int x,
                              const struct inst *layout)
{
    struct inst *inst = build_unary(b, op, x);

    inst->norm = layout->norm;
    return inst;
}

/* Emits OP, which sums over the columns of X, and the all-reduce if X is sharded. */
static int norm_sum(struct builder *b, enum op op, int x, int sum,
                    const struct inst *layout)
{
    uint64_t n = layout->norm.groups ? layout->norm.groups : 1;
    struct inst *inst = build_emit_plain(b, op, n, DTYPE_F64, b->p->value[x].rows);

    inst->norm = layout->norm;
    inst->src[inst->nsrc++] = x;
    if (sum >= 0)
        inst->src[inst->nsrc++] = sum;
    if (b->p->value[x].place != PLACE_CUT)
        return inst->dst;
    b->p->value[inst->dst].place = PLACE_PARTIAL;
    return build_sum(b, inst->dst, MESH_TP);
}

/* A norm whose columns are sharded here or on other meshes: the sums of each row, their
 * all-reduce, and the normalization by these sums. */
static struct inst *norm_over_ranks(struct builder *b, enum op op, int x,
                                    const struct inst *layout)
{
    bool centred = op == OP_LAYERNORM;
    int sum = centred ? norm_sum(b, OP_ROW_SUM, x, -1, layout) : -1;
    int squares = norm_sum(b, OP_ROW_SQUARES, x, sum, layout);
    struct inst *inst =
        norm_step(b, centred ? OP_LAYER_APPLY : OP_RMS_APPLY, x, layout);

    inst->src[inst->nsrc++] = squares;
    if (centred)
        inst->src[inst->nsrc++] = sum;
    return inst;
}

/* Groups of SIZE columns, which are the last digits of A: their columns on this rank go
 * to *TO.  *SPLIT: some ranks have a part of a group.  False if there are none. */
static bool norm_groups(const struct builder *b, const struct axis *a, double size,
                        struct inst *to, bool *split)
{
    const struct leaf *l = &a->leaf[0];
    uint64_t width = 1, here = 1, ranks = 1;
    bool dealt = false;
    int at = l->n;

    while (a->n == 1 && at > 1 && (double)width < size) {
        const struct digit *d = &l->digit[--at];
        bool own = d->sym >= 0 && b->m->scope.sym[d->sym].dealt;

        width *= d->size;
        here *= own ? b->share[d->sym].count : d->size;
        dealt |= own;
    }
    if ((double)width != size)
        return false;
    to->norm.groups = 1;
    while (at-- > 0) {
        const struct digit *d = &l->digit[at];
        bool own = d->sym >= 0 && b->m->scope.sym[d->sym].dealt;

        to->norm.first += own ? b->share[d->sym].start * to->norm.groups : 0;
        to->norm.groups *= d->size;
        ranks *= own ? d->size : 1;
    }
    to->norm.whole_width = width;
    to->norm.width = here;
    *split = dealt && (uint64_t)b->p->mesh.size[MESH_TP] > ranks;
    return true;
}

/* norm(x, [weight, [bias,]] eps): over the last axis of the weight, or over all columns
 * of x without a weight. */
int apply_norm(struct builder *b, enum op op, const struct node *call,
               const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "plus", "each", NULL };
    const struct operand *eps = &arg[n - 1];
    const struct axis *over;
    struct inst layout = { 0 }, *inst;
    bool over_ranks = false;
    double plus, each;
    int x;

    if (build_need_value(b, &arg[0]) < 0 || build_check_options(b, call, known) < 0 ||
        build_number_option(b, call, "plus", 0, &plus) < 0 ||
        build_number_option(b, call, "each", 0, &each) < 0)
        return -1;
    if (eps->kind != OPERAND_NUMBER)
        return build_error(b, eps->at, "expected a number (epsilon) last");
    if (n > (op == OP_LAYERNORM ? 4 : 3))
        return build_error(b, arg[3].at, "too many arguments");
    x = arg[0].index;
    if (b->p->value[x].place == PLACE_PARTIAL)
        x = build_whole(b, x);
    over = &b->type[x].col;
    for (int i = 1; i < n - 1; i++) {
        const struct model_tensor *t;

        if (arg[i].kind == OPERAND_ABSENT)
            continue;
        t = build_need_weight(
            b, &arg[i],
            arg[i].kind == OPERAND_WEIGHT && b->m->tensor[arg[i].tensor].ndim == 2 ? 2
                                                                                   : 1);
        if (!t)
            return -1;
        over = t->axis[t->ndim - 1];
        if (!is_suffix(&b->type[x].col, t))
            return build_type_error(b, arg[i].at, "the norm's weight", &b->type[x].col,
                                    over);
    }
    if (each > 0 && (n > 2 || !norm_groups(b, over, each, &layout, &over_ranks)))
        return build_error(b, call->at,
                           "'each' must be the last factors of the columns, without a "
                           "weight");
    if (over_ranks && (op == OP_LAYERNORM || b->opt->deterministic))
        return op == OP_LAYERNORM
                   ? build_error(b, call->at,
                                 "ranks that have a part of a group cannot norm it")
                   : (err_set(b->err, ERR_INPUT,
                              "tp %d: deterministic sums need whole groups of a norm "
                              "on each rank",
                              b->p->mesh.size[MESH_TP]),
                      -1);
    if (each <= 0)
        layout.norm.whole_width = layout.norm.width = over->size;
    else if (!over_ranks)
        layout.norm.groups = layout.norm.first = 0;
    layout.norm.eps = eps->number;
    layout.norm.plus_one = plus != 0;
    layout.norm.owned = true;
    if (each <= 0 && build_tree(b, over, &layout.norm.tree) < 0)
        return -1;
    if (each <= 0 && b->p->value[x].place == PLACE_CUT && build_cuts(b, over)) {
        layout.norm.width = axis_count(over, NULL, &b->m->scope, b->share);
        layout.norm.owned = owns(b, over);
        over_ranks = true;
    }
    if (over_ranks || layout.norm.tree) {
        inst = norm_over_ranks(b, op, x, &layout);
    } else {
        inst = norm_step(b, op, x, &layout);
    }
    if (n > 2 && arg[1].kind == OPERAND_WEIGHT)
        inst->weight = build_vector(b, arg[1].tensor);
    if (n > 3 && arg[2].kind == OPERAND_WEIGHT)
        inst->weight2 = build_vector(b, arg[2].tensor);
    build_operand(out, inst);
    return 0;
}

/* op(x), for operations that need no more than their row of the table. */
int apply_elementwise(struct builder *b, enum op op, const struct node *call,
                      const struct operand *arg, int n, struct operand *out)
{
    (void)n;
    if (build_need_value(b, &arg[0]) < 0 || build_check_options(b, call, NULL) < 0)
        return -1;
    build_operand(out, build_unary(b, op, arg[0].index));
    return 0;
}

static int emit_activation(struct builder *b, const struct operand *x, int act,
                           struct operand *out)
{
    struct inst *inst;

    if (build_need_value(b, x) < 0)
        return -1;
    inst = build_unary(b, OP_ACTIVATION, x->index);
    inst->act = (enum activation)act;
    build_operand(out, inst);
    return 0;
}

int apply_activation(struct builder *b, enum op op, const struct node *call,
                     const struct operand *arg, int n, struct operand *out)
{
    int act;

    (void)op;
    (void)n;
    if (build_check_options(b, call, NULL) < 0)
        return -1;
    if (arg[1].kind != OPERAND_WORD)
        return build_error(b, arg[1].at, "expected the name of an activation");
    act = activation_find(arg[1].word, strlen(arg[1].word));
    if (act < 0)
        return build_error(b, arg[1].at, "no activation is called '%s'", arg[1].word);
    return emit_activation(b, &arg[0], act, out);
}

/* xielu(x, above, below): two weights of one element. */
int apply_xielu(struct builder *b, enum op op, const struct node *call,
                const struct operand *arg, int n, struct operand *out)
{
    struct inst *inst;

    if (build_need_value(b, &arg[0]) < 0 || build_check_options(b, call, NULL) < 0)
        return -1;
    for (int i = 1; i < n; i++) {
        const struct axis *over;

        if (!build_need_vector(b, &arg[i], &over))
            return -1;
        if (over->size != 1)
            return build_error(b, arg[i].at, "expected a tensor of one element");
    }
    inst = build_unary(b, op, arg[0].index);
    inst->weight = build_weight(b, arg[1].tensor);
    inst->weight2 = build_weight(b, arg[2].tensor);
    build_operand(out, inst);
    return 0;
}

/* temper(x, step, amount): each row by what its token's position says. */
int apply_temper(struct builder *b, enum op op, const struct node *call,
                 const struct operand *arg, int n, struct operand *out)
{
    struct inst *inst;

    (void)n;
    if (build_need_value(b, &arg[0]) < 0 || build_check_options(b, call, NULL) < 0)
        return -1;
    if (arg[1].kind != OPERAND_NUMBER || !(arg[1].number >= 1) ||
        arg[2].kind != OPERAND_NUMBER)
        return build_error(b, arg[1].at, "expected a step from 1 and an amount");
    if (!build_has_all_rows(b, &arg[0]))
        return build_error(b, arg[0].at, "temper needs the rows of all tokens");
    inst = build_unary(b, op, arg[0].index);
    inst->temper.step = arg[1].number;
    inst->temper.amount = arg[2].number;
    build_operand(out, inst);
    return 0;
}

/* softcap(x, c) and clip(x, c); x itself if c is absent. */
int apply_bound(struct builder *b, enum op op, const struct node *call,
                const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "above", NULL };
    struct inst *inst;
    double above;

    (void)n;
    if (build_need_value(b, &arg[0]) < 0 ||
        build_check_options(b, call, op == OP_CLIP ? known : NULL) < 0 ||
        build_number_option(b, call, "above", 0, &above) < 0)
        return -1;
    if (arg[1].kind == OPERAND_ABSENT) {
        *out = arg[0];
        return 0;
    }
    if (arg[1].kind != OPERAND_NUMBER || !(arg[1].number > 0))
        return build_error(b, arg[1].at, "expected a number above 0");
    inst = build_unary(b, op, arg[0].index);
    if (op == OP_SOFTCAP) {
        inst->scalar = arg[1].number;
    } else {
        inst->clip.most = arg[1].number;
        inst->clip.least = above != 0 ? -INFINITY : -arg[1].number;
    }
    build_operand(out, inst);
    return 0;
}

double build_drop_rate(const struct builder *b, double rate)
{
    if (!b->opt->reverse)
        return 0;
    return b->opt->dropout < 0 ? rate : b->opt->dropout;
}

/* FNV-1a (Fowler, Noll and Vo). */
uint64_t build_site(const struct builder *b, size_t at)
{
    char *text = str_dupf("%d.%d.%s.%zu", b->section, b->layer, b->line->name, at);
    uint64_t h = 0xCBF29CE484222325;

    for (const char *p = text; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001B3;
    free(text);
    return h;
}

/* dropout(x, rate) with a rate above 0; eval.c removes the others. */
int apply_dropout(struct builder *b, enum op op, const struct node *call,
                  const struct operand *arg, int n, struct operand *out)
{
    struct inst *inst;
    double rate;

    (void)n;
    if (build_need_value(b, &arg[0]) < 0 || build_check_options(b, call, NULL) < 0)
        return -1;
    rate = build_drop_rate(b, arg[1].kind == OPERAND_NUMBER ? arg[1].number : 0);
    if (!(rate > 0 && rate < 1))
        return build_error(b, arg[1].at, "expected a rate from 0 to below 1");
    if (b->p->value[arg[0].index].rows != ROWS_TOKENS)
        return build_error(b, arg[0].at,
                           "rows that are not the tokens' are not dropped");
    inst = build_unary(b, op, arg[0].index);
    inst->drop.rate = rate;
    inst->drop.site = build_site(b, call->at);
    inst->drop.gather = b->p->value[inst->dst].place == PLACE_CUT
                            ? build_gather(b, &b->type[inst->dst].col)
                            : -1;
    build_operand(out, inst);
    return 0;
}

/* The angles of rotary table TABLE for the positions of rows ROWS; emitted once. */
static int angles_of(struct builder *b, int table, int rows)
{
    int *made = &b->angles[(size_t)table * ROWS_MOST + rows];

    if (*made < 0) {
        struct inst *inst =
            build_emit_plain(b, OP_ANGLES, b->p->rope[table].dim, DTYPE_F32, rows);

        inst->rope.table = table;
        *made = inst->dst;
        b->p->value[*made].section = 0; /* in no layer: put_first moves it */
        b->p->value[*made].layer = model_sections(b->m, NULL)[0].repeated ? 0 : -1;
    }
    return *made;
}

/* Columns of a head: the last digit of X. */
static uint64_t head_size(const struct axis *x)
{
    const struct leaf *l = &x->leaf[0];

    return l->n ? l->digit[l->n - 1].size : 1;
}

/* The angles that rope's third argument brings: as many columns as table TABLE turns,
 * for the rows of X; or -1. */
static int given_angles(struct builder *b, const struct operand *given, int table,
                        const struct operand *x)
{
    uint64_t dim = b->p->rope[table].dim;

    if (build_need_value(b, given) < 0)
        return -1;
    if (b->p->value[given->index].rows != b->p->value[x->index].rows)
        return build_error(b, given->at, "the rows differ");
    if (type_of(b, given)->col.size != dim)
        return build_error(
            b, given->at, "the table turns %llu columns, the value has %llu",
            (unsigned long long)dim, (unsigned long long)type_of(b, given)->col.size);
    return build_whole(b, given->index);
}

int apply_rope(struct builder *b, enum op op, const struct node *call,
               const struct operand *arg, int n, struct operand *out)
{
    uint64_t head;
    struct inst *inst;
    int angles;

    if (build_need_value(b, &arg[0]) < 0 || build_check_options(b, call, NULL) < 0)
        return -1;
    if (arg[1].kind != OPERAND_ROPE)
        return build_error(b, arg[1].at, "expected a rotary table of the family");
    if (!build_has_all_rows(b, &arg[0]))
        return build_error(b, arg[0].at, "rope needs the rows of all tokens");
    if (type_of(b, &arg[0])->col.n != 1)
        return build_error(b, arg[0].at, "rope needs one segment");
    head = head_size(&type_of(b, &arg[0])->col);
    if (b->p->rope[arg[1].index].dim > head)
        return build_error(
            b, arg[1].at, "the table turns %llu columns, a head has %llu",
            (unsigned long long)b->p->rope[arg[1].index].dim, (unsigned long long)head);
    if (b->p->value[arg[0].index].rows == ROWS_SOURCE &&
        (b->p->rope[arg[1].index].dynamic || b->p->rope[arg[1].index].long_freq))
        return build_error(b, arg[1].at,
                           "a source's angles do not depend on its length");
    angles = n == 3 ? given_angles(b, &arg[2], arg[1].index, &arg[0])
                    : angles_of(b, arg[1].index, b->p->value[arg[0].index].rows);
    if (angles < 0)
        return -1;
    inst = build_unary(b, op, arg[0].index);
    inst->src[inst->nsrc++] = angles;
    inst->rope.table = arg[1].index;
    inst->rope.head = head;
    build_operand(out, inst);
    return 0;
}

/* sinusoid(every, table, n, rows = R): a position table of R rows with the symbol n of
 * columns, of the positions -R/2 to R/2 - 1. */
static int sinusoid_table(struct builder *b, enum op op, const struct node *call,
                          const struct rope *r, struct operand *out)
{
    struct leaf leaf = { .n = 1 };
    struct axis col = { .n = 1, .block = 1, .leaf = &leaf };
    const char *name;
    struct inst *inst;
    double rows = 0;

    if (build_number_option(b, call, "rows", 0, &rows) < 0 ||
        build_symbol(b, call, 2, &leaf.digit[0], &name) < 0)
        return -1;
    col.text = (char *)name;
    col.size = leaf.size = leaf.digit[0].size;
    if (!(rows >= 2 && rows <= INT32_MAX) || r->dim != col.size)
        return build_error(b, call->at,
                           "expected as many columns as the table has, and 'rows'");
    if (declare_table(b, call->at, (uint64_t)rows) < 0)
        return -1;
    inst = build_emit(b, op, &col, PLACE_WHOLE, ROWS_TABLE);
    inst->rope.offset = -(int64_t)rows / 2;
    build_operand(out, inst);
    return 0;
}

/* sinusoid(x, table): position encodings of Vaswani et al. 2017, arXiv:1706.03762,
 * section 3.5, in fairseq's order: all sines, then all cosines. */
int apply_sinusoid(struct builder *b, enum op op, const struct node *call,
                   const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "offset", "rows", NULL };
    bool every = arg[0].kind == OPERAND_INDEX && arg[0].index == FEED_EVERY;
    const struct rope *r;
    double offset;
    struct inst *inst;

    if ((!every && build_need_value(b, &arg[0]) < 0) ||
        build_check_options(b, call, known) < 0 ||
        build_number_option(b, call, "offset", 0, &offset) < 0)
        return -1;
    if (arg[1].kind != OPERAND_ROPE)
        return build_error(b, arg[1].at, "expected a rotary table of the family");
    r = &b->p->rope[arg[1].index];
    if (r->dynamic || r->long_freq)
        return build_error(b, arg[1].at, "the table depends on the number of tokens");
    if (every != (n == 3))
        return build_error(b, call->at, "only 'every' takes a third argument");
    if (every && sinusoid_table(b, op, call, r, out) < 0)
        return -1;
    if (every) {
        b->p->inst[b->p->value[out->index].first].rope.table = arg[1].index;
        return 0;
    }
    if (!build_has_all_rows(b, &arg[0]))
        return build_error(b, arg[0].at, "sinusoid needs the rows of all tokens");
    if (r->dim != type_of(b, &arg[0])->col.size ||
        build_cuts(b, &type_of(b, &arg[0])->col))
        return build_error(b, arg[1].at, "the table has %llu columns, the value %llu",
                           (unsigned long long)r->dim,
                           (unsigned long long)type_of(b, &arg[0])->col.size);
    inst = build_unary(b, op, arg[0].index);
    inst->rope.table = arg[1].index;
    inst->rope.offset = (int64_t)offset;
    build_operand(out, inst);
    return 0;
}

int apply_keep(struct builder *b, enum op op, const struct node *call,
               const struct operand *arg, int n, struct operand *out)
{
    struct program *p = b->p;
    struct inst *inst;

    (void)n;
    if (build_need_value(b, &arg[0]) < 0 || build_check_options(b, call, NULL) < 0)
        return -1;
    if (!build_has_all_rows(b, &arg[0]))
        return build_error(b, arg[0].at, "keep needs the rows of all tokens");
    if (b->opt->reverse || b->opt->whole) { /* whole sequences: no cache */
        *out = (struct operand){ .kind = OPERAND_VALUE,
                                 .index = build_cut(b, arg[0].index) };
        return 0;
    }
    inst = build_unary(b, op, build_cut(b, arg[0].index));
    inst->keep.slot = p->nslots;
    p->value[inst->dst].kept = true;
    p->slot_value =
        xrealloc(p->slot_value, sizeof(*p->slot_value) * (size_t)(p->nslots + 1));
    p->slot_value[p->nslots++] = inst->dst;
    build_operand(out, inst);
    return 0;
}

int apply_first(struct builder *b, enum op op, const struct node *call,
                const struct operand *arg, int n, struct operand *out)
{
    struct inst *inst;
    int first;

    (void)n;
    if (build_need_value(b, &arg[0]) < 0 || build_check_options(b, call, NULL) < 0)
        return -1;
    if (rows_root(&b->p->rows, b->p->value[arg[0].index].rows) != ROWS_TOKENS)
        return build_error(b, arg[0].at, "first needs the rows of all tokens");
    inst = build_unary(b, op, arg[0].index);
    first = inst->dst;
    b->p->value[first].rows = ROWS_ONE;
    *out =
        (struct operand){ .kind = OPERAND_VALUE, .index = build_shared_rows(b, first) };
    return 0;
}

/* The operation whose name in the language is the N bytes at NAME, or NULL. */
static const struct op_info *find_op(const char *name, size_t n)
{
    for (int op = 0; op < OP_COUNT; op++)
        if (op_table[op].apply && strlen(op_table[op].name) == n &&
            !memcmp(op_table[op].name, name, n))
            return &op_table[op];
    return NULL;
}

/* Words that are no operation of their own: they emit OP. */
static const struct form {
    const char *name;
    enum op op;
    int least, most;
    build_rule *apply;
} forms[] = {
    { "join", OP_CONCAT, 2, 5, apply_join },
    { "view", OP_SEGMENT, 1, 1, apply_view },
};

/* Word, least and most number of arguments, and rule of what CALL names; false if no
 * operation has its name. */
static bool find_form(const struct node *call, struct form *out)
{
    const struct op_info *rule = find_op(call->text, call->len);

    if (rule)
        *out = (struct form){ rule->name, (enum op)(rule - op_table), rule->least,
                              rule->most, rule->apply };
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms) && !rule; i++)
        if (strlen(forms[i].name) == call->len &&
            !memcmp(forms[i].name, call->text, call->len)) {
            *out = forms[i];
            return true;
        }
    return rule != NULL;
}

enum { MAX_ARGS = 7 };

int rules_call(struct builder *b, const struct node *call, struct operand *out)
{
    struct operand arg[MAX_ARGS];
    struct form form = { .least = 1, .most = 1 };
    bool known = find_form(call, &form);
    int n = 0, act;

    act = known ? -1 : activation_find(call->text, call->len);
    if (!known && act < 0)
        return build_error(b, call->at, "no operation is called '%.*s'", (int)call->len,
                           call->text);
    for (const struct node *k = call->kid; k; k = k->next) {
        if (k->kind == NODE_OPTION)
            continue;
        if (n == MAX_ARGS)
            return build_error(b, k->at, "too many arguments");
        if (eval_tree(b, k, &arg[n]) < 0)
            return -1;
        arg[n++].at = k->at;
    }
    if (form.least == form.most && n != form.least)
        return build_error(b, call->at, "'%.*s' takes %d argument%s, not %d",
                           (int)call->len, call->text, form.least,
                           form.least == 1 ? "" : "s", n);
    if (n < form.least || n > form.most)
        return build_error(b, call->at, "'%.*s' takes %d to %d arguments, not %d",
                           (int)call->len, call->text, form.least, form.most, n);
    if (!known)
        return emit_activation(b, &arg[0], act, out);
    return form.apply(b, form.op, call, arg, n, out);
}
