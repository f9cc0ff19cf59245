/* build - a program under construction: values with types and placements */
#include "lib/program/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* The symbol of the family whose name begins at TEXT, or NULL. */
static const struct family_entry *symbol_at(const struct model *m, const char *text)
{
    char name[64];
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz_0123456789");

    snprintf(name, sizeof(name), "%.*s", (int)n, text);
    return n && n < sizeof(name) ? family_get(&model_family(m)->symbols, name) : NULL;
}

int build_error(struct builder *b, size_t at, const char *fmt, ...)
{
    const struct family_entry *symbol =
        at < strlen(b->line->text) ? symbol_at(b->m, b->line->text + at) : NULL;
    char what[700];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    if (symbol && json_string(symbol->json)) /* the config may lack its key */
        return family_error(b->line->doc, b->line->json, (size_t)b->line->skip + at,
                            b->err, "%s: '%s' (%s): %s", model_config_name(b->m),
                            symbol->key, json_string(symbol->json), what);
    return family_error(b->line->doc, b->line->json, (size_t)b->line->skip + at, b->err,
                        "%s", what);
}

bool build_cuts(const struct builder *b, const struct axis *a)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < a->leaf[i].n; k++) {
            int sym = a->leaf[i].digit[k].sym;
            int over = sym < 0 ? -1 : model_dealt_over(b->m, sym);

            if (over >= 0 && b->p->mesh.size[over] > 1)
                return true;
        }
    return false;
}

struct inst *build_emit(struct builder *b, enum op op, const struct axis *col,
                        enum place place, int rows)
{
    struct program *p = b->p;
    struct inst *inst;
    int v = p->nvalues++;

    p->value = xgrow(p->value, &b->value_cap, (size_t)p->nvalues, sizeof(*p->value));
    b->type = xgrow(b->type, &b->type_cap, (size_t)p->nvalues, sizeof(*b->type));
    p->inst = xgrow(p->inst, &b->inst_cap, (size_t)p->ninsts + 1, sizeof(*p->inst));
    b->type[v] = (struct type){ .whole = -1, .cut = -1, .taken = -1 };
    axis_copy(&b->type[v].col, col);
    p->value[v] = (struct value){
        .section = b->section,
        .layer = b->layer,
        .rows = rows,
        .mixture = rows == ROWS_SENT || rows == ROWS_CHOSEN ? b->mixture : -1,
        .place = place,
        .dtype = DTYPE_F32,
        .cols = place == PLACE_CUT ? axis_count(col, NULL, &b->m->scope, b->share)
                                   : col->size,
        .whole_cols = col->size,
        .first = p->ninsts,
        .last = p->ninsts,
    };
    inst = &p->inst[p->ninsts++];
    *inst = (struct inst){ .op = op,
                           .dst = v,
                           .weight = -1,
                           .weight2 = -1,
                           .line = p->nlines ? p->nlines - 1 : 0,
                           .mixture = b->mixture };
    return inst;
}

struct inst *build_emit_plain(struct builder *b, enum op op, uint64_t n,
                              enum dtype dtype, int rows)
{
    struct leaf leaf = { .size = n };
    struct axis col = {
        .text = (char *)"", .leaf = &leaf, .n = 1, .size = n, .block = 1
    };
    struct inst *inst = build_emit(b, op, &col, PLACE_WHOLE, rows);

    b->p->value[inst->dst].dtype = dtype;
    return inst;
}

/* True inside experts() for a tensor whose first axis counts all experts. */
static bool is_of_experts(const struct builder *b, const struct model_tensor *t)
{
    const struct leaf *l = t->ndim > 1 ? &t->axis[0]->leaf[0] : NULL;

    return l && b->expert >= 0 && t->expert < 0 && t->axis[0]->n == 1 && l->n == 1 &&
           l->digit[0].sym == b->experts;
}

const struct model_tensor *build_tensor(struct builder *b, size_t tensor)
{
    const struct model_tensor *t = &b->m->tensor[tensor];
    struct expert_view *v;

    if (!is_of_experts(b, t))
        return t;
    for (size_t i = 0; i < b->nviews; i++)
        if (b->view[i]->tensor == tensor)
            return &b->view[i]->t;
    v = xcalloc(1, sizeof(*v));
    *v = (struct expert_view){ .tensor = tensor, .t = *t };
    v->t.ndim--;
    memmove(v->t.axis, v->t.axis + 1, (size_t)v->t.ndim * sizeof(*v->t.axis));
    b->view = xgrow(b->view, &b->view_cap, b->nviews + 1, sizeof(struct expert_view *));
    b->view[b->nviews++] = v;
    return &v->t;
}

