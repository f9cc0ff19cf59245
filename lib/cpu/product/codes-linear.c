/* codes-linear - y = x W^T for weights of 8 and 4 bits
 *
 * A leaf of a struct sum_tree (the whole row without one) is summed segment by segment,
 * from its first term on; sums of segments are added in order.  The scale of 8 bits
 * multiplies the sum of a leaf, so that ranks that hold different leaves round alike.
 */
#include "lib/cpu/product/codes-linear.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/cpu/simd/amx.h"
#include "lib/cpu/cpu.h"
#include "lib/cpu/product/codes-loops.h"
#include "lib/cpu/product/streams.h"
#include "lib/cpu/simd/vec.h"
#include "lib/cpu/product/autotune.h"

/* Ways (autotune.h) of one row by weights of 4 bits: CODES_TILE streams, or one.  By
 * those of 8 bits, which are one stream: without hints, or with them. */
enum { STREAMED, ALONE, CODES_WAYS };

enum {
    TASK = 1 << 18,       /* bytes of weights of a task */
    TILES_TASK = 3 << 18, /* of more rows than a tile has, which read them from L2 */
    TILES_GROUPS = 16,    /* groups that use a segment of x, from L1 */
    CHUNK = 32,           /* rows of x that are used together, from L2 */
    FEW = 4,              /* most rows that the calling thread rounds by itself */
    FINE_MOST = (1 << 22) - 1,
    COARSE_MOST = 127 * 256 + 127 /* two digits of 8 bits */
};

/* A segment of a row. */
struct segment {
    size_t start, n;  /* of its terms */
    size_t lead;      /* of 8 bits: terms of its first word that are not its own */
    size_t at;        /* its first word, or block */
    size_t count;     /* words, or blocks */
    bool first, last; /* of a leaf */
    int adds;         /* sums to join behind it */
};

struct product {
    float *y;
    const float *x;
    size_t rows;
    const struct matrix *w;
    bool four; /* blocks of 4 bits; else words of 8 */
    bool fp8;
    uint64_t groups;        /* of outputs, of a task */
    struct streams streams; /* of groups of outputs: one row of 4 bits or of FP8 */
    int way;                /* of one row */
    bool coarse;            /* terms of x have 16 bits */
    bool tiles;             /* of AMX: rows of 8 bits */
    size_t depth;           /* sums of a tree that are pending at once */
    struct segment *segment;
    size_t nsegments;
    struct codes_segment *rounded; /* [rows][nsegments] */
};

bool cpu_has_codes(const struct matrix *w)
{
    return format_is_coded(w->format);
}

bool codes_by_amx(const struct matrix *w)
{
    return w->format == FORMAT_INT8 && cpu_has() == CPU_VNNI && amx_has();
}

/* ---- rounding ---- */

typedef int8_t vec_i8 __attribute__((vector_size(16)));
typedef int16_t vec_i16 __attribute__((vector_size(32)));

/* Stores the lowest digit of each lane of *v at TO, adds it to *sum and takes it off.
 */
static inline __attribute__((always_inline)) void split(vec_i32 *v, int8_t *to,
                                                        vec_i32 *sum)
{
    vec_i32 digit = (vec_i32)((vec_u32)*v << 24) >> 24;
    vec_i8 bytes =
        __builtin_convertvector(__builtin_convertvector(digit, vec_i16), vec_i8);

    memcpy(to, &bytes, sizeof(bytes));
    *sum += digit;
    *v = (*v - digit) >> 8;
}

static int32_t total(const vec_i32 *v)
{
    int32_t sum = 0;

    for (int i = 0; i < VEC; i++)
        sum += (*v)[i];
    return sum;
}

