/* trainer - training on one rank: micro-batches, gradient accumulation, update */
#include "lib/train/trainer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/pipe/simulate.h"
#include "lib/program/pass-reverse.h"
#include "lib/run/cache.h"
#include "lib/run/choice.h"
#include "lib/train/init.h"
#include "lib/train/magnitudes.h"
#include "lib/train/wholes.h"

/* ---- opening ---- */

enum program_tail trainer_tail(enum loss_kind loss)
{
    return loss_table[loss].rows ? TAIL_LOGITS : TAIL_NLL;
}

bool trainer_balances(const struct trainer_terms *t)
{
    return t->balance > 0 || t->router_z > 0;
}

/* What a micro-batch of SEGMENTS documents needs. */
static struct engine_limits limits_of(const struct trainer *t, size_t segments)
{
    const size_t micro = (size_t)t->options.micro_batch;
    const size_t tokens = micro * t->options.length,
                 sources = micro * t->options.source;

    return (struct engine_limits){ .tokens = tokens,
                                   .segments = segments,
                                   .sequences = segments,
                                   .cache = (tokens > sources ? tokens : sources) +
                                            segments * CACHE_BLOCK,
                                   .context = t->options.length,
                                   .source = t->options.source,
                                   .sources = sources };
}

static void close_engines(struct trainer_stage *s)
{
    free(s->room);
    s->room = NULL;
    s->rooms = 0;
    for (int i = 0; i < s->in_flight && s->engine; i++) {
        engine_free(s->engine[i]);
        s->engine[i] = NULL;
    }
    engine_free(s->scorer);
    s->scorer = NULL;
}

uint64_t trainer_room(const struct program *p, enum loss_kind loss, size_t tokens,
                      size_t segments, const struct comm *sequence)
{
    const size_t size = (size_t)sequence->size;

    return sizeof(float) * lossroom_numbers(p, losses_room(loss), tokens, segments,
                                            sequence->size, sequence->rank,
                                            (tokens + size - 1) / size);
}

/* Makes the room of S's loss. */
static int open_room(const struct trainer *t, struct trainer_stage *s, struct err *err)
{
    const struct trainer_options *o = &t->options;

    s->rooms = trainer_room(s->program, o->loss, (size_t)o->micro_batch * o->length,
                            t->segments, t->groups.sequence);
    s->room = s->rooms ? mem_alloc(s->rooms, "the loss", err) : NULL;
    return s->rooms && !s->room ? -1 : 0;
}

/* Opens engines for micro-batches of up to SEGMENTS documents; none may be in
 * flight. */
static int open_engines(struct trainer *t, size_t segments, struct err *err)
{
    const struct engine_limits limits = limits_of(t, segments);

    for (int k = 0; k < t->nstages; k++)
        close_engines(&t->stage[k]);
    t->segments = segments;
    for (int k = 0; k < t->nstages; k++) {
        struct trainer_stage *s = &t->stage[k];

        if (open_room(t, s, err) < 0)
            return -1;
        for (int i = 0; i < s->in_flight; i++) {
            if (engine_open(&s->engine[i], s->program, t->ops, t->device,
                            s->parameters.matrix, &s->groups, &limits, err) < 0)
                return -1;
            engine_drop(s->engine[i], t->options.seed);
            engine_time(s->engine[i], t->options.timed ? &t->timing.received : NULL);
            shards_follow(&s->shards, s->engine[i]);
        }
    }
    return 0;
}

static int open_scorer(const struct trainer *t, struct trainer_stage *s,
                       struct err *err)
{
    const struct engine_limits limits = limits_of(t, t->segments);

    if (engine_open(&s->scorer, s->scored, t->ops, t->device, s->parameters.matrix,
                    &s->groups, &limits, err) < 0)
        return -1;
    shards_follow(&s->scored_shards, s->scorer);
    return 0;
}

/* Does an evaluation read the logits of classes, whose likelihoods are learned? */
static bool is_counted(const struct trainer *t)
{
    return t->options.loss == LOSS_CLASS || t->options.loss == LOSS_TAGS;
}

/* Makes the program of the evaluation, if training's has dropout or another loss, or
 * ends in likelihoods and this in logits. */
static int make_scored(const struct trainer *t, struct trainer_stage *s,
                       const struct model *m, struct err *err)
{
    const bool counts = is_counted(t);
    const struct program_options options = {
        .tail = counts ? TAIL_LOGITS : trainer_tail(t->options.loss),
        .training = true, /* the lines, and so the weights, of a step */
        .whole = t->mesh.size[MESH_SP] > 1,
        .deterministic = t->options.deterministic,
        .rounded = t->options.compute == FORMAT_BF16,
        .half = t->options.compute == FORMAT_F16
    };
    bool drops = false;

    for (int i = 0; i < s->program->nforward; i++) {
        const struct inst *inst = &s->program->inst[i];

        drops |= inst->op == OP_DROPOUT ||
                 (inst->op == OP_ATTENTION && inst->attention.drop > 0);
    }
    if (!drops && s->program->noutputs == 1 && !(t->options.terms.smooth > 0) &&
        !(t->options.terms.z > 0) && !counts)
        return 0;
    if (program_build(&s->scored, m, &s->program->mesh, s->program->coord, &options,
                      err) < 0)
        return -1;
    assert(s->scored->nweights == s->program->nweights);
    for (int i = 0; i < s->program->nweights; i++)
        assert(s->scored->weight[i].tensor == s->program->weight[i].tensor);
    shards_open(&s->scored_shards, &s->gradients, s->scored);
    return 0;
}

static int make_engines(struct trainer *t, struct err *err)
{
    const struct action_row *row = &t->table.row[t->coord[MESH_PP]];

    for (int k = 0; k < t->nstages; k++) {
        struct trainer_stage *s = &t->stage[k];

        s->in_flight = action_in_flight(row, s->number);
        s->engine = xcalloc((size_t)s->in_flight + 1, sizeof(*s->engine));
        s->holds = xmalloc(((size_t)s->in_flight + 1) * sizeof(*s->holds));
        for (int i = 0; i < s->in_flight; i++)
            s->holds[i] = -1;
    }
    return open_engines(t,
                        (size_t)t->options.micro_batch *
                            (t->options.documents ? t->options.documents : 1),
                        err);
}

/* Number of documents in a sample. */
static size_t documents_of(const struct sample *s)
{
    return s->documents ? s->documents : 1;
}

/* The engines hold the documents of each micro-batch. */
int trainer_make_room(struct trainer *t, const struct sample *sample, size_t n,
                      struct err *err)
{
    size_t micro = (size_t)t->options.micro_batch, most = 0;

    for (size_t i = 0; i < n; i += micro) {
        size_t sum = 0;

        for (size_t k = i; k < i + micro && k < n; k++)
            sum += documents_of(&sample[k]);
        most = sum > most ? sum : most;
    }
    return most > t->segments ? open_engines(t, most + most / 2, err) : 0;
}