int build_weight(struct builder *b, size_t tensor)
{
    const struct model_tensor *t = build_tensor(b, tensor);
    struct program *p = b->p;
    struct weight w = { .tensor = tensor, .rows = 1, .cols = 1 };
    int first = p->nweights, made = b->weight_of[tensor] - 1;
    bool stacked = t != &b->m->tensor[tensor];

    if (made >= 0 && (p->weight[made].slice > 0) == stacked)
        return made;
    for (int k = 0; k < t->ndim && !(k > 1 && t->axis[k]->size == 1); k++) {
        w.rows = k ? w.rows * w.cols : 1;
        w.cols = axis_count(t->axis[k], NULL, &b->m->scope, b->share);
    }
    w.experts = t->expert >= 0 || stacked ? b->nexperts : 0;
    w.slice = stacked;
    do { /* add the weights of this rank's next experts, too: they are consecutive */
        p->weight = xgrow(p->weight, &b->weight_cap, (size_t)p->nweights + 1,
                          sizeof(*p->weight));
        p->weight[p->nweights++] = w;
        w.tensor += !stacked;
        w.slice += stacked;
    } while ((uint64_t)(p->nweights - first) < w.experts);
    b->weight_of[tensor] = first + 1;
    return first;
}

int build_vector(struct builder *b, size_t tensor)
{
    int i = build_weight(b, tensor);
    struct weight *w = &b->p->weight[i];

    w->cols *= w->rows;
    w->rows = 1;
    return i;
}

/* ---- conversions ---- */

/* Position of element START in the full value, which lies in storage order (segment,
 * unit, rest) like the shards; *left is the number of elements that follow it there. */
static uint64_t whole_position(const struct runs *whole, uint64_t start, uint64_t *left)
{
    uint64_t position = 0;

    for (size_t i = 0; i < whole->n; i++) {
        const struct run *r = &whole->v[i];

        if (start >= r->start && start < r->start + r->count) {
            *left = r->start + r->count - start;
            return position + (start - r->start);
        }
        position += r->count;
    }
    *left = UINT64_MAX;
    return 0;
}

/* The runs of rank PART's columns, as positions in the full value. */
static struct runs part_places(const struct builder *b, const struct axis *a, int part)
{
    int coord[MESH_NAXES];
    struct mesh one;
    struct share *mine, *all;
    struct runs runs, whole, out = { 0 };
    size_t cap = 0;

    memcpy(coord, b->p->coord, sizeof(coord));
    coord[MESH_TP] = part;
    mesh_one(&one);
    mine = model_shares(b->m, &b->p->mesh, coord);
    all = model_shares(b->m, &one, (int[MESH_NAXES]){ 0 });
    axis_runs(&runs, a, &b->m->scope, mine);
    axis_runs(&whole, a, &b->m->scope, all);
    for (size_t i = 0; i < runs.n; i++)
        for (uint64_t done = 0; done < runs.v[i].count;) {
            uint64_t left, at = whole_position(&whole, runs.v[i].start + done, &left);
            uint64_t count =
                runs.v[i].count - done < left ? runs.v[i].count - done : left;
            struct run *last = out.n ? &out.v[out.n - 1] : NULL;

            if (last && last->start + last->count == at &&
                last->owned == runs.v[i].owned) {
                last->count += count;
            } else {
                out.v = xgrow(out.v, &cap, out.n + 1, sizeof(*out.v));
                out.v[out.n++] = (struct run){ at, count, runs.v[i].owned };
            }
            out.count += count;
            done += count;
        }
    runs_clear(&runs);
    runs_clear(&whole);
    free(mine);
    free(all);
    return out;
}

static bool same_places(const struct runs *a, const struct runs *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->v[i].start != b->v[i].start || a->v[i].count != b->v[i].count ||
            a->v[i].owned != b->v[i].owned)
            return false;
    return true;
}

int build_gather(struct builder *b, const struct axis *a)
{
    struct program *p = b->p;
    struct gather g = { .parts = p->mesh.size[MESH_TP] };

    g.runs = xcalloc((size_t)g.parts, sizeof(*g.runs));
    for (int i = 0; i < g.parts; i++)
        g.runs[i] = part_places(b, a, i);
    for (int k = 0; k < p->ngathers; k++) {
        bool same = true;

        for (int i = 0; i < g.parts && same; i++)
            same = same_places(&g.runs[i], &p->gather[k].runs[i]);
        if (!same)
            continue;
        for (int i = 0; i < g.parts; i++)
            runs_clear(&g.runs[i]);
        free(g.runs);
        return k;
    }
    p->gather =
        xgrow(p->gather, &b->gather_cap, (size_t)p->ngathers + 1, sizeof(*p->gather));
    p->gather[p->ngathers] = g;
    return p->ngathers++;
}

