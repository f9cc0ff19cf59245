/* vec - sixteen floats at a time, loaded from any stored type of weights
 *
 * GCC vectors: the compiler lowers them to AVX-512, AVX2 or SSE (see CPU_CLONES).  What
 * needs all registers has loops of its own for AVX-512 (CPU_WIDE) and AVX2 (avx2.h). */
#ifndef LIB_CPU_SIMD_VEC_H
#define LIB_CPU_SIMD_VEC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/format.h"

/* Compiles a function once for each generation of x86-64; the loader chooses one.  That
 * is before ThreadSanitizer has begun, and thrice the work for each sanitizer: builds
 * with these are for one generation, CPU_GENERATION (3 or 4), or for any x86-64. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    (defined(CPU_GENERATION) ||                                        \
     !(defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)))
#ifndef CPU_GENERATION
#define CPU_CLONES \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#elif CPU_GENERATION == 3
#define CPU_CLONES __attribute__((target("arch=x86-64-v3")))
#else
#define CPU_CLONES __attribute__((target("arch=x86-64-v4")))
#endif
/* Compile a function for the newest generation only, or for the one before; call it if
 * cpu_is_wide(), or if cpu_has() is not CPU_ANY.  They round as the clones do. */
#define CPU_WIDE     __attribute__((target("arch=x86-64-v4")))
#define CPU_HALF     __attribute__((target("arch=x86-64-v3")))
#define CPU_HAS_WIDE 1
#else
#define CPU_CLONES
#define CPU_HAS_WIDE 0
#endif

enum { VEC = 16 };

typedef float vec __attribute__((vector_size(64)));
typedef double vec_double __attribute__((vector_size(64)));
typedef int64_t vec_i64 __attribute__((vector_size(64)));
typedef uint64_t vec_u64 __attribute__((vector_size(64)));
typedef float vec_half __attribute__((vector_size(32)));
typedef float vec_quarter __attribute__((vector_size(16)));
typedef int32_t vec_i32 __attribute__((vector_size(64)));
typedef uint32_t vec_u32 __attribute__((vector_size(64)));
typedef uint16_t vec_u16 __attribute__((vector_size(32)));
typedef uint16_t vec_pairs __attribute__((vector_size(64))); /* of bf16 */

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

/* Rounds each lane to the nearest bf16, ties to even.  A NaN stays NaN: if all bits of
 * the exponent are set, nothing is added that could carry into the exponent. */
static inline __attribute__((always_inline)) void vec_round_bf16(vec *v)
{
    vec_u32 w, add, quiet;
    vec_i32 special;

    memcpy(&w, v, sizeof(w));
    special = (vec_i32)((w & 0x7fffffffu) + 0x00800000u) >> 31;
    quiet = ((w & 0x7fffffffu) + 0x007fffffu) >> 31 << 22; /* nonzero for NaN only */
    add = (((w >> 16) & 1u) + 0x7fffu) & ~(vec_u32)special;
    w = ((w + add) | quiet) & 0xffff0000u;
    memcpy(v, &w, sizeof(*v));
}

/* Widens f16 in the lower halves of *h.  A multiplication rebiases the exponent and
 * also handles subnormals.  Infinities and NaN are then at least 0x1p16 and get all
 * bits of the exponent set.  This uses the sign of a sum, because without mask
 * registers the compiler turns a comparison into sixteen scalar operations. */
static inline __attribute__((always_inline)) void vec_widen_f16(vec *out,
                                                                const vec_u32 *h)
{
    vec_u32 w = *h, sign = (w & 0x8000u) << 16, mag = (w & 0x7fffu) << 13;
    vec_i32 special;
    vec scaled;

    memcpy(&scaled, &mag, sizeof(scaled));
    scaled *= 0x1p112f;
    memcpy(&w, &scaled, sizeof(w));
    special = (vec_i32)(w + 0x38800000u) >> 31; /* 0x1p16 is 0x47800000 */
    w |= ((vec_u32)special & 0x7f800000u) | sign;
    memcpy(out, &w, sizeof(*out));
}

static inline __attribute__((always_inline)) void vec_load_f16(vec *out,
                                                               const uint16_t *p)
{
    vec_u16 h;
    vec_u32 w;

    memcpy(&h, p, sizeof(h));
    w = __builtin_convertvector(h, vec_u32);
    vec_widen_f16(out, &w);
}

/* Widens the bf16 at the even positions of the 32 at P or, if ODD, at the odd ones: one
 * operation, no shuffle. */
static inline __attribute__((always_inline)) void vec_pair_bf16(vec *out, const void *p,
                                                                bool odd)
{
    vec_u32 w;

    memcpy(&w, p, sizeof(w));
    w = odd ? w & 0xffff0000u : w << 16;
    memcpy(out, &w, sizeof(*out));
}