/* Levels of the tree over a replica's micro-batches, which must form a complete
 * subtree; 0: gradients are added in order. */
static int find_levels(const struct trainer *t, int *levels, struct err *err)
{
    int share = t->table.micro_batches, dp = t->mesh.size[MESH_DP];

    *levels = 0;
    if (!t->options.deterministic)
        return 0;
    if ((share & (share - 1)) || (dp & (dp - 1)))
        return err_set(err, ERR_USAGE,
                       "--deterministic: dp and the micro-batches of a replica must be "
                       "powers of 2; they are %d and %d",
                       dp, share);
    while (1 << *levels < share)
        ++*levels;
    ++*levels;
    return 0;
}

/* Makes the parameters of stage S. */
static int open_parameters(const struct trainer *t, struct trainer_stage *s,
                           struct checkpoint *c, struct err *err)
{
    const struct trainer_options *o = &t->options;
    const struct comm *sharing = t->replicas.sharing;
    const struct parameters_owner one = { .size = 1,
                                          .offloads = o->offload,
                                          .no_master = o->no_master,
                                          .gathers = o->compute };
    const struct parameters_owner own = { .rank = sharing->rank,
                                          .size = sharing->size,
                                          .stage = o->zero,
                                          .tree = o->deterministic,
                                          .offloads = o->offload,
                                          .no_master = o->no_master,
                                          .gathers = o->compute };
    struct parameters *p = &s->parameters;

    if (parameters_open_as(p, c, s->program, t->ops, t->device,
                           t->options.optimizer.kind, t->options.zero ? own : one,
                           t->options.frozen, t->groups.tensor, t->threads, err) < 0 ||
        (c->drawn && init_parameters(p, t->options.seed, err) < 0) ||
        magnitudes_follow(p, c->adapter, t->groups.tensor, t->replicas.sharing,
                          t->threads, err) < 0)
        return -1;
    parameters_find_decay(p, t->options.decays);
    return t->options.terms.average > 0 ? parameters_keep_average(p, err) : 0;
}

/* Makes what sums their gradients. */
static int open_gradients(const struct trainer *t, struct trainer_stage *s, int levels,
                          struct err *err)
{
    struct parameters *p = &s->parameters;

    if (gradients_open(&s->gradients, p, &s->groups, t->replicas, levels, err) < 0)
        return -1;
    shards_open(&s->shards, &s->gradients, s->program);
    if (wholes_open(&s->wholes, p, t->groups.tensor, t->threads, err) < 0)
        return -1;
    return t->options.compute == FORMAT_F32
               ? 0
               : rounded_open(&s->rounded, p, t->options.compute, err);
}

/* What the micro-batches of a stage need to come one after another in: messages arrive
 * in order, and gradients are added in it. */
enum { SEEN_FORWARD, SEEN_INPUT, SEEN_WEIGHT, SEEN };

static int check_order(const struct action_table *a, struct err *err)
{
    static const bool counts[ACTION_KINDS][SEEN] = {
        [ACTION_FORWARD] = { [SEEN_FORWARD] = true },
        [ACTION_BACKWARD] = { [SEEN_INPUT] = true, [SEEN_WEIGHT] = true },
        [ACTION_INPUT] = { [SEEN_INPUT] = true },
        [ACTION_WEIGHT] = { [SEEN_WEIGHT] = true }
    };
    int *seen = xcalloc((size_t)a->stages * SEEN + 1, sizeof(*seen)), ret = 0;

    for (int r = 0; r < a->ranks && ret == 0; r++)
        for (size_t i = 0; i < a->row[r].n && ret == 0; i++) {
            const struct action *v = &a->row[r].v[i];

            for (int k = 0; k < SEEN && ret == 0; k++)
                if (counts[v->kind][k] && v->micro_batch != seen[v->stage * SEEN + k]++)
                    ret = err_set(err, ERR_INPUT,
                                  "a schedule whose rank %d does not take the "
                                  "micro-batches of stage %d in order cannot be "
                                  "trained by",
                                  r, v->stage);
        }
    free(seen);
    return ret;
}

/* Does every action's turn come, where a rank takes them one by one? */
static int check_turns(const struct action_table *a, struct err *err)
{
    double *one = xmalloc((size_t)a->ranks * sizeof(*one));
    const struct pipe_times times = { .forward = one, .input = one, .weight = one };
    struct pipe_result result;
    struct action_table apart;
    int ret;

    for (int i = 0; i < a->ranks; i++)
        one[i] = 1;
    action_table_apart(&apart, a);
    ret = pipe_simulate(&result, &apart, &times, err);
    if (ret == 0)
        pipe_result_clear(&result);
    action_table_clear(&apart);
    free(one);
    return ret;
}

int trainer_check_table(const struct action_table *a, int pp, int micro_batches,
                        struct err *err)
{
    if (a->ranks != pp || a->stages < pp || a->micro_batches != micro_batches)
        return err_set(err, ERR_INPUT,
                       "a schedule of %d ranks, %d stages and %d micro-batches; "
                       "here are %d ranks, and %d micro-batches",
                       a->ranks, a->stages, a->micro_batches, pp, micro_batches);
    if (a->chains > 1)
        return err_set(err, ERR_INPUT,
                       "a schedule of %d copies of the model cannot be trained by",
                       a->chains);
    for (int r = 0; r < pp; r++)
        if (!a->row[r].n)
            return err_set(err, ERR_INPUT, "rank %d does nothing", r);
    return action_check(a, err) < 0 || check_order(a, err) < 0 ? -1
                                                               : check_turns(a, err);
}

bool trainer_splits(const struct action_table *a)
{
    for (int r = 0; r < a->ranks; r++)
        for (size_t i = 0; i < a->row[r].n; i++)
            if (a->row[r].v[i].kind == ACTION_INPUT)
                return true;
    return false;
}

static int open_table(struct trainer *t, struct err *err)
{
    const struct trainer_options *o = &t->options;
    const int *size = t->mesh.size;
    const int share = o->micro_batch * size[MESH_DP] * size[MESH_EP],
              pp = size[MESH_PP];

    if (o->micro_batch < 1 || o->global < share || o->global % share)
        return err_set(
            err, ERR_USAGE,
            "a global batch of %d is no multiple of %d: dp times ep times the "
            "micro-batch",
            o->global, share);
    t->loss =
        xcalloc((size_t)(o->global / o->micro_batch) * TRAINER_TERMS, sizeof(*t->loss));
    if (o->table)
        action_table_apart(&t->table, o->table);
    else if (order_make(&t->table, o->order, pp, o->global / share,
                        o->chunks ? o->chunks : order_chunks(o->order), err) < 0)
        return -1;
    return trainer_check_table(&t->table, pp, o->global / share, err);
}

