/* unit-train - steps of training against a plain loop of PyTorch
 *
 * oracle/make-training.py says what data/training.tsv and data/adamw.tsv are.  Every
 * layout has the loop's losses and norms, and in the end its weights; a pipeline's
 * order and the number of threads change no bit. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/base/str.h"
#include "lib/model/option.h"
#include "lib/run/launch.h"
#include "lib/train/events.h"
#include "lib/train/schedule.h"
#include "lib/train/codes8.h"
#include "lib/train/trainer.h"
#include "tests/tap.h"

enum { STEPS = 6, GLOBAL = 12, MOST = 16, SUMS = 4, RANKS = 16, SHARED = 1 << 22 };

static double sign(uint64_t i, unsigned k)
{
    uint32_t h = (uint32_t)(i * 0x9E3779B1u + k * 0x85EBCA77u);

    h ^= h >> 15;
    h *= 0x2C1B3C6Du;
    return h >> 31 ? -1 : 1;
}

/* ---- the optimizer by itself ---- */

static struct device *device;

/* Runs OP of arrays. */
static void run(enum array_op op, const struct array_call *c)
{
    struct err err;

    if (backend_cpu.array[op](device, c, &err) < 0)
        abort();
}

struct state {
    float p, g, m, v;
};

static void try_adamw(const char *file)
{
    enum { N = 200 };
    static struct state s[4][N];
    const struct optimizer_options a = {
        .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.01
    };
    FILE *f = fopen(file, "r");
    size_t n[4] = { 0 }, off = 0, moments = 0, far = 0;
    struct state row;
    int step;

    while (f && fscanf(f, "%d %a %a %a %a", &step, &row.p, &row.g, &row.m, &row.v) == 5)
        s[step][n[step]++] = row;
    if (f)
        fclose(f);
    tap_ok(n[0] == N && n[3] == N, "the states of PyTorch's AdamW are there");
    for (uint64_t t = 1; t < 4; t++)
        for (size_t i = 0; i < N; i++) {
            struct state now = s[t - 1][i], *want = &s[t][i];

            struct array_call c = {
                .n = 1, .y = &now.p, .x = &want->g, .slot = { &now.m, &now.v }
            };

            optimizer_table[a.kind].set(&c.by, &a, 1e-3, t, a.decay);
            c.by.factor = 1;
            run(ARRAY_ADAMW, &c);
            moments += now.m != want->m || now.v != want->v;
            off += now.p != want->p;
            far += fabsf(now.p - want->p) > fabsf(want->p) * 2e-7f;
        }
    tap_ok(moments == 0, "AdamW has PyTorch's moments to the bit");
    if (!tap_ok(off <= N / 100 && !far,
                "and its weights, but where its root is rounded otherwise"))
        printf("# %zu of %d differ, %zu by more\n", off, 3 * N, far);
}

/* Rounds N copies of X, of which number K has place FIRST + K, to Y. */
static void round_all(uint16_t *y, const float *x, uint64_t n, uint64_t first,
                      uint32_t step)
{
    const struct rounding r = { .n = n,
                                .y = y,
                                .x = x,
                                .stream = 3,
                                .step = step,
                                .key = 77,
                                .first = first,
                                .cols = n,
                                .stride = n };
    struct err err;

    if (backend_cpu.round(device, &r, &err) < 0)
        abort();
}

/* Stochastic rounding: a share of 0x5000 / 0x10000 goes up. */
static void try_rounding(void)
{
    enum { N = 40000, UP = 0x5000 };
    static float x[N];
    static uint16_t y[N], part[N];
    const uint32_t bits = 0xc0490000u + UP;
    uint32_t word[4] = { 5, 0, 3, 9 };
    double up = 0, expected = (double)UP / 0x10000;
    struct rounding one = { .stream = 3, .step = 9, .key = 77, .cols = 1 };
    uint32_t other[4];
    struct rounding cut;
    struct err err;
    bool near = true;

    for (int i = 0; i < N; i++)
        memcpy(&x[i], &bits, sizeof(bits));
    round_all(y, x, N, 1000, 9);
    for (int i = 0; i < N; i++) {
        up += y[i] == 0xc04a;
        near &= y[i] == 0xc049 || y[i] == 0xc04a;
    }
    tap_ok(near && fabs(up / N - expected) < 4 * sqrt(expected * (1 - expected) / N),
           "a number is rounded up as often as it is near, within 4 deviations");
    round_all(part, x, N - 123, 1123, 9);
    tap_ok(!memcmp(part, y + 123, (N - 123) * sizeof(*y)),
           "by the place, wherever a piece begins");
    cut = (struct rounding){ .n = 100,
                             .y = part,
                             .x = x,
                             .stream = 3,
                             .step = 9,
                             .key = 77,
                             .first = 1010,
                             .cols = 10,
                             .stride = 400,
                             .skip = 5 };
    if (backend_cpu.round(device, &cut, &err) < 0)
        abort();
    for (int i = 0; i < 100; i++)
        near &= part[i] == y[10 + (i + 5) / 10 * 400 + (i + 5) % 10];
    tap_ok(near, "of a matrix that is cut, too");
    round_all(part, x, N, 1000, 10);
    tap_ok(memcmp(part, y, sizeof(y)) != 0, "and the update");
    rounding_words(other, &one, 5);
    rng_block(word, 77);
    tap_ok(!memcmp(word, other, sizeof(word)), "its random numbers are rng_block's");
    x[0] = INFINITY;
    x[1] = NAN;
    x[2] = 0;
    x[3] = 1.5f;
    round_all(y, x, 4, 0, 1);
    tap_ok(y[0] == 0x7f80 && (y[1] & 0x7fff) > 0x7f80 && y[2] == 0 && y[3] == 0x3fc0,
           "what is no number, infinite or of bf16 stays");
}

