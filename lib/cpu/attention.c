/* attention - softmax(scale * q k^T) v over the keys each query may see
 *
 * Vaswani et al. 2017, eq. 1; heads in groups share keys and values (Ainslie et al.
 * 2023).  One query of one head at a time, threads over (query, head). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/vec.h"

#ifdef _OPENMP
#include <omp.h>
#endif

CPU_CLONES static float dot(const float *a, const float *b, size_t n)
{
    vec s = { 0 }, x, y;
    float tail = 0;
    size_t k = 0;

    for (; k + VEC <= n; k += VEC) {
        vec_load_f32(&x, a + k);
        vec_load_f32(&y, b + k);
        s += x * y;
    }
    for (; k < n; k++)
        tail += a[k] * b[k];
    return vec_sum(&s) + tail;
}

CPU_CLONES static void add_scaled(float *y, const float *x, float f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += f * x[i];
}

/* One query of one head: y[value_dim].  SCORE has room for the keys from FIRST to END.
 */
static void one(float *y, const float *q, const struct inst *inst, const float *k,
                size_t k_stride, const float *v, size_t v_stride, size_t first,
                size_t end, float *score)
{
    float cap = (float)inst->attention.softcap, scale = (float)inst->attention.scale;
    size_t value_dim = inst->attention.value_dim;
    float max = -INFINITY;
    double sum = 0;

    for (size_t t = first; t < end; t++) {
        float s = scale * dot(q, k + t * k_stride, inst->attention.head_dim);

        if (cap > 0)
            s = cap * tanhf(s / cap);
        score[t - first] = s;
        max = s > max ? s : max;
    }
    for (size_t t = first; t < end; t++) {
        score[t - first] = expf(score[t - first] - max);
        sum += (double)score[t - first];
    }
    memset(y, 0, value_dim * sizeof(*y));
    for (size_t t = first; t < end; t++)
        add_scaled(y, v + t * v_stride, (float)((double)score[t - first] / sum),
                   value_dim);
}

int cpu_attention(float *y, const float *q, const struct inst *inst,
                  const struct attention_step *step, struct err *err)
{
    size_t heads = inst->attention.heads, kv_heads = inst->attention.kv_heads;
    size_t dim = inst->attention.head_dim, value_dim = inst->attention.value_dim;
    size_t per_kv = kv_heads ? heads / kv_heads : 1;
    float *score;
    int threads = 1;

#ifdef _OPENMP
    threads = omp_get_max_threads();
#endif
    if (!heads || !step->rows)
        return 0;
    score = mem_alloc((uint64_t)threads * step->keys * sizeof(*score),
                      "attention scores", err);
    if (!score)
        return -1;
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads)
    for (long i = 0; i < (long)(step->rows * heads); i++) {
        size_t row = (size_t)i / heads, head = (size_t)i % heads, kv = head / per_kv;
        size_t position = (size_t)step->position[row], first = 0, end = step->keys;
        uint64_t window = inst->attention.window;
        float *mine = score;

#ifdef _OPENMP
        mine += (size_t)omp_get_thread_num() * step->keys;
#endif
        if (inst->attention.causal && position + 1 < end)
            end = position + 1;
        if (window && position + 1 > window)
            first = position + 1 - window;
        if (window && !inst->attention.causal && position + window < end)
            end = position + window;
        one(y + ((size_t)row * heads + head) * value_dim,
            q + ((size_t)row * heads + head) * dim, inst, step->k + kv * dim,
            kv_heads * dim, step->v + kv * value_dim, kv_heads * value_dim, first, end,
            mine);
    }
    free(score);
    return 0;
}
