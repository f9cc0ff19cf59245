/* decode-int8 - attention over keys and values of 8 bits, by products of integers */
#include "lib/cpu/attention/decode-int8.h"

#include <string.h>

#include "lib/base/codes.h"

bool decode_int8_has(const struct kv_rows *k)
{
    return k->type == FORMAT_CACHE_INT8 && k->by_head && cpu_has() == CPU_VNNI;
}

#if CPU_HAS_WIDE
#pragma GCC target("arch=x86-64-v4,avx512vnni")
#include <immintrin.h>

#define ALL _Pragma("GCC unroll 24") for

enum {
    QUERY_MOST = 32767,
    WEIGHT_MOST = (1 << 23) - 1,
    KEYS = 4,    /* rows of a tile */
    QUERIES = 4, /* of a tile, at most */
    WORDS = 32,  /* columns of a register of 16 bits, */
    BYTES = 64,  /* and of 8 */
    DIGITS = DECODE_INT8_DIGITS,
    QUARTERS = 4 /* of a register */
};

static inline __attribute__((always_inline)) __mmask64 first_of(size_t n)
{
    return n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
}

static inline __attribute__((always_inline)) void prefetch(const char *p, size_t ahead)
{
    _mm_prefetch((const char *)((uintptr_t)p + ahead), _MM_HINT_T1);
}

static inline __attribute__((always_inline)) float number_at(const char *p)
{
    float number;

    memcpy(&number, p, sizeof(number));
    return number;
}

/* Bytes from the start of a row to the scale of HEAD. */
static inline size_t scale_of(const struct kv_rows *k, size_t head)
{
    return head * k->apart / k->per * sizeof(float);
}

/* *sum += in each lane, the products of two numbers of 16 bits, or of four bytes of
 * which those of *a are unsigned; without the copies of *sum that compilers make. */
static inline __attribute__((always_inline)) void
add_words(__m512i *sum, const __m512i *a, const __m512i *b)
{
    __m512i to = *sum;

    __asm__("vpdpwssd %2, %1, %0" : "+v"(to) : "v"(*a), "v"(*b));
    *sum = to;
}

static inline __attribute__((always_inline)) void
add_bytes(__m512i *sum, const __m512i *a, const __m512i *b)
{
    __m512i to = *sum;

    __asm__("vpdpbusd %2, %1, %0" : "+v"(to) : "v"(*a), "v"(*b));
    *sum = to;
}

/* ---- scores ---- */

void decode_int8_round(const struct decode_int8_queries *to, size_t at, const float *q,
                       size_t stride, size_t n)
{
    /* so that a sum of products with codes is below 2^31 */
    const size_t dim = to->dim, terms = decode_int8_terms(dim);
    const size_t room = (size_t)(INT32_MAX / 127) / dim;
    const float most = (float)(room < QUERY_MOST ? room : QUERY_MOST);

    for (size_t i = at; i < at + n; i++, q += stride) {
        int16_t *term = to->term + i * terms;
        float inverse = codes_inverse(codes_largest(q, dim), most, &to->scale[i]);

        memset(term, 0, terms * sizeof(*term));
        for (size_t c = 0; c < dim && inverse > 0; c += VEC) {
            __m512 v = _mm512_maskz_loadu_ps((__mmask16)first_of(dim - c), q + c);

            _mm256_storeu_si256((__m256i *)(void *)(term + c),
                                _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(
                                    _mm512_mul_ps(v, _mm512_set1_ps(inverse)))));
        }
    }
}

/* Lane I of quarter Q of the result: the sum of the lanes of acc[KEYS * Q + I]. */
static inline __attribute__((always_inline)) __m512i sum_lanes(const __m512i *acc)
{
    __m512i of[QUERIES], low, high;

    ALL(int q = 0; q < QUERIES; q++)
    {
        const __m512i *a = acc + q * KEYS;
        __m512i x = _mm512_add_epi32(_mm512_unpacklo_epi32(a[0], a[1]),
                                     _mm512_unpackhi_epi32(a[0], a[1]));
        __m512i y = _mm512_add_epi32(_mm512_unpacklo_epi32(a[2], a[3]),
                                     _mm512_unpackhi_epi32(a[2], a[3]));

        of[q] =
            _mm512_add_epi32(_mm512_unpacklo_epi64(x, y), _mm512_unpackhi_epi64(x, y));
    }
    low = _mm512_add_epi32(_mm512_shuffle_i64x2(of[0], of[1], 0x44),
                           _mm512_shuffle_i64x2(of[0], of[1], 0xee));
    high = _mm512_add_epi32(_mm512_shuffle_i64x2(of[2], of[3], 0x44),
                            _mm512_shuffle_i64x2(of[2], of[3], 0xee));
    return _mm512_add_epi32(_mm512_shuffle_i64x2(low, high, 0x88),
                            _mm512_shuffle_i64x2(low, high, 0xdd));
}

