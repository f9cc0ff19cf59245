/* decode-float-avx2 - one query times rows of keys or values, on CPUs with AVX2
 *
 * As the loops of decode-float.c, in tiles of SUMS registers. */
#include "lib/cpu/attention/decode-float.h"

#include "lib/cpu/simd/avx2.h"

#if CPU_HAS_WIDE
#define ALL _Pragma("GCC unroll 16") for

enum {
    SUMS = 8,    /* heads times keys, or heads times registers of columns */
    MANY = 4,    /* heads of a tile, at most */
    LINE = 64,   /* bytes that a prefetch brings */
    STRETCH = 32 /* rows whose values are added head by head */
};

/* Widens LANES numbers at P; TYPE is a constant after inlining, as are numbers of keys,
 * heads and registers. */
static inline __attribute__((always_inline)) void load(vec_half *out, enum format type,
                                                       const void *p)
{
    vec_half_u32 w;
    vec_half_i32 q;

    if (type == FORMAT_F32) {
        half_load(out, p);
    } else if (type == FORMAT_BF16) {
        __asm__("vpmovzxwd %1, %0" : "=x"(w) : "m"(*(const uint16_t(*)[LANES])p));
        w <<= 16;
        memcpy(out, &w, sizeof(w));
    } else {
        __asm__("vpmovsxbd %1, %0" : "=x"(q) : "m"(*(const int8_t(*)[LANES])p));
        *out = __builtin_convertvector(q, vec_half);
    }
}

static inline __attribute__((always_inline)) float
scale_at(const struct decode_float_request *r, enum format type, size_t head, size_t i)
{
    const struct kv_rows *k = r->k;
    float scale = 1;

    if (type == FORMAT_CACHE_INT8)
        memcpy(&scale,
               k->data + (r->first + i) * k->bytes +
                   head * k->apart / k->per * sizeof(float),
               sizeof(scale));
    return scale;
}

/* ---- scores ---- */

/* Scores of HEADS query heads from G on, of KV head HEAD, with KEYS rows from I on.
 * AHEAD: bytes to what is prefetched, or 0. */
static inline __attribute__((always_inline)) void
dot_tile(const struct decode_float_request *r, enum format type, size_t head, size_t g,
         size_t i, size_t ahead, int heads, int keys)
{
    const size_t dim = r->k->dim, bytes = r->k->bytes;
    const char *w = kv_rows_part(r->k, type, head, r->first + i);
    const float *q = r->from + g * dim;
    vec_half both[SUMS] = { { 0 } }, sum;
    float all[SUMS];

    ALL(int part = 0; part < 2; part++)
    {
        vec_half acc[SUMS];

        ALL(int s = 0; s < heads * keys; s++) acc[s] = (vec_half){ 0 };
        for (size_t c = (size_t)part * LANES; c < dim; c += VEC) {
            vec_half wv, qv[MANY];

            if (ahead && part == 0 && c * kv_rows_size(type) % LINE == 0)
                ALL(int t = 0; t < keys; t++)
            __builtin_prefetch(w + (size_t)t * bytes + c * kv_rows_size(type) + ahead,
                               0, 2);
            ALL(int h = 0; h < heads; h++)
            half_load(&qv[h], q + (size_t)h * dim + c);
            ALL(int t = 0; t < keys; t++)
            {
                load(&wv, type, w + (size_t)t * bytes + c * kv_rows_size(type));
                ALL(int h = 0; h < heads; h++)
                half_fuse(&acc[h * keys + t], &wv, &qv[h]);
            }
        }
        ALL(int s = 0; s < heads * keys; s++)
        both[s] = part ? both[s] + acc[s] : acc[s];
    }
    half_sum_eight(&sum, both);
    if (type == FORMAT_CACHE_INT8) {
        vec_half by = { 0 };

        ALL(int s = 0; s < heads * keys; s++)
        by[s] = scale_at(r, type, head, i + (size_t)(s % keys));
        sum *= by;
    }
    memcpy(all, &sum, sizeof(all));
    ALL(int h = 0; h < heads; h++)
    memcpy(r->to + (g + (size_t)h) * r->stride + i, all + h * keys,
           (size_t)keys * sizeof(*all));
}

/* HEADS query heads by N rows from I on, SUMS / HEADS of them at a time, or one. */
static inline __attribute__((always_inline)) void
dot_heads(const struct decode_float_request *r, enum format type, size_t head, size_t g,
          size_t i, size_t n, size_t ahead, int heads)
{
    const size_t keys = SUMS / (size_t)heads, end = i + n;

    for (; i + keys <= end; i += keys)
        dot_tile(r, type, head, g, i, ahead, heads, (int)keys);
    for (; i < end; i++)
        dot_tile(r, type, head, g, i, ahead, heads, 1);
}

