/* decode-float - one query times rows of keys or values, in the type that stores them
 */
#include "lib/cpu/attention/decode-float.h"

#include "lib/cpu/simd/vec.h"

#define EACH _Pragma("GCC unroll 16") for

enum {
    LINE = 64, /* bytes that a prefetch brings */
    KEYS = 8,  /* rows of a tile, at most */
    FOUR = 4,  /* rows, and query heads, of a tile in many registers */
    SUMS = FOUR * FOUR,
    TURN = 64,      /* rows whose values are added head by head; */
    SHORT_TURN = 8, /* of f32, whose rows are long, */
    AT_ONCE = 64    /* and the distance to the weights that are prefetched */
};

typedef uint16_t vec_words __attribute__((vector_size(32), may_alias));

/* ---- products: on CPUs with AVX-512 ---- */

#if CPU_HAS_WIDE
static inline CPU_WIDE __attribute__((always_inline)) void
load_wide(vec *out, enum format type, const void *p)
{
    vec_u32 w;

    if (type == FORMAT_F32) {
        vec_load_f32(out, p);
        vec_hold(out);
    } else {
        __asm__("vpmovzxwd %1, %0" : "=v"(w) : "m"(*(const vec_words *)p));
        w <<= 16;
        memcpy(out, &w, sizeof(w));
    }
}

/* Scores of HEADS query heads with FOUR rows or one, BYTES apart from AT on.  DIRECT:
 * queries are operands in memory, with which Zen 4 reads wide rows a third faster.
 * TYPE is a constant after inlining, as are numbers of keys, heads and vectors. */
static inline CPU_WIDE __attribute__((always_inline)) void
dot_tile_wide(float *score, size_t stride, const float *q, size_t dim, const char *at,
              size_t bytes, size_t ahead, enum format type, int heads, int keys,
              bool direct)
{
    vec acc[SUMS];
    float sum[SUMS];

    EACH(int s = 0; s < SUMS; s++) acc[s] = (vec){ 0 };
    for (size_t c = 0; c < dim; c += VEC) {
        vec wv[KEYS];

        EACH(int i = 0; i < keys; i++)
        {
            const char *w = at + (size_t)i * bytes + c * kv_rows_size(type);

            load_wide(&wv[i], type, w);
            if (c * kv_rows_size(type) % LINE == 0)
                __builtin_prefetch(w + ahead, 0, 2);
        }
        EACH(int h = 0; h < heads; h++)
        {
            const float *terms = q + (size_t)h * dim + c;
            vec qv;

            if (!direct) {
                vec_load_f32(&qv, terms);
                vec_hold(&qv);
            }
            EACH(int i = 0; i < keys; i++)
            if (direct)
                vec_fuse_at(&acc[h * keys + i], &wv[i], terms);
            else
                vec_fuse(&acc[h * keys + i], &wv[i], &qv);
        }
    }
    EACH(int s = 0; s < heads * keys; s += 8) vec_sum_eight(sum + s, acc + s, 1);
    EACH(int h = 0; h < heads; h++)
    memcpy(score + (size_t)h * stride, sum + h * keys, (size_t)keys * sizeof(*score));
}

/* All query heads of a KV head. */
static inline CPU_WIDE __attribute__((always_inline)) void
dot_heads(const struct decode_float_request *r, size_t head, size_t i, size_t ahead,
          enum format type, int keys)
{
    const char *w = kv_rows_part(r->k, type, head, r->first + i);
    size_t dim = r->k->dim, g = head * r->group, end = g + r->group;
    float *score = r->to + i;

    for (; g + 4 <= end; g += 4)
        /* with more heads products bind, and operands in memory are slower */
        if (type == FORMAT_F32 && r->group == 4)
            dot_tile_wide(score + g * r->stride, r->stride, r->from + g * dim, dim, w,
                          r->k->bytes, ahead, type, 4, keys, true);
        else
            dot_tile_wide(score + g * r->stride, r->stride, r->from + g * dim, dim, w,
                          r->k->bytes, ahead, type, 4, keys, false);
    for (; g + 2 <= end; g += 2)
        dot_tile_wide(score + g * r->stride, r->stride, r->from + g * dim, dim, w,
                      r->k->bytes, ahead, type, 2, keys, false);
    for (; g < end; g++)
        dot_tile_wide(score + g * r->stride, r->stride, r->from + g * dim, dim, w,
                      r->k->bytes, ahead, type, 1, keys, false);
}

static inline CPU_WIDE __attribute__((always_inline)) void
dots_wide(const struct decode_float_request *r, enum format type)
{
    const size_t ahead = kv_rows_ahead(r->k);

    for (size_t i = 0, keys; i < r->n; i += keys) {
        keys = r->n - i >= FOUR ? FOUR : 1;
        for (size_t h = r->head; h < r->head + r->heads; h++)
            if (keys == FOUR)
                dot_heads(r, h, i, ahead, type, FOUR);
            else
                dot_heads(r, h, i, ahead, type, 1);
    }
}

