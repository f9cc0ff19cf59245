/* unit-scan - recurrences over texts (lib/cpu/rows/state-scan.c) against plain loops in
 * double precision, in pieces and with snapshots */
#include <math.h>
#include <string.h>

#include "tests/cpu-trial.h"
#include "tests/tap.h"

enum {
    ROWS = 11,   /* of a text of 7 tokens, then one of 4 */
    FIRST = 7,   /* tokens of the first */
    RECORDS = 4, /* the texts' own, and two snapshots */
    MOST = 90,   /* columns of any value */
};

struct trial {
    const char *what;
    enum scan_kind kind;
    int heads, within, keys, values;
    bool each, skips;
    double least, most;
};

static const struct trial trials[] = {
    { "ssd", SCAN_SSD, 6, 3, 5, 7, false, true, 0, INFINITY },
    { "ssd of 64 columns, bounded", SCAN_SSD, 1, 1, 9, 64, false, false, 0.3, 0.7 },
    { "ssd of 66 columns", SCAN_SSD, 1, 1, 3, 66, false, true, 0, INFINITY },
    { "selective", SCAN_SELECTIVE, 1, 1, 5, 83, false, true, 0, INFINITY },
    { "delta", SCAN_DELTA, 4, 2, 6, 20, false, false, 0, INFINITY },
    { "delta of columns", SCAN_DELTA, 2, 1, 8, 32, true, false, 0, INFINITY },
    { "lightning", SCAN_LIGHTNING, 3, 1, 4, 16, false, false, 0, INFINITY },
    { "gated", SCAN_GATED, 1, 1, 1, 70, false, false, 0, INFINITY },
    { "wkv", SCAN_WKV, 1, 1, 3, 9, false, true, 0, INFINITY },
};

static struct device *team;

struct text {
    const struct trial *t;
    float *x[INST_SOURCES], *w, *w2; /* x: [ROWS][MOST] at most, by own columns */
    int cols[INST_SOURCES], n;
    int width; /* columns of the result */
};

static double softplus(double x)
{
    return log1p(exp(x));
}

/* Rows of X from ROW on. */
static const float *at(const struct text *s, int k, int row)
{
    return s->x[k] + (size_t)row * (size_t)s->cols[k];
}

/* S = decay S + k u^T, for one column of one head. */
static double column(const struct text *s, double *state, int row, int head, int col)
{
    const struct trial *t = s->t;
    bool selective = t->kind == SCAN_SELECTIVE;
    int group = selective ? 0 : head / t->within, unit = selective ? col : head;
    const float *k = at(s, 1, row) + group * t->keys,
                *q = at(s, 2, row) + group * t->keys;
    double v = (double)at(s, 0, row)[head * t->values + col], in = v, y = 0, old = 0;

    for (int n = 0; n < t->keys; n++) {
        double dt = 1,
               rate = pow(2, -8.0 * (head + 3) / 7); /* as the inst below says */

        if (t->kind != SCAN_LIGHTNING) {
            dt = (double)at(s, 3, row)[t->each ? head * t->keys + n : unit];
            dt = fmin(fmax(dt, t->least), t->most);
            rate = exp((double)s->w[selective ? col * t->keys + n : head]);
        }
        state[n] *= exp(-dt * rate);
        old += state[n] * (double)k[n];
        if (!n && (t->kind == SCAN_SSD || selective))
            in = dt * v;
    }
    if (t->kind == SCAN_DELTA)
        in = (double)at(s, 4, row)[head] * (v - old);
    for (int n = 0; n < t->keys; n++) {
        state[n] += (double)k[n] * in;
        y += state[n] * (double)q[n];
    }
    return y + (t->skips ? (double)s->w2[unit] * v : 0);
}

/* RG-LRU and WKV, for one column. */
static double simple(const struct text *s, double *state, int row, bool first, int col)
{
    double a = (double)at(s, 0, row)[col], b = (double)at(s, 1, row)[col];
    double num, den;

    if (s->t->kind == SCAN_GATED) {
        double decay = exp(-8 * b * softplus((double)s->w[col]));
        double in = (double)at(s, 2, row)[col] * a;

        state[0] = first ? in : decay * state[0] + sqrt(1 - decay * decay) * in;
        return state[0];
    }
    num = state[0] + exp((double)s->w2[col] + a) * b;
    den = state[1] + exp((double)s->w2[col] + a);
    state[0] = exp(-exp((double)s->w[col])) * state[0] + exp(a) * b;
    state[1] = exp(-exp((double)s->w[col])) * state[1] + exp(a);
    return num / den;
}

static void by_hand(const struct text *s, double *y)
{
    const struct trial *t = s->t;
    double state[MOST];

    for (int i = 0; i < s->width; i++)
        for (int row = 0; row < ROWS; row++) {
            bool first = row == 0 || row == FIRST;

            if (first)
                memset(state, 0, sizeof(state));
            y[row * s->width + i] =
                t->kind == SCAN_GATED || t->kind == SCAN_WKV
                    ? simple(s, state, row, first, i)
                    : column(s, state, row, i / t->values, i % t->values);
        }
}