/* Optimizers of one slot.  All steps from the first weights: as far from float64 as
 * another implementation in f32 is. */
static void try_slot(const char *file, enum optimizer_kind kind, double rate,
                     const char *name)
{
    enum { N = 200 };
    const struct optimizer_options o = {
        .kind = kind, .momentum = 0.9, .beta1 = 0.9, .beta2 = 0.99, .decay = 0.01
    };
    float p[N] = { 0 }, b[N] = { 0 };
    FILE *f = fopen(file, "r");
    double far[2] = { 0 }, off[2] = { 0 }, p64, b64;
    size_t n = 0, same = 0;
    struct state row;
    int step;

    while (f && fscanf(f, "%d %a %a %a %la %la", &step, &row.p, &row.g, &row.v, &p64,
                       &b64) == 6) {
        size_t i = n++ % N;
        struct array_call c = { .n = 1, .y = &p[i], .x = &row.g, .slot = { &b[i] } };

        if (!step) {
            p[i] = row.p;
            continue;
        }
        optimizer_table[o.kind].set(&c.by, &o, rate, (uint64_t)step, o.decay);
        c.by.factor = 1;
        run(optimizer_table[kind].update, &c);
        same += p[i] == row.p && b[i] == row.v;
        far[0] = fmax(far[0], fabs((double)row.p - p64));
        far[1] = fmax(far[1], fabs((double)row.v - b64));
        off[0] = fmax(off[0], fabs((double)p[i] - p64));
        off[1] = fmax(off[1], fabs((double)b[i] - b64));
    }
    if (f)
        fclose(f);
    if (!tap_ok(n == 5 * N && off[0] <= 1.5 * far[0] && off[1] <= 1.5 * far[1],
                "%s is as near to float64 as another in f32", name))
        printf("# %g and %g, the other %g and %g\n", off[0], off[1], far[0], far[1]);
    if (!tap_ok(same == 4 * N, "and has its bits"))
        printf("# %zu of %d\n", same, 4 * N);
}

/* Codes of 8 bits: parts as torchao's maps have them, and of the same numbers the same
 * codes.  What was read and is written again stays: the scale that has a negative
 * number at its end, too. */
static void try_codes(const char *file)
{
    enum { N = 40 };
    float map[2][CODES8], x[N], back[N], again[N];
    size_t parts = 0, differ = 0, blocks = 0, wrong = 0, moved = 0;
    uint8_t code[N], want[N], other[N];
    FILE *f = fopen(file, "r");
    char what[8];
    int is_signed, of;
    size_t n = 0;
    float value;

    codes8_map(map[0], SLOT_SQUARES);
    codes8_map(map[1], SLOT_CODES);
    while (f && fscanf(f, "%7s %d %d %a", what, &is_signed, &of, &value) == 4) {
        if (!strcmp(what, "map")) {
            parts++;
            differ += !(fabsf(map[is_signed][of] - value) <= fabsf(value) * 2e-7f);
            continue;
        }
        x[n] = value;
        want[n++] = (uint8_t)of;
        if (n < N)
            continue;
        n = 0;
        blocks++;
        for (int sign = 0; sign < 1 + is_signed; sign++) {
            const float scale = codes8_encode(code, x, N, map[is_signed]);
            float same;

            wrong += sign == 0 && memcmp(code, want, N) != 0;
            codes8_decode(back, code, scale, N, map[is_signed]);
            same = codes8_encode_again(other, back, N, map[is_signed]);
            codes8_decode(again, other, same, N, map[is_signed]);
            moved += same != scale || memcmp(code, other, N) != 0 ||
                     memcmp(back, again, sizeof(back)) != 0;
            for (int i = 0; i < N; i++)
                x[i] = -x[i];
        }
    }
    if (f)
        fclose(f);
    tap_ok(parts == 2 * (size_t)CODES8 && !differ,
           "maps of 8 bits are torchao's, but for its roundings");
    if (!tap_ok(blocks == 12 && !wrong, "blocks have its codes"))
        printf("# %zu of %zu differ\n", wrong, blocks);
    tap_ok(!moved, "what is read and written again has the same scales and codes");
}

