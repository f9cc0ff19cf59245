/* linalg - eigenvectors and Cholesky factors of small symmetric matrices */
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

/* Two numbers, as every processor with vectors adds at once. */
typedef double pair __attribute__((vector_size(16), aligned(8), may_alias));

/* Eight sums side by side, for one would wait for each of its additions. */
static double dot(const double *a, const double *b, size_t n)
{
    pair s0 = { 0, 0 }, s1 = s0, s2 = s0, s3 = s0;
    size_t k = 0;
    double rest = 0;

    for (; k + 8 <= n; k += 8) {
        const pair *x = (const pair *)(a + k), *y = (const pair *)(b + k);

        s0 += x[0] * y[0];
        s1 += x[1] * y[1];
        s2 += x[2] * y[2];
        s3 += x[3] * y[3];
    }
    for (; k < n; k++)
        rest += a[k] * b[k];
    s0 = (s0 + s1) + (s2 + s3);
    return s0[0] + s0[1] + rest;
}

/* The products of A with B and with C, which read A once. */
static void dots(double out[2], const double *a, const double *b, const double *c,
                 size_t n)
{
    pair s0 = { 0, 0 }, s1 = s0, s2 = s0, t0 = s0, t1 = s0, t2 = s0;
    size_t k = 0;

    for (; k + 6 <= n; k += 6) {
        const pair *x = (const pair *)(a + k), *y = (const pair *)(b + k);
        const pair *z = (const pair *)(c + k);

        s0 += x[0] * y[0];
        t0 += x[0] * z[0];
        s1 += x[1] * y[1];
        t1 += x[1] * z[1];
        s2 += x[2] * y[2];
        t2 += x[2] * z[2];
    }
    out[0] = out[1] = 0;
    for (; k < n; k++) {
        out[0] += a[k] * b[k];
        out[1] += a[k] * c[k];
    }
    s0 += s1 + s2;
    t0 += t1 + t2;
    out[0] += s0[0] + s0[1];
    out[1] += t0[0] + t0[1];
}

bool linalg_cholesky(double *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double *row = a + i * n, sum[2];
        size_t j = 0;

        for (; j + 2 <= i; j += 2) {
            const double *next = a + (j + 1) * n;

            dots(sum, row, a + j * n, next, j);
            row[j] = (row[j] - sum[0]) / a[j * n + j];
            row[j + 1] = (row[j + 1] - sum[1] - row[j] * next[j]) / next[j + 1];
        }
        for (; j < i; j++)
            row[j] = (row[j] - dot(row, a + j * n, j)) / a[j * n + j];
        a[i * n + i] -= dot(a + i * n, a + i * n, i);
        if (!(a[i * n + i] > 0))
            return false;
        a[i * n + i] = sqrt(a[i * n + i]);
    }
    return true;
}

void linalg_solve_lower(const double *l, double *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        b[i] = (b[i] - dot(l + i * n, b, i)) / l[i * n + i];
}

void linalg_solve_upper(const double *l, double *b, size_t n)
{
    for (size_t i = n; i-- > 0;) { /* along the rows of L, which are columns here */
        b[i] /= l[i * n + i];
        for (size_t k = 0; k < i; k++)
            b[k] -= l[i * n + k] * b[i];
    }
}

void linalg_inverse(double *out, const double *l, size_t n)
{
    /* Row i of OUT is first column i of L^-1, from its diagonal on: OUT[i][k], k >= i.
     * Its upper triangle is room that the product below has read by the time it
     * writes the lower one. */
    for (size_t i = 0; i < n; i++) {
        double *column = out + i * n, sum[2];
        size_t k = i + 1;

        column[i] = 1 / l[i * n + i];
        for (; k + 2 <= n; k += 2) {
            const double *row = l + k * n, *next = row + n;

            dots(sum, column + i, row + i, next + i, k - i);
            column[k] = -sum[0] / row[k];
            column[k + 1] = -(sum[1] + next[k] * column[k]) / next[k + 1];
        }
        for (; k < n; k++)
            column[k] = -dot(l + k * n + i, column + i, k - i) / l[k * n + k];
    }
    for (size_t i = n; i-- > 0;) { /* (L^-1)' L^-1, whose diagonals are read last */
        size_t j = 0;

        for (; j + 2 <= i; j += 2) {
            double sum[2];

            dots(sum, out + i * n + i, out + j * n + i, out + (j + 1) * n + i, n - i);
            out[i * n + j] = sum[0];
            out[i * n + j + 1] = sum[1];
        }
        for (; j < i; j++)
            out[i * n + j] = dot(out + i * n + i, out + j * n + i, n - i);
    }
    for (size_t i = 0; i < n; i++)
        out[i * n + i] = dot(out + i * n + i, out + i * n + i, n - i);
}
