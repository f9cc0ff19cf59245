/* norm - the two halves of RMS norm (Zhang and Sennrich 2019) and layer norm (Ba et al.
 * 2016)
 *
 * A norm is split where ranks may have to add their sums: group_sum makes the sums,
 * group_scale uses them. */
#include "lib/cpu/cpu.h"
#include "lib/cpu/vec.h"

/* Eight sums side by side, added in order. */
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

void cpu_group_sum(double *sum, const float *x, const double *mean, size_t groups,
                   size_t width)
{
#pragma omp parallel for schedule(static) if (groups * width > 16384)
    for (long g = 0; g < (long)groups; g++) {
        const float *p = x + (size_t)g * width;

        sum[g] = mean ? squares(p, width, mean[g]) : total(p, width);
    }
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

void cpu_group_scale(float *y, const float *x, const double *mean, const double *factor,
                     size_t groups, size_t width, const struct matrix *w, double plus,
                     const struct matrix *b)
{
    enum { STEP = 512 };
    size_t period = w ? w->cols : width;

#pragma omp parallel for schedule(static) if (groups * width > 16384)
    for (long g = 0; g < (long)groups; g++)
        for (size_t i = 0; i < width; i += STEP) {
            size_t at = (size_t)g * width + i, n = width - i < STEP ? width - i : STEP;
            float wide[2][STEP];

            scale(y + at, x + at, n, mean ? mean[g] : 0, factor[g],
                  w ? cpu_widen(w, at % period, n, wide[0]) : NULL, plus,
                  b ? cpu_widen(b, at % period, n, wide[1]) : NULL);
        }
}
