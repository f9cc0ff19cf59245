/* gradients - sums of gradients: over micro-batches, replicas, ranks and stages */
#include "lib/train/gradients.h"

#include <stdlib.h>

#include "lib/base/mem.h"

/* Elements that are exchanged at a time where that goes through another memory. */
enum { PIECE = 1 << 15 };

/* ---- opening ---- */

struct finding {
    struct gradients *g;
    const struct parameter *row;
    size_t cap;
};

/* Notes N owned elements from HERE, with those just before them as one range. */
static void note_owned(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    struct finding *f = arg;
    struct gradients *g = f->g;
    const struct parameter *row = f->row;
    uint64_t first = here > row->first ? here : row->first;
    uint64_t end =
        here + n < row->first + row->count ? here + n : row->first + row->count;
    struct gradients_range *last = g->nowned ? &g->owned[g->nowned - 1] : NULL;
    const float *sum = row->sum + (first - row->first);

    (void)whole;
    if (!owned || first >= end)
        return;
    if (last && last->first + last->n == sum) {
        last->n += end - first;
        return;
    }
    g->owned = xgrow(g->owned, &f->cap, g->nowned + 1, sizeof(*g->owned));
    g->owned[g->nowned++] = (struct gradients_range){ sum, end - first };
}

static void find_owned(struct gradients *g)
{
    struct parameters *p = g->p;
    struct finding f = { .g = g };

    for (int i = 0; i < p->program->nweights; i++) {
        f.row = &p->row[i];
        if (f.row->count && !f.row->load)
            parameters_runs(p, i, note_owned, &f);
    }
}

static bool is_summed(const struct gradients *g, int i)
{
    return g->groups->tensor->size > 1 && g->p->program->weight[i].summed &&
           g->p->row[i].trained;
}

static bool is_tied(const struct gradients *g, int i)
{
    return parameters_tied(g->p, i) != TIED_NOT && g->p->row[i].trained;
}

static uint64_t at_most(uint64_t n)
{
    return n < PIECE ? n : PIECE;
}

static bool is_staged(const struct gradients *g)
{
    const struct gradients_replicas *r = &g->replicas;

    return link_is_staged(&g->link, r->sharing) ||
           link_is_staged(&g->link, r->across) || link_is_staged(&g->link, r->experts);
}

/* Finds the largest exchange that needs room, and what of it goes through the host. */
static void plan_room(struct gradients *g)
{
    const struct engine_groups *groups = g->groups;
    uint64_t staged = is_staged(g) ? at_most(g->p->trained) : 0;

    for (int i = 0; i < g->p->program->nweights; i++) {
        uint64_t n = is_summed(g, i) ? parameters_whole(g->p, i)
                     : is_tied(g, i) ? at_most(g->p->row[i].n)
                                     : 0;

        g->nroom = n > g->nroom ? n : g->nroom;
        n = at_most(n);
        if ((link_is_staged(&g->link, groups->tensor) ||
             link_is_staged(&g->link, groups->pipe)) &&
            n > staged)
            staged = n;
    }
    link_plan(&g->link, staged * sizeof(float));
}

static int make_tree(struct gradients *g, int levels, struct err *err)
{
    const struct parameters *p = g->p;

    g->level = xcalloc((size_t)levels + 1, sizeof(*g->level));
    g->levels = levels;
    for (int i = 0; i < levels && g->sums; i++) {
        g->level[i] = p->ops->alloc(p->device, g->sums * sizeof(float),
                                    "gradients of micro-batches", err);
        if (!g->level[i])
            return -1;
    }
    return 0;
}

/* Makes the room for the gradients of units, and those of units that are summed
 * at the end of a step. */
static int make_rooms(struct gradients *g, struct err *err)
{
    struct parameters *p = g->p;

    units_makes(&g->makes, &p->units, p->program);
    for (int u = 0; u < p->units.n; u++)
        g->napart += p->units.v[u].apart ? p->units.v[u].n : 0;
    if (g->makes.room) {
        g->made =
            p->ops->alloc(p->device, g->makes.room * sizeof(float), "gradients", err);
        if (!g->made)
            return -1;
    }
    if (g->napart) {
        g->apart =
            p->ops->alloc(p->device, g->napart * sizeof(float), "gradients", err);
        if (!g->apart)
            return -1;
    }
    return 0;
}

/* The numbers of unit U, which begin at X. */
static void aim(struct gradients *g, int u, float *x)
{
    const struct parameters *p = g->p;
    const struct weight_unit *unit = &p->units.v[u];

    for (int i = unit->first; i < unit->end; i++)
        if (p->units.of[i] == u)
            g->into[i] = x + (p->row[i].at - unit->at);
}

