/* norm - RMS norm (Zhang and Sennrich 2019) and layer norm (Ba et al. 2016), in halves
 *
 * The sums over the columns may have to be reduced over ranks: group_sum computes them,
 * group_scale normalizes with the result. */
#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"

enum { SHARE = 1 << 14 }; /* fewest elements of a task */

/* Sum of X, as eight partial sums that are added in order. */
CPU_CLONES static double total(const float *x, size_t n)
{
    double s[8] = { 0 }, all = 0;
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += (double)x[i + (size_t)k];
    for (; i < n; i++)
        all += (double)x[i];
    for (int k = 0; k < 8; k++)
        all += s[k];
    return all;
}

CPU_CLONES static double squares(const float *x, size_t n, double mean)
{
    double s[8] = { 0 }, all = 0;
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) {
            double d = (double)x[i + (size_t)k] - mean;

            s[k] += d * d;
        }
    for (; i < n; i++)
        all += ((double)x[i] - mean) * ((double)x[i] - mean);
    for (int k = 0; k < 8; k++)
        all += s[k];
    return all;
}

struct sums {
    double *sum;
    const float *x;
    const double *mean;
    size_t stride, groups, width, share; /* groups of a task */
};

static void sum_some(void *arg, size_t task, int thread)
{
    const struct sums *s = arg;
    size_t first = task * s->share, end = first + s->share;

    (void)thread;
    for (size_t g = first; g < end && g < s->groups; g++)
        s->sum[g] = s->mean ? squares(s->x + g * s->stride, s->width, s->mean[g])
                            : total(s->x + g * s->stride, s->width);
}

/* Groups of a task: enough to be worth a thread. */
static size_t share_of(size_t width)
{
    return 1 + SHARE / (width + 1);
}

void cpu_group_sum(struct device *d, double *sum, const float *x, size_t stride,
                   const double *mean, size_t groups, size_t width)
{
    struct sums s = { sum, x, mean, stride, groups, width, share_of(width) };

    cpu_parallel(d, (groups + s.share - 1) / s.share, sum_some, &s);
}

/* y = (x - mean) * factor * (w + plus) + b, W and B NULL or [n]. */
CPU_CLONES static void scale(float *y, const float *x, size_t n, double mean,
                             double factor, const float *w, double plus, const float *b)
{
    if (!w)
        for (size_t i = 0; i < n; i++)
            y[i] = (float)(((double)x[i] - mean) * factor);
    else if (!b)
        for (size_t i = 0; i < n; i++)
            y[i] = (float)(((double)x[i] - mean) * factor * ((double)w[i] + plus));
    else
        for (size_t i = 0; i < n; i++)
            y[i] = (float)(((double)x[i] - mean) * factor * ((double)w[i] + plus) +
                           (double)b[i]);
}

struct scaling {
    float *y;
    uint16_t *bf16; /* instead of y, or NULL */
    const float *x;
    const double *mean, *factor;
    size_t groups, width, share; /* groups of a task */
    const struct matrix *w, *b;
    double plus;
};

static void scale_group(const struct scaling *s, size_t g)
{
    enum { STEP = 512 };
    size_t period = s->w ? s->w->cols : s->width;

    for (size_t i = 0; i < s->width; i += STEP) {
        size_t at = g * s->width + i, n = s->width - i < STEP ? s->width - i : STEP;
        float wide[2][STEP], made[STEP], *y = s->bf16 ? made : s->y + at;

        scale(y, s->x + at, n, s->mean ? s->mean[g] : 0, s->factor[g],
              s->w ? cpu_widen(s->w, at % period, n, wide[0]) : NULL, s->plus,
              s->b ? cpu_widen(s->b, at % period, n, wide[1]) : NULL);
        if (s->bf16)
            cpu_round_bf16(s->bf16 + at, made, n);
    }
}

static void scale_some(void *arg, size_t task, int thread)
{
    const struct scaling *s = arg;
    size_t first = task * s->share, end = first + s->share;

    (void)thread;
    for (size_t g = first; g < end && g < s->groups; g++)
        scale_group(s, g);
}

void cpu_group_scale(struct device *d, void *y, enum format type, const float *x,
                     const double *mean, const double *factor, size_t groups,
                     size_t width, const struct matrix *w, double plus,
                     const struct matrix *b)
{
    struct scaling s = { .y = y,
                         .bf16 = type == FORMAT_BF16 ? y : NULL,
                         .x = x,
                         .mean = mean,
                         .factor = factor,
                         .groups = groups,
                         .width = width,
                         .share = share_of(width),
                         .w = w,
                         .b = b,
                         .plus = plus };

    cpu_parallel(d, (groups + s.share - 1) / s.share, scale_some, &s);
}