/* A tile: KEYS rows, of which the last may stand for rows that there are not, by
 * QUERIES queries at most: HEADS heads with OF each, which are constants. */
struct tile {
    const char *row[KEYS];
    size_t n;     /* rows that there are */
    size_t at;    /* the first in the request */
    size_t head;  /* the first head, */
    size_t query; /* and the first query in the request */
    size_t ahead; /* bytes to what is prefetched, or 0 */
};

/* Products of columns from C on.  WHOLE is a constant. */
static inline __attribute__((always_inline)) void
multiply(__m512i *acc, const char *const row[KEYS], size_t ahead, const int16_t *q,
         size_t terms, size_t c, __mmask32 mask, int of, bool whole)
{
    __m512i key[KEYS];

    ALL(int i = 0; i < KEYS; i++)
    {
        const char *w = row[i] + c;

        key[i] = _mm512_cvtepi8_epi16(
            whole ? _mm256_loadu_si256((const __m256i *)(const void *)w)
                  : _mm256_maskz_loadu_epi8(mask, w));
        if (ahead && c % BYTES == 0)
            prefetch(w, ahead);
    }
    ALL(int h = 0; h < of; h++)
    {
        __m512i term = _mm512_loadu_si512(q + (size_t)h * terms + c);

        ALL(int i = 0; i < KEYS; i++)
        add_words(&acc[h * KEYS + i], &key[i], &term);
    }
}

static inline __attribute__((always_inline)) void
dot_tile(const struct decode_int8_dots *r, const struct tile *t, int heads, int of)
{
    const struct kv_rows *k = r->k;
    const size_t dim = k->dim, terms = decode_int8_terms(dim);
    const __mmask8 queries = (__mmask8)first_of((size_t)(heads * of));
    __m512i acc[QUERIES * KEYS];
    __m128 four[QUARTERS];
    __m512 sum, scale;

    ALL(int s = 0; s < QUERIES * KEYS; s++) acc[s] = _mm512_setzero_si512();
    ALL(int h = 0; h < heads; h++)
    {
        const int16_t *q = r->query->term + (t->query + (size_t)(h * of)) * terms;
        const size_t head = t->head + (size_t)h, from = scale_of(k, head);
        const char *row[KEYS];
        size_t c = 0;

        ALL(int i = 0; i < KEYS; i++)
        row[i] = t->row[i] + (kv_rows_part(k, FORMAT_CACHE_INT8, head, 0) - k->data);
        for (; c + WORDS <= dim; c += WORDS)
            multiply(acc + h * of * KEYS, row, t->ahead, q, terms, c, 0, of, true);
        if (c < dim)
            multiply(acc + h * of * KEYS, row, t->ahead, q, terms, c,
                     (__mmask32)first_of(dim - c), of, false);
        four[h] = _mm_set_ps(number_at(t->row[3] + from), number_at(t->row[2] + from),
                             number_at(t->row[1] + from), number_at(t->row[0] + from));
    }
    scale = _mm512_broadcast_f32x4(four[0]);
    if (heads == 2)
        scale = _mm512_mask_broadcast_f32x4(scale, 0xff00, four[1]);
    if (heads == 4) {
        scale = _mm512_mask_broadcast_f32x4(scale, 0x00f0, four[1]);
        scale = _mm512_mask_broadcast_f32x4(scale, 0x0f00, four[2]);
        scale = _mm512_mask_broadcast_f32x4(scale, 0xf000, four[3]);
    }
    sum = _mm512_cvtepi32_ps(sum_lanes(acc));
    sum = _mm512_mul_ps(
        sum, _mm512_permutexvar_ps(
                 _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0),
                 _mm512_castps128_ps512(
                     _mm_maskz_loadu_ps(queries, r->query->scale + t->query))));
    sum = _mm512_mul_ps(sum, scale);
    four[0] = _mm512_castps512_ps128(sum);
    four[1] = _mm512_extractf32x4_ps(sum, 1);
    four[2] = _mm512_extractf32x4_ps(sum, 2);
    four[3] = _mm512_extractf32x4_ps(sum, 3);
    ALL(int h = 0; h < heads * of; h++)
    _mm_mask_storeu_ps(r->score + (t->query + (size_t)h) * r->stride + t->at,
                       (__mmask8)first_of(t->n), four[h]);
}

