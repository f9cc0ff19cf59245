/* mixture - mixture of experts: a router sends each token to its top-k experts
 *
 * Shazeer et al. 2017, "Outrageously Large Neural Networks".  A route is a value with a
 * column per expert, the weight of the token there, 0 for experts outside the top k.
 * experts() gathers the rows by expert, one copy for each expert of a token, runs its
 * line on all of them, and adds up the weighted results.  With ep > 1 an all-to-all
 * sends the rows to the ranks of their experts before the line, and the results back
 * after it. The line is built once: a tensor in it stands for the tensors of all
 * experts, and each expert's rows are multiplied by its own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/program/build.h"

/* The symbol that counts the experts: that of the one capture that is not a section, or
 * of several the one that is sharded over ep. */
static int find_experts(struct builder *b, size_t at)
{
    const struct family_table *captures = &model_family(b->m)->captures;
    int found = -1, over, n;
    const struct model_section *section = model_sections(b->m, &n);

    for (size_t i = 0; i < captures->n; i++) {
        const struct family_entry *e = &captures->v[i];
        const char *symbol = json_string(e->json);
        bool repeats = false;

        for (int k = 0; k < n; k++)
            repeats |= !strcmp(section[k].name, e->key);
        for (int k = 0; k < b->m->scope.n && !repeats && symbol; k++)
            if (!strcmp(b->m->scope.sym[k].name, symbol) &&
                (found < 0 || model_dealt_over(b->m, k) == MESH_EP))
                found = k;
    }
    if (found < 0)
        return build_error(b, at, "the family has no capture for experts");
    over = model_dealt_over(b->m, found);
    if (over >= 0 && over != MESH_EP)
        return build_error(b, at, "experts must be sharded over ep");
    return found;
}

/* An option that must be a whole number from LOW to HIGH. */
static int count_option(struct builder *b, const struct node *call, const char *name,
                        uint64_t low, uint64_t high, uint64_t otherwise, uint64_t *out)
{
    double x;

    if (build_number_option(b, call, name, (double)otherwise, &x) < 0)
        return -1;
    if (!(x >= (double)low && x <= (double)high) || x != floor(x))
        return build_error(b, call->at, "'%s' must be a whole number from %llu to %llu",
                           name, (unsigned long long)low, (unsigned long long)high);
    *out = (uint64_t)x;
    return 0;
}

/* Emits the choice of the top-k experts for each row of X, with ROUTE's options. */
static struct inst *choose(struct builder *b, int x, const struct inst *route)
{
    struct inst *inst = build_emit_plain(b, OP_CHOOSE, route->route.top, DTYPE_I32,
                                         b->p->value[x].rows);

    inst->route = route->route;
    inst->src[inst->nsrc++] = x;
    return inst;
}

/* The router logits behind the scores X, to which softmax or sigmoid was applied; -1:
 * none. */
static int logits_of(const struct builder *b, int x)
{
    const struct inst *made = &b->p->inst[b->p->value[x].first];
    const bool is = made->op == OP_SOFTMAX ||
                    (made->op == OP_ACTIVATION && made->act == ACT_SIGMOID);

    return is ? made->src[0] : -1;
}

/* Adds the rows of route R, of scores X, to the sums of the balance of experts.  They
 * count whom the scores alone would choose: CHOICE, unless it was BIASED.  Fedus et al.
 * 2021, "Switch Transformers", equations 4 to 6, for several experts a row; over all
 * layers together, as load_balancing_loss_func of transformers. */