CPU_CLONES static void round_terms(struct codes_segment *to, const float *x, size_t n,
                                   size_t lead, enum format f, float inverse)
{
    const bool four = codes_are_four(f);
    const int32_t zero = f == FORMAT_MXFP4 ? -12 : -8;
    vec_i32 sum[DIGITS] = { { 0 } };
    size_t block = 0;

    for (int d = 0; d < DIGITS; d++)
        memset(to->digit[d], 0, 4);
    for (size_t i = 0; i < n; i += VEC) {
        vec v = { 0 };
        vec_i32 whole;

        memcpy(&v, x + i, (n - i < VEC ? n - i : VEC) * sizeof(*x));
        /* to the nearest integer; all are below 2^22 */
        v = (v * inverse + 0x1.8p23f) - 0x1.8p23f;
        whole = __builtin_convertvector(v, vec_i32);
        for (int d = 0; d < DIGITS; d++)
            split(&whole, to->digit[d] + lead + i, &sum[d]);
        if (!four || i % CODES_BLOCK == 0)
            continue;
        for (int d = 0; d < DIGITS; d++) {
            to->sum[block][d] = zero * total(&sum[d]);
            sum[d] = (vec_i32){ 0 };
        }
        block++;
    }
    for (int d = 0; d < DIGITS && !four; d++)
        to->sum[0][d] = -128 * total(&sum[d]);
}

/* The same for 8 bits in two digits of 12 bits, or one of 16. */
CPU_CLONES static void round_halves(struct codes_segment *to, const float *x, size_t n,
                                    size_t lead, bool coarse, float inverse)
{
    vec_i32 sum[2] = { { 0 } };

    for (int h = 0; h < 2; h++)
        memset(to->half[h], 0, 4 * sizeof(*to->half[h]));
    for (size_t i = 0; i < n; i += VEC) {
        vec v = { 0 };
        vec_i32 digit[2];

        memcpy(&v, x + i, (n - i < VEC ? n - i : VEC) * sizeof(*x));
        v = (v * inverse + 0x1.8p23f) - 0x1.8p23f;
        digit[0] = __builtin_convertvector(v, vec_i32);
        digit[1] = coarse ? (vec_i32){ 0 } : (digit[0] + 2048) >> 12;
        digit[0] -= digit[1] << 12;
        for (int h = 0; h < 2; h++) {
            vec_i16 words = __builtin_convertvector(digit[h], vec_i16);

            memcpy(to->half[h] + lead + i, &words, sizeof(words));
            sum[h] += digit[h];
        }
    }
    for (int h = 0; h < 2; h++)
        to->sum[0][h] = -128 * total(&sum[h]);
}

void codes_round(struct codes_segment *to, const float *x, size_t n, size_t lead,
                 enum format f, bool coarse)
{
    static const float zeros[SEGMENT_TERMS];
    const float most = coarse ? COARSE_MOST : FINE_MOST;
    const float inverse = codes_inverse(codes_largest(x, n), most, &to->scale);

    if (!(inverse > 0))
        x = zeros;
    if (f == FORMAT_INT8 && codes_by_avx2())
        round_halves(to, x, n, lead, coarse, inverse);
    else
        round_terms(to, x, n, lead, f, inverse);
}

/* The N terms at X between zeros that fill up words. */
static void copy_terms(struct codes_segment *to, const float *x, size_t n, size_t lead)
{
    memset(to->term, 0, 4 * sizeof(*to->term));
    memcpy(to->term + lead, x, n * sizeof(*x));
    memset(to->term + lead + n, 0, 4 * sizeof(*to->term));
}

static void round_row(void *arg, size_t row, int thread)
{
    const struct product *p = arg;
    struct codes_segment *to = p->rounded + row * p->nsegments;

    (void)thread;
    for (size_t k = 0; k < p->nsegments; k++) {
        const struct segment *s = &p->segment[k];

        if (p->fp8)
            copy_terms(&to[k], p->x + row * p->w->cols + s->start, s->n, s->lead);
        else
            codes_round(&to[k], p->x + row * p->w->cols + s->start, s->n, s->lead,
                        p->w->format, p->coarse);
    }
}

/* ---- sums ---- */

