/* device-training - training on two backends (device-training.h) */
#define _GNU_SOURCE
#include "tests/device-training.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/run/launch.h"
#include "lib/train/init.h"
#include "lib/train/restore.h"
#include "lib/train/save.h"
#include "lib/train/ties.h"
#include "lib/train/wholes.h"

enum { STEPS = 3, GLOBAL = 4, LENGTH = 11 };

static const struct device_models *how;

struct job {
    struct checkpoint *c;
    struct mesh mesh;
    bool deterministic;
    int zero;
    bool offload;
    enum optimizer_kind optimizer;
    const char *scratch; /* directory */
};

/* What a run has made: numbers, one after another. */
struct made {
    float *x;
    size_t n, cap;
    size_t weights; /* the first are the weights as they were loaded, */
    size_t updated; /* and from here they are as they were updated */
};

/* Adds N floats of the device. */
static int take(struct made *m, const struct parameters *p, const float *x, uint64_t n,
                struct err *err)
{
    m->x = xgrow(m->x, &m->cap, m->n + (size_t)n + 1, sizeof(*m->x));
    m->n += (size_t)n;
    return p->ops->copy_out(p->device, m->x + m->n - n, x, (size_t)n * sizeof(*x), err);
}

/* Adds this rank's sums of gradients. */
static int take_sums(struct made *m, const struct parameters *p, struct err *err)
{
    for (int i = 0; i < p->program->nweights; i++)
        if (p->row[i].count && take(m, p, p->row[i].sum, p->row[i].count, err) < 0)
            return -1;
    return 0;
}

static int take_all(struct made *m, const struct parameters *p, struct err *err)
{
    const bool part = parameters_gathers(p);
    int ret = take(m, p, part ? p->own : p->weight, part ? p->owned : p->n, err);

    for (int k = 0; k < p->slots && ret == 0; k++) {
        m->x = xgrow(m->x, &m->cap, m->n + (size_t)p->owned + 1, sizeof(*m->x));
        for (int i = 0; i < p->program->nweights && ret == 0; i++) {
            uint64_t first, n;

            parameters_kept(p, i, k, &first, &n);
            if (n)
                ret = parameters_take_slot(p, m->x + m->n, i, k, first, n, err);
            m->n += (size_t)n;
        }
    }
    /* Muon uses up gradients that are in memory of the host */
    return ret == 0 && p->optimizer != OPTIMIZER_MUON ? take_sums(m, p, err) : ret;
}

static void add_number(struct made *m, double x)
{
    m->x = xgrow(m->x, &m->cap, m->n + 2, sizeof(*m->x));
    memcpy(m->x + m->n, &x, sizeof(x));
    m->n += 2;
}

/* ---- training ---- */

static void make_batch(int step, struct sample *sample, int32_t (*ids)[LENGTH])
{
    for (int i = 0; i < GLOBAL; i++) {
        for (int k = 0; k < LENGTH; k++)
            ids[i][k] = 3 + (step * 131 + i * 31 + k * k * 7 + k * 11) % 56;
        sample[i] = (struct sample){ .id = ids[i],
                                     .target = ids[i] + 1,
                                     .n = LENGTH - 1 - (size_t)i % 3 };
    }
}

/* All that the trainer reports is all that has been allocated, BEFORE apart. */
static int check_memory(const struct trainer *t, uint64_t before, struct err *err)
{
    struct ledger list = { 0 };
    uint64_t bytes = 0, times, reported;

    how->count(t->ops->name, &bytes, &times);
    trainer_memory(t, &list);
    reported = ledger_sum(&list, LEDGER_DEVICE) + ledger_sum(&list, LEDGER_HOST);
    return bytes - before == reported
               ? 0
               : err_set(err, ERR_INPUT, "%s: %llu bytes are reported of %llu",
                         t->ops->name, (unsigned long long)reported,
                         (unsigned long long)(bytes - before));
}

static int run_steps(struct trainer *t, int first, int end, struct made *m,
                     struct err *err)
{
    int32_t ids[GLOBAL][LENGTH];
    struct sample sample[GLOBAL];

    for (int step = first; step < end; step++) {
        struct trainer_result r;

        make_batch(step, sample, ids);
        if (trainer_step(t, sample, 1e-2 / (step + 1), &r, err) < 0)
            return -1;
        add_number(m, r.loss);
        add_number(m, r.norm);
    }
    return 0;
}