/* ---- deterministic sums ---- */

enum { DEPTH = 3 }; /* levels of a sum's tree: enough for 2^3 ranks */

/* A node of the tree: a range of columns, as groups of units of columns.  Ranks get
 * whole groups (KV heads), or whole units of one group (query heads).  The halves of a
 * node split its groups, the first half one more if their number is odd; the halves of
 * a single group split its units. */
struct node_of {
    uint64_t start, groups, per_group, unit; /* unit: columns of a unit */
    int depth;                               /* most levels below this node */
};

static uint64_t node_cols(const struct node_of *n)
{
    return n->groups * n->per_group * n->unit;
}

static bool is_leaf(const struct node_of *n)
{
    return n->depth == 0 || n->groups * n->per_group < 2;
}

static void halve(const struct node_of *n, struct node_of half[2])
{
    for (int h = 0; h < 2; h++) {
        half[h] = *n;
        half[h].depth--;
        if (n->groups > 1)
            half[h].groups = (n->groups + !h) / 2;
        else
            half[h].per_group = (n->per_group + !h) / 2;
    }
    half[1].start += node_cols(&half[0]);
}

static void add_leaves(struct sum_tree *t, const struct node_of *n)
{
    struct node_of half[2];

    if (is_leaf(n)) {
        t->leaf[t->n++] = (struct tree_leaf){ .cols = node_cols(n) };
        return;
    }
    halve(n, half);
    add_leaves(t, &half[0]);
    add_leaves(t, &half[1]);
    t->leaf[t->n - 1].adds++;
}

/* True if the columns that rank PART owns are one range, or none: *count of them. */
static bool owned_range(const struct gather *g, int part, uint64_t *start,
                        uint64_t *count)
{
    const struct runs *r = &g->runs[part];
    bool owned = false;

    for (size_t i = 0; i < r->n; i++)
        owned |= r->v[i].owned;
    *start = r->n ? r->v[0].start : 0;
    *count = owned ? r->v[0].count : 0;
    return !owned || r->n == 1;
}

/* True if the columns of ranks FIRST to FIRST + N - 1 are subtrees of NODE, which the
 * tree of an all-reduce (comm.h) joins.  Adds the leaves of RANK's subtree to *tree. */
static bool has_subtrees(const struct gather *g, const struct node_of *node, int first,
                         int n, int rank, struct sum_tree *tree)
{
    int owners = 0, owner = 0, half_n = 1;
    uint64_t start = 0, count = 0;
    struct node_of half[2];

    for (int r = first; r < first + n; r++) {
        uint64_t s, c;

        if (!owned_range(g, r, &s, &c))
            return false;
        if (!c)
            continue;
        owners++;
        owner = r;
        start = s;
        count = c;
    }
    if (owners == 1) {
        if (owner == rank)
            add_leaves(tree, node);
        return start == node->start && count == node_cols(node);
    }
    if (is_leaf(node))
        return false;
    while (2 * half_n < n)
        half_n *= 2;
    halve(node, half);
    return has_subtrees(g, &half[0], first, half_n, rank, tree) &&
           has_subtrees(g, &half[1], first + half_n, n - half_n, rank, tree);
}

/* Sets *root to all columns of A; false if no symbol of A is sharded over tp. */
static bool root_of(const struct builder *b, const struct axis *a, struct node_of *root)
{
    uint64_t *count[] = { &root->groups, &root->per_group };
    int dealt = 0;

    *root = (struct node_of){ .groups = 1, .per_group = 1, .depth = DEPTH };
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < a->leaf[i].n; k++) {
            const struct digit *d = &a->leaf[i].digit[k];

            if (d->sym < 0 || model_dealt_over(b->m, d->sym) != MESH_TP)
                continue;
            if (dealt < 2)
                *count[dealt] = d->size;
            dealt++;
        }
    root->unit = a->size / (root->groups * root->per_group);
    return dealt > 0;
}

int build_tree(struct builder *b, const struct axis *a, int *tree)
{
    struct program *p = b->p;
    int tp = p->mesh.size[MESH_TP], gather;
    struct sum_tree t = { 0 };
    struct node_of root;
    struct str text = { 0 };

    *tree = 0;
    if (!b->opt->deterministic || !root_of(b, a, &root))
        return 0;
    gather = build_gather(b, a);
    if (a->n > 1 ||
        !has_subtrees(&p->gather[gather], &root, 0, tp, p->coord[MESH_TP], &t)) {
        axis_print(&text, a, &b->m->scope);
        err_set(b->err, ERR_INPUT,
                "tp %d: deterministic sums need ranks that have halves, or halves of "
                "halves, of %s",
                tp, str_text(&text));
        str_clear(&text);
        return -1;
    }
    p->tree = xgrow(p->tree, &b->tree_cap, (size_t)p->ntrees + 1, sizeof(*p->tree));
    p->tree[p->ntrees] = t;
    *tree = ++p->ntrees;
    return 0;
}