/* Rows of x by a group of outputs, or one row by CODES_TILE groups. */
struct part {
    size_t first, rows;
    uint64_t group, apart; /* the first group, and how far it is to the next */
    int groups;
};

/* The scales of segment S of FP8. */
static void find_scales(struct codes_tile *t, const struct matrix *w,
                        const struct part *part, const struct segment *s)
{
    const uint64_t per = w->per ? w->per : (w->cols + 3) / 4 * 4;
    const uint64_t blocks = (w->cols + per - 1) / per, block = s->at * 4 / per;

    t->scale = (const float *)w->scale + (part->group * blocks + block) * CODES_ROWS;
    t->scales_apart = (size_t)(part->apart * blocks) * CODES_ROWS;
    t->per = (size_t)(per / 4);
    t->left = (size_t)(block + 1) * t->per - s->at;
}

/* Y[rows or groups][CODES_ROWS] += segment K of PART. */
static void add_segment(const struct product *p, float *y, const struct part *part,
                        size_t k)
{
    const struct segment *s = &p->segment[k];
    uint64_t of_group = p->four ? p->w->cols / CODES_BLOCK : (p->w->cols + 3) / 4;
    uint64_t line = part->group * of_group + s->at;
    size_t bytes = CODES_ROWS * (p->four ? CODES_BLOCK / 2 : 4); /* of a line */

    for (size_t i = 0; i < part->rows; i += CODES_TILE) {
        size_t left = part->rows - i;
        struct codes_tile t = { .y = y + i * CODES_ROWS,
                                .x = p->rounded + (part->first + i) * p->nsegments + k,
                                .stride = p->nsegments,
                                .w = (const uint8_t *)p->w->data + line * bytes,
                                .apart = (size_t)(part->apart * of_group) * bytes,
                                .count = s->count,
                                .rows = (int)(left < CODES_TILE ? left : CODES_TILE),
                                .groups = part->groups,
                                .hints = p->way == ALONE,
                                .coarse = p->coarse,
                                .format = p->w->format };

        if (p->four) {
            t.scale = (const char *)p->w->scale +
                      line * CODES_ROWS * format_table[p->w->format].scale_bytes;
            codes_int4_segment(&t);
        } else if (p->fp8) {
            find_scales(&t, p->w, part, s);
            codes_fp8_segment(&t);
        } else {
            codes_int8_segment(&t);
        }
    }
}

/* The first output of tile I of PART. */
static size_t output_of(const struct part *part, size_t i)
{
    return (size_t)(part->group + (part->groups > 1 ? i * part->apart : 0)) *
           CODES_ROWS;
}

static void outputs(const struct product *p, const struct part *part)
{
    float pending[TREE_LEAVES][CHUNK * CODES_ROWS];
    size_t count = 0, out = (size_t)p->w->rows;
    size_t tiles = part->groups > 1 ? (size_t)part->groups : part->rows;

    for (size_t k = 0; k < p->nsegments; k++) {
        const struct segment *s = &p->segment[k];
        float *y = pending[count];

        if (s->first)
            memset(y, 0, tiles * CODES_ROWS * sizeof(*y));
        add_segment(p, y, part, k);
        for (size_t i = 0; s->last && p->w->format == FORMAT_INT8 && i < tiles; i++) {
            const float *scale = (const float *)p->w->scale + output_of(part, i);

            for (size_t j = 0; j < CODES_ROWS; j++)
                y[i * CODES_ROWS + j] *= scale[j];
        }
        count += s->last;
        for (int a = 0; a < s->adds; a++, count--)
            for (size_t i = 0; i < tiles * CODES_ROWS; i++)
                pending[count - 2][i] += pending[count - 1][i];
    }
    for (size_t i = 0; i < tiles; i++) {
        size_t from = output_of(part, i), row = part->groups > 1 ? 0 : i;

        memcpy(p->y + (part->first + row) * out + from, pending[0] + i * CODES_ROWS,
               (out - from < CODES_ROWS ? out - from : CODES_ROWS) * sizeof(*p->y));
    }
}

