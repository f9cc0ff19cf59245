/* state-scan - recurrences over the tokens of each sequence
 *
 * The equations are those of the table in lib/program/recurrence.h.  A column of the
 * values has a state of its own, [keys]; so a task takes some columns of a head through
 * all rows of a sequence, and its part of the state stays in the nearest cache.  Every
 * row is computed alike, whatever rows a step has, so a prompt that is read in pieces
 * has the same bits. */
#include <math.h>
#include <string.h>

#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"
#include "lib/program/activation.h"

enum { LANES = 4 * VEC }; /* columns of a task */

struct job {
    const struct inst *inst;
    const struct cpu_scan *c;
    const float *rate;  /* per head; selective: [keys][values]; gated: [values], */
    const float *decay; /* [rows][heads], or of each: [rows][heads][keys], */
    const float *dt;    /* [rows][heads], */
    const float *skip;  /* [heads], selective: [values]; NULL: none: room of the call */
    size_t heads, keys, values, blocks; /* blocks of LANES columns in a head */
};

/* Columns [at, at + n) of a head, of one sequence. */
struct part {
    const struct job *j;
    const struct state_use *use;
    size_t head, at, n;
    float *state; /* [keys][values] from column AT on */
};

/* N numbers at P, at most a vector's; the others are 0. */
static inline __attribute__((always_inline)) void load_some(vec *v, const float *p,
                                                            size_t n)
{
    if (n >= VEC) {
        memcpy(v, p, sizeof(*v));
        return;
    }
    memset(v, 0, sizeof(*v));
    memcpy(v, p, n * sizeof(*p));
}

static inline __attribute__((always_inline)) void store_some(float *p, const vec *v,
                                                             size_t n)
{
    memcpy(p, v, (n < VEC ? n : VEC) * sizeof(*p));
}

static size_t state_size(const struct job *j)
{
    return j->heads * j->keys * j->values;
}

/* Copies the state to another record if the step saves it after ROW. */
static void save_state(const struct part *p, size_t row, int32_t *saved)
{
    const struct states_view *s = p->j->c->state;
    size_t own =
        (size_t)(p->state - s->memory) - (size_t)p->use->record * state_size(p->j);

    for (; *saved < p->use->saves; ++*saved) {
        const struct state_save *one = &s->save[p->use->save + *saved];
        float *to = s->memory + (size_t)one->record * state_size(p->j) + own;

        if ((size_t)one->row != row)
            return;
        for (size_t k = 0; k < p->j->keys; k++)
            memcpy(to + k * p->j->values, p->state + k * p->j->values,
                   p->n * sizeof(*to));
    }
}

/* ---- a state [keys][values] for each head ---- */

/* One row of NV vectors, of which the last has TAIL columns. */
static inline __attribute__((always_inline)) void
matrix_row(const struct part *p, size_t row, size_t nv, size_t tail)
{
    const struct job *j = p->j;
    const struct cpu_scan *c = j->c;
    size_t width = j->heads * j->values, keys = j->keys,
           group = p->head / j->inst->scan.within,
           groups = j->heads / j->inst->scan.within, each = j->inst->scan.each;
    const float *v = c->x[0] + row * width + p->head * j->values + p->at;
    const float *k = c->x[1] + (row * groups + group) * keys;
    const float *q = c->x[2] + (row * groups + group) * keys;
    const float *decay = j->decay + (row * j->heads + p->head) * (each ? keys : 1);
    float *y = c->y + row * width + p->head * j->values + p->at;
    vec in[4], out[4], x[4];

    for (size_t i = 0; i < nv; i++) {
        load_some(&x[i], v + i * VEC, i + 1 < nv ? VEC : tail);
        in[i] = x[i];
        out[i] = (vec){ 0 };
    }
    if (j->inst->scan.kind == SCAN_DELTA) {
        float beta = c->x[4][row * j->heads + p->head];

        for (size_t n = 0; n < keys; n++) {
            float by = k[n] * (each ? decay[n] : 1);

            for (size_t i = 0; i < nv; i++) {
                vec s;

                load_some(&s, p->state + n * j->values + i * VEC,
                          i + 1 < nv ? VEC : tail);
                out[i] += s * by;
            }
        }
        for (size_t i = 0; i < nv; i++) {
            in[i] = beta * (x[i] - (each ? 1 : *decay) * out[i]);
            out[i] = (vec){ 0 };
        }
    } else if (j->dt) {
        for (size_t i = 0; i < nv; i++)
            in[i] = x[i] * j->dt[row * j->heads + p->head];
    }
    for (size_t n = 0; n < keys; n++) {
        float by = each ? decay[n] : *decay;

        for (size_t i = 0; i < nv; i++) {
            float *at = p->state + n * j->values + i * VEC;
            size_t some = i + 1 < nv ? VEC : tail;
            vec s;

            load_some(&s, at, some);
            s = s * by + in[i] * k[n];
            out[i] += s * q[n];
            store_some(at, &s, some);
        }
    }
    for (size_t i = 0; i < nv; i++) {
        if (j->skip)
            out[i] += x[i] * j->skip[p->head];
        store_some(y + i * VEC, &out[i], i + 1 < nv ? VEC : tail);
    }
}