void decode_int8_dots(const struct decode_int8_dots *r)
{
    const struct kv_rows *k = r->k;
    const size_t ahead = kv_rows_ahead(k);
    const char *row = k->data + r->first * k->bytes;
    struct tile t;

    for (t.at = 0; t.at < r->n; t.at += KEYS, row += KEYS * k->bytes) {
        const size_t end = r->head + r->heads;

        t.n = r->n - t.at < KEYS ? r->n - t.at : KEYS;
        t.query = 0;
        for (size_t i = 0; i < KEYS; i++) {
            t.row[i] = row + (i < t.n ? i * k->bytes : 0);
            prefetch(t.row[i], ahead);
        }
        for (t.head = r->head; t.head < end;) {
            const size_t last = t.query + r->group;

            t.ahead = ahead;
            if (r->group == 1 && t.head + 4 <= end) {
                dot_tile(r, &t, 4, 1);
                t.head += 4;
                t.query += 4;
                continue;
            }
            if (r->group == 2 && t.head + 2 <= end) {
                dot_tile(r, &t, 2, 2);
                t.head += 2;
                t.query += 4;
                continue;
            }
            for (; t.query + 4 <= last; t.query += 4, t.ahead = 0)
                dot_tile(r, &t, 1, 4);
            for (; t.query + 2 <= last; t.query += 2, t.ahead = 0)
                dot_tile(r, &t, 1, 2);
            for (; t.query < last; t.query++, t.ahead = 0)
                dot_tile(r, &t, 1, 1);
            t.head++;
        }
    }
}

/* ---- sums of values ---- */

void decode_int8_open(struct decode_int8_sum *s, const struct kv_rows *k, size_t head,
                      size_t group)
{
    s->k = k;
    s->head = head;
    s->group = group;
    memset(s->most, 0, sizeof(s->most));
    memset(s->sum, 0, group * DIGITS * decode_int8_terms(k->dim) * sizeof(*s->sum));
}

void decode_int8_weigh(struct decode_int8_sum *s, size_t at, const float *weight,
                       size_t stride, size_t row, size_t n)
{
    const char *from = s->k->data + row * s->k->bytes + scale_of(s->k, s->head);
    float scale[DECODE_INT8_PART];

    for (size_t i = 0; i < n; i++, from += s->k->bytes)
        scale[i] = number_at(from);
    for (size_t g = 0; g < s->group; g++, weight += stride) {
        __m512i most = _mm512_set1_epi32(s->most[g]);

        for (size_t i = 0; i < n; i += VEC) {
            const __mmask16 some = (__mmask16)first_of(n - i);
            __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(some, weight + i),
                                     _mm512_maskz_loadu_ps(some, scale + i));

            _mm512_mask_storeu_ps(s->weight[g] + at + i, some, v);
            /* without their signs, bits are ordered as numbers are, and NaN are the
             * largest */
            most =
                _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(v),
                                                        _mm512_set1_epi32(INT32_MAX)));
        }
        s->most[g] = _mm512_reduce_max_epi32(most);
    }
}

void decode_int8_start(struct decode_int8_sum *s, size_t n)
{
    for (size_t g = 0; g < s->group; g++) {
        const float largest = number_at((const char *)&s->most[g]);
        const float inverse = codes_inverse(largest, WEIGHT_MOST, &s->scale[g]);

        for (size_t i = 0; i < n; i += VEC) {
            __mmask16 some = (__mmask16)first_of(inverse > 0 ? n - i : 0);
            __m512i whole = _mm512_cvtps_epi32(
                _mm512_mul_ps(_mm512_maskz_loadu_ps(some, s->weight[g] + i),
                              _mm512_set1_ps(inverse)));

            for (size_t d = 0; d < DIGITS; d++, whole = _mm512_srli_epi32(whole, 8))
                _mm_storeu_si128((__m128i *)(void *)(s->digit[g][d] + i),
                                 _mm512_cvtepi32_epi8(whole));
        }
    }
}