static inline __attribute__((always_inline)) void
dots(const struct decode_float_request *r, enum format type)
{
    for (size_t i = 0, n; i < r->n; i += n) {
        n = r->n - i < SUMS ? r->n - i : SUMS;
        for (size_t head = r->head; head < r->head + r->heads; head++) {
            size_t g = head * r->group, end = g + r->group, ahead = kv_rows_ahead(r->k);

            for (; g + 4 <= end; g += 4, ahead = 0)
                dot_heads(r, type, head, g, i, n, ahead, 4);
            for (; g + 2 <= end; g += 2, ahead = 0)
                dot_heads(r, type, head, g, i, n, ahead, 2);
            for (; g < end; g++, ahead = 0)
                dot_heads(r, type, head, g, i, n, ahead, 1);
        }
    }
}

/* ---- sums of values ---- */

/* y[h][REGS registers] += weight[h][i] row I, over N rows.  Prefetches the rows AHEAD,
 * unless it is 0. */
static inline __attribute__((always_inline)) void
add_columns(float *y, size_t dim, const float *weight, size_t stride, const char *w,
            size_t bytes, size_t ahead, enum format type, int heads, size_t n, int regs)
{
    const size_t step = LANES * kv_rows_size(type);
    vec_half acc[SUMS];

    ALL(int h = 0; h < heads; h++)
    ALL(int c = 0; c < regs; c++)
    half_load(&acc[h * regs + c], y + (size_t)h * dim + (size_t)c * LANES);
    for (size_t i = 0; i < n; i++, w += bytes) {
        vec_half wv, by[MANY];

        ALL(int h = 0; h < heads; h++)
        half_spread(&by[h], weight + (size_t)h * stride + i);
        ALL(int c = 0; c < regs; c++)
        {
            if (ahead && (size_t)c * step % LINE == 0)
                __builtin_prefetch(w + ahead + (size_t)c * step, 0, 2);
            load(&wv, type, w + (size_t)c * step);
            ALL(int h = 0; h < heads; h++)
            half_fuse(&acc[h * regs + c], &wv, &by[h]);
        }
    }
    ALL(int h = 0; h < heads; h++)
    ALL(int c = 0; c < regs; c++)
    memcpy(y + (size_t)h * dim + (size_t)c * LANES, &acc[h * regs + c], sizeof(*acc));
}

/* HEADS query heads from G on, of KV head HEAD, over N rows from I on. */
static inline __attribute__((always_inline)) void
add_heads(const struct decode_float_request *r, enum format type, size_t head, size_t g,
          size_t i, size_t n, size_t ahead, int heads)
{
    const int regs = SUMS / heads;
    const size_t dim = r->k->dim, step = (size_t)regs * LANES;
    const float *weight = r->from + g * r->stride + i;
    const char *w = kv_rows_part(r->k, type, head, r->first + i);
    float scaled[MANY * STRETCH], *y = r->to + g * dim;
    size_t stride = r->stride, c = 0;

    for (size_t t = 0; t < n && type == FORMAT_CACHE_INT8; t++) {
        float scale = scale_at(r, type, head, i + t);

        for (int h = 0; h < heads; h++)
            scaled[h * STRETCH + (int)t] = weight[(size_t)h * stride + t] * scale;
    }
    if (type == FORMAT_CACHE_INT8) {
        weight = scaled;
        stride = STRETCH;
    }
    for (; c + step <= dim; c += step)
        add_columns(y + c, dim, weight, stride, w + c * kv_rows_size(type), r->k->bytes,
                    ahead, type, heads, n, regs);
    for (; c < dim; c += VEC)
        add_columns(y + c, dim, weight, stride, w + c * kv_rows_size(type), r->k->bytes,
                    ahead, type, heads, n, 2);
}

static inline __attribute__((always_inline)) void
adds(const struct decode_float_request *r, enum format type)
{
    for (size_t i = 0, n; i < r->n; i += n) {
        n = r->n - i < STRETCH ? r->n - i : STRETCH;
        for (size_t head = r->head; head < r->head + r->heads; head++) {
            size_t g = head * r->group, end = g + r->group, ahead = kv_rows_ahead(r->k);

            for (; g + 4 <= end; g += 4, ahead = 0)
                add_heads(r, type, head, g, i, n, ahead, 4);
            for (; g + 2 <= end; g += 2, ahead = 0)
                add_heads(r, type, head, g, i, n, ahead, 2);
            for (; g < end; g++, ahead = 0)
                add_heads(r, type, head, g, i, n, ahead, 1);
        }
    }
}

void decode_float_dots_avx2(const struct decode_float_request *r)
{
    if (r->k->type == FORMAT_F32)
        dots(r, FORMAT_F32);
    else if (r->k->type == FORMAT_BF16)
        dots(r, FORMAT_BF16);
    else
        dots(r, FORMAT_CACHE_INT8);
}

void decode_float_add_avx2(const struct decode_float_request *r)
{
    if (r->k->type == FORMAT_F32)
        adds(r, FORMAT_F32);
    else if (r->k->type == FORMAT_BF16)
        adds(r, FORMAT_BF16);
    else
        adds(r, FORMAT_CACHE_INT8);
}
#endif