/* The words of the squares of X[N]. */
static void count_squares(const float *x, size_t n, double word[SQUARES_WORDS])
{
    uint64_t sum[SQUARES_WORDS] = { 0 };
    const struct array_call c = { .n = n, .y = sum, .x = x };

    run(ARRAY_SQUARES, &c);
    squares_words(sum, word);
}

/* Numbers of all sizes, cut in two parts at every place. */
static void try_squares(void)
{
    enum { N = 70000, CUTS = 50 };
    double whole[SQUARES_WORDS], part[2][SQUARES_WORDS], exact, sum = 0;
    float *x = xmalloc(N * sizeof(*x));
    size_t bad = 0;

    for (size_t i = 0; i < N; i++) {
        x[i] = (float)ldexp(sign(i, 1) * (double)(i * 2654435761u % 16777213 + 1),
                            (int)(i % 97) - 160);
        sum += (double)x[i] * (double)x[i];
    }
    count_squares(x, N, whole);
    exact = squares_sum(whole);
    tap_ok(fabs(exact - sum) <= 1e-11 * sum, "squares add up to their sum");
    for (size_t k = 1; k < CUTS; k++) {
        for (int i = 0; i < 2; i++)
            count_squares(i ? x + k * N / CUTS : x, i ? N - k * N / CUTS : k * N / CUTS,
                          part[i]);
        for (int i = 0; i < SQUARES_WORDS; i++)
            part[0][i] += part[1][i];
        bad += squares_sum(part[0]) != exact;
    }
    tap_ok(bad == 0, "to the bit, in whatever parts");
    x[7] = HUGE_VALF;
    count_squares(x, N, whole);
    tap_ok(isnan(squares_sum(whole)), "and to no number where one is infinite");
    x[7] = 0x1p-149f;
    count_squares(x + 7, 1, whole);
    tap_ok(squares_sum(whole) == 0x1p-298, "the least number counts");
    free(x);
}

static const struct schedule_options unset = { .least = -1,
                                               .least_ratio = -1,
                                               .most = -1,
                                               .power = -1,
                                               .cycles = -1,
                                               .warmup_ratio = -1,
                                               .decay_curve = CURVE_COSINE,
                                               .factor = -1,
                                               .threshold = -1,
                                               .patience = -1 };

static double rate_of(enum schedule_kind kind, double base, uint64_t step,
                      uint64_t warmup, uint64_t steps)
{
    const struct schedule s = {
        .kind = kind, .base = base, .warmup = warmup, .steps = steps, .o = unset
    };

    return schedule_rate(&s, step, NULL);
}

static void try_rates(void)
{
    tap_ok(rate_of(SCHEDULE_LINEAR, 1, 0, 2, 10) == 0 &&
               rate_of(SCHEDULE_LINEAR, 1, 1, 2, 10) == 0.5 &&
               rate_of(SCHEDULE_LINEAR, 1, 2, 2, 10) == 1 &&
               rate_of(SCHEDULE_LINEAR, 1, 6, 2, 10) == 0.5 &&
               rate_of(SCHEDULE_LINEAR, 1, 10, 2, 10) == 0,
           "a linear rate warms up and falls to 0");
    tap_ok(fabs(rate_of(SCHEDULE_COSINE, 2, 5, 0, 10) - 1) < 1e-12 &&
               rate_of(SCHEDULE_INVERSE_SQRT, 1, 16, 4, 100) == 0.5 &&
               rate_of(SCHEDULE_INVERSE_SQRT, 1, 30000, 0, 100) == 0.5 &&
               rate_of(SCHEDULE_CONSTANT, 1, 0, 4, 10) == 1 &&
               rate_of(SCHEDULE_CONSTANT_WITH_WARMUP, 1, 1, 4, 10) == 0.25 &&
               fabs(rate_of(SCHEDULE_POLYNOMIAL, 1, 5, 0, 10) - 0.50000005) < 1e-12,
           "the other rates are those of their formulas");
}

