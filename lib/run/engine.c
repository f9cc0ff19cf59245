/* engine - runs a program on one rank */
#include "lib/run/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/codes.h"
#include "lib/base/mem.h"
#include "lib/run/attend.h"
#include "lib/run/alltoall.h"
#include "lib/run/chosenrows.h"
#include "lib/run/replays.h"
#include "lib/run/upload.h"

struct engine {
    const struct program *p;
    const struct backend *ops;
    struct device *device;
    const struct matrix *weight;
    struct comm *comm;    /* the tensor group */
    struct comm *pipe;    /* the same rank of all stages */
    struct comm *experts; /* expert-parallel ranks, if more than one; or NULL */
    struct engine_limits limits;
    bool narrow;  /* no product has weights of more than sixteen bits */
    bool rounded; /* they are bf16 or codes, and rows are rounded before them */
    uint64_t most[ROWS_MOST]; /* rows of the largest step */
    enum format *stored;      /* [nweights] */
    int threads;
    char *arena; /* device memory */
    uint64_t arena_bytes;
    uint64_t *offset; /* [nvalues]: in the arena */
    struct link link;
    struct sequence sequence, source; /* sharing of the tokens, and of the encoder's
                                       * tokens */
    struct attend *attend;
    struct states states;
    struct alltoall alltoall;
    struct upload upload;
    /* the current step */
    struct feeds feeds;
    struct chunk { /* rows that are run now; .n 0: all */
        size_t first, n;
        size_t counts;         /* in the upload: of a chunk, and of the last one */
        struct step_view view; /* of these rows */
    } chunk;
    size_t *chosen; /* [nmixtures]: rows received, with expert parallelism */
    struct chosenrows adapted;
    struct whole { /* [noutputs]: rows of all tokens, with sequence parallelism */
        float *x;
        uint64_t bytes;
    } * whole;
    float *const *gradient; /* [nweights]: device memory; borrowed */
    struct replays replays;
    uint64_t grown; /* how often an output was larger than planned */
    bool repeats;   /* this step is recorded, or replayed */
    struct engine_repeats counts;
    int recorded;     /* recordings so far, the same on all ranks of the tensor group */
    bool records_not; /* some rank of them cannot record */
    void (*see)(void *arg, int part); /* or NULL */
    void *see_arg;
    int (*before)(void *arg, int inst, bool over, struct err *err); /* or NULL */
    void *before_arg;
    int (*settle)(void *arg, struct err *err); /* or NULL */
    void *settle_arg;
    double *received; /* when messages of other stages came; or NULL */
};

/* ---- opening ---- */

static int plan_arena(struct engine *e, struct err *err)
{
    for (int k = ROWS_OWN; k < e->p->rows.n; k++)
        e->most[k] = e->limits.rows[k];
    e->most[ROWS_TOKENS] =
        sequence_rows_most(&e->sequence, e->limits.tokens + e->limits.running);
    e->most[ROWS_WANTED] = e->limits.wanted;
    e->most[ROWS_ONE] = e->limits.segments;
    e->most[ROWS_SOURCE] = sequence_rows_most(&e->source, e->limits.sources);
    rows_most(&e->p->rows, e->most);
    e->offset = xcalloc((size_t)e->p->nvalues + 1, sizeof(*e->offset));
    if (!program_arena(e->p, e->most, e->offset, &e->arena_bytes))
        return err_set(err, ERR_SYSTEM, "the arena overflows");
    return e->experts
               ? alltoall_plan(&e->alltoall, e->p, &e->link, e->experts, e->most, err)
               : 0;
}

/* Do all linear layers have weights of at most 16 bits?  *rounds: all of bf16 or codes.
 */
static bool is_narrow(const struct program *p, const enum format *stored, bool *rounds)
{
    bool some = false;

    *rounds = true;
    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];
        enum format type;

        if (inst->op != OP_LINEAR && inst->op != OP_MATMUL &&
            inst->op != OP_HEAD_LINEAR && inst->op != OP_HEAD_MATMUL)
            continue;
        type = stored[inst->weight];
        if (format_bits(type) > 16)
            return false;
        *rounds &= type == FORMAT_BF16 || format_is_coded(type);
        some = true;
    }
    return some;
}

/* Bytes of value V in the largest step. */
static uint64_t most_bytes(const struct engine *e, int v)
{
    const struct value *its = &e->p->value[v];

    return program_rows(e->p, its, e->most) * its->cols *
           (uint64_t)dtype_bits(its->dtype) / 8;
}

/* Finds what goes through the host's memory at a time. */
static void plan_link(struct engine *e)
{
    const struct program *p = e->p;
    bool piped = link_is_staged(&e->link, e->pipe);

    for (int i = 0; i < p->noutputs; i++)
        if (p->output[i].stage == p->coord[MESH_PP])
            link_plan(&e->link, most_bytes(e, p->output[i].value));
    for (int i = 0; i < p->ninsts; i++) {
        const struct inst *inst = &p->inst[i];
        enum op_collective how = op_table[inst->op].collective;
        struct comm *c = how == COLLECTIVE_ALL_TO_ALL ? e->experts
                         : inst->over == MESH_SP      ? e->sequence.comm
                                                      : e->comm;

        if (how == COLLECTIVE_NONE || !link_is_staged(&e->link, c))
            continue;
        link_plan(&e->link, most_bytes(e, inst->dst));
        for (int k = 0; k < inst->nsrc; k++)
            link_plan(&e->link, most_bytes(e, inst->src[k]));
    }
    for (int i = 0; e->experts && i < p->nmixtures; i++) { /* counts always do */
        link_plan(&e->link, most_bytes(e, p->mixture[i].sent));
        link_plan(&e->link, most_bytes(e, p->mixture[i].counts));
    }
    for (int i = 0; i < p->nimports && piped; i++)
        link_plan(&e->link, most_bytes(e, p->import[i]));
    for (int i = 0; i < p->nexports && piped; i++)
        link_plan(&e->link, most_bytes(e, p->export[i]));
    if (link_is_staged(&e->link, e->sequence.comm))
        link_plan(&e->link, attend_sent_bytes(e->attend));
}

