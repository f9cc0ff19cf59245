/* unit-scheduler - texts that are ended between steps make room for others */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/run/launch.h"
#include "lib/run/scheduler.h"
#include "tests/tap.h"

enum { CHUNK = 4, PROMPT = 8, NEW = 6, TEXTS = 2, NEVER = 1000 };

struct job {
    struct checkpoint *c;
    struct mesh mesh;
    int stop; /* the first text is ended after so many steps */
    /* of one run, on each rank */
    struct scheduler_text text[TEXTS];
    int32_t ids[TEXTS][PROMPT + NEW];
    int steps, late; /* tokens that it gained afterwards */
};

static int gain(void *arg, size_t text, int32_t id, struct err *err)
{
    struct job *job = arg;
    struct scheduler_text *t = &job->text[text];

    (void)err;
    if (t->over) {
        job->late++;
        return 0;
    }
    job->ids[text][t->n++] = id;
    t->over = t->n == PROMPT + NEW;
    return 0;
}

static int settled(void *arg, size_t end, struct err *err)
{
    struct job *job = arg;

    (void)end;
    (void)err;
    if (++job->steps >= job->stop)
        job->text[0].over = true;
    return 0;
}

static int run(struct job *job, struct comm *world, struct err *err)
{
    const struct program_options options = { .tail = TAIL_ARGMAX, .wanted = true };
    /* a cache for one text */
    const struct engine_limits limits = { .tokens = CHUNK,
                                          .wanted = 1,
                                          .segments = 1,
                                          .sequences = 1,
                                          .context = PROMPT + NEW };
    const struct runner_machine machine = { .threads = 1 };
    struct runner r;
    struct scheduler s = { .runner = &r,
                           .text = job->text,
                           .ntexts = TEXTS,
                           .grow = true,
                           .limits = &limits,
                           .gain = gain,
                           .settled = settled,
                           .arg = job };
    int ret;

    job->steps = job->late = 0;
    for (size_t i = 0; i < TEXTS; i++) {
        for (size_t k = 0; k < PROMPT; k++)
            job->ids[i][k] = (int32_t)(40 + 3 * i + k);
        job->text[i] = (struct scheduler_text){ .ids = job->ids[i],
                                                .n = PROMPT,
                                                .most = PROMPT + NEW };
    }
    if (runner_open(&r, job->c, &job->mesh, &machine, world, &options, &limits, err) <
        0)
        return -1;
    ret = scheduler_run(&s, err);
    ret = runner_finish(&r, ret, err);
    runner_close(&r);
    return ret;
}

/* The second text is the same whenever the first one ends. */
static int compare(void *arg, struct comm *world, struct err *err)
{
    struct job *job = arg;
    int32_t want[PROMPT + NEW];
    int stop = job->stop;

    job->stop = NEVER;
    if (run(job, world, err) < 0)
        return -1;
    if (job->text[0].n != PROMPT + NEW)
        return err_set(err, ERR_INPUT, "the first text has %zu tokens", job->text[0].n);
    memcpy(want, job->ids[1], sizeof(want));
    job->stop = stop;
    if (run(job, world, err) < 0)
        return -1;
    if (job->text[0].n >= PROMPT + NEW)
        return err_set(err, ERR_INPUT, "the first text was not ended");
    /* its prompt is two steps: with two stages the second is under way after the first
     */
    if (job->late != (stop == 1 && job->mesh.size[MESH_PP] == 2))
        return err_set(err, ERR_INPUT, "%d late tokens", job->late);
    return job->text[1].n == PROMPT + NEW && !memcmp(want, job->ids[1], sizeof(want))
               ? 0
               : err_set(err, ERR_INPUT, "the second text is another one");
}

int main(void)
{
    const struct checkpoint_options options = { 0 };
    char *path = str_dupf("%s/tests/data/chat", getenv("top_srcdir"));
    struct err err = { .text = "" };
    struct job job;
    int sig;

    if (checkpoint_open(&job.c, path, &options, &err) < 0) {
        printf("Bail out! %s\n", err.text);
        return 99;
    }
    for (int stages = 1; stages <= 2; stages++)
        for (job.stop = 1; job.stop <= 4; job.stop += 1 + (job.stop == 2)) {
            mesh_one(&job.mesh);
            job.mesh.size[MESH_PP] = job.mesh.nranks = stages;
            if (!tap_ok(launch_ranks(stages, compare, &job, &sig, &err) == 0,
                        "a text that is ended after %d steps of %d stages leaves its "
                        "room to the next",
                        job.stop, stages))
                printf("# %s\n", err.text);
        }
    checkpoint_close(job.c);
    free(path);
    return tap_done();
}
