/* unit-engine - steps of several sequences, and what ranks exchange in a step */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/run/launch.h"
#include "lib/run/replays.h"
#include "lib/run/runner.h"
#include "tests/tap.h"

enum { SEQUENCES = 3, PROMPT = 11, NEW = 30, SOURCE = 6 };

static const size_t lengths[SEQUENCES] = { PROMPT, 1, 7 };

struct job {
    struct checkpoint *c;
    struct mesh mesh;
};

static int open_runner(struct runner *r, const struct job *job, struct comm *world,
                       enum program_tail tail, struct err *err)
{
    struct program_options options = { .tail = tail, .wanted = tail != TAIL_NONE };
    struct engine_limits limits = { .tokens = SEQUENCES * PROMPT,
                                    .wanted = SEQUENCES,
                                    .segments = SEQUENCES,
                                    .sequences = SEQUENCES,
                                    .context = PROMPT + NEW,
                                    .source = SEQUENCES * SOURCE };
    struct runner_machine machine = { .threads = 1 };

    return runner_open(r, job->c, &job->mesh, &machine, world, &options, &limits, err);
}

/* Token AT of text SEQUENCE. */
static int32_t token(size_t sequence, size_t at)
{
    return (int32_t)(3 + (at * 5 + sequence * 7) % 23);
}

/* Tokens of text SEQUENCE before step STEP. */
static size_t before(size_t sequence, size_t step)
{
    return step ? lengths[sequence] + step - 1 : 0;
}

/* ---- segments ---- */

/* The segment of SEQUENCE in step STEP: its prompt, then a token a step. */
static struct segment segment_of(const struct runner *r, size_t sequence, size_t step,
                                 int32_t *ids, int32_t *wanted)
{
    struct segment s = { .input = { ids }, .sequence = sequence };

    s.start = before(sequence, step);
    s.n = before(sequence, step + 1) - s.start;
    for (size_t i = 0; i < s.n; i++)
        ids[i] = token(sequence, s.start + i);
    for (size_t i = s.n; i < PROMPT; i++)
        ids[i] = token(sequence, i);
    *wanted = (int32_t)s.n - 1;
    s.wanted = wanted;
    s.nwanted = 1;
    if (r->program->source && step == 0) /* sources of different lengths */
        segment_source(&s, r->program, ids, SOURCE - sequence);
    return s;
}

/* Logits of all steps, text by text: all texts in each step, or one after another. */
static int run_texts(const struct job *job, struct comm *world, bool together,
                     float **out, size_t *cols, struct err *err)
{
    struct runner r;
    int ret = -1;

    if (open_runner(&r, job, world, TAIL_LOGITS, err) < 0)
        return -1;
    *cols = r.program->value[r.program->output[0].value].whole_cols;
    *out = xcalloc(SEQUENCES * NEW * *cols, sizeof(**out));
    for (size_t k = 0; k < (together ? NEW : SEQUENCES * NEW); k++) {
        size_t step = together ? k : k % NEW, first = together ? 0 : k / NEW;
        size_t n = together ? SEQUENCES : 1, rows;
        int32_t ids[SEQUENCES][PROMPT], wanted[SEQUENCES];
        struct segment s[SEQUENCES];
        const float *x;

        for (size_t i = 0; i < n; i++)
            s[i] = segment_of(&r, first + i, step, ids[i], &wanted[i]);
        if (engine_step(r.engine, s, n, err) < 0 ||
            engine_output(r.engine, 0, &x, &rows, err) < 0)
            goto out;
        for (size_t i = 0; i < n; i++)
            memcpy(*out + ((first + i) * NEW + step) * *cols, x + i * *cols,
                   *cols * sizeof(*x));
    }
    ret = 0;
out:
    runner_close(&r);
    return ret;
}

static int compare_texts(void *arg, struct comm *world, struct err *err)
{
    const struct job *job = arg;
    float *one = NULL, *many = NULL, largest = 0, apart = 0;
    size_t cols, n;
    int ret = -1;

    if (run_texts(job, world, false, &one, &cols, err) < 0 ||
        run_texts(job, world, true, &many, &cols, err) < 0)
        goto out;
    n = SEQUENCES * NEW * cols;
    for (size_t i = 0; i < n; i++) {
        largest = fmaxf(largest, fabsf(one[i]));
        apart = fmaxf(apart, fabsf(one[i] - many[i]));
    }
    ret = largest > 0 && memcmp(one, many, n * sizeof(*one)) == 0
              ? 0
              : err_set(err, ERR_INPUT, "logits of %g are %g apart", (double)largest,
                        (double)apart);
out:
    free(one);
    free(many);
    return ret;
}

