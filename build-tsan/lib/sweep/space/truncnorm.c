/* truncnorm - the normal distribution cut to an interval, in the log domain */
#include <float.h>
#include <math.h>

#include "lib/sweep/space/truncnorm.h"

static const double LOG_SQRT_2PI = 0.91893853320467274178;
static const double SQRT1_2 = 0.70710678118654752440;
static const double SQRT3_OVER_PI = 0.55132889542179204;

static double cdf(double a)
{
    return 0.5 * erfc(-a * SQRT1_2);
}

/* The asymptotic series of Mills' ratio (Abramowitz and Stegun 26.2.12), for a << 0. */
static double log_cdf_tail(double a)
{
    double term = 1, sum = 1, inverse = 1 / (a * a);

    for (int i = 1; i < 60; i++) {
        double next = -term * (2 * i - 1) * inverse;

        if (fabs(next) < DBL_EPSILON || fabs(next) >= fabs(term))
            break;
        term = next;
        sum += term;
    }
    return -0.5 * a * a - log(-a) - LOG_SQRT_2PI + log(sum);
}

double truncnorm_log_cdf(double a)
{
    if (a > 6)
        return log1p(-cdf(-a));
    if (a > -20)
        return log(cdf(a));
    return log_cdf_tail(a);
}

double truncnorm_log_mass(double a, double b)
{
    double left, right;

    if (!(a < b))
        return -INFINITY;
    if (a > 0) { /* mirrored, so that both ends are small numbers */
        double swap = a;

        a = -b;
        b = -swap;
    }
    if (b > 0)
        return log1p(-cdf(a) - cdf(-b));
    left = truncnorm_log_cdf(a);
    right = truncnorm_log_cdf(b);
    return right + log1p(-exp(left - right));
}

/* The x with log cdf(x) = y, by Newton's method on the concave log cdf. */
static double log_cdf_inverse(double y)
{
    double z = y, x;
    int flip = y > -0.01;

    if (y >= 0)
        return INFINITY;
    if (!(y > -INFINITY))
        return -INFINITY;
    if (flip)
        z = log(-expm1(y));
    if (z < -5)
        x = -sqrt(-2 * (z + LOG_SQRT_2PI));
    else /* the logistic distribution of the same variance is near */
        x = -SQRT3_OVER_PI * log(expm1(-z));
    for (int i = 0; i < 100; i++) {
        double f = truncnorm_log_cdf(x);
        double step = (f - z) * exp(f + 0.5 * x * x + LOG_SQRT_2PI);

        x -= step;
        if (fabs(step) < 1e-8 * fabs(x))
            break;
    }
    return flip ? -x : x;
}

static double log_add(double p, double q)
{
    double high = fmax(p, q), low = fmin(p, q);

    return high == -INFINITY ? high : high + log1p(exp(low - high));
}

double truncnorm_quantile(double q, double a, double b)
{
    double mass, x;

    if (q <= 0)
        return a;
    if (q >= 1)
        return b;
    mass = truncnorm_log_mass(a, b);
    if (a < 0)
        x = log_cdf_inverse(log_add(truncnorm_log_cdf(a), log(q) + mass));
    else
        x = -log_cdf_inverse(log_add(truncnorm_log_cdf(-b), log1p(-q) + mass));
    return fmin(fmax(x, a), b);
}
