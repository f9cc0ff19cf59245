/* trainer - one rank that trains: micro-batches to a global batch, to an update */
#include "lib/train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* ---- opening ---- */

/* Most micro-batches that this stage has run forwards and not yet back. */
static int most_in_flight(const struct action_row *row)
{
    int now = 0, most = 0;

    for (size_t i = 0; i < row->n; i++) {
        now += row->v[i].kind == ACTION_FORWARD ? 1 : -1;
        most = now > most ? now : most;
    }
    return most;
}

static int open_engines(struct trainer *t, struct err *err)
{
    size_t rows = (size_t)t->options.micro_batch;
    struct engine_limits limits = { .tokens = rows * t->options.length,
                                    .segments = rows,
                                    .sequences = rows,
                                    .context = t->options.length };

    t->in_flight = most_in_flight(&t->table.row[t->program->coord[MESH_PP]]);
    t->engine = xcalloc((size_t)t->in_flight + 1, sizeof(*t->engine));
    t->holds = xmalloc(((size_t)t->in_flight + 1) * sizeof(*t->holds));
    for (int i = 0; i < t->in_flight; i++) {
        t->holds[i] = -1;
        if (engine_open(&t->engine[i], t->program, t->ops, t->device,
                        t->parameters.matrix, &t->groups, &limits, err) < 0)
            return -1;
    }
    return 0;
}

static int open_table(struct trainer *t, const struct mesh *mesh, struct err *err)
{
    const struct trainer_options *o = &t->options;
    int share = o->micro_batch * mesh->size[MESH_DP];

    if (o->micro_batch < 1 || o->global < share || o->global % share)
        return err_set(err, ERR_USAGE,
                       "a global batch of %d is no multiple of %d: dp times the "
                       "micro-batch",
                       o->global, share);
    return order_make(&t->table, o->order, mesh->size[MESH_PP], o->global / share, 1,
                      err);
}

int trainer_open(struct trainer *t, struct checkpoint *c, const struct mesh *mesh,
                 const struct runner_machine *machine, struct comm *world,
                 const struct trainer_options *options, struct err *err)
{
    struct program_options program = { .tail = TAIL_NLL, .reverse = true };
    int coord[MESH_NAXES];

    *t =
        (struct trainer){ .options = *options,
                          .ops = machine->ops ? machine->ops : backend_find("cpu", err),
                          .groups.across = 1,
                          .optimizer = { .adamw = options->adamw,
                                         .clip = options->clip } };
    mesh_coord(mesh, world->rank, coord);
    if (!t->ops || open_table(t, mesh, err) < 0 ||
        runner_group(&t->groups.tensor, world, mesh, coord, MESH_TP, err) < 0 ||
        runner_group(&t->groups.sequence, world, mesh, coord, MESH_SP, err) < 0 ||
        runner_group(&t->groups.pipe, world, mesh, coord, MESH_PP, err) < 0 ||
        runner_group(&t->data, world, mesh, coord, MESH_DP, err) < 0 ||
        program_build(&t->program, c->model, mesh, coord, &program, err) < 0 ||
        t->ops->open(&t->device, machine->threads, world->rank, err) < 0 ||
        parameters_open(&t->parameters, c, t->program, t->ops, t->device, err) < 0 ||
        optimizer_open(&t->optimizer, &t->parameters, err) < 0 ||
        open_engines(t, err) < 0) {
        trainer_close(t);
        return -1;
    }
    return 0;
}