/* Finds where the engine adds. */
static void find_into(struct gradients *g)
{
    const struct parameters *p = g->p;
    float *whole = g->level && !g->scattered ? g->level[0] : p->gradient;
    uint64_t apart = 0;

    for (int u = 0; u < p->units.n && !parameters_sums_late(p); u++)
        aim(g, u, whole + p->units.v[u].at);
    for (int k = 0; k < g->makes.n; k++)
        aim(g, g->makes.v[k].unit, g->made + g->makes.v[k].at);
    for (int u = 0; u < p->units.n && parameters_sums_late(p); u++)
        if (p->units.v[u].apart) {
            aim(g, u, g->apart + apart);
            apart += p->units.v[u].n;
        }
}

/* Stages exchange their ranges of a tied weight: it must be dealt alone; and they must
 * keep it alike. */
static int check_tied(const struct gradients *g, struct err *err)
{
    const struct parameters *p = g->p;

    for (int i = 0; i < p->program->nweights && p->no_master; i++)
        if (is_tied(g, i) && p->program->weight[i].rows > 1 &&
            !parameters_lacks_master(p, i))
            return err_set(
                err, ERR_NO,
                "--master none: tensor %s: another stage multiplies by it, "
                "and would keep it in bf16 alone; give --pp 1",
                p->program->model->tensor[p->program->weight[i].tensor].name);

    for (int i = 0; i < p->program->nweights && g->scattered; i++)
        if (is_tied(g, i) && p->units.v[p->units.of[i]].n != p->row[i].n)
            return err_set(
                err, ERR_NO,
                "tensor %s: several stages have it beside others; replicas cannot "
                "share it",
                p->program->model->tensor[p->program->weight[i].tensor].name);
    return 0;
}

int gradients_open(struct gradients *g, struct parameters *p,
                   const struct engine_groups *groups,
                   struct gradients_replicas replicas, int levels, struct err *err)
{
    *g = (struct gradients){ .p = p, .groups = groups, .replicas = replicas };
    g->scattered = p->owner.size > 1;
    g->sums = parameters_sums_own(p) ? p->owned : p->trained;
    link_init(&g->link, p->ops, p->device);
    g->link.wires = groups->wires;
    g->into = xcalloc((size_t)p->program->nweights + 1, sizeof(*g->into));
    if (check_tied(g, err) < 0 || (levels && make_tree(g, levels, err) < 0) ||
        (parameters_sums_late(p) && make_rooms(g, err) < 0))
        goto fail;
    find_into(g);
    find_owned(g);
    plan_room(g);
    if (g->nroom) {
        g->room =
            p->ops->alloc(p->device, g->nroom * sizeof(float), "an exchange", err);
        if (!g->room)
            goto fail;
    }
    g->squares =
        p->ops->alloc(p->device, SQUARES_WORDS * sizeof(*g->squares), "a norm", err);
    if (!g->squares || link_open(&g->link, err) < 0)
        goto fail;
    return 0;
fail:
    gradients_close(g);
    return -1;
}

void gradients_close(struct gradients *g)
{
    if (!g->p)
        return;
    for (int i = 0; g->level && i < g->levels; i++)
        g->p->ops->release(g->p->device, g->level[i]);
    g->p->ops->release(g->p->device, g->made);
    g->p->ops->release(g->p->device, g->apart);
    g->p->ops->release(g->p->device, g->room);
    g->p->ops->release(g->p->device, g->squares);
    link_clear(&g->link);
    unit_stays_clear(&g->makes);
    free(g->level);
    free(g->into);
    free(g->owned);
    *g = (struct gradients){ 0 };
}

void gradients_memory(const struct gradients *g, struct ledger *list)
{
    ledger_add(list, "gradients", LEDGER_DEVICE,
               (g->makes.room + g->napart) * sizeof(float));
    ledger_add(list, "gradient_sums", LEDGER_DEVICE,
               (uint64_t)g->levels * g->sums * sizeof(float));
    ledger_add(list, "gradient_exchange", LEDGER_DEVICE,
               g->nroom * sizeof(float) + SQUARES_WORDS * sizeof(*g->squares));
    ledger_add(list, "staging", LEDGER_HOST, link_bytes(&g->link));
}

/* ---- over replicas ---- */

/* Sums over C, in place.  A sum does not depend on the elements beside it. */
static int reduce(struct gradients *g, struct comm *c, float *x, uint64_t n,
                  struct err *err)
{
    uint64_t step = link_is_staged(&g->link, c) ? PIECE : n;

