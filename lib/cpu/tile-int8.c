/* tile-int8 - tile loops for weights of 8 bits
 *
 * Codes are widened to f32 as they are read; the order of the sums is that of f32
 * weights (tile.h), so that a panel of widened codes gives the same bits. */
#include "lib/cpu/linear.h"
#include "lib/cpu/packed.h"
#include "lib/cpu/vec.h"

#define ALL  _Pragma("GCC unroll 8") for
#define LINE 64

typedef int8_t vec_i8 __attribute__((vector_size(16)));
typedef int16_t vec_i16 __attribute__((vector_size(32)));

/* Widens VEC codes. */
typedef void loader(vec *out, const int8_t *p);

static inline __attribute__((always_inline)) void load_codes(vec *out, const int8_t *p)
{
    vec_i8 codes;
    vec_i16 half;

    /* in two steps: GCC 12 makes scalar code of one */
    memcpy(&codes, p, sizeof(codes));
    half = __builtin_convertvector(codes, vec_i16);
    *out = __builtin_convertvector(__builtin_convertvector(half, vec_i32), vec);
}

#if CPU_HAS_WIDE
static inline CPU_WIDE __attribute__((always_inline)) void load_wide(vec *out,
                                                                     const int8_t *p)
{
    vec_i32 w;

    __asm__("vpmovsxbd %1, %0" : "=v"(w) : "m"(*(const vec_i8 *)p));
    *out = __builtin_convertvector(w, vec);
}
#endif

/* acc[i][j] += VEC terms of row i of x and row j of w. */
static inline __attribute__((always_inline)) void
add_terms(vec acc[ROWS][INT8_OUTS], const float *x, size_t x_stride, const int8_t *w,
          size_t w_stride, loader *load, int rows, int outs)
{
    vec xv[ROWS], wv;

    ALL(int i = 0; i < rows; i++) vec_load_f32(&xv[i], x + (size_t)i * x_stride);
    ALL(int j = 0; j < outs; j++)
    {
        load(&wv, w + (size_t)j * w_stride);
        ALL(int i = 0; i < rows; i++) acc[i][j] += wv * xv[i];
    }
}

/* The last N < VEC terms. */
static inline __attribute__((always_inline)) void
add_last(vec acc[ROWS][INT8_OUTS], const float *x, size_t x_stride, const int8_t *w,
         size_t w_stride, size_t n, loader *load, int rows, int outs)
{
    float last[ROWS][VEC] = { 0 };
    int8_t codes[INT8_OUTS][VEC] = { 0 };

    for (int i = 0; i < rows; i++)
        memcpy(last[i], x + (size_t)i * x_stride, n * sizeof(*x));
    for (int j = 0; j < outs; j++)
        memcpy(codes[j], w + (size_t)j * w_stride, n);
    add_terms(acc, last[0], VEC, codes[0], VEC, load, rows, outs);
}

static inline __attribute__((always_inline)) void
tile(float *y, size_t y_stride, const float *x, size_t x_stride,
     const struct int8_rows *w, size_t n, bool add, loader *load, int rows, int outs)
{
    vec acc[ROWS][INT8_OUTS];
    size_t k = 0;

    ALL(int i = 0; i < rows; i++)
    ALL(int j = 0; j < outs; j++) acc[i][j] = (vec){ 0 };
    for (; w->ahead && k + LINE <= n; k += LINE) {
        ALL(int j = 0; j < outs; j++)
        __builtin_prefetch(w->ahead + (size_t)outs * k + (size_t)(j * LINE), 0, 2);
        ALL(int p = 0; p < LINE; p += VEC)
        add_terms(acc, x + k + p, x_stride, w->data + k + p, w->stride, load, rows,
                  outs);
    }
    for (; k + VEC <= n; k += VEC)
        add_terms(acc, x + k, x_stride, w->data + k, w->stride, load, rows, outs);
    if (k < n)
        add_last(acc, x + k, x_stride, w->data + k, w->stride, n - k, load, rows, outs);
    ALL(int i = 0; i < rows; i++) ALL(int j = 0; j < outs; j++)
    {
        float *at = y + (size_t)i * y_stride + j, sum = vec_sum(&acc[i][j]);

        *at = add ? *at + sum : sum;
    }
}

static inline __attribute__((always_inline)) void
some_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
          const struct int8_rows *w, size_t n, size_t terms, bool add, loader *load,
          int rows)
{
    struct int8_rows at = *w;
    size_t j = 0;

    for (; j + INT8_OUTS <= n; j += INT8_OUTS, at.data += INT8_OUTS * w->stride)
        tile(y + j, y_stride, x, x_stride, &at, terms, add, load, rows, INT8_OUTS);
    for (at.ahead = NULL; j < n; j++, at.data += w->stride)
        tile(y + j, y_stride, x, x_stride, &at, terms, add, load, rows, 1);
}

static inline __attribute__((always_inline)) void
all_rows(float *y, size_t y_stride, const float *x, size_t x_stride,
         const struct int8_rows *rows_of_w, size_t m, size_t n, size_t terms, bool add,
         loader *load)
{
    struct int8_rows w = *rows_of_w;

    for (; m >= ROWS; m -= ROWS, w.ahead = NULL) {
        some_rows(y, y_stride, x, x_stride, &w, n, terms, add, load, ROWS);
        y += ROWS * y_stride;
        x += ROWS * x_stride;
    }
    if (m == 3)
        some_rows(y, y_stride, x, x_stride, &w, n, terms, add, load, 3);
    else if (m == 2)
        some_rows(y, y_stride, x, x_stride, &w, n, terms, add, load, 2);
    else if (m == 1)
        some_rows(y, y_stride, x, x_stride, &w, n, terms, add, load, 1);
}

#if CPU_HAS_WIDE
CPU_WIDE static void dot_wide(float *y, size_t y_stride, const float *x,
                              size_t x_stride, const struct int8_rows *w, size_t m,
                              size_t n, size_t terms, bool add)
{
    all_rows(y, y_stride, x, x_stride, w, m, n, terms, add, load_wide);
}
#endif

CPU_CLONES static void dot_any(float *y, size_t y_stride, const float *x,
                               size_t x_stride, const struct int8_rows *w, size_t m,
                               size_t n, size_t terms, bool add)
{
    all_rows(y, y_stride, x, x_stride, w, m, n, terms, add, load_codes);
}

void int8_dot(float *y, size_t y_stride, const float *x, size_t x_stride,
              const struct int8_rows *w, size_t m, size_t n, size_t terms, bool add)
{
#if CPU_HAS_WIDE
    if (cpu_is_wide()) {
        dot_wide(y, y_stride, x, x_stride, w, m, n, terms, add);
        return;
    }
#endif
    dot_any(y, y_stride, x, x_stride, w, m, n, terms, add);
}

CPU_CLONES void int8_widen(float *to, const int8_t *from, size_t n)
{
    size_t i = 0;

    for (; i + VEC <= n; i += VEC) {
        vec v;

        load_codes(&v, from + i);
        memcpy(to + i, &v, sizeof(v));
    }
    for (; i < n; i++)
        to[i] = from[i];
}
