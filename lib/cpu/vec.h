/* vec - sixteen floats at a time, from weights of any stored type
 *
 * GCC vectors: the compiler makes AVX-512, AVX2 or SSE of them, as CPU_CLONES asks for.
 */
#ifndef LIB_CPU_VEC_H
#define LIB_CPU_VEC_H

#include <stdint.h>
#include <string.h>

#include "lib/base/dtype.h"

/* One copy of a function for each generation of x86-64, chosen when the program starts.
 */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define CPU_CLONES \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CPU_CLONES
#endif

enum { VEC = 16 };

typedef float vec __attribute__((vector_size(64)));
typedef uint32_t vec_u32 __attribute__((vector_size(64)));
typedef uint16_t vec_u16 __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) void vec_load_f32(vec *out, const float *p)
{
    memcpy(out, p, sizeof(*out));
}

/* bf16 is the upper half of an f32 */
static inline __attribute__((always_inline)) void vec_load_bf16(vec *out,
                                                                const uint16_t *p)
{
    vec_u16 h;
    vec_u32 w;

    memcpy(&h, p, sizeof(h));
    w = __builtin_convertvector(h, vec_u32) << 16;
    memcpy(out, &w, sizeof(*out));
}

/* f16: rebias the exponent by a multiplication, which also makes subnormals right */
static inline __attribute__((always_inline)) void vec_load_f16(vec *out,
                                                               const uint16_t *p)
{
    vec_u16 h;
    vec_u32 w, sign, mag, special;
    vec scaled;

    memcpy(&h, p, sizeof(h));
    w = __builtin_convertvector(h, vec_u32);
    sign = (w & 0x8000u) << 16;
    mag = (w & 0x7fffu) << 13;
    special = (vec_u32)((w & 0x7c00u) == 0x7c00u) & 0x70000000u; /* infinity, NaN */
    memcpy(&scaled, &mag, sizeof(scaled));
    scaled *= 0x1p112f;
    memcpy(&w, &scaled, sizeof(w));
    w = (w & ~((vec_u32)(special != 0u))) |
        ((mag | 0x7f800000u) & (vec_u32)(special != 0u));
    w |= sign;
    memcpy(out, &w, sizeof(*out));
}

/* The lanes added in a fixed tree. */
static inline __attribute__((always_inline)) float vec_sum(const vec *v)
{
    float a[VEC];

    memcpy(a, v, sizeof(a));
    for (int n = VEC / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            a[i] += a[i + n];
    return a[0];
}

#endif