static inline __attribute__((always_inline)) void vec_pair_f16(vec *out, const void *p,
                                                               bool odd)
{
    vec_u32 w;

    memcpy(&w, p, sizeof(w));
    w = odd ? w >> 16 : w & 0xffffu;
    vec_widen_f16(out, &w);
}

/* Selects lanes of A where *mask is all ones, else of B.  Arguments are passed by
 * address, because the calling convention of vectors depends on the target. */
static inline __attribute__((always_inline)) void
vec_choose(vec *out, const vec_i32 *mask, const vec *a, const vec *b)
{
    vec_i32 x, y;

    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    x = (x & *mask) | (y & ~*mask);
    memcpy(out, &x, sizeof(*out));
}

/* Each lane of *most = the larger one; lanes of *v that are no numbers are left out. */
static inline __attribute__((always_inline)) void vec_raise(vec *most, const vec *v)
{
    vec_i32 above = *v > *most;

    vec_choose(most, &above, v, most);
}

/* The largest lane, or LEAST. */
static inline __attribute__((always_inline)) float vec_largest(const vec *v,
                                                               float least)
{
    for (int k = 0; k < VEC; k++)
        least = (*v)[k] > least ? (*v)[k] : least;
    return least;
}

/* Clamps each lane to [LOW, HIGH]. */
static inline __attribute__((always_inline)) void vec_clamp(vec *v, float low,
                                                            float high)
{
    vec bound = { 0 };
    vec_i32 beyond;

    bound += low;
    beyond = *v < bound;
    vec_choose(v, &beyond, &bound, v);
    bound += high - low;
    beyond = *v > bound;
    vec_choose(v, &beyond, &bound, v);
}

/* e^x to about one ulp; x must be in [-87, 88]. x = n ln 2 + r, e^r by the polynomial
 * of Cephes' expf (Moshier 1992). */