static void text_init(struct text *s, const struct trial *t)
{
    int wide = t->heads * t->values, keys = t->heads / t->within * t->keys;
    int weights = t->kind == SCAN_SELECTIVE                      ? t->values * t->keys
                  : t->kind == SCAN_GATED || t->kind == SCAN_WKV ? t->values
                                                                 : t->heads;

    *s = (struct text){ .t = t, .width = wide };
    s->cols[s->n++] = wide;
    if (t->kind == SCAN_GATED || t->kind == SCAN_WKV) {
        for (int i = t->kind == SCAN_GATED ? 2 : 1; i; i--)
            s->cols[s->n++] = wide;
    } else {
        s->cols[s->n++] = keys;
        s->cols[s->n++] = keys;
        if (t->kind != SCAN_LIGHTNING)
            s->cols[s->n++] = t->kind == SCAN_SELECTIVE ? wide
                              : t->each                 ? t->heads * t->keys
                                                        : t->heads;
        if (t->kind == SCAN_DELTA)
            s->cols[s->n++] = t->heads;
    }
    for (int i = 0; i < s->n; i++) {
        s->x[i] = numbers_new((size_t)(ROWS * s->cols[i]), 60 + (uint64_t)i);
        for (int k = 0; k < ROWS * s->cols[i]; k++) {
            if (i > 2 || (t->kind == SCAN_GATED && i))
                s->x[i][k] = fabsf(s->x[i][k]); /* steps, and gates */
            else if (t->kind == SCAN_DELTA && (i == 1 || i == 2))
                s->x[i][k] *= 0.4f;
        }
    }
    s->w = numbers_new((size_t)weights, 70);
    s->w2 = numbers_new((size_t)(t->kind == SCAN_SELECTIVE || t->kind == SCAN_WKV
                                     ? t->values
                                     : t->heads),
                        71);
}

/* Rows [FROM, FROM + N) of the text that begins at FIRST_ROW, whose record is REC. */
static void run(const struct text *s, float *y, float *memory, int first_row, int from,
                int n, int rec, const struct state_save *save, int saves)
{
    const struct trial *t = s->t;
    const struct inst inst = { .op = OP_SCAN,
                               .nsrc = s->n,
                               .scan = { .kind = t->kind,
                                         .heads = (uint64_t)t->heads,
                                         .within = (uint64_t)t->within,
                                         .keys = (uint64_t)t->keys,
                                         .values = (uint64_t)t->values,
                                         .first = 2,
                                         .all = 7,
                                         .slope = 1,
                                         .least = t->least,
                                         .most = t->most,
                                         .each = t->each } };
    uint64_t count =
        (uint64_t)(t->kind == SCAN_SELECTIVE                      ? t->values * t->keys
                   : t->kind == SCAN_GATED || t->kind == SCAN_WKV ? t->values
                                                                  : t->heads);
    const struct matrix
        w = { .data = s->w, .format = FORMAT_F32, .rows = 1, .cols = count },
        w2 = { .data = s->w2, .format = FORMAT_F32, .rows = 1, .cols = MOST };
    const struct state_use use = {
        .rows = n, .record = rec, .fresh = from == first_row, .saves = saves
    };
    const struct states_view states = { memory, &use, 1, save };
    struct cpu_scan c = { .y = y + from * s->width,
                          .w = t->kind == SCAN_LIGHTNING ? NULL : &w,
                          .w2 = t->skips ? &w2 : NULL,
                          .state = &states,
                          .rows = (size_t)n };
    struct err err;

    for (int i = 0; i < s->n; i++)
        c.x[i] = at(s, i, from);
    if (cpu_scan(team, &inst, &c, &err) < 0)
        abort();
}

static void scan_is_right(const struct trial *t)
{
    struct text s;
    size_t state = (size_t)(t->heads * t->keys * t->values), bytes;
    float *memory = xcalloc(RECORDS * state, sizeof(*memory));
    double worst = 0, size = 0, *want;
    float *y, *again;

    text_init(&s, t);
    want = xcalloc((size_t)(ROWS * s.width), sizeof(*want));
    bytes = sizeof(*y) * (size_t)(ROWS * s.width);
    y = xcalloc(1, bytes);
    again = xcalloc(1, bytes);
    for (size_t i = 0; i < RECORDS * state; i++)
        memory[i] = NAN; /* a state that begins is not read */
    by_hand(&s, want);
    run(&s, y, memory, 0, 0, FIRST, 0,
        (const struct state_save[]){ { 1, 2 }, { 4, 3 } }, 2);
    run(&s, y, memory, FIRST, FIRST, ROWS - FIRST, 1, NULL, 0);
    for (int i = 0; i < ROWS * s.width; i++) {
        worst = fmax(worst, fabs(want[i] - (double)y[i]));
        size = fmax(size, fabs(want[i]));
    }
    if (!tap_ok(worst < 4e-6 * size, "%s is what plain loops make", t->what))
        printf("# apart by %.3g of %.3g\n", worst, size);
    /* token by token, with the same bits; and on from a snapshot */
    for (int row = 0; row < ROWS; row++)
        run(&s, again, memory, row < FIRST ? 0 : FIRST, row, 1, row < FIRST ? 0 : 1,
            NULL, 0);
    tap_ok(!memcmp(y, again, bytes), "%s has the same bits token by token", t->what);
    memset(again, 0, bytes);
    run(&s, again, memory, 0, 2, FIRST - 2, 2, NULL, 0);
    run(&s, again, memory, 0, 5, FIRST - 5, 3, NULL, 0);
    tap_ok(
        !memcmp(y + 2 * s.width, again + 2 * s.width,
                sizeof(*y) * (size_t)((FIRST - 2) * s.width)) &&
            !memcmp(memory + 2 * state, memory + 3 * state, state * sizeof(*memory)) &&
            !memcmp(memory, memory + 3 * state, state * sizeof(*memory)),
        "%s goes on from a state that was saved", t->what);
    for (int i = 0; i < s.n; i++)
        free(s.x[i]);
    free(s.w);
    free(s.w2);
    free(want);
    free(y);
    free(again);
    free(memory);
}

int main(void)
{
    team = device_new(3);
    for (size_t i = 0; i < sizeof(trials) / sizeof(*trials); i++)
        scan_is_right(&trials[i]);
    backend_cpu.close(team);
    return tap_done();
}