    for (uint64_t at = 0; at < n; at += step) {
        uint64_t some = n - at < step ? n - at : step;

        if (link_all_reduce(&g->link, c, x + at, x + at, (size_t)some, DTYPE_F32, err) <
            0)
            return -1;
    }
    return 0;
}

/* Sums over the ranks that divide experts what is not of these, of the weights of unit
 * U, which begins at X. */
static int sum_beside_experts(struct gradients *g, int u, float *x, struct err *err)
{
    const struct parameters *p = g->p;
    const struct weight_unit *unit = &p->units.v[u];
    uint64_t first = 0, n = 0;
    int ret = 0;

    if (!g->replicas.experts)
        return 0;
    for (int i = unit->first; i < unit->end && ret == 0; i++) {
        const uint64_t at = p->row[i].at - unit->at;

        if (p->units.of[i] != u || !p->row[i].trained || p->program->weight[i].experts)
            continue;
        if (n && first + n != at) { /* experts are between */
            ret = reduce(g, g->replicas.experts, x + first, n, err);
            n = 0;
        }
        first = n ? first : at;
        n += p->row[i].n;
    }
    return ret == 0 && n ? reduce(g, g->replicas.experts, x + first, n, err) : ret;
}

static const size_t *shares_of(const struct gradients *g, int u)
{
    return g->p->share + (size_t)u * (size_t)g->p->owner.size;
}

/* Sums unit U, at X, each element on its owner. */
static int scatter(struct gradients *g, int u, float *x, struct err *err)
{
    const struct gradients_replicas *r = &g->replicas;
    const size_t *share = shares_of(g, u);
    int ret = sum_beside_experts(g, u, x, err);

    if (ret == 0 && r->sharing->size > 1)
        ret = link_is_staged(&g->link, r->sharing)
                  ? reduce(g, r->sharing, x, g->p->units.v[u].n, err)
                  : link_reduce_scatter(&g->link, r->sharing, x, share, err);
    return ret == 0 && r->across ? reduce(g, r->across, x + parameters_before(g->p, u),
                                          share[g->p->owner.rank], err)
                                 : ret;
}

/* This rank's sums of unit U, which scatter has made at X, are added to TO[own], or
 * become those. */
static int collect(struct gradients *g, int u, const float *x, float *to, bool adds,
                   struct err *err)
{
    struct parameters *p = g->p;
    const float *own = x + parameters_before(g->p, u);
    uint64_t n = shares_of(g, u)[p->owner.rank];

    to += p->place[u];
    if (!n)
        return 0;
    return adds ? parameters_add(p, to, to, own, n, err)
                : p->ops->copy(p->device, to, own, n * sizeof(float), err);
}

/* ---- over the tensor group ---- */

struct copying {
    struct gradients *g;
    float *here;
    bool back;
    int ret;
    struct err *err;
};

static void copy_run(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    struct copying *c = arg;
    struct parameters *p = c->g->p;
    float *own = c->here + here, *room = c->g->room + whole;

    (void)owned;
    if (c->ret == 0)
        c->ret = p->ops->copy(p->device, c->back ? own : room, c->back ? room : own,
                              n * sizeof(float), c->err);
}

/* Sums via an array of the global tensor, in which each rank fills in its elements. */
static int sum_one(struct gradients *g, int i, struct err *err)
{
    struct parameters *p = g->p;
    uint64_t n = parameters_whole(p, i);
    struct copying copy = { .g = g, .here = g->into[i], .err = err };

    if (parameters_zero(p, g->room, n, err) < 0)
        return -1;
    parameters_runs(p, i, copy_run, &copy);
    if (copy.ret < 0 || reduce(g, g->groups->tensor, g->room, n, err) < 0)
        return -1;
    copy.back = true;
    parameters_runs(p, i, copy_run, &copy);
    return copy.ret;
}

static int sum_tensors(struct gradients *g, struct err *err)
{
    for (int i = 0; i < g->p->program->nweights; i++)
        if (is_summed(g, i) && sum_one(g, i, err) < 0)
            return -1;
    return 0;
}

/* ---- over micro-batches ---- */

int gradients_begin(struct gradients *g, struct err *err)
{
    struct parameters *p = g->p;

    if (g->napart && parameters_zero(p, g->apart, g->napart, err) < 0)
        return -1;
    if (g->level)
        return 0;
    return parameters_sums_late(p) ? parameters_zero(p, p->sum, p->owned, err)
                                   : parameters_zero(p, p->gradient, p->trained, err);
}

int gradients_begin_micro(struct gradients *g, struct err *err)
{
    struct parameters *p = g->p;

    if (!g->level)
        return 0;
    return g->scattered && !parameters_sums_late(p)
               ? parameters_zero(p, p->gradient, p->trained, err)
               : parameters_zero(p, g->level[0], g->sums, err);
}

