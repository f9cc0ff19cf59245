/* softmax - weights of scores */
#include <math.h>
#include <string.h>

#include "lib/cpu/attention/attention.h"
#include "lib/cpu/simd/vec.h"

/* Scales the scores, caps them unless CAP is 0, and returns the largest. */
CPU_CLONES static float scale_scores(float *s, size_t n, float scale, float cap)
{
    float max = -INFINITY;
    vec most = { 0 };
    size_t i = 0;

    most += max;
    for (; i + VEC <= n; i += VEC) {
        vec v;

        vec_load_f32(&v, s + i);
        v *= scale;
        if (cap > 0)
            vec_cap(&v, cap);
        memcpy(s + i, &v, sizeof(v));
        vec_raise(&most, &v);
    }
    max = vec_largest(&most, max);
    for (; i < n; i++) {
        s[i] *= scale;
        if (cap > 0)
            s[i] = cap * tanhf(s[i] / cap);
        max = s[i] > max ? s[i] : max;
    }
    return max;
}

/* Replaces the scores S[n] by weights, which sum to 1 together with the weight of SINK
 * (-INFINITY: no sink).  Returns the log of the sum of exponentials. */
CPU_CLONES float softmax_scores(float *s, size_t n, float scale, float cap, float sink)
{
    float max = scale_scores(s, n, scale, cap), factor;
    vec_double low = { 0 }, high = { 0 };
    double sum = 0;
    size_t i = 0;

    if (sink > max)
        max = sink;
    if (sink > -INFINITY)
        sum = (double)expf(sink - max);

    for (; i + VEC <= n; i += VEC) {
        vec_half half[2];
        vec v;

        vec_load_f32(&v, s + i);
        v -= max;
        vec_exp(&v, &v);
        memcpy(s + i, &v, sizeof(v));
        memcpy(half, &v, sizeof(half));
        low += __builtin_convertvector(half[0], vec_double);
        high += __builtin_convertvector(half[1], vec_double);
    }
    low += high;
    for (int k = 0; k < VEC / 2; k++)
        sum += low[k];
    for (; i < n; i++) {
        s[i] = expf(s[i] - max);
        sum += (double)s[i];
    }
    factor = (float)(1 / sum);
    for (i = 0; i + VEC <= n; i += VEC) {
        vec v;

        vec_load_f32(&v, s + i);
        v *= factor;
        memcpy(s + i, &v, sizeof(v));
    }
    for (; i < n; i++)
        s[i] *= factor;
    return sum > 0 ? max + (float)log(sum) : -INFINITY;
}

void cpu_softmax_row(float *s, size_t n, float scale)
{
    float most = -INFINITY;
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        most = s[i] > most ? s[i] : most;
    for (size_t i = 0; i < n; i++) {
        s[i] = expf((s[i] - most) * scale);
        sum += (double)s[i];
    }
    for (size_t i = 0; i < n; i++)
        s[i] = (float)((double)s[i] / sum);
}