/* Emits OP with source FROM; the result has V's columns and rows. */
static int convert(struct builder *b, int v, int from, enum op op, enum place place,
                   int gather)
{
    struct axis col;
    struct inst *inst;
    int out;

    axis_copy(&col, &b->type[v].col);
    inst = build_emit(b, op, &col, place, b->p->value[v].rows);
    inst->src[inst->nsrc++] = from;
    out = inst->dst;
    inst->gather.gather = gather;
    axis_clear(&col);
    return out;
}

/* All-gathers the sharded V, then puts the columns of all ranks in order. */
static int gather_columns(struct builder *b, int v)
{
    int gather = build_gather(b, &b->type[v].col), all;
    uint64_t cols = 0;

    for (int i = 0; i < b->p->gather[gather].parts; i++)
        cols += b->p->gather[gather].runs[i].count;
    all = build_collect(b, v, cols);
    b->p->inst[b->p->ninsts - 1].gather.gather = gather;
    return convert(b, v, all, OP_ARRANGE, PLACE_WHOLE, gather);
}

int build_sum(struct builder *b, int v, enum mesh_axis over)
{
    enum dtype dtype = b->p->value[v].dtype;
    int sum = convert(b, v, v, OP_ALL_REDUCE, PLACE_WHOLE, -1);

    b->p->value[sum].dtype = dtype;
    b->p->inst[b->p->ninsts - 1].over = over;
    return sum;
}

int build_shared_rows(struct builder *b, int v)
{
    enum place place = b->p->value[v].place;

    if (b->p->mesh.size[MESH_SP] == 1)
        return v;
    v = build_sum(b, v, MESH_SP);
    b->p->value[v].place = place;
    return v;
}

int build_collect(struct builder *b, int v, uint64_t cols)
{
    enum dtype dtype = b->p->value[v].dtype;
    struct inst *inst =
        build_emit_plain(b, OP_ALL_GATHER, cols, dtype, b->p->value[v].rows);

    inst->src[inst->nsrc++] = v;
    inst->gather.gather = -1;
    return inst->dst;
}

int build_whole(struct builder *b, int v)
{
    if (b->p->value[v].place == PLACE_WHOLE)
        return v;
    if (b->type[v].whole < 0) {
        int whole = b->p->value[v].place == PLACE_PARTIAL ? build_sum(b, v, MESH_TP)
                                                          : gather_columns(b, v);

        b->type[v].whole = whole;
    }
    return b->type[v].whole;
}

int build_cut(struct builder *b, int v)
{
    if (b->p->value[v].place == PLACE_CUT)
        return v;
    if (!build_cuts(b, &b->type[v].col))
        return build_whole(b, v);
    if (b->type[v].cut < 0) {
        int whole = build_whole(b, v), gather = build_gather(b, &b->type[v].col);
        int cut = convert(b, v, whole, OP_SLICE, PLACE_CUT, gather);

        b->type[v].cut = cut;
    }
    return b->type[v].cut;
}

/* ---- operands and instructions of one value ---- */

void build_operand(struct operand *out, const struct inst *inst)
{
    *out = (struct operand){ .kind = OPERAND_VALUE, .index = inst->dst };
}

int build_type_error(struct builder *b, size_t at, const char *what,
                     const struct axis *x, const struct axis *y)
{
    struct str left = { 0 }, right = { 0 };

    axis_print(&left, x, &b->m->scope);
    axis_print(&right, y, &b->m->scope);
    build_error(b, at, "%s: %s and %s differ", what, str_text(&left), str_text(&right));
    str_clear(&left);
    str_clear(&right);
    return -1;
}

int build_need_value(struct builder *b, const struct operand *o)
{
    if (o->kind != OPERAND_VALUE)
        return build_error(b, o->at, "expected a value");
    if (b->p->value[o->index].kept)
        return build_error(b, o->at, "only attention can read a value of keep()");
    return 0;
}