int trainer_staged(struct mesh *out, const struct mesh *mesh,
                   const struct checkpoint *c, int stages, struct err *err)
{
    int size[MESH_NAXES];

    *out = *mesh;
    if (stages == mesh->size[MESH_PP])
        return 0;
    memcpy(size, mesh->size, sizeof(size));
    size[MESH_PP] = stages;
    if (mesh_set(out, size, &c->mesh, err) < 0)
        return -1;
    out->pad_vocab = mesh->pad_vocab;
    return 0;
}

/* Finds the stages of this rank, and how they reach others. */
static void list_stages(struct trainer *t)
{
    const int rank = t->coord[MESH_PP], stages = t->table.stages;

    t->stage = xcalloc((size_t)stages, sizeof(*t->stage));
    if (stages > t->mesh.size[MESH_PP])
        t->flows = flows_open(t->groups.pipe, t->table.rank_of, stages);
    for (int s = 0; s < stages; s++) {
        struct trainer_stage *own = &t->stage[t->nstages];

        if (t->table.rank_of[s] != rank)
            continue;
        own->number = s;
        own->groups = t->groups;
        if (t->flows)
            own->groups.pipe = flows_of(t->flows, s);
        t->nstages++;
    }
}

/* The ranks that have the same weights: replicas, and the ranks that share the tokens
 * of one.  Those that share the updates follow one another. */
static int group_replicas(struct trainer *t, struct err *err)
{
    struct comm *c = t->copies;
    const int sp = t->groups.sequence->size;
    const int n = t->options.zero && t->options.hsdp ? t->options.hsdp * sp : c->size;
    int *member = xcalloc((size_t)c->size, sizeof(*member)), ret = 0;

    t->replicas.sharing = c;
    t->replicas.experts = t->groups.expert->size > 1 ? t->groups.expert : NULL;
    if (n < c->size) {
        for (int r = 0; r < n; r++)
            member[r] = c->rank / n * n + r;
        t->replicas.sharing = NULL;
        ret = c->ops->group(c, member, n, &t->replicas.sharing, err);
        for (int r = 0; r < c->size / n; r++)
            member[r] = r * n + c->rank % n;
        if (ret == 0)
            ret = c->ops->group(c, member, c->size / n, &t->replicas.across, err);
    }
    free(member);
    return ret;
}

static int build_programs(struct trainer *t, const struct model *m, struct err *err)
{
    const struct trainer_options *o = &t->options;
    const struct program_options program = { .tail = trainer_tail(o->loss),
                                             .reverse = true,
                                             .training = true,
                                             .split = trainer_splits(&t->table),
                                             .deterministic = o->deterministic,
                                             .rounded = o->compute == FORMAT_BF16,
                                             .half = o->compute == FORMAT_F16,
                                             .sequence = o->sequence,
                                             .recompute = o->recompute,
                                             .balance = trainer_balances(&o->terms),
                                             .loads = o->terms.bias_speed > 0,
                                             .smooth = o->terms.smooth,
                                             .z = o->terms.z,
                                             .dropout = o->dropout };

    for (int k = 0; k < t->nstages; k++) {
        struct trainer_stage *s = &t->stage[k];
        int coord[MESH_NAXES];

        memcpy(coord, t->coord, sizeof(coord));
        coord[MESH_PP] = s->number;
        if (program_build(&s->program, m, &t->staged, coord, &program, err) < 0 ||
            reverse_check_model(s->program, err) < 0)
            return -1;
    }
    return 0;
}

static int check_backend(const struct trainer *t, const struct checkpoint *c,
                         struct err *err)
{
    struct choice_need need = { .checkpoint = c,
                                .form = t->options.frozen,
                                .trains = true,
                                .update =
                                    optimizer_table[t->options.optimizer.kind].update };

    for (int k = 0; k < t->nstages; k++) {
        need.program = t->stage[k].program;
        if (choice_supports(t->ops, &need, NULL, err) < 0)
            return -1;
    }
    return 0;
}

/* Opens what the stages keep: first the weights of all of them. */
static int open_stages(struct trainer *t, struct checkpoint *c, struct err *err)
{
    struct parameters **p = xcalloc((size_t)t->nstages + 1, sizeof(*p));
    int levels, ret = find_levels(t, &levels, err);

    for (int k = 0; k < t->nstages && ret == 0; k++) {
        p[k] = &t->stage[k].parameters;
        ret = open_parameters(t, &t->stage[k], c, err);
    }
    if (ret == 0)
        ret = ties_find(&t->ties, p, t->nstages, t->groups.pipe, t->table.stages, err);
    free(p);
    for (int k = 0; k < t->nstages && ret == 0; k++)
        ret = open_gradients(t, &t->stage[k], levels, err);
    if (ret == 0)
        ret = make_engines(t, err);
    for (int k = 0; k < t->nstages && ret == 0; k++)
        ret = make_scored(t, &t->stage[k], c->model, err);
    return ret;
}

int trainer_open(struct trainer *t, struct checkpoint *c, const struct mesh *mesh,
                 const struct runner_machine *machine, struct comm *world,
                 const struct trainer_options *options, struct err *err)
{
    int coord[MESH_NAXES];

    *t = (struct trainer){
        .options = *options,
        .ops = machine->ops ? machine->ops : backend_find("cpu", err),
        .mesh = *mesh,
        .groups = { .across = machine->across ? machine->across : mesh->size[MESH_SP],
                    .trains = true },
        .threads = machine->threads,
        .scaler.scale = options->compute == FORMAT_F16 ? SCALER_FIRST : 1,
        .optimizer = { .options = options->optimizer,
                       .seed = options->seed,
                       .bias_speed = options->terms.bias_speed,
                       .average = options->terms.average }
    };
    if (t->options.hsdp * mesh->size[MESH_SP] == 1) /* a rank alone shares nothing */
        t->options.zero = 0;
    mesh_coord(mesh, world->rank, coord);
    memcpy(t->coord, coord, sizeof(coord));
    if (!t->ops || open_table(t, err) < 0 ||
        trainer_staged(&t->staged, mesh, c, t->table.stages, err) < 0 ||
        runner_group(&t->groups.tensor, world, mesh, coord, MESH_TP, err) < 0 ||
        runner_group(&t->groups.sequence, world, mesh, coord, MESH_SP, err) < 0 ||
        runner_group(&t->groups.pipe, world, mesh, coord, MESH_PP, err) < 0 ||
        runner_group(&t->groups.expert, world, mesh, coord, MESH_EP, err) < 0 ||
        runner_group_over(&t->data, world, mesh, coord, MESH_DP, MESH_EP, err) < 0 ||
        runner_group_over(&t->copies, world, mesh, coord, MESH_DP, MESH_SP, err) < 0 ||
        group_replicas(t, err) < 0)
        goto fail;
    list_stages(t);
    if (t->options.timed)
        timing_open(&t->timing, &t->table, t->groups.pipe);
    if (build_programs(t, c->model, err) < 0 || check_backend(t, c, err) < 0 ||
        runner_device(&t->device, t->ops, machine, world, err) < 0 ||
        open_stages(t, c, err) < 0)
        goto fail;
    return 0;
fail:
    trainer_close(t);
    return -1;
}