static inline __attribute__((always_inline)) void vec_exp(vec *out, const vec *in)
{
    vec x = *in, n, r, p;
    vec_u32 bits;

    vec_clamp(&x, -87.0f, 88.0f);
    n = (x * 1.44269504088896341f + 0x1.8p23f) - 0x1.8p23f;
    r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    p = (((((r * 1.9875691500e-4f + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r +
           4.1665795894e-2f) *
              r +
          1.6666665459e-1f) *
             r +
         5.0000001201e-1f) *
            (r * r) +
        r + 1.0f;
    bits = (vec_u32)(__builtin_convertvector(n, vec_i32) + 127) << 23;
    memcpy(&n, &bits, sizeof(n));
    *out = p * n;
}

static inline __attribute__((always_inline)) void vec_magnitude(vec *out, const vec *in)
{
    vec_u32 bits;

    memcpy(&bits, in, sizeof(bits));
    bits &= 0x7fffffffu;
    memcpy(out, &bits, sizeof(*out));
}

/* The part of the normal distribution below *in.  For x < 0 it is e^(-x^2 / 2) t h(t)
 * with t = 1 / (1 + 0.35 |x| / sqrt 2), to 3e-7 of it, else 1 minus that of -x; h is a
 * polynomial, fitted to erfc(z) e^(z^2) / (2 t) for z = |x| / sqrt 2 < 9.5, where it is
 * 7e-9 of it apart. */
static inline __attribute__((always_inline)) void vec_normal(vec *out, const vec *in)
{
    static const float h[] = { 0x1.3414b4p-6f,  -0x1.3c59bep-4f, 0x1.5d5298p-4f,
                               -0x1.9b7464p-8f, 0x1.2e5fb8p-5f,  0x1.3a5d34p-4f,
                               0x1.300b2ap-4f,  0x1.82191p-4f,   0x1.939342p-4f,
                               0x1.9474b4p-4f };
    vec x = *in, t, tail, e, above, sum = { 0 };
    vec_i32 negative = x < sum;

    e = x * x * -0.5f;
    vec_exp(&e, &e);
    vec_magnitude(&t, &x);
    t = 1.0f / (1.0f + t * 0.24748737341529164f);
    for (size_t i = 0; i < sizeof(h) / sizeof(*h); i++)
        sum = sum * t + h[i];
    tail = sum * t * e;
    above = 1.0f - tail;
    vec_choose(out, &negative, &tail, &above);
}

/* tanh x to about three ulps: by e^(2 |x|), or for small |x| by its series. */
static inline __attribute__((always_inline)) void vec_tanh(vec *out, const vec *in)
{
    static const float series[] = { 21844.0f / 6081075,
                                    -1382.0f / 155925,
                                    62.0f / 2835,
                                    -17.0f / 315,
                                    2.0f / 15,
                                    -1.0f / 3,
                                    1 };
    vec x = *in, square = x * x, size, large, small = { 0 }, bound = { 0 };
    vec_i32 is_small;
    vec_u32 bits, sign;

    vec_magnitude(&size, &x);
    bound += 0.4f;
    is_small = size < bound;
    large = size + size;
    vec_exp(&large, &large);
    large = 1.0f - 2.0f / (1.0f + large);
    memcpy(&sign, &x, sizeof(sign));
    memcpy(&bits, &large, sizeof(bits));
    bits |= sign & 0x80000000u;
    memcpy(&large, &bits, sizeof(large));
    for (size_t i = 0; i < sizeof(series) / sizeof(*series); i++)
        small = small * square + series[i];
    small *= x;
    vec_choose(out, &is_small, &small, &large);
}

/* cap tanh(x / cap) */
static inline __attribute__((always_inline)) void vec_cap(vec *x, float cap)
{
    *x /= cap;
    vec_tanh(x, x);
    *x *= cap;
}

/* e^x to about one ulp of a double; x must be at most 709, and below -708 gives
 * e^-708.  x = n ln 2 + r, where adding 1.5 2^52 leaves n in the lowest bits; e^r by
 * its series. */
static inline __attribute__((always_inline)) void vec_exp_double(vec_double *out,
                                                                 const vec_double *in)
{
    vec_double x = *in, least = { 0 }, n, r, p = { 0 };
    vec_i64 below, bits, bound;
    vec_u64 power;

    least += -708;
    below = x < least;
    memcpy(&bits, &x, sizeof(bits));
    memcpy(&bound, &least, sizeof(bound));
    bits = (bound & below) | (bits & ~below);
    memcpy(&x, &bits, sizeof(x));
    n = x * 0x1.71547652b82fep0 + 0x1.8p52; /* 1 / ln 2 */
    memcpy(&power, &n, sizeof(power));
    power = (power << 52) + ((uint64_t)1023 << 52);
    n -= 0x1.8p52;
    /* ln 2 in two parts, the first of which has so few bits that products are exact */
    r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
    p += 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1;
    p = p * r + 1;
    memcpy(&n, &power, sizeof(n));
    *out = p * n;
}

/* The newest loops that this CPU has, up to cpu_newest, which tests lower.  CPU_VNNI
 * are those for AVX-512 with products of bytes. */
enum cpu_loops { CPU_ANY, CPU_AVX2, CPU_AVX512, CPU_VNNI };
extern enum cpu_loops cpu_newest;

static inline enum cpu_loops cpu_has(void)
{
#if CPU_HAS_WIDE
    if (cpu_newest >= CPU_AVX512 && __builtin_cpu_supports("x86-64-v4"))
        return cpu_newest >= CPU_VNNI && __builtin_cpu_supports("avx512vnni")
                   ? CPU_VNNI
                   : CPU_AVX512;
    if (cpu_newest >= CPU_AVX2 && __builtin_cpu_supports("x86-64-v3"))
        return CPU_AVX2;
#endif
    return CPU_ANY;
}

static inline bool cpu_is_wide(void)
{
    return cpu_has() >= CPU_AVX512;
}

#if CPU_HAS_WIDE

/* What a stream of weights prefetches: a little ahead to the L2 cache, which Zen 4
 * reads fastest, or further ahead to L1, as Zen 5. */
enum vec_ahead { VEC_TO_L2 = 1024, VEC_TO_L1 = 2048 };

/* Prefetches what a stream reads AHEAD, a constant, bytes after P, where the source
 * says so: compilers gather prefetches, which is slower. */
static inline __attribute__((always_inline)) void vec_prefetch(const char *p,
                                                               enum vec_ahead ahead)
{
    const void *later = (const void *)((uintptr_t)p + ahead);

    if (ahead == VEC_TO_L2)
        __asm__ volatile("prefetcht1 %0" : : "m"(*(const char *)later));
    else
        __asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)later));
}

/* Keeps *v in a register; otherwise a compiler may repeat the load in every
 * operation. */
static inline CPU_WIDE __attribute__((always_inline)) void vec_hold(vec *v)
{
    __asm__("" : "+v"(*v));
}

/* *sum += *a * *b with one rounding, as compilers contract it, but without the copies
 * of *sum that they make when nearly all registers are in use. */
static inline CPU_WIDE __attribute__((always_inline)) void
vec_fuse(vec *sum, const vec *a, const vec *b)
{
    vec to = *sum, by = *b;

    __asm__("vfmadd231ps %2, %1, %0" : "+v"(to) : "v"(*a), "v"(by));
    *sum = to;
}

/* The same with VEC numbers at P: one instruction, so that more reads of memory are
 * under way at once. */
static inline CPU_WIDE __attribute__((always_inline)) void
vec_fuse_at(vec *sum, const vec *a, const void *p)
{
    vec to = *sum;

    __asm__ volatile("vfmadd231ps %2, %1, %0" /* in the order of vec_prefetch */
                     : "+v"(to)
                     : "v"(*a), "m"(*(const float(*)[VEC])p));
    *sum = to;
}