/* ---- collectives ---- */

static void add_expected(const struct program *p, size_t tokens,
                         struct comm_tally expected[COMM_NKINDS])
{
    uint64_t most[ROWS_MOST] = { [ROWS_TOKENS] = tokens,
                                 [ROWS_WANTED] = 1,
                                 [ROWS_ONE] = 1,
                                 [ROWS_SOURCE] = SOURCE };

    rows_most(&p->rows, most);
    for (int i = 0; i < p->ninsts; i++) {
        const struct value *y = &p->value[p->inst[i].dst];
        enum op_collective what = op_table[p->inst[i].op].collective;
        struct comm_tally *t =
            &expected[what == COLLECTIVE_ALL_REDUCE ? COMM_ALL_REDUCE
                                                    : COMM_ALL_GATHER];

        if (what == COLLECTIVE_NONE)
            continue;
        t->calls++;
        t->bytes +=
            program_rows(p, y, most) * y->cols * (uint64_t)dtype_bits(y->dtype) / 8;
    }
}

static int count_collectives(void *arg, struct comm *world, struct err *err)
{
    const struct job *job = arg;
    struct comm_tally expected[COMM_NKINDS] = { 0 };
    int32_t ids[PROMPT], last = PROMPT - 1;
    struct segment s = {
        .input = { ids }, .targets = ids, .n = PROMPT, .wanted = &last, .nwanted = 1
    };
    struct runner r;
    int ret = 0;

    if (open_runner(&r, job, world, TAIL_NLL, err) < 0 &&
        open_runner(&r, job, world, TAIL_NONE, err) < 0)
        return -1;
    for (size_t i = 0; i < PROMPT; i++)
        ids[i] = token(0, i);
    if (r.program->source)
        segment_source(&s, r.program, ids, SOURCE);
    ret = engine_step(r.engine, &s, 1, err);
    add_expected(r.program, PROMPT, expected);
    for (int k = 0; k < COMM_NKINDS && ret == 0; k++) {
        const struct comm_tally *t = comm_tally(r.groups.tensor, k);

        if (t->calls != expected[k].calls || t->bytes != expected[k].bytes)
            ret = err_set(err, ERR_INPUT,
                          "collectives of kind %d: %d of %d bytes, not %d of %d", k,
                          (int)t->calls, (int)t->bytes, (int)expected[k].calls,
                          (int)expected[k].bytes);
    }
    runner_close(&r);
    return ret;
}

/* ---- models ---- */

/* Can texts of PROMPT + NEW tokens be made with M? */
static bool makes_texts(const struct model *m)
{
    struct program_options options = { .tail = TAIL_LOGITS, .wanted = true };
    struct err err = { .text = "" };
    struct program *p;
    struct mesh one;
    bool causal;

    mesh_one(&one);
    if (program_build(&p, m, &one, (int[MESH_NAXES]){ 0 }, &options, &err) < 0)
        return false;
    causal = p->causal;
    program_free(p);
    return causal && (!model_context(m) || model_context(m) >= PROMPT + NEW);
}

static void try_model(const char *name, const char *path)
{
    static int turn; /* with SHORT models take their tp in turns */
    struct checkpoint_options options = { 0 };
    struct err err = { .text = "" };
    struct job job = { 0 };
    bool together;
    int sig;

    if (checkpoint_open(&job.c, path, &options, &err) < 0) {
        tap_ok(false, "%s: %s", name, err.text);
        return;
    }
    together = makes_texts(job.c->model);
    turn++;
    for (int tp = 1; tp <= 3; tp++) {
        int size[MESH_NAXES] = { [MESH_TP] = tp };

        if ((tap_short() && tp != 1 + turn % 3) ||
            mesh_set(&job.mesh, size, NULL, &err) < 0 ||
            model_check_mesh(job.c->model, &job.mesh, &err) < 0)
            continue;
        if (!tap_ok(launch_ranks(tp, count_collectives, &job, &sig, &err) == 0,
                    "%s: ranks of tp %d exchange what the program says", name, tp))
            printf("# %s\n", err.text);
        if (tp < 3 && together &&
            !tap_ok(launch_ranks(tp, compare_texts, &job, &sig, &err) == 0,
                    "%s: texts are the same together and alone at tp %d", name, tp))
            printf("# %s\n", err.text);
    }
    checkpoint_close(job.c);
}

/* ---- windows ---- */

enum { CHUNK = 24, CHUNKS = 4 };

