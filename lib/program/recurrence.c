/* recurrence - how scans are typed and placed
 *
 * Heads are the digits of the values' columns before the last; the digits of keys and
 * queries before their last are the first of these, so that several heads read one key.
 * A scan is sharded by its heads, or where each column is a head, by columns. */
#include <math.h>
#include <string.h>

#include "lib/program/build.h"

static const struct kind {
    const char *word;
    int values, weights, absent;
} kinds[] = {
#define ROW(id, word, values, weights, absent) \
    [SCAN_##id] = { #word, values, weights, absent },
    SCANS(ROW)
#undef ROW
};

int scan_kind_find(const char *name, size_t len)
{
    for (int i = 0; i < SCAN_KINDS; i++)
        if (strlen(kinds[i].word) == len && !memcmp(kinds[i].word, name, len))
            return i;
    return -1;
}

/* True if the first N digits of A and B are the same. */
static bool alike(const struct leaf *a, const struct leaf *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a->digit[i].sym != b->digit[i].sym || a->digit[i].size != b->digit[i].size)
            return false;
    return true;
}

/* True if A has the first N digits of L, and these alone. */
static bool is_first(const struct axis *a, const struct leaf *l, int n)
{
    return a->n == 1 && a->leaf[0].n == n && alike(&a->leaf[0], l, n);
}

static struct share share_of(const struct builder *b, const struct digit *d)
{
    if (d->sym >= 0 && b->m->scope.sym[d->sym].dealt)
        return b->share[d->sym];
    return (struct share){ .count = d->size, .owned = true };
}

static bool is_dealt(const struct builder *b, const struct digit *d)
{
    return d->sym >= 0 && b->m->scope.sym[d->sym].dealt;
}

/* The weight of O, whose elements are those of the first N digits of L.  Axes of size 1
 * beside these are not seen. */
static int vector_over(struct builder *b, const struct operand *o, const struct leaf *l,
                       int n)
{
    const struct model_tensor *t =
        o->kind == OPERAND_WEIGHT ? build_tensor(b, o->tensor) : NULL;
    const struct axis *over = NULL;

    t = build_need_weight(b, o, t ? t->ndim : 1);
    for (int i = 0; t && i < t->ndim; i++) {
        if (t->axis[i]->size == 1 && (over || i + 1 < t->ndim))
            continue;
        if (over && over->size != 1)
            return build_error(b, o->at, "expected a vector");
        over = t->axis[i];
    }
    if (!t)
        return -1;
    return is_first(over, l, n)
               ? 0
               : build_error(b, o->at, "tensor '%s' has not an element for each head",
                             t->key);
}

/* Fills in the heads of V, and what reads K. */
static int matrix_layout(struct builder *b, const struct operand *arg, struct inst *to)
{
    const struct axis *v = &b->type[arg[0].index].col, *k = &b->type[arg[1].index].col;
    const struct leaf *lv = &v->leaf[0], *lk = &k->leaf[0];
    int nv = lv->n - 1, nk = lk->n - 1;

    if (v->n != 1 || k->n != 1 || nv < 0 || nk < 0 || nk > nv || !alike(lv, lk, nk) ||
        is_dealt(b, &lv->digit[nv]) || is_dealt(b, &lk->digit[nk]))
        return build_type_error(b, arg[1].at, "the heads of values and keys", v, k);
    to->scan.heads = to->scan.within = to->scan.all = 1;
    for (int i = 0; i < nv; i++) {
        struct share s = share_of(b, &lv->digit[i]);

        to->scan.first = to->scan.first * lv->digit[i].size + s.start;
        to->scan.all *= lv->digit[i].size;
        to->scan.heads *= s.count;
        to->scan.within *= i < nk ? 1 : s.count;
    }
    to->scan.keys = lk->digit[nk].size;
    to->scan.values = lv->digit[nv].size;
    return 0;
}

/* Each column of V is a head: their states lie side by side. */
static int column_layout(struct builder *b, const struct operand *arg, uint64_t keys,
                         struct inst *to)
{
    const struct axis *v = &b->type[arg[0].index].col;

    if (v->n != 1)
        return build_error(b, arg[0].at, "expected a value of one segment");
    to->scan.heads = to->scan.within = to->scan.all = 1;
    to->scan.keys = keys;
    to->scan.values = axis_count(v, NULL, &b->m->scope, b->share);
    return 0;
}

/* Fails unless source I has the columns of the first N digits of L. */
static int need_columns(struct builder *b, const struct operand *arg, int i,
                        const struct leaf *l, int n)
{
    const struct axis *a = &b->type[arg[i].index].col;

    return is_first(a, l, n) ? 0
                             : build_type_error(b, arg[i].at, "the heads",
                                                &b->type[arg[0].index].col, a);
}

/* Sources and weights of a state [keys][values] for each head. */
static int type_matrix(struct builder *b, const struct kind *kind,
                       const struct operand *arg, struct inst *to)
{
    const struct leaf *v = &b->type[arg[0].index].col.leaf[0], *k;
    int n = v->n - 1;

    if (matrix_layout(b, arg, to) < 0)
        return -1;
    k = &b->type[arg[1].index].col.leaf[0];
    if (need_columns(b, arg, 2, k, k->n) < 0)
        return -1;
    if (kind->values > 3) {
        const struct axis *dt = &b->type[arg[3].index].col;
        const struct leaf *l = &dt->leaf[0];

        to->scan.each = to->scan.kind == SCAN_DELTA && dt->n == 1 && l->n == n + 1 &&
                        alike(l, v, n) && l->digit[n].sym == k->digit[k->n - 1].sym &&
                        l->digit[n].size == k->digit[k->n - 1].size;
        if (!to->scan.each && need_columns(b, arg, 3, v, n) < 0)
            return -1;
    }
    if (kind->values > 4 && need_columns(b, arg, 4, v, n) < 0)
        return -1;
    for (int i = 0; i < kind->weights; i++)
        if (arg[kind->values + i].kind != OPERAND_ABSENT &&
            vector_over(b, &arg[kind->values + i], v, n) < 0)
            return -1;
    return 0;
}