/* How the sequence group may share the rows of output I, which this stage computes;
 * NULL: not at all. */
static struct sequence *may_share(struct engine *e, int i)
{
    const struct program_output *o = &e->p->output[i];
    int rows = e->p->value[o->value].rows;

    if (o->stage != e->p->coord[MESH_PP])
        return NULL;
    return rows == ROWS_TOKENS ? &e->sequence : rows == ROWS_SOURCE ? &e->source : NULL;
}

/* Finds the bytes of the outputs that the group's first rank collects. */
static void plan_outputs(struct engine *e)
{
    for (int i = 0; i < e->p->noutputs; i++) {
        const struct sequence *s = may_share(e, i);

        if (s && s->comm->size > 1 && s->comm->rank == 0)
            e->whole[i].bytes =
                (s == &e->source ? e->limits.sources
                                 : e->limits.tokens + e->limits.running) *
                e->p->value[e->p->output[i].value].cols * sizeof(float);
    }
}

static void plan_upload(struct engine *e);

int engine_plan(struct engine **out, const struct program *program,
                const struct backend *ops, int threads, const enum format *stored,
                const struct engine_groups *groups, const struct engine_limits *limits,
                struct err *err)
{
    struct engine *e = xcalloc(1, sizeof(*e));
    const size_t drafted = limits->drafts ? limits->drafts + 1 : 0;
    struct cache_limits cache = {
        .tokens = limits->tokens > drafted ? limits->tokens : drafted,
        .source = groups->trains && limits->sources ? limits->sources : limits->source,
        .rows = limits->cache,
        .context = limits->context,
        .texts = limits->texts,
        .whole = limits->whole,
        .format = limits->kept,
        .sequences = limits->sequences + !limits->sequences
    };

    e->p = program;
    e->ops = ops;
    e->threads = threads;
    e->stored = xcalloc((size_t)program->nweights + 1, sizeof(*e->stored));
    memcpy(e->stored, stored, (size_t)program->nweights * sizeof(*stored));
    e->narrow = is_narrow(program, stored, &e->rounded);
    e->rounded &= e->narrow && program->rounded;
    e->comm = groups->tensor;
    e->pipe = groups->pipe;
    e->experts = groups->expert && groups->expert->size > 1 ? groups->expert : NULL;
    e->chosen = xcalloc((size_t)program->nmixtures + 1, sizeof(*e->chosen));
    e->limits = *limits;
    e->limits.sequences += !limits->sequences;
    e->limits.segments += !limits->segments;
    if (!limits->sources)
        e->limits.sources = limits->source;
    link_init(&e->link, ops, NULL);
    e->link.wires = groups->wires;
    upload_init(&e->upload, ops, NULL);
    replays_init(&e->replays, ops, NULL);
    sequence_init(&e->sequence, groups->sequence, &e->link, groups->across);
    sequence_init(&e->source, groups->sequence, &e->link, groups->across);
    e->sequence.trains = e->source.trains =
        groups->trains && groups->sequence->size > 1;
    e->feeds.p = program;
    e->feeds.upload = &e->upload;
    e->feeds.tokens = &e->sequence;
    e->feeds.source = &e->source;
    e->whole = xcalloc((size_t)program->noutputs + 1, sizeof(*e->whole));
    if (plan_arena(e, err) < 0 ||
        states_plan(&e->states, program, ops,
                    e->limits.sequences * (1 + limits->drafts) + limits->snapshots,
                    err) < 0 ||
        attend_plan(&e->attend, program, &e->sequence, &e->source, &e->link, &cache,
                    err) < 0) {
        engine_free(e);
        return -1;
    }
    plan_link(e);
    plan_outputs(e);
    plan_upload(e);
    *out = e;
    return 0;
}

static struct room_limits room_of(const struct engine *e)
{
    uint64_t tokens = e->limits.tokens + e->limits.running, keys;
    struct room_limits l = { .segments = e->limits.segments,
                             .queries =
                                 tokens > e->limits.source ? tokens : e->limits.source,
                             .block_rows = CACHE_BLOCK,
                             .stored = e->stored,
                             .narrow = e->narrow,
                             .rounded = e->rounded,
                             .threads = e->threads };

    keys = attend_keys_most(e->attend);
    l.keys = keys > l.queries ? keys : l.queries;
    l.padded_keys = attend_padded(l.keys);
    memcpy(l.most, e->most, sizeof(l.most));
    return l;
}

void engine_memory(const struct engine *e, struct ledger *list)
{
    enum ledger_where host = e->ops->host_memory ? LEDGER_DEVICE : LEDGER_HOST;

    ledger_add(list, "kv_cache", LEDGER_DEVICE, attend_cache_bytes(e->attend));
    ledger_add(list, "states", LEDGER_DEVICE, states_bytes(&e->states));
    ledger_add(list, "activations", LEDGER_DEVICE, e->arena_bytes);
    ledger_add(list, "exchange", LEDGER_DEVICE, attend_scratch_bytes(e->attend));
    ledger_add(list, "expert_rows", host, alltoall_bytes(&e->alltoall));
    ledger_add(list, "inputs", LEDGER_DEVICE,
               upload_bytes(&e->upload) + attend_tables_bytes(e->attend));
    ledger_add(list, "inputs", host, upload_bytes(&e->upload));
    ledger_add(list, "staging", host, link_bytes(&e->link));
    for (int i = 0; i < e->p->noutputs; i++)
        ledger_add(list, "outputs", host, e->whole[i].bytes);
}

