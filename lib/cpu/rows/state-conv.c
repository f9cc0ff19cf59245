/* state-conv - causal convolutions over a sequence's last rows
 *
 * Each column has taps of its own: y[t] = sum over k of w[k] x[t + k - taps + 1].  The
 * taps - 1 rows before those of a step are the sequence's state, [taps - 1][cols], the
 * oldest first. */
#include <string.h>

#include "lib/cpu/cpu.h"

struct job {
    const struct cpu_tail *c;
    const float *w; /* [cols][taps] */
};

static size_t state_rows(const struct cpu_tail *c)
{
    return c->taps - 1;
}

static float *record_of(const struct cpu_tail *c, int32_t record)
{
    return c->state->memory + (size_t)record * state_rows(c) * c->cols;
}

/* Row AT of the sequence, counted from its first row in the step; before that comes the
 * state.  NULL: zeros. */
static const float *row_at(const struct cpu_tail *c, const struct state_use *u,
                           int64_t at)
{
    if (at >= 0)
        return c->x + ((size_t)u->row + (size_t)at) * c->cols;
    if (u->fresh)
        return NULL;
    return record_of(c, u->record) + (size_t)((int64_t)state_rows(c) + at) * c->cols;
}

static const struct state_use *use_of(const struct states_view *s, size_t row)
{
    const struct state_use *u = s->use;

    while ((size_t)(u->row + u->rows) <= row)
        u++;
    return u;
}

static void convolve_row(void *arg, size_t row, int thread)
{
    const struct job *j = arg;
    const struct cpu_tail *c = j->c;
    const struct state_use *u = use_of(c->state, row);
    int64_t at = (int64_t)row - u->row - (int64_t)state_rows(c);
    float *y = c->y + row * c->cols;

    (void)thread;
    memset(y, 0, c->cols * sizeof(*y));
    for (size_t k = 0; k < c->taps; k++) {
        const float *x = row_at(c, u, at + (int64_t)k);

        for (size_t i = 0; i < c->cols && x; i++)
            y[i] += j->w[i * c->taps + k] * x[i];
    }
}

/* Writes the state after row AT of the sequence.  In its own record every row comes
 * from a later one, which has not been written yet. */
static void write_state(const struct cpu_tail *c, const struct state_use *u, int64_t at,
                        int32_t record)
{
    float *to = record_of(c, record);
    size_t bytes = c->cols * sizeof(*to);

    for (size_t k = 0; k < state_rows(c); k++, to += c->cols) {
        const float *x = row_at(c, u, at + 1 + (int64_t)k - (int64_t)state_rows(c));

        if (x)
            memmove(to, x, bytes);
        else
            memset(to, 0, bytes);
    }
}

static void write_states(void *arg, size_t at, int thread)
{
    const struct job *j = arg;
    const struct state_use *u = &j->c->state->use[at];

    (void)thread;
    for (int32_t k = u->save; k < u->save + u->saves; k++)
        write_state(j->c, u, j->c->state->save[k].row - u->row,
                    j->c->state->save[k].record);
    write_state(j->c, u, u->rows - 1, u->record);
}

int cpu_causal_convolve(struct device *d, const struct cpu_tail *c, struct err *err)
{
    size_t n = c->cols * c->taps;
    float *w = cpu_take(d, (n + 1) * sizeof(*w), "taps of columns", err);
    struct job j = { .c = c };

    if (!w)
        return -1;
    j.w = cpu_widen(c->w, 0, n, w);
    cpu_parallel(d, c->rows, convolve_row, &j);
    cpu_parallel(d, c->state->n, write_states, &j);
    cpu_give(d, w);
    return 0;
}
