/* minimize - the lowest place of a smooth function in a box */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/sweep/sampler/minimize.h"

enum { MEMORY = 8, HALVINGS = 20 };

static const double FLAT = 1e-5;    /* a gradient that needs no further step */
static const double ARMIJO = 1e-4;  /* the part of the promised gain that is asked */
static const double CAUTIOUS = 0.1; /* how far the first step goes at most */

struct state {
    size_t n;
    bool *held;         /* [n]: at a bound, and the way down leads outside */
    double *s, *y;      /* [MEMORY][n]: steps and changes of the gradient */
    double rho[MEMORY]; /* 1 / (s'y) */
    int count;          /* kept in all; slot k % MEMORY is that of number k */
    double *way;        /* [n] */
};

static double dot(const struct state *st, const double *a, const double *b)
{
    double sum = 0;

    for (size_t i = 0; i < st->n; i++)
        sum += st->held[i] ? 0 : a[i] * b[i];
    return sum;
}

/* way = -H g on the variables that are free (algorithm 7.4). */
static void direction(struct state *st, const double *g)
{
    int first = st->count > MEMORY ? st->count - MEMORY : 0;
    double alpha[MEMORY];

    for (size_t i = 0; i < st->n; i++)
        st->way[i] = st->held[i] ? 0 : -g[i];
    for (int k = st->count; k-- > first;) {
        int slot = k % MEMORY;
        const double *y = st->y + (size_t)slot * st->n;

        alpha[slot] = st->rho[slot] * dot(st, st->s + (size_t)slot * st->n, st->way);
        for (size_t i = 0; i < st->n; i++)
            st->way[i] -= st->held[i] ? 0 : alpha[slot] * y[i];
    }
    if (st->count > 0) {
        int slot = (st->count - 1) % MEMORY;
        const double *y = st->y + (size_t)slot * st->n;
        double square = dot(st, y, y);

        for (size_t i = 0; square > 0 && i < st->n; i++)
            st->way[i] /= st->rho[slot] * square;
    }
    for (int k = first; k < st->count; k++) {
        int slot = k % MEMORY;
        const double *s = st->s + (size_t)slot * st->n;
        double beta = st->rho[slot] * dot(st, st->y + (size_t)slot * st->n, st->way);

        for (size_t i = 0; i < st->n; i++)
            st->way[i] += st->held[i] ? 0 : (alpha[slot] - beta) * s[i];
    }
}

/* Note which variables are held; returns the largest gradient of the others. */
static double hold(struct state *st, const double *x, const double *g,
                   const double *low, const double *high)
{
    double most = 0;

    for (size_t i = 0; i < st->n; i++) {
        st->held[i] = (x[i] <= low[i] && g[i] > 0) || (x[i] >= high[i] && g[i] < 0);
        if (!st->held[i])
            most = fmax(most, fabs(g[i]));
    }
    return most;
}

static void keep(struct state *st, const double *x0, const double *x1, const double *g0,
                 const double *g1)
{
    int slot = st->count % MEMORY;
    double *s = st->s + (size_t)slot * st->n, *y = st->y + (size_t)slot * st->n;
    double sy = 0, yy = 0;

    for (size_t i = 0; i < st->n; i++) {
        s[i] = x1[i] - x0[i];
        y[i] = g1[i] - g0[i];
        sy += s[i] * y[i];
        yy += y[i] * y[i];
    }
    if (!(sy > 1e-12 * yy))
        return; /* no curvature to learn from */
    st->rho[slot] = 1 / sy;
    st->count++;
}

/* One step from X, whose gradient is G, to X1; returns the value there, or that of X
 * when nothing lower is found. */
static double step(struct state *st, double *x1, double *g1, const double *x,
                   const double *g, double value, const double *low, const double *high,
                   minimize_function f, void *context)
{
    double length = 1, downhill = dot(st, st->way, g);

    if (!(downhill < 0)) { /* the memory misleads: straight down */
        st->count = 0;
        for (size_t i = 0; i < st->n; i++)
            st->way[i] = st->held[i] ? 0 : -g[i];
    }
    if (st->count == 0) {
        double most = 0;

        for (size_t i = 0; i < st->n; i++)
            most = fmax(most, fabs(st->way[i]));
        length = fmin(1, CAUTIOUS / most);
    }
    for (int k = 0; k < HALVINGS; k++, length /= 2) {
        double promised = 0, found;

        for (size_t i = 0; i < st->n; i++) {
            x1[i] = fmin(fmax(x[i] + length * st->way[i], low[i]), high[i]);
            promised += g[i] * (x1[i] - x[i]);
        }
        found = f(context, x1, g1);
        if (found <= value + ARMIJO * promised && found < value)
            return found;
    }
    return value;
}

double minimize(double *x, size_t n, const double *low, const double *high,
                minimize_function f, void *context, double level, int steps)
{
    struct state st = { .n = n };
    double *room = xcalloc(n * (5 + 2 * MEMORY) + 1, sizeof(*room));
    double *g = room, *x1 = g + n, *g1 = x1 + n, value;

    st.way = g1 + n;
    st.s = st.way + n;
    st.y = st.s + MEMORY * n;
    st.held = xcalloc(n + 1, sizeof(*st.held));
    value = f(context, x, g);
    for (int k = 0; k < steps && isfinite(value); k++) {
        double next;

        if (hold(&st, x, g, low, high) < FLAT)
            break;
        direction(&st, g);
        next = step(&st, x1, g1, x, g, value, low, high, f, context);
        if (!(next < value)) {
            if (st.count == 0)
                break;
            st.count = 0; /* once more, straight down */
            continue;
        }
        keep(&st, x, x1, g, g1);
        memcpy(x, x1, n * sizeof(*x));
        memcpy(g, g1, n * sizeof(*g));
        if (value - next < level * (1 + fabs(value))) {
            value = next;
            break;
        }
        value = next;
    }
    free(room);
    free(st.held);
    return value;
}