int gradients_begin_unit(struct gradients *g, const struct unit_stay *s,
                         struct err *err)
{
    return parameters_zero(g->p, g->made + s->at, g->p->units.v[s->unit].n, err);
}

int gradients_end_unit(struct gradients *g, const struct unit_stay *s, struct err *err)
{
    float *x = g->made + s->at;

    return scatter(g, s->unit, x, err) < 0
               ? -1
               : collect(g, s->unit, x, g->level ? g->level[0] : g->p->sum, !g->level,
                         err);
}

/* Sums the gradients of a micro-batch over replicas, to level 0. */
static int sum_micro(struct gradients *g, struct err *err)
{
    struct parameters *p = g->p;

    if (parameters_sums_late(p))
        return 0;
    if (!g->scattered)
        return reduce(g, g->replicas.sharing, g->level[0], p->trained, err);
    for (int u = 0; u < p->units.n; u++) {
        float *x = p->gradient + p->units.v[u].at;

        if (scatter(g, u, x, err) < 0 || collect(g, u, x, g->level[0], false, err) < 0)
            return -1;
    }
    return 0;
}

/* Adds the gradients of micro-batch M to those of its neighbours in the tree, the
 * earlier first: level i has the sum of 2^(i-1) micro-batches, the store that of all.
 */
int gradients_end_micro(struct gradients *g, int m, struct err *err)
{
    struct parameters *p = g->p;
    float *store = parameters_sums_own(p) ? p->sum : p->gradient;
    int level = 1;

    if (!g->level)
        return 0;
    if (sum_micro(g, err) < 0)
        return -1;
    for (; m & 1; m >>= 1, level++)
        if (parameters_add(p, g->level[0], g->level[level], g->level[0], g->sums, err) <
            0)
            return -1;
    return p->ops->copy(p->device, level == g->levels ? store : g->level[level],
                        g->level[0], g->sums * sizeof(float), err);
}

/* ---- over stages: they have the same ranges of a weight that they share ---- */

int gradients_send(struct gradients *g, int i, int stage, struct err *err)
{
    const struct parameter *row = &g->p->row[i];

    for (uint64_t at = 0; at < row->count; at += PIECE)
        if (link_send(&g->link, g->groups->pipe, row->sum + at,
                      (size_t)at_most(row->count - at) * sizeof(float), stage, err) < 0)
            return -1;
    return 0;
}

int gradients_receive_term(struct gradients *g, int i, int stage, struct err *err)
{
    const struct parameter *row = &g->p->row[i];

    for (uint64_t at = 0; at < row->count; at += PIECE) {
        const uint64_t some = at_most(row->count - at);

        if (link_receive(&g->link, g->groups->pipe, g->room,
                         (size_t)some * sizeof(float), stage, err) < 0 ||
            parameters_add(g->p, row->sum + at, row->sum + at, g->room, some, err) < 0)
            return -1;
    }
    return 0;
}

int gradients_receive_sum(struct gradients *g, int i, int stage, struct err *err)
{
    const struct parameter *row = &g->p->row[i];

    for (uint64_t at = 0; at < row->count; at += PIECE)
        if (link_receive(&g->link, g->groups->pipe, row->sum + at,
                         (size_t)at_most(row->count - at) * sizeof(float), stage,
                         err) < 0)
            return -1;
    return 0;
}

/* Without a tree: over the tensor group, then over replicas. */
static int sum_in_order(struct gradients *g, struct err *err)
{
    struct parameters *p = g->p;

    if (sum_tensors(g, err) < 0)
        return -1;
    for (int u = 0; u < p->units.n && !g->scattered; u++)
        if (sum_beside_experts(g, u, p->gradient + p->units.v[u].at, err) < 0)
            return -1;
    if (!g->scattered)
        return reduce(g, g->replicas.sharing, p->gradient, p->trained, err);
    for (int u = 0; u < p->units.n; u++) {
        const struct weight_unit *unit = &p->units.v[u];
        float *x =
            parameters_sums_late(p) ? g->into[unit->first] : p->gradient + unit->at;

        if (parameters_sums_late(p) && !unit->apart)
            continue;
        if (scatter(g, u, x, err) < 0 ||
            (parameters_sums_late(p) && collect(g, u, x, p->sum, true, err) < 0))
            return -1;
    }
    return 0;
}

int gradients_sum(struct gradients *g, struct err *err)
{
    return g->level ? 0 : sum_in_order(g, err);
}

/* ---- the norm ---- */

