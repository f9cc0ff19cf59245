/* gradients - sums of gradients: over micro-batches, replicas, ranks and stages */
#include "lib/train/gradients.h"

#include <stdlib.h>

#include "lib/base/mem.h"

/* Elements that are exchanged at a time where that goes through another memory. */
enum { PIECE = 1 << 15 };

/* ---- opening ---- */

struct finding {
    struct gradients *g;
    uint64_t at; /* of the weight in the gradients */
    size_t cap;
};

/* Notes N owned elements from HERE, with those just before them as one range. */
static void note_owned(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    struct finding *f = arg;
    struct gradients *g = f->g;
    uint64_t first = f->at + here, from = 0, count = n;

    (void)whole;
    if (g->scattered)
        parameters_own(g->p, first, n, &from, &count);
    if (!owned || !count)
        return;
    first += from;
    n = (size_t)count;
    if (g->nowned &&
        g->owned[g->nowned - 1].first + g->owned[g->nowned - 1].n == first) {
        g->owned[g->nowned - 1].n += n;
        return;
    }
    g->owned = xgrow(g->owned, &f->cap, g->nowned + 1, sizeof(*g->owned));
    g->owned[g->nowned++] = (struct gradients_range){ first, n };
}

static void find_owned(struct gradients *g)
{
    struct parameters *p = g->p;
    struct finding f = { .g = g };

    for (int i = 0; i < p->program->nweights; i++) {
        if (!p->row[i].trained || p->row[i].load)
            continue;
        f.at = (uint64_t)(p->row[i].gradient - p->gradient);
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
    const struct comm *pipe = g->groups->pipe;

    return pipe->size > 1 && (pipe->rank == 0 || pipe->rank == pipe->size - 1) &&
           !g->p->program->weight[i].adapter &&
           g->p->shared[g->p->program->weight[i].tensor] && g->p->row[i].trained;
}

static uint64_t at_most(uint64_t n)
{
    return n < PIECE ? n : PIECE;
}

/* Finds the largest exchange that needs room, and what of it goes through the host. */
static void plan_room(struct gradients *g)
{
    const struct engine_groups *groups = g->groups;
    uint64_t staged = 0;

    if (g->level && g->data->size > 1)
        g->nroom = at_most(g->p->trained);
    if (link_is_staged(&g->link, g->data))
        staged = at_most(g->p->owner.size > 1 ? g->p->n : g->p->trained);
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
    for (int i = 0; i < levels; i++) {
        g->level[i] = p->ops->alloc(p->device, p->trained * sizeof(float),
                                    "gradients of micro-batches", err);
        if (!g->level[i])
            return -1;
    }
    return 0;
}

int gradients_open(struct gradients *g, struct parameters *p,
                   const struct engine_groups *groups, struct comm *data, int levels,
                   struct err *err)
{
    const float *base;

    *g = (struct gradients){ .p = p, .groups = groups, .data = data };
    g->scattered = p->owner.size > 1 && !levels;
    link_init(&g->link, p->ops, p->device);
    g->link.wires = groups->wires;
    g->into = xcalloc((size_t)p->program->nweights + 1, sizeof(*g->into));
    if (levels && make_tree(g, levels, err) < 0)
        goto fail;
    base = g->level ? g->level[0] : p->gradient;
    for (int i = 0; i < p->program->nweights; i++)
        if (p->row[i].trained)
            g->into[i] = (float *)base + (p->row[i].gradient - p->gradient);
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
    g->p->ops->release(g->p->device, g->room);
    g->p->ops->release(g->p->device, g->squares);
    link_clear(&g->link);
    free(g->level);
    free(g->into);
    free(g->owned);
    *g = (struct gradients){ 0 };
}

void gradients_memory(const struct gradients *g, struct ledger *list)
{
    ledger_add(list, "gradient_sums", LEDGER_DEVICE,
               (uint64_t)g->levels * g->p->trained * sizeof(float));
    ledger_add(list, "gradient_exchange", LEDGER_DEVICE,
               g->nroom * sizeof(float) + SQUARES_WORDS * sizeof(*g->squares));
    ledger_add(list, "staging", LEDGER_HOST, link_bytes(&g->link));
}

/* ---- over micro-batches ---- */

int gradients_begin(struct gradients *g, struct err *err)
{
    return g->level ? 0 : parameters_zero(g->p, g->p->gradient, g->p->trained, err);
}

int gradients_begin_micro(struct gradients *g, struct err *err)
{
    return g->level ? parameters_zero(g->p, g->level[0], g->p->trained, err) : 0;
}

/* Adds the gradients of micro-batch M to those of its neighbours in the tree, the
 * earlier first: level i has the sum of 2^(i-1) micro-batches, the store that of all.
 */
int gradients_end_micro(struct gradients *g, int m, struct err *err)
{
    struct parameters *p = g->p;
    int level = 1;

    if (!g->level)
        return 0;
    for (; m & 1; m >>= 1, level++)
        if (parameters_add(p, g->level[0], g->level[level], g->level[0], p->trained,
                           err) < 0)
            return -1;
    return p->ops->copy(p->device, level == g->levels ? p->gradient : g->level[level],
                        g->level[0], p->trained * sizeof(float), err);
}

/* ---- over replicas ---- */

/* Exchanges N elements at X with rank OTHER of C: X becomes the sum, both ranks adding
 * the lower rank's term first. */
static int add_other(struct gradients *g, struct comm *c, int other, float *x,
                     uint64_t n, struct err *err)
{
    for (uint64_t at = 0; at < n; at += PIECE) {
        uint64_t some = at_most(n - at);
        size_t bytes = (size_t)some * sizeof(float);
        bool after = other > c->rank;
        float *own = x + at;

        if (link_send(&g->link, c, own, bytes, other, err) < 0 ||
            link_receive(&g->link, c, g->room, bytes, other, err) < 0 ||
            parameters_add(g->p, own, after ? own : g->room, after ? g->room : own,
                           some, err) < 0)
            return -1;
    }
    return 0;
}

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

/* Numbers of elements [FROM, TO) of the trained that each replica owns. */
static size_t *shares_dup(const struct gradients *g, uint64_t from, uint64_t to)
{
    size_t *count = xcalloc((size_t)g->data->size, sizeof(*count));

    for (int r = 0; r < g->data->size; r++) {
        uint64_t first, n;

        optimizer_range(g->p->trained, r, g->data->size, &first, &n);
        n = first + n < to ? first + n : to;
        first = first > from ? first : from;
        count[r] = n > first ? (size_t)(n - first) : 0;
    }
    return count;
}

/* Sums elements [FROM, TO), each on its owner. */
static int scatter(struct gradients *g, uint64_t from, uint64_t to, struct err *err)
{
    size_t *count;
    int ret;

    if (from == to)
        return 0;
    if (link_is_staged(&g->link, g->data))
        return reduce(g, g->data, g->p->gradient + from, to - from, err);
    count = shares_dup(g, from, to);
    ret = link_reduce_scatter(&g->link, g->data, g->p->gradient + from, count, err);
    free(count);
    return ret;
}

/* A weight whose gradient other ranks of this replica add to has other elements there,
 * or the same ones with other owners: all replicas need all of it. */
static int scatter_replicas(struct gradients *g, struct err *err)
{
    struct parameters *p = g->p;
    uint64_t at = 0;

    for (int i = 0; i < p->program->nweights; i++) {
        const struct parameter *row = &p->row[i];
        uint64_t first = row->trained ? (uint64_t)(row->gradient - p->gradient) : 0;

        if (!is_summed(g, i) && !is_tied(g, i))
            continue;
        if (scatter(g, at, first, err) < 0 ||
            reduce(g, g->data, row->gradient, row->n, err) < 0)
            return -1;
        at = first + row->n;
    }
    return scatter(g, at, p->trained, err);
}

/* In rank order, or in a tree. */
static int sum_replicas(struct gradients *g, struct err *err)
{
    struct parameters *p = g->p;

    if (g->scattered)
        return scatter_replicas(g, err);
    if (!g->level)
        return reduce(g, g->data, p->gradient, p->trained, err);
    for (int bit = 1; bit < g->data->size; bit <<= 1)
        if (add_other(g, g->data, g->data->rank ^ bit, p->gradient, p->trained, err) <
            0)
            return -1;
    return 0;
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
    struct copying copy = { .g = g, .here = p->row[i].gradient, .err = err };

    if (parameters_zero(p, g->room, n, err) < 0)
        return -1;
    parameters_runs(p, i, copy_run, &copy);
    if (copy.ret < 0 || reduce(g, g->groups->tensor, g->room, n, err) < 0)
        return -1;
    copy.back = true;
    parameters_runs(p, i, copy_run, &copy);
    return copy.ret;
}

/* ---- over stages ---- */

/* The gradient of a tied weight is summed over the first and the last stage. */
static int tie_one(struct gradients *g, int i, struct err *err)
{
    struct comm *pipe = g->groups->pipe;

    return add_other(g, pipe, pipe->rank ? 0 : pipe->size - 1, g->p->row[i].gradient,
                     g->p->row[i].n, err);
}

int gradients_sum(struct gradients *g, struct err *err)
{
    int n = g->p->program->nweights;

    if (sum_replicas(g, err) < 0)
        return -1;
    for (int i = 0; i < n; i++)
        if (is_summed(g, i) && sum_one(g, i, err) < 0)
            return -1;
    for (int i = 0; i < n; i++)
        if (is_tied(g, i) && tie_one(g, i, err) < 0)
            return -1;
    return 0;
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
                                      .x = p->gradient + g->owned[i].first };

        if (parameters_run(p, ARRAY_SQUARES, &c, err) < 0)
            return -1;
    }
    if (p->ops->copy_out(p->device, sum, g->squares, sizeof(sum), err) < 0)
        return -1;
    squares_words(sum, word);
    return 0;
}