static int open_trainer(struct trainer *t, const struct job *job,
                        const struct backend *ops, struct comm *world, struct err *err)
{
    const struct trainer_options options = {
        .length = LENGTH,
        .micro_batch = 1,
        .global = GLOBAL,
        .order = ORDER_1F1B,
        .deterministic = job->deterministic,
        .zero = job->zero,
        .offload = job->offload,
        .seed = 5,
        .optimizer = { .kind = job->optimizer,
                       .beta1 = 0.9,
                       .beta2 = 0.99,
                       .eps = 1e-8,
                       .momentum = 0.8,
                       .decay = 0.1,
                       .clip = 1 },
    };
    const struct runner_machine machine = { .ops = ops, .threads = 1 };

    return trainer_open(t, job->c, &job->mesh, &machine, world, &options, err);
}

/* The steps, then the last one again from what was saved before it. */
static int run_training(const struct job *job, const struct backend *ops,
                        struct comm *world, struct made *m, struct err *err)
{
    char *path = str_dupf("%s/%s", job->scratch, ops->name);
    struct checkpoint_options options = { 0 };
    struct checkpoint *c = NULL;
    struct saver *s = NULL;
    uint64_t before = 0, times;
    struct trainer t;
    int ret = -1;

    how->count(ops->name, &before, &times);
    if (open_trainer(&t, job, ops, world, err) < 0) {
        free(path);
        return -1;
    }
    if (check_memory(&t, before, err) < 0 || run_steps(&t, 0, STEPS - 1, m, err) < 0 ||
        saver_open(&s, &t, job->c, world, err) < 0 ||
        saver_begin(s, path, "{}", err) < 0 || saver_finish(s, err) < 0 ||
        run_steps(&t, STEPS - 1, STEPS, m, err) < 0 ||
        take_all(m, &t.stage->parameters, err) < 0 ||
        checkpoint_open(&c, path, &options, err) < 0 ||
        restore_state(&t, c, true, err) < 0)
        goto out;
    t.optimizer.t = STEPS - 1;
    if (run_steps(&t, STEPS - 1, STEPS, m, err) == 0)
        ret = take_all(m, &t.stage->parameters, err);
out:
    saver_close(s);
    if (c)
        checkpoint_close(c);
    trainer_close(&t);
    free(path);
    return ret;
}

static int check(const struct made *a, const struct made *b, int rank, struct err *err)
{
    if (a->n != b->n || memcmp(a->x, b->x, a->n * sizeof(*a->x)) != 0)
        return err_set(err, ERR_INPUT, "rank %d: the numbers differ", rank);
    return 0;
}

static int compare(void *arg, struct comm *world, struct err *err)
{
    const struct job *job = arg;
    struct made a = { 0 }, b = { 0 };
    int ret = -1;

    if (how->begin)
        how->begin();
    if (run_training(job, &backend_cpu, world, &a, err) == 0 &&
        run_training(job, how->ops, world, &b, err) == 0)
        ret = check(&a, &b, world->rank, err);
    free(a.x);
    free(b.x);
    return ret;
}

static const struct {
    const char *model, *name;
    int tp, dp, pp;
    bool deterministic, draw;
    enum optimizer_kind optimizer;
    int zero;
    bool offload;
} runs[] = {
    { "llama-groups", "one rank", 1, 1, 1, false, false, OPTIMIZER_ADAMW, 0, false },
    { "llama-groups", "one rank, drawn", 1, 1, 1, false, true, OPTIMIZER_MOMENTUM, 0,
      false },
    { "llama-groups", "tp 2, which sums gradients", 2, 1, 1, false, false,
      OPTIMIZER_ADAMW, 0, false },
    { "llama-groups", "dp 2", 1, 2, 1, false, false, OPTIMIZER_SGD, 0, false },
    { "llama-groups", "dp 2 in a tree", 1, 2, 1, true, false, OPTIMIZER_ADAMW, 0,
      false },
    { "gpt2-hub", "pp 2, which share a tensor", 1, 1, 2, false, false,
      OPTIMIZER_MOMENTUM, 0, false },
    { "mixtral", "tp 2 with experts", 2, 1, 1, false, false, OPTIMIZER_ADAMW, 0,
      false },
    { "llama-groups", "dp 2, which share the state", 1, 2, 1, false, false,
      OPTIMIZER_ADAMW, 1, false },
    { "gpt-oss", "dp 2 with slices, which share the state", 1, 2, 1, false, false,
      OPTIMIZER_MOMENTUM, 1, false },
    { "llama-groups", "dp 2, which share weights, and tp 2", 2, 2, 1, false, false,
      OPTIMIZER_ADAMW, 3, true },
    { "gpt-oss", "dp 2 in a tree, which share weights", 1, 2, 1, true, true,
      OPTIMIZER_SGD, 3, false },
    { "gpt2-hub", "dp 2, which share sums, and pp 2, which share a tensor", 1, 2, 2,
      false, false, OPTIMIZER_MOMENTUM, 2, false },
    { "gpt-oss", "one rank with slices", 1, 1, 1, false, false, OPTIMIZER_ADAMW, 0,
      false },
};