/* Index of WORD among NAMES. */
static int index_of(const char *const *names, const char *word)
{
    int i = 0;

    while (names[i] && strcmp(names[i], word) != 0)
        i++;
    return names[i] ? i : -1;
}

/* Sets what "name=value,name=value" says; false if a name is unknown or none of the
 * schedule's. */
static bool set_options(struct schedule *s, char *text)
{
    struct schedule_options *o = &s->o;
    const struct {
        const char *name;
        double *number;
        int *whole, *curve;
    } known[] = { { "min-lr", &o->least, NULL, NULL },
                  { "min-lr-ratio", &o->least_ratio, NULL, NULL },
                  { "max-lr", &o->most, NULL, NULL },
                  { "power", &o->power, NULL, NULL },
                  { "cycles", &o->cycles, NULL, NULL },
                  { "warmup-lr-ratio", &o->warmup_ratio, NULL, NULL },
                  { "factor", &o->factor, NULL, NULL },
                  { "threshold", &o->threshold, NULL, NULL },
                  { "decay-steps", NULL, &o->decay_steps, NULL },
                  { "patience", NULL, &o->patience, NULL },
                  { "cooldown", NULL, &o->cooldown, NULL },
                  { "warmup-type", NULL, NULL, &o->warmup_curve },
                  { "decay-type", NULL, NULL, &o->decay_curve } };
    char *rest;

    for (char *word = strtok_r(text, ",", &rest); word;
         word = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(word, '=');
        size_t i = 0;

        if (!value)
            return !strcmp(word, "-");
        *value++ = '\0';
        while (i < sizeof(known) / sizeof(*known) && strcmp(known[i].name, word) != 0)
            i++;
        if (i == sizeof(known) / sizeof(*known) || !schedule_takes(s->kind, word))
            return false;
        if (known[i].number)
            *known[i].number = strtod(value, NULL);
        else if (known[i].whole)
            *known[i].whole = (int)strtol(value, NULL, 10);
        else
            *known[i].curve = index_of(schedule_curve_names, value);
    }
    return true;
}

/* What oracle/make-schedules.py feeds. */
static double fed_loss(int i)
{
    return 4.0 - 0.08 * i + (i > 15 ? 0.002 * ((i - 15) * (i - 15)) : 0) +
           0.05 * ((i * 7) % 5);
}

/* data/schedules.tsv, of oracle/make-schedules.py. */
static void try_schedules(const char *file)
{
    FILE *f = fopen(file, "r");
    char name[40], options[160];
    unsigned long long steps, warmup;
    struct schedule s;
    bool seen[SCHEDULES] = { false };
    int all = 0;

    while (f && fscanf(f, "%39s %lf %llu %llu %159s", name, &s.base, &steps, &warmup,
                       options) == 5) {
        int kind = index_of(schedule_names, name);
        char *what = str_dupf("%s %s", name, options);
        struct schedule_state state;
        double worst = 0;
        bool set;

        if (kind < 0)
            abort();
        s.kind = (enum schedule_kind)kind;
        s.steps = steps;
        s.warmup = warmup;
        s.o = unset;
        set = set_options(&s, options);
        schedule_begin(&s, &state);
        for (int i = 0; i < (int)steps; i++) {
            double want, got = schedule_rate(&s, (uint64_t)i, &state);

            if (fscanf(f, "%lf", &want) != 1)
                abort();
            worst = fmax(worst, fabs(got - want) / fmax(want, 1e-12));
            schedule_see(&s, &state, fed_loss(i));
        }
        if (!tap_ok(set && worst < 1e-12, "%s: 50 rates of get_scheduler", what))
            printf("# off by %g\n", worst);
        seen[s.kind] = true;
        free(what);
    }
    if (f)
        fclose(f);
    for (int i = 0; i < SCHEDULES; i++)
        all += seen[i];
    tap_ok(all == SCHEDULES, "no schedule lacks a row");
}

/* data/events.hex, of oracle/make-events.py. */
static void try_events(const char *file)
{
    static const char digits[] = "0123456789abcdef";
    struct str out = { 0 }, hex = { 0 };
    char *want = NULL;
    struct err err;

    events_begin(&out, 1e9 + 0.25);
    events_restart(&out, 1e9 + 0.5, 300);
    events_scalar(&out, 1e9 + 0.75, 300, "train/loss", 2.5);
    for (size_t i = 0; i < out.len; i++) {
        str_addc(&hex, digits[(unsigned char)out.s[i] >> 4]);
        str_addc(&hex, digits[(unsigned char)out.s[i] & 15]);
    }
    str_addc(&hex, '\n');
    if (fs_read_file(&want, NULL, file, 1 << 16, &err) < 0)
        abort();
    tap_is(str_text(&hex), want, "events have the bytes of tensorboard's writer");
    free(want);
    str_clear(&out);
    str_clear(&hex);
}