/* Steps whose first rows see keys of a block that is not theirs, to a window of 8. */
static int read_chunks(void *arg, struct comm *world, struct err *err)
{
    const struct job *job = arg;
    struct program_options options = { .tail = TAIL_LOGITS, .wanted = true };
    struct engine_limits limits = { .tokens = CHUNK,
                                    .wanted = 1,
                                    .segments = 1,
                                    .sequences = 1,
                                    .context = CHUNK * CHUNKS };
    struct runner_machine machine = { .threads = 1 };
    int32_t ids[CHUNK], wanted = CHUNK - 1;
    struct runner r;
    int ret = 0;

    if (runner_open(&r, job->c, &job->mesh, &machine, world, &options, &limits, err) <
        0)
        return -1;
    for (size_t i = 0; i < CHUNKS && ret == 0; i++) {
        struct segment s = { .input = { ids },
                             .start = i * CHUNK,
                             .n = CHUNK,
                             .wanted = &wanted,
                             .nwanted = 1 };

        for (size_t k = 0; k < CHUNK; k++)
            ids[k] = token(0, s.start + k);
        ret = engine_step(r.engine, &s, 1, err);
    }
    runner_close(&r);
    return ret;
}

static void windows_have_room(const char *models)
{
    struct checkpoint_options options = { 0 };
    struct err err = { .text = "" };
    struct job job = { 0 };
    char *path = fs_join_dup(models, "gemma2");
    int sig;

    mesh_one(&job.mesh);
    if (checkpoint_open(&job.c, path, &options, &err) < 0)
        abort();
    if (!tap_ok(launch_ranks(1, read_chunks, &job, &sig, &err) == 0,
                "a window has blocks for the longest step, wherever it begins"))
        printf("# %s\n", err.text);
    checkpoint_close(job.c);
    free(path);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* ---- steps that a device records ---- */

static int forgotten, stale; /* recordings given up; whether they can be replayed */

static bool is_current(const struct device *d, const struct recording *r)
{
    (void)d;
    (void)r;
    return !stale;
}

static int replay(struct device *d, const struct recording *r, struct err *err)
{
    (void)d;
    (void)r;
    (void)err;
    return 0;
}

static void forget(struct device *d, struct recording *r)
{
    (void)d;
    free(r);
    forgotten++;
}

/* A step of shape SHAPE: 'p' played, 'r' executed and recorded, 'e' executed. */
static char step(struct replays *r, int shape)
{
    struct err err;
    int id;

    shape_begin(replays_shape(r));
    shape_add(replays_shape(r), &shape, sizeof(shape));
    id = replays_find(r);
    if (id > 0)
        return replays_run(r, &err) == 0 ? 'p' : '?';
    replays_see(r);
    if (id < 0)
        return 'e';
    replays_add(r, xcalloc(1, 1), 1);
    return 'r';
}

static void steps_are_recorded(void)
{
    static const struct backend ops = { .is_current = is_current,
                                        .replay = replay,
                                        .forget = forget };
    struct replays r;
    char did[REPLAYS + 8] = "";

    replays_init(&r, &ops, NULL);
    for (int i = 0; i < 4; i++)
        did[i] = step(&r, 1);
    tap_is(did, "erpp", "a step is executed, then recorded, then played");
    stale = 1;
    did[0] = step(&r, 1);
    stale = 0;
    for (int i = 1; i < 4; i++)
        did[i] = step(&r, 1);
    tap_is(did, "erpp", "a stale one is executed again before it is recorded");
    tap_is_int(forgotten, 1, "and its recording is given up");
    for (int i = 2; i <= REPLAYS; i++)
        step(&r, i);
    tap_ok(step(&r, 1) == 'p', "it is known beside other shapes");
    tap_ok(step(&r, REPLAYS + 1) == 'e' && step(&r, 1) == 'p' && step(&r, 2) == 'e',
           "the one that was not used for longest makes room for a new one");
    replays_clear(&r);
    tap_is_int(forgotten, 2, "all recordings are given up at the end");
}

int main(void)
{
    char *models = str_dupf("%s/tests/data/models", getenv("top_srcdir"));
    struct dirent **entry;
    int n = scandir(models, &entry, NULL, by_name);

    steps_are_recorded();
    windows_have_room(models);
    for (int i = 0; i < n; i++) {
        char *path = fs_join_dup(models, entry[i]->d_name);
        char *config = fs_join_dup(path, "config.json");

        if (entry[i]->d_name[0] != '.' && access(config, F_OK) == 0)
            try_model(entry[i]->d_name, path);
        free(config);
        free(path);
        free(entry[i]);
    }
    free(n < 0 ? NULL : entry);
    free(models);
    return tap_done();
}
