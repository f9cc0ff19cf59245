/* special - the beta distribution's quantiles */
#include <float.h>
#include <math.h>

#include "lib/sweep/space/special.h"

/* Lentz's evaluation of the continued fraction DLMF 8.17.22, x < (a+1)/(a+b+2). */
static double beta_fraction(double x, double a, double b)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1), f;

    d = 1 / (fabs(d) < tiny ? tiny : d);
    f = d;
    for (int m = 1; m < 10000; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        double change;

        d = 1 + even * d;
        c = 1 + even / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        f *= d * c;
        d = 1 + odd * d;
        c = 1 + odd / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        change = d * c;
        f *= change;
        if (fabs(change - 1) < 4 * DBL_EPSILON)
            break;
    }
    return f;
}

double special_beta_cdf(double x, double a, double b)
{
    double front;

    if (x <= 0)
        return 0;
    if (x >= 1)
        return 1;
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    if (x < (a + 1) / (a + b + 2))
        return front * beta_fraction(x, a, b) / a;
    return 1 - front * beta_fraction(1 - x, b, a) / b;
}

double special_beta_quantile(double u, double a, double b)
{
    double low = 0, high = 1;

    for (int i = 0; i < 1100 && high - low > DBL_EPSILON * low; i++) {
        double mid = low + (high - low) / 2;

        if (mid <= low || mid >= high)
            break;
        if (special_beta_cdf(mid, a, b) < u)
            low = mid;
        else
            high = mid;
    }
    return low + (high - low) / 2;
}