/* ---- one model on one mesh ---- */

struct shared {
    struct trainer_result result[STEPS];
    int device[RANKS]; /* index of the one that the rank opened */
    size_t at[2048];   /* of each tensor in x, plus 1 */
    float x[];
};

struct job {
    struct checkpoint *c;
    struct mesh mesh;
    enum order order;
    int threads, across;
    int pad; /* the padding token, which samples have; -1: they have none */
    struct optimizer_options optimizer;
    int zero;
    double times; /* the rate */
    struct shared *out;
};

/* PAD: every fourth id; -1: none. */
static void make_batch(int step, uint64_t vocab, int pad, struct sample *sample,
                       int32_t (*ids)[MOST], int32_t (*targets)[MOST])
{
    for (int i = 0; i < GLOBAL; i++) {
        int n = 9 + (i * 5 + step) % 7;

        for (int k = 0; k < n; k++)
            ids[i][k] =
                3 + (step * 131 + i * 31 + k * k * 7 + k * 11) % (int)(vocab - 4);
        for (int k = 2; k < n && pad >= 0; k += 4)
            ids[i][k] = pad;
        for (int k = 0; k < n; k++)
            targets[i][k] = k + 1 < n && k + 1 > i % 3 ? ids[i][k + 1] : -1;
        sample[i] =
            (struct sample){ .id = ids[i], .target = targets[i], .n = (size_t)n };
    }
}

struct giving {
    float *here, *whole;
};

static void give_run(void *arg, size_t here, size_t whole, size_t n, bool owned)
{
    const struct giving *g = arg;

    if (owned)
        memcpy(g->whole + whole, g->here + here, n * sizeof(float));
}

static int opened; /* by this rank */

static int open_noting(struct device **out, int threads, int local, struct err *err)
{
    opened = local;
    return backend_cpu.open(out, threads, 0, err);
}

static int count_all(void)
{
    return RANKS;
}

static int all_usable(int *number, int most)
{
    for (int i = 0; i < most; i++)
        number[i] = i;
    return most;
}

static void give_stage(struct parameters *p, struct shared *out)
{
    for (int i = 0; i < p->program->nweights; i++) {
        struct giving g = { p->row[i].weight,
                            out->x + out->at[p->program->weight[i].tensor] - 1 };

        parameters_runs(p, i, give_run, &g);
    }
}

static int run_rank(void *arg, struct comm *world, struct err *err)
{
    const struct job *job = arg;
    struct backend noting = backend_cpu;
    const struct trainer_options options = {
        .length = MOST,
        .micro_batch = 2,
        .global = GLOBAL,
        .order = job->order,
        .optimizer = job->optimizer,
        .zero = job->zero,
    };
    struct runner_machine machine = {
        .ops = &noting,
        .threads = job->threads,
        .across = job->across,
        .local = world->size - world->rank /* in the reverse order */
    };
    int32_t ids[GLOBAL][MOST], targets[GLOBAL][MOST];
    struct sample sample[GLOBAL];
    struct trainer t;
    double vocab;

    noting.open = open_noting;
    noting.count = count_all;
    noting.usable = all_usable;
    if (trainer_open(&t, job->c, &job->mesh, &machine, world, &options, err) < 0)
        return -1;
    job->out->device[world->rank] = opened;
    model_number(job->c->model, "vocab", &vocab);
    for (int step = 0; step < STEPS; step++) {
        struct trainer_result result;

        make_batch(step, (uint64_t)vocab, job->pad, sample, ids, targets);
        if (trainer_step(&t, sample,
                         job->times *
                             rate_of(SCHEDULE_COSINE, 3e-3, (uint64_t)step, 1, STEPS),
                         &result, err) < 0) {
            trainer_close(&t);
            return -1;
        }
        if (world->rank == 0)
            job->out->result[step] = result;
    }
    for (int k = 0; k < t.nstages; k++)
        give_stage(&t.stage[k].parameters, job->out);
    trainer_close(&t);
    return 0;
}