CPU_CLONES static void matrix_part(const struct part *p, size_t row)
{
    size_t nv = (p->n + VEC - 1) / VEC, tail = p->n - (nv - 1) * VEC;

    if (p->n == 4 * (size_t)VEC)
        matrix_row(p, row, 4, VEC);
    else if (p->n == 2 * (size_t)VEC)
        matrix_row(p, row, 2, VEC);
    else if (p->n == VEC)
        matrix_row(p, row, 1, VEC);
    else
        matrix_row(p, row, nv, tail);
}

/* ---- each column is a head ---- */

CPU_CLONES static void selective_part(const struct part *p, size_t row)
{
    const struct job *j = p->j;
    const struct cpu_scan *c = j->c;
    const float *k = c->x[1] + row * j->keys, *q = c->x[2] + row * j->keys;
    float least = (float)j->inst->scan.least, most = (float)j->inst->scan.most;

    for (size_t i = 0; i < p->n; i += VEC) {
        size_t some = p->n - i, at = row * j->values + p->at + i;
        vec x, dt, out = { 0 };

        load_some(&x, c->x[0] + at, some);
        load_some(&dt, c->x[3] + at, some);
        vec_clamp(&dt, least, most);
        for (size_t n = 0; n < j->keys; n++) {
            float *to = p->state + n * j->values + i;
            vec s, by;

            load_some(&s, to, some);
            load_some(&by, j->rate + n * j->values + p->at + i, some);
            by *= dt;
            vec_exp(&by, &by);
            s = s * by + (dt * x) * k[n];
            out += s * q[n];
            store_some(to, &s, some);
        }
        if (j->skip) {
            vec skip;

            load_some(&skip, j->skip + p->at + i, some);
            out += x * skip;
        }
        store_some(c->y + at, &out, some);
    }
}

static void gated_part(const struct part *p, size_t row)
{
    const struct job *j = p->j;
    const struct cpu_scan *c = j->c;
    bool first = p->use->fresh && row == (size_t)p->use->row;

    for (size_t i = 0; i < p->n; i++) {
        size_t at = row * j->values + p->at + i;
        float log = c->x[1][at] * j->rate[p->at + i], in = c->x[2][at] * c->x[0][at];

        p->state[i] =
            first ? in : expf(log) * p->state[i] + sqrtf(-expm1f(2 * log)) * in;
        c->y[at] = p->state[i];
    }
}

/* The state is the numerator, the denominator and the exponent M that both are without.
 */
static void wkv_part(const struct part *p, size_t row)
{
    const struct job *j = p->j;
    const struct cpu_scan *c = j->c;
    bool first = p->use->fresh && row == (size_t)p->use->row;

    for (size_t i = 0; i < p->n; i++) {
        size_t at = row * j->values + p->at + i;
        float *num = &p->state[i], *den = num + j->values, *m = den + j->values;
        float k = c->x[0][at], v = c->x[1][at], u = k + j->skip[p->at + i], most, a, b;

        *m = first ? -1e38f : *m;
        most = fmaxf(*m, u);
        a = expf(*m - most);
        b = expf(u - most);
        c->y[at] = (a * *num + b * v) / (a * *den + b);
        most = fmaxf(*m + j->rate[p->at + i], k);
        a = expf(*m + j->rate[p->at + i] - most);
        b = expf(k - most);
        *num = a * *num + b * v;
        *den = a * *den + b;
        *m = most;
    }
}

/* ---- all kinds ---- */

static void (*const part_of[])(const struct part *p, size_t row) = {
    [SCAN_SSD] = matrix_part,   [SCAN_SELECTIVE] = selective_part,
    [SCAN_DELTA] = matrix_part, [SCAN_LIGHTNING] = matrix_part,
    [SCAN_GATED] = gated_part,  [SCAN_WKV] = wkv_part,
};

static void run_part(void *arg, size_t task, int thread)
{
    const struct job *j = arg;
    const struct states_view *s = j->c->state;
    size_t block = task % j->blocks, head = task / j->blocks % j->heads;
    struct part p = { .j = j,
                      .use = &s->use[task / j->blocks / j->heads],
                      .head = head,
                      .at = block * LANES };
    int32_t saved = 0;

    (void)thread;
    p.n = j->values - p.at < LANES ? j->values - p.at : LANES;
    p.state = s->memory + (size_t)p.use->record * state_size(j) +
              head * j->keys * j->values + p.at;
    for (size_t k = 0; k < j->keys && p.use->fresh; k++)
        memset(p.state + k * j->values, 0, p.n * sizeof(*p.state));
    for (int32_t i = 0; i < p.use->rows; i++) {
        part_of[j->inst->scan.kind](&p, (size_t)(p.use->row + i));
        save_state(&p, (size_t)(p.use->row + i), &saved);
    }
}

