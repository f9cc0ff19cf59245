/* balance - how evenly a router spreads rows over its experts
 *
 * Over N rows of all layers, f_e is the share of rows that chose expert e, and P_e the
 * mean of its softmax: the balance loss is E sum_e f_e P_e (Fedus et al. 2021, "Switch
 * Transformers", equation 4).  The z-loss is the mean of (log sum_e exp(a_e))^2 (Zoph
 * et al. 2022, "ST-MoE", equation 5). */
#include <math.h>
#include <string.h>

#include "lib/cpu/cpu.h"

enum { PART = 256 }; /* experts at once */

/* Adds softmax(X[COLS]), its part of EXPERTS from AT, to SUM; returns log sum exp. */
static double add_softmax(double *sum, const float *x, size_t cols, size_t at,
                          size_t experts)
{
    double max = (double)cpu_largest(x, cols), all = 0;

    for (size_t e = 0; e < cols; e++)
        all += exp((double)x[e] - max);
    for (size_t e = 0; e < experts; e++)
        sum[e] += exp((double)x[at + e] - max) / all;
    return max + log(all);
}

static void count_chosen(float *y, const int32_t *choice, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (choice[i] >= 0)
            y[choice[i]]++;
}

int kernel_router_sums(struct device *d, const struct call *c, struct err *err)
{
    const float *x = c->x[0].data;
    size_t rows = (size_t)*c->x[0].rows, cols = c->x[0].cols;
    float *y = c->y.data;

    (void)d;
    (void)err;
    memset(y, 0, (size_t)*c->y.rows * c->y.cols * sizeof(*y));
    count_chosen(y, c->x[1].data, rows * c->x[1].cols);
    for (size_t at = 0; at < cols; at += PART) {
        size_t some = cols - at < PART ? cols - at : PART;
        double sum[PART] = { 0 }, squares = 0;

        for (size_t t = 0; t < rows; t++) {
            double lse = add_softmax(sum, x + t * cols, cols, at, some);

            squares += lse * lse;
        }
        for (size_t e = 0; e < some; e++)
            y[cols + at + e] = (float)sum[e];
        y[2 * cols] = (float)squares;
    }
    return 0;
}

/* The rows that the sums at X, of EXPERTS, are over: each chose TOP experts. */
static double rows_of_sums(const float *x, size_t experts, uint64_t top)
{
    double n = 0;

    for (size_t e = 0; e < experts; e++)
        n += (double)x[e];
    return n / (double)top;
}

int kernel_balance(struct device *d, const struct call *c, struct err *err)
{
    const float *x = c->x[0].data;
    size_t experts = (c->x[0].cols - 1) / 2;
    double n = rows_of_sums(x, experts, c->inst->top), sum = 0;
    float *y = c->y.data;

    (void)d;
    (void)err;
    memset(y, 0, (size_t)*c->y.rows * c->y.cols * sizeof(*y));
    for (size_t e = 0; e < experts; e++)
        sum += (double)x[e] * (double)x[experts + e];
    if (n > 0) {
        y[0] = (float)((double)experts * sum / (n * n));
        y[1] = (float)((double)x[2 * experts] / n);
    }
    return 0;
}

/* ---- the reverse ---- */

/* Whom a row chose is no function of the logits. */
int kernel_balance_back(struct device *d, const struct call *c, struct err *err)
{
    const float *x = c->x[0].data, *factor = c->step->factor;
    size_t experts = (c->x[0].cols - 1) / 2;
    double n = rows_of_sums(x, experts, c->inst->top);
    float *y = c->y.data;

    (void)d;
    (void)err;
    memset(y, 0, (size_t)*c->y.rows * c->y.cols * sizeof(*y));
    for (size_t e = 0; e < experts && n > 0; e++)
        y[experts + e] = (float)((double)factor[FACTOR_BALANCE] * (double)experts *
                                 (double)x[e] / (n * n));
    if (n > 0)
        y[2 * experts] = (float)((double)factor[FACTOR_ROUTER_Z] / n);
    return 0;
}

/* Task: of row T, p (g - sum p g) + 2 log sum exp(a) h p, where p = softmax(a), and g
 * and h are the gradients of the sums of p and of the squares. */
static void sums_row_back(void *arg, size_t t, int thread)
{
    const struct call *c = arg;
    size_t cols = c->y.cols;
    const float *g = (const float *)c->x[0].data + cols;
    const float *x = (const float *)c->x[1].data + t * cols;
    float *y = (float *)c->y.data + t * cols;
    double max = (double)cpu_largest(x, cols), all = 0, mean = 0, by;

    (void)thread;
    for (size_t e = 0; e < cols; e++) {
        double p = exp((double)x[e] - max);

        all += p;
        mean += p * (double)g[e];
    }
    by = 2 * (max + log(all)) * (double)g[cols] - mean / all;
    for (size_t e = 0; e < cols; e++)
        y[e] = (float)(exp((double)x[e] - max) / all * ((double)g[e] + by));
}

int kernel_router_sums_back(struct device *d, const struct call *c, struct err *err)
{
    struct call call = *c;

    (void)err;
    cpu_parallel(d, (size_t)*c->y.rows, sums_row_back, &call);
    return 0;
}

int kernel_router_load(struct device *d, const struct call *c, struct err *err)
{
    const int32_t *choice = c->x[0].data;
    float *y = c->y.data;

    (void)d;
    (void)err;
    for (size_t i = 0; i < (size_t)*c->x[0].rows * c->x[0].cols; i++)
        if (choice[i] >= 0)
            y[choice[i]] += c->step->factor[FACTOR_LOAD];
    return 0;
}
