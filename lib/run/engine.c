/* engine - runs a program on one rank */
#include "lib/run/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/run/attend.h"
#include "lib/run/exchange.h"

/* Backends in order of preference. */
static const struct backend *const backends[] = { &backend_cpu };

/* ---- opening ---- */

/* For steps of at most ROWS rows. */
static void open_rotations(struct engine *e, size_t rows)
{
    e->rotation = xcalloc((size_t)e->p->nropes + 1, sizeof(*e->rotation));
    for (int i = 0; i < e->p->nropes; i++) {
        const struct rope *r = &e->p->rope[i];
        size_t half = r->dim / 2;

        e->rotation[i].cos = xcalloc(rows * half + 1, sizeof(float));
        e->rotation[i].sin = xcalloc(rows * half + 1, sizeof(float));
        e->rotation[i].inv_freq = xmalloc(sizeof(double) * (half + 1));
        memcpy(e->rotation[i].inv_freq, r->inv_freq, sizeof(double) * half);
    }
}

int engine_open(struct engine **out, const struct program *program,
                const struct matrix *weight, const struct engine_groups *groups,
                const struct engine_limits *limits, struct err *err)
{
    struct engine *e = xcalloc(1, sizeof(*e));
    struct attend_limits al = { limits->tokens, limits->context, limits->source,
                                limits->sequences + !limits->sequences };
    uint64_t most[ROWS_KINDS] = {
        [ROWS_WANTED] = limits->wanted, [ROWS_ONE] = 1, [ROWS_SOURCE] = limits->source
    };
    size_t rows;

    e->p = program;
    e->weight = weight;
    e->comm = groups->tensor;
    e->pipe = groups->pipe;
    e->limits = *limits;
    e->limits.sequences += !limits->sequences;
    sequence_init(&e->sequence, groups->sequence, groups->across);
    rows = sequence_rows_most(&e->sequence, limits->tokens);
    for (size_t i = 0; i < sizeof(backends) / sizeof(*backends) && !e->ops; i++)
        if (backends[i]->probe())
            e->ops = backends[i];
    e->offset = xcalloc((size_t)program->nvalues + 1, sizeof(*e->offset));
    e->position = xcalloc(rows + 1, sizeof(*e->position));
    e->types = xcalloc(rows + 1, sizeof(*e->types));
    e->chosen = xcalloc(rows + limits->source + 1, sizeof(*e->chosen));
    e->whole = xcalloc((size_t)program->noutputs + 1, sizeof(*e->whole));
    e->whole_cap = xcalloc((size_t)program->noutputs + 1, sizeof(*e->whole_cap));
    open_rotations(e, rows);
    most[ROWS_TOKENS] = rows;
    most[ROWS_CHOSEN] = rows > limits->source ? rows : limits->source;
    if (!program_arena(program, most, e->offset, &e->arena_bytes)) {
        err_set(err, ERR_SYSTEM, "the arena overflows");
        goto fail;
    }
    e->arena = mem_alloc(e->arena_bytes, "the arena", err);
    if (!e->arena || e->ops->open(&e->device, limits->threads, err) < 0 ||
        attend_open(&e->attend, program, &e->sequence, e->ops, e->device, &al, err) < 0)
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
    for (int i = 0; e->whole && i < e->p->noutputs; i++)
        free(e->whole[i]);
    attend_free(e->attend);
    if (e->device)
        e->ops->close(e->device);
    free(e->rotation);
    free(e->whole);
    free(e->whole_cap);
    free(e->arena);
    free(e->offset);
    free(e->position);
    free(e->types);
    free(e->chosen);
    free(e->stat);
    free(e->exchange);
    free(e);
}

uint64_t engine_cache_bytes(const struct engine *e)
{
    return attend_cache_bytes(e->attend);
}

uint64_t engine_arena_bytes(const struct engine *e)
{
    return e->arena_bytes + attend_scratch_bytes(e->attend);
}

uint64_t engine_moved_bytes(const struct engine *e)
{
    return e->sequence.moved;
}

/* ---- one instruction ---- */

