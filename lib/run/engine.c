/* engine - runs a program on one rank */
#include "lib/run/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* Backends in order of preference. */
static const struct backend *const backends[] = { &backend_cpu };

struct rotation {
    float *cos, *sin; /* [limits.tokens][dim/2] of this step */
    double *inv_freq; /* in force */
};

struct engine {
    const struct program *p;
    const struct backend *ops;
    struct device *device;
    const struct matrix *weight;
    struct comm *comm; /* the tensor group */
    struct comm *pipe; /* this rank's part of all stages */
    struct engine_limits limits;
    char *arena;
    uint64_t arena_bytes, cache_bytes;
    uint64_t *offset;          /* [nvalues] */
    float **cache;             /* [nslots]: [sequences][context][cols] */
    struct rotation *rotation; /* [nropes] */
    int32_t *position, *types; /* [tokens] */
    double *stat;              /* two numbers a group; grown as needed */
    size_t stat_cap;
    float *exchange; /* for gathers: own and all ranks' columns */
    size_t exchange_cap;
    struct step step; /* the last; its arrays are the caller's while it runs */
};

/* ---- opening ---- */

static int open_cache(struct engine *e, struct err *err)
{
    const struct program *p = e->p;

    e->cache = xcalloc((size_t)p->nslots + 1, sizeof(*e->cache));
    for (int i = 0; i < p->nslots; i++) {
        uint64_t bytes;

        if (p->value[p->slot_value[i]].first < 0)
            continue;
        if (!mem_mul(&bytes, e->limits.context, p->value[p->slot_value[i]].cols) ||
            !mem_mul(&bytes, bytes, sizeof(float)) ||
            !mem_mul(&bytes, bytes, e->limits.sequences))
            return err_set(err, ERR_SYSTEM, "the cache overflows");
        e->cache[i] = mem_alloc(bytes, "the cache", err);
        if (!e->cache[i])
            return -1;
        e->cache_bytes += bytes;
    }
    return 0;
}

static void open_rotations(struct engine *e)
{
    e->rotation = xcalloc((size_t)e->p->nropes + 1, sizeof(*e->rotation));
    for (int i = 0; i < e->p->nropes; i++) {
        const struct rope *r = &e->p->rope[i];
        size_t half = r->dim / 2;

        e->rotation[i].cos = xcalloc(e->limits.tokens * half + 1, sizeof(float));
        e->rotation[i].sin = xcalloc(e->limits.tokens * half + 1, sizeof(float));
        e->rotation[i].inv_freq = xmalloc(sizeof(double) * (half + 1));
        memcpy(e->rotation[i].inv_freq, r->inv_freq, sizeof(double) * half);
    }
}

int engine_open(struct engine **out, const struct program *program,
                const struct matrix *weight, struct comm *tensor, struct comm *pipe,
                const struct engine_limits *limits, struct err *err)
{
    struct engine *e = xcalloc(1, sizeof(*e));

    e->p = program;
    e->weight = weight;
    e->comm = tensor;
    e->pipe = pipe;
    e->limits = *limits;
    e->limits.sequences += !limits->sequences;
    for (size_t i = 0; i < sizeof(backends) / sizeof(*backends) && !e->ops; i++)
        if (backends[i]->probe())
            e->ops = backends[i];
    e->offset = xcalloc((size_t)program->nvalues + 1, sizeof(*e->offset));
    e->position = xcalloc(limits->tokens + 1, sizeof(*e->position));
    e->types = xcalloc(limits->tokens + 1, sizeof(*e->types));
    open_rotations(e);
    if (!program_arena(program, limits->tokens, limits->wanted, e->offset,
                       &e->arena_bytes)) {
        err_set(err, ERR_SYSTEM, "the arena overflows");
        goto fail;
    }
    e->arena = mem_alloc(e->arena_bytes, "the arena", err);
    if (!e->arena || open_cache(e, err) < 0)
        goto fail;
    if (e->ops->open(&e->device, limits->threads, err) < 0)
        goto fail;
    *out = e;
    return 0;
fail:
    engine_free(e);
    return -1;
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    for (int i = 0; e->rotation && i < e->p->nropes; i++) {
        free(e->rotation[i].cos);
        free(e->rotation[i].sin);
        free(e->rotation[i].inv_freq);
    }
    for (int i = 0; e->cache && i < e->p->nslots; i++)
        free(e->cache[i]);
    if (e->device)
        e->ops->close(e->device);
    free(e->rotation);
    free(e->cache);
    free(e->arena);
    free(e->offset);
    free(e->position);
    free(e->types);
    free(e->stat);
    free(e->exchange);
    free(e);
}