/* Room for every tensor; floats in all. */
static size_t lay_out(struct shared *s, const struct model *m)
{
    size_t end = 0;

    for (size_t i = 0; i < m->ntensors; i++) {
        size_t n = 1;

        for (int k = 0; k < m->tensor[i].ndim; k++)
            n *= (size_t)m->tensor[i].axis[k]->size;
        s->at[i] = end + 1;
        end += n;
    }
    if (sizeof(*s) + end * sizeof(float) > SHARED)
        abort();
    memset(s->x, 0, end * sizeof(float));
    return end;
}

/* ---- what it should be ---- */

struct wanted {
    char name[40];
    struct {
        double loss, norm, rate;
    } step[STEPS];
    struct {
        char name[160];
        double spread, sum[SUMS];
    } tensor[200];
    size_t n;
};

/* The lines of the next model. */
static bool read_wanted(FILE *f, struct wanted *w)
{
    long at;

    memset(w, 0, sizeof(*w));
    for (int i = 0; i < STEPS; i++)
        if (fscanf(f, "%39s %*d %lf %lf %lf", w->name, &w->step[i].loss,
                   &w->step[i].norm, &w->step[i].rate) != 4)
            return false;
    for (at = ftell(f);; at = ftell(f)) {
        char name[40];
        double *sum = w->tensor[w->n].sum;

        if (fscanf(f, "%39s %159s %lf %lf %lf %lf %lf", name, w->tensor[w->n].name,
                   &w->tensor[w->n].spread, &sum[0], &sum[1], &sum[2], &sum[3]) != 7 ||
            strcmp(name, w->name) != 0)
            break;
        w->n++;
    }
    fseek(f, at, SEEK_SET);
    return true;
}

/* Why the run is not the loop's: a fresh text, or NULL.  LOOSE: its blocks of 8 bits
 * are others, and losses are near. */
static char *differs(const struct job *job, const struct wanted *w, bool loose)
{
    const double near = loose ? 1e-3 : 1e-5;

    for (int i = 0; i < STEPS; i++) {
        const struct trainer_result *r = &job->out->result[i];

        if (!(fabs(r->loss - w->step[i].loss) < near * w->step[i].loss))
            return str_dupf("step %d: loss %.9g, not %.9g", i + 1, r->loss,
                            w->step[i].loss);
        if (!(fabs(r->norm - w->step[i].norm) < 10 * near * w->step[i].norm))
            return str_dupf("step %d: norm %.9g, not %.9g", i + 1, r->norm,
                            w->step[i].norm);
    }
    for (size_t i = 0; i < w->n && !loose; i++) {
        long t = model_find(job->c->model, w->tensor[i].name);
        const struct model_tensor *m;
        size_t n = 1;

        if (t < 0)
            continue;
        if (job->c->model->tensor[t].tied >= 0)
            t = job->c->model->tensor[t].tied;
        m = &job->c->model->tensor[t];
        for (int k = 0; k < m->ndim; k++)
            n *= (size_t)m->axis[k]->size;
        for (unsigned k = 0; k < SUMS; k++) {
            const float *x = job->out->x + job->out->at[t] - 1;
            double sum = 0, most;

            for (size_t j = 0; j < n; j++)
                sum += sign(j, k) * (double)x[j];
            most = (10 * w->tensor[i].spread + 1e-6) * sqrt((double)n);
            if (!(fabs(sum - w->tensor[i].sum[k]) <= most))
                return str_dupf("%s: sum %.9g, not %.9g +- %.2g", w->tensor[i].name,
                                sum, w->tensor[i].sum[k], most);
        }
    }
    return NULL;
}