/* *q = quarters from FIRST on, COUNT of them: a lane has the four rows' bytes of one
 * column.  Quarter Q of 16 columns has the columns 4 Q to 4 Q + 3. */
static inline __attribute__((always_inline)) void weave(__m512i *q, const __m512i *row,
                                                        int first, int count)
{
    ALL(int half = first / 2; half < (first + count) / 2; half++)
    {
        __m512i a = half ? _mm512_unpackhi_epi8(row[0], row[1])
                         : _mm512_unpacklo_epi8(row[0], row[1]);
        __m512i b = half ? _mm512_unpackhi_epi8(row[2], row[3])
                         : _mm512_unpacklo_epi8(row[2], row[3]);

        q[half * 2 - first] = _mm512_unpacklo_epi16(a, b);
        q[half * 2 - first + 1] = _mm512_unpackhi_epi16(a, b);
    }
}

/* acc[query][digit][quarter] += the products with four rows at W, BYTES apart, and the
 * weights at DIGIT. */
static inline __attribute__((always_inline)) void
add_rows(__m512i *acc, const char *w, size_t bytes, __mmask64 mask,
         const uint8_t *digit, size_t apart, size_t digits_apart, int of, int first,
         int count)
{
    __m512i row[KEYS], quarter[QUARTERS];

    ALL(int i = 0; i < KEYS; i++)
    row[i] = _mm512_maskz_loadu_epi8(mask, w + (size_t)i * bytes);
    weave(quarter, row, first, count);
    ALL(int g = 0; g < of; g++)
    ALL(int d = 0; d < DIGITS; d++)
    {
        int32_t four;
        __m512i by;

        memcpy(&four, digit + (size_t)g * apart + (size_t)d * digits_apart,
               sizeof(four));
        by = _mm512_set1_epi32(four);
        ALL(int q = 0; q < count; q++)
        add_bytes(&acc[(g * DIGITS + d) * count + q], &by, &quarter[q]);
    }
}

/* Some columns of the rows of a head, at most BYTES. */
struct columns {
    const char *w; /* of the first row */
    __mmask64 mask;
    const char *next; /* rows to prefetch meanwhile */
    size_t c;         /* the first column */
    size_t at, n;     /* the weight of the first row; rows */
};

/* With the weights of OF queries from G on; quarters from FIRST on, COUNT of them:
 * constants. */
static inline __attribute__((always_inline)) void add_columns(struct decode_int8_sum *s,
                                                              const struct columns *t,
                                                              size_t g, int of,
                                                              int first, int count)
{
    const size_t terms = decode_int8_terms(s->k->dim), bytes = s->k->bytes;
    const size_t apart = sizeof(s->digit[0]), digits_apart = sizeof(s->digit[0][0]);
    const uint8_t *digit = s->digit[g][0] + t->at;
    const char *w = t->w, *next = t->next;
    __m512i acc[QUERIES * DIGITS * 2];
    size_t i = 0;

    ALL(int a = 0; a < of * DIGITS * count; a++) acc[a] = _mm512_setzero_si512();
    for (; i + KEYS <= t->n; i += KEYS, w += KEYS * bytes, next += KEYS * bytes) {
        ALL(size_t r = 0; r < KEYS; r++) prefetch(next, r * bytes);
        add_rows(acc, w, bytes, t->mask, digit + i, apart, digits_apart, of, first,
                 count);
    }
    for (; i < t->n; i++, w += bytes) {
        uint8_t last[QUERIES * DIGITS][KEYS] = { { 0 } };

        ALL(int a = 0; a < of * DIGITS; a++)
        last[a][0] = digit[(size_t)(a / DIGITS) * apart +
                           (size_t)(a % DIGITS) * digits_apart + i];
        add_rows(acc, w, 0, t->mask, last[0], DIGITS * KEYS, KEYS, of, first, count);
    }
    ALL(int a = 0; a < of * DIGITS; a++)
    ALL(int q = 0; q < count; q++)
    {
        int32_t *to =
            s->sum + (g * DIGITS + (size_t)a) * terms + t->c + (size_t)(first + q) * 4;
        _Alignas(64) int32_t sum[VEC];

        _mm512_store_si512(sum, acc[a * count + q]);
        for (size_t lane = 0; lane < VEC; lane++)
            to[lane / 4 * VEC + lane % 4] += sum[lane];
    }
}