uint64_t engine_cache_bytes(const struct engine *e)
{
    return e->cache_bytes;
}

uint64_t engine_arena_bytes(const struct engine *e)
{
    return e->arena_bytes;
}

/* ---- one instruction ---- */

static size_t rows_of(const struct engine *e, int v)
{
    switch (e->p->value[v].rows) {
    case ROWS_WANTED:
        return e->step.nwanted;
    case ROWS_ONE:
        return 1;
    case ROWS_TOKENS:
        break;
    }
    return e->step.n;
}

static float *value(const struct engine *e, int v)
{
    return (float *)(void *)(e->arena + e->offset[v]);
}

/* The rows that slot SLOT keeps of the step's sequence; COLS wide. */
static float *kept_rows(const struct engine *e, int slot)
{
    size_t cols = e->p->value[e->p->slot_value[slot]].cols;

    return e->cache[slot] + e->step.sequence * e->limits.context * cols;
}

static const struct matrix *weight_of(const struct engine *e, int w)
{
    return w < 0 ? NULL : &e->weight[w];
}

static double *stats(struct engine *e, size_t n)
{
    e->stat = xgrow(e->stat, &e->stat_cap, n + 1, sizeof(*e->stat));
    return e->stat;
}

static float *exchange(struct engine *e, size_t n)
{
    e->exchange = xgrow(e->exchange, &e->exchange_cap, n + 1, sizeof(*e->exchange));
    return e->exchange;
}