/* ---- weights ---- */

/* Through the host a piece at a time, the owner's alone not empty. */
static int spread_pieces(struct gradients *g, size_t *count, struct err *err)
{
    float *x = g->p->weight;
    int ret = 0;

    for (int r = 0; r < g->data->size && ret == 0; r++) {
        size_t n = count[r];
        size_t *some = xcalloc((size_t)g->data->size, sizeof(*some));

        for (size_t at = 0; at < n && ret == 0; at += some[r]) {
            some[r] = (size_t)at_most(n - at);
            ret = link_all_gather(&g->link, g->data, x + at, x + at, some,
                                  sizeof(float), err);
        }
        x += n;
        free(some);
    }
    return ret;
}

/* Weights that are not trained lie between others and travel with them. */
int gradients_spread(struct gradients *g, struct err *err)
{
    struct parameters *p = g->p;
    int size = p->owner.size, ret;
    size_t *count, before = 0;

    if (size == 1)
        return 0;
    count = xcalloc((size_t)size, sizeof(*count));
    for (int r = 0; r < size; r++) {
        uint64_t first, n, to = p->n;

        optimizer_range(p->trained, r, size, &first, &n);
        if (r < size - 1)
            to = parameters_place(p, first + n);
        count[r] = (size_t)to - before;
        before = (size_t)to;
    }
    before = 0;
    for (int r = 0; r < p->owner.rank; r++)
        before += count[r];
    ret = link_is_staged(&g->link, g->data)
              ? spread_pieces(g, count, err)
              : link_all_gather(&g->link, g->data, p->weight + before, p->weight, count,
                                sizeof(float), err);
    free(count);
    return ret;
}
