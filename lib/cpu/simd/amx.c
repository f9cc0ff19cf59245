/* amx - products of tiles of bf16, or of bytes, by a CPU's matrix unit
 *
 * tdpbf16ps adds the products of the two terms of each pair to an f32 sum, pair after
 * pair; it flushes subnormal numbers to zero (Intel's manual). */
#define _GNU_SOURCE /* syscall */
#include "lib/cpu/simd/amx.h"

#include <string.h>

#include "lib/cpu/cpu.h"
#include "lib/cpu/simd/vec.h"

#if CPU_HAS_WIDE
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    TILE = AMX_ROWS,
    TILE_NUMBERS = TILE * AMX_SIDE,
    ASK_FOR_STATE = 0x1023, /* ARCH_REQ_XCOMP_PERM of Linux's arch_prctl, */
    TILE_DATA = 18,         /* for this part of a thread's state */
    STATES = 3 << 17        /* of XCR0: the kernel saves tiles */
};

/* The CPU has tiles (bit 24 of CPUID leaf 7, EDX) of bf16 (bit 22) and bytes (bit 25),
 * and Linux allows them.  It rounds to bf16 then, too. */
static bool find_tiles(void)
{
    unsigned a, b, c, d;

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 22 & 13) != 13 ||
        !__builtin_cpu_supports("avx512bf16"))
        return false;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a & STATES) == STATES &&
           syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}

bool amx_has(void)
{
    static int has; /* 1: no, 2: yes; any thread finds the same */
    int known = __atomic_load_n(&has, __ATOMIC_RELAXED);

    if (!known) {
        known = find_tiles() ? 2 : 1;
        __atomic_store_n(&has, known, __ATOMIC_RELAXED);
    }
    return known == 2 && cpu_is_wide();
}

void amx_begin(void)
{
    /* palette 1: eight tiles of up to 16 rows of 64 bytes */
    struct {
        uint8_t palette, start, none[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } tiles = { .palette = 1 };

    for (int i = 0; i < 8; i++) {
        tiles.bytes[i] = AMX_BYTES;
        tiles.rows[i] = TILE;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(tiles));
}

void amx_end(void)
{
    __asm__ volatile("tilerelease" : : : "memory");
}

/* The lanes of *a and *b in turns, those from LOW on of each quarter; and pairs of
 * these. */
#define IN_TURNS(a, b, low)                                                            \
    __builtin_shufflevector(a, b, low, 16 + low, low + 1, 17 + low, low + 4, 20 + low, \
                            low + 5, 21 + low, low + 8, 24 + low, low + 9, 25 + low,   \
                            low + 12, 28 + low, low + 13, 29 + low)
#define PAIRS_OF(a, b, low)                                                           \
    __builtin_shufflevector(a, b, low, low + 1, 16 + low, 17 + low, low + 4, low + 5, \
                            20 + low, 21 + low, low + 8, low + 9, 24 + low, 25 + low, \
                            low + 12, low + 13, 28 + low, 29 + low)
/* The quarters I and I + 2 of *a and of *b. */
#define QUARTERS(a, b, i)                                                              \
    __builtin_shufflevector(a, b, 4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3, 8 + 4 * i,   \
                            9 + 4 * i, 10 + 4 * i, 11 + 4 * i, 16 + 4 * i, 17 + 4 * i, \
                            18 + 4 * i, 19 + 4 * i, 24 + 4 * i, 25 + 4 * i,            \
                            26 + 4 * i, 27 + 4 * i)
#define EACH _Pragma("GCC unroll 16") for

/* v[i][k] becomes v[k][i], of sixteen by sixteen. */
static inline CPU_WIDE __attribute__((always_inline)) void turn(vec v[TILE])
{
    vec t[TILE];

    EACH(int k = 0; k < TILE; k += 2)
    {
        t[k] = IN_TURNS(v[k], v[k + 1], 0);
        t[k + 1] = IN_TURNS(v[k], v[k + 1], 2);
    }
    EACH(int k = 0; k < TILE; k += 4)
    {
        v[k] = PAIRS_OF(t[k], t[k + 2], 0);
        v[k + 1] = PAIRS_OF(t[k], t[k + 2], 2);
        v[k + 2] = PAIRS_OF(t[k + 1], t[k + 3], 0);
        v[k + 3] = PAIRS_OF(t[k + 1], t[k + 3], 2);
    }
    /* v[4 g + i] has, in quarter q, column 4 q + i of rows 4 g to 4 g + 3 */
    EACH(int i = 0; i < 4; i++)
    {
        t[i] = QUARTERS(v[i], v[4 + i], 0);          /* q 0 and 2 of g 0, then g 1 */
        t[4 + i] = QUARTERS(v[i], v[4 + i], 1);      /* q 1 and 3 */
        t[8 + i] = QUARTERS(v[8 + i], v[12 + i], 0); /* of g 2, then g 3 */
        t[12 + i] = QUARTERS(v[8 + i], v[12 + i], 1);
    }
    EACH(int i = 0; i < 4; i++)
    {
        v[i] = QUARTERS(t[i], t[8 + i], 0);
        v[8 + i] = QUARTERS(t[i], t[8 + i], 1);
        v[4 + i] = QUARTERS(t[4 + i], t[12 + i], 0);
        v[12 + i] = QUARTERS(t[4 + i], t[12 + i], 1);
    }
}

/* *to = the numbers of *low, then those of *high, rounded to bf16. */
static inline CPU_WIDE __attribute__((always_inline)) void
round_two(vec *to, const vec *low, const vec *high)
{
    vec bits;

    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(bits) : "v"(*low), "v"(*high));
    *to = bits;
}