/* Rows FIRST to FIRST + ROWS of the groups [GROUP, END). */
static void some_groups(const struct product *p, size_t first, size_t rows,
                        uint64_t group, uint64_t end)
{
    for (uint64_t g = group; g < end; g++)
        outputs(p, &(struct part){ first, rows, g, 0, 1 });
}

/* Floats of a group's sums by tiles. */
enum { TILE_FLOATS = AMX_ROWS * CODES_ROWS };

/* Sums of GROUPS groups by segment K, of up to AMX_ROWS rows. */
static void add_tiles(const struct product *p, float *y, size_t first, size_t rows,
                      uint64_t group, size_t groups, size_t k)
{
    const struct segment *s = &p->segment[k];
    const uint64_t words = (p->w->cols + 3) / 4;
    struct codes_tile t = { .x = p->rounded + first * p->nsegments + k,
                            .stride = p->nsegments,
                            .count = s->count,
                            .rows = (int)rows };

    for (size_t g = 0; g < groups; g++) {
        const float *scale = (const float *)p->w->scale + (group + g) * CODES_ROWS;

        t.y = y + g * TILE_FLOATS;
        t.w = (const uint8_t *)p->w->data +
              ((group + g) * words + s->at) * CODES_ROWS * 4;
        codes_int8_segment_amx(&t);
        for (size_t i = 0; i < rows && s->last; i++)
            for (size_t j = 0; j < CODES_ROWS; j++)
                t.y[i * CODES_ROWS + j] *= scale[j];
    }
}

/* As outputs, of up to AMX_ROWS rows by GROUPS groups, in tiles. */
static void outputs_by_tiles(const struct product *p, size_t first, size_t rows,
                             uint64_t group, size_t groups)
{
    float pending[TREE_LEAVES * CHUNK * CODES_ROWS];
    const size_t size = groups * TILE_FLOATS, out = (size_t)p->w->rows;
    size_t count = 0;

    for (size_t k = 0; k < p->nsegments; k++) {
        const struct segment *s = &p->segment[k];
        float *y = pending + count * size;

        if (s->first)
            memset(y, 0, size * sizeof(*y));
        add_tiles(p, y, first, rows, group, groups, k);
        count += s->last;
        for (int a = 0; a < s->adds; a++, count--)
            for (size_t i = 0; i < size; i++)
                pending[(count - 2) * size + i] += pending[(count - 1) * size + i];
    }
    for (size_t g = 0; g < groups; g++)
        for (size_t i = 0; i < rows; i++) {
            size_t from = (size_t)(group + g) * CODES_ROWS, left = out - from;

            memcpy(p->y + (first + i) * out + from,
                   pending + g * TILE_FLOATS + i * CODES_ROWS,
                   (left < CODES_ROWS ? left : CODES_ROWS) * sizeof(*p->y));
        }
}

/* All rows of the groups [GROUP, END). */
static void tiles_of_groups(const struct product *p, uint64_t group, uint64_t end)
{
    size_t most = TREE_LEAVES * CHUNK * CODES_ROWS / TILE_FLOATS / p->depth;

    most = most < TILES_GROUPS ? most : TILES_GROUPS;
    amx_begin();
    for (size_t i = 0; i < p->rows; i += AMX_ROWS)
        for (uint64_t g = group; g < end; g += most) {
            size_t left = p->rows - i;

            outputs_by_tiles(p, i, left < AMX_ROWS ? left : AMX_ROWS, g,
                             end - g < most ? (size_t)(end - g) : most);
        }
    amx_end();
}

static uint64_t all_groups(const struct product *p)
{
    return (p->w->rows + CODES_ROWS - 1) / CODES_ROWS;
}

