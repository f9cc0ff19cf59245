/* device-gradients - steps of training beside the CPU's (device-training.h) */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/run/launch.h"
#include "lib/train/trainer.h"
#include "tests/device-training.h"
#include "tests/tap.h"

enum { STEPS = 2, GLOBAL = 2, LENGTH = 21, MOST = 80, DOCUMENTS = 2 };

static const struct device_models *how;

struct job {
    struct checkpoint *c;
    struct mesh mesh;
    const struct device_gradients *g;
    int *refused;
    char why[256];
};

/* Numbers of the steps, then the sums of gradients, weight after weight. */
struct made {
    double number[2 * STEPS];
    float *x;
    size_t n;
    size_t *end; /* of each weight's */
    int weights;
};

static void make_batch(int step, int length, struct sample *sample,
                       int32_t (*ids)[MOST], size_t *start)
{
    start[0] = 0;
    start[1] = (size_t)length * 2 / 5; /* where the second document begins */
    for (int i = 0; i < GLOBAL; i++) {
        for (int k = 0; k < length; k++)
            ids[i][k] = 3 + (step * 131 + i * 31 + k * k * 7 + k * 11) % 56;
        sample[i] = (struct sample){ .id = ids[i],
                                     .target = ids[i] + 1,
                                     .n = (size_t)(length - 1 - i % 3),
                                     .start = start,
                                     .documents = i % 2 ? DOCUMENTS : 0 };
    }
}

static int take_sums(struct made *m, const struct parameters *p, struct err *err)
{
    int ret = 0;

    m->weights = p->program->nweights;
    m->end = xcalloc((size_t)m->weights + 1, sizeof(*m->end));
    m->x = xmalloc((size_t)p->n * sizeof(*m->x) + 1);
    for (int i = 0; i < m->weights && ret == 0; i++) {
        const struct parameter *row = &p->row[i];

        if (row->count)
            ret = p->ops->copy_out(p->device, m->x + m->n, row->sum,
                                   (size_t)row->count * sizeof(*m->x), err);
        m->n += (size_t)row->count;
        m->end[i] = m->n;
    }
    return ret;
}

/* All that the trainer reports is all that GPUs have given, BEFORE apart. */
static int check_memory(const struct trainer *t, uint64_t before, uint64_t *times,
                        struct err *err)
{
    struct ledger list = { 0 };
    uint64_t bytes = 0, reported;

    if (t->ops->host_memory || !how->count)
        return 0;
    how->count(t->ops->name, &bytes, times);
    trainer_memory(t, &list);
    reported = ledger_sum(&list, LEDGER_DEVICE);
    return bytes - before == reported
               ? 0
               : err_set(err, ERR_INPUT, "%llu bytes are reported of %llu",
                         (unsigned long long)reported,
                         (unsigned long long)(bytes - before));
}

static int check_steps(const struct trainer *t, uint64_t times, struct err *err)
{
    uint64_t bytes, now = times;

    if (!t->ops->host_memory && how->count)
        how->count(t->ops->name, &bytes, &now);
    return now == times ? 0 : err_set(err, ERR_INPUT, "steps have allocated");
}

static int run(const struct job *job, const struct backend *ops, struct comm *world,
               struct made *m, struct err *err)
{
    const struct device_gradients *g = job->g;
    const int length = g->length ? g->length : LENGTH;
    const struct trainer_options options = {
        .length = (size_t)length,
        .micro_batch = g->micro ? g->micro : 1,
        .global = GLOBAL,
        .order = ORDER_1F1B,
        .recompute = g->recompute,
        .dropout = g->dropout,
        .zero = g->zero,
        .seed = 5,
        .compute = g->compute ? g->compute : FORMAT_F32,
        .terms = { .balance = g->balance,
                   .router_z = g->balance / 10,
                   .smooth = g->smooth },
        .optimizer = { .kind = OPTIMIZER_ADAMW,
                       .beta1 = 0.9,
                       .beta2 = 0.99,
                       .eps = 1e-8,
                       .decay = 0.1 },
    };
    const struct runner_machine machine = { .ops = ops,
                                            .threads = 1,
                                            .across = g->across };
    int32_t ids[GLOBAL][MOST];
    struct sample sample[GLOBAL];
    size_t start[DOCUMENTS];
    uint64_t before = 0, times = 0;
    struct trainer t;
    int ret = 0;

