/* tile-int4 - tile loops for weights of 4 bits
 *
 * Terms of x are rounded to 16 bits, with a scale for each block of CODES_BLOCK, so a
 * block's sum is one of integers: exact, whatever its order.  A lane adds the sums of
 * its blocks, times both scales, in order. */
#include <math.h>

#include "lib/base/codes.h"
#include "lib/cpu/linear.h"
#include "lib/cpu/packed.h"
#include "lib/cpu/vec.h"

#define ALL _Pragma("GCC unroll 16") for

enum {
    BYTES = INT4_TERMS / 2,            /* of a step */
    BLOCKS = INT4_TERMS / CODES_BLOCK, /* of a step */
    WIDE_OUTS = 4,                     /* outputs of a tile of four rows */
    SUMS = 16                          /* most sums of a tile */
};

/* ---- x ---- */

/* Rounds a block of x, part PART of a step. */
static void arrange_block(struct int4_step *to, int part, const float *x, size_t n)
{
    int32_t sum[4] = { 0 };
    float largest = codes_largest(x, n), scale = largest / 32767, inverse = 1 / scale;

    if (!isfinite(largest))
        scale = NAN; /* and so is the result */
    if (!isfinite(inverse) || !isfinite(scale))
        inverse = 0;
    for (size_t i = 0; i < CODES_BLOCK; i++) {
        size_t at = (size_t)part * CODES_BLOCK + i;
        int16_t v = i < n && inverse > 0 ? (int16_t)rintf(x[i] * inverse) : 0;

        to->x[at % 4][at / 4] = v;
        sum[i / 8] += v;
    }
    for (size_t i = 0; i < 4; i++) {
        to->offset[(size_t)part * 4 + i] = -8 * sum[i];
        to->scale[(size_t)part * 4 + i] = scale;
    }
}

void int4_arrange(struct int4_step *to, const float *x, size_t n)
{
    for (; n; to++)
        for (int part = 0; part < BLOCKS; part++) {
            size_t some = n < CODES_BLOCK ? n : CODES_BLOCK;

            arrange_block(to, part, x, some);
            x += some;
            n -= some;
        }
}

/* ---- any processor ---- */

CPU_CLONES static void dot_any(float *y, size_t y_stride, const struct int4_step *x,
                               size_t x_stride, const struct int4_rows *w, size_t m,
                               size_t n, size_t steps, bool add)
{
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < m; i++) {
            const uint8_t *data = w->data + j * w->stride;
            const uint16_t *scale = w->scale + j * w->scale_stride;
            const struct int4_step *step = x + i * x_stride;
            float *at = y + i * y_stride + j, sum;
            vec acc = { 0 };

            for (size_t k = 0; k < steps; k++, step++, data += BYTES, scale += BLOCKS) {
                float wide[VEC];
                vec_u32 codes;
                vec_i32 lanes;
                vec sx, sw;

                memcpy(&codes, data, sizeof(codes));
                memcpy(&lanes, step->offset, sizeof(lanes));
                for (int p = 0; p < 4; p++) {
                    vec_i32 v, low, high;

                    memcpy(&v, step->x[p], sizeof(v));
                    low = (vec_i32)(codes >> 4 * p & 15);
                    high = (vec_i32)(codes >> (16 + 4 * p) & 15);
                    lanes += low * ((v << 16) >> 16) + high * (v >> 16);
                }
                for (int l = 0; l < VEC; l++)
                    wide[l] = dtype_f16_to_f32(scale[l / 4]);
                vec_load_f32(&sw, wide);
                vec_load_f32(&sx, step->scale);
                acc += __builtin_convertvector(lanes, vec) * sx * sw;
            }
            sum = vec_sum(&acc);
            *at = add ? *at + sum : sum;
        }
}

/* ---- AVX512-VNNI ---- */

#if CPU_HAS_WIDE
typedef uint16_t words __attribute__((vector_size(64)));

/* *sum += products of pairs of words */
static inline CPU_WIDE __attribute__((always_inline)) void
add_words(vec_i32 *sum, const words *w, const words *x)
{
    vec_i32 to = *sum;

    __asm__("vpdpwssd %2, %1, %0" : "+v"(to) : "v"(*w), "v"(*x));
    *sum = to;
}

/* The scales of a step's blocks, each in the lanes of its dwords. */
static inline CPU_WIDE __attribute__((always_inline)) void
load_scales(vec *out, const uint16_t *p)
{
    const vec_i32 lanes = { 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3 };
    vec wide;

    __asm__("vcvtph2ps %1, %x0" : "=v"(wide) : "m"(*(const uint64_t *)(const void *)p));
    *out = __builtin_shuffle(wide, lanes);
}