/* ---- what a call computes first ---- */

static bool has_matrix(const struct inst *inst)
{
    return inst->scan.kind == SCAN_SSD || inst->scan.kind == SCAN_DELTA ||
           inst->scan.kind == SCAN_LIGHTNING;
}

struct sizes {
    uint64_t rate, skip, decay, dt; /* numbers */
};

static struct sizes sizes_of(const struct inst *inst, uint64_t rows)
{
    uint64_t heads = inst->scan.heads, all = inst->scan.keys * inst->scan.values;

    if (!has_matrix(inst))
        return (struct sizes){ .rate = inst->scan.kind == SCAN_SELECTIVE
                                           ? all
                                           : inst->scan.values,
                               .skip = inst->scan.values };
    return (struct sizes){ .rate = heads,
                           .skip = heads,
                           .decay =
                               rows * heads * (inst->scan.each ? inst->scan.keys : 1),
                           .dt = rows * heads };
}

uint64_t cpu_scan_room(const struct inst *inst, uint64_t rows)
{
    struct sizes n = sizes_of(inst, rows);

    /* weights are widened to where they are, but for the rates [values][keys] */
    return (2 * n.rate + n.skip + n.decay + n.dt + 1) * sizeof(float);
}

/* Sets RATE, whose N numbers are first widened to SCRATCH. */
static void set_rates(const struct inst *inst, const struct matrix *w, float *rate,
                      float *scratch, size_t n)
{
    const float *from = w ? cpu_widen(w, 0, n, scratch) : NULL;
    size_t keys = inst->scan.keys, values = inst->scan.values;

    for (size_t i = 0; i < n; i++)
        switch (inst->scan.kind) {
        case SCAN_LIGHTNING:
            rate[i] = (float)(-inst->scan.slope *
                              exp2(-8 * (double)(inst->scan.first + i + 1) /
                                   (double)inst->scan.all));
            break;
        case SCAN_SELECTIVE:
            rate[i] = -expf(from[i % values * keys + i / values]);
            break;
        case SCAN_GATED:
            rate[i] = -8 * activation_softplus(from[i]);
            break;
        case SCAN_SSD:
        case SCAN_DELTA:
        case SCAN_WKV:
        case SCAN_KINDS:
            rate[i] = -expf(from[i]);
            break;
        }
}

struct steps {
    const struct inst *inst;
    const float *dt, *rate; /* dt NULL: 1 */
    float *decay, *to;
    size_t heads, each;
};

static void set_steps(void *arg, size_t row, int thread)
{
    const struct steps *s = arg;
    double least = s->inst->scan.least, most = s->inst->scan.most;

    (void)thread;
    for (size_t h = 0; h < s->heads; h++)
        for (size_t k = 0; k < s->each; k++) {
            size_t at = (row * s->heads + h) * s->each + k;
            float dt = s->dt ? s->dt[at] : 1;

            dt = dt < least ? (float)least : dt > most ? (float)most : dt;
            s->decay[at] = expf(dt * s->rate[h]);
            if (s->each == 1)
                s->to[at] = dt;
        }
}

int cpu_scan(struct device *d, const struct inst *inst, const struct cpu_scan *c,
             struct err *err)
{
    struct sizes n = sizes_of(inst, c->rows);
    float *room = cpu_take(d, cpu_scan_room(inst, c->rows), "a scan", err);
    struct job j = { .inst = inst,
                     .c = c,
                     .heads = inst->scan.heads,
                     .keys = inst->scan.keys,
                     .values = inst->scan.values };
    float *rate = room, *skip, *decay;

    if (!room)
        return -1;
    skip = room + 2 * n.rate;
    decay = skip + n.skip;
    set_rates(inst, c->w, rate, room + n.rate, n.rate);
    j.rate = rate;
    j.skip = c->w2 ? cpu_widen(c->w2, 0, n.skip, skip) : NULL;
    j.blocks = (j.values + LANES - 1) / LANES;
    if (has_matrix(inst)) {
        struct steps s = { .inst = inst,
                           .dt = inst->nsrc > 3 ? c->x[3] : NULL,
                           .rate = rate,
                           .decay = decay,
                           .to = decay + n.decay,
                           .heads = j.heads,
                           .each = inst->scan.each ? j.keys : 1 };

        cpu_parallel(d, c->rows, set_steps, &s);
        j.decay = decay;
        j.dt = inst->scan.kind == SCAN_SSD ? s.to : NULL;
    }
    cpu_parallel(d, c->state->n * j.heads * j.blocks, run_part, &j);
    cpu_give(d, room);
    return 0;
}