/* The same of N <= AMX_SIDE numbers at X, and zeros. */
static inline CPU_WIDE __attribute__((always_inline)) void
round_some(vec *to, const float *x, size_t n)
{
    vec v[2] = { { 0 } };

    memcpy(v, x, n * sizeof(*x));
    round_two(to, &v[0], &v[1]);
}

CPU_WIDE void amx_round(uint16_t *to, const float *x, size_t n)
{
    vec v;

    for (; n >= AMX_SIDE; n -= AMX_SIDE, x += AMX_SIDE, to += AMX_SIDE) {
        round_some(&v, x, AMX_SIDE);
        memcpy(to, &v, sizeof(v));
    }
    round_some(&v, x, n);
    memcpy(to, &v, n * sizeof(*to));
}

/* N <= AMX_SIDE numbers at X and zeros; NARROW, a constant: they are bf16, else they
 * are rounded. */
static inline CPU_WIDE __attribute__((always_inline)) void
load_some(vec *to, const char *x, size_t n, bool narrow)
{
    vec bits = { 0 };

    if (!narrow) {
        round_some(to, (const float *)(const void *)x, n);
        return;
    }
    memcpy(&bits, x, n * sizeof(uint16_t));
    *to = bits;
}

/* X has rows of STRIDE bytes. */
static inline CPU_WIDE __attribute__((always_inline)) void
pack(uint16_t *to, const char *x, size_t stride, size_t rows, size_t terms,
     size_t steps, bool narrow)
{
    const size_t size = narrow ? sizeof(uint16_t) : sizeof(float);

    for (size_t k = 0; k < steps * AMX_SIDE; k += AMX_SIDE)
        for (size_t i = 0; i < AMX_SIDE; i += TILE, to += TILE_NUMBERS) {
            size_t some = k >= terms ? 0 : terms - k < AMX_SIDE ? terms - k : AMX_SIDE;
            vec v[TILE];

            EACH(size_t r = 0; r < TILE; r++)
            {
                const char *row = x + (i + r) * stride + k * size;

                if (some == AMX_SIDE && i + r < rows)
                    load_some(&v[r], row, AMX_SIDE, narrow);
                else
                    load_some(&v[r], row, i + r < rows ? some : 0, narrow);
            }
            turn(v);
            memcpy(to, v, sizeof(v));
        }
}

CPU_WIDE void amx_pack(uint16_t *to, const float *x, size_t x_stride, size_t rows,
                       size_t terms, size_t steps)
{
    pack(to, (const char *)x, x_stride * sizeof(*x), rows, terms, steps, false);
}

CPU_WIDE void amx_turn(uint16_t *to, const uint16_t *x, size_t x_stride, size_t rows,
                       size_t terms, size_t steps)
{
    pack(to, (const char *)x, x_stride * sizeof(*x), rows, terms, steps, true);
}

/* X has rows of STRIDE bytes; NARROW as above. */
static inline CPU_WIDE __attribute__((always_inline)) void
pack_columns(uint16_t *to, const char *x, size_t stride, size_t terms, size_t cols,
             bool narrow)
{
    const size_t size = narrow ? sizeof(uint16_t) : sizeof(float);
    const vec_pairs order = { 0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                              21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                              11, 27, 12, 28, 13, 29, 14, 30, 15, 31 };

    for (size_t c = 0; c < AMX_SIDE; c += TILE)
        for (size_t k = 0; k < AMX_SIDE; k += 2, to += AMX_SIDE) {
            size_t some = c >= cols ? 0 : cols - c < TILE ? cols - c : TILE;
            vec v[2] = { { 0 } };

            for (size_t i = 0; i < 2 && k + i < terms; i++) {
                char *row = (char *)v + i * TILE * size;
                const char *from = x + (k + i) * stride + c * size;

                if (some == TILE)
                    memcpy(row, from, TILE * size);
                else
                    memcpy(row, from, some * size);
            }
            if (!narrow)
                round_two(&v[0], &v[0], &v[1]);
            /* numbers I and 16 + I become neighbours */
            __asm__("vpermw %0, %1, %0" : "+v"(v[0]) : "v"(order));
            memcpy(to, &v[0], sizeof(v[0]));
        }
}