/* *sum += in each lane, the products of two neighbouring bf16 of *a and *b, without the
 * copies of *sum that compilers make.  For CPUs with AVX512-BF16. */
static inline CPU_WIDE __attribute__((always_inline)) void
vec_add_pairs(vec *sum, const vec_pairs *a, const vec_pairs *b)
{
    vec to = *sum;

    __asm__("vdpbf16ps %2, %1, %0" : "+v"(to) : "v"(*a), "v"(*b));
    *sum = to;
}

/* Prefetches the line at P to the L1 cache if NEAR, a constant, else to L2. */
static inline __attribute__((always_inline)) void vec_fetch(const char *p, bool near)
{
    if (near)
        __builtin_prefetch(p, 0, 3);
    else
        __builtin_prefetch(p, 0, 2);
}

/* Hides how *offset is computed: compilers would keep a pointer for each stream and
 * advance all of them, with more registers than there are. */
static inline CPU_WIDE __attribute__((always_inline)) void vec_hide(size_t *offset)
{
    __asm__("" : "+r"(*offset));
}

/* out[i] = sum of the lanes of v[i * STRIDE], as vec_sum adds them, for eight vectors
 * at once: each step merges pairs of vectors. */
static inline CPU_WIDE __attribute__((always_inline)) void
vec_sum_eight(float out[8], const vec *v, int stride)
{
    vec half[4], quarter[2], pair, sum;

    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        const vec *a = v + (size_t)(2 * i * stride), *b = a + stride;

        half[i] = __builtin_shufflevector(*a, *b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18,
                                          19, 20, 21, 22, 23) +
                  __builtin_shufflevector(*a, *b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25,
                                          26, 27, 28, 29, 30, 31);
    }
    _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++)
    {
        const vec *a = &half[2 * i], *b = a + 1;

        quarter[i] = __builtin_shufflevector(*a, *b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17,
                                             18, 19, 24, 25, 26, 27) +
                     __builtin_shufflevector(*a, *b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21,
                                             22, 23, 28, 29, 30, 31);
    }
    pair = __builtin_shufflevector(quarter[0], quarter[1], 0, 1, 4, 5, 8, 9, 12, 13, 16,
                                   17, 20, 21, 24, 25, 28, 29) +
           __builtin_shufflevector(quarter[0], quarter[1], 2, 3, 6, 7, 10, 11, 14, 15,
                                   18, 19, 22, 23, 26, 27, 30, 31);
    sum = __builtin_shufflevector(pair, pair, 0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8,
                                  10, 12, 14) +
          __builtin_shufflevector(pair, pair, 1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9,
                                  11, 13, 15);
    memcpy(out, &sum, 8 * sizeof(*out));
}

/* out[8] = these sums, or += if ADD. */
static inline CPU_WIDE __attribute__((always_inline)) void
vec_add_eight(float out[8], const vec *v, int stride, bool add)
{
    vec_half sum, had;

    vec_sum_eight((float *)&sum, v, stride);
    if (add) {
        memcpy(&had, out, sizeof(had));
        sum += had;
    }
    memcpy(out, &sum, sizeof(sum));
}

/* sums[WIDTH], a constant, = the sums of the lanes of acc[eight], WIDTH to a stretch,
 * of as many as there are of STRETCHES, one added to the other; += if ADD. */
static inline CPU_WIDE __attribute__((always_inline)) void
vec_add_stretches(float *sums, const vec acc[8], int width, size_t stretches, bool add)
{
    float eight[8], sum[8];

    if (width == 8) {
        vec_add_eight(sums, acc, 1, add);
        return;
    }
    vec_sum_eight(eight, acc, 1);
    for (int s = 0; s < width; s++)
        sum[s] = add ? sums[s] + eight[s] : eight[s];
    _Pragma("GCC unroll 4") for (int of = width; of < 8; of += width)
    {
        if ((size_t)(of / width) >= stretches)
            break;
        _Pragma("GCC unroll 4") for (int s = 0; s < width; s++) sum[s] += eight[of + s];
    }
    memcpy(sums, sum, (size_t)width * sizeof(*sum));
}
#endif

/* The sum of the lanes in a fixed tree: halves, quarters, and so on. */
static inline __attribute__((always_inline)) float vec_sum(const vec *v)
{
    vec_half a, b;
    vec_quarter c, d;

    memcpy(&a, v, sizeof(a));
    memcpy(&b, (const char *)v + sizeof(a), sizeof(b));
    a += b;
    memcpy(&c, &a, sizeof(c));
    memcpy(&d, (const char *)&a + sizeof(c), sizeof(d));
    c += d;
    return (c[0] + c[2]) + (c[1] + c[3]);
}

#endif