const struct model_tensor *build_need_weight(struct builder *b, const struct operand *o,
                                             int ndim)
{
    const struct model_tensor *t;

    if (o->kind != OPERAND_WEIGHT) {
        build_error(b, o->at, "expected a tensor");
        return NULL;
    }
    t = build_tensor(b, o->tensor);
    if (o->segment[0]) {
        build_error(b, o->at, "expected a tensor, not a segment");
        return NULL;
    }
    if (t->ndim != ndim && !(t->ndim == ndim + 1 && t->axis[ndim]->size == 1)) {
        build_error(b, o->at, "expected a tensor of %d axes, '%s' has %d", ndim, t->key,
                    t->ndim);
        return NULL;
    }
    return t;
}

const struct model_tensor *build_need_vector(struct builder *b, const struct operand *o,
                                             const struct axis **over)
{
    const struct model_tensor *t =
        o->kind == OPERAND_WEIGHT ? build_tensor(b, o->tensor) : NULL;
    int ndim = t && t->ndim == 2 && t->axis[0]->size == 1 ? 2 : 1;

    t = build_need_weight(b, o, ndim);
    if (t)
        *over = t->axis[ndim - 1];
    return t;
}

int build_join(struct builder *b, const struct operand *o, const struct model_tensor *t,
               int first, struct axis *out)
{
    axis_copy(out, t->axis[first]);
    for (int i = first + 1; i < t->ndim; i++) {
        const struct leaf *l = &t->axis[i]->leaf[0];
        bool fits = out->n == 1 && t->axis[i]->n == 1;

        for (int k = 0; k < l->n && fits; k++) {
            struct axis more = { 0 };

            fits = axis_append(&more, out, &l->digit[k], t->axis[i]->text);
            if (fits) {
                axis_clear(out);
                *out = more;
            }
        }
        if (!fits) {
            axis_clear(out);
            return build_error(b, o->at, "the axes of tensor '%s' cannot be joined",
                               t->key);
        }
    }
    return 0;
}

bool build_has_all_rows(const struct builder *b, const struct operand *o)
{
    int rows = b->p->value[o->index].rows;

    return rows == ROWS_TOKENS || rows == ROWS_SOURCE;
}

struct inst *build_unary(struct builder *b, enum op op, int x)
{
    struct axis col;
    struct inst *inst;

    if (op_table[op].places == PLACES_WHOLE ||
        (op_table[op].places == PLACES_SUMMED && b->p->value[x].place == PLACE_PARTIAL))
        x = build_whole(b, x);
    axis_copy(&col, &b->type[x].col);
    inst = build_emit(b, op, &col, b->p->value[x].place, b->p->value[x].rows);
    axis_clear(&col);
    inst->src[inst->nsrc++] = x;
    return inst;
}

/* ---- options of a call ---- */

/* The option NAME of CALL as a value; null when it is not given. */
static int get_option(struct builder *b, const struct node *call, const char *name,
                      struct expr_value *out)
{
    struct err e = { 0 };

    *out = (struct expr_value){ .kind = EXPR_NULL };
    for (const struct node *n = call->kid; n; n = n->next) {
        if (n->kind != NODE_OPTION || strlen(name) != n->len ||
            memcmp(n->text, name, n->len))
            continue;
        if (model_eval(b->m, n->expr, n->expr_len, b->layer, out, &e) < 0)
            return family_place(b->line->doc, b->line->json,
                                (size_t)b->line->skip + n->at +
                                    (size_t)(n->expr - n->text),
                                &e, b->err);
    }
    return 0;
}

int build_number_option(struct builder *b, const struct node *call, const char *name,
                        double otherwise, double *out)
{
    struct expr_value v;

    if (get_option(b, call, name, &v) < 0)
        return -1;
    if (v.kind != EXPR_NULL && v.kind != EXPR_NUMBER && v.kind != EXPR_BOOL)
        return build_error(b, call->at, "option '%s' is no number", name);
    *out = v.kind == EXPR_NULL ? otherwise : v.number;
    return 0;
}

const struct node *build_word_option(const struct node *call, const char *name)
{
    for (const struct node *n = call->kid; n; n = n->next)
        if (n->kind == NODE_OPTION && strlen(name) == n->len &&
            !memcmp(name, n->text, n->len))
            return n;
    return NULL;
}

int build_check_options(struct builder *b, const struct node *call,
                        const char *const *known)
{
    for (const struct node *n = call->kid; n; n = n->next) {
        int i = 0;

        if (n->kind != NODE_OPTION)
            continue;
        while (known && known[i] &&
               (strlen(known[i]) != n->len || memcmp(known[i], n->text, n->len)))
            i++;
        if (!known || !known[i])
            return build_error(b, n->at, "'%.*s' has no option '%.*s'", (int)call->len,
                               call->text, (int)n->len, n->text);
    }
    return 0;
}