/* The selective scan: rates [columns of v][columns of k], one key for all. */
static int type_selective(struct builder *b, const struct operand *arg, struct inst *to)
{
    const struct axis *v = &b->type[arg[0].index].col, *k = &b->type[arg[1].index].col;
    const struct model_tensor *t = build_need_weight(b, &arg[4], 2);

    if (!t)
        return -1;
    if (k->n != 1 || build_cuts(b, k) || !axis_equal(k, t->axis[1]) ||
        !axis_equal(v, t->axis[0]))
        return build_type_error(b, arg[4].at, "the columns and the rates of decay", v,
                                t->axis[0]);
    if (need_columns(b, arg, 2, &k->leaf[0], k->leaf[0].n) < 0 ||
        need_columns(b, arg, 3, &v->leaf[0], v->leaf[0].n) < 0 ||
        column_layout(b, arg, k->size, to) < 0)
        return -1;
    return arg[5].kind == OPERAND_ABSENT
               ? 0
               : vector_over(b, &arg[5], &v->leaf[0], v->leaf[0].n);
}

/* Every source and weight has the columns of the first. */
static int type_columns(struct builder *b, const struct kind *kind,
                        const struct operand *arg, uint64_t keys, struct inst *to)
{
    const struct leaf *v = &b->type[arg[0].index].col.leaf[0];

    for (int i = 1; i < kind->values; i++)
        if (need_columns(b, arg, i, v, v->n) < 0)
            return -1;
    for (int i = 0; i < kind->weights; i++)
        if (vector_over(b, &arg[kind->values + i], v, v->n) < 0)
            return -1;
    return column_layout(b, arg, keys, to);
}

static int type_scan(struct builder *b, const struct kind *kind,
                     const struct operand *arg, struct inst *to)
{
    switch (to->scan.kind) {
    case SCAN_SELECTIVE:
        return type_selective(b, arg, to);
    case SCAN_GATED:
        return type_columns(b, kind, arg, 1, to);
    case SCAN_WKV: /* numerator, denominator, and the largest exponent */
        return type_columns(b, kind, arg, 3, to);
    case SCAN_SSD:
    case SCAN_DELTA:
    case SCAN_LIGHTNING:
    case SCAN_KINDS:
        break;
    }
    return type_matrix(b, kind, arg, to);
}

/* scan(kind, values..., weights...); see recurrence.h */
int apply_scan(struct builder *b, enum op op, const struct node *call,
               const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "least", "most", "slope", NULL };
    struct inst to = { 0 }, *inst;
    const struct kind *kind;
    int src[INST_SOURCES] = { 0 }, fewest;

    int at = arg[0].kind == OPERAND_WORD
                 ? scan_kind_find(arg[0].word, strlen(arg[0].word))
                 : -1;

    if (at < 0)
        return build_error(b, arg[0].at, "expected the kind of scan, such as ssd");
    kind = &kinds[at];
    if (build_check_options(b, call, known) < 0 ||
        build_number_option(b, call, "least", 0, &to.scan.least) < 0 ||
        build_number_option(b, call, "most", INFINITY, &to.scan.most) < 0 ||
        build_number_option(b, call, "slope", 1, &to.scan.slope) < 0)
        return -1;
    to.scan.kind = (enum scan_kind)at;
    fewest = kind->values + kind->weights;
    arg++;
    if (n - 1 != fewest)
        return build_error(b, call->at, "scan(%s, ...) takes %d arguments, not %d",
                           kind->word, fewest + 1, n);
    for (int i = 0; i < kind->values; i++) {
        if (build_need_value(b, &arg[i]) < 0)
            return -1;
        if (b->p->value[arg[i].index].rows != ROWS_TOKENS)
            return build_error(b, arg[i].at, "expected the rows of all tokens");
    }
    for (int i = kind->values; i < n - 1; i++)
        if (arg[i].kind != OPERAND_WEIGHT &&
            (arg[i].kind != OPERAND_ABSENT || i < fewest - kind->absent))
            return build_error(b, arg[i].at, "expected a tensor");
    if (type_scan(b, kind, arg, &to) < 0)
        return -1;
    for (int i = 0; i < kind->values; i++)
        src[i] = build_cut(b, arg[i].index);
    inst = build_unary(b, op, src[0]);
    inst->scan = to.scan;
    memcpy(inst->src, src, (size_t)kind->values * sizeof(*src));
    inst->nsrc = kind->values;
    if (kind->weights > 0)
        inst->weight = build_weight(b, arg[kind->values].tensor);
    if (kind->weights > 1 && arg[kind->values + 1].kind == OPERAND_WEIGHT)
        inst->weight2 = build_weight(b, arg[kind->values + 1].tensor);
    b->p->causal = true;
    build_operand(out, inst);
    return 0;
}
