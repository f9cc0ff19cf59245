/* norm - the two halves of RMS norm (Zhang and Sennrich 2019) and layer norm (Ba et al.
 * 2016)
 *
 * A norm is split where ranks may have to add their sums: group_sum makes the sums,
 * group_scale uses them. */
#include "lib/cpu/cpu.h"

void cpu_group_sum(double *sum, const float *x, const double *mean, size_t groups,
                   size_t width)
{
#pragma omp parallel for schedule(static) if (groups * width > 16384)
    for (long g = 0; g < (long)groups; g++) {
        const float *p = x + (size_t)g * width;
        double s = 0;

        for (size_t i = 0; i < width; i++) {
            double d = mean ? (double)p[i] - mean[g] : (double)p[i];

            s += mean ? d * d : d;
        }
        sum[g] = s;
    }
}

void cpu_group_scale(float *y, const float *x, const double *mean, const double *factor,
                     size_t groups, size_t width, const struct matrix *w, double plus,
                     const struct matrix *b)
{
    size_t period = w ? w->cols : width; /* a cut norm's width is its weight's length */

#pragma omp parallel for schedule(static) if (groups * width > 16384)
    for (long g = 0; g < (long)groups; g++)
        for (size_t i = 0; i < width; i++) {
            size_t at = (size_t)g * width + i;
            double v = ((double)x[at] - (mean ? mean[g] : 0)) * factor[g];

            if (w)
                v *= dtype_get(w->dtype, w->data, i % period) + plus;
            if (b)
                v += dtype_get(b->dtype, b->data, i % period);
            y[at] = (float)v;
        }
}
