/* fusing - what fused operations, or values in bf16, bring on a backend
 *
 * fusing BACKEND MODEL THREADS TEXTS PROMPT WEIGHTS [bf16 [types]]
 *
 * BACKEND any is the best.
 * Runs steps of one token of each of TEXTS texts and steps of a PROMPT, in turns with
 * and without fusing or, if "types" is given, with values in bf16 where the backend
 * takes them and without.  WEIGHTS is stored, int8 or int4; bf16 rounds rows.  Prints
 * the shortest time without over the shortest with it, of the processors and by the
 * clock: of a token, then of the prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/run/runner.h"

enum { WAYS = 2, TURNS = 48, PROMPTS = 8, MOST_TEXTS = 64, HELD = 32, BLOCK = 16 };

struct turn {
    double cpu, clock;
};

static double cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct turn now(void)
{
    return (struct turn){ cpu_seconds(), clock_seconds() };
}

static int number(const char *s)
{
    return (int)strtol(s, NULL, 10);
}

static int open_one(struct runner *r, struct checkpoint *c, char **argv, bool without,
                    struct comm *world, struct err *err)
{
    static struct backend wide; /* the backend, without values in bf16 */
    const bool types = argv[7] && argv[8];
    const size_t texts = (size_t)number(argv[4]), prompt = (size_t)number(argv[5]);
    const struct program_options options = { .tail = TAIL_ARGMAX,
                                             .wanted = true,
                                             .rounded = argv[7] != NULL };
    const struct engine_limits limits = { .tokens = prompt > texts ? prompt : texts,
                                          .wanted = texts + 1,
                                          .context = prompt + HELD + TURNS,
                                          .cache = prompt +
                                                   (texts + 1) * (HELD + TURNS + BLOCK),
                                          .sequences = texts + 1,
                                          .segments = texts + 1 };
    struct runner_machine machine = {
        .ops = backend_find(strcmp(argv[1], "any") != 0 ? argv[1] : NULL, err),
        .threads = number(argv[3]),
        .form = !strcmp(argv[6], "int8")   ? WEIGHTS_INT8
                : !strcmp(argv[6], "int4") ? WEIGHTS_INT4
                                           : WEIGHTS_STORED,
        .unfused = without && !types
    };
    struct mesh mesh;

    if (!machine.ops)
        return -1;
    if (without && types) {
        wide = *machine.ops;
        wide.bf16 = NULL;
        machine.ops = &wide;
    }
    mesh_one(&mesh);
    return runner_open(r, c, &mesh, &machine, world, &options, &limits, err);
}

/* A prompt of its own sequence, N tokens from position 0. */
static int run_prompt(struct runner *r, size_t sequence, const int32_t *ids, size_t n,
                      struct err *err)
{
    int32_t last = (int32_t)n - 1;
    struct segment s = {
        .input = { ids }, .n = n, .sequence = sequence, .wanted = &last, .nwanted = 1
    };

    engine_forget(r->engine, sequence);
    return engine_step(r->engine, &s, 1, err);
}

static int run_tokens(struct runner *r, const int32_t *ids, size_t texts, size_t at,
                      struct err *err)
{
    static const int32_t first = 0;
    struct segment s[MOST_TEXTS];

    for (size_t i = 0; i < texts; i++)
        s[i] = (struct segment){ .input = { ids },
                                 .n = 1,
                                 .sequence = i,
                                 .start = at,
                                 .wanted = &first,
                                 .nwanted = 1 };
    return engine_step(r->engine, s, texts, err);
}

/* The turns' shortest times. */
static void note(struct turn *best, struct turn from)
{
    struct turn to = now();

    to.cpu -= from.cpu;
    to.clock -= from.clock;
    best->cpu = best->cpu > 0 && best->cpu < to.cpu ? best->cpu : to.cpu;
    best->clock = best->clock > 0 && best->clock < to.clock ? best->clock : to.clock;
}

static int measure(struct runner *r, const int32_t *ids, size_t texts, size_t prompt,
                   struct err *err)
{
    struct turn token[WAYS] = { { 0 } }, all[WAYS] = { { 0 } };

    for (int w = 0; w < WAYS; w++)
        for (size_t i = 0; i < texts; i++)
            if (run_prompt(&r[w], i, ids, HELD, err) < 0)
                return -1;
    for (int i = 0; i < WAYS * TURNS; i++) {
        int w = (i + i / WAYS) % WAYS;
        struct turn start = now();

        if (run_tokens(&r[w], ids, texts, (size_t)(HELD + i / WAYS), err) < 0)
            return -1;
        note(&token[w], start);
    }
    for (int i = 0; i < WAYS * PROMPTS; i++) {
        int w = (i + i / WAYS) % WAYS;
        struct turn start = now();

        if (run_prompt(&r[w], texts, ids, prompt, err) < 0)
            return -1;
        note(&all[w], start);
    }
    printf("%.3f %.3f %.3f %.3f\n", token[1].cpu / token[0].cpu,
           token[1].clock / token[0].clock, all[1].cpu / all[0].cpu,
           all[1].clock / all[0].clock);
    return 0;
}

static int run(char **argv, struct err *err)
{
    const size_t texts = (size_t)number(argv[4]), prompt = (size_t)number(argv[5]);
    struct checkpoint_options options = { 0 };
    struct comm *world = comm_self_open();
    int32_t *ids = xcalloc(prompt + HELD, sizeof(*ids));
    struct runner r[WAYS] = { 0 };
    struct checkpoint *c;
    int ret;

    for (size_t i = 0; i < prompt + HELD; i++)
        ids[i] = (int32_t)(i * 7 % 251);
    if (texts > MOST_TEXTS || checkpoint_open(&c, argv[2], &options, err) < 0)
        return -1;
    ret = open_one(&r[0], c, argv, false, world, err);
    if (ret == 0)
        ret = open_one(&r[1], c, argv, true, world, err);
    if (ret == 0)
        ret = measure(r, ids, texts, prompt, err);
    for (int w = 0; w < WAYS; w++)
        if (r[w].ops)
            runner_close(&r[w]);
    checkpoint_close(c);
    free(ids);
    world->ops->close(world);
    return ret;
}

int main(int argc, char **argv)
{
    struct err err = { .text = "" };

    if (argc < 7) {
        fprintf(stderr, "usage: fusing BACKEND MODEL THREADS TEXTS PROMPT WEIGHTS "
                        "[bf16 [types]]\n");
        return 2;
    }
    if (run(argv, &err) < 0) {
        fprintf(stderr, "fusing: %s\n", err.text);
        return 4;
    }
    return 0;
}