void engine_room(const struct engine *e, const struct device *device,
                 struct ledger *list)
{
    const struct room_limits room = room_of(e);

    e->ops->room(device, e->p, &room, list);
}

int engine_start(struct engine *e, struct device *device, const struct matrix *weight,
                 struct err *err)
{
    struct room_limits room;

    e->device = e->link.device = e->upload.device = e->replays.device = device;
    e->weight = weight;
    for (int i = 0; i < e->p->nweights; i++)
        e->stored[i] = weight[i].format;
    e->narrow = is_narrow(e->p, e->stored, &e->rounded);
    e->rounded &= e->narrow && e->p->rounded;
    room = room_of(e);
    e->arena = e->ops->alloc(device, e->arena_bytes, "the arena", err);
    if (!e->arena || (e->experts && alltoall_open(&e->alltoall, err) < 0) ||
        attend_open(e->attend, err) < 0 || states_open(&e->states, device, err) < 0 ||
        upload_open(&e->upload, err) < 0 || link_open(&e->link, err) < 0)
        return -1;
    for (int i = 0; i < e->p->noutputs; i++) {
        struct whole *w = &e->whole[i];

        w->x = w->bytes ? mem_alloc(w->bytes, e->p->output[i].name, err) : NULL;
        if (w->bytes && !w->x)
            return -1;
    }
    return e->ops->reserve(device, e->p, &room, err);
}

int engine_open(struct engine **out, const struct program *program,
                const struct backend *ops, struct device *device,
                const struct matrix *weight, const struct engine_groups *groups,
                const struct engine_limits *limits, struct err *err)
{
    enum format *stored = xcalloc((size_t)program->nweights + 1, sizeof(*stored));
    struct engine *e;
    int ret;

    for (int i = 0; i < program->nweights; i++)
        stored[i] = weight[i].format;
    ret = engine_plan(&e, program, ops, 1, stored, groups, limits, err);
    free(stored);
    if (ret < 0)
        return -1;
    if (engine_start(e, device, weight, err) < 0) {
        engine_free(e);
        return -1;
    }
    *out = e;
    return 0;
}

uint64_t engine_grown(const struct engine *e)
{
    struct ledger ignored = { 0 };
    uint64_t kernels = 0;

    e->ops->taken(e->device, &ignored, &kernels);
    return kernels + e->upload.grown + e->link.grown + e->alltoall.grown +
           e->sequence.grown + e->source.grown + e->grown;
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    for (int i = 0; i < e->p->noutputs; i++)
        free(e->whole[i].x);
    replays_clear(&e->replays);
    attend_free(e->attend);
    states_close(&e->states);
    alltoall_close(&e->alltoall);
    chosenrows_clear(&e->adapted);
    sequence_clear(&e->sequence);
    sequence_clear(&e->source);
    upload_clear(&e->upload);
    link_clear(&e->link);
    if (e->arena)
        e->ops->release(e->device, e->arena);
    free(e->stored);
    free(e->whole);
    free(e->offset);
    free(e->chosen);
    free(e);
}

struct engine_repeats engine_repeats(const struct engine *e)
{
    return e->counts;
}

void engine_differentiate(struct engine *e, float *const *gradient,
                          const float factor[STEP_FACTORS])
{
    e->gradient = gradient;
    memcpy(e->feeds.factor, factor, sizeof(e->feeds.factor));
}

void engine_drop(struct engine *e, uint64_t seed)
{
    e->feeds.seed = seed;
}

uint64_t engine_moved_bytes(const struct engine *e)
{
    return e->sequence.moved + e->source.moved;
}

void engine_forget(struct engine *e, size_t sequence)
{
    attend_forget(e->attend, sequence);
}

bool engine_can_share(const struct engine *e, size_t *window)
{
    return attend_can_share(e->attend, window);
}

void engine_truncate(struct engine *e, size_t sequence, size_t n)
{
    attend_truncate(e->attend, sequence, n);
}

bool engine_has_states(const struct engine *e)
{
    return e->states.n > 0;
}

int engine_restore(struct engine *e, size_t sequence, size_t record, struct err *err)
{
    return states_copy(&e->states, sequence, record, err);
}

bool engine_can_fork(const struct engine *e)
{
    return attend_can_fork(e->attend);
}

int engine_share(struct engine *e, size_t to, size_t from, size_t n, struct err *err)
{
    return attend_share(e->attend, to, from, n, err);
}

size_t engine_cached_blocks(const struct engine *e)
{
    return attend_held(e->attend);
}

/* ---- values ---- */

/* Rows of value V where a step has ROWS.  For experts this is an upper bound, unless
 * they came from other ranks. */
static size_t rows_in(const struct engine *e, int v, const size_t rows[ROWS_MOST])
{
    uint64_t most[ROWS_MOST] = { 0 };

    if (e->experts && e->p->value[v].rows == ROWS_CHOSEN)
        return e->chosen[e->p->value[v].mixture];

    for (int k = 0; k < e->p->rows.n; k++)
        most[k] = rows[k];
    return program_rows(e->p, &e->p->value[v], most);
}