static inline CPU_WIDE __attribute__((always_inline)) void
add_step(vec acc[SUMS], const struct int4_step *x, size_t x_stride,
         const struct int4_rows *w, size_t k, int rows, int outs)
{
    ALL(int j = 0; j < outs; j++)
    {
        words all, part[4];
        vec sw;

        memcpy(&all, w->data + (size_t)j * w->stride + k * BYTES, sizeof(all));
        part[0] = all & 15;
        part[1] = all >> 4 & 15;
        part[2] = all >> 8 & 15;
        part[3] = all >> 12;
        load_scales(&sw, w->scale + (size_t)j * w->scale_stride + k * BLOCKS);
        ALL(int i = 0; i < rows; i++)
        {
            const struct int4_step *step = x + (size_t)i * x_stride + k;
            vec_i32 lanes;
            vec sx;

            memcpy(&lanes, step->offset, sizeof(lanes));
            ALL(int p = 0; p < 4; p++)
            {
                words v;

                memcpy(&v, step->x[p], sizeof(v));
                add_words(&lanes, &part[p], &v);
            }
            vec_load_f32(&sx, step->scale);
            sx *= __builtin_convertvector(lanes, vec);
            vec_fuse(&acc[i * outs + j], &sx, &sw);
        }
    }
}

/* ROWS x OUTS is 8 or 16. */
static inline CPU_WIDE __attribute__((always_inline)) void
tile(float *y, size_t y_stride, const struct int4_step *x, size_t x_stride,
     const struct int4_rows *w, size_t steps, bool add, int rows, int outs)
{
    vec acc[SUMS];
    float sum[SUMS];

    ALL(int i = 0; i < rows * outs; i++) acc[i] = (vec){ 0 };
    for (size_t k = 0; k < steps; k++) {
        if (w->ahead) {
            ALL(int j = 0; j < outs; j++)
            __builtin_prefetch(w->ahead + (k * (size_t)outs + (size_t)j) * BYTES, 0, 2);
            __builtin_prefetch(w->scale_ahead + k * (size_t)outs * BLOCKS, 0, 2);
        }
        add_step(acc, x, x_stride, w, k, rows, outs);
    }
    ALL(int i = 0; i < rows * outs; i += 8) vec_sum_eight(sum + i, acc + i, 1);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < outs; j++) {
            float *at = y + (size_t)i * y_stride + j;

            *at = add ? *at + sum[i * outs + j] : sum[i * outs + j];
        }
}

/* One output. */
static inline CPU_WIDE __attribute__((always_inline)) void
one(float *y, const struct int4_step *x, const struct int4_rows *w, size_t steps,
    bool add)
{
    vec acc[SUMS] = { { 0 } };
    float sum;

    for (size_t k = 0; k < steps; k++)
        add_step(acc, x, 0, w, k, 1, 1);
    sum = vec_sum(&acc[0]);
    *y = add ? *y + sum : sum;
}

CPU_WIDE static void dot_vnni(float *y, size_t y_stride, const struct int4_step *x,
                              size_t x_stride, const struct int4_rows *rows_of_w,
                              size_t m, size_t n, size_t steps, bool add)
{
    struct int4_rows w = *rows_of_w;
    size_t j = 0, some = m >= 4 ? WIDE_OUTS : INT4_OUTS;

    for (; j + some <= n; j += some) {
        const struct int4_step *at = x;
        float *to = y + j;
        size_t left = m;

        for (; left >= 4; left -= 4, at += 4 * x_stride, to += 4 * y_stride)
            tile(to, y_stride, at, x_stride, &w, steps, add, 4, WIDE_OUTS);
        for (; left >= 2; left -= 2, at += 2 * x_stride, to += 2 * y_stride) {
            tile(to, y_stride, at, x_stride, &w, steps, add, 2, WIDE_OUTS);
            if (some == INT4_OUTS) {
                struct int4_rows next = w;

                next.data += WIDE_OUTS * w.stride;
                next.scale += WIDE_OUTS * w.scale_stride;
                next.ahead = NULL;
                tile(to + WIDE_OUTS, y_stride, at, x_stride, &next, steps, add, 2,
                     WIDE_OUTS);
            }
        }
        if (left && some == INT4_OUTS)
            tile(to, y_stride, at, x_stride, &w, steps, add, 1, INT4_OUTS);
        for (size_t i = 0; left && some == WIDE_OUTS && i < some; i++) {
            struct int4_rows next = w;

            next.data += i * w.stride;
            next.scale += i * w.scale_stride;
            one(to + i, at, &next, steps, add);
        }
        w.data += some * w.stride;
        w.scale += some * w.scale_stride;
        w.ahead = w.ahead ? w.ahead + some * BYTES * steps : NULL;
        w.scale_ahead = w.ahead ? w.scale_ahead + some * BLOCKS * steps : NULL;
    }
    for (; j < n; j++, w.data += w.stride, w.scale += w.scale_stride)
        for (size_t i = 0; i < m; i++)
            one(y + i * y_stride + j, x + i * x_stride, &w, steps, add);
}
#endif

void int4_dot(float *y, size_t y_stride, const struct int4_step *x, size_t x_stride,
              const struct int4_rows *w, size_t m, size_t n, size_t steps, bool add)
{
#if CPU_HAS_WIDE
    if (cpu_is_wide() && __builtin_cpu_supports("avx512vnni")) {
        dot_vnni(y, y_stride, x, x_stride, w, m, n, steps, add);
        return;
    }
#endif
    dot_any(y, y_stride, x, x_stride, w, m, n, steps, add);
}