static void close_stage(struct trainer_stage *s)
{
    close_engines(s);
    free(s->engine);
    free(s->holds);
    program_free(s->scored);
    shards_close(&s->shards);
    shards_close(&s->scored_shards);
    wholes_close(s->wholes);
    gradients_close(&s->gradients);
    rounded_close(&s->rounded);
    parameters_close(&s->parameters);
}

void trainer_close(struct trainer *t)
{
    struct comm *sharing =
        t->replicas.sharing == t->copies ? NULL : t->replicas.sharing;
    struct comm *group[] = { sharing,          t->replicas.across, t->copies,
                             t->data,          t->groups.pipe,     t->groups.sequence,
                             t->groups.expert, t->groups.tensor };

    for (int k = 0; k < t->nstages; k++)
        close_stage(&t->stage[k]);
    ties_close(&t->ties);
    timing_close(&t->timing);
    free(t->loss);
    if (t->device)
        t->ops->close(t->device);
    for (int k = 0; k < t->nstages; k++)
        program_free(t->stage[k].program);
    free(t->stage);
    flows_close(t->flows);
    action_table_clear(&t->table);
    for (size_t i = 0; i < sizeof(group) / sizeof(*group); i++)
        if (group[i])
            group[i]->ops->close(group[i]);
    *t = (struct trainer){ 0 };
}

/* ---- a step ---- */

/* Index of the engine of S that has MICRO_BATCH (-1: of a free engine). */
static int find_engine(const struct trainer_stage *s, int micro_batch)
{
    int i = 0;

    while (s->holds[i] != micro_batch)
        i++;
    return i;
}

