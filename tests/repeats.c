/* repeats - steps that repeat, while texts come and go */
#include "tests/repeats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/base/str.h"
#include "lib/run/launch.h"
#include "lib/run/scheduler.h"

enum { TEXTS = 64, PROMPT = 20, NEW = 100 };

struct text {
    int32_t ids[PROMPT], got[NEW], want[NEW];
    size_t prompt, new, n;
};

struct job {
    struct checkpoint *c;
    struct mesh mesh;
    const struct repeats *how;
    struct text text[TEXTS];
    struct scheduler *scheduler;
};

static int gain(void *arg, const struct scheduler_gain *by, struct err *err)
{
    struct job *job = arg;
    struct text *t = &job->text[by->tag];

    if (by->next < 0)
        return err_set(err, ERR_INPUT, "text %d has no next token", (int)by->tag);
    t->got[t->n++] = by->next;
    if (t->n < t->new)
        scheduler_append(job->scheduler, by->id, &by->next, 1);
    return 0;
}

static void make_texts(struct job *job, uint64_t vocab)
{
    for (size_t i = 0; i < job->how->texts; i++) {
        struct text *t = &job->text[i];
        struct rng r;

        rng_init(&r, 5, i);
        t->prompt = 1 + rng_below(&r, PROMPT);
        t->new = job->how->new / 3 + rng_below(&r, job->how->new / 3 * 2);
        for (size_t k = 0; k < t->prompt; k++)
            t->ids[k] = (int32_t)(1 + rng_below(&r, vocab - 1));
    }
}

/* Runs all texts, each after the one before if ALONE. */
static int run_texts(struct job *job, struct runner *r, bool alone,
                     const struct engine_limits *limits, struct err *err)
{
    const struct scheduler_options how = {
        .grow = true, .no_sharing = true, .limits = limits, .gain = gain, .arg = job
    };
    int ret = scheduler_open(&job->scheduler, r, &how, err);

    for (size_t i = 0; i < job->how->texts && ret == 0 && r->world->rank == 0; i++) {
        struct text *t = &job->text[i];
        const struct scheduler_text text = {
            .ids = t->ids, .n = t->prompt, .most = t->prompt + t->new, .tag = i
        };
        uint64_t id;

        t->n = 0;
        ret = scheduler_submit(job->scheduler, &text, &id, err);
        if (ret == 0 && alone)
            ret = scheduler_run(job->scheduler, err);
    }
    if (ret == 0)
        ret = r->world->rank ? scheduler_follow(job->scheduler, err)
                             : scheduler_run(job->scheduler, err);
    return scheduler_close(job->scheduler, ret, err);
}

static int check(const struct job *job, const struct engine *e, struct err *err)
{
    const struct engine_repeats counts = engine_repeats(e);

    printf("# %llu of %llu steps were replayed\n", (unsigned long long)counts.replayed,
           (unsigned long long)counts.steps);
    for (size_t i = 0; i < job->how->texts; i++)
        if (memcmp(job->text[i].want, job->text[i].got,
                   job->text[i].new * sizeof(*job->text[i].got)) != 0)
            return err_set(err, ERR_INPUT, "text %zu is another one than alone", i);
    if ((double)counts.replayed < job->how->least * (double)counts.steps)
        return err_set(err, ERR_INPUT, "too few replays");
    if (engine_grown(e))
        return err_set(err, ERR_INPUT, "a step has allocated memory");
    return 0;
}

static int run_on(struct job *job, const struct backend *ops, struct comm *world,
                  struct err *err)
{
    const struct program_options options = { .tail = TAIL_ARGMAX, .wanted = true };
    const struct engine_limits limits = { .tokens = 64,
                                          .running = job->how->places,
                                          .wanted = job->how->places,
                                          .segments = job->how->places,
                                          .sequences = job->how->places,
                                          .context = PROMPT + NEW };
    const struct runner_machine machine = { .ops = ops, .threads = 1 };
    bool alone = ops == &backend_cpu;
    double vocab = 0;
    struct runner r;
    int ret;

    if (runner_open(&r, job->c, &job->mesh, &machine, world, &options, &limits, err) <
        0)
        return -1;
    model_number(r.program->model, "vocab", &vocab);
    if (alone)
        make_texts(job, (uint64_t)vocab);
    ret = run_texts(job, &r, alone, &limits, err);
    for (size_t i = 0; i < job->how->texts && alone; i++)
        memcpy(job->text[i].want, job->text[i].got, sizeof(job->text[i].got));
    if (ret == 0 && !alone && world->rank == 0)
        ret = check(job, r.engine, err);
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    return ret;
}

static int run(void *arg, struct comm *world, struct err *err)
{
    struct job *job = arg;

    return run_on(job, &backend_cpu, world, err) < 0
               ? -1
               : run_on(job, job->how->ops, world, err);
}

int repeats_run(const struct repeats *how, const char *name, struct err *err)
{
    const struct checkpoint_options options = { 0 };
    char *path = str_dupf("%s/tests/data/models/%s", getenv("top_srcdir"), name);
    int size[MESH_NAXES] = { 0 }, ret = -1, sig;
    static struct job job;

    job = (struct job){ .how = how };
    if (checkpoint_open(&job.c, path, &options, err) == 0 &&
        mesh_set(&job.mesh, size, NULL, err) == 0)
        ret = launch_ranks(job.mesh.nranks, run, &job, &sig, err);
    checkpoint_close(job.c);
    free(path);
    return ret;
}