static void run_task(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    uint64_t all = all_groups(p), first = task * p->groups;
    uint64_t end = all - first < p->groups ? all : first + p->groups;

    (void)thread;
    if (p->tiles)
        tiles_of_groups(p, first, end);
    for (size_t i = 0; i < p->rows && !p->tiles; i += CHUNK)
        some_groups(p, i, p->rows - i < CHUNK ? p->rows - i : CHUNK, first, end);
}

/* One row of 4 bits, or of FP8. */
static void run_streams(void *arg, size_t task, int thread)
{
    const struct product *p = arg;
    struct stream_part part = streams_task(&p->streams, task);

    (void)thread;
    for (uint64_t g = part.first; g < part.first + part.times; g++)
        outputs(p, &(struct part){ 0, 1, g, part.apart, CODES_TILE });
    some_groups(p, 0, 1, part.first, part.first + part.count);
}

static void run(struct device *d, struct product *p)
{
    uint64_t all = all_groups(p), row_bytes = p->four ? p->w->cols / 2 : p->w->cols;
    uint64_t bytes = row_bytes * p->w->rows;
    struct streams *s = &p->streams;
    struct autotune *tuning = cpu_autotune(d,
                                           p->fp8    ? STORED_FP8
                                           : p->four ? STORED_INT4
                                                     : STORED_INT8,
                                           ONE_ROW);
    double start = clock_seconds();

    p->way = p->rows == 1 ? autotune_next(tuning, CODES_WAYS, bytes) : STREAMED;
    p->groups = (p->tiles && p->rows > AMX_ROWS ? TILES_TASK : TASK) /
                    (row_bytes * CODES_ROWS) +
                1;
    *s = (struct streams){ .all = all,
                           .threads = (uint64_t)cpu_threads(d),
                           .width = CODES_TILE,
                           .share = (p->groups + CODES_TILE - 1) / CODES_TILE };
    if ((p->four || p->fp8) && p->rows == 1 && p->way == STREAMED)
        s->length = all / (s->width * s->threads);
    if (s->length)
        cpu_parallel(d, streams_tasks(s), run_streams, p);
    else
        cpu_parallel(d, (size_t)((all + p->groups - 1) / p->groups), run_task, p);
    if (p->rows == 1)
        autotune_note(tuning, CODES_WAYS, bytes, clock_seconds() - start);
}

/* ---- codes as bf16 ---- */

/* Four numbers of each of CODES_ROWS rows: *w has their codes, in the lowest bits of
 * bytes; each minus ZERO, times *scale, goes to TO and the rows after it, N of them. */
static inline __attribute__((always_inline)) void
widen_word(uint16_t *to, size_t stride, const vec_u32 *w, uint32_t mask, int zero,
           const vec *scale, size_t n)
{
    vec_u32 pair[2];

    for (int b = 0; b < 4; b += 2) {
        vec_u32 bits[2];

        for (int k = 0; k < 2; k++) {
            vec_i32 code = (vec_i32)(*w >> (8 * (b + k)) & mask) - zero;
            vec v = __builtin_convertvector(code, vec) * *scale;

            vec_round_bf16(&v);
            memcpy(&bits[k], &v, sizeof(v));
        }
        pair[b / 2] = bits[0] >> 16 | bits[1];
    }
    for (size_t r = 0; r < n; r++) {
        uint32_t four[2] = { pair[0][r], pair[1][r] };

        memcpy(to + r * stride, four, sizeof(four));
    }
}

/* N rows of a group whose codes begin at W: COUNT words of 8 bits. */
CPU_CLONES static void widen_words(uint16_t *to, size_t stride, const uint8_t *w,
                                   size_t count, size_t n)
{
    vec one = { 0 };

    one += 1;
    for (size_t k = 0; k < count; k++) {
        vec_u32 codes;

        memcpy(&codes, w + k * sizeof(codes), sizeof(codes));
        widen_word(to + 4 * k, stride, &codes, 255, 128, &one, n);
    }
}