static void run_segment(struct engine *e, const struct inst *inst)
{
    size_t rows = rows_of(e, inst->dst), from = e->p->value[inst->src[0]].cols;
    size_t cols = e->p->value[inst->dst].cols;

    for (size_t i = 0; i < rows; i++)
        memcpy(value(e, inst->dst) + i * cols,
               value(e, inst->src[0]) + i * from + inst->segment.first,
               cols * sizeof(float));
}

static const int32_t *index_of(const struct engine *e, enum index index)
{
    return index == INDEX_IDS         ? e->step.ids
           : index == INDEX_SOURCE    ? e->step.source
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
    case OP_MUL_ROWS:
        e->ops->mul_rows(e->device, y, x, value(e, inst->src[1]), rows, cols);
        return 0;
    case OP_SOFTMAX:
        e->ops->softmax(e->device, y, x, rows, cols);
        return 0;
    case OP_ROUTE:
        e->ops->route(e->device, y, x, rows, cols, inst, w);
        return 0;
    case OP_EACH:
        e->ops->take_rows(e->device, y, x, e->chosen, rows, cols);
        return 0;
    case OP_JOIN:
        e->ops->add_rows(e->device, y, x, e->chosen, e->nchosen, cols,
                         value(e, inst->src[1]), p->value[inst->src[1]].cols,
                         e->first_expert + e->expert);
        return 0;
    case OP_CONCAT:
        e->ops->concat(e->device, y, x, value(e, inst->src[1]), rows, inst);
        return 0;
    case OP_HEAD_LINEAR:
    case OP_HEAD_MATMUL:
        return e->ops->head_product(e->device, y, x, rows, inst,
                                    inst->op == OP_HEAD_MATMUL, w, err);
    case OP_SOFTCAP:
        e->ops->softcap(e->device, y, x, inst->number, n);
        return 0;
    case OP_CLIP:
        e->ops->clip(e->device, y, x, inst->number, n);
        return 0;
    case OP_ACTIVATION:
        e->ops->activation(e->device, y, x, inst->act, n);
        return 0;
    case OP_RMSNORM:
    case OP_LAYERNORM:
        return exchange_norm(e, inst, err);
    case OP_ROPE:
        e->ops->rope(e->device, y, x, rows, cols, inst->rope.head,
                     &p->rope[inst->rope.table], e->rotation[inst->rope.table].cos,
                     e->rotation[inst->rope.table].sin);
        return 0;
    case OP_KEEP:
        return attend_keep(e->attend, inst, x, err);
    case OP_ATTENTION:
        return attend_run(e->attend, inst, w, y, x,
                          p->value[inst->src[1]].kept ? NULL : value(e, inst->src[1]),
                          p->value[inst->src[2]].kept ? NULL : value(e, inst->src[2]),
                          err);
    case OP_SEGMENT:
        run_segment(e, inst);
        return 0;
    case OP_TAKE:
        return exchange_take(e, inst, err);
    case OP_FIRST:
        return exchange_first(e, inst, err);
    case OP_ALLREDUCE:
        memcpy(y, x, n * sizeof(*y));
        return comm_run(e->comm, comm_all_reduce(y, n), err);
    case OP_ALLGATHER:
        return exchange_gather(e, inst, err);
    case OP_SLICE:
        exchange_slice(e, inst);
        return 0;
    case OP_NLL:
    case OP_ARGMAX:
        return exchange_rows(e, inst, err);
    case OP_COUNT:
        break;
    }
    return err_set(err, ERR_SYSTEM, "operation %d is not known", (int)inst->op);
}

/* ---- loops over experts ---- */

/* The rows for which ROUTE has a weight in column COL. */
static void choose_rows(struct engine *e, int route, uint64_t col)
{
    size_t rows = rows_of(e, route), cols = e->p->value[route].cols;
    const float *r = value(e, route);

    e->nchosen = 0;
    for (size_t i = 0; i < rows; i++)
        if (r[i * cols + col] != 0)
            e->chosen[e->nchosen++] = (int32_t)i;
}

/* Run the loop that begins at instruction *AT for each expert of this rank that some
 * row goes to; *at becomes its last instruction. */