static const struct layout {
    const char *name;
    int tp, dp, pp, threads;
    enum order order;
    int same_as;        /* layout that has the same bits, or -1 */
    bool pads;          /* models with padding are trained on it too, */
    bool wholes;        /* and by optimizers of whole tensors, which replicas share */
    int sp, across, ep; /* 0: 1; all ranks of sp exchange heads; 1 */
    bool costly;        /* with LONG alone */
} layouts[] = {
    { "one rank", 1, 1, 1, 1, ORDER_GPIPE, -1, true, true, 1, 0, 1, false },
    { "three threads", 1, 1, 1, 3, ORDER_GPIPE, 0, false, true, 1, 0, 1, false },
    { "tp 2", 2, 1, 1, 1, ORDER_GPIPE, -1, true, false, 1, 0, 1, false },
    { "tp 3", 3, 1, 1, 1, ORDER_GPIPE, -1, false, true, 1, 0, 1, false },
    { "dp 2", 1, 2, 1, 1, ORDER_GPIPE, -1, false, false, 1, 0, 1, false },
    { "pp 2, gpipe", 1, 1, 2, 1, ORDER_GPIPE, -1, false, false, 1, 0, 1, false },
    { "pp 2, 1f1b", 1, 1, 2, 1, ORDER_1F1B, 5, true, false, 1, 0, 1, false },
    { "tp 2 dp 2 pp 2", 2, 2, 2, 1, ORDER_1F1B, -1, false, true, 1, 0, 1, false },
    { "sp 2", 1, 1, 1, 1, ORDER_GPIPE, -1, false, false, 2, 0, 1, false },
    { "ep 2", 1, 1, 1, 1, ORDER_GPIPE, -1, false, false, 1, 0, 2, false },
    { "sp 2, a ring", 1, 1, 1, 1, ORDER_GPIPE, -1, false, false, 2, 1, 1, true },
    { "tp 2 sp 2 pp 2, a ring", 2, 1, 2, 1, ORDER_ZB_H1, -1, false, false, 2, 1, 1,
      true },
    { "dp 3 ep 2", 1, 3, 1, 1, ORDER_GPIPE, -1, false, false, 1, 0, 2, true },
    { "tp 2 sp 2 ep 2", 2, 1, 1, 1, ORDER_GPIPE, -1, false, false, 2, 0, 2, true },
    { "dp 3 pp 2 sp 2", 1, 3, 2, 1, ORDER_1F1B, -1, false, false, 2, 1, 1, true },
    { "tp 2 pp 2 sp 2 ep 2", 2, 1, 2, 1, ORDER_1F1B, -1, false, false, 2, 0, 2, true },
    { "tp 2 pp 2 sp 2 ep 2, a ring, zb-h1", 2, 1, 2, 1, ORDER_ZB_H1, -1, false, false,
      2, 1, 2, true },
};
enum { LAYOUTS = sizeof(layouts) / sizeof(*layouts) };

/* The padding token of M's table of words. */
static int padding_of(const struct model *m)
{
    struct err err;
    uint64_t row;
    bool is = false;

    for (size_t i = 0; i < m->ntensors && !is; i++)
        if (option_padding(m, &m->tensor[i], &is, &row, &err) < 0)
            abort();
    return is ? (int)row : -1;
}

/* How models are trained: on all layouts; on some, where samples have the padding
 * token; on some, by an optimizer of whole tensors. */
struct trying {
    bool padded;
    struct optimizer_options by;
    double times; /* the rate */
};

static void try_model(const char *models, const struct wanted *w,
                      const struct trying *how, struct shared *out)
{
    const bool wholes = optimizer_table[how->by.kind].matrices != MATRICES_NONE;
    const bool padded = how->padded;
    char *path = fs_join_dup(models, w->name);
    struct checkpoint_options options = { 0 };
    struct err err = { .text = "" };
    struct job job = { .out = out, .pad = -1, .optimizer = how->by };
    float *made[LAYOUTS] = { NULL };
    size_t n, strays = 0;

    if (checkpoint_open(&job.c, path, &options, &err) < 0) {
        tap_ok(false, "%s: %s", w->name, err.text);
        free(path);
        return;
    }
    if (padded) {
        job.pad = padding_of(job.c->model);
        tap_ok(job.pad >= 0, "%s: has a padding token", w->name);
    }
    for (int i = 0; i < LAYOUTS; i++) {
        const struct layout *l = &layouts[i];
        int size[MESH_NAXES] = { [MESH_TP] = l->tp,
                                 [MESH_DP] = l->dp,
                                 [MESH_PP] = l->pp,
                                 [MESH_SP] = l->sp,
                                 [MESH_EP] = l->ep };
        char *why;
        int sig;

        if ((padded && !l->pads) || (wholes && !l->wholes) ||
            (l->costly && !getenv("LONG")))
            continue;
        job.zero = wholes && l->dp > 1;
        job.times = how->times;
        if (mesh_set(&job.mesh, size, NULL, &err) < 0 ||
            model_check_mesh(job.c->model, &job.mesh, &err) < 0)
            continue;
        n = lay_out(out, job.c->model);
        job.order = l->order;
        job.threads = l->threads;
        job.across = l->across;
        if (launch_ranks(job.mesh.nranks, run_rank, &job, &sig, &err) < 0) {
            tap_ok(false, "%s on %s: %s", w->name, l->name, err.text);
            continue;
        }
        for (int rank = 0; rank < job.mesh.nranks; rank++)
            strays += out->device[rank] != job.mesh.nranks - 1 - rank;
        why = differs(&job, w, how->by.kind == OPTIMIZER_ADAM8BIT && l->tp > 1);
        if (!tap_ok(!why, "%s on %s, %s: losses, norms and weights as PyTorch's%s",
                    w->name, l->name, optimizer_names[how->by.kind],
                    padded ? ", with padding" : ""))
            printf("# %s\n", why);
        free(why);
        made[i] = xmalloc(n * sizeof(float) + 1);
        memcpy(made[i], out->x, n * sizeof(float));
        if (l->same_as >= 0 && made[l->same_as])
            tap_ok(!memcmp(made[i], made[l->same_as], n * sizeof(float)),
                   "%s: %s has the bits of %s", w->name, l->name,
                   layouts[l->same_as].name);
    }
    tap_ok(!strays, "%s: a rank opens the device of its index on its machine", w->name);
    for (int i = 0; i < LAYOUTS; i++)
        free(made[i]);
    checkpoint_close(job.c);
    free(path);
}