/* The same of FP8, whose scales are PER words each, the first for LEFT. */
CPU_CLONES static void widen_fp8(uint16_t *to, size_t stride, const uint8_t *w,
                                 const float *scale, size_t left, size_t per,
                                 size_t count, size_t n, bool e5m2)
{
    for (size_t k = 0; k < count; k++, left--) {
        vec_u32 codes, bits[4];
        vec by;

        if (!left) {
            scale += CODES_ROWS;
            left = per;
        }
        memcpy(&codes, w + k * sizeof(codes), sizeof(codes));
        vec_load_f32(&by, scale);
        for (int b = 0; b < 4; b++) {
            vec v;

            fp8_values(&v, &codes, b, e5m2);
            v *= by;
            vec_round_bf16(&v);
            memcpy(&bits[b], &v, sizeof(v));
        }
        for (size_t r = 0; r < n; r++) {
            uint32_t four[2] = { bits[0][r] >> 16 | bits[1][r],
                                 bits[2][r] >> 16 | bits[3][r] };

            memcpy(to + r * stride + 4 * k, four, sizeof(four));
        }
    }
}

/* COUNT blocks of MXFP4, whose numbers need no rounding. */
CPU_CLONES static void widen_mxfp4(uint16_t *to, size_t stride, const uint8_t *w,
                                   const uint8_t *scale, size_t count, size_t n)
{
    for (size_t k = 0; k < count; k++, scale += CODES_ROWS) {
        vec by;

        mxfp4_scales(&by, scale);
        by *= 0.5f;
        for (int p = 0; p < CODES_BLOCK / 8; p++, to += 8) {
            vec_u32 codes, bits[8];

            memcpy(&codes, w, sizeof(codes));
            w += sizeof(codes);
            for (int b = 0; b < 8; b++) {
                vec_u32 four = codes >> (b < 4 ? 8 * b : 8 * (b - 4) + 4) & 15;
                vec_i32 twice;
                vec v;

                mxfp4_twice(&twice, &four);
                v = __builtin_convertvector(twice, vec) * by;
                memcpy(&bits[b], &v, sizeof(v));
            }
            for (size_t r = 0; r < n; r++) {
                uint32_t eight[4];

                for (int b = 0; b < 4; b++)
                    eight[b] = bits[2 * b][r] >> 16 | (bits[2 * b + 1][r] & 0xffff0000);
                memcpy(to + r * stride, eight, sizeof(eight));
            }
        }
    }
}

/* COUNT blocks of 4 bits. */
CPU_CLONES static void widen_blocks(uint16_t *to, size_t stride, const uint8_t *w,
                                    const uint16_t *scale, size_t count, size_t n)
{
    for (size_t k = 0; k < count; k++, scale += CODES_ROWS) {
        vec by;

        vec_load_f16(&by, scale);
        for (int p = 0; p < CODES_BLOCK / 8; p++, to += 8) {
            vec_u32 codes, high;

            memcpy(&codes, w, sizeof(codes));
            w += sizeof(codes);
            high = codes >> 4;
            widen_word(to, stride, &codes, 15, 8, &by, n);
            widen_word(to + 4, stride, &high, 15, 8, &by, n);
        }
    }
}

void codes_widen(uint16_t *to, size_t stride, const struct matrix *w, uint64_t first,
                 size_t n, uint64_t col, size_t terms)
{
    const bool four = codes_are_four(w->format);
    const size_t unit = four ? CODES_BLOCK : 4, lead = (size_t)(col % unit);
    const uint64_t of_group = (w->cols + unit - 1) / unit;
    const size_t count = (lead + terms + unit - 1) / unit;

    for (size_t j = 0; j < n; j += CODES_ROWS) {
        uint64_t line = (first + j) / CODES_ROWS * of_group + col / unit;
        const uint8_t *at =
            (const uint8_t *)w->data + line * CODES_ROWS * (four ? 16 : 4);
        size_t rows = n - j < CODES_ROWS ? n - j : CODES_ROWS;
        uint16_t *row = to + j * stride;

        if (w->format == FORMAT_INT4)
            widen_blocks(row, stride, at,
                         (const uint16_t *)w->scale + line * CODES_ROWS, count, rows);
        else if (w->format == FORMAT_MXFP4)
            widen_mxfp4(row, stride, at, (const uint8_t *)w->scale + line * CODES_ROWS,
                        count, rows);
        else if (codes_are_fp8(w->format)) {
            const struct part part = { .group = (first + j) / CODES_ROWS };
            const struct segment s = { .at = (size_t)(col / unit) };
            struct codes_tile t;

            find_scales(&t, w, &part, &s);
            widen_fp8(row, stride, at, t.scale, t.left, t.per, count, rows,
                      w->format == FORMAT_E5M2);
        } else
            widen_words(row, stride, at, count, rows);
        for (size_t r = 0; r < rows && lead; r++)
            memmove(row + r * stride, row + r * stride + lead, terms * sizeof(*row));
    }
}