CPU_WIDE void amx_pack_columns(uint16_t *to, const float *x, size_t x_stride,
                               size_t terms, size_t cols)
{
    pack_columns(to, (const char *)x, x_stride * sizeof(*x), terms, cols, false);
}

CPU_WIDE void amx_weave(uint16_t *to, const uint16_t *x, size_t x_stride, size_t terms,
                        size_t cols)
{
    pack_columns(to, (const char *)x, x_stride * sizeof(*x), terms, cols, true);
}

#define LOAD(tile, at, stride)                           \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile  \
                     :                                   \
                     : "r"(at), "r"((uintptr_t)(stride)) \
                     : "memory")
/* sum += w x */
#define MULTIPLY(sum, w, x) \
    __asm__ volatile("tdpbf16ps %tmm" #x ", %tmm" #w ", %tmm" #sum)
/* The same of signed bytes by unsigned ones. */
#define MULTIPLY_BYTES(sum, x, w) \
    __asm__ volatile("tdpbsud %tmm" #w ", %tmm" #x ", %tmm" #sum)
#define ZERO(tile) __asm__ volatile("tilezero %tmm" #tile)
#define STORE(tile, at, stride)                             \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" \
                     :                                      \
                     : "r"(at), "r"((uintptr_t)(stride))    \
                     : "memory")

/* Tiles 0 to 2, of a digit each, += a tile of codes at W times these terms of x. */
static inline __attribute__((always_inline)) void
add_codes(const int8_t *x, size_t digit, size_t row, const uint8_t *w)
{
    LOAD(3, w, AMX_BYTES);
    LOAD(4, x, row);
    MULTIPLY_BYTES(0, 4, 3);
    LOAD(5, x + digit, row);
    MULTIPLY_BYTES(1, 5, 3);
    LOAD(6, x + 2 * digit, row);
    MULTIPLY_BYTES(2, 6, 3);
}

void amx_sum_codes(int32_t sums[AMX_DIGITS][AMX_ROWS][AMX_ROWS], const int8_t *x,
                   size_t digit, size_t row, const uint8_t *w, size_t words)
{
    enum { LINE = AMX_BYTES, AHEAD = 4096 };
    uint8_t rest[AMX_WORDS * LINE];

    ZERO(0);
    ZERO(1);
    ZERO(2);
    for (; words >= AMX_WORDS; words -= AMX_WORDS, w += AMX_WORDS * LINE) {
        EACH(int i = 0; i < AMX_WORDS; i++)
        __builtin_prefetch((const void *)((uintptr_t)w + AHEAD + i * LINE), 0, 2);
        add_codes(x, digit, row, w);
        x += AMX_BYTES;
    }
    if (words) {
        memset(rest, 0, sizeof(rest));
        memcpy(rest, w, words * LINE);
        add_codes(x, digit, row, rest);
    }
    STORE(0, sums[0], LINE);
    STORE(1, sums[1], LINE);
    STORE(2, sums[2], LINE);
}

/* sums[outputs][rows], with STRIDE, of one tile of rows unless BOTH; BOTH and LINES are
 * constants after inlining.  Prefetches the rows of y that are written next. */
static inline CPU_WIDE __attribute__((always_inline)) void
make_sums(float *sums, size_t sums_stride, const struct amx_product *p, int lines,
          bool both)
{
    const size_t stride = p->w_stride * sizeof(*p->w),
                 row = p->y_stride * sizeof(float);
    const size_t sum_row = sums_stride * sizeof(float);
    const char *w = (const char *)p->w, *x = (const char *)p->x, *ahead = p->ahead;
    const char *y = (const char *)p->y, *end = y + (p->transposed ? 0 : p->rows * row);

    ZERO(0);
    ZERO(1);
    ZERO(2);
    ZERO(3);
    for (size_t k = 0; k < p->steps; k++, w += AMX_BYTES, x += AMX_SIDE * AMX_BYTES) {
        if (lines && k == p->until && p->then)
            ahead = p->then;
        EACH(int i = 0; i < lines; i++)
        __builtin_prefetch(ahead + (size_t)i * p->apart, 0, 3);
        ahead += AMX_BYTES;
        if (y < end) {
            __builtin_prefetch(y, 1, 3);
            __builtin_prefetch(y + AMX_BYTES, 1, 3);
            y += row;
        }
        LOAD(4, w, stride);
        LOAD(6, x, AMX_BYTES);
        MULTIPLY(0, 4, 6);
        if (both) {
            LOAD(7, x + TILE * AMX_BYTES, AMX_BYTES);
            MULTIPLY(1, 4, 7);
        }
        LOAD(5, w + TILE * stride, stride);
        MULTIPLY(2, 5, 6);
        if (both)
            MULTIPLY(3, 5, 7);
    }
    STORE(0, sums, sum_row);
    STORE(2, sums + TILE * sums_stride, sum_row);
    if (both) {
        STORE(1, sums + TILE, sum_row);
        STORE(3, sums + TILE * sums_stride + TILE, sum_row);
    }
}

/* Y of M rows by N outputs, of one tile, = what SUMS has of them. */
static inline CPU_WIDE __attribute__((always_inline)) void
store(float *y, size_t y_stride, float (*sums)[AMX_SIDE], size_t m, size_t n, bool add)
{
    vec v[TILE];

    EACH(int i = 0; i < TILE; i++) vec_load_f32(&v[i], sums[i]);
    turn(v);
    if (m == TILE && n == TILE) {
        EACH(size_t i = 0; i < TILE; i++)
        {
            vec to;

            if (add) {
                vec_load_f32(&to, y + i * y_stride);
                v[i] += to;
            }
            memcpy(y + i * y_stride, &v[i], sizeof(v[i]));
        }
        return;
    }
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            y[i * y_stride + j] = add ? y[i * y_stride + j] + v[i][j] : v[i][j];
}

#define SUMS(lines)                                    \
    case lines:                                        \
        if (p->rows > TILE)                            \
            make_sums(to, to_stride, p, lines, true);  \
        else                                           \
            make_sums(to, to_stride, p, lines, false); \
        break

CPU_WIDE void amx_multiply(const struct amx_product *p)
{
    float sums[AMX_SIDE][AMX_SIDE] __attribute__((aligned(AMX_BYTES)));
    const bool in_place = p->transposed && p->rows == AMX_SIDE && p->outs == AMX_SIDE;
    const size_t to_stride = in_place ? p->y_stride : AMX_SIDE;
    float *to = in_place ? p->y : sums[0];

    switch (p->ahead ? p->lines : 0) {
        SUMS(0);
        SUMS(1);
        SUMS(2);
        SUMS(4);
        SUMS(8);
        SUMS(16);
        SUMS(32);
    }
    for (size_t j = 0; j < p->outs && p->transposed && !in_place; j++)
        memcpy(p->y + j * p->y_stride, sums[j], p->rows * sizeof(*p->y));
    for (size_t i = 0; i < p->rows && !p->transposed; i += TILE)
        for (size_t j = 0; j < p->outs; j += TILE) {
            float(*from)[AMX_SIDE] = (float(*)[AMX_SIDE]) & sums[j][i];
            size_t m = p->rows - i < TILE ? p->rows - i : TILE;
            size_t n = p->outs - j < TILE ? p->outs - j : TILE;

            store(p->y + i * p->y_stride + j, p->y_stride, from, m, n, p->add);
        }
}
#else
void amx_sum_codes(int32_t sums[AMX_DIGITS][AMX_ROWS][AMX_ROWS], const int8_t *x,
                   size_t digit, size_t row, const uint8_t *w, size_t words)
{
    (void)sums;
    (void)x;
    (void)digit;
    (void)row;
    (void)w;
    (void)words;
}

void amx_round(uint16_t *to, const float *x, size_t n)
{
    (void)to;
    (void)x;
    (void)n;
}

bool amx_has(void)
{
    return false;
}

void amx_begin(void)
{
}

void amx_end(void)
{
}

void amx_pack(uint16_t *to, const float *x, size_t x_stride, size_t rows, size_t terms,
              size_t steps)
{
    (void)to;
    (void)x;
    (void)x_stride;
    (void)rows;
    (void)terms;
    (void)steps;
}

void amx_pack_columns(uint16_t *to, const float *x, size_t x_stride, size_t terms,
                      size_t cols)
{
    (void)to;
    (void)x;
    (void)x_stride;
    (void)terms;
    (void)cols;
}

void amx_multiply(const struct amx_product *p)
{
    (void)p;
}

void amx_turn(uint16_t *to, const uint16_t *x, size_t x_stride, size_t rows,
              size_t terms, size_t steps)
{
    (void)to;
    (void)x;
    (void)x_stride;
    (void)rows;
    (void)terms;
    (void)steps;
}

void amx_weave(uint16_t *to, const uint16_t *x, size_t x_stride, size_t terms,
               size_t cols)
{
    (void)to;
    (void)x;
    (void)x_stride;
    (void)terms;
    (void)cols;
}
#endif
