/* widen - weights of any stored type as f32 */
#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"

CPU_CLONES static void widen_bf16(float *out, const uint16_t *p, size_t n)
{
    size_t i = 0;

    for (; i + VEC <= n; i += VEC) {
        vec v;

        vec_load_bf16(&v, p + i);
        memcpy(out + i, &v, sizeof(v));
    }
    for (; i < n; i++)
        out[i] = dtype_bf16_to_f32(p[i]);
}

CPU_CLONES static void widen_f16(float *out, const uint16_t *p, size_t n)
{
    size_t i = 0;

    for (; i + VEC <= n; i += VEC) {
        vec v;

        vec_load_f16(&v, p + i);
        memcpy(out + i, &v, sizeof(v));
    }
    for (; i < n; i++)
        out[i] = dtype_f16_to_f32(p[i]);
}

const float *cpu_widen(const struct matrix *w, uint64_t at, size_t n, float *scratch)
{
    if (w->format == FORMAT_F32)
        return (const float *)w->data + at;
    if (w->format == FORMAT_BF16)
        widen_bf16(scratch, (const uint16_t *)w->data + at, n);
    else
        widen_f16(scratch, (const uint16_t *)w->data + at, n);
    return scratch;
}