static int add_to_balance(struct builder *b, size_t at, int x, const struct inst *r,
                          int choice, bool biased)
{
    int logits = logits_of(b, x), sums;
    uint64_t experts = b->type[x].col.size;
    struct inst *inst;

    if (logits < 0)
        return build_error(b, at,
                           "the balance loss needs scores by softmax or sigmoid");
    if (b->balance.logits == logits + 1)
        return 0; /* a second route() by the same router */
    if (b->balance.sums && (b->balance.top != r->route.top ||
                            b->p->value[b->balance.sums - 1].cols != 2 * experts + 1))
        return build_error(b, at, "the balance loss needs the same experts everywhere");
    if (biased)
        choice = choose(b, x, r)->dst;
    b->balance.logits = logits + 1;
    b->balance.top = r->route.top;
    inst = build_emit_plain(b, OP_ROUTER_SUMS, 2 * experts + 1, DTYPE_F32, ROWS_ONE);
    inst->src[inst->nsrc++] = logits;
    inst->src[inst->nsrc++] = choice;
    sums = inst->dst;
    if (b->balance.sums) {
        inst = build_emit_plain(b, OP_ADD, 2 * experts + 1, DTYPE_F32, ROWS_ONE);
        inst->src[inst->nsrc++] = b->balance.sums - 1;
        inst->src[inst->nsrc++] = sums;
        sums = inst->dst;
    }
    b->balance.sums = sums + 1;
    return 0;
}

/* route(scores, top[, bias]): weights of the TOP experts with the largest scores. */
int apply_route(struct builder *b, enum op op, const struct node *call,
                const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = { "renorm", "scale", "groups", "of",
                                         "best",   "near",  NULL };
    const struct model_tensor *bias = NULL;
    struct inst *inst, r = { 0 };
    uint64_t all;
    double renorm;
    int x, choice;

    if (build_need_value(b, &arg[0]) < 0 || build_check_options(b, call, known) < 0)
        return -1;
    all = b->type[arg[0].index].col.size;
    if (arg[1].kind != OPERAND_NUMBER || !(arg[1].number >= 1) ||
        arg[1].number > (double)all || arg[1].number != floor(arg[1].number))
        return build_error(b, arg[1].at, "expected a whole number from 1 to %llu",
                           (unsigned long long)all);
    r.route.top = (uint64_t)arg[1].number;
    if (build_number_option(b, call, "renorm", 0, &renorm) < 0 ||
        build_number_option(b, call, "scale", 1, &r.route.scale) < 0 ||
        build_number_option(b, call, "near", 0, &r.route.near) < 0 ||
        count_option(b, call, "groups", 1, all, 1, &r.route.groups) < 0 ||
        count_option(b, call, "of", 1, r.route.groups, r.route.groups, &r.route.of) <
            0 ||
        count_option(b, call, "best", 1, all / r.route.groups, 1, &r.route.best) < 0)
        return -1;
    r.route.renorm = renorm != 0;
    if (r.route.near != 0 && (!(r.route.near > 0) || renorm != 0 || n > 2))
        return build_error(b, call->at,
                           "'near' must be above 0, without renorm and bias");
    if (all % r.route.groups)
        return build_error(b, call->at, "%llu experts do not lie in %llu groups",
                           (unsigned long long)all, (unsigned long long)r.route.groups);
    if (all / r.route.groups * r.route.of < r.route.top)
        return build_error(b, call->at, "%llu groups have no %llu experts",
                           (unsigned long long)r.route.of,
                           (unsigned long long)r.route.top);
    if (n > 2 && arg[2].kind != OPERAND_ABSENT) {
        const struct axis *over;

        bias = build_need_vector(b, &arg[2], &over);
        if (!bias)
            return -1;
        if (!axis_equal(over, &b->type[arg[0].index].col))
            return build_type_error(b, arg[2].at, "the scores and their bias",
                                    &b->type[arg[0].index].col, over);
    }
    x = build_whole(b, arg[0].index);
    inst = choose(b, x, &r);
    if (bias)
        inst->weight = build_weight(b, arg[2].tensor);
    choice = inst->dst;
    if (b->opt->balance && add_to_balance(b, call->at, x, &r, choice, bias) < 0)
        return -1;
    inst = build_unary(b, op, x);
    inst->route = r.route;
    inst->src[inst->nsrc++] = choice;
    build_operand(out, inst);
    return 0;
}

/* The choice behind the weights ROUTE; all experts if no route() made them. */
static int choice_of(struct builder *b, int route)
{
    const struct inst *made = &b->p->inst[b->p->value[route].first];
    const struct inst all = {
        .route = { .top = b->type[route].col.size, .groups = 1, .of = 1, .best = 1 }
    };

    return made->op == OP_ROUTE ? made->src[1] : choose(b, route, &all)->dst;
}

