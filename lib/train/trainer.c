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

/* The largest number of micro-batches in flight on this stage: forward done, backward
 * not. */
static int most_in_flight(const struct action_row *row)
{
    int now = 0, most = 0;

    for (size_t i = 0; i < row->n; i++) {
        now += row->v[i].kind == ACTION_FORWARD ? 1 : -1;
        most = now > most ? now : most;
    }
    return most;
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

/* Opens engines for micro-batches of up to SEGMENTS documents; none may be in
 * flight. */
static int open_engines(struct trainer *t, size_t segments, struct err *err)
{
    const struct engine_limits limits = limits_of(t, segments);

    for (int i = 0; i < t->in_flight; i++) {
        engine_free(t->engine[i]);
        t->engine[i] = NULL;
    }
    engine_free(t->scorer);
    t->scorer = NULL;
    t->segments = segments;
    for (int i = 0; i < t->in_flight; i++) {
        if (engine_open(&t->engine[i], t->program, t->ops, t->device,
                        t->parameters.matrix, &t->groups, &limits, err) < 0)
            return -1;
        engine_drop(t->engine[i], t->options.seed);
        shards_follow(&t->shards, t->engine[i]);
    }
    return 0;
}

static int open_scorer(struct trainer *t, struct err *err)
{
    const struct engine_limits limits = limits_of(t, t->segments);

    if (engine_open(&t->scorer, t->scored, t->ops, t->device, t->parameters.matrix,
                    &t->groups, &limits, err) < 0)
        return -1;
    shards_follow(&t->scored_shards, t->scorer);
    return 0;
}

/* Makes the program of the evaluation, if training's has dropout or another loss. */
static int make_scored(struct trainer *t, const struct model *m,
                       const struct mesh *mesh, const int coord[MESH_NAXES],
                       struct err *err)
{
    const struct program_options options = { .tail = trainer_tail(t->options.loss),
                                             .whole = mesh->size[MESH_SP] > 1,
                                             .deterministic = t->options.deterministic,
                                             .rounded =
                                                 t->options.compute == FORMAT_BF16,
                                             .half = t->options.compute == FORMAT_F16 };
    bool drops = false;

    for (int i = 0; i < t->program->nforward; i++) {
        const struct inst *inst = &t->program->inst[i];

        drops |= inst->op == OP_DROPOUT ||
                 (inst->op == OP_ATTENTION && inst->attention.drop > 0);
    }
    if (!drops && t->program->noutputs == 1 && !(t->options.terms.smooth > 0) &&
        !(t->options.terms.z > 0))
        return 0;
    if (program_build(&t->scored, m, mesh, coord, &options, err) < 0)
        return -1;
    assert(t->scored->nweights == t->program->nweights);
    for (int i = 0; i < t->program->nweights; i++)
        assert(t->scored->weight[i].tensor == t->program->weight[i].tensor);
    shards_open(&t->scored_shards, &t->gradients, t->scored);
    return 0;
}

static int make_engines(struct trainer *t, struct err *err)
{
    t->in_flight = most_in_flight(&t->table.row[t->program->coord[MESH_PP]]);
    t->engine = xcalloc((size_t)t->in_flight + 1, sizeof(*t->engine));
    t->holds = xmalloc(((size_t)t->in_flight + 1) * sizeof(*t->holds));
    for (int i = 0; i < t->in_flight; i++)
        t->holds[i] = -1;
    return open_engines(t, (size_t)t->options.micro_batch, err);
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
    int share = t->table.micro_batches, dp = t->program->mesh.size[MESH_DP];

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

/* Makes the parameters, and what sums their gradients. */
static int open_parameters(struct trainer *t, struct checkpoint *c, struct err *err)
{
    const struct parameters_owner one = { .size = 1, .offloads = t->options.offload };
    const struct comm *sharing = t->replicas.sharing;
    const struct parameters_owner own = { sharing->rank,      sharing->size,
                                          t->options.zero,    t->options.deterministic,
                                          t->options.offload, t->options.compute };
    struct parameters *p = &t->parameters;
    int levels;

    if (find_levels(t, &levels, err) < 0 ||
        parameters_open_as(p, c, t->program, t->ops, t->device,
                           t->options.optimizer.kind, t->options.zero ? own : one,
                           t->options.frozen, t->groups.tensor, t->threads, err) < 0 ||
        parameters_find_shared(p, t->groups.pipe, err) < 0 ||
        (c->drawn && init_parameters(p, t->options.seed, err) < 0) ||
        magnitudes_follow(p, c->adapter, t->groups.tensor, t->replicas.sharing,
                          t->threads, err) < 0 ||
        (t->options.terms.average > 0 && parameters_keep_average(p, err) < 0))
        return -1;
    if (gradients_open(&t->gradients, p, &t->groups, t->replicas, levels, err) < 0)
        return -1;
    shards_open(&t->shards, &t->gradients, t->program);
    return wholes_open(&t->optimizer.wholes, p, t->groups.tensor, t->threads, err);
}

/* The table must have the right number of ranks and micro-batches and only unsplit
 * backward actions, in the same order on all stages, because messages arrive in
 * order. */
int trainer_check_table(const struct action_table *a, int pp, int micro_batches,
                        struct err *err)
{
    double *one = xmalloc((size_t)pp * sizeof(*one));
    struct pipe_times times = { one, one, one, 0, 0, 0, 0 };
    struct pipe_result result;
    int ret = -1;

    for (int i = 0; i < pp; i++)
        one[i] = 1;
    if (a->ranks != pp || a->stages != pp || a->micro_batches != micro_batches) {
        err_set(err, ERR_INPUT,
                "a schedule of %d ranks, %d stages and %d micro-batches; "
                "here are %d ranks with a stage each, and %d micro-batches",
                a->ranks, a->stages, a->micro_batches, pp, micro_batches);
        goto out;
    }
    for (int r = 0; r < pp; r++) {
        int seen[2] = { 0 };

        for (size_t i = 0; i < a->row[r].n; i++) {
            const struct action *v = &a->row[r].v[i];

            if (v->kind != ACTION_FORWARD && v->kind != ACTION_BACKWARD) {
                err_set(err, ERR_INPUT,
                        "a schedule with gradients of inputs and of weights apart "
                        "cannot be trained by");
                goto out;
            }
            if (v->stage != r || v->micro_batch != seen[v->kind == ACTION_BACKWARD]++) {
                err_set(err, ERR_INPUT,
                        "a schedule whose rank %d does not take the micro-batches of "
                        "stage %d in order cannot be trained by",
                        r, r);
                goto out;
            }
        }
    }
    if (action_check(a, err) < 0 || pipe_simulate(&result, a, &times, err) < 0)
        goto out;
    pipe_result_clear(&result);
    ret = 0;
out:
    free(one);
    return ret;
}

static void copy_table(struct action_table *to, const struct action_table *from)
{
    action_table_init(to, from->ranks, from->stages, from->micro_batches);
    memcpy(to->rank_of, from->rank_of, (size_t)from->stages * sizeof(*to->rank_of));
    for (int r = 0; r < from->ranks; r++)
        for (size_t i = 0; i < from->row[r].n; i++)
            action_add(to, r, from->row[r].v[i].kind, from->row[r].v[i].stage,
                       from->row[r].v[i].micro_batch);
}

static int open_table(struct trainer *t, const struct mesh *mesh, struct err *err)
{
    const struct trainer_options *o = &t->options;
    int share = o->micro_batch * mesh->size[MESH_DP] * mesh->size[MESH_EP];

    if (o->micro_batch < 1 || o->global < share || o->global % share)
        return err_set(
            err, ERR_USAGE,
            "a global batch of %d is no multiple of %d: dp times ep times the "
            "micro-batch",
            o->global, share);
    t->loss =
        xcalloc((size_t)(o->global / o->micro_batch) * TRAINER_TERMS, sizeof(*t->loss));
    if (!o->table)
        return order_make(&t->table, o->order, mesh->size[MESH_PP], o->global / share,
                          1, err);
    if (trainer_check_table(o->table, mesh->size[MESH_PP], o->global / share, err) < 0)
        return -1;
    copy_table(&t->table, o->table);
    return 0;
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

int trainer_open(struct trainer *t, struct checkpoint *c, const struct mesh *mesh,
                 const struct runner_machine *machine, struct comm *world,
                 const struct trainer_options *options, struct err *err)
{
    struct program_options program = { .tail = trainer_tail(options->loss),
                                       .reverse = true,
                                       .deterministic = options->deterministic,
                                       .rounded = options->compute == FORMAT_BF16,
                                       .half = options->compute == FORMAT_F16,
                                       .recompute = options->recompute,
                                       .balance = trainer_balances(&options->terms),
                                       .loads = options->terms.bias_speed > 0,
                                       .smooth = options->terms.smooth,
                                       .z = options->terms.z,
                                       .dropout = options->dropout };
    struct choice_need need = { .checkpoint = c,
                                .form = options->frozen,
                                .trains = true,
                                .update =
                                    optimizer_table[options->optimizer.kind].update };
    int coord[MESH_NAXES];

    *t = (struct trainer){
        .options = *options,
        .ops = machine->ops ? machine->ops : backend_find("cpu", err),
        .groups = { .across = machine->across ? machine->across : mesh->size[MESH_SP],
                    .trains = true },
        .threads = machine->threads,
        .scaler.scale = options->compute == FORMAT_F16 ? SCALER_FIRST : 1,
        .optimizer = { .options = options->optimizer,
                       .bias_speed = options->terms.bias_speed,
                       .average = options->terms.average }
    };
    if (t->options.hsdp * mesh->size[MESH_SP] == 1) /* a rank alone shares nothing */
        t->options.zero = 0;
    mesh_coord(mesh, world->rank, coord);
    if (!t->ops || open_table(t, mesh, err) < 0 ||
        runner_group(&t->groups.tensor, world, mesh, coord, MESH_TP, err) < 0 ||
        runner_group(&t->groups.sequence, world, mesh, coord, MESH_SP, err) < 0 ||
        runner_group(&t->groups.pipe, world, mesh, coord, MESH_PP, err) < 0 ||
        runner_group(&t->groups.expert, world, mesh, coord, MESH_EP, err) < 0 ||
        runner_group_over(&t->data, world, mesh, coord, MESH_DP, MESH_EP, err) < 0 ||
        runner_group_over(&t->copies, world, mesh, coord, MESH_DP, MESH_SP, err) < 0 ||
        group_replicas(t, err) < 0 ||
        program_build(&t->program, c->model, mesh, coord, &program, err) < 0 ||
        reverse_check_model(t->program, err) < 0)
        goto fail;
    need.program = t->program;
    if (choice_supports(t->ops, &need, NULL, err) < 0 ||
        runner_device(&t->device, t->ops, machine, world, err) < 0 ||
        open_parameters(t, c, err) < 0 ||
        (options->compute != FORMAT_F32 &&
         rounded_open(&t->rounded, &t->parameters, options->compute, err) < 0) ||
        make_engines(t, err) < 0 || make_scored(t, c->model, mesh, coord, err) < 0)
        goto fail;
    return 0;
fail:
    trainer_close(t);
    return -1;
}

void trainer_close(struct trainer *t)
{
    struct comm *sharing =
        t->replicas.sharing == t->copies ? NULL : t->replicas.sharing;
    struct comm *group[] = { sharing,          t->replicas.across, t->copies,
                             t->data,          t->groups.pipe,     t->groups.sequence,
                             t->groups.expert, t->groups.tensor };

    for (int i = 0; i < t->in_flight && t->engine; i++)
        engine_free(t->engine[i]);
    free(t->engine);
    engine_free(t->scorer);
    program_free(t->scored);
    free(t->holds);
    free(t->loss);
    shards_close(&t->shards);
    shards_close(&t->scored_shards);
    wholes_close(t->optimizer.wholes);
    gradients_close(&t->gradients);
    rounded_close(&t->rounded);
    parameters_close(&t->parameters);
    if (t->device)
        t->ops->close(t->device);
    program_free(t->program);
    action_table_clear(&t->table);
    for (size_t i = 0; i < sizeof(group) / sizeof(*group); i++)
        if (group[i])
            group[i]->ops->close(group[i]);
    *t = (struct trainer){ 0 };
}

/* ---- a step ---- */

/* Index of the engine that has MICRO_BATCH (-1: of a free engine). */
static int find_engine(const struct trainer *t, int micro_batch)
{
    int i = 0;

    while (t->holds[i] != micro_batch)
        i++;
    return i;
}

/* Adds the losses of N segments to *SUM. */
static int add_loss(const struct trainer *t, struct engine *e, const struct segment *s,
                    size_t n, double *sum, struct err *err)
{
    const struct program *p = t->program;
    const bool texts = p->value[p->output[0].value].rows == ROWS_ONE;
    const float *nll;
    size_t rows;

    if (!engine_has_output(e, 0) || (texts && t->groups.sequence->rank > 0))
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
static int add_terms(const struct trainer *t, struct engine *e, double *sum,
                     struct err *err)
{
    const float *term;
    size_t rows;

    if (e == t->scorer || t->program->noutputs < 2 || t->groups.sequence->rank > 0)
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
                segment_source(&s[at], t->program, sample[i].source, sample[i].nsource);
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
static int add_tokens(const struct trainer *t, struct engine *e,
                      const struct sample *sample, size_t n, double *sum,
                      struct err *err)
{
    const struct loss_info *loss = &loss_table[t->options.loss];
    size_t rows, at = 0;
    const float *nll;
    float *weight;
    int ret = 0;

    if (!engine_has_output(e, 0))
        return e == t->scorer ? 0 : engine_weigh(e, NULL, 0, err);
    if (engine_output(e, 0, &nll, &rows, err) < 0)
        return -1;
    weight = xcalloc(rows + 1, sizeof(*weight));
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
    if (e != t->scorer)
        ret = engine_weigh(e, weight, rows, err);
    free(weight);
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
static int add_rows(const struct trainer *t, struct engine *e,
                    const struct sample *sample, size_t n, double by, double *sum,
                    struct err *err)
{
    const struct loss_info *loss = &loss_table[t->options.loss];
    const struct value *v = &t->program->value[t->program->output[0].value];
    const bool texts = v->rows == ROWS_ONE, each = loss->each;
    const size_t cols = (size_t)v->whole_cols;
    float *d, *part = NULL, *from = NULL;
    const float *x;
    size_t rows, at = 0;
    double ignored = 0;
    int ret = 0;

    if (!engine_has_output(e, 0))
        return e == t->scorer ? 0 : engine_give(e, NULL, err);
    if (texts && t->groups.sequence->rank > 0) /* all have its rows, the first counts */
        sum = &ignored;
    if (engine_output(e, 0, &x, &rows, err) < 0)
        return -1;
    d = mem_alloc((uint64_t)rows * cols * sizeof(*d) + 1, "gradients of logits", err);
    if (!d)
        return -1;
    memset(d, 0, rows * cols * sizeof(*d));
    if (!each) {
        part = xmalloc((rows * cols + 1) * sizeof(*part));
        from = xmalloc((rows * cols + 1) * sizeof(*from));
    }
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
    if (e != t->scorer)
        ret = engine_give(e, d, err);
    free(d);
    free(part);
    free(from);
    return ret;
}

/* Runs the forward pass of N samples from index NUMBER through E; adds losses to
 * SUM[TRAINER_TERMS], on the stage that computes them.  BY: what the gradient of a loss
 * of logits is multiplied by. */
static int forward(struct trainer *t, struct engine *e, const struct sample *sample,
                   uint64_t number, size_t n, double by, double *sum, struct err *err)
{
    const struct loss_info *loss = &loss_table[t->options.loss];
    size_t count;
    struct segment *s = segments_of(t, sample, number, n, &count);
    int ret = engine_forward(e, s, count, err);

    if (ret == 0 && t->program->output[0].stage == t->program->coord[MESH_PP]) {
        ret = loss->rows     ? add_rows(t, e, sample, n, by, sum, err)
              : loss->tokens ? add_tokens(t, e, sample, n, sum, err)
                             : add_loss(t, e, s, count, sum, err);
        if (ret == 0)
            ret = add_terms(t, e, sum, err);
    }
    free(s);
    return ret;
}

static int backward(struct trainer *t, int micro_batch, struct err *err)
{
    int at = find_engine(t, micro_batch);

    t->holds[at] = -1;
    return gradients_begin_micro(&t->gradients, err) < 0 ||
                   engine_reverse(t->engine[at], err) < 0 ||
                   gradients_end_micro(&t->gradients, micro_batch, err) < 0
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

/* Runs all actions of this replica in the order of the table.  A micro-batch without
 * samples runs what fills up the batch, since a stage waits for it. */
static int run_share(struct trainer *t, const struct sample *sample, uint64_t counted,
                     struct err *err)
{
    const struct action_row *row = &t->table.row[t->program->coord[MESH_PP]];
    int micro = t->options.micro_batch;

    for (size_t i = 0; i < row->n; i++) {
        int m = row->v[i].micro_batch, index = micro_index(t, m), at;
        size_t n = real_samples(t, index);
        float factor[STEP_FACTORS];

        if (row->v[i].kind == ACTION_BACKWARD) {
            if (backward(t, m, err) < 0)
                return -1;
            continue;
        }
        at = find_engine(t, -1);
        t->holds[at] = m;
        set_factors(t, n > 0, counted, factor);
        engine_differentiate(t->engine[at], t->gradients.into, factor);
        if (forward(t, t->engine[at], sample + index * micro,
                    t->first + (uint64_t)(index * micro), n ? n : 1,
                    t->scaler.scale / (double)counted, &t->loss[index * TRAINER_TERMS],
                    err) < 0)
            return -1;
    }
    return 0;
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

/* Sets t->kl to the mean over those of the N samples at SAMPLE that have a second
 * document of the log of the ratio of its likelihoods by the model and by the
 * reference, at least 0.  Replicas take micro-batches in turn, as in trainer_evaluate.
 */
static int find_distance(struct trainer *t, const struct sample *sample, size_t n,
                         struct err *err)
{
    size_t micro = (size_t)t->options.micro_batch, batches = (n + micro - 1) / micro;
    struct sample *second = parts_of(sample, n, 1);
    double *sum = xcalloc(batches + 1, sizeof(*sum)), counted = 0;
    int ret = 0;

    t->kl = 0;
    for (size_t turn = 0; turn < batches && ret == 0; turn += (size_t)t->data->size) {
        size_t own = turn + (size_t)t->data->rank, m = own < batches ? own : turn;
        size_t at = m * micro, some = n - at < micro ? n - at : micro, count, rows,
               k = 0;
        struct engine *e = t->scored ? t->scorer : t->engine[0];
        struct segment *s;
        const float *nll;

        if (m != own && !parameters_gathers(&t->parameters) && !t->replicas.experts)
            continue;
        s = segments_of(t, second + at, 0, some, &count);
        ret = engine_forward(e, s, count, err);
        free(s);
        if (ret < 0 || m != own ||
            t->program->output[0].stage != t->program->coord[MESH_PP])
            continue;
        ret = engine_output(e, 0, &nll, &rows, err);
        for (size_t i = at; i < at + some && ret == 0; k += second[i++].n) {
            if (sample[i].documents < 2)
                continue;
            sum[m] += sample[i].reference[1];
            for (size_t j = 0; j < second[i].n; j++)
                sum[m] -= second[i].target[j] >= 0 ? (double)nll[k + j] : 0;
        }
    }
    if (ret == 0)
        ret = sum_over(sum, batches, t->data, t->groups.pipe, err);
    for (size_t i = 0; i < n; i++)
        counted += sample[i].documents > 1;
    for (size_t m = 0; m < batches; m++)
        t->kl += sum[m];
    t->kl = t->kl > 0 ? t->kl / counted : 0;
    free(second);
    free(sum);
    return ret;
}

static int step_samples(struct trainer *t, const struct sample *sample, double rate,
                        struct trainer_result *result, struct err *err)
{
    struct gradients *g = &t->gradients;
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
    if (rounded_make(&t->rounded, err) < 0 || gradients_begin(g, err) < 0 ||
        run_share(t, sample, counted, err) < 0 || gradients_sum(g, err) < 0 ||
        gradients_squares(g, squares, err) < 0 ||
        sum_losses(t, t->loss, micro_batches * TRAINER_TERMS, err) < 0 ||
        sum_over(squares, SQUARES_WORDS, t->groups.tensor, t->groups.pipe, err) < 0 ||
        comm_run(t->groups.expert, comm_all_reduce_f64(squares, SQUARES_WORDS), err) <
            0 ||
        (g->scattered &&
         comm_run(t->replicas.sharing, comm_all_reduce_f64(squares, SQUARES_WORDS),
                  err) < 0))
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
    t->rounded.current = false;
    t->optimizer.scale = result->scale;
    if (optimizer_step(&t->optimizer, &t->parameters, rate, result->norm,
                       count_tokens(t, sample), err) < 0 ||
        gradients_spread(g, err) < 0)
        return -1;
    return magnitudes_follow(&t->parameters, NULL, t->groups.tensor,
                             t->replicas.sharing, t->threads, err);
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
    if (rounded_make(&t->rounded, err) < 0 ||
        (t->scored && !t->scorer && open_scorer(t, err) < 0) ||
        find_distance(t, sample, n, err) < 0)
        return -1;
    first = parts_of(sample, n, 0);
    ret = step_samples(t, first, rate, result, err);
    free(first);
    return ret;
}

/* Replicas take the micro-batches in turn; the losses are added in their order.  Where
 * they gather weights from one another, all take part in a turn, some of them with a
 * micro-batch that is another's. */
int trainer_evaluate(struct trainer *t, const struct sample *sample, size_t n,
                     double *sum, uint64_t *counted, struct err *err)
{
    const bool apart = loss_table[t->options.loss].distance;
    size_t micro = (size_t)t->options.micro_batch, batches = (n + micro - 1) / micro;
    double *loss = xcalloc(batches + 1, sizeof(*loss)), term[TRAINER_TERMS];
    struct sample *first = apart ? parts_of(sample, n, 0) : NULL;
    int ret = trainer_make_room(t, sample, n, err);

    if (ret == 0)
        ret = rounded_make(&t->rounded, err);
    if (ret == 0 && t->scored && !t->scorer)
        ret = open_scorer(t, err);
    if (ret == 0 && apart)
        ret = find_distance(t, sample, n, err);
    sample = apart ? first : sample;
    for (size_t turn = 0; turn < batches && ret == 0; turn += (size_t)t->data->size) {
        size_t own = turn + (size_t)t->data->rank, m = own < batches ? own : turn;

        if (m != own && !parameters_gathers(&t->parameters) && !t->replicas.experts)
            continue;
        memset(term, 0, sizeof(term));
        ret = forward(t, t->scored ? t->scorer : t->engine[0], sample + m * micro, 0,
                      n - m * micro < micro ? n - m * micro : micro, 0, term, err);
        if (m == own)
            loss[m] = term[0];
    }
    if (ret == 0)
        ret = sum_losses(t, loss, batches, err);
    for (size_t m = 0; m < batches && ret == 0; m++)
        *sum += loss[m];
    *counted += count_targets(t, sample, n);
    free(loss);
    free(first);
    return ret;
}

uint64_t trainer_arena(const struct program *p, size_t tokens, size_t sources,
                       size_t segments)
{
    const uint64_t most[ROWS_MOST] = {
        [ROWS_TOKENS] = tokens, [ROWS_SOURCE] = sources, [ROWS_ONE] = segments
    };
    uint64_t *offset = xcalloc((size_t)p->nvalues + 1, sizeof(*offset)), bytes;

    if (!program_arena(p, most, offset, &bytes))
        bytes = UINT64_MAX;
    free(offset);
    return bytes;
}

void trainer_memory(const struct trainer *t, struct ledger *list)
{
    parameters_memory(&t->parameters, list);
    wholes_memory(t->optimizer.wholes, list);
    rounded_memory(&t->rounded, list);
    gradients_memory(&t->gradients, list);
    for (int i = 0; i < t->in_flight; i++)
        engine_memory(t->engine[i], list);
    if (t->scorer)
        engine_memory(t->scorer, list);
    t->ops->taken(t->device, list, NULL);
}