static int run_loop(struct engine *e, int *at, struct err *err)
{
    const struct program *p = e->p;
    const struct inst *each = &p->inst[*at];
    int begin = *at, end = begin, ret = 0;

    while (end + 1 < p->ninsts && p->inst[end + 1].loop == each->loop)
        end++;
    *at = end;
    memset(value(e, each->each.sum), 0,
           rows_of(e, each->each.sum) * p->value[each->each.sum].cols * sizeof(float));
    e->first_expert = each->each.first;
    for (uint64_t k = 0; k < each->each.count && ret == 0; k++) {
        choose_rows(e, each->src[1], each->each.first + k);
        e->expert = k;
        for (int i = begin; i <= end && e->nchosen && ret == 0; i++)
            ret = run(e, &p->inst[i], err);
    }
    e->expert = 0;
    return ret;
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
            program_rope_dynamic(r, e->step.start + e->sequence.n,
                                 e->rotation[t].inv_freq);
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

/* The outputs' rows of all tokens, to the first rank of the sequence group. */
static int collect(struct engine *e, struct err *err)
{
    const struct program *p = e->p;

    for (int i = 0; i < p->noutputs && !e->sequence.shared; i++) {
        int v = p->output[i].value;
        size_t cols = p->value[v].cols;

        if (p->value[v].rows != ROWS_TOKENS || p->value[v].first < 0)
            continue;
        if (e->sequence.comm->rank == 0)
            e->whole[i] = xgrow(e->whole[i], &e->whole_cap[i], e->sequence.n * cols + 1,
                                sizeof(**e->whole));
        if (sequence_collect(&e->sequence, e->whole[i], value(e, v), cols, err) < 0)
            return -1;
    }
    return 0;
}

void engine_watch(struct engine *e, void (*see)(void *arg, int part), void *arg)
{
    e->see = see;
    e->see_arg = arg;
}

static int part_of(const struct engine *e, int inst)
{
    const struct value *v = &e->p->value[e->p->inst[inst].dst];

    return model_part(e->p->model, v->section, v->layer);
}

/* Instruction INST comes next. */
static void tell_part(const struct engine *e, int inst)
{
    if (!e->see)
        return;
    if (inst == e->p->ninsts)
        e->see(e->see_arg, -1);
    else if (inst == 0 || part_of(e, inst) != part_of(e, inst - 1))
        e->see(e->see_arg, part_of(e, inst));
}

int engine_step(struct engine *e, const struct step *step, struct err *err)
{
    if (step->n > e->limits.tokens || step->nwanted > e->limits.wanted ||
        step->sequence >= e->limits.sequences ||
        (e->p->nslots && step->start + step->n > e->limits.context) ||
        step->nsource > e->limits.source ||
        (e->p->source && step->start == 0 && !step->nsource))
        return err_set(err, ERR_SYSTEM,
                       "a step of %zu tokens at %zu is beyond the limits", step->n,
                       step->start);
    sequence_begin(&e->sequence, step->n);
    attend_begin(e->attend, step->sequence, step->start, step->nsource);
    e->step = *step;
    e->step.ids += e->sequence.first;
    e->step.n = e->sequence.count;
    e->targets = step->targets;
    for (size_t i = 0; i < e->step.n; i++) {
        size_t row = e->sequence.first + i;

        e->position[i] = (int32_t)(step->start + row);
        e->types[i] = step->token_types ? step->token_types[row] : 0;
    }
    set_rotations(e);
    if (import(e, err) < 0)
        return -1;
    for (int i = 0; i < e->p->ninsts; i++) {
        tell_part(e, i);
        if (!step->nsource && e->p->value[e->p->inst[i].dst].rows == ROWS_SOURCE)
            continue;
        if ((e->p->inst[i].op == OP_EACH ? run_loop(e, &i, err)
                                         : run(e, &e->p->inst[i], err)) < 0)
            return -1;
    }
    tell_part(e, e->p->ninsts);
    return export(e, err) < 0 ? -1 : collect(e, err);
}

const float *engine_output(const struct engine *e, int i, size_t *rows)
{
    int v = e->p->output[i].value;
    bool collected = e->p->value[v].rows == ROWS_TOKENS && !e->sequence.shared &&
                     e->sequence.comm->rank == 0;

    *rows = collected ? e->sequence.n : rows_of(e, v);
    return collected ? e->whole[i] : value(e, v);
}
