/* device-models - every model on two backends (device-models.h) */
#define _GNU_SOURCE
#include "tests/device-models.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/run/launch.h"
#include "lib/run/runner.h"
#include "tests/tap.h"

enum { PAGE = 4096 };

static const struct device_models *how;

/* ---- one model on one mesh ---- */

enum { PROMPT = 9, CONTEXT = PROMPT + 3, SOURCE = 5 };

struct job {
    struct checkpoint *c;
    struct mesh mesh;
    int across;
    enum program_tail tail;
    enum weights_form form;
    enum format kept;
    bool unfused; /* also without fusing */
    bool held;    /* some values are bf16 */
    int *refused; /* shared: the ranks cannot run this */
};

struct outputs {
    float *x;
    size_t n, cap;
    bool narrow; /* all weights of products have at most 16 bits */
};

static int take(struct runner *r, struct outputs *out, struct err *err)
{
    for (int i = 0; i < r->program->noutputs; i++) {
        const struct program_output *o = &r->program->output[i];
        bool ids = r->program->value[o->value].dtype == DTYPE_I32;
        const int32_t *id = NULL;
        const float *x = NULL;
        size_t rows, n;

        if (o->stage != r->stage)
            continue;
        if ((ids ? engine_ids(r->engine, i, &id, &rows, err)
                 : engine_output(r->engine, i, &x, &rows, err)) < 0)
            return -1;
        n = rows * r->program->value[o->value].whole_cols;
        out->x = xgrow(out->x, &out->cap, out->n + n + 1, sizeof(*x));
        for (size_t k = 0; k < n; k++)
            out->x[out->n + k] = ids ? (float)id[k] : x[k];
        out->n += n;
    }
    return 0;
}

static bool is_narrow(const struct runner *r)
{
    bool narrow = true;

    for (int i = 0; i < r->program->ninsts; i++) {
        const struct inst *inst = &r->program->inst[i];

        if (inst->op == OP_LINEAR || inst->op == OP_MATMUL ||
            inst->op == OP_HEAD_LINEAR || inst->op == OP_HEAD_MATMUL)
            narrow =
                narrow && format_bits(r->weights.matrix[inst->weight].format) <= 16;
    }
    return narrow;
}

static bool holds_bf16(const struct runner *r)
{
    for (int i = 0; i < r->program->nvalues; i++)
        if (r->program->value[i].dtype == DTYPE_BF16)
            return true;
    return false;
}

/* What is reported is all that has been allocated, BEFORE apart; sets *times. */
static int check_memory(const struct runner *r, uint64_t before, uint64_t *times,
                        struct err *err)
{
    struct ledger list = { 0 };
    uint64_t bytes = 0, reported;

    if (!how->count || !(how->counts_host || !r->ops->host_memory))
        return 0;
    how->count(r->ops->name, &bytes, times);
    runner_memory(r, &list);
    reported = ledger_sum(&list, LEDGER_DEVICE) +
               (how->counts_host ? ledger_sum(&list, LEDGER_HOST) : 0);
    return bytes - before == reported
               ? 0
               : err_set(err, ERR_INPUT, "%s: %llu bytes are reported of %llu",
                         r->ops->name, (unsigned long long)reported,
                         (unsigned long long)(bytes - before));
}

/* No step has allocated; there were TIMES allocations before the first. */
static int check_steps(const struct runner *r, uint64_t times, struct err *err)
{
    uint64_t bytes, now = times;

    if (how->count)
        how->count(r->ops->name, &bytes, &now);
    return engine_grown(r->engine) || now != times
               ? err_set(err, ERR_INPUT, "%s: steps have allocated: %llu, %llu",
                         r->ops->name, (unsigned long long)engine_grown(r->engine),
                         (unsigned long long)(now - times))
               : 0;
}