/* *sum += *w times the number at P: an operand in memory, as in vec_fuse_at. */
static inline CPU_WIDE __attribute__((always_inline)) void
fuse_number(vec *sum, const vec *w, const float *p)
{
    vec to = *sum;

    __asm__ volatile("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(to) : "v"(*w), "m"(*p));
    *sum = to;
}

/* y[h][VECS vectors] += weight[h][i] row I, over N rows.  Prefetches the rows AHEAD. */
static inline CPU_WIDE __attribute__((always_inline)) void
add_columns(float *y, size_t dim, const float *weight, size_t stride, const char *w,
            size_t bytes, size_t ahead, enum format type, int heads, size_t n, int vecs)
{
    const size_t step = VEC * kv_rows_size(type);
    vec acc[SUMS];

    EACH(int h = 0; h < heads; h++)
    EACH(int c = 0; c < vecs; c++)
    vec_load_f32(&acc[h * vecs + c], y + (size_t)h * dim + (size_t)c * VEC);
    for (size_t i = 0; i < n; i++, w += bytes) {
        vec wv[SUMS];

        EACH(int c = 0; c < vecs; c++)
        {
            load_wide(&wv[c], type, w + (size_t)c * step);
            if ((size_t)c * step % LINE == 0)
                __builtin_prefetch(w + ahead + (size_t)c * step, 0, 2);
        }
        EACH(int h = 0; h < heads; h++)
        EACH(int c = 0; c < vecs; c++)
        fuse_number(&acc[h * vecs + c], &wv[c], weight + (size_t)h * stride + i);
    }
    EACH(int h = 0; h < heads; h++)
    EACH(int c = 0; c < vecs; c++)
    memcpy(y + (size_t)h * dim + (size_t)c * VEC, &acc[h * vecs + c], sizeof(*acc));
}

/* HEADS query heads from G on over N rows, VECS vectors of columns at a time, or else
 * one. */
static inline CPU_WIDE __attribute__((always_inline)) void
add_heads(const struct decode_float_request *r, size_t g, const char *w,
          const float *weight, size_t stride, size_t ahead, enum format type, int heads,
          size_t n, int vecs)
{
    size_t dim = r->k->dim, c = 0, step = (size_t)vecs * VEC;
    float *y = r->to + g * dim;

    EACH(int h = 0; h < heads; h++)
    __builtin_prefetch(weight + (size_t)h * stride + AT_ONCE, 0, 3);
    for (; c + step <= dim; c += step)
        add_columns(y + c, dim, weight, stride, w + c * kv_rows_size(type), r->k->bytes,
                    ahead, type, heads, n, vecs);
    for (; c < dim; c += VEC)
        add_columns(y + c, dim, weight, stride, w + c * kv_rows_size(type), r->k->bytes,
                    ahead, type, heads, n, 1);
}

static inline CPU_WIDE __attribute__((always_inline)) void
adds_wide(const struct decode_float_request *r, enum format type)
{
    const size_t ahead = kv_rows_ahead(r->k),
                 turn = type == FORMAT_F32 ? SHORT_TURN : TURN;

    for (size_t i = 0, n; i < r->n; i += n) {
        n = r->n - i < turn ? r->n - i : turn;
        for (size_t head = r->head; head < r->head + r->heads; head++) {
            const char *w = kv_rows_part(r->k, type, head, r->first + i);
            size_t g = head * r->group, end = g + r->group;
            const float *weight = r->from + i;

            for (; g + 4 <= end; g += 4)
                add_heads(r, g, w, weight + g * r->stride, r->stride, ahead, type, 4, n,
                          4);
            for (; g + 2 <= end; g += 2)
                add_heads(r, g, w, weight + g * r->stride, r->stride, ahead, type, 2, n,
                          4);
            for (; g < end; g++)
                add_heads(r, g, w, weight + g * r->stride, r->stride, ahead, type, 1, n,
                          8);
        }
    }
}

#define LOOPS(name, type)                                                  \
    CPU_WIDE static void name##_dots(const struct decode_float_request *r) \
    {                                                                      \
        dots_wide(r, type);                                                \
    }                                                                      \
    CPU_WIDE static void name##_add(const struct decode_float_request *r)  \
    {                                                                      \
        adds_wide(r, type);                                                \
    }

LOOPS(f32, FORMAT_F32)
LOOPS(bf16, FORMAT_BF16)
#endif

/* What the loops above load. */
enum { TAKEN = 1 << FORMAT_F32 | 1 << FORMAT_BF16 | 1 << FORMAT_CACHE_INT8 };

bool decode_float_has(const struct kv_rows *k)
{
#if CPU_HAS_WIDE
    return k->dim % VEC == 0 && k->by_head && (TAKEN >> k->type & 1) &&
           cpu_has() != CPU_ANY;
#else
    (void)k;
    return false;
#endif
}

void decode_float_dots(float *score, size_t stride, const float *q, size_t group,
                       const struct kv_rows *k, size_t head, size_t heads, size_t first,
                       size_t n)
{
#if CPU_HAS_WIDE
    const struct decode_float_request r = { score, q,     stride, group, head,
                                            heads, first, n,      k };

    if (!cpu_is_wide() || k->type == FORMAT_CACHE_INT8)
        decode_float_dots_avx2(&r);
    else
        (k->type == FORMAT_F32 ? f32_dots : bf16_dots)(&r);
#else
    (void)score, (void)stride, (void)q, (void)group, (void)k, (void)head, (void)heads;
    (void)first, (void)n;
#endif
}

void decode_float_add(float *y, const float *weight, size_t stride, size_t group,
                      const struct kv_rows *k, size_t head, size_t heads, size_t first,
                      size_t n)
{
#if CPU_HAS_WIDE
    const struct decode_float_request r = { y,     weight, stride, group, head,
                                            heads, first,  n,      k };

    if (!cpu_is_wide() || k->type == FORMAT_CACHE_INT8)
        decode_float_add_avx2(&r);
    else
        (k->type == FORMAT_F32 ? f32_add : bf16_add)(&r);
#else
    (void)y, (void)weight, (void)stride, (void)group, (void)k, (void)head, (void)heads;
    (void)first, (void)n;
#endif
}
