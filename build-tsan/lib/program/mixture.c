/* mixture - experts: each token goes through a few of many like parts
 *
 * Shazeer et al. 2017, "Outrageously Large Neural Networks".  A route is a value with a
 * column for each expert, most of them 0.  experts() gathers the rows by expert, so
 * that a row is there once for each of its experts on this rank, runs a line on all of
 * them, and adds the results up, weighted.  A tensor of the line stands for those of
 * all experts: each multiplies its own expert's rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/program/build.h"

/* The symbol that counts the experts: of the only capture that repeats no section. */
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
            if (!strcmp(b->m->scope.sym[k].name, symbol))
                found = k;
    }
    if (found < 0)
        return build_error(b, at, "the family has no capture for experts");
    over = model_dealt_over(b->m, found);
    if (over >= 0 && over != MESH_EP)
        return build_error(b, at, "experts are dealt over ep");
    return found;
}

/* A whole number from LOW to HIGH. */
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

/* route(scores, top[, bias]): the TOP largest scores of each row. */
int apply_route(struct builder *b, enum op op, const struct node *call,
                const struct operand *arg, int n, struct operand *out)
{
    static const char *const known[] = {
        "renorm", "scale", "groups", "of", "best", NULL
    };
    const struct model_tensor *bias = NULL;
    struct inst *inst, r = { 0 };
    uint64_t all;
    double renorm;

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
        count_option(b, call, "groups", 1, all, 1, &r.route.groups) < 0 ||
        count_option(b, call, "of", 1, r.route.groups, r.route.groups, &r.route.of) <
            0 ||
        count_option(b, call, "best", 1, all / r.route.groups, 1, &r.route.best) < 0)
        return -1;
    r.route.renorm = renorm != 0;
    if (all % r.route.groups)
        return build_error(b, call->at, "%llu experts do not lie in %llu groups",
                           (unsigned long long)all, (unsigned long long)r.route.groups);
    if (all / r.route.groups * r.route.of < r.route.top)
        return build_error(b, call->at, "%llu groups have no %llu experts",
                           (unsigned long long)r.route.of,
                           (unsigned long long)r.route.top);
    if (n > 2 && arg[2].kind != OPERAND_ABSENT) {
        bias = build_need_weight(b, &arg[2], 1);
        if (!bias)
            return -1;
        if (!axis_equal(bias->axis[0], &b->type[arg[0].index].col))
            return build_type_error(b, arg[2].at, "the scores and their bias",
                                    &b->type[arg[0].index].col, bias->axis[0]);
    }
    inst = build_unary(b, op, arg[0].index);
    inst->route = r.route;
    if (bias)
        inst->weight = build_weight(b, arg[2].tensor);
    build_operand(out, inst);
    return 0;
}

/* How many experts a row of ROUTE has. */
static uint64_t chosen_of(const struct builder *b, int route)
{
    const struct inst *made = &b->p->inst[b->p->value[route].first];

    return made->op == OP_ROUTE ? made->route.top : b->type[route].col.size;
}

/* The route and the rows it is for. */
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

/* Evaluate the line with NAME bound to the chosen rows, and nothing else in sight. */
static int each_line(struct builder *b, const struct node *each, int chosen, int *out)
{
    char *name = xstrndup(each->text, each->len);
    size_t first_bind = b->first_bind;
    struct operand o;
    int ret = -1;

    b->bind = xgrow(b->bind, &b->bind_cap, b->nbind + 1, sizeof(*b->bind));
    b->first_bind = b->nbind;
    b->bind[b->nbind++] = (struct binding){ .name = name, .value = chosen, .depth = 1 };
    if (eval_tree(b, each->kid->next->next, &o) == 0) {
        o.at = each->kid->next->next->at;
        if (build_need_value(b, &o) == 0 &&
            (b->p->value[o.index].rows == ROWS_CHOSEN ||
             build_error(b, o.at, "an expert's line has its rows") == 0)) {
            *out = o.index;
            ret = 0;
        }
    }
    b->nbind--;
    b->first_bind = first_bind;
    free(name);
    return ret;
}

/* The values by which rows are sent to experts: their numbers, and the rows. */
static void send_rows(struct builder *b, int route, enum rows rows, int *counts,
                      int *index)
{
    struct mixture *m = &b->p->mixture[b->mixture];
    struct inst *inst =
        build_emit_plain(b, OP_EXPERT_COUNT, m->count + 1, DTYPE_I32, ROWS_ONE);

    inst->src[inst->nsrc++] = route;
    m->rows = rows;
    m->counts = *counts = inst->dst;
    inst = build_emit_plain(b, OP_EXPERT_INDEX, 1, DTYPE_I32, ROWS_CHOSEN);
    inst->src[inst->nsrc++] = route;
    inst->src[inst->nsrc++] = *counts;
    *index = inst->dst;
}

static int run_each(struct builder *b, const struct node *each, int route, int rows,
                    struct operand *out)
{
    enum rows kind = b->p->value[rows].rows;
    bool shared = b->p->mesh.size[MESH_EP] > 1;
    int counts, index, chosen, line;
    struct inst *inst;
    struct axis col;
    enum place place;

    send_rows(b, route, kind, &counts, &index);
    axis_copy(&col, &b->type[rows].col);
    inst = build_emit(b, OP_EXPERT_GATHER, &col, PLACE_WHOLE, ROWS_CHOSEN);
    axis_clear(&col);
    inst->src[inst->nsrc++] = rows;
    inst->src[inst->nsrc++] = index;
    chosen = inst->dst;
    if (each_line(b, each, chosen, &line) < 0)
        return -1;
    if (shared && b->p->value[line].place == PLACE_CUT)
        line = build_whole(b, line);
    place = shared ? PLACE_PARTIAL : b->p->value[line].place;
    axis_copy(&col, &b->type[line].col);
    inst = build_emit(b, OP_EXPERT_COMBINE, &col, place, kind);
    axis_clear(&col);
    inst->src[inst->nsrc++] = line;
    inst->src[inst->nsrc++] = route;
    inst->src[inst->nsrc++] = index;
    inst->src[inst->nsrc++] = counts;
    build_operand(out, inst);
    return 0;
}

int mixture_each(struct builder *b, const struct node *each, struct operand *out)
{
    int experts = find_experts(b, each->at), route, rows, ret;
    struct program *p = b->p;
    struct share share;

    if (experts < 0)
        return -1;
    if (b->mixture >= 0)
        return build_error(b, each->at, "experts() inside experts()");
    if (each_inputs(b, each, experts, &route, &rows) < 0)
        return -1;
    share = b->m->scope.sym[experts].dealt
                ? b->share[experts]
                : (struct share){ .count = b->m->scope.sym[experts].value };
    p->mixture = xgrow(p->mixture, &b->mixture_cap, (size_t)p->nmixtures + 1,
                       sizeof(*p->mixture));
    p->mixture[p->nmixtures] = (struct mixture){ .first = share.start,
                                                 .count = share.count,
                                                 .all = b->m->scope.sym[experts].value,
                                                 .top = chosen_of(b, route) };
    b->mixture = p->nmixtures++;
    b->expert = (int)share.start;
    b->nexperts = share.count;
    ret = run_each(b, each, route, rows, out);
    b->mixture = -1;
    b->expert = -1;
    if (ret < 0)
        return -1;
    /* each rank of ep has made what its own experts add */
    if (p->mesh.size[MESH_EP] > 1) {
        int sum = build_sum(b, out->index, MESH_EP);

        b->type[out->index].whole = sum;
        out->index = sum;
    }
    return 0;
}