    if (how->count)
        how->count(ops->name, &before, &times);
    if (trainer_open(&t, job->c, &job->mesh, &machine, world, &options, err) < 0) {
        *job->refused |= err->kind == ERR_NO || err->kind == ERR_INPUT;
        return -1;
    }
    make_batch(0, length, sample, ids, start);
    ret = trainer_make_room(&t, sample, GLOBAL, err);
    if (ret == 0)
        ret = check_memory(&t, before, &times, err);
    for (int step = 0; step < STEPS && ret == 0; step++) {
        struct trainer_result r;

        make_batch(step, length, sample, ids, start);
        ret = trainer_step(&t, sample, 1e-4, &r, err);
        m->number[2 * step] = r.loss;
        m->number[2 * step + 1] = r.norm;
    }
    if (ret == 0)
        ret = check_steps(&t, times, err);
    if (ret == 0)
        ret = take_sums(m, &t.stage->parameters, err);
    trainer_close(&t);
    return ret;
}

/* Each weight's gradients to BOUND of its largest, or of FLOOR of the largest of all;
 * where products are rounded, the root of the squares of all of them. */
static int check(const struct made *a, const struct made *b, bool rounded, double bound,
                 double floor, int rank, struct err *err)
{
    double all = 0;
    size_t at = 0;

    if (a->n != b->n)
        return err_set(err, ERR_INPUT, "rank %d: other gradients", rank);
    for (int i = 0; i < 2 * STEPS; i++)
        if (!(fabs(a->number[i] - b->number[i]) <= bound * fabs(a->number[i])))
            return err_set(err, ERR_INPUT, "rank %d: step %d: %s %.9g, not %.9g", rank,
                           i / 2, i % 2 ? "norm" : "loss", b->number[i], a->number[i]);
    for (size_t i = 0; i < a->n; i++)
        all = fmax(all, fabs((double)a->x[i]));
    for (int w = 0; w < a->weights; w++) {
        double largest = floor * all, apart = 0, squares = 0, of_apart = 0;

        for (; at < a->end[w]; at++) {
            double d = fabs((double)a->x[at] - (double)b->x[at]);

            largest = fmax(largest, fabs((double)a->x[at]));
            apart = d > apart || d != d ? d : apart;
            squares += (double)a->x[at] * (double)a->x[at];
            of_apart += d * d;
        }
        if (rounded) {
            largest = fmax(largest, sqrt(squares));
            apart = sqrt(of_apart);
        }
        if (!(apart <= bound * largest))
            return err_set(err, ERR_INPUT,
                           "rank %d: weight %d: gradients differ by %.3g of %.3g", rank,
                           w, apart, largest);
    }
    return 0;
}

static int compare(void *arg, struct comm *world, struct err *err)
{
    const struct job *job = arg;
    struct made a = { .n = 0 }, b = { .n = 0 };
    int ret = -1;

    if (how->begin)
        how->begin();
    if (run(job, &backend_cpu, world, &a, err) == 0 &&
        run(job, how->ops, world, &b, err) == 0)
        ret = how->has_run()
                  ? check(&a, &b, job->g->compute != 0,
                          job->g->bound * (how->bound > 0 ? how->bound : 1),
                          job->g->floor > 0 ? job->g->floor : 1e-3, world->rank, err)
                  : err_set(err, ERR_INPUT, "nothing was run");
    free(a.x);
    free(a.end);
    free(b.x);
    free(b.end);
    return ret;
}

void device_gradients(const struct device_models *d, const struct device_gradients *g,
                      size_t n)
{
    char *models = str_dupf("%s/tests/data/models", getenv("top_srcdir"));

    how = d;
    for (size_t i = 0; i < n; i++, g++) {
        char *path = fs_join_dup(models, g->model);
        struct checkpoint_options options = { 0 };
        const int size[MESH_NAXES] = { [MESH_TP] = g->tp ? g->tp : 1,
                                       [MESH_SP] = g->sp ? g->sp : 1,
                                       [MESH_EP] = g->ep ? g->ep : 1,
                                       [MESH_DP] = g->dp ? g->dp : 1,
                                       [MESH_PP] = g->pp ? g->pp : 1 };
        int refused = 0, sig, ret = -1;
        struct job job = { .g = g, .refused = &refused };
        struct err err = { .text = "" };
        char *name;

        if (how->alone && size[MESH_TP] * size[MESH_DP] * size[MESH_PP] *
                                  size[MESH_SP] * size[MESH_EP] >
                              1) {
            free(path);
            continue;
        }
        if (checkpoint_open(&job.c, path, &options, &err) == 0) {
            if (mesh_set(&job.mesh, size, NULL, &err) == 0)
                ret = launch_ranks(job.mesh.nranks, compare, &job, &sig, &err);
            checkpoint_close(job.c);
        }
        name = str_dupf("%s: gradients%s%s are the CPU's", g->model,
                        *g->name ? " on " : "", g->name);
        device_report(ret == 0, err.text, name);
        free(name);
        free(path);
    }
    free(models);
}