void device_training(const struct device_models *d)
{
    char *models = str_dupf("%s/tests/data/models", getenv("top_srcdir"));

    how = d;
    for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
        char *path = fs_join_dup(models, runs[i].model);
        char scratch[] = "/tmp/device-training-XXXXXX";
        struct checkpoint_options options = { .draw = runs[i].draw };
        const int size[MESH_NAXES] = { [MESH_TP] = runs[i].tp,
                                       [MESH_SP] = 1,
                                       [MESH_EP] = 1,
                                       [MESH_DP] = runs[i].dp,
                                       [MESH_PP] = runs[i].pp };
        struct job job = { .deterministic = runs[i].deterministic,
                           .zero = runs[i].zero,
                           .offload = runs[i].offload,
                           .optimizer = runs[i].optimizer,
                           .scratch = scratch };
        struct err err = { .text = "" };
        int sig, ret = -1;
        char *name;

        if (mkdtemp(scratch) && checkpoint_open(&job.c, path, &options, &err) == 0) {
            if (mesh_set(&job.mesh, size, NULL, &err) == 0)
                ret = launch_ranks(job.mesh.nranks, compare, &job, &sig, &err);
            checkpoint_close(job.c);
        }
        name = str_dupf("training %s on %s has the bits of the CPU", runs[i].model,
                        runs[i].name);
        device_report(ret == 0, err.text, name);
        free(name);
        ret = fs_remove_tree(scratch, &err);
        free(path);
    }
    free(models);
}

/* ---- the store alone ---- */

static float number(uint64_t i, unsigned k)
{
    return (float)((double)((i * 2654435761u + k * 40503u) % 20011) - 10005) * 1e-4f;
}

/* Puts numbers where the engine puts a micro-batch's gradients. */
static int put_gradients(struct gradients *g, unsigned k, struct err *err)
{
    struct parameters *p = g->p;
    int ret = 0;

    for (int i = 0; i < p->program->nweights && ret == 0; i++) {
        size_t n = (size_t)p->row[i].n;
        float *x = xmalloc(n * sizeof(*x) + 1);

        for (size_t j = 0; j < n; j++)
            x[j] = number(j + (size_t)i * 7, k);
        ret = p->ops->copy_in(p->device, g->into[i], x, n * sizeof(*x), err);
        free(x);
    }
    return ret;
}

/* One step of M micro-batches in a tree. */
static int store_step(struct gradients *g, struct optimizer *o, int micro,
                      struct made *m, struct err *err)
{
    double word[SQUARES_WORDS];

    if (gradients_begin(g, err) < 0)
        return -1;
    for (int i = 0; i < micro; i++)
        if (gradients_begin_micro(g, err) < 0 ||
            put_gradients(g, (unsigned)i, err) < 0 ||
            gradients_end_micro(g, i, err) < 0)
            return -1;
    if (gradients_sum(g, err) < 0 || gradients_squares(g, word, err) < 0)
        return -1;
    add_number(m, squares_sum(word));
    return optimizer_step(o, g->p, 1e-2, 3, 8, err);
}

/* OWNER updates its ranges of the weights. */
static int run_store(const struct job *job, const struct backend *ops,
                     struct parameters_owner owner, struct made *m, struct err *err)
{
    const struct program_options options = { .tail = TAIL_NLL, .reverse = true };
    const int coord[MESH_NAXES] = { 0 };
    struct engine_groups groups = { .across = 1 };
    struct comm *self = comm_self_open();
    const struct gradients_replicas replicas = { .sharing = self };
    struct optimizer o = { .options = { .kind = job->optimizer,
                                        .beta1 = 0.9,
                                        .beta2 = 0.99,
                                        .eps = 1e-8,
                                        .momentum = 0.8,
                                        .others = 1,
                                        .scaled = true,
                                        .threshold = 1,
                                        .power = -0.8,
                                        .decay = 0.1,
                                        .clip = 1 } };
    struct program *program = NULL;
    struct device *device = NULL;
    struct parameters p = { 0 };
    struct gradients g = { 0 };
    struct ties ties = { 0 };
    int ret = -1;