/* A prompt, then tokens one by one where the model is causal. */
static int run_model(const struct job *job, const struct backend *ops, bool unfused,
                     struct comm *world, struct outputs *out, struct err *err)
{
    bool taken = job->tail != TAIL_NONE;
    struct program_options options = { .tail = job->tail,
                                       .wanted = taken,
                                       .rounded = how->beside != NULL };
    struct engine_limits limits = {
        .tokens = PROMPT, .wanted = 2, .context = CONTEXT, .source = SOURCE
    };
    struct runner_machine machine = { .ops = ops,
                                      .threads = 1,
                                      .across = job->across,
                                      .form = job->form,
                                      .kept = job->kept,
                                      .unfused = unfused };
    int32_t ids[CONTEXT + 1], wanted[2] = { PROMPT - 1, 0 }, first = 0;
    struct draw draw[2] = { { .temperature = 1, .top_p = 0.9, .seed = 3 },
                            { .temperature = 2, .top_p = 1, .top_k = 5 } };
    uint64_t before = 0, times = 0;
    struct runner r;
    int ret = -1;

    if (how->count)
        how->count(ops->name, &before, &times);
    for (int i = 0; i <= CONTEXT; i++)
        ids[i] = 3 + i * 5 % 11;
    if (runner_open(&r, job->c, &job->mesh, &machine, world, &options, &limits, err) <
        0) {
        *job->refused |= err->kind == ERR_NO || err->kind == ERR_INPUT;
        return -1;
    }
    if (check_memory(&r, before, &times, err) < 0)
        goto out;
    if (job->held && holds_bf16(&r) != (ops == how->ops)) {
        err_set(err, ERR_INPUT, "%s: values in bf16 are %s", ops->name,
                ops == how->ops ? "missing" : "there");
        goto out;
    }
    out->narrow = is_narrow(&r);
    for (size_t at = 0; at < CONTEXT; at += at ? 1 : PROMPT) {
        struct segment s = { .input = { ids + at },
                             .targets = ids + at + 1,
                             .n = at ? 1 : PROMPT,
                             .start = at,
                             .wanted = at ? &first : wanted,
                             .nwanted = !taken ? 0
                                        : at   ? 1
                                               : 2,
                             .draw = draw };

        if (at && !r.program->causal)
            break;
        if (!at && r.program->source)
            segment_source(&s, r.program, ids, SOURCE);
        if (engine_step(r.engine, &s, 1, err) < 0 || take(&r, out, err) < 0)
            goto out;
    }
    ret = check_steps(&r, times, err);
out:
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    return ret;
}

/* The results B are those of A, to BOUND. */
static int check(const struct outputs *a, const struct outputs *b, double bound,
                 const char *what, int rank, struct err *err)
{
    double largest = 0, apart = 0;

    for (size_t i = 0; i < a->n; i++) {
        double d = fabs((double)a->x[i] - (double)b->x[i]);

        largest = fabs((double)a->x[i]) > largest ? fabs((double)a->x[i]) : largest;
        apart = d > apart || d != d ? d : apart;
    }
    if (apart <= bound * largest)
        return 0;
    return err_set(err, ERR_INPUT, "rank %d%s: the outputs differ by %.3g of %.3g",
                   rank, what, apart, largest);
}

static int compare(void *arg, struct comm *world, struct err *err)
{
    const struct job *job = arg;
    struct outputs a = { 0 }, b = { 0 }, c = { 0 };
    int ret = -1;

    if (run_model(job, how->beside ? how->beside : &backend_cpu, false, world, &a,
                  err) < 0 ||
        run_model(job, how->ops, false, world, &b, err) < 0 ||
        (job->unfused && run_model(job, how->ops, true, world, &c, err) < 0))
        goto out;
    if (!how->has_run())
        err_set(err, ERR_INPUT, "rank %d: nothing was run", world->rank);
    else if (a.n != b.n)
        err_set(err, ERR_INPUT, "rank %d: %zu outputs, and %zu", world->rank, a.n, b.n);
    else
        ret = check(&a, &b, b.narrow ? how->narrow : how->bound, "", world->rank, err);
    if (ret == 0 && job->unfused)
        ret = check(&c, &b, how->fused, ", beside unfused", world->rank, err);
out:
    free(a.x);
    free(b.x);
    free(c.x);
    return ret;
}