static void make_segments(struct product *p, const struct sum_tree *tree)
{
    size_t most = (size_t)p->w->cols / SEGMENT_TERMS + TREE_LEAVES, at = 0;

    p->segment = xcalloc(most, sizeof(*p->segment));
    for (int k = 0; k < tree->n; k++)
        for (size_t end = at + (size_t)tree->leaf[k].cols, start = at; at < end;) {
            struct segment *s = &p->segment[p->nsegments++];

            s->start = at;
            s->n = end - at < SEGMENT_TERMS ? end - at : SEGMENT_TERMS;
            s->lead = p->four ? 0 : at % 4;
            s->at = at / (p->four ? CODES_BLOCK : 4);
            s->count = p->four ? s->n / CODES_BLOCK : (s->lead + s->n + 3) / 4;
            s->first = at == start;
            at += s->n;
            s->last = at == end;
            s->adds = s->last ? tree->leaf[k].adds : 0;
        }
    for (size_t k = 0, pending = 0; k < (size_t)tree->n; k++) {
        pending++;
        p->depth = pending > p->depth ? pending : p->depth;
        pending -= (size_t)tree->leaf[k].adds;
    }
}

static int linear(struct device *d, float *y, const float *x, size_t rows,
                  const struct matrix *w, const struct sum_tree *tree, bool coarse,
                  struct err *err)
{
    const struct sum_tree whole = { .n = 1, .leaf = { { .cols = w->cols } } };
    struct product p = { .y = y,
                         .x = x,
                         .rows = rows,
                         .w = w,
                         .four = codes_are_four(w->format),
                         .fp8 = codes_are_fp8(w->format),
                         .coarse = coarse,
                         .tiles = rows > FEW && codes_by_amx(w) };
    /* tiles read whole numbers of rows */
    const size_t room = rows + (p.tiles ? AMX_ROWS : 0);

    if (!rows || !w->rows)
        return 0;
    if (!w->cols) {
        memset(y, 0, rows * w->rows * sizeof(*y));
        return 0;
    }
    make_segments(&p, tree ? tree : &whole);
    p.rounded =
        cpu_take(d, room * p.nsegments * sizeof(*p.rounded), "rows of a product", err);
    if (p.rounded) {
        if (rows > FEW)
            cpu_parallel(d, rows, round_row, &p);
        for (size_t i = 0; i < rows && rows <= FEW; i++)
            round_row(&p, i, 0);
        run(d, &p);
    }
    free(p.segment);
    if (!p.rounded)
        return -1;
    cpu_give(d, p.rounded);
    return 0;
}

int cpu_codes_linear(struct device *d, float *y, const float *x, size_t rows,
                     const struct matrix *w, const struct sum_tree *tree,
                     struct err *err)
{
    return linear(d, y, x, rows, w, tree, false, err);
}

int cpu_codes_rounded(struct device *d, float *y, const float *x, size_t rows,
                      const struct matrix *w, const struct sum_tree *tree,
                      struct err *err)
{
    return linear(d, y, x, rows, w, tree, codes_by_avx2(), err);
}