    groups.tensor = groups.sequence = groups.pipe = self;
    if (ops->open(&device, 1, 0, err) < 0 ||
        program_build(&program, job->c->model, &job->mesh, coord, &options, err) < 0 ||
        parameters_open(&p, job->c, program, ops, device, job->optimizer, owner, err) <
            0 ||
        ties_find(&ties, (struct parameters *const[]){ &p }, 1, self, 1, err) < 0 ||
        (job->c->drawn && init_parameters(&p, 5, err) < 0) ||
        gradients_open(&g, &p, &groups, replicas, 3, err) < 0 ||
        wholes_open(&o.wholes, &p, self, 1, err) < 0)
        goto out;
    ret = take(m, &p, p.weight, p.n, err);
    m->weights = m->n;
    for (int step = 0; step < 2 && ret == 0; step++)
        ret = store_step(&g, &o, 4, m, err);
    m->updated = m->n;
    if (ret == 0)
        ret = take_all(m, &p, err);
out:
    wholes_close(o.wholes);
    ties_close(&ties);
    gradients_close(&g);
    parameters_close(&p);
    program_free(program);
    if (device)
        ops->close(device);
    self->ops->close(self);
    return ret;
}

/* Each of some owners updates its part of the weights, and all of them together what
 * one does alone, which made ALL. */
static int check_owners(const struct job *job, const struct made *all, struct err *err)
{
    enum { OWNERS = 3 };
    struct made part[OWNERS] = { 0 };
    size_t bad = 0;
    int ret = 0;

    for (int r = 0; r < OWNERS && ret == 0; r++)
        ret = run_store(
            job, how->ops,
            (struct parameters_owner){
                .rank = r, .size = OWNERS, .tree = true, .offloads = job->offload },
            &part[r], err);
    for (size_t i = 0; i < all->weights && ret == 0; i++) {
        float whole = all->x[all->updated + i];
        int updated = 0, left = 0;

        for (int r = 0; r < OWNERS; r++) {
            float x = part[r].x[part[r].updated + i];

            updated += x == whole;
            left += x == all->x[i];
        }
        bad += !updated || updated + left < OWNERS;
    }
    for (int r = 0; r < OWNERS; r++)
        free(part[r].x);
    return bad ? err_set(err, ERR_INPUT, "owners of parts: %zu weights differ", bad)
               : ret;
}

static void try_store(const char *model, const char *path, bool draw,
                      enum optimizer_kind optimizer)
{
    const bool offloads = optimizer_table[optimizer].matrices != MATRICES_NONE;
    const struct parameters_owner all = { .rank = 0, .size = 1 };
    const struct parameters_owner other = { .size = 1, .offloads = offloads };
    const int size[MESH_NAXES] = { 1, 1, 1, 1, 1 };
    struct checkpoint_options options = { .draw = draw };
    struct job job = { .optimizer = optimizer, .offload = offloads };
    struct err err = { .text = "" };
    struct made a = { 0 }, b = { 0 };
    char *name;
    int ret = -1;

    if (how->begin)
        how->begin();
    if (checkpoint_open(&job.c, path, &options, &err) == 0) {
        if (mesh_set(&job.mesh, size, NULL, &err) == 0 &&
            run_store(&job, &backend_cpu, all, &a, &err) == 0 &&
            run_store(&job, how->ops, other, &b, &err) == 0)
            ret = check(&a, &b, 0, &err);
        if (ret == 0)
            ret = check_owners(&job, &a, &err);
        checkpoint_close(job.c);
    }
    name = str_dupf("the parameters of %s%s by %s have the bits of the CPU", model,
                    draw ? ", drawn," : "", optimizer_names[optimizer]);
    device_report(ret == 0, err.text, name);
    free(name);
    free(a.x);
    free(b.x);
}

void device_store(const struct device_models *d)
{
    char *models = str_dupf("%s/tests/data/models", getenv("top_srcdir"));
    char *path = fs_join_dup(models, "llama-groups");

    how = d;
    for (int kind = 0; kind < OPTIMIZER_KINDS; kind++)
        try_store("llama-groups", path, kind == OPTIMIZER_SGD,
                  (enum optimizer_kind)kind);
    free(path);
    free(models);
}