static size_t rows_of(const struct engine *e, int v)
{
    return rows_in(e, v, e->feeds.rows);
}

/* The rows that its kernels and collectives are launched for. */
static size_t room_of_rows(const struct engine *e, int v)
{
    return rows_in(e, v, e->feeds.room);
}

static char *address(const struct engine *e, int v)
{
    return e->arena + e->offset[v];
}

static size_t unit_of(const struct engine *e, int v)
{
    return (size_t)dtype_bits(e->p->value[v].dtype) / 8;
}

static size_t bytes_of(const struct engine *e, int v)
{
    return rows_of(e, v) * e->p->value[v].cols * unit_of(e, v);
}

/* The prefix sums of the rows per expert, and the number of experts. */
static const int32_t *expert_rows(const struct engine *e, int mixture, size_t *n)
{
    const struct mixture *m = &e->p->mixture[mixture];

    *n = m->count;
    return (const int32_t *)(const void *)address(e, m->counts);
}

static struct buffer value(const struct engine *e, int v)
{
    const struct value *its = &e->p->value[v];
    struct buffer b = { .rows = e->feeds.view.rows[its->rows],
                        .most = room_of_rows(e, v),
                        .cols = its->cols };
    size_t n;

    (void)format_of(&b.format, its->dtype); /* every type of a value has one */
    if (its->gradient)
        b.data = e->gradient[its->gradient - 1];
    else if (!its->kept && !its->inside)
        b.data = address(e, v);
    if (e->chunk.n && !its->gradient) {
        b.rows = e->chunk.view.rows[its->rows];
        b.most = e->chunk.n;
        if (!its->chunked)
            b.data = (char *)b.data + e->chunk.first * its->cols * unit_of(e, v);
    }
    if (its->rows == ROWS_CHOSEN) {
        b.rows = expert_rows(e, its->mixture, &n);
        b.rows += n;
    } else if (its->rows == ROWS_SENT) {
        const struct mixture *m = &e->p->mixture[its->mixture];

        b.rows = (const int32_t *)(const void *)address(e, m->sent) + m->all;
    }
    return b;
}

/* ---- one instruction ---- */

/* Does value V have a part of the rows of its space's parent? */
static bool is_part(const struct engine *e, int v)
{
    return e->p->rows.v[e->p->value[v].rows].how == HOW_SHARE;
}

/* COUNT[rank] = the numbers of rows of each rank of the tensor group where all have
 * ROWS, of COLS columns. */
static size_t *parts_new(const struct engine *e, size_t rows, uint64_t cols)
{
    size_t *count = xcalloc((size_t)e->comm->size + 1, sizeof(*count));

    for (int r = 0; r < e->comm->size; r++)
        count[r] = (size_t)(deal_units(rows, 1, e->comm->size, r).count * cols);
    return count;
}

/* Copies this rank's rows of INST's source to its result. */
static int own_rows(struct engine *e, const struct inst *inst, struct err *err)
{
    const size_t rows = rows_of(e, inst->src[0]);
    const struct share own = rows_share(&e->p->rows, e->p->value[inst->dst].rows, rows);
    const size_t each = (size_t)e->p->value[inst->dst].cols * unit_of(e, inst->dst);

    return own.count ? e->ops->copy(e->device, address(e, inst->dst),
                                    address(e, inst->src[0]) + own.start * each,
                                    own.count * each, err)
                     : 0;
}

/* An all-reduce of which this rank has its rows.  The source stays: a recomputation may
 * read it again. */
static int reduce_rows(struct engine *e, const struct inst *inst, struct err *err)
{
    size_t *count = parts_new(e, rows_of(e, inst->src[0]), e->p->value[inst->dst].cols);
    int ret = e->ops->wait(e->device, err);

    if (ret == 0)
        ret =
            comm_run(e->comm,
                     comm_reduce_scatter((float *)(void *)address(e, inst->src[0]),
                                         (float *)(void *)address(e, inst->dst), count),
                     err);
    free(count);
    return ret;
}

static int all_reduce(struct engine *e, const struct inst *inst, struct err *err)
{
    const struct value *y = &e->p->value[inst->dst];
    struct comm *c = inst->over == MESH_SP ? e->sequence.comm : e->comm;

    if (is_part(e, inst->dst))
        return reduce_rows(e, inst, err);
    return link_all_reduce(&e->link, c, address(e, inst->src[0]), address(e, inst->dst),
                           room_of_rows(e, inst->dst) * y->cols, y->dtype, err);
}

static int all_gather(struct engine *e, const struct inst *inst, struct err *err)
{
    const struct gather *g =
        inst->gather.gather < 0 ? NULL : &e->p->gather[inst->gather.gather];
    size_t rows = room_of_rows(e, inst->src[0]);
    size_t *count = parts_new(e, rows_of(e, inst->dst), e->p->value[inst->dst].cols);
    int ret;

    for (int r = 0; r < e->comm->size && !is_part(e, inst->src[0]); r++)
        count[r] = rows * (g ? g->runs[r].count : e->p->value[inst->src[0]].cols);
    ret = link_all_gather(&e->link, e->comm, address(e, inst->src[0]),
                          address(e, inst->dst), count, unit_of(e, inst->dst), err);
    free(count);
    return ret;
}

static int all_to_all(struct engine *e, const struct inst *inst, struct err *err)
{
    const struct mixture *m = &e->p->mixture[inst->mixture];

    return alltoall_run(
        &e->alltoall, inst, m, address(e, inst->dst), address(e, inst->src[0]),
        e->p->value[inst->dst].cols * unit_of(e, inst->dst), address(e, m->sent),
        address(e, m->counts), &e->chosen[inst->mixture], err);
}

