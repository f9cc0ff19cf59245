/* unit-device - a backend whose memory none but its kernels and copies may touch
 *
 * Its kernels are the CPU's, on pages that are unreadable before and after each: an
 * engine that reads or writes a value dies.  Every model runs on every axis, and what
 * comes out is what comes out on the CPU, bit for bit. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/cpu/cpu.h"
#include "lib/run/launch.h"
#include "lib/run/runner.h"
#include "tests/tap.h"

/* ---- the backend ---- */

enum { PAGE = 4096, POOL = 1 << 28 };

static char *pool;      /* [POOL] */
static size_t pool_end; /* bytes that have been given out; all at once come back */
static size_t kernels, copies;

static void allow(int what)
{
    if (pool_end && mprotect(pool, pool_end, what) < 0)
        abort();
}

static bool probe(void)
{
    return true;
}

static void *allocate(struct device *d, uint64_t size, const char *what,
                      struct err *err)
{
    char *memory = pool + pool_end;

    (void)d;
    if (size > POOL - PAGE - pool_end) {
        err_set(err, ERR_SYSTEM, "no memory for %s", what);
        return NULL;
    }
    pool_end += (size + PAGE) / PAGE * PAGE;
    allow(PROT_READ | PROT_WRITE);
    memset(memory, 0xff, pool_end - (size_t)(memory - pool)); /* NaN */
    allow(PROT_NONE);
    return memory;
}

static void release(struct device *d, void *memory)
{
    (void)d;
    (void)memory;
}

static int copy(struct device *d, void *to, const void *from, size_t bytes,
                struct err *err)
{
    (void)d;
    (void)err;
    copies++;
    allow(PROT_READ | PROT_WRITE);
    if (bytes)
        memcpy(to, from, bytes);
    allow(PROT_NONE);
    return 0;
}

static int wait(struct device *d, struct err *err)
{
    (void)d;
    (void)err;
    return 0;
}

static int run_kernel(struct device *d, const struct call *c, struct err *err)
{
    int ret;

    kernels++;
    allow(PROT_READ | PROT_WRITE);
    ret = cpu_kernels[c->inst->op](d, c, err);
    allow(PROT_NONE);
    return ret;
}

static kernel *all_kernels[OP_COUNT];

static const struct backend guarded = {
    .name = "guarded",
    .host_memory = false,
    .probe = probe,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = allocate,
    .release = release,
    .copy_in = copy,
    .copy_out = copy,
    .copy = copy,
    .wait = wait,
    .kernel = all_kernels,
};

/* ---- one model on one mesh ---- */

enum { PROMPT = 9, CONTEXT = PROMPT + 3, SOURCE = 5 };

struct job {
    struct checkpoint *c;
    struct mesh mesh;
    int across;
    enum program_tail tail;
    int *refused; /* shared: the ranks cannot run this */
};

struct outputs {
    float *x;
    size_t n, cap;
};

static int take(struct runner *r, struct outputs *out, struct err *err)
{
    for (int i = 0; i < r->program->noutputs; i++) {
        const struct program_output *o = &r->program->output[i];
        const float *x;
        size_t rows, n;

        if (o->stage != r->stage)
            continue;
        if (engine_output(r->engine, i, &x, &rows, err) < 0)
            return -1;
        n = rows * r->program->value[o->value].whole_cols;
        out->x = xgrow(out->x, &out->cap, out->n + n + 1, sizeof(*x));
        memcpy(out->x + out->n, x, n * sizeof(*x));
        out->n += n;
    }
    return 0;
}

/* A prompt, then tokens one by one where the model is causal. */
static int run_model(const struct job *job, const struct backend *ops,
                     struct comm *world, struct outputs *out, struct err *err)
{
    bool taken = job->tail != TAIL_NONE;
    struct program_options options = { .tail = job->tail, .wanted = taken };
    struct engine_limits limits = {
        .tokens = PROMPT, .wanted = 2, .context = CONTEXT, .source = SOURCE
    };
    struct runner_machine machine = { .ops = ops, .threads = 1, .across = job->across };
    int32_t ids[CONTEXT + 1], wanted[2] = { PROMPT - 1, 0 }, first = 0;
    struct draw draw[2] = { { .temperature = 1, .top_p = 0.9, .seed = 3 },
                            { .temperature = 2, .top_p = 1, .top_k = 5 } };
    struct runner r;
    int ret = -1;