static const struct {
    const char *name;
    int tp, sp, pp, across;
    enum program_tail tail;
    enum weights_form form;
    enum format kept;
} layouts[] = {
    { "one rank", 1, 1, 1, 0, TAIL_NONE, WEIGHTS_STORED, FORMAT_F32 },
    { "tp 2, sampled", 2, 1, 1, 0, TAIL_SAMPLE, WEIGHTS_STORED, FORMAT_F32 },
    { "tp 3, scored", 3, 1, 1, 0, TAIL_NLL, WEIGHTS_STORED, FORMAT_F32 },
    { "pp 2", 1, 1, 2, 0, TAIL_ARGMAX, WEIGHTS_STORED, FORMAT_F32 },
    { "sp 2 by heads", 1, 2, 1, 2, TAIL_NONE, WEIGHTS_STORED, FORMAT_F32 },
    { "sp 2 in a ring", 1, 2, 1, 1, TAIL_ARGMAX, WEIGHTS_STORED, FORMAT_F32 },
    { "tp 2 in int8, cached in bf16", 2, 1, 1, 0, TAIL_NONE, WEIGHTS_INT8,
      FORMAT_BF16 },
    { "one rank in int4, cached in int8", 1, 1, 1, 0, TAIL_NLL, WEIGHTS_INT4,
      FORMAT_CACHE_INT8 },
};

/* Is NAME one of LIST, which is NULL if all are? */
static bool is_of(const char *name, const char *const *list)
{
    for (size_t i = 0; list && list[i]; i++)
        if (!strcmp(list[i], name))
            return true;
    return !list;
}

static void try_model(const char *name, const char *path, int *refused)
{
    /* Half of the models that run on one rank alone do, with SHORT a third, and the
     * others take layouts in turns: the kernels are the same. */
    static size_t turn, alone;
    struct checkpoint_options options = { 0 };
    struct err err = { .text = "" };
    struct checkpoint *c;

    if (!is_of(name, how->some) && alone++ % tap_one_of(2, 3))
        return;
    if (checkpoint_open(&c, path, &options, &err) < 0) {
        tap_ok(false, "%s: %s", name, err.text);
        return;
    }
    for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
        int size[MESH_NAXES] = { [MESH_TP] = layouts[i].tp,
                                 [MESH_SP] = layouts[i].sp,
                                 [MESH_PP] = layouts[i].pp };
        struct job job = { .c = c,
                           .across = layouts[i].across,
                           .tail = layouts[i].tail,
                           .form = layouts[i].form,
                           .kept = layouts[i].kept,
                           .unfused = how->unfused && is_of(name, how->unfused_of),
                           .held = layouts[i].form == WEIGHTS_STORED &&
                                   layouts[i].pp == 1 && how->held &&
                                   is_of(name, how->held),
                           .refused = refused };
        int sig, ret;

        *refused = 0;
        if (how->begin)
            how->begin();
        err = (struct err){ .text = "" };
        if ((i && (!is_of(name, how->some) || (i + turn) % tap_one_of(2, 4))) ||
            (layouts[i].form != WEIGHTS_STORED && !how->coded))
            continue;
        if (mesh_set(&job.mesh, size, NULL, &err) < 0 ||
            (how->alone && job.mesh.nranks > 1) ||
            model_check_mesh(c->model, &job.mesh, &err) < 0)
            continue;
        ret = launch_ranks(job.mesh.nranks, compare, &job, &sig, &err);
        if (ret < 0 && *refused)
            continue;
        if (!tap_ok(ret == 0, "%s on %s: %s", name, layouts[i].name, how->claim))
            printf("# %s\n", err.text);
    }
    turn++;
    checkpoint_close(c);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

void device_report(bool passed, const char *why, const char *name)
{
    if (!tap_ok(passed, "%s", name))
        printf("# %s\n", why);
}

void device_models_try(const struct device_models *d)
{
    char *models = str_dupf("%s/tests/data/models", getenv("top_srcdir"));
    struct dirent **entry;
    int n = scandir(models, &entry, NULL, by_name);
    int *refused =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    how = d;
    for (int i = 0; i < n; i++) {
        char *path = fs_join_dup(models, entry[i]->d_name);
        char *config = fs_join_dup(path, "config.json");

        if (entry[i]->d_name[0] != '.' && access(config, F_OK) == 0 &&
            is_of(entry[i]->d_name, d->only))
            try_model(entry[i]->d_name, path, refused);
        free(config);
        free(path);
        free(entry[i]);
    }
    free(n < 0 ? NULL : entry);
    free(models);
    munmap(refused, PAGE);
}

int device_models(const struct device_models *d)
{
    device_models_try(d);
    return tap_done();
}

int device_done(void)
{
    return tap_done();
}