static struct call call_of(const struct engine *e, const struct inst *inst)
{
    struct call call = { .program = e->p,
                         .inst = inst,
                         .y = value(e, inst->dst),
                         .step = e->chunk.n ? &e->chunk.view : &e->feeds.view,
                         .narrow = e->narrow,
                         .rounded = e->rounded };

    for (int k = 0; k < inst->nsrc; k++)
        call.x[k] = value(e, inst->src[k]);
    if (inst->weight >= 0) {
        call.w = &e->weight[inst->weight];
        if (e->p->weight[inst->weight].experts)
            call.expert_rows = expert_rows(e, inst->mixture, &call.nexperts);
    }
    if (inst->weight2 >= 0)
        call.w2 = &e->weight[inst->weight2];
    return call;
}

/* Runs the instructions behind INST as one. */
static int run_fused(struct engine *e, const struct inst *inst, struct err *err)
{
    struct call call = call_of(e, inst), part[INST_PARTS];

    call.part = part;
    call.nparts = inst->parts;
    for (int k = 0; k < inst->parts; k++) {
        part[k] = call_of(e, inst + 1 + k);
        if (part[k].inst->op == OP_KEEP)
            attend_aim(e->attend, &part[k]);
    }
    return e->ops->kernel[inst->op](e->device, &call, err);
}

/* The rows of texts that choose the adapter of INST; NULL: they are not known. */
static const struct row_span *adapted_rows(struct engine *e, const struct inst *inst,
                                           size_t *n)
{
    const int v = inst->only.by - 1, at = (int)(inst - e->p->inst);
    const struct value *choice = &e->p->value[v];
    const bool lives = choice->first < at && choice->last >= at;

    return chosenrows_find(&e->adapted, n, inst,
                           lives ? (const float *)(const void *)address(e, v) : NULL,
                           rows_of(e, v), (size_t)choice->cols);
}

static int run(struct engine *e, const struct inst *inst, struct err *err)
{
    struct call call;

    if (op_table[inst->op].collective == COLLECTIVE_ALL_REDUCE)
        return all_reduce(e, inst, err);
    if (op_table[inst->op].collective == COLLECTIVE_ALL_GATHER)
        return all_gather(e, inst, err);
    if (op_table[inst->op].collective == COLLECTIVE_ALL_TO_ALL)
        return all_to_all(e, inst, err);
    if (inst->op == OP_OWN_ROWS)
        return own_rows(e, inst, err);
    if (inst->parts)
        return run_fused(e, inst, err);
    call = call_of(e, inst);
    if (inst->op == OP_KEEP)
        return attend_keep(e->attend, &call, err);
    if (op_table[inst->op].role == ROLE_ATTENDS)
        return attend_run(e->attend, &call, err);
    if (inst->op == OP_ATTENTION_BACK)
        return attend_back(e->attend, &call, err);
    if (op_table[inst->op].role == ROLE_STATE)
        states_aim(&e->states, &call);
    if (inst->only.by && e->ops->host_memory) {
        size_t n;
        const struct row_span *span = adapted_rows(e, inst, &n);

        if (span)
            return chosenrows_run(span, n, e->ops, e->device, &call,
                                  rows_of(e, inst->dst), err);
    }
    return e->ops->kernel[inst->op](e->device, &call, err);
}

/* ---- steps ---- */

/* Receives the activations of the previous stage. */
static int import(struct engine *e, struct err *err)
{
    const struct program *p = e->p;

    for (int i = 0; i < p->nimports; i++)
        if (link_receive(&e->link, e->pipe, address(e, p->import[i]),
                         bytes_of(e, p->import[i]), e->pipe->rank - 1, err) < 0)
            return -1;
    return 0;
}

static int export(struct engine *e, struct err *err)
{
    const struct program *p = e->p;

    for (int i = 0; i < p->nexports; i++)
        if (link_send(&e->link, e->pipe, address(e, p->export[i]),
                      bytes_of(e, p->export[i]), e->pipe->rank + 1, err) < 0)
            return -1;
    return 0;
}

/* How the sequence group shares the rows of output I in this step; NULL: not. */
static struct sequence *shared_as(struct engine *e, int i)
{
    struct sequence *s = may_share(e, i);

    return s && !s->shared ? s : NULL;
}

bool engine_has_output(struct engine *e, int i)
{
    const struct sequence *s = shared_as(e, i);

    return !s || s->comm->rank == 0;
}

/* Copies X, numbers of N rows of COLS columns of output 0, to TO; where ranks share
 * them, each gets its own from the first. */
static int take_rows(struct engine *e, void *to, const float *x, size_t n, size_t cols,
                     struct err *err)
{
    struct sequence *s = shared_as(e, 0);
    size_t own = s ? s->count : n;
    float *mine = NULL;
    int ret = 0;

    if (s) {
        mine = xmalloc((own * cols + 1) * sizeof(*mine));
        ret = sequence_scatter(s, mine, x, cols, err);
        x = mine;
    }
    if (ret == 0 && own)
        ret = e->ops->copy_in(e->device, to, x, own * cols * sizeof(*x), err);
    free(mine);
    return ret;
}

int engine_weigh(struct engine *e, const float *weight, size_t n, struct err *err)
{
    return take_rows(e, (void *)(uintptr_t)e->feeds.view.weight, weight, n, 1, err);
}