/* Evaluates the first two arguments of experts(): the route and the rows. */
static int each_inputs(struct builder *b, const struct node *each, int experts,
                       int *route, int *rows)
{
    const struct node *node[] = { each->kid, each->kid->next };
    int *to[] = { route, rows };

    for (int i = 0; i < 2; i++) {
        struct operand o;

        if (eval_tree(b, node[i], &o) < 0)
            return -1;
        o.at = node[i]->at;
        if (build_need_value(b, &o) < 0)
            return -1;
        *to[i] = build_whole(b, o.index);
    }
    if (b->type[*route].col.size != b->m->scope.sym[experts].value)
        return build_error(b, node[0]->at,
                           "a route has a column for each of %llu experts",
                           (unsigned long long)b->m->scope.sym[experts].value);
    if (b->p->value[*route].rows != b->p->value[*rows].rows)
        return build_error(b, node[1]->at, "the rows of the route differ");
    return 0;
}

static void bind_name(struct builder *b, const struct node *n, int value)
{
    b->bind = xgrow(b->bind, &b->bind_cap, b->nbind + 1, sizeof(*b->bind));
    b->bind[b->nbind++] = (struct binding){ .name = xstrndup(n->text, n->len),
                                            .value = value,
                                            .depth = 1 };
}

/* Evaluates N, which must have the rows of the experts; the value or -1. */
static int expert_value(struct builder *b, const struct node *n)
{
    struct operand o;

    if (eval_tree(b, n, &o) < 0)
        return -1;
    o.at = n->at;
    if (build_need_value(b, &o) < 0)
        return -1;
    if (b->p->value[o.index].rows != ROWS_CHOSEN)
        return build_error(b, o.at, "an expert's line has its rows");
    return o.index;
}

/* Evaluates the line with only its own names visible: the chosen rows and the names
 * bound before the ':'.  The value of the line, or -1. */
static int each_line(struct builder *b, const struct node *each, int chosen)
{
    const struct node *n = each->kid->next->next;
    size_t first_bind = b->first_bind;
    int value = 0;

    b->first_bind = b->nbind;
    bind_name(b, each, chosen);
    for (; n->kind == NODE_LET && value >= 0; n = n->next) {
        value = expert_value(b, n->kid);
        if (value >= 0)
            bind_name(b, n, value);
    }
    if (value >= 0)
        value = expert_value(b, n);
    while (b->nbind > b->first_bind)
        free((char *)b->bind[--b->nbind].name);
    b->first_bind = first_bind;
    return value;
}

/* All-to-all of the rows FROM to their experts, or of the results back. */
static int all_to_all_rows(struct builder *b, enum all_to_all_what what, int rows,
                           int from)
{
    const struct mixture *m = &b->p->mixture[b->mixture];
    struct inst *inst;
    struct axis col;

    axis_copy(&col, &b->type[from].col);
    inst = build_emit(b, OP_ALL_TO_ALL, &col, b->p->value[from].place, rows);
    axis_clear(&col);
    inst->all_to_all = what;
    inst->src[inst->nsrc++] = from;
    inst->src[inst->nsrc++] = m->sent;
    inst->src[inst->nsrc++] = m->counts;
    return inst->dst;
}

/* All-to-all of the row counts: how many rows come to this rank's experts. */
static int exchange_counts(struct builder *b, int sent)
{
    const struct mixture *m = &b->p->mixture[b->mixture];
    uint64_t n = m->count + 1 + (uint64_t)b->p->mesh.size[MESH_EP] * m->count;
    struct inst *inst = build_emit_plain(b, OP_ALL_TO_ALL, n, DTYPE_I32, ROWS_ONE);

    inst->all_to_all = ALL_TO_ALL_COUNTS;
    inst->src[inst->nsrc++] = sent;
    return inst->dst;
}