/* The models of FILE, or the one called ONLY. */
static void try_models(const char *models, const char *data, const char *name,
                       const char *only, struct trying how, struct shared *out)
{
    char *file = fs_join_dup(data, name);
    struct wanted *w = xmalloc(sizeof(*w));
    FILE *f = fopen(file, "r");

    while (f && read_wanted(f, w))
        if (!only || !strcmp(only, w->name))
            try_model(models, w, &how, out);
    if (!f)
        tap_ok(false, "%s is there", file);
    if (f)
        fclose(f);
    free(file);
    free(w);
}

/* As torch.amp.GradScaler with its defaults. */
static void try_scaler(void)
{
    struct scaler s = { .scale = SCALER_FIRST };

    for (int i = 0; i < 1999; i++)
        scaler_see(&s, false);
    tap_ok(s.scale == 65536, "a loss scale stays for 1999 updates");
    scaler_see(&s, false);
    tap_ok(s.scale == 131072 && s.good == 0, "and is doubled after 2000");
    for (int i = 0; i < 1999; i++)
        scaler_see(&s, false);
    scaler_see(&s, true);
    tap_ok(s.scale == 65536 && s.overflowed == 1, "one that is no number halves it");
    for (int i = 0; i < 1999; i++)
        scaler_see(&s, false);
    tap_ok(s.scale == 65536, "and 2000 more are counted from there");
    scaler_see(&s, false);
    tap_ok(s.scale == 131072 && s.overflowed == 1, "after which it is doubled");
}

int main(int argc, char **argv)
{
    char *data = str_dupf("%s/tests/data", getenv("top_srcdir"));
    char *models = fs_join_dup(data, "models");
    char *codes = fs_join_dup(data, "codes8.tsv");
    char *schedules = fs_join_dup(data, "schedules.tsv");
    char *events = fs_join_dup(data, "events.hex");
    char *adamw = fs_join_dup(data, "adamw.tsv"), *sgd = fs_join_dup(data, "sgd.tsv");
    char *lion = fs_join_dup(data, "lion.tsv");
    const char *only = argc > 1 ? argv[1] : NULL;
    struct optimizer_options by = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .clip = 1.5
    };
    struct shared *out =
        mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct err err;

    if (backend_cpu.open(&device, 1, 0, &err) < 0)
        abort();
    try_adamw(adamw);
    try_slot(sgd, OPTIMIZER_MOMENTUM, 1e-2, "SGD with momentum");
    try_slot(lion, OPTIMIZER_LION, 1e-3, "Lion");
    try_squares();
    try_rounding();
    try_scaler();
    try_codes(codes);
    backend_cpu.close(device);
    try_rates();
    try_schedules(schedules);
    free(schedules);
    try_events(events);
    free(events);
    try_models(models, data, "training.tsv", only, (struct trying){ false, by, 1 },
               out);
    try_models(models, data, "padding.tsv", only, (struct trying){ true, by, 1 }, out);
    by.kind = OPTIMIZER_MUON;
    by.momentum = 0.9;
    by.others = 1.0 / 3;
    try_models(models, data, "muon.tsv", only, (struct trying){ false, by, 1 }, out);
    by.kind = OPTIMIZER_ADAFACTOR;
    by.threshold = 1;
    by.power = -0.8;
    try_models(models, data, "adafactor.tsv", only, (struct trying){ false, by, 1 },
               out);
    by.relative = by.scaled = true;
    try_models(models, data, "adafactor-relative.tsv", only,
               (struct trying){ false, by, 2 / 3e-3 }, out);
    by.kind = OPTIMIZER_ADAM8BIT;
    try_models(models, data, "adam8bit.tsv", only, (struct trying){ false, by, 1 },
               out);
    free(adamw);
    free(lion);
    free(sgd);
    free(codes);
    free(models);
    free(data);
    return tap_done();
}