int engine_give(struct engine *e, const float *d, struct err *err)
{
    const int v = e->p->given - 1;

    return v < 0 ? 0
                 : take_rows(e, address(e, v), d, rows_of(e, v), e->p->value[v].cols,
                             err);
}

/* Collects the rows of all tokens on the group's first rank. */
static int collect(struct engine *e, struct err *err)
{
    for (int i = 0; i < e->p->noutputs; i++) {
        int v = e->p->output[i].value;
        struct sequence *s = shared_as(e, i);
        uint64_t bytes = s ? s->n * e->p->value[v].cols * sizeof(float) : 0;
        struct whole *w = &e->whole[i];
        const void *own;

        if (!s)
            continue;
        if (s->comm->rank == 0 && w->bytes < bytes) {
            free(w->x);
            w->bytes = 0;
            e->grown++;
            w->x = mem_alloc(bytes, e->p->output[i].name, err);
            if (!w->x)
                return -1;
            w->bytes = bytes;
        }
        if (link_read(&e->link, address(e, v), bytes_of(e, v), &own, err) < 0 ||
            sequence_collect(s, w->x, own, e->p->value[v].cols, err) < 0)
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

/* Calls SEE if instruction INST begins a part of the model. */
static void tell_part(const struct engine *e, int inst)
{
    if (!e->see)
        return;
    if (inst == e->p->ninsts)
        e->see(e->see_arg, -1);
    else if (inst == 0 || part_of(e, inst) != part_of(e, inst - 1))
        e->see(e->see_arg, part_of(e, inst));
}

static int check_step(const struct engine *e, const struct segment *s, size_t n,
                      struct err *err)
{
    size_t tokens = 0, wanted = 0, source = 0, rows[ROWS_MOST];

    for (size_t i = 0; i < n; i++) {
        segment_count(&s[i], e->p, rows);
        tokens += s[i].n;
        wanted += s[i].nwanted;
        source += rows[ROWS_SOURCE];
        if (s[i].sequence >= e->limits.sequences ||
            (e->p->nslots && s[i].start + s[i].n > e->limits.context) ||
            (e->p->source && s[i].start == 0 && !rows[ROWS_SOURCE]))
            return err_set(err, ERR_SYSTEM,
                           "a step of %zu tokens at %zu is beyond the limits", s[i].n,
                           s[i].start);
    }
    if (n > e->limits.segments ||
        (n > 1 && e->sequence.comm->size > 1 && !e->sequence.trains) ||
        (n == 0 && !e->experts) || tokens > e->limits.tokens + e->limits.running ||
        wanted > e->limits.wanted || source > e->limits.sources)
        return err_set(err, ERR_SYSTEM,
                       "a step of %zu segments and %zu tokens is beyond the limits", n,
                       tokens);
    return 0;
}

/* Uploads the rows of a chunk, and those of the last one of ROWS. */
static void add_counts(struct engine *e, size_t rows)
{
    const size_t last =
        rows < 2 * PROGRAM_CHUNK ? rows : PROGRAM_CHUNK + rows % PROGRAM_CHUNK;
    const int32_t counts[] = { PROGRAM_CHUNK, (int32_t)last };

    if (e->p->reverse_chunk.end)
        e->chunk.counts = upload_add(&e->upload, counts, 2, sizeof(*counts));
}

/* Finds the bytes of the largest step's inputs. */
static void plan_upload(struct engine *e)
{
    upload_plan(&e->upload);
    feeds_plan(&e->feeds, e->most, e->limits.segments);
    add_counts(e, 0);
    attend_begin_most(e->attend, e->limits.segments, &e->upload);
    states_begin_most(&e->states, e->limits.segments, &e->upload);
}

static bool is_recordable(const struct engine *e, const struct segment *s, size_t n);

static int begin_step(struct engine *e, const struct segment *s, size_t n,
                      struct err *err)
{
    struct attend_segment *own = xcalloc(n + 1, sizeof(*own));
    struct states_segment *state = xcalloc(n + 1, sizeof(*state));
    struct feeds_part *part = xcalloc(n + 1, sizeof(*part));
    size_t room = 0;
    int ret = -1;

    chosenrows_begin(&e->adapted);
    upload_begin(&e->upload);
    e->repeats = is_recordable(e, s, n);
    feeds_begin(&e->feeds, s, n, e->repeats ? e->most : NULL, part);
    if (e->repeats)
        room = e->feeds.room[ROWS_ONE];
    add_counts(e, e->feeds.rows[ROWS_TOKENS]);
    for (size_t i = 0; i < n; i++) {
        state[i] = (struct states_segment){ .sequence = s[i].sequence,
                                            .start = s[i].start,
                                            .row = part[i].first[ROWS_TOKENS],
                                            .n = s[i].n,
                                            .save = s[i].save,
                                            .nsaves = s[i].nsaves };
        own[i] = (struct attend_segment){ .sequence = s[i].sequence,
                                          .start = s[i].start,
                                          .row = part[i].first[ROWS_TOKENS],
                                          .n = s[i].n,
                                          .token = s[i].token,
                                          .source_row = part[i].first[ROWS_SOURCE],
                                          .nsource = part[i].rows[ROWS_SOURCE] };
    }
    states_begin(&e->states, state, n, room, &e->upload);
    if (attend_begin(e->attend, own, n, room, &e->upload, err) < 0 ||
        upload_send(&e->upload, err) < 0)
        goto out;
    feeds_ready(&e->feeds);
    attend_ready(e->attend, &e->upload);
    states_ready(&e->states, &e->upload);
    ret = 0;
out:
    free(state);
    free(part);
    free(own);
    return ret;
}

/* Must INST run even when its result has no rows, because other ranks may have some? */
static bool is_shared_out(const struct engine *e, const struct inst *inst)
{
    if (e->sequence.trains &&
        (op_table[inst->op].role == ROLE_ATTENDS || inst->op == OP_ATTENTION_BACK))
        return true;
    if (is_part(e, inst->dst) && op_table[inst->op].collective == COLLECTIVE_ALL_REDUCE)
        return true;
    return e->experts && (inst->op == OP_EXPERT_COUNT ||
                          op_table[inst->op].collective == COLLECTIVE_ALL_TO_ALL);
}

void engine_time(struct engine *e, double *received)
{
    e->received = received;
}

void engine_settle(struct engine *e, int (*settle)(void *arg, struct err *err),
                   void *arg)
{
    e->settle = settle;
    e->settle_arg = arg;
}

void engine_follow(struct engine *e,
                   int (*before)(void *arg, int inst, bool over, struct err *err),
                   void *arg)
{
    e->before = before;
    e->before_arg = arg;
}

/* Sets the rows from FIRST on, of ALL, that instructions are run for. */
static void set_chunk(struct engine *e, size_t first, size_t all)
{
    const int32_t *counts = upload_at(&e->upload, e->chunk.counts);
    struct step_view *v = &e->chunk.view;

    e->chunk.first = first;
    e->chunk.n = program_chunk_rows(all - first);
    *v = e->feeds.view;
    v->rows[ROWS_TOKENS] = counts + (first + e->chunk.n == all);
    v->target[ROWS_TOKENS] += first;
    v->weight += first;
    v->token[ROWS_TOKENS] += first;
}

/* The chunk of instructions that begins with INST, and has more rows than are run at
 * once; or NULL. */
static const struct program_chunk *chunk_at(const struct engine *e, int inst)
{
    const struct program *p = e->p;

    return e->feeds.rows[ROWS_TOKENS] < 2 * PROGRAM_CHUNK || !p->reverse_chunk.end
               ? NULL
           : inst == p->forward_chunk.first ? &p->forward_chunk
           : inst == p->reverse_chunk.first ? &p->reverse_chunk
                                            : NULL;
}

static int run_chunk(struct engine *e, const struct program_chunk *c, struct err *err)
{
    const struct program_chunk *f = &e->p->forward_chunk;
    const size_t all = e->feeds.rows[ROWS_TOKENS];
    int ret = 0;

    for (int i = c->first; i < c->end; i++) {
        tell_part(e, i);
        if (e->before && e->before(e->before_arg, i, false, err) < 0)
            return -1;
    }
    for (size_t at = 0; at < all && ret == 0; at += program_chunk_rows(all - at)) {
        set_chunk(e, at, all);
        for (int i = f->first; c != f && i < f->end && ret == 0; i++)
            ret = run(e, &e->p->inst[i], err);
        for (int i = c->first; i < c->end && ret == 0; i++)
            ret = run(e, &e->p->inst[i], err);
    }
    e->chunk.n = 0;
    return ret;
}

/* Runs the instructions [FIRST, END). */
static int run_some(struct engine *e, int first, int end, struct err *err)
{
    int part = first; /* instructions before this one have run in a fused one */

    for (int i = first; i < end; i++) {
        const struct program_chunk *c = chunk_at(e, i);

        if (c) {
            if (run_chunk(e, c, err) < 0)
                return -1;
            part = c->end;
            i = c->end - 1;
            continue;
        }
        tell_part(e, i);
        if (e->before && e->before(e->before_arg, i, false, err) < 0)
            return -1;
        if (i < part)
            continue;
        part = i + 1 + e->p->inst[i].parts;
        if ((rows_of(e, e->p->inst[i].dst) || is_shared_out(e, &e->p->inst[i])) &&
            run(e, &e->p->inst[i], err) < 0)
            return -1;
    }
    return e->before ? e->before(e->before_arg, end, true, err) : 0;
}

/* ---- recorded steps ---- */

/* Does each segment have a single token, and does nothing in the step wait for the
 * host?  What ranks share experts or sequences exchange goes through it. */
static bool is_recordable(const struct engine *e, const struct segment *s, size_t n)
{
    bool single = n > 0 && !e->see && e->ops->record && !e->records_not &&
                  !e->experts && e->sequence.comm->size == 1 &&
                  (e->comm->size == 1 || wires_of(e->link.wires, e->comm)) &&
                  e->p->nforward == e->p->ninsts;

    for (size_t i = 0; i < n && single; i++)
        for (int k = ROWS_SOURCE; k < e->p->rows.n && single; k++)
            single = s[i].n == 1 && !s[i].rows[k];
    return single;
}

/* Everything that the kernel launches of the step depend on. */
static void shape_of(const struct engine *e, struct shape *shape)
{
    shape_begin(shape);
    shape_add(shape, e->feeds.room, sizeof(e->feeds.room));
    shape_add(shape, &e->feeds.view, sizeof(e->feeds.view));
    attend_shape(e->attend, shape);
    states_shape(&e->states, shape);
}

/* A number that the ranks of the tensor group give: stays if it is that of all; else 0,
 * or -1 if some rank's is negative. */
static int agree(struct engine *e, int *number, struct err *err)
{
    int *all, ret;

    if (e->comm->size == 1)
        return 0;
    all = xcalloc((size_t)e->comm->size, sizeof(*all));
    ret = comm_run(e->comm, comm_all_gather(number, all, sizeof(*all)), err);
    for (int r = 0; r < e->comm->size && ret == 0; r++)
        if (all[r] != *number)
            *number = *number < 0 || all[r] < 0 ? -1 : 0;
    free(all);
    return ret;
}

/* Records the program, and runs it. */
static int run_recorded(struct engine *e, struct err *err)
{
    struct recording *made = NULL;
    int done = e->ops->record(e->device, err), ret = 0;

    if (done < 0)
        return -1;
    if (done) {
        ret = run_some(e, 0, e->p->nforward, err);
        if (e->ops->recorded(e->device, &made, ret < 0 ? NULL : err) < 0)
            ret = -1;
    }
    done = made != NULL;
    if (ret == 0)
        ret = agree(e, &done, err);
    if (ret < 0 || !done) {
        e->ops->forget(e->device, made);
        e->records_not = true;
        return ret < 0 ? -1 : run_some(e, 0, e->p->nforward, err);
    }
    replays_add(&e->replays, made, ++e->recorded);
    return replays_run(&e->replays, err);
}

/* Runs the whole program.  A shape is recorded when it is seen the second time and
 * replayed from then on.  The ranks of a tensor group record together, and replay what
 * they recorded together: NCCL demands both ("Using NCCL with CUDA Graphs"), and their
 * shapes may differ, as addresses do. */
static int run_alike(struct engine *e, struct err *err)
{
    struct replays *r = &e->replays;
    int id;

    shape_of(e, replays_shape(r));
    id = replays_find(r);
    if (agree(e, &id, err) < 0)
        return -1;
    e->counts.steps++;
    e->counts.replayed += id > 0;
    if (id > 0)
        return replays_run(r, err);
    replays_see(r);
    return id == 0 ? run_recorded(e, err) : run_some(e, 0, e->p->nforward, err);
}

/* Where passes are timed, waits for the device, and notes that RECEIVED messages have
 * come, if any. */
static int wait_timed(struct engine *e, int received, struct err *err)
{
    if (!e->received)
        return 0;
    if (e->ops->wait(e->device, err) < 0)
        return -1;
    if (received > 0)
        *e->received = clock_seconds();
    return 0;
}

int engine_forward(struct engine *e, const struct segment *segment, size_t n,
                   struct err *err)
{
    if (check_step(e, segment, n, err) < 0 || begin_step(e, segment, n, err) < 0 ||
        import(e, err) < 0 || wait_timed(e, e->p->nimports, err) < 0)
        return -1;
    if ((e->repeats ? run_alike(e, err) : run_some(e, 0, e->p->nforward, err)) < 0)
        return -1;
    if (e->p->nforward == e->p->ninsts)
        tell_part(e, e->p->ninsts);
    if ((e->settle && e->settle(e->settle_arg, err) < 0) || wait_timed(e, 0, err) < 0)
        return -1;
    return export(e, err) < 0 ? -1 : collect(e, err);
}

int engine_reverse_inputs(struct engine *e, struct err *err)
{
    const struct program *p = e->p;

    for (int i = 0; i < p->nexports; i++)
        if (link_receive(&e->link, e->pipe, address(e, p->back_import[i]),
                         bytes_of(e, p->back_import[i]), e->pipe->rank + 1, err) < 0)
            return -1;
    if (wait_timed(e, p->nexports, err) < 0 ||
        run_some(e, p->nforward, p->nsplit, err) < 0 || wait_timed(e, 0, err) < 0)
        return -1;
    if (p->nsplit == p->ninsts)
        tell_part(e, p->ninsts);
    for (int i = 0; i < p->nimports; i++)
        if (link_send(&e->link, e->pipe, address(e, p->back_export[i]),
                      bytes_of(e, p->back_export[i]), e->pipe->rank - 1, err) < 0)
            return -1;
    return 0;
}

int engine_reverse_weights(struct engine *e, struct err *err)
{
    const struct program *p = e->p;

    if (p->nsplit == p->ninsts)
        return 0;
    if (run_some(e, p->nsplit, p->ninsts, err) < 0 || wait_timed(e, 0, err) < 0)
        return -1;
    tell_part(e, p->ninsts);
    return 0;
}

int engine_reverse(struct engine *e, struct err *err)
{
    return engine_reverse_inputs(e, err) < 0 ? -1 : engine_reverse_weights(e, err);
}

int engine_step(struct engine *e, const struct segment *segment, size_t n,
                struct err *err)
{
    if (engine_forward(e, segment, n, err) < 0)
        return -1;
    return e->p->nforward < e->p->ninsts ? engine_reverse(e, err) : 0;
}

/* The numbers of output I, of four bytes. */
static int read_output(struct engine *e, int i, const void **out, size_t *rows,
                       struct err *err)
{
    const struct sequence *s = shared_as(e, i);
    int v = e->p->output[i].value;

    *out = e->whole[i].x;
    if (s && s->comm->rank == 0) {
        *rows = s->n;
        return 0;
    }
    *rows = rows_of(e, v);
    return link_read(&e->link, address(e, v), bytes_of(e, v), out, err);
}

int engine_output(struct engine *e, int i, const float **out, size_t *rows,
                  struct err *err)
{
    const void *x;

    assert(e->p->value[e->p->output[i].value].dtype == DTYPE_F32);
    if (read_output(e, i, &x, rows, err) < 0)
        return -1;
    *out = x;
    return 0;
}

int engine_ids(struct engine *e, int i, const int32_t **out, size_t *rows,
               struct err *err)
{
    const void *x;

    assert(e->p->value[e->p->output[i].value].dtype == DTYPE_I32);
    if (read_output(e, i, &x, rows, err) < 0)
        return -1;
    *out = x;
    return 0;
}
