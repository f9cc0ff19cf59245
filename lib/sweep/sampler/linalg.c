/* linalg - eigenvectors of small symmetric matrices */
#include <float.h>
#include <math.h>

#include "lib/sweep/sampler/linalg.h"

enum { SWEEPS = 60 };

/* Turn rows, or columns, P and Q of M by the angle (c, s). */
static void turn(double *m, size_t n, size_t p, size_t q, size_t along, size_t across,
                 double c, double s)
{
    for (size_t k = 0; k < n; k++) {
        double x = m[k * along + p * across], y = m[k * along + q * across];

        m[k * along + p * across] = c * x - s * y;
        m[k * along + q * across] = s * x + c * y;
    }
}

static void rotate(double *a, double *v, size_t n, size_t p, size_t q)
{
    double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
    double t = copysign(1, theta) / (fabs(theta) + hypot(1, theta));
    double c = 1 / hypot(1, t), s = t * c;

    turn(a, n, p, q, n, 1, c, s); /* columns */
    turn(a, n, p, q, 1, n, c, s); /* rows */
    turn(v, n, p, q, n, 1, c, s);
    a[p * n + q] = a[q * n + p] = 0;
}

void linalg_eigen(double *values, double *vectors, double *a, size_t n)
{
    for (size_t i = 0; i < n * n; i++)
        vectors[i] = i % (n + 1) == 0;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double off = 0, diagonal = 0;

        for (size_t p = 0; p < n; p++) {
            diagonal += a[p * n + p] * a[p * n + p];
            for (size_t q = p + 1; q < n; q++)
                off += a[p * n + q] * a[p * n + q];
        }
        if (!(off > DBL_EPSILON * DBL_EPSILON * diagonal * 1e-4))
            break;
        for (size_t p = 0; p < n; p++)
            for (size_t q = p + 1; q < n; q++)
                if (a[p * n + q] != 0)
                    rotate(a, vectors, n, p, q);
    }
    for (size_t i = 0; i < n; i++)
        values[i] = a[i * n + i];
}