    for (int i = 0; i <= CONTEXT; i++)
        ids[i] = 3 + i * 5 % 11;
    if (runner_open(&r, job->c, &job->mesh, &machine, world, &options, &limits, err) <
        0) {
        *job->refused |= err->kind == ERR_NO || err->kind == ERR_INPUT;
        return -1;
    }
    for (size_t at = 0; at < CONTEXT; at += at ? 1 : PROMPT) {
        struct segment s = { .ids = ids + at,
                             .targets = ids + at + 1,
                             .n = at ? 1 : PROMPT,
                             .source = at || !r.program->source ? NULL : ids,
                             .nsource = at || !r.program->source ? 0 : SOURCE,
                             .start = at,
                             .wanted = at ? &first : wanted,
                             .nwanted = !taken ? 0
                                        : at   ? 1
                                               : 2,
                             .draw = draw };

        if (at && !r.program->causal)
            break;
        if (engine_step(r.engine, &s, 1, err) < 0 || take(&r, out, err) < 0)
            goto out;
    }
    ret = 0;
out:
    runner_close(&r);
    return ret;
}

static int compare(void *arg, struct comm *world, struct err *err)
{
    const struct job *job = arg;
    struct outputs a = { 0 }, b = { 0 };
    int ret = -1;

    if (run_model(job, &backend_cpu, world, &a, err) < 0 ||
        run_model(job, &guarded, world, &b, err) < 0)
        goto out;
    if (!kernels || !copies)
        err_set(err, ERR_INPUT, "rank %d: nothing was run", world->rank);
    else if (a.n != b.n || (a.n && memcmp(a.x, b.x, a.n * sizeof(*a.x)) != 0))
        err_set(err, ERR_INPUT, "rank %d: the outputs differ", world->rank);
    else
        ret = 0;
out:
    free(a.x);
    free(b.x);
    return ret;
}

static const struct {
    const char *name;
    int tp, sp, pp, across;
    enum program_tail tail;
} layouts[] = {
    { "one rank", 1, 1, 1, 0, TAIL_NONE },
    { "tp 2, sampled", 2, 1, 1, 0, TAIL_SAMPLE },
    { "tp 3, scored", 3, 1, 1, 0, TAIL_NLL },
    { "pp 2", 1, 1, 2, 0, TAIL_ARGMAX },
    { "sp 2 by heads", 1, 2, 1, 2, TAIL_NONE },
    { "sp 2 in a ring", 1, 2, 1, 1, TAIL_ARGMAX },
};

static void try_model(const char *name, const char *path, int *refused)
{
    struct checkpoint_options options = { 0 };
    struct err err = { .text = "" };
    struct checkpoint *c;

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
                           .refused = refused };
        int sig, ret;

        *refused = 0;
        pool_end = 0;
        err = (struct err){ .text = "" };
        if (mesh_set(&job.mesh, size, NULL, &err) < 0 ||
            model_check_mesh(c->model, &job.mesh, &err) < 0)
            continue;
        ret = launch_ranks(job.mesh.nranks, compare, &job, &sig, &err);
        if (ret < 0 && *refused)
            continue;
        if (!tap_ok(ret == 0, "%s on %s: no value is touched but by kernels", name,
                    layouts[i].name))
            printf("# %s\n", err.text);
    }
    checkpoint_close(c);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int main(void)
{
    char *models = str_dupf("%s/tests/data/models", getenv("top_srcdir"));
    struct dirent **entry;
    int n = scandir(models, &entry, NULL, by_name);
    int *refused =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    pool =
        mmap(NULL, POOL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int op = 0; op < OP_COUNT; op++)
        all_kernels[op] = cpu_kernels[op] ? run_kernel : NULL;
    for (int i = 0; i < n; i++) {
        char *path = fs_join_dup(models, entry[i]->d_name);
        char *config = fs_join_dup(path, "config.json");

        if (entry[i]->d_name[0] != '.' && fs_exists(config))
            try_model(entry[i]->d_name, path, refused);
        free(config);
        free(path);
        free(entry[i]);
    }
    free(n < 0 ? NULL : entry);
    free(models);
    return tap_done();
}