/* Emits the counts of rows per expert and the index that sorts the rows by expert. */
static int sort_rows(struct builder *b, int choice, int rows, int sorted)
{
    struct mixture *m = &b->p->mixture[b->mixture];
    struct inst *inst =
        build_emit_plain(b, OP_EXPERT_COUNT, m->all + 1, DTYPE_I32, ROWS_ONE);

    inst->src[inst->nsrc++] = choice;
    m->rows = rows;
    m->sent = m->counts = inst->dst;
    inst = build_emit_plain(b, OP_EXPERT_INDEX, 1, DTYPE_I32, sorted);
    inst->src[inst->nsrc++] = choice;
    inst->src[inst->nsrc++] = m->sent;
    return inst->dst;
}

static int run_each(struct builder *b, const struct node *each, int route, int choice,
                    int rows, struct operand *out)
{
    int kind = b->p->value[rows].rows;
    bool shared = b->p->mesh.size[MESH_EP] > 1;
    int sorted = shared ? ROWS_SENT : ROWS_CHOSEN;
    int index = sort_rows(b, choice, kind, sorted), chosen, line;
    struct inst *inst;
    struct axis col;

    axis_copy(&col, &b->type[rows].col);
    inst = build_emit(b, OP_EXPERT_GATHER, &col, PLACE_WHOLE, sorted);
    axis_clear(&col);
    inst->src[inst->nsrc++] = rows;
    inst->src[inst->nsrc++] = index;
    chosen = inst->dst;
    if (shared) {
        int counts = exchange_counts(b, b->p->mixture[b->mixture].sent);

        b->p->mixture[b->mixture].counts = counts;
        chosen = all_to_all_rows(b, ALL_TO_ALL_ROWS, ROWS_CHOSEN, chosen);
    }
    line = each_line(b, each, chosen);
    if (line < 0)
        return -1;
    if (shared)
        line = all_to_all_rows(b, ALL_TO_ALL_BACK, ROWS_SENT, line);
    axis_copy(&col, &b->type[line].col);
    inst = build_emit(b, OP_EXPERT_COMBINE, &col, b->p->value[line].place, kind);
    axis_clear(&col);
    inst->src[inst->nsrc++] = line;
    inst->src[inst->nsrc++] = route;
    inst->src[inst->nsrc++] = index;
    inst->src[inst->nsrc++] = b->p->mixture[b->mixture].sent;
    build_operand(out, inst);
    return 0;
}

/* The first expert of each rank of ep, followed by the number of experts. */
static uint64_t *deal_of(const struct builder *b, int experts)
{
    const struct mesh *mesh = &b->p->mesh;
    int coord[MESH_NAXES], ep = mesh->size[MESH_EP];
    uint64_t *deal = xcalloc((size_t)ep + 1, sizeof(*deal));

    memcpy(coord, b->p->coord, sizeof(coord));
    for (int i = 0; i < ep && b->m->scope.sym[experts].dealt; i++) {
        struct share *all;

        coord[MESH_EP] = i;
        all = model_shares(b->m, mesh, coord);
        deal[i] = all[experts].start;
        free(all);
    }
    deal[ep] = b->m->scope.sym[experts].value;
    return deal;
}

int mixture_each(struct builder *b, const struct node *each, struct operand *out)
{
    int experts = find_experts(b, each->at), route, choice, rows, ret;
    struct program *p = b->p;
    struct share share;

    if (experts < 0)
        return -1;
    if (b->mixture >= 0)
        return build_error(b, each->at, "experts() inside experts()");
    if (each_inputs(b, each, experts, &route, &rows) < 0)
        return -1;
    choice = choice_of(b, route);
    share = b->m->scope.sym[experts].dealt
                ? b->share[experts]
                : (struct share){ .count = b->m->scope.sym[experts].value };
    p->mixture = xgrow(p->mixture, &b->mixture_cap, (size_t)p->nmixtures + 1,
                       sizeof(*p->mixture));
    p->mixture[p->nmixtures] = (struct mixture){ .first = share.start,
                                                 .count = share.count,
                                                 .all = b->m->scope.sym[experts].value,
                                                 .top = p->value[choice].cols,
                                                 .deal = deal_of(b, experts) };
    b->mixture = p->nmixtures++;
    b->expert = (int)share.start;
    b->experts = experts;
    b->nexperts = share.count;
    ret = run_each(b, each, route, choice, rows, out);
    b->mixture = -1;
    b->expert = -1;
    return ret;
}