static int run_norm(struct engine *e, const struct inst *inst, struct err *err)
{
    size_t rows = rows_of(e, inst->src[0]), cols = e->p->value[inst->dst].cols;
    size_t width = inst->norm.width, groups = width ? rows * cols / width : 0;
    bool cut = inst->norm.whole_width != width, center = inst->op == OP_LAYERNORM;
    size_t count = cut ? rows : groups; /* an empty part still takes part in the sums */
    double *mean = stats(e, 3 * count + 1), *square = mean + count,
           *zero = square + count;
    const float *x = value(e, inst->src[0]);
    double n = (double)inst->norm.whole_width;

    memset(mean, 0, 3 * count * sizeof(*mean));
    if (center) {
        if (inst->norm.owned && groups)
            e->ops->group_sum(e->device, mean, x, NULL, groups, width);
        if (cut && e->comm->ops->sum_f64(e->comm, mean, count, err) < 0)
            return -1;
        for (size_t i = 0; i < count; i++)
            mean[i] /= n;
    }
    if (inst->norm.owned && groups)
        e->ops->group_sum(e->device, square, x, center ? mean : zero, groups, width);
    if (cut && e->comm->ops->sum_f64(e->comm, square, count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        square[i] = 1 / sqrt(square[i] / n + inst->norm.eps);
    e->ops->group_scale(e->device, value(e, inst->dst), x, center ? mean : NULL, square,
                        groups, width, weight_of(e, inst->weight), inst->norm.plus_one,
                        weight_of(e, inst->weight2));
    return 0;
}

static int run_attention(struct engine *e, const struct inst *inst, struct err *err)
{
    const struct program *p = e->p;
    struct attention_step s = { .rows = e->step.n, .position = e->position };
    const float *side[2];

    s.keys = e->step.n;
    for (int i = 0; i < 2; i++) {
        int v = inst->src[1 + i];

        if (p->value[v].kept) {
            side[i] = kept_rows(e, p->inst[p->value[v].first].keep.slot);
            s.keys = e->step.start + e->step.n;
        } else {
            side[i] = value(e, v);
        }
    }
    s.k = side[0];
    s.v = side[1];
    return e->ops->attention(e->device, value(e, inst->dst), value(e, inst->src[0]),
                             inst, &s, err);
}

/* Columns of all ranks side by side, each rank's put where its runs say. */
static int run_gather(struct engine *e, const struct inst *inst, struct err *err)
{
    const struct gather *g = &e->p->gather[inst->gather.gather];
    size_t rows = rows_of(e, inst->src[0]), mine = e->p->value[inst->src[0]].cols;
    size_t whole = e->p->value[inst->dst].cols, most = 0;
    float *own, *all;

    for (int r = 0; r < g->parts; r++)
        most = g->runs[r].count > most ? g->runs[r].count : most;
    own = exchange(e, rows * most * (size_t)(g->parts + 1));
    all = own + rows * most;
    memcpy(own, value(e, inst->src[0]), rows * mine * sizeof(*own));
    if (e->comm->ops->gather(e->comm, own, all, rows * most * sizeof(*own), err) < 0)
        return -1;
    for (int r = 0; r < g->parts; r++)
        for (size_t i = 0; i < rows; i++) {
            const float *from = all + ((size_t)r * rows * most) + i * g->runs[r].count;

            for (size_t k = 0; k < g->runs[r].n; k++) {
                const struct run *run = &g->runs[r].v[k];

                if (run->owned)
                    memcpy(value(e, inst->dst) + i * whole + run->start, from,
                           run->count * sizeof(*from));
                from += run->count;
            }
        }
    return 0;
}

static void run_slice(struct engine *e, const struct inst *inst)
{
    const struct gather *g = &e->p->gather[inst->gather.gather];
    const struct runs *runs = &g->runs[e->p->coord[MESH_TP]];
    size_t rows = rows_of(e, inst->src[0]), whole = e->p->value[inst->src[0]].cols;
    float *to = value(e, inst->dst);

    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < runs->n; k++) {
            memcpy(to, value(e, inst->src[0]) + i * whole + runs->v[k].start,
                   runs->v[k].count * sizeof(*to));
            to += runs->v[k].count;
        }
}

static void run_segment(struct engine *e, const struct inst *inst)
{
    size_t rows = rows_of(e, inst->dst), from = e->p->value[inst->src[0]].cols;
    size_t cols = e->p->value[inst->dst].cols;

    for (size_t i = 0; i < rows; i++)
        memcpy(value(e, inst->dst) + i * cols,
               value(e, inst->src[0]) + i * from + inst->segment.first,
               cols * sizeof(float));
}

static void run_take(struct engine *e, const struct inst *inst)
{
    size_t cols = e->p->value[inst->dst].cols;

    for (size_t i = 0; i < e->step.nwanted; i++)
        memcpy(value(e, inst->dst) + i * cols,
               value(e, inst->src[0]) + (size_t)e->step.wanted[i] * cols,
               cols * sizeof(float));
}

/* What a rank knows of one row over its columns. */
struct row_part {
    double max, sum; /* sum of exp(x - max) */
    double target;   /* the target's value, where it is held */
    double index;    /* of the largest */
};

static struct row_part look_at_row(const float *x, size_t n, uint64_t first,
                                   int64_t target)
{
    struct row_part r = { .max = -INFINITY,
                          .target = -INFINITY,
                          .index = (double)first };

    for (size_t i = 0; i < n; i++)
        if ((double)x[i] > r.max) {
            r.max = (double)x[i];
            r.index = (double)(first + i);
        }
    for (size_t i = 0; i < n; i++)
        r.sum += exp((double)x[i] - r.max);
    if (target >= (int64_t)first && target < (int64_t)(first + n))
        r.target = (double)x[target - (int64_t)first];
    return r;
}

/* OP_NLL and OP_ARGMAX: each rank sums up its columns, then all combine them in rank
 * order. */
static int run_rows(struct engine *e, const struct inst *inst, struct err *err)
{
    size_t rows = rows_of(e, inst->src[0]), cols = e->p->value[inst->src[0]].cols;
    int parts = inst->row.cut ? e->comm->size : 1;
    struct row_part *mine, *all;

    mine = (struct row_part *)(void *)stats(e, rows * (size_t)(parts + 1) *
                                                   sizeof(*mine) / sizeof(double));
    all = inst->row.cut ? mine + rows : mine;
    for (size_t i = 0; i < rows; i++) {
        size_t row = e->p->value[inst->src[0]].rows == ROWS_WANTED && e->step.wanted
                         ? (size_t)e->step.wanted[i]
                         : i;
        int64_t target = e->step.targets ? e->step.targets[row] : -1;

        mine[i] = look_at_row(value(e, inst->src[0]) + i * cols, cols, inst->row.first,
                              target);
    }
    if (inst->row.cut &&
        e->comm->ops->gather(e->comm, mine, all, rows * sizeof(*mine), err) < 0)
        return -1;
    for (size_t i = 0; i < rows; i++) {
        struct row_part r = all[i];

        for (int k = 1; k < parts; k++) {
            const struct row_part *o = &all[(size_t)k * rows + i];
            double max = o->max > r.max ? o->max : r.max;

            if (o->max == -INFINITY)
                continue;
            r.sum = r.sum * exp(r.max - max) + o->sum * exp(o->max - max);
            r.index = o->max > r.max ? o->index : r.index;
            r.max = max;
            r.target = o->target > r.target ? o->target : r.target;
        }
        value(e, inst->dst)[i] = inst->op == OP_ARGMAX
                                     ? (float)r.index
                                     : (float)(r.max + log(r.sum) - r.target);
    }
    return 0;
}

static const int32_t *index_of(const struct engine *e, enum index index)
{
    return index == INDEX_IDS         ? e->step.ids
           : index == INDEX_POSITIONS ? e->position
                                      : e->types;
}

static int run(struct engine *e, const struct inst *inst, struct err *err)
{
    const struct program *p = e->p;
    size_t rows = rows_of(e, inst->dst), cols = p->value[inst->dst].cols,
           n = rows * cols;
    float *y = p->value[inst->dst].kept ? NULL : value(e, inst->dst);
    const float *x =
        inst->nsrc && !p->value[inst->src[0]].kept ? value(e, inst->src[0]) : NULL;
    const struct matrix *w = weight_of(e, inst->weight);

    switch (inst->op) {
    case OP_EMBEDDING:
        e->ops->embedding(e->device, y, w, index_of(e, inst->embedding.index), rows,
                          inst->embedding.offset, inst->embedding.first);
        return 0;
    case OP_LINEAR:
        return e->ops->linear(e->device, y, x, rows, w, err);
    case OP_MATMUL:
        return e->ops->matmul(e->device, y, x, rows, w, err);
    case OP_ADD:
        e->ops->add(e->device, y, x, value(e, inst->src[1]), n);
        return 0;
    case OP_MUL:
        e->ops->mul(e->device, y, x, value(e, inst->src[1]), n);
        return 0;
    case OP_ADD_VECTOR:
        e->ops->add_vector(e->device, y, x, w, rows);
        return 0;
    case OP_SCALE:
        e->ops->scale(e->device, y, x, inst->number, n);
        return 0;
    case OP_SOFTCAP:
        e->ops->softcap(e->device, y, x, inst->number, n);
        return 0;
    case OP_ACTIVATION:
        e->ops->activation(e->device, y, x, inst->act, n);
        return 0;
    case OP_RMSNORM:
    case OP_LAYERNORM:
        return run_norm(e, inst, err);
    case OP_ROPE:
        e->ops->rope(e->device, y, x, rows, cols, inst->rope.head,
                     &p->rope[inst->rope.table], e->rotation[inst->rope.table].cos,
                     e->rotation[inst->rope.table].sin);
        return 0;
    case OP_KEEP:
        memcpy(kept_rows(e, inst->keep.slot) + e->step.start * cols, x, n * sizeof(*x));
        return 0;
    case OP_ATTENTION:
        return run_attention(e, inst, err);
    case OP_SEGMENT:
        run_segment(e, inst);
        return 0;
    case OP_TAKE:
        run_take(e, inst);
        return 0;
    case OP_FIRST:
        memcpy(y, x, cols * sizeof(*y));
        return 0;
    case OP_ALLREDUCE:
        memcpy(y, x, n * sizeof(*y));
        return e->comm->ops->sum_f32(e->comm, y, n, err);
    case OP_ALLGATHER:
        return run_gather(e, inst, err);
    case OP_SLICE:
        run_slice(e, inst);
        return 0;
    case OP_NLL:
    case OP_ARGMAX:
        return run_rows(e, inst, err);
    case OP_COUNT:
        break;
    }
    return err_set(err, ERR_SYSTEM, "operation %d is not known", (int)inst->op);
}

/* ---- steps ---- */

/* The angles of this step's positions; rounded to f32, as models are trained with them.
 */
static void set_rotations(struct engine *e)
{
    for (int t = 0; t < e->p->nropes; t++) {
        const struct rope *r = &e->p->rope[t];
        size_t half = r->dim / 2;

        if (r->dynamic)
            program_rope_dynamic(r, e->step.start + e->step.n, e->rotation[t].inv_freq);
        for (size_t i = 0; i < e->step.n; i++)
            for (size_t k = 0; k < half; k++) {
                float angle = (float)e->position[i] * (float)e->rotation[t].inv_freq[k];

                e->rotation[t].cos[i * half + k] =
                    (float)(cos((double)angle) * r->scale);
                e->rotation[t].sin[i * half + k] =
                    (float)(sin((double)angle) * r->scale);
            }
    }
}

/* What comes over the border before this stage. */
static int import(struct engine *e, struct err *err)
{
    const struct program *p = e->p;

    for (int i = 0; i < p->nimports; i++) {
        int v = p->import[i];
        size_t bytes = rows_of(e, v) * p->value[v].cols * sizeof(float);

        if (e->pipe->ops->receive(e->pipe, value(e, v), bytes, e->pipe->rank - 1, err) <
            0)
            return -1;
    }
    return 0;
}

static int export(struct engine *e, struct err *err)
{
    const struct program *p = e->p;

    for (int i = 0; i < p->nexports; i++) {
        int v = p->export[i];
        size_t bytes = rows_of(e, v) * p->value[v].cols * sizeof(float);

        if (e->pipe->ops->send(e->pipe, value(e, v), bytes, e->pipe->rank + 1, err) < 0)
            return -1;
    }
    return 0;
}

int engine_step(struct engine *e, const struct step *step, struct err *err)
{
    if (step->n > e->limits.tokens || step->nwanted > e->limits.wanted ||
        step->sequence >= e->limits.sequences ||
        (e->p->nslots && step->start + step->n > e->limits.context))
        return err_set(err, ERR_SYSTEM,
                       "a step of %zu tokens at %zu is beyond the limits", step->n,
                       step->start);
    e->step = *step;
    for (size_t i = 0; i < step->n; i++) {
        e->position[i] = (int32_t)(step->start + i);
        e->types[i] = step->token_types ? step->token_types[i] : 0;
    }
    set_rotations(e);
    if (import(e, err) < 0)
        return -1;
    for (int i = 0; i < e->p->ninsts; i++)
        if (run(e, &e->p->inst[i], err) < 0)
            return -1;
    return export(e, err);
}

const float *engine_output(const struct engine *e, int i, size_t *rows)
{
    *rows = rows_of(e, e->p->output[i].value);
    return value(e, e->p->output[i].value);
}