void decode_int8_add(struct decode_int8_sum *s, size_t at, size_t row, size_t n)
{
    const struct kv_rows *k = s->k;
    const bool more = s->head + 1 < k->heads;
    /* the next head's part of these rows, or of those after them */
    const char *next = more ? kv_rows_part(k, FORMAT_CACHE_INT8, s->head + 1, row)
                            : kv_rows_part(k, FORMAT_CACHE_INT8, 0, row + n);

    for (size_t c = 0; c < k->dim; c += BYTES) {
        struct columns t = { .w = kv_rows_part(k, FORMAT_CACHE_INT8, s->head, row) + c,
                             .mask = first_of(k->dim - c),
                             .next = next + c,
                             .c = c,
                             .at = at,
                             .n = n };
        const char *last = next + (c + BYTES < k->dim ? c : k->dim - 1);
        size_t g = 0;

        for (; g + 4 <= s->group; g += 4) {
            add_columns(s, &t, g, 4, 0, 2);
            t.next = last;
            add_columns(s, &t, g, 4, 2, 2);
        }
        for (; g + 2 <= s->group; g += 2, t.next = last)
            add_columns(s, &t, g, 2, 0, 4);
        for (; g < s->group; g++, t.next = last)
            add_columns(s, &t, g, 1, 0, 4);
    }
}

void decode_int8_finish(float *y, size_t stride, const struct decode_int8_sum *s)
{
    const size_t dim = s->k->dim, terms = decode_int8_terms(dim);

    for (size_t g = 0; g < s->group; g++, y += stride) {
        const int32_t *low = s->sum + g * DIGITS * terms;

        for (size_t c = 0; c < dim; c += VEC / 2) {
            __m256i digit[DIGITS], high;
            __m512d sum;

            ALL(size_t d = 0; d < DIGITS; d++)
            digit[d] = _mm256_loadu_si256(
                (const __m256i *)(const void *)(low + d * terms + c));
            /* below 2^31; a double holds the whole sum */
            high = _mm256_add_epi32(_mm256_slli_epi32(digit[2], 8), digit[1]);
            sum = _mm512_fmadd_pd(_mm512_cvtepi32_pd(high), _mm512_set1_pd(256),
                                  _mm512_cvtepi32_pd(digit[0]));
            _mm256_mask_storeu_ps(
                y + c, (__mmask8)first_of(dim - c < 8 ? dim - c : 8),
                _mm256_mul_ps(_mm512_cvtpd_ps(sum), _mm256_set1_ps(s->scale[g])));
        }
    }
}
#else
/* never called: decode_int8_has says no */
void decode_int8_round(const struct decode_int8_queries *to, size_t at, const float *q,
                       size_t stride, size_t n)
{
    (void)to, (void)at, (void)q, (void)stride, (void)n;
}

void decode_int8_dots(const struct decode_int8_dots *r)
{
    (void)r;
}

void decode_int8_open(struct decode_int8_sum *s, const struct kv_rows *k, size_t head,
                      size_t group)
{
    (void)s, (void)k, (void)head, (void)group;
}

void decode_int8_weigh(struct decode_int8_sum *s, size_t at, const float *weight,
                       size_t stride, size_t row, size_t n)
{
    (void)s, (void)at, (void)weight, (void)stride, (void)row, (void)n;
}

void decode_int8_start(struct decode_int8_sum *s, size_t n)
{
    (void)s, (void)n;
}

void decode_int8_add(struct decode_int8_sum *s, size_t at, size_t row, size_t n)
{
    (void)s, (void)at, (void)row, (void)n;
}

void decode_int8_finish(float *y, size_t stride, const struct decode_int8_sum *s)
{
    (void)y, (void)stride, (void)s;
}
#endif