/* Adds the losses of N segments to *SUM. */
static int add_loss(const struct trainer_stage *own, struct engine *e,
                    const struct segment *s, size_t n, double *sum, struct err *err)
{
    const struct program *p = own->program;
    const bool texts = p->value[p->output[0].value].rows == ROWS_ONE;
    const float *nll;
    size_t rows;

    if (!engine_has_output(e, 0) || (texts && own->groups.sequence->rank > 0))
        return 0;
    if (engine_output(e, 0, &nll, &rows, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        for (size_t k = texts ? s[i].n - 1 : 0; k < s[i].n; k++, nll++)
            if (s[i].targets[k] >= 0)
                *sum += (double)*nll;
    return 0;
}

/* Adds the further terms of the loss to SUM[TRAINER_TERMS]. */
static int add_terms(const struct trainer_stage *s, struct engine *e, double *sum,
                     struct err *err)
{
    const float *term;
    size_t rows;

    if (e == s->scorer || s->program->noutputs < 2 || s->groups.sequence->rank > 0)
        return 0;
    if (engine_output(e, 1, &term, &rows, err) < 0)
        return -1;
    sum[1] += (double)term[0];
    sum[2] += (double)term[1];
    return 0;
}

/* The segments of the documents of N samples; NUMBER is the first sample's index in the
 * run.  The caller frees the array of *COUNT segments. */
static struct segment *segments_of(const struct trainer *t, const struct sample *sample,
                                   uint64_t number, size_t n, size_t *count)
{
    struct segment *s;
    const size_t source = t->options.source, length = t->options.length;
    const uint64_t stride = source > length ? source : length;
    size_t most = 0, at = 0;

    for (size_t i = 0; i < n; i++)
        most += documents_of(&sample[i]);
    s = xcalloc(most, sizeof(*s));
    for (size_t i = 0; i < n; i++)
        for (size_t d = 0; d < documents_of(&sample[i]); d++) {
            size_t from = sample[i].documents ? sample[i].start[d] : 0;
            size_t to =
                d + 1 < sample[i].documents ? sample[i].start[d + 1] : sample[i].n;

            s[at] = (struct segment){ .input = { [FEED_IDS] = sample[i].id + from },
                                      .targets = sample[i].target + from,
                                      .n = to - from,
                                      .token = (number + i) * stride + from,
                                      .sequence = at };
            if (sample[i].type)
                s[at].input[FEED_TOKEN_TYPES] = sample[i].type + from;
            if (source)
                segment_source(&s[at], t->stage->program, sample[i].source,
                               sample[i].nsource);
            at++;
        }
    *count = at;
    return s;
}

/* Has sample S labels, or does it only fill up a batch? */
static bool has_labels(const struct sample *s, const struct loss_info *loss)
{
    return loss->labels == LABELS_TEXTS || loss->labels == LABELS_PAIR
               ? s->documents == 2
               : s->value != NULL;
}

/* Adds the losses of N samples, functions of the likelihoods of their tokens, to *SUM,
 * and unless in an evaluation gives E the weights of these. */
static int add_tokens(const struct trainer *t, const struct trainer_stage *own,
                      struct engine *e, const struct sample *sample, size_t n,
                      double *sum, struct err *err)
{
    const struct loss_info *loss = &loss_table[t->options.loss];
    size_t rows, at = 0;
    const float *nll;
    float *weight = own->room;
    int ret = 0;

    if (!engine_has_output(e, 0))
        return e == own->scorer ? 0 : engine_weigh(e, NULL, 0, err);
    if (engine_output(e, 0, &nll, &rows, err) < 0)
        return -1;
    memset(weight, 0, rows * sizeof(*weight));
    for (size_t i = 0; i < n; at += sample[i++].n) {
        const struct sample *s = &sample[i];
        const struct loss_tokens one = { .nll = nll + at,
                                         .target = s->target,
                                         .n = s->n,
                                         .second =
                                             s->documents > 1 ? s->start[1] : s->n,
                                         .reference = s->reference,
                                         .value = s->value,
                                         .kl = t->kl };

        if (has_labels(s, loss))
            *sum += loss->tokens(&t->options.numbers, &one, weight + at);
    }
    if (e != own->scorer)
        ret = engine_weigh(e, weight, rows, err);
    return ret;
}

/* The row of the logits that is document D's of sample S, whose first row is AT: there
 * is one of each text, or what a text is judged by is the row of its last token. */
static size_t row_of(const struct sample *s, size_t d, size_t at, bool texts)
{
    if (texts)
        return at + d;
    return at + (d + 1 < s->documents ? s->start[d + 1] : s->n) - 1;
}

/* Copies rows of COLS, those of the documents of S among the samples' and one after
 * another. */
static void take_rows(float *part, const float *x, const struct sample *s, size_t at,
                      bool texts, size_t cols)
{
    for (size_t d = 0; d < documents_of(s); d++)
        memcpy(part + d * cols, x + row_of(s, d, at, texts) * cols, cols * sizeof(*x));
}

static void put_rows(float *x, const float *part, const struct sample *s, size_t at,
                     bool texts, size_t cols)
{
    for (size_t d = 0; d < documents_of(s); d++)
        memcpy(x + row_of(s, d, at, texts) * cols, part + d * cols, cols * sizeof(*x));
}

/* Adds the losses of the logits of N samples to *SUM, and unless in an evaluation gives
 * E their gradients, times BY. */
static int add_rows(const struct trainer *t, const struct trainer_stage *own,
                    struct engine *e, const struct sample *sample, size_t n, double by,
                    double *sum, struct err *err)
{
    const struct loss_info *loss = &loss_table[t->options.loss];
    const struct value *v = &own->program->value[own->program->output[0].value];
    const bool texts = v->rows == ROWS_ONE, each = loss->each;
    const size_t cols = (size_t)v->whole_cols;
    float *const d = own->room, *part, *from;
    const float *x;
    size_t rows, at = 0;
    double ignored = 0;
    int ret = 0;

    if (!engine_has_output(e, 0))
        return e == own->scorer ? 0 : engine_give(e, NULL, err);
    if (texts && t->groups.sequence->rank > 0) /* all have its rows, the first counts */
        sum = &ignored;
    if (engine_output(e, 0, &x, &rows, err) < 0)
        return -1;
    memset(d, 0, rows * cols * sizeof(*d));
    part = each ? d : d + rows * cols; /* of one output a document */
    from = each ? d : part + t->segments * cols;
    for (size_t i = 0; i < n; i++) {
        const struct sample *s = &sample[i];
        struct loss_rows one = { .logits = each ? x + at * cols : from,
                                 .rows = each ? s->n : documents_of(s),
                                 .cols = cols,
                                 .value = s->value,
                                 .target = s->target,
                                 .o = &t->options.numbers };

        if (has_labels(s, loss) && each) {
            *sum += loss->rows(&one, by, d + at * cols);
        } else if (has_labels(s, loss)) {
            take_rows(from, x, s, at, texts, cols);
            *sum += loss->rows(&one, by, part);
            put_rows(d, part, s, at, texts, cols);
        }
        at += texts ? documents_of(s) : s->n;
    }
    if (e != own->scorer)
        ret = engine_give(e, d, err);
    return ret;
}

/* The largest of N numbers, the first of equals. */
static int32_t largest(const float *x, size_t n)
{
    size_t best = 0;

    for (size_t k = 1; k < n; k++)
        best = x[k] > x[best] ? k : best;
    return (int32_t)best;
}

/* -log softmax(x)[target] of a row of N. */
static double nll_of(const float *x, size_t n, int32_t target)
{
    const double most = (double)x[largest(x, n)];
    double sum = 0;

    for (size_t k = 0; k < n; k++)
        sum += exp((double)x[k] - most);
    return most + log(sum) - (double)x[target];
}

/* Adds the losses of the labels of N samples, and what E says of them, to *SUM and
 * *M, or NULL.
 */
static int add_counted(const struct trainer *t, const struct trainer_stage *own,
                       struct engine *e, const struct sample *sample, size_t n,
                       struct verdict *m, double *sum, struct err *err)
{
    const struct value *v = &own->scored->value[own->scored->output[0].value];
    const bool texts = v->rows == ROWS_ONE;
    const size_t cols = (size_t)v->whole_cols;
    const float *x;
    size_t rows;

    if (!engine_has_output(e, 0) || (texts && t->groups.sequence->rank > 0))
        return 0;
    if (engine_output(e, 0, &x, &rows, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const struct sample *s = &sample[i];
        int32_t *says = xcalloc(s->n, sizeof(*says));

        for (size_t k = texts ? s->n - 1 : 0; k < s->n; k++, x += cols)
            if (s->target[k] >= 0) {
                *sum += nll_of(x, cols, s->target[k]);
                says[k] = largest(x, cols);
            }
        if (m)
            verdict_add(m, s->target, says, s->n);
        free(says);
    }
    return 0;
}

/* Adds to *M what E says of N samples of a loss of logits. */
static int count_rows(const struct trainer *t, const struct trainer_stage *own,
                      struct engine *e, const struct sample *sample, size_t n,
                      struct verdict *m, struct err *err)
{
    const struct loss_info *loss = &loss_table[t->options.loss];
    const struct value *v = &own->program->value[own->program->output[0].value];
    const bool texts = v->rows == ROWS_ONE;
    const size_t cols = (size_t)v->whole_cols;
    const float *x;
    size_t rows, at = 0;
    float *part;

    if (!engine_has_output(e, 0) || (texts && t->groups.sequence->rank > 0))
        return 0;
    if (engine_output(e, 0, &x, &rows, err) < 0)
        return -1;
    part = xmalloc((rows * cols + 1) * sizeof(*part));
    for (size_t i = 0; i < n; i++) {
        const struct sample *s = &sample[i];

        if (has_labels(s, loss) && m->kind == VERDICT_SPANS) {
            verdict_add_span(m, s->quoted, s->value, s->id, s->n, x + at * cols);
        } else if (has_labels(s, loss)) {
            take_rows(part, x, s, at, texts, cols);
            if (m->kind == VERDICT_SETS)
                verdict_add_set(m, s->value, part);
            else
                verdict_add(m, &(int32_t){ (int32_t)s->value[0] },
                            &(int32_t){ largest(part, documents_of(s)) }, 1);
        }
        at += texts ? documents_of(s) : s->n;
    }
    free(part);
    return 0;
}

/* Runs the forward pass of N samples from index NUMBER through E, of stage OWN; adds
 * losses to SUM[TRAINER_TERMS], on the stage that computes them.  BY: what the gradient
 * of a loss of logits is multiplied by.  M: of an evaluation, adds what is right to it;
 * or NULL. */
static int forward(const struct trainer *t, const struct trainer_stage *own,
                   struct engine *e, const struct sample *sample, uint64_t number,
                   size_t n, double by, struct verdict *m, double *sum, struct err *err)
{
    const struct loss_info *loss = &loss_table[t->options.loss];
    size_t count;
    struct segment *s = segments_of(t, sample, number, n, &count);
    int ret = engine_forward(e, s, count, err);

    if (ret == 0 && own->program->output[0].stage == own->number) {
        ret = e == own->scorer && is_counted(t)
                  ? add_counted(t, own, e, sample, n, m, sum, err)
              : loss->rows   ? add_rows(t, own, e, sample, n, by, sum, err)
              : loss->tokens ? add_tokens(t, own, e, sample, n, sum, err)
                             : add_loss(own, e, s, count, sum, err);
        if (ret == 0 && m && m->kind >= VERDICT_SETS)
            ret = count_rows(t, own, e, sample, n, m, err);
        if (ret == 0)
            ret = add_terms(own, e, sum, err);
    }
    free(s);
    return ret;
}

/* The gradients of weights, of which those of MICRO_BATCH are the next; and with WHOLE
 * those of inputs before. */
static int backward(struct trainer_stage *s, int micro_batch, bool whole,
                    struct err *err)
{
    int at = find_engine(s, micro_batch);

    s->holds[at] = -1;
    return gradients_begin_micro(&s->gradients, err) < 0 ||
                   (whole ? engine_reverse(s->engine[at], err)
                          : engine_reverse_weights(s->engine[at], err)) < 0 ||
                   gradients_end_micro(&s->gradients, micro_batch, err) < 0
               ? -1
               : 0;
}

/* The samples of micro-batch M of the global batch that do not only fill it up. */
static size_t real_samples(const struct trainer *t, int m)
{
    size_t micro = (size_t)t->options.micro_batch, first = (size_t)m * micro;
    size_t count = t->count ? t->count : (size_t)t->options.global;

    return count <= first ? 0 : count - first < micro ? count - first : micro;
}

/* Micro-batches of the global batch that have samples. */
static size_t real_micro_batches(const struct trainer *t)
{
    size_t micro = (size_t)t->options.micro_batch;
    size_t count = t->count ? t->count : (size_t)t->options.global;

    return (count + micro - 1) / micro;
}

/* FACTOR of a micro-batch, of COUNTED targets in the global batch. */
static void set_factors(const struct trainer *t, bool real, uint64_t counted,
                        float factor[STEP_FACTORS])
{
    double by = t->options.terms.balance_sum ? 1 : 1 / (double)real_micro_batches(t);

    by *= t->scaler.scale;
    factor[FACTOR_NLL] = (float)(t->scaler.scale / (double)counted);
    factor[FACTOR_BALANCE] = real ? (float)(t->options.terms.balance * by) : 0;
    factor[FACTOR_ROUTER_Z] = real ? (float)(t->options.terms.router_z * by) : 0;
    factor[FACTOR_LOAD] = real;
}

/* The index in the global batch of this replica's micro-batch M. */
static int micro_index(const struct trainer *t, int m)
{
    const int rank = t->data->rank;

    return t->options.deterministic ? m * t->data->size + rank
                                    : rank * t->table.micro_batches + m;
}

/* The stage of NUMBER, of this rank. */
static struct trainer_stage *find_stage(const struct trainer *t, int number)
{
    struct trainer_stage *s = t->stage;

    while (s->number != number)
        s++;
    return s;
}

/* Runs the forward pass of micro-batch M of this replica on stage S.  One without
 * samples runs what fills up the batch, since a stage waits for it. */
static int run_forward(const struct trainer *t, struct trainer_stage *s, int m,
                       const struct sample *sample, uint64_t counted, struct err *err)
{
    const int micro = t->options.micro_batch, index = micro_index(t, m);
    const size_t n = real_samples(t, index);
    const int at = find_engine(s, -1);
    float factor[STEP_FACTORS];

    s->holds[at] = m;
    set_factors(t, n > 0, counted, factor);
    engine_differentiate(s->engine[at], s->gradients.into, factor);
    return forward(t, s, s->engine[at], sample + index * micro,
                   t->first + (uint64_t)(index * micro), n ? n : 1,
                   t->scaler.scale / (double)counted, NULL,
                   &t->loss[index * TRAINER_TERMS], err);
}

static int run_action(const struct trainer *t, const struct action *a,
                      const struct sample *sample, uint64_t counted, struct err *err)
{
    struct trainer_stage *s = find_stage(t, a->stage);

    switch (a->kind) {
    case ACTION_FORWARD:
        return run_forward(t, s, a->micro_batch, sample, counted, err);
    case ACTION_INPUT:
        return engine_reverse_inputs(s->engine[find_engine(s, a->micro_batch)], err);
    default:
        return backward(s, a->micro_batch, a->kind == ACTION_BACKWARD, err);
    }
}

/* Runs all actions of this replica in the order of the table. */
static int run_share(struct trainer *t, const struct sample *sample, uint64_t counted,
                     struct err *err)
{
    const struct action_row *row = &t->table.row[t->coord[MESH_PP]];
    const bool timed = t->options.timed;

    if (timed && timing_begin(&t->timing, err) < 0)
        return -1;
    for (size_t i = 0; i < row->n; i++) {
        if (timed)
            timing_enter(&t->timing);
        if (run_action(t, &row->v[i], sample, counted, err) < 0)
            return -1;
        if (timed)
            timing_leave(&t->timing, i);
    }
    return timed ? timing_end(&t->timing, err) : 0;
}

/* All-reduces X[n] over the groups A and B. */
static int sum_over(double *x, size_t n, struct comm *a, struct comm *b,
                    struct err *err)
{
    return comm_run(a, comm_all_reduce_f64(x, n), err) < 0 ||
                   comm_run(b, comm_all_reduce_f64(x, n), err) < 0
               ? -1
               : 0;
}

/* All-reduces the losses X[n], which the first rank has of those that share a
 * sequence's tokens. */
static int sum_losses(const struct trainer *t, double *x, size_t n, struct err *err)
{
    return comm_run(t->groups.sequence, comm_all_reduce_f64(x, n), err) < 0
               ? -1
               : sum_over(x, n, t->data, t->groups.pipe, err);
}

static uint64_t count_targets(const struct trainer *t, const struct sample *sample,
                              size_t n)
{
    const struct loss_info *loss = &loss_table[t->options.loss];
    const bool samples = (loss->rows || loss->tokens) &&
                         !(loss->by_token && !t->options.numbers.by_text);
    uint64_t counted = 0;

    for (size_t i = 0; i < n && samples; i++)
        counted += has_labels(&sample[i], loss);
    for (size_t i = 0; i < n && !samples; i++)
        for (size_t k = 0; k < sample[i].n; k++)
            counted += sample[i].target[k] >= 0;
    return counted;
}

/* The tokens of the samples that do not only fill up the batch. */
static uint64_t count_tokens(const struct trainer *t, const struct sample *sample)
{
    size_t n = t->count ? t->count : (size_t)t->options.global;
    uint64_t tokens = 0;

    for (size_t i = 0; i < n; i++)
        tokens += sample[i].n;
    return tokens;
}

/* The means of the further terms of the loss over the micro-batches. */
static void set_terms(const struct trainer *t, struct trainer_result *r)
{
    size_t n = real_micro_batches(t);
    double sum[TRAINER_TERMS] = { 0 };

    for (size_t i = 0; i < n; i++)
        for (int k = 1; k < TRAINER_TERMS; k++)
            sum[k] += t->loss[i * TRAINER_TERMS + (size_t)k];
    r->balance = t->options.terms.balance > 0 ? sum[1] / (double)n : (double)NAN;
    r->router_z = t->options.terms.router_z > 0 ? sum[2] / (double)n : (double)NAN;
}

/* Sums the gradients of weights that several stages have. */
static int sum_ties(struct trainer *t, struct err *err)
{
    struct gradients **g = xcalloc((size_t)t->nstages + 1, sizeof(*g));
    int ret;

    for (int k = 0; k < t->nstages; k++)
        g[k] = &t->stage[k].gradients;
    ret = ties_sum(&t->ties, g, t->nstages, err);
    free(g);
    return ret;
}

/* The gradients of a step's samples, which become those of all ranks. */
static int make_gradients(struct trainer *t, const struct sample *sample,
                          uint64_t counted, struct err *err)
{
    for (int k = 0; k < t->nstages; k++)
        if (rounded_make(&t->stage[k].rounded, err) < 0 ||
            gradients_begin(&t->stage[k].gradients, err) < 0)
            return -1;
    if (run_share(t, sample, counted, err) < 0)
        return -1;
    for (int k = 0; k < t->nstages; k++)
        if (gradients_sum(&t->stage[k].gradients, err) < 0)
            return -1;
    return sum_ties(t, err);
}

/* Sums the squares of the gradients of all ranks to WORD. */
static int add_squares(struct trainer *t, double word[SQUARES_WORDS], struct err *err)
{
    memset(word, 0, SQUARES_WORDS * sizeof(*word));
    for (int k = 0; k < t->nstages; k++) {
        double own[SQUARES_WORDS];

        if (gradients_squares(&t->stage[k].gradients, own, err) < 0)
            return -1;
        for (int i = 0; i < SQUARES_WORDS; i++)
            word[i] += own[i];
    }
    if (sum_over(word, SQUARES_WORDS, t->groups.tensor, t->groups.pipe, err) < 0 ||
        comm_run(t->groups.expert, comm_all_reduce_f64(word, SQUARES_WORDS), err) < 0)
        return -1;
    return t->stage->gradients.scattered
               ? comm_run(t->replicas.sharing, comm_all_reduce_f64(word, SQUARES_WORDS),
                          err)
               : 0;
}

/* Updates the weights of all stages of this rank, and gives them to all replicas. */
static int update(struct trainer *t, double rate, double norm, uint64_t tokens,
                  struct err *err)
{
    const uint64_t before = t->optimizer.t;

    for (int k = 0; k < t->nstages; k++) {
        struct trainer_stage *s = &t->stage[k];

        t->optimizer.t = before;
        t->optimizer.wholes = s->wholes;
        s->rounded.current = false;
        if (optimizer_step(&t->optimizer, &s->parameters, rate, norm, tokens, err) <
                0 ||
            gradients_spread(&s->gradients, err) < 0 ||
            magnitudes_follow(&s->parameters, NULL, t->groups.tensor,
                              t->replicas.sharing, t->threads, err) < 0)
            return -1;
    }
    return 0;
}

static int step_samples(struct trainer *t, const struct sample *sample, double rate,
                        struct trainer_result *result, struct err *err)
{
    size_t micro_batches = (size_t)(t->options.global / t->options.micro_batch);
    uint64_t counted = count_targets(t, sample, (size_t)t->options.global);
    double sum = 0, squares[SQUARES_WORDS];

    if (!counted) {
        *result = (struct trainer_result){ .loss = (double)NAN,
                                           .norm = (double)NAN,
                                           .balance = (double)NAN,
                                           .router_z = (double)NAN,
                                           .skipped = true };
        return 0;
    }
    memset(t->loss, 0, micro_batches * TRAINER_TERMS * sizeof(*t->loss));
    if (make_gradients(t, sample, counted, err) < 0 ||
        sum_losses(t, t->loss, micro_batches * TRAINER_TERMS, err) < 0 ||
        add_squares(t, squares, err) < 0)
        return -1;
    for (size_t i = 0; i < micro_batches; i++)
        sum += t->loss[i * TRAINER_TERMS];
    *result =
        (struct trainer_result){ .loss = sum / (double)counted,
                                 .norm = sqrt(squares_sum(squares)) / t->scaler.scale,
                                 .scale = t->scaler.scale,
                                 .counted = counted };
    set_terms(t, result);
    result->skipped = !isfinite(result->loss) || !isfinite(result->norm) ||
                      (t->most_norm > 0 && result->norm > t->most_norm);
    if (t->options.compute == FORMAT_F16 && isfinite(result->loss)) {
        result->overflows = !isfinite(result->norm);
        scaler_see(&t->scaler, result->overflows);
    }
    if (result->skipped)
        return 0;
    t->optimizer.scale = result->scale;
    return update(t, rate, result->norm, count_tokens(t, sample), err);
}

/* ---- evaluation ---- */

/* Runs engine E of stage S over N samples, and adds what it finds to *SUM, and what is
 * right to *M, or NULL. */
typedef int scoring(const struct trainer *t, const struct trainer_stage *s,
                    struct engine *e, const struct sample *sample, size_t n,
                    struct verdict *m, double *sum, struct err *err);

static int prepare_scoring(struct trainer *t, struct err *err)
{
    for (int k = 0; k < t->nstages; k++) {
        struct trainer_stage *s = &t->stage[k];

        if (rounded_make(&s->rounded, err) < 0 ||
            (s->scored && !s->scorer && open_scorer(t, s, err) < 0))
            return -1;
    }
    return 0;
}

/* Does SCORE with the micro-batch of N samples on stage S that is this replica's in the
 * turn that begins with TURN, of BATCHES; SUM[batches]. */
static int take_turn(const struct trainer *t, const struct trainer_stage *s,
                     scoring *score, const struct sample *sample, size_t n, size_t turn,
                     size_t batches, double *sum, struct err *err)
{
    const size_t micro = (size_t)t->options.micro_batch;
    const size_t own = turn + (size_t)t->data->rank, m = own < batches ? own : turn;
    const size_t at = m * micro, some = n - at < micro ? n - at : micro;
    double other = 0;

    return m != own && !parameters_gathers(&s->parameters) && !t->replicas.experts
               ? 0
               : score(t, s, s->scored ? s->scorer : s->engine[0], sample + at, some,
                       m == own ? t->seen : NULL, m == own ? &sum[m] : &other, err);
}

/* Does SCORE with all N samples at SAMPLE, and adds to *SUM what that finds of the
 * micro-batches, in their order.  Replicas take the micro-batches in turn.  Where
 * they gather weights from one another, all take part in a turn, some of them with a
 * micro-batch that is another's.  A rank's later stage follows an earlier one by as
 * many turns as there are stages from that to it, so that no rank waits long. */
static int score_all(struct trainer *t, scoring *score, const struct sample *sample,
                     size_t n, double *sum, struct err *err)
{
    const size_t micro = (size_t)t->options.micro_batch;
    const size_t batches = (n + micro - 1) / micro, each = (size_t)t->data->size;
    const size_t turns = (batches + each - 1) / each;
    const size_t late = (size_t)(t->stage[t->nstages - 1].number - t->stage[0].number);
    double *part = xcalloc(batches + 1, sizeof(*part));
    int ret = prepare_scoring(t, err);

    for (size_t at = 0; at < turns + late && ret == 0; at++)
        for (int k = t->nstages - 1; k >= 0 && ret == 0; k--) {
            const size_t behind = (size_t)(t->stage[k].number - t->stage[0].number);

            if (at >= behind && at - behind < turns)
                ret = take_turn(t, &t->stage[k], score, sample, n, (at - behind) * each,
                                batches, part, err);
        }
    if (ret == 0)
        ret = sum_losses(t, part, batches, err);
    for (size_t m = 0; m < batches; m++)
        *sum += part[m];
    free(part);
    return ret;
}

static int score_loss(const struct trainer *t, const struct trainer_stage *s,
                      struct engine *e, const struct sample *sample, size_t n,
                      struct verdict *m, double *sum, struct err *err)
{
    double term[TRAINER_TERMS] = { 0 };
    int ret = forward(t, s, e, sample, 0, n, 0, m, term, err);

    *sum += term[0];
    return ret;
}

/* Runs E over the part of each of N samples that begins with its second document (WITH
 * 1), or ends before it (0); the caller frees these samples. */
static struct sample *parts_of(const struct sample *sample, size_t n, size_t with)
{
    struct sample *part = xcalloc(n + 1, sizeof(*part));

    for (size_t i = 0; i < n; i++) {
        const struct sample *s = &sample[i];
        const size_t second = s->documents > 1 ? s->start[1] : 0;

        part[i] = *s;
        part[i].documents = 0;
        if (!second)
            continue;
        part[i].id += with ? second : 0;
        part[i].target += with ? second : 0;
        part[i].n = with ? s->n - second : second;
    }
    return part;
}

/* Adds the logarithms of the ratios of the likelihoods of second documents by the model
 * and by the reference. */
static int score_distance(const struct trainer *t, const struct trainer_stage *s,
                          struct engine *e, const struct sample *sample, size_t n,
                          struct verdict *m, double *sum, struct err *err)
{
    struct sample *second = parts_of(sample, n, 1);
    size_t count, rows, k = 0;
    struct segment *segment = segments_of(t, second, 0, n, &count);
    int ret = engine_forward(e, segment, count, err);
    const float *nll;

    (void)m;
    free(segment);
    if (ret < 0 || s->program->output[0].stage != s->number || !engine_has_output(e, 0))
        goto out;
    ret = engine_output(e, 0, &nll, &rows, err);
    for (size_t i = 0; i < n && ret == 0; k += second[i++].n) {
        if (sample[i].documents < 2)
            continue;
        *sum += sample[i].reference[1];
        for (size_t j = 0; j < second[i].n; j++)
            *sum -= second[i].target[j] >= 0 ? (double)nll[k + j] : 0;
    }
out:
    free(second);
    return ret;
}

/* Sets t->kl to the mean over those of the N samples at SAMPLE that have a second
 * document of what score_distance finds, at least 0. */
static int find_distance(struct trainer *t, const struct sample *sample, size_t n,
                         struct err *err)
{
    double counted = 0;

    for (size_t i = 0; i < n; i++)
        counted += sample[i].documents > 1;
    t->kl = 0;
    if (score_all(t, score_distance, sample, n, &t->kl, err) < 0)
        return -1;
    t->kl = t->kl > 0 ? t->kl / counted : 0;
    return 0;
}

int trainer_step(struct trainer *t, const struct sample *sample, double rate,
                 struct trainer_result *result, struct err *err)
{
    const size_t n = (size_t)t->options.global;
    struct sample *first;
    int ret;

    if (trainer_make_room(t, sample, n, err) < 0)
        return -1;
    if (!loss_table[t->options.loss].distance)
        return step_samples(t, sample, rate, result, err);
    if (find_distance(t, sample, n, err) < 0)
        return -1;
    first = parts_of(sample, n, 0);
    ret = step_samples(t, first, rate, result, err);
    free(first);
    return ret;
}

int trainer_evaluate(struct trainer *t, const struct sample *sample, size_t n,
                     struct verdict *verdict, double *sum, uint64_t *counted,
                     struct err *err)
{
    struct verdict seen = *verdict; /* of this replica */
    const bool apart = loss_table[t->options.loss].distance;
    struct sample *first = apart ? parts_of(sample, n, 0) : NULL;
    int ret = trainer_make_room(t, sample, n, err);

    if (ret == 0 && apart)
        ret = find_distance(t, sample, n, err);
    sample = apart ? first : sample;
    seen.count = xcalloc(seen.n, sizeof(*seen.count));
    t->seen = &seen;
    if (ret == 0)
        ret = score_all(t, score_loss, sample, n, sum, err);
    t->seen = NULL;
    if (ret == 0)
        ret = sum_losses(t, seen.count, seen.n, err);
    for (size_t k = 0; k < seen.n && ret == 0; k++)
        verdict->count[k] += seen.count[k];
    verdict_clear(&seen);
    *counted += count_targets(t, sample, n);
    free(first);
    return ret;
}

uint64_t trainer_arena(const struct program *p, int across, size_t tokens,
                       size_t sources, size_t segments)
{
    struct comm group = { .size = p->mesh.size[MESH_SP] };
    uint64_t most[ROWS_MOST] = { [ROWS_ONE] = segments };
    uint64_t *offset = xcalloc((size_t)p->nvalues + 1, sizeof(*offset)), bytes;
    struct sequence s;

    sequence_init(&s, &group, NULL, across);
    s.trains = group.size > 1;
    most[ROWS_TOKENS] = sequence_rows_most(&s, tokens);
    most[ROWS_SOURCE] = sequence_rows_most(&s, sources);
    rows_most(&p->rows, most);
    if (!program_arena(p, most, offset, &bytes))
        bytes = UINT64_MAX;
    free(offset);
    return bytes;
}

int trainer_divided(const struct trainer *t)
{
    int n = 0;

    for (int k = 0; k < t->nstages; k++)
        n += wholes_divided(t->stage[k].wholes);
    return n;
}

void trainer_memory(const struct trainer *t, struct ledger *list)
{
    for (int k = 0; k < t->nstages; k++) {
        const struct trainer_stage *s = &t->stage[k];

        parameters_memory(&s->parameters, list);
        wholes_memory(s->wholes, list);
        rounded_memory(&s->rounded, list);
        gradients_memory(&s->gradients, list);
        ledger_add(list, "loss", t->ops->host_memory ? LEDGER_DEVICE : LEDGER_HOST,
                   s->rooms);
        for (int i = 0; i < s->in_flight; i++)
            engine_memory(s->engine[i], list);
        if (s->scorer)
            engine_memory(s->scorer, list);
    }
    t->ops->taken(t->device, list, NULL);
}