void trainer_close(struct trainer *t)
{
    struct comm *group[] = { t->data, t->groups.pipe, t->groups.sequence,
                             t->groups.tensor };

    for (int i = 0; i < t->in_flight && t->engine; i++)
        engine_free(t->engine[i]);
    free(t->engine);
    free(t->holds);
    optimizer_close(&t->optimizer);
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

/* The place of the engine that has MICRO_BATCH; -1: one that has none. */
static int find_engine(const struct trainer *t, int micro_batch)
{
    int i = 0;

    while (t->holds[i] != micro_batch)
        i++;
    return i;
}

/* The sum of the likelihoods of the targets of N segments, where they are made. */
static int add_loss(const struct trainer *t, struct engine *e, const struct segment *s,
                    size_t n, double *sum, struct err *err)
{
    const float *nll;
    size_t rows;

    if (t->program->output[0].stage != t->program->coord[MESH_PP])
        return 0;
    if (engine_output(e, 0, &nll, &rows, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < s[i].n; k++, nll++)
            if (s[i].targets[k] >= 0)
                *sum += (double)*nll;
    return 0;
}

static int forward(struct trainer *t, const struct sample *sample, int micro_batch,
                   float scale, double *sum, struct err *err)
{
    size_t n = (size_t)t->options.micro_batch;
    struct segment *s = xcalloc(n, sizeof(*s));
    int at = find_engine(t, -1), ret;

    for (size_t i = 0; i < n; i++)
        s[i] = (struct segment){ .ids = sample[i].id,
                                 .targets = sample[i].target,
                                 .n = sample[i].n,
                                 .sequence = i };
    t->holds[at] = micro_batch;
    engine_differentiate(t->engine[at], t->parameters.gradient, scale);
    ret = engine_forward(t->engine[at], s, n, err);
    if (ret == 0)
        ret = add_loss(t, t->engine[at], s, n, sum, err);
    free(s);
    return ret;
}

static int backward(struct trainer *t, int micro_batch, struct err *err)
{
    int at = find_engine(t, micro_batch);

    t->holds[at] = -1;
    return engine_reverse(t->engine[at], err);
}

/* All of this replica's micro-batches, as the table of actions says. */
static int run_share(struct trainer *t, const struct sample *sample, float scale,
                     double *sum, struct err *err)
{
    const struct action_row *row = &t->table.row[t->program->coord[MESH_PP]];

    sample += t->program->coord[MESH_DP] *
              (t->options.global / t->program->mesh.size[MESH_DP]);
    for (size_t i = 0; i < row->n; i++) {
        int m = row->v[i].micro_batch;

        if (row->v[i].kind == ACTION_FORWARD
                ? forward(t, sample + m * t->options.micro_batch, m, scale, sum, err) <
                      0
                : backward(t, m, err) < 0)
            return -1;
    }
    return 0;
}

/* *x added up over the groups A and B. */
static int sum_over(double *x, struct comm *a, struct comm *b, struct err *err)
{
    return comm_run(a, comm_all_reduce_f64(x, 1), err) < 0 ||
                   comm_run(b, comm_all_reduce_f64(x, 1), err) < 0
               ? -1
               : 0;
}

int trainer_step(struct trainer *t, const struct sample *sample, double rate,
                 struct trainer_result *result, struct err *err)
{
    struct parameters *p = &t->parameters;
    size_t n = p->at[t->program->nweights];
    double sum = 0, squares;
    uint64_t counted = 0;

    for (int i = 0; i < t->options.global; i++)
        for (size_t k = 0; k < sample[i].n; k++)
            counted += sample[i].target[k] >= 0;
    if (!counted)
        return err_set(err, ERR_INPUT, "a batch has no token to learn");
    parameters_zero(p);
    if (run_share(t, sample, (float)(1 / (double)counted), &sum, err) < 0 ||
        comm_run(t->data, comm_all_reduce(p->gradient, n), err) < 0 ||
        parameters_sum(p, t->groups.tensor, err) < 0 ||
        parameters_tie(p, t->groups.pipe, err) < 0)
        return -1;
    squares = optimizer_squares(p);
    if (sum_over(&sum, t->data, t->groups.pipe, err) < 0 ||
        sum_over(&squares, t->groups.tensor, t->groups.pipe, err) < 0)
        return -1;
    *result = (struct trainer_result){ .loss = sum / (double)counted,
                                       .norm = sqrt(squares),
                                       .counted = counted };
    optimizer_step(&t->optimizer, p, rate, result->norm);
    return 0;
}