int gradients_squares(struct gradients *g, double word[SQUARES_WORDS], struct err *err)
{
    struct parameters *p = g->p;
    uint64_t sum[SQUARES_WORDS];

    if (parameters_zero(p, g->squares, 2 * SQUARES_WORDS, err) < 0)
        return -1;
    for (size_t i = 0; i < g->nowned; i++) {
        const struct array_call c = { .n = g->owned[i].n,
                                      .y = g->squares,
                                      .x = g->owned[i].first };

        if (parameters_run(p, ARRAY_SQUARES, &c, err) < 0)
            return -1;
    }
    if (p->ops->copy_out(p->device, sum, g->squares, sizeof(sum), err) < 0)
        return -1;
    squares_words(sum, word);
    return 0;
}

/* ---- weights ---- */

/* All-gathers X, to which each rank R gives SHARE[R] numbers of SIZE bytes, and this
 * one MINE; through the host a piece at a time, the owner's alone not empty. */
static int gather(struct gradients *g, const size_t *share, size_t size,
                  const void *mine, void *x, struct err *err)
{
    struct comm *c = g->replicas.sharing;
    const char *from = mine;
    char *to = x;
    size_t *some;
    int ret = 0;

    if (!link_is_staged(&g->link, c))
        return link_all_gather(&g->link, c, mine, x, share, size, err);
    some = xcalloc((size_t)c->size, sizeof(*some));
    for (int r = 0; r < c->size && ret == 0; r++) {
        for (size_t at = 0; at < share[r] && ret == 0; at += some[r]) {
            some[r] = (size_t)at_most(share[r] - at);
            ret = link_all_gather(&g->link, c, from + at * size, to + at * size, some,
                                  size, err);
        }
        some[r] = 0;
        to += share[r] * size;
    }
    free(some);
    return ret;
}

/* Puts this rank's numbers of unit U, which is gathered at X, at their place there. */
static int put_own(struct gradients *g, int u, char *x, struct err *err)
{
    struct parameters *p = g->p;
    const struct weight_unit *unit = &p->units.v[u];

    for (int i = unit->first; i < unit->end; i++) {
        const struct parameter *row = &p->row[i];
        const bool narrow = p->image.narrow[i];
        const struct array_call c = {
            .n = row->count,
            .y = x + p->image.at[i] + row->first * (narrow ? 2 : sizeof(float)),
            .x = row->own,
            .y_format = narrow ? p->owner.gathers : FORMAT_F32,
            .x_format = FORMAT_F32
        };

        if (p->units.of[i] == u && row->count &&
            parameters_run(p, ARRAY_CAST, &c, err) < 0)
            return -1;
    }
    return 0;
}

int gradients_spread(struct gradients *g, struct err *err)
{
    struct parameters *p = g->p;

    if (p->owner.size == 1 || parameters_gathers(p))
        return 0;
    for (int u = 0; u < p->units.n; u++) {
        char *x = (char *)p->weight + p->unit_at[u];
        const size_t *share = shares_of(g, u);
        size_t unit = sizeof(float), before = 0;

        if (p->no_master) { /* numbers of two sizes */
            share = p->share_bytes + (size_t)u * (size_t)p->owner.size;
            unit = 1;
        }
        for (int r = 0; r < p->owner.rank; r++)
            before += share[r];
        if (gather(g, share, unit, x + before * unit, x, err) < 0)
            return -1;
    }
    return 0;
}

/* Where ranks exchange memory of the host, others go on meanwhile. */
static bool goes_beside(const struct gradients *g)
{
    return g->p->ops->host_memory;
}

int gradients_gather(struct gradients *g, const struct unit_stay *s, struct err *err)
{
    struct parameters *p = g->p;
    const size_t *share = p->share_bytes + (size_t)s->unit * (size_t)p->owner.size;
    const void *mine = (char *)p->own + p->own_at[s->unit];
    char *x = (char *)(p->gathered + s->at);

    if (p->owner.gathers != FORMAT_F32 &&
        !p->no_master) { /* in its place, where it is narrow */
        size_t before = 0;

        for (int r = 0; r < p->owner.rank; r++)
            before += share[r];
        if (put_own(g, s->unit, x, err) < 0)
            return -1;
        mine = x + before;
    }
    if (!goes_beside(g))
        return gather(g, share, 1, mine, x, err);
    return p->ops->wait(p->device, err) < 0
               ? -1
               : comm_start(g->replicas.sharing,
                            comm_all_gather_parts(mine, x, share, 1), err);
}

int gradients_gathered(struct gradients *g, struct err *err)
{
    return goes_beside(g) ? comm_wait(g->replicas.sharing, err) : 0;
}
