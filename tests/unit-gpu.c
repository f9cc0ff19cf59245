/* unit-gpu - each kernel of the CUDA backend beside its twin on the CPU
 *
 * Compiled by g++ and run by the emulation: odd sizes, no rows, addresses that are
 * aligned to an element alone or to 16 bytes, results that are NaN before, threads in
 * several orders.
 * What has one value only is compared to the bit, sums and functions within a bound. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/codes.h"
#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/base/str.h"
#include "lib/device/device.h"
#include "lib/gpu/cuda.h"
#include "lib/gpu/gpu.h"
#include "lib/gpu/room.h"
#include "lib/run/runner.h"
#include "tests/emu/fragments.h"
#include "tests/fake/cudart.h"
#include "tests/tap.h"

enum {
    GUARD = 16,
    MOST = 8,
    EXPERTS = 40
}; /* elements behind a result; blocks of memory of a trial */

static struct device *cpu, *gpu;

/* One run of an operation. */
struct trial {
    struct inst inst;
    size_t rows;
    uint64_t y_cols, x_cols[INST_SOURCES];
    enum format y_type, x_type[INST_SOURCES]; /* 0: f32 */
    struct matrix w, w2;                      /* of the host; data NULL: none */
    const int32_t *index;                     /* [rows], host; or NULL */
    const struct draw *draw;                  /* the same */
    size_t experts;                           /* W has one matrix for each; or 0 */
    bool rounded;                             /* products round x to bf16 */
    struct rope *rope;                        /* the program's table; or NULL */
    bool coarse;                              /* x[0] has equal elements, and -inf */
    double bound;                             /* of the largest; 0: to the bit */
};

/* ---- memory ---- */

static void *numbers_new(size_t n, enum format type, uint64_t stream)
{
    size_t unit = (size_t)format_bits(type) / 8;
    char *x = xcalloc(n + 1, unit);
    struct rng r;

    rng_init(&r, 1, stream);
    for (size_t i = 0; i < n; i++) {
        double v = rng_normal(&r);
        float f = (float)v;
        int32_t whole = (int32_t)(i * 7 % EXPERTS);
        uint16_t h = type == FORMAT_F16 ? dtype_f32_to_f16(f) : dtype_f32_to_bf16(f);

        if (type == FORMAT_F64)
            v = v * v; /* sums of squares */
        memcpy(x + i * unit,
               type == FORMAT_F64   ? (void *)&v
               : type == FORMAT_I32 ? (void *)&whole
               : type == FORMAT_F32 ? (void *)&f
                                    : &h,
               unit);
    }
    return x;
}

static struct {
    void *v[2 * MOST + 8];
    size_t n;
} owned;

static struct err err;

static void check(bool fine)
{
    if (fine)
        return;
    printf("Bail out! %s\n", err.text);
    exit(1);
}

static bool aligned; /* what the next trials read */

/* BYTES at HOST in device memory, UNIT behind an aligned address, or there. */
static void *copy_new(const void *host, size_t bytes, size_t unit)
{
    char *at;

    unit = aligned ? 0 : unit;
    at = backend_cuda.alloc(gpu, bytes + unit, "a trial", &err);

    check(at);
    owned.v[owned.n++] = at;
    check(backend_cuda.copy_in(gpu, at + unit, host, bytes, &err) == 0);
    return at + unit;
}

static size_t unit_of(enum format type)
{
    return (size_t)format_bits(type) / 8;
}

static enum format type_of(enum format type)
{
    return type ? type : FORMAT_F32;
}

static struct matrix matrix_copy(const struct matrix *w)
{
    struct matrix m = *w;

    m.data =
        copy_new(w->data, w->rows * w->cols * unit_of(w->format), unit_of(w->format));
    return m;
}

/* Makes each of the N matrices that lie in W one after another an element of EACH. */
static void divide(struct matrix *each, const struct matrix *w, size_t n)
{
    for (size_t e = 0; e < n; e++) {
        each[e] = *w;
        each[e].rows = w->rows / n;
        each[e].data =
            (const char *)w->data + e * each[e].rows * w->cols * unit_of(w->format);
    }
}

/* The first of ROWS rows of each of N experts: the first has none, the others by turns
 * three, two, one and none as long as there are some, and the last has the rest. */
static void deal_rows(int32_t *first, size_t n, size_t rows)
{
    int32_t at = 0;

    for (size_t e = 0; e < n; e++) {
        int32_t some = (int32_t)((n - e) % 4), left = (int32_t)rows - at;

        first[e] = at;
        at += some < left ? some : left;
    }
    first[n] = (int32_t)rows;
}

/* ---- comparing ---- */

/* Within the bound, and nothing written behind. */
static bool agree(const struct trial *t, const char *want, const char *got, size_t n)
{
    enum format type = type_of(t->y_type);
    double largest = 0, apart = 0;

    for (size_t i = 0; i < GUARD * unit_of(type); i++)
        if (got[n * unit_of(type) + i] != (char)0xff)
            return false;
    if (t->bound == 0)
        return !n || !memcmp(want, got, n * unit_of(type));
    for (size_t i = 0; i < n; i++) {
        double a = dtype_get(format_dtype(type), want, i),
               b = dtype_get(format_dtype(type), got, i);

        if (a == b && isinf(a))
            continue;
        largest = fabs(a) > largest ? fabs(a) : largest;
        if (!(fabs(a - b) <= apart))
            apart = fabs(a - b);
    }
    return apart <= t->bound * largest;
}

/* Makes the N elements of X, rows of COLS columns, multiples of 1/2; the second half of
 * each row is -inf. */
static void make_coarse(float *x, size_t n, size_t cols)
{
    for (size_t i = 0; i < n; i++)
        x[i] = i % cols > cols / 2 ? -INFINITY : roundf(2 * x[i]) / 2;
}

static bool run(const struct trial *t)
{
    enum format type = type_of(t->y_type);
    size_t n = t->rows * t->y_cols, bytes = (n + GUARD) * unit_of(type);
    int32_t rows = (int32_t)t->rows;
    struct value value = { .rows = ROWS_TOKENS };
    struct mixture mixture = { .all = EXPERTS };
    struct model_feed feed = { .axis = { .size = 1 } };
    struct program program = { .value = &value,
                               .mixture = &mixture,
                               .rope = t->rope,
                               .rounded = t->rounded,
                               .input = { [FEED_IDS] = { .feed = &feed } } };
    struct step_view view = { 0 }, far_view = { 0 };
    struct call c = { .program = &program, .inst = &t->inst, .step = &view }, d;
    struct matrix w, w2, each[EXPERTS], far_each[EXPERTS];
    int32_t first[EXPERTS + 1], *far_first;
    char *y = xmalloc(bytes), *got = xmalloc(bytes);
    void *x[INST_SOURCES] = { 0 };
    bool same;

    memset(y, 0xff, bytes);
    owned.n = 0;
    c.y = (struct buffer){ y, &rows, t->rows, t->y_cols, type, 0 };
    view.output = view.input[FEED_IDS] = view.target[ROWS_TOKENS] = t->index;
    view.draw = t->draw;
    if (t->w.data)
        c.w = &t->w;
    if (t->w2.data)
        c.w2 = &t->w2;
    d = c;
    d.step = &far_view;
    d.y.data = copy_new(y, bytes, unit_of(type));
    d.y.rows = copy_new(&rows, sizeof(rows), sizeof(rows));
    for (int k = 0; k < t->inst.nsrc; k++) {
        enum format of = type_of(t->x_type[k]);
        size_t some = t->rows * t->x_cols[k];

        x[k] = numbers_new(some, of, (uint64_t)k + 2);
        if (t->coarse && k == 0)
            make_coarse(x[0], some, t->x_cols[0]);
        c.x[k] = (struct buffer){ x[k], &rows, t->rows, t->x_cols[k], of, 0 };
        d.x[k] = c.x[k];
        d.x[k].data = copy_new(x[k], some * unit_of(of), unit_of(of));
        d.x[k].rows = d.y.rows;
    }
    if (t->index)
        far_view.output = far_view.input[FEED_IDS] = far_view.target[ROWS_TOKENS] =
            copy_new(t->index, t->rows * sizeof(*t->index), sizeof(*t->index));
    if (t->draw)
        far_view.draw = copy_new(t->draw, t->rows * sizeof(*t->draw), 0);
    if (c.w) {
        w = matrix_copy(c.w);
        d.w = &w;
    }
    if (t->experts) {
        c.nexperts = d.nexperts = t->experts;
        divide(each, c.w, t->experts);
        divide(far_each, d.w, t->experts);
        c.w = each;
        d.w = far_each;
        deal_rows(first, t->experts, t->rows);
        far_first = copy_new(first, (t->experts + 1) * sizeof(*first), sizeof(*first));
        c.expert_rows = first;
        d.expert_rows = far_first;
        c.y.rows = c.x[0].rows = first + t->experts;
        d.y.rows = d.x[0].rows = far_first + t->experts;
    }
    if (c.w2) {
        w2 = matrix_copy(c.w2);
        d.w2 = &w2;
    }
    check(backend_cpu.kernel[t->inst.op](cpu, &c, &err) == 0);
    check(backend_cuda.kernel[t->inst.op](gpu, &d, &err) == 0);
    check(backend_cuda.copy_out(gpu, got, d.y.data, bytes, &err) == 0);
    same = agree(t, y, got, n);
    for (size_t i = 0; i < owned.n; i++)
        backend_cuda.release(gpu, owned.v[i]);
    for (int k = 0; k < INST_SOURCES; k++)
        free(x[k]);
    free(y);
    free(got);
    return same;
}

static const char *const orders[] = { "0", "1", "2", "3", "7" };

/* Orders that are tried; what a sanitizer finds, two of them show. */
static size_t norders(void)
{
    return tap_short() ? 2 : sizeof(orders) / sizeof(*orders);
}

/* In several orders of threads; rows of whole quads also where 16 bytes are read at
 * once. */
static bool run_all(const struct trial *t)
{
    const size_t n = norders();
    bool was = aligned, same = true;

    for (size_t i = 0; i < (was || t->y_cols % 4 ? n : 2 * n) && same; i++) {
        setenv("EMU_ORDER", orders[i % n], 1);
        aligned = was || i >= n;
        same = run(t);
        if (!same)
            printf("# %s, %zu rows, %llu columns of %llu, order %s%s\n",
                   op_table[t->inst.op].name, t->rows, (unsigned long long)t->y_cols,
                   (unsigned long long)t->x_cols[0], orders[i % n],
                   aligned ? ", aligned" : "");
    }
    aligned = was;
    return same;
}

/* ---- the operations ---- */

static const size_t sizes[] = { 1, 31, 33, 260, 1023, 1028 }, counts[] = { 0, 1, 9 };

#define EACH_SIZE(rows, cols)       \
    for (size_t i_ = 0, rows, cols; \
         i_ < 18 && (rows = counts[i_ % 3], cols = sizes[i_ / 3], true); i_++)

static struct matrix weight(uint64_t rows, uint64_t cols, enum format type)
{
    return (struct matrix){ .data = numbers_new(rows * cols, type, 1),
                            .format = type,
                            .rows = rows,
                            .cols = cols };
}

static void release(struct matrix *m)
{
    free((void *)(uintptr_t)m->data);
}

static struct trial plain(enum op op, int nsrc, size_t rows, uint64_t cols)
{
    struct trial t = { .inst = { .op = op, .nsrc = nsrc, .weight = -1, .weight2 = -1 },
                       .rows = rows,
                       .y_cols = cols };

    for (int k = 0; k < nsrc; k++)
        t.x_cols[k] = cols;
    return t;
}

static void try_elementwise(void)
{
    static const struct {
        enum op op;
        int nsrc;
        double bound;
    } all[] = { { OP_ADD, 2, 0 },
                { OP_MUL, 2, 0 },
                { OP_SCALE, 1, 0 },
                { OP_SOFTCAP, 1, 2e-7 },
                { OP_CLIP, 1, 0 } };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        bool same = true;

        EACH_SIZE(rows, cols)
        {
            struct trial t = plain(all[i].op, all[i].nsrc, rows, cols);

            t.inst.scalar = 0.7;
            t.bound = all[i].bound;
            same = run_all(&t) && same;
        }
        tap_ok(same, "%s is the CPU's", op_table[all[i].op].name);
    }
    for (int act = 0; act < ACTIVATION_COUNT; act++) {
        bool same = true;

        EACH_SIZE(rows, cols)
        {
            struct trial t = plain(OP_ACTIVATION, 1, rows, cols);

            t.inst.act = (enum activation)act;
            t.bound = 3e-7;
            same = run_all(&t) && same;
        }
        tap_ok(same, "activation %s is the CPU's", activation_words[act][0]);
    }
}

/* Statistics of rows, whose targets are anywhere or missing; and their softmax. */
static void try_results(void)
{
    static const int32_t target[] = { 3, -1, 0, 32, 8, 1, 700, 2, 5 };
    bool softmax = true, stats = true;

    EACH_SIZE(rows, cols)
    {
        struct trial t = plain(OP_SOFTMAX, 1, rows, cols);

        t.bound = 3e-7;
        softmax = run_all(&t) && softmax;
        t = plain(OP_ROW_STATS, 1, rows, 4);
        t.x_cols[0] = cols;
        t.y_type = FORMAT_F64;
        t.index = target;
        t.inst.row.first = 2;
        t.bound = 1e-12;
        stats = run_all(&t) && stats;
        t.coarse = true;
        stats = run_all(&t) && stats;
    }
    tap_ok(softmax, "softmax is the CPU's");
    tap_ok(stats, "statistics of rows are the CPU's");
}

static void try_rows(void)
{
    static const int32_t index[] = { 3, -1, 0, 8, 8, 1, 700, 2, 5 };
    bool vector = true, rows_too = true, table = true, part = true, take = true;

    for (int type = FORMAT_F32; type <= FORMAT_F32; type++)
        EACH_SIZE(rows, cols)
        {
            static const enum format types[] = { FORMAT_F32, FORMAT_BF16, FORMAT_F16 };
            struct trial t = plain(OP_ADD_VECTOR, 1, rows, cols);
            int32_t some[9];

            for (int k = 0; k < 3; k++) {
                t.w = weight(1, cols, types[k]);
                vector = run_all(&t) && vector;
                release(&t.w);
                t.w.data = NULL;
            }
            t = plain(OP_MUL_VECTOR, 1, rows, cols);
            for (int k = 0; k < 3; k++) {
                t.w = weight(1, cols, types[k]);
                vector = run_all(&t) && vector;
                release(&t.w);
                t.w.data = NULL;
            }
            t = plain(OP_MUL_ROWS, 2, rows, cols);
            t.x_cols[1] = 1;
            rows_too = run_all(&t) && rows_too;
            t.x_cols[1] = 3;
            t.inst.column = 2;
            rows_too = run_all(&t) && rows_too;
            t = plain(OP_EMBEDDING, 0, rows, cols);
            t.inst.embedding.offset = 2;
            t.inst.embedding.first = 3;
            t.inst.embedding.minus = -1;
            t.index = index;
            for (int k = 0; k < 3; k++) {
                t.w = weight(7, cols, types[k]);
                table = run_all(&t) && table;
                release(&t.w);
            }
            t = plain(OP_SEGMENT, 1, rows, cols);
            t.x_cols[0] = cols + 5;
            t.inst.segment.first = 3;
            part = run_all(&t) && part;
            t = plain(OP_TAKE, 1, rows, cols);
            for (size_t i = 0; i < 9; i++)
                some[i] = rows ? index[i] % (int32_t)rows : 0;
            t.index = some;
            take = run_all(&t) && take;
        }
    tap_ok(vector, "add_vector and mul_vector are the CPU's, of every type");
    tap_ok(rows_too, "mul_rows is the CPU's");
    tap_ok(table, "embedding is the CPU's, also of rows that are not there");
    tap_ok(part, "segment is the CPU's");
    tap_ok(take, "take is the CPU's, also of another rank's rows");
}

static void try_norms(void)
{
    static const enum op ops[] = { OP_RMSNORM,     OP_LAYERNORM, OP_ROW_SUM,
                                   OP_ROW_SQUARES, OP_RMS_APPLY, OP_LAYER_APPLY };

    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
        bool same = true, sums = ops[i] == OP_ROW_SUM || ops[i] == OP_ROW_SQUARES;

        EACH_SIZE(rows, cols)
        for (uint64_t groups = 1; groups < (i < 2 ? 4 : 2); groups += 2) {
            struct trial t = plain(ops[i], 1, rows, cols * groups);
            enum format type = groups == 1 ? FORMAT_BF16 : FORMAT_F32;

            t.inst.norm.width = cols;
            t.inst.norm.whole_width = cols + (i < 2 ? 0 : 7);
            t.inst.norm.eps = 1e-5;
            t.inst.norm.plus_one = groups > 1;
            t.inst.norm.owned = cols != 31;
            if (ops[i] != OP_ROW_SUM && i > 1)
                t.inst.nsrc = ops[i] == OP_LAYER_APPLY ? 3 : 2;
            for (int k = 1; k < t.inst.nsrc; k++) {
                t.x_cols[k] = 1;
                t.x_type[k] = FORMAT_F64;
            }
            t.bound = 3e-7;
            if (sums) {
                t.y_cols = 1;
                t.y_type = FORMAT_F64;
                t.bound = 1e-13;
            } else {
                t.w = weight(1, cols * (cols < 1000 ? groups : 1), type);
                if (ops[i] == OP_LAYERNORM || ops[i] == OP_LAYER_APPLY)
                    t.w2 = weight(1, t.w.cols, FORMAT_F16);
            }
            same = run_all(&t) && same;
            release(&t.w);
            release(&t.w2);
        }
        tap_ok(same, "%s is the CPU's", op_table[ops[i]].name);
    }
}

static void try_products(void)
{
    static const enum format types[] = { FORMAT_F32, FORMAT_BF16, FORMAT_F16 };
    static const size_t rows[] = { 0, 1, 3, 5, 17, 65 }, ins[] = { 1, 31, 33, 130 },
                        outs[] = { 1, 33, 65 };

    for (int k = 0; k < 6; k++) {
        bool same = true, is_plain = k >= 3;

        for (size_t i = 0; i < 6 * 4 * 3; i++) {
            struct trial t =
                plain(is_plain ? OP_MATMUL : OP_LINEAR, 1, rows[i % 6], outs[i / 24]);

            t.x_cols[0] = ins[i / 6 % 4];
            t.w = is_plain ? weight(t.x_cols[0], t.y_cols, types[k % 3])
                           : weight(t.y_cols, t.x_cols[0], types[k % 3]);
            t.bound = 1e-6;
            same = run_all(&t) && same;
            release(&t.w);
        }
        tap_ok(same, "%s is the CPU's, of %s", is_plain ? "matmul" : "linear",
               format_name(types[k % 3]));
    }
}

/* ---- experts and samples ---- */

/* Products of experts, of as many as one launch takes and of more. */
static void try_expert_products(void)
{
    static const size_t rows[] = { 0, 1, 5, 50, 61 };

    for (int k = 0; k < 6; k++) {
        size_t experts = k % 4 < 2 ? EXPERTS : GPU_PRODUCTS;
        bool is_plain = k % 2, same = true;

        aligned = k >= 4;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
            struct trial t = plain(is_plain ? OP_MATMUL : OP_LINEAR, 1, rows[i],
                                   aligned && is_plain ? 24 : 9);

            t.experts = experts;
            t.inst.weight = 0;
            t.x_cols[0] = aligned ? 40 : 33;
            t.w = is_plain ? weight(experts * t.x_cols[0], t.y_cols, FORMAT_BF16)
                           : weight(experts * t.y_cols, t.x_cols[0], FORMAT_BF16);
            t.bound = aligned ? 3e-5 : 1e-6;
            same = run_all(&t) && same;
            release(&t.w);
        }
        tap_ok(same, "%s of %zu experts is the CPU's%s", is_plain ? "matmul" : "linear",
               experts, aligned ? ", aligned" : "");
    }
    aligned = false;
}

/* A vector for each expert, of as many as one launch takes and of more. */
static void try_expert_vectors(void)
{
    static const size_t rows[] = { 0, 1, 5, 61 };
    bool same = true;

    for (size_t i = 0; i < 4 * 2 * 2; i++) {
        struct trial t = plain(OP_ADD_VECTOR, 1, rows[i % 4], i / 8 ? 24 : 33);

        t.experts = i / 4 % 2 ? EXPERTS : GPU_PRODUCTS;
        t.inst.weight = 0;
        t.w = weight(t.experts, t.y_cols, i % 2 ? FORMAT_BF16 : FORMAT_F32);
        same = run_all(&t) && same;
        release(&t.w);
    }
    tap_ok(same, "add_vector of experts is the CPU's");
}

/* The experts of a row, of some groups only or of all; more rows than blocks. */
static void try_choose(void)
{
    static const struct {
        uint64_t cols, top, groups, of, best;
    } all[] = {
        { 1, 1, 1, 1, 1 },  { 33, 4, 1, 1, 1 },   { 32, 32, 1, 1, 1 },
        { 96, 6, 8, 3, 2 }, { 256, 8, 32, 9, 3 }, { 8, 4, 4, 3, 2 },
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        struct trial t = plain(OP_CHOOSE, 1, 40, all[i].top);

        t.x_cols[0] = all[i].cols;
        t.y_type = FORMAT_I32;
        t.inst.route.top = all[i].top;
        t.inst.route.groups = all[i].groups;
        t.inst.route.of = all[i].of;
        t.inst.route.best = all[i].best;
        t.w = weight(1, all[i].cols, FORMAT_BF16);
        tap_ok(run_all(&t), "of %llu experts in %llu groups the CPU's are chosen",
               (unsigned long long)all[i].cols, (unsigned long long)all[i].groups);
        release(&t.w);
    }
}

static void try_expert_count(void)
{
    struct trial t = plain(OP_EXPERT_COUNT, 1, 1, EXPERTS + 1);

    t.x_cols[0] = 333;
    t.x_type[0] = t.y_type = FORMAT_I32;
    tap_ok(run_all(&t), "the rows of experts are counted");
}

/* Tokens drawn from all, the likeliest, or the likeliest of some; more rows than
 * blocks. */
static void try_sample(void)
{
    enum { ROWS = 21 };
    static const size_t tokens[] = { 1, 31, 33, 203 };
    struct draw draw[ROWS];

    for (uint64_t i = 0; i < ROWS; i++)
        draw[i] = (struct draw){ .temperature = 0.5 + (double)(i % 3),
                                 .top_p = i % 2 ? 0.6 : 1,
                                 .top_k = i % 4 < 2 ? 0 : 9,
                                 .seed = 5,
                                 .position = i };
    for (size_t i = 0; i < sizeof(tokens) / sizeof(*tokens); i++) {
        struct trial t = plain(OP_SAMPLE, 1, ROWS, 1);

        t.x_cols[0] = tokens[i];
        t.y_type = FORMAT_I32;
        t.draw = draw;
        tap_ok(run_all(&t), "of %zu tokens the CPU's are drawn", tokens[i]);
        t.coarse = true;
        tap_ok(run_all(&t), "and of logits that are equal");
    }
}

/* Tensor cores multiply to 16 bits. */
static double bound_of(enum format type)
{
    return type == FORMAT_F32 ? 1e-6 : 3e-5;
}

/* A third of all combinations of seven counts of rows and others: each count with the
 * others in turn; all of them where EVERY is set. */
static bool taken(size_t i)
{
    return getenv("EVERY") || (i + i / 7) % 3 == 0;
}

/* Products of rows that can be read 16 bytes at a time. */
static void try_wide_products(void)
{
    static const enum format types[] = { FORMAT_F32, FORMAT_BF16, FORMAT_F16 };
    static const size_t rows[] = { 1, 2, 5, 8, 9, 31, 40 }, ins[] = { 8, 264, 520 },
                        outs[] = { 9, 66 };

    for (int k = 0; k < 3; k++) {
        bool same = true;

        aligned = true;
        for (size_t i = 0; i < 7 * 3 * 2; i++) {
            struct trial t = plain(OP_LINEAR, 1, rows[i % 7], outs[i / 21]);

            if (!taken(i))
                continue;
            t.x_cols[0] = ins[i / 7 % 3];
            t.w = weight(t.y_cols, t.x_cols[0], types[k]);
            t.bound = bound_of(types[k]);
            same = run_all(&t) && same;
            t.rounded = true;
            if (types[k] == FORMAT_F16) /* f16 has eleven; the CPU rounds to none */
                t.bound = 4e-4;
            same = run_all(&t) && same;
            release(&t.w);
        }
        aligned = false;
        tap_ok(same, "linear is the CPU's, of aligned %s", format_name(types[k]));
    }
}

static void try_wide_columns(void)
{
    static const enum format types[] = { FORMAT_F32, FORMAT_BF16, FORMAT_F16 };
    static const size_t rows[] = { 1, 2, 5, 8, 9, 31, 40 }, ins[] = { 1, 33, 200 },
                        outs[] = { 8, 40, 72 };

    for (int k = 0; k < 3; k++) {
        bool same = true;

        aligned = true;
        for (size_t i = 0; i < 7 * 3 * 3; i++) {
            struct trial t = plain(OP_MATMUL, 1, rows[i % 7], outs[i / 21]);

            if (!taken(i))
                continue;
            t.x_cols[0] = ins[i / 7 % 3];
            t.w = weight(t.x_cols[0], t.y_cols, types[k]);
            t.bound = bound_of(types[k]);
            same = run_all(&t) && same;
            release(&t.w);
        }
        aligned = false;
        tap_ok(same, "matmul is the CPU's, of aligned %s", format_name(types[k]));
    }
}

/* The product OP of W and the ROWS rows at X to Y. */
static void multiply(float *y, enum op op, const float *x, size_t rows,
                     const struct matrix *w)
{
    struct program program = { 0 };
    struct inst inst = { .op = op, .nsrc = 1, .weight = -1, .weight2 = -1 };
    uint64_t in = op == OP_LINEAR ? w->cols : w->rows, out = w->rows + w->cols - in;
    int32_t nrows = (int32_t)rows;
    struct matrix far_w;
    struct call c = { .program = &program, .inst = &inst, .w = &far_w };
    size_t bytes = rows * out * sizeof(*y);

    owned.n = 0;
    aligned = true;
    far_w = matrix_copy(w);
    c.x[0] = (struct buffer){ copy_new(x, rows * in * sizeof(*x), 0),
                              copy_new(&nrows, sizeof(nrows), 0),
                              rows,
                              in,
                              FORMAT_F32,
                              0 };
    c.y = c.x[0];
    c.y.data = copy_new(y, bytes, 0);
    c.y.cols = out;
    check(backend_cuda.kernel[op](gpu, &c, &err) == 0 &&
          backend_cuda.copy_out(gpu, y, c.y.data, bytes, &err) == 0);
    for (size_t i = 0; i < owned.n; i++)
        backend_cuda.release(gpu, owned.v[i]);
    aligned = false;
}

/* A row's bits do not depend on how many rows there are. */
static bool rows_are_alike(enum op op, enum format type)
{
    enum { ROWS = 32, IN = 520, OUT = 24 };
    static const size_t some_rows[] = { 1, 2, 5, 9, 17, 28 };
    struct matrix w = op == OP_LINEAR ? weight(OUT, IN, type) : weight(IN, OUT, type);
    float *x = numbers_new((size_t)ROWS * IN, FORMAT_F32, 3), all[ROWS * OUT],
          some[ROWS * OUT];
    bool same = true;

    memset(all, 0, sizeof(all));
    memset(some, 0, sizeof(some));
    multiply(all, op, x, ROWS, &w);
    for (size_t i = 0; i < sizeof(some_rows) / sizeof(*some_rows); i++) {
        multiply(some, op, x + 3 * IN, some_rows[i], &w);
        same &= !memcmp(some, all + 3 * OUT, some_rows[i] * OUT * sizeof(*all));
    }
    free(x);
    release(&w);
    return same;
}

static void try_product_rows(void)
{
    static const enum format types[] = { FORMAT_BF16, FORMAT_F16 };

    for (int i = 0; i < 2; i++)
        tap_ok(rows_are_alike(OP_LINEAR, types[i]) &&
                   rows_are_alike(OP_MATMUL, types[i]),
               "a row's product of %s has the same bits with other rows, up to 32",
               format_name(types[i]));
}

/* ---- attention ---- */

struct attention_trial {
    const char *name;
    int32_t rows, start; /* queries, and keys before them */
    uint64_t heads, kv_heads, dim, value_dim, window;
    double softcap, alibi;
    enum mask { ALL, CAUSAL, CHUNKS } mask; /* CHUNKS: of `window` keys */
    bool blocks;                            /* keys lie in blocks of a cache */
    enum added {
        NOTHING,
        TABLE,
        SINKS,
        BIASES, /* of each query, by OP_STREAM */
        OWN     /* and a key and a value of its own */
    } added;
    uint64_t block, over; /* more keys than OVER are seen in blocks */
};

enum { BLOCK_ROWS = 16, MOST_BLOCKS = 16, BUCKETS = 10 };

static int32_t absent; /* the last keys, which another rank of a ring has */

/* Query, key and value, and where the last two lie, of the host and of the device. */
struct attention_memory {
    float *x[INST_SOURCES];
    size_t n[INST_SOURCES];
    struct range range;
    int32_t block[MOST_BLOCKS];
};

static void attention_memory_init(struct attention_memory *m,
                                  const struct attention_trial *t)
{
    int32_t keys = t->start + t->rows;
    size_t kept = ((size_t)keys + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS;

    m->n[0] = (size_t)t->rows * t->heads * t->dim;
    m->n[1] = kept * t->kv_heads * t->dim;
    m->n[2] = kept * t->kv_heads * t->value_dim;
    m->n[3] = (size_t)t->rows * t->heads * BUCKETS;
    m->n[4] = m->n[5] = m->n[0];
    for (int k = 0; k < INST_SOURCES; k++)
        m->x[k] = numbers_new(m->n[k], FORMAT_F32, (uint64_t)k + 5);
    m->range = (struct range){ .rows = t->rows,
                               .start = t->start,
                               .keys = keys - absent,
                               .block = t->blocks ? 0 : -1 };
    for (int32_t i = 0, n = (int32_t)(kept / BLOCK_ROWS); i < n; i++)
        m->block[i] = n - 1 - i; /* last first */
}

static struct ranges ranges_of(const struct attention_memory *m, const struct range *v,
                               const int32_t *block)
{
    return (struct ranges){ .v = v,
                            .n = 1,
                            .block = block,
                            .block_rows = BLOCK_ROWS,
                            .most_rows = (size_t)m->range.rows,
                            .most_keys = (size_t)m->range.keys };
}

static double largest_difference(const float *a, const float *b, size_t n)
{
    double apart = 0;

    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= apart) && a[i] != b[i])
            apart = fabs((double)a[i] - (double)b[i]);
    return apart;
}

/* A table of biases by distance, or a score of its own for each head; the caller's. */
static struct matrix added_to(struct inst *inst, const struct attention_trial *t)
{
    struct matrix w = { .format = FORMAT_F32, .rows = 32, .cols = t->heads };

    inst->weight = 0;
    inst->attention.far = 128;
    if (t->added == SINKS) {
        inst->attention.sinks = true;
        inst->attention.sink_per = t->heads / t->kv_heads;
        w.rows = t->heads;
        w.cols = 1;
    }
    w.data = numbers_new(w.rows * w.cols, FORMAT_F32, 9);
    return w;
}

/* How far results and the logarithms of sums are from the CPU's, where products may be
 * made to BITS, 32, 16 or 8. */
static double attend(const struct attention_trial *t, int bits)
{
    struct inst inst = { .op = OP_ATTENTION, .nsrc = 3, .weight = -1, .weight2 = -1 };
    struct call c = { .inst = &inst }, d;
    struct attention_memory m;
    size_t n = (size_t)t->rows * t->heads * t->value_dim,
           sums = (size_t)t->rows * t->heads;
    float *y = xcalloc(2 * n, sizeof(*y)), *lse = xcalloc(2 * sums, sizeof(*lse));
    struct matrix w = { 0 }, device_w;
    double apart, more;
    void *far_lse;

    if (t->added >= BIASES) {
        inst.op = OP_STREAM;
        inst.nsrc = t->added == OWN ? 6 : 4;
        inst.attention.span = BUCKETS;
        inst.attention.far = 30;
    }
    attention_memory_init(&m, t);
    owned.n = 0;
    inst.attention.heads = inst.attention.all_heads = t->heads;
    inst.attention.kv_heads = inst.attention.groups = t->kv_heads;
    inst.attention.within = inst.attention.per_group = t->heads / t->kv_heads;
    inst.attention.head_dim = t->dim;
    inst.attention.value_dim = inst.attention.value_cols = t->value_dim;
    inst.attention.scale = 1 / sqrt((double)t->dim);
    inst.attention.softcap = t->softcap;
    inst.attention.alibi = t->alibi;
    inst.attention.window = t->window;
    inst.attention.causal = t->mask != ALL;
    inst.attention.chunked = t->mask == CHUNKS;
    inst.attention.block = t->block;
    inst.attention.over = t->over;
    inst.attention.copies = 3;
    c.range = ranges_of(&m, &m.range, m.block);
    c.y = (struct buffer){
        y, &t->rows, c.range.most_rows, t->heads * t->value_dim, FORMAT_F32, 0
    };
    /* no ring asks OP_STREAM for them, nor attention in blocks */
    c.lse = t->added < BIASES && !t->block ? lse : NULL;
    if (t->added == TABLE || t->added == SINKS) {
        w = added_to(&inst, t);
        c.w = &w;
    }
    d = c; /* the CPU's products are those of f32 */
    d.narrow = bits <= 16;
    d.rounded = bits == 8;
    if (c.w) {
        device_w = matrix_copy(&w);
        d.w = &device_w;
    }
    d.range = ranges_of(&m, copy_new(&m.range, sizeof(m.range), 0),
                        copy_new(m.block, sizeof(m.block), 0));
    d.y.rows = copy_new(&t->rows, sizeof(t->rows), 0);
    memset(y + n, 0xff, n * sizeof(*y));
    d.y.data = copy_new(y + n, n * sizeof(*y), 4);
    far_lse = copy_new(lse, sums * sizeof(*lse), 4);
    d.lse = c.lse ? far_lse : NULL;
    for (int k = 0; k < inst.nsrc; k++) {
        uint64_t cols = k == 0 || k > 3 ? t->heads * t->dim
                        : k == 3        ? t->heads * BUCKETS
                                 : t->kv_heads * (k == 1 ? t->dim : t->value_dim);
        bool kept = k == 1 || k == 2;

        c.x[k] = (struct buffer){ m.x[k],        kept ? &m.range.keys : &t->rows,
                                  m.n[k] / cols, cols,
                                  FORMAT_F32,    0 };
        d.x[k] = c.x[k];
        d.x[k].data = copy_new(m.x[k], m.n[k] * sizeof(float), 4);
    }
    check(backend_cpu.kernel[inst.op](cpu, &c, &err) == 0);
    check(backend_cuda.kernel[inst.op](gpu, &d, &err) == 0);
    check(backend_cuda.copy_out(gpu, y + n, d.y.data, n * sizeof(*y), &err) == 0 &&
          backend_cuda.copy_out(gpu, lse + sums, far_lse, sums * sizeof(*lse), &err) ==
              0);
    apart = largest_difference(y, y + n, n);
    more = largest_difference(lse, lse + sums, sums);
    for (size_t i = 0; i < owned.n; i++)
        backend_cuda.release(gpu, owned.v[i]);
    for (int k = 0; k < INST_SOURCES; k++)
        free(m.x[k]);
    free((void *)(uintptr_t)w.data);
    free(y);
    free(lse);
    return apart > more ? apart : more;
}

static void try_trials(const struct attention_trial *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double worst = 0, narrow = 0, rounded = 0;

        for (size_t k = 0; k < 2 * norders(); k += 1 + (k > 1)) {
            double apart;

            setenv("EMU_ORDER", orders[k / 2], 1);
            aligned = k % 2 == 0;
            apart = attend(&all[i], 32);
            worst = apart > worst ? apart : worst;
            if (!aligned) /* tensor cores take what is aligned */
                continue;
            apart = attend(&all[i], 16);
            narrow = apart > narrow ? apart : narrow;
            apart = attend(&all[i], 8);
            rounded = apart > rounded ? apart : rounded;
        }
        aligned = false;
        if (!tap_ok(worst < 3e-6, "attention %s is the CPU's", all[i].name))
            printf("# apart by %.3g\n", worst);
        if (!tap_ok(narrow < 3e-5, "and to sixteen bits"))
            printf("# apart by %.3g\n", narrow);
        if (!tap_ok(rounded < 2e-2 && (rounded > narrow || narrow < 3e-6),
                    "and with operands in bf16"))
            printf("# apart by %.3g\n", rounded);
    }
}

static void try_attention(void)
{
    static const struct attention_trial all[] = {
        { "of one query", 1, 40, 4, 2, 8, 8, 0, 0, 0, CAUSAL, true, NOTHING, 0, 0 },
        { "of few queries", 7, 3, 4, 4, 8, 8, 0, 0, 0, CAUSAL, false, NOTHING, 0, 0 },
        { "of one query whose heads share a head", 1, 40, 11, 1, 8, 8, 0, 0, 0, CAUSAL,
          true, NOTHING, 0, 0 },
        { "of few queries, and values of 150 columns", 3, 45, 4, 2, 9, 150, 0, 0, 0,
          CAUSAL, true, NOTHING, 0, 0 },
        { "of a tile", 32, 0, 2, 1, 64, 64, 0, 0, 0, CAUSAL, false, NOTHING, 0, 0 },
        { "of a tile and a row", 33, 0, 2, 2, 20, 12, 0, 0, 0, CAUSAL, false, NOTHING,
          0, 0 },
        { "of some tiles after a cache", 70, 45, 4, 2, 8, 8, 0, 0, 0, CAUSAL, true,
          NOTHING, 0, 0 },
        { "of more queries than blocks have at a time", 210, 0, 1, 1, 4, 4, 0, 0, 0,
          CAUSAL, false, NOTHING, 0, 0 },
        { "of heads of 128", 41, 0, 1, 1, 128, 128, 0, 0, 0, CAUSAL, false, NOTHING, 0,
          0 },
        { "within a window", 75, 60, 2, 1, 4, 4, 19, 0, 0, CAUSAL, true, NOTHING, 0,
          0 },
        { "both ways", 67, 0, 2, 1, 8, 8, 0, 0, 0, ALL, false, NOTHING, 0, 0 },
        { "both ways within a window", 67, 0, 2, 1, 8, 8, 9, 0, 0, ALL, false, NOTHING,
          0, 0 },
        { "with ALiBi", 50, 5, 3, 3, 8, 4, 0, 0, 1, CAUSAL, true, NOTHING, 0, 0 },
        { "capped", 50, 5, 3, 1, 8, 4, 0, 5, 0, CAUSAL, false, NOTHING, 0, 0 },
        { "of a head of odd width", 40, 0, 2, 1, 7, 5, 0, 0, 0, CAUSAL, false, NOTHING,
          0, 0 },
        { "with a table of biases", 50, 5, 3, 1, 8, 4, 0, 0, 0, ALL, false, TABLE, 0,
          0 },
        { "with scores of the heads' own", 36, 9, 4, 2, 72, 68, 0, 0, 0, CAUSAL, true,
          SINKS, 0, 0 },
        { "of one query with those", 1, 150, 4, 2, 8, 8, 0, 0, 0, CAUSAL, true, SINKS,
          0, 0 },
        { "within chunks", 75, 60, 2, 1, 4, 4, 19, 0, 0, CHUNKS, true, NOTHING, 0, 0 },
        { "of one query in its chunk", 1, 40, 2, 1, 4, 4, 7, 0, 0, CHUNKS, true,
          NOTHING, 0, 0 },
        { "in blocks", 75, 0, 4, 2, 8, 8, 0, 0, 0, ALL, false, NOTHING, 7, 40 },
        { "in as many blocks as are few", 28, 0, 1, 1, 9, 5, 0, 0, 0, ALL, false,
          NOTHING, 7, 28 },
    };

    try_trials(all, sizeof(all) / sizeof(*all));
}

/* Queries in a ring of ranks, some or all of which see none of the keys. */
static void try_ring(void)
{
    static const struct attention_trial all[] = {
        { "of queries beyond the window behind the keys", 40, 60, 2, 1, 8, 8, 19, 0, 0,
          CAUSAL, true, NOTHING, 0, 0 },
        { "of queries of which some see keys", 40, 60, 2, 1, 8, 8, 19, 0, 0, CAUSAL,
          false, NOTHING, 0, 0 },
        { "of queries in other chunks than the keys", 40, 60, 2, 1, 8, 8, 16, 0, 0,
          CHUNKS, true, NOTHING, 0, 0 },
        { "without keys", 40, 0, 2, 1, 8, 8, 19, 0, 0, CAUSAL, false, NOTHING, 0, 0 },
        { "of few queries without keys", 3, 0, 2, 1, 8, 150, 0, 0, 0, CAUSAL, false,
          NOTHING, 0, 0 },
    };
    static const int32_t missing[] = { 85, 30, 62, 40, 3 };

    for (int i = 0; i < 5; i++) {
        absent = missing[i];
        try_trials(&all[i], 1);
    }
    absent = 0;
}

static void try_streams(void)
{
    static const struct attention_trial all[] = {
        { "with biases of each query", 20, 7, 3, 3, 9, 9, 0, 0, 0, CAUSAL, true, BIASES,
          0, 0 },
        { "with keys that only their query sees", 20, 0, 3, 3, 9, 9, 0, 0, 0, CAUSAL,
          false, OWN, 0, 0 },
        { "of one query with its key", 1, 40, 2, 2, 8, 8, 0, 0, 0, CAUSAL, true, OWN, 0,
          0 },
    };

    try_trials(all, sizeof(all) / sizeof(*all));
}

/* The largest difference between the backends for C, of two texts, in each order of
 * threads; Y, where C's result is, has room for as much again. */
static double backends_differ(const struct call *c, float *y)
{
    const struct step_view *view = c->step;
    size_t n = c->y.most * c->y.cols;
    double worst = 0;

    check(backend_cpu.kernel[c->inst->op](cpu, c, &err) == 0);
    for (size_t o = 0; o < norders(); o++) {
        struct step_view far_view = *view;
        struct call d = *c;
        struct matrix far_w, far_w2;
        double apart;

        setenv("EMU_ORDER", orders[o], 1);
        owned.n = 0;
        for (int k = 0; k < ROWS_MOST; k++) {
            if (view->first[k])
                far_view.first[k] =
                    copy_new(view->first[k], 2 * sizeof(*view->first[k]), 0);
            if (view->rows[k])
                far_view.rows[k] = copy_new(view->rows[k], sizeof(int32_t), 0);
        }
        for (int k = 0; k < FEEDS_MOST; k++)
            if (view->input[k])
                far_view.input[k] =
                    copy_new(view->input[k],
                             (size_t)view->rows[ROWS_TOKENS][0] * sizeof(int32_t), 0);
        d.step = &far_view;
        if (c->w) {
            far_w = matrix_copy(c->w);
            d.w = &far_w;
        }
        if (c->w2) {
            far_w2 = matrix_copy(c->w2);
            d.w2 = &far_w2;
        }
        d.y.rows = copy_new(c->y.rows, sizeof(*c->y.rows), 0);
        d.y.data = copy_new(y + n, n * sizeof(*y), 4);
        for (int k = 0; k < INST_SOURCES && c->x[k].data; k++)
            d.x[k].data =
                copy_new(c->x[k].data, c->x[k].most * c->x[k].cols * sizeof(float), 4);
        check(backend_cuda.kernel[c->inst->op](gpu, &d, &err) == 0 &&
              backend_cuda.copy_out(gpu, y + n, d.y.data, n * sizeof(*y), &err) == 0);
        apart = largest_difference(y, y + n, n);
        worst = apart > worst ? apart : worst;
        for (size_t i = 0; i < owned.n; i++)
            backend_cuda.release(gpu, owned.v[i]);
    }
    return worst;
}

/* Two texts in three spaces of rows: of tokens, and pooled once and twice. */
enum { SPACES = 3 };
struct texts_of_rows {
    int32_t first[SPACES][2], rows[SPACES];
    struct value value[1 + INST_SOURCES]; /* of the result, and of the sources */
    struct program program;
    struct step_view view;
};

static int space_at(int depth)
{
    return depth ? ROWS_OWN + depth - 1 : ROWS_TOKENS;
}

/* Texts of ONE and TWO tokens; a source K has the rows of depth DEPTH[K], and the
 * result those of TO. */
static void set_texts(struct texts_of_rows *t, struct inst *inst, int32_t one,
                      int32_t two, bool apart, bool cut, const int *depth, int to)
{
    static const int32_t texts = 2;
    const struct row_space half = { .how = HOW_RATIO,
                                    .times = 1,
                                    .by = 2,
                                    .plus = 1 + (apart && !cut),
                                    .least = apart ? 2 : 1 };

    *t = (struct texts_of_rows){ .program = { .value = t->value } };
    for (int d = 0; d < SPACES; d++) {
        t->first[d][1] = one;
        t->rows[d] = one + two;
        t->view.first[space_at(d)] = t->first[d];
        t->view.rows[space_at(d)] = &t->rows[d];
        one = (int32_t)rows_of_parent(&half, (uint64_t)one);
        two = (int32_t)rows_of_parent(&half, (uint64_t)two);
    }
    t->view.rows[ROWS_ONE] = &texts;
    inst->dst = 0;
    t->value[0].rows = space_at(to);
    for (int k = 0; k < inst->nsrc; k++) {
        inst->src[k] = k + 1;
        t->value[k + 1].rows = space_at(depth[k]);
    }
}

/* Attention by distance (OP) over two texts, in more rows than there are blocks. */
static void try_distance(enum op op, int nsrc, unsigned tables, int pooled)
{
    enum { ROWS = 20, HEADS_ = 2, DIM = 9, COLS = HEADS_ * DIM, SPAN = 4 };
    const int keys = pooled > 0;
    const int depth[] = { pooled, keys, keys, pooled, 0, pooled };
    struct inst inst = { .op = op, .nsrc = nsrc, .weight = -1, .weight2 = -1 };
    int32_t type[ROWS];
    struct texts_of_rows t;
    struct call c = { .inst = &inst, .program = &t.program, .step = &t.view };
    struct matrix types = { .format = FORMAT_F32, .rows = 2, .cols = COLS };
    float *x[INST_SOURCES], *w = numbers_new(2 * COLS, FORMAT_F32, 57);
    float y[2 * ROWS * COLS];
    double worst;

    set_texts(&t, &inst, 9, 11, pooled > 1, pooled > 1, depth, pooled);
    t.view.input[FEED_TOKEN_TYPES] = type;
    for (int i = 0; i < ROWS; i++)
        type[i] = i / 3 % 2;
    types.data = w;
    inst.attention.heads = HEADS_;
    inst.attention.head_dim = DIM;
    inst.attention.span = SPAN;
    inst.attention.far = op == OP_RELATE ? 16 : 0;
    inst.attention.scale = 0.3;
    inst.attention.any_type = pooled ? 1 : -1;
    inst.attention.other_first = pooled > 1;
    inst.attention.keys_pooled = pooled > 0;
    inst.attention.pool = (struct pooled_text){ .times = (uint64_t)pooled,
                                                .apart = pooled > 1,
                                                .cut = pooled > 1 };
    for (int k = 0; k < nsrc; k++) {
        size_t rows = tables >> k & 1 ? 2 * SPAN : (size_t)t.rows[depth[k]];

        x[k] = numbers_new(rows * COLS, FORMAT_F32, (uint64_t)k + 31);
        c.x[k] = (struct buffer){ x[k], &t.rows[depth[k]], rows, COLS, FORMAT_F32, 0 };
    }
    c.w = nsrc > 5 ? &types : NULL;
    c.y = (struct buffer){ y,    &t.rows[pooled], (size_t)t.rows[pooled],
                           COLS, FORMAT_F32,      0 };
    worst = backends_differ(&c, y);
    if (!tap_ok(worst < 3e-6, "%s is the CPU's, of rows pooled %d times",
                op_table[op].name, pooled))
        printf("# apart by %.3g\n", worst);
    for (int k = 0; k < nsrc; k++)
        free(x[k]);
    free(w);
}

static void try_relate(void)
{
    try_distance(OP_RELATE, 5, 1 << 3 | 1 << 4, 0);
    try_distance(OP_RELATE_XL, 5, 1 << 4, 0);
    try_distance(OP_RELATE_XL, 6, 1 << 4, 0);
    try_distance(OP_RELATE_XL, 6, 1 << 4, 1);
    try_distance(OP_RELATE_XL, 6, 1 << 4, 2);
}

/* Attention within a window, and of the global tokens of [FIRST, END), and each STEP
 * tokens after it, of two texts. */
static void try_global(int from, int end, int step)
{
    enum { ROWS = 40, HEADS_ = 2, DIM = 9, COLS = HEADS_ * DIM };
    static const int32_t nrows = ROWS;
    static const int depth[6] = { 0 };
    struct inst inst = { .op = OP_GLOBAL_ATTENTION,
                         .nsrc = 6,
                         .weight = -1,
                         .weight2 = -1,
                         .attention = { .heads = HEADS_,
                                        .head_dim = DIM,
                                        .window = 4,
                                        .mask = FEED_OWN,
                                        .scale = 0.3 } };
    int32_t mask[ROWS];
    struct texts_of_rows t;
    struct call c = { .inst = &inst, .program = &t.program, .step = &t.view };
    float *x[INST_SOURCES], y[2 * ROWS * COLS];
    double worst;

    set_texts(&t, &inst, 23, 17, false, false, depth, 0);
    t.view.input[FEED_OWN] = mask;
    for (int i = 0; i < ROWS; i++) {
        int at = i < 23 ? i : i - 23;

        mask[i] =
            (at >= from && at < end) || (at >= end && (at - end) % step == step - 1);
    }
    for (int k = 0; k < inst.nsrc; k++) {
        x[k] = numbers_new(ROWS * COLS, FORMAT_F32, (uint64_t)k + 31);
        c.x[k] = (struct buffer){ x[k], &nrows, ROWS, COLS, FORMAT_F32, 0 };
    }
    c.y = (struct buffer){ y, &nrows, ROWS, COLS, FORMAT_F32, 0 };
    worst = backends_differ(&c, y);
    if (!tap_ok(worst < 3e-6, "attention of global tokens is the CPU's"))
        printf("# apart by %.3g\n", worst);
    for (int k = 0; k < inst.nsrc; k++)
        free(x[k]);
}

/* Attention within a window, and to the side rows of blocks of tokens, of two texts,
 * and the sums of blocks. */
static void try_side(int32_t one, int32_t two, uint64_t block)
{
    enum { ROWS = 40, HEADS_ = 2, DIM = 9, COLS = HEADS_ * DIM };
    static const int depth[5] = { 0, 0, 0, 1, 1 };
    struct inst inst = { .op = OP_SIDE_ATTENTION,
                         .nsrc = 5,
                         .weight = -1,
                         .weight2 = -1,
                         .attention = { .heads = HEADS_,
                                        .head_dim = DIM,
                                        .window = 4,
                                        .far = 20,
                                        .block = block,
                                        .scale = 0.3 } };
    struct inst sum = { .op = OP_BLOCK_SUM, .nsrc = 1, .block = block };
    struct texts_of_rows t;
    struct call c = { .inst = &inst, .program = &t.program, .step = &t.view };
    struct matrix near = { .format = FORMAT_F32, .rows = 8, .cols = HEADS_ },
                  far = near;
    float *x[INST_SOURCES], y[2 * ROWS * COLS];
    double worst;

    sum.weight = sum.weight2 = -1;
    set_texts(&t, &inst, one, two, false, false, depth, 0);
    t.first[1][1] = one / (int32_t)block;
    t.rows[1] = t.first[1][1] + two / (int32_t)block;
    near.data = numbers_new(8 * HEADS_, FORMAT_F32, 57);
    far.data = numbers_new(8 * HEADS_, FORMAT_F32, 58);
    for (int k = 0; k < inst.nsrc; k++) {
        x[k] = numbers_new(ROWS * COLS, FORMAT_F32, (uint64_t)k + 31);
        c.x[k] = (struct buffer){ x[k], &t.rows[depth[k]], ROWS, COLS, FORMAT_F32, 0 };
    }
    c.w = &near;
    c.w2 = &far;
    c.y = (struct buffer){ y, &t.rows[0], ROWS, COLS, FORMAT_F32, 0 };
    worst = backends_differ(&c, y);
    if (!tap_ok(worst < 3e-6, "attention to side rows is the CPU's"))
        printf("# apart by %.3g\n", worst);
    sum.dst = 4; /* of a value in the space of side rows */
    sum.src[0] = 1;
    c = (struct call){ .inst = &sum, .program = &t.program, .step = &t.view };
    c.x[0] = (struct buffer){ x[0], &t.rows[0], ROWS, COLS, FORMAT_F32, 0 };
    c.y = (struct buffer){ y, &t.rows[1], (size_t)t.rows[1], COLS, FORMAT_F32, 0 };
    worst = backends_differ(&c, y);
    if (!tap_ok(worst == 0, "and so are the sums of blocks"))
        printf("# apart by %.3g\n", worst);
    for (int k = 0; k < inst.nsrc; k++)
        free(x[k]);
    free((void *)(uintptr_t)near.data);
    free((void *)(uintptr_t)far.data);
}

static void try_sides(void)
{
    try_side(23, 17, 4);
    try_side(3, 37, 5);
    try_side(20, 20, 1);
}

static void try_globals(void)
{
    try_global(0, 1, 1 << 10);
    try_global(0, 9, 1 << 10);
    try_global(11, ROWS_MOST * 2, 1 << 10);
    try_global(0, 0, 1 << 10);
    try_global(2, 4, 3);
}

/* Rows side by side, of two texts of odd and of even length; and rows of an input. */
static void try_unfold(uint64_t stride, uint64_t before)
{
    enum { FROM = 12, COLS = 3, REACH = 5, WIDE = COLS * REACH };
    static const int32_t from = FROM, first[] = { 0, 5 }, texts = 2;
    const struct row_space of = { .how = HOW_RATIO,
                                  .times = 1,
                                  .by = stride,
                                  .plus =
                                      2 * (int64_t)before - REACH + (int64_t)stride };
    const int32_t made[] = { 0, (int32_t)rows_of_parent(&of, 5) };
    const int32_t n[] = { 5, 7 }, nrows = made[1] + (int32_t)rows_of_parent(&of, 7);
    struct value value[] = { { .rows = ROWS_OWN }, { .rows = ROWS_TOKENS } };
    struct program program = { .value = value };
    struct inst inst = {
        .op = OP_UNFOLD, .nsrc = 1, .src = { 1 }, .weight = -1, .weight2 = -1
    };
    struct step_view view = {
        .rows = { &from, [ROWS_ONE] = &texts, [ROWS_OWN] = &nrows },
        .first = { first, [ROWS_OWN] = made }
    };
    struct call c = { .program = &program, .inst = &inst, .step = &view };
    float *x = numbers_new(FROM * COLS, FORMAT_F32, 41), y[2 * FROM * WIDE];
    bool plain = true;

    inst.unfold.reach = REACH;
    inst.unfold.stride = stride;
    inst.unfold.before = before;
    c.x[0] = (struct buffer){ x, &from, FROM, COLS, FORMAT_F32, 0 };
    c.y = (struct buffer){ y, &nrows, (size_t)nrows, WIDE, FORMAT_F32, 0 };
    tap_ok(backends_differ(&c, y) == 0, "unfold by %d from %d is the CPU's",
           (int)stride, -(int)before);
    for (int t = 0; t < nrows; t++)
        for (int k = 0; k < REACH; k++)
            for (int i = 0; i < COLS; i++) {
                int text = t >= made[1], row = (t - made[text]) * (int)stride + k;
                bool inside = row >= (int)before && row < n[text] + (int)before;

                row += first[text] - (int)before;
                plain &=
                    y[t * WIDE + i * REACH + k] == (inside ? x[row * COLS + i] : 0.0F);
            }
    tap_ok(plain, "and as by a plain loop");
    inst.op = OP_INPUT;
    inst.nsrc = 0;
    inst.input = FEED_OWN;
    c.x[0].data = NULL;
    c.y = (struct buffer){ y, &from, FROM, 1, FORMAT_F32, 0 };
    view.input[FEED_OWN] = x;
    tap_ok(backends_differ(&c, y) == 0 && !memcmp(y, x, FROM * sizeof(*x)),
           "so are the rows of an input");
    free(x);
}

static void try_unfolds(void)
{
    try_unfold(2, 2);
    try_unfold(1, 0);
    try_unfold(3, 1);
}

/* ---- rows beside a row ---- */

enum { BESIDE_ROWS = 20, BESIDE_HEADS = 3, BESIDE_DIM = 5, BESIDE_TAPS = 7 };
enum {
    BESIDE_COLS = BESIDE_HEADS * BESIDE_DIM,
    BESIDE_SCORES = BESIDE_HEADS * BESIDE_TAPS
};

/* The largest difference between the backends for INST of two texts, with weight W or
 * NULL, in each order of threads. */
static double rows_beside(struct inst inst, const struct matrix *w)
{
    enum { N = BESIDE_ROWS * BESIDE_COLS };
    const struct pooled_text *at = &inst.pool.at;
    bool pools = inst.op == OP_POOL || inst.op == OP_UNPOOL;
    int times = pools ? (int)at->times : 0, from = times - (inst.op == OP_POOL);
    const int depth[] = { pools ? from : 0, 0 };
    int to = inst.op == OP_POOL ? times : 0;
    struct texts_of_rows t;
    struct call c = { .inst = &inst, .program = &t.program, .step = &t.view, .w = w };
    static const size_t cols[] = { BESIDE_COLS, BESIDE_SCORES };
    float *x[2], y[2 * N];
    double worst;

    set_texts(&t, &inst, 9, BESIDE_ROWS - 9, pools && at->apart, pools && at->cut,
              depth, to);
    for (int k = 0; k < 2; k++) {
        const int32_t *rows = &t.rows[k ? 0 : depth[0]];

        x[k] = numbers_new(BESIDE_ROWS * cols[k], FORMAT_F32, (uint64_t)k + 41);
        c.x[k] = (struct buffer){ x[k], rows, (size_t)*rows, cols[k], FORMAT_F32, 0 };
    }
    c.y = (struct buffer){ y,           &t.rows[to], (size_t)t.rows[to],
                           BESIDE_COLS, FORMAT_F32,  0 };
    worst = backends_differ(&c, y);
    for (int k = 0; k < 2; k++)
        free(x[k]);
    return worst;
}

static void try_beside(void)
{
    static const enum format types[] = { FORMAT_F32, FORMAT_BF16, FORMAT_F16 };
    struct inst inst = { .op = OP_SHIFT, .nsrc = 1, .weight = -1, .weight2 = -1 };
    double shifted = 0, convolved = 0, pooled = 0, dynamic;

    for (inst.shift = -3; inst.shift < 4; inst.shift += 2)
        shifted += rows_beside(inst, NULL);
    inst.op = OP_CONVOLVE;
    inst.taps.count = BESIDE_TAPS;
    inst.taps.heads = BESIDE_COLS;
    inst.taps.dim = 1;
    for (int k = 0; k < 3; k++) {
        struct matrix w = weight(BESIDE_COLS, BESIDE_TAPS, types[k]);
        double apart = rows_beside(inst, &w);

        convolved = apart > convolved ? apart : convolved;
        release(&w);
    }
    inst.op = OP_DYNAMIC;
    inst.taps.heads = BESIDE_HEADS;
    inst.taps.dim = BESIDE_DIM;
    dynamic = rows_beside(inst, NULL);
    for (int i = 0; i < 16; i++) {
        inst.op = i % 2 ? OP_POOL : OP_UNPOOL;
        inst.pool.at = (struct pooled_text){ .times = 1 + (uint64_t)(i / 2 % 2),
                                             .apart = i / 4 % 2 == 0,
                                             .cut = i < 8 };
        inst.pool.most = i / 8 == 1;
        pooled += rows_beside(inst, NULL);
    }
    tap_ok(shifted == 0, "shift is the CPU's");
    tap_ok(pooled == 0, "so are rows that are pooled, and made tokens again");
    if (!tap_ok(convolved < 1e-6, "convolve is the CPU's, of every type"))
        printf("# apart by %.3g\n", convolved);
    tap_ok(dynamic < 3e-7, "dynamic is the CPU's");
}

/* ---- states of fixed size ---- */

enum { STATE_ROWS = 20, STATE_COLS = 15, STATE_TAPS = 4, STATE_TAIL = 3, RECORDS = 6 };
enum {
    STATE_N = STATE_ROWS * STATE_COLS,
    STATE_ALL = RECORDS * STATE_TAIL * STATE_COLS
};
/* Three sequences: one that goes on, and is saved twice, a new one of one row, and one
 * that is saved before its last row. */
static const struct state_use state_uses[] = { { 0, 9, 1, 0, 0, 2 },
                                               { 9, 1, 0, 1, 2, 0 },
                                               { 10, 10, 2, 0, 2, 1 } };
static const struct state_save state_saves[] = { { 2, 3 }, { 5, 4 }, { 18, 5 } };

/* The largest difference of Y and the states MEMORY, which were STATES before C, on the
 * GPU from the CPU's, which are there. */
static double states_differ(const struct call *c, const float *y, const float *memory,
                            const float *states)
{
    float got[STATE_N], left[STATE_ALL];
    double worst = 0;

    for (size_t o = 0; o < norders(); o++) {
        struct call d = *c;
        struct matrix far_w = matrix_copy(c->w);
        double apart;

        setenv("EMU_ORDER", orders[o], 1);
        owned.n = 0;
        d.w = &far_w;
        d.state.memory = copy_new(states, sizeof(left), 0);
        d.state.use = copy_new(state_uses, sizeof(state_uses), 0);
        d.state.save = copy_new(state_saves, sizeof(state_saves), 0);
        d.y.rows = copy_new(c->y.rows, sizeof(*c->y.rows), 0);
        d.y.data = copy_new(y, sizeof(got), 4);
        d.x[0].data = copy_new(c->x[0].data, sizeof(got), 4);
        check(backend_cuda.kernel[c->inst->op](gpu, &d, &err) == 0 &&
              backend_cuda.copy_out(gpu, got, d.y.data, sizeof(got), &err) == 0 &&
              backend_cuda.copy_out(gpu, left, d.state.memory, sizeof(left), &err) ==
                  0);
        apart = largest_difference(y, got, STATE_N);
        worst = apart > worst ? apart : worst;
        apart = largest_difference(memory, left, STATE_ALL);
        worst = apart > worst ? apart : worst;
        for (size_t i = 0; i < owned.n; i++)
            backend_cuda.release(gpu, owned.v[i]);
    }
    return worst;
}

static void try_states(void)
{
    static const enum format types[] = { FORMAT_F32, FORMAT_BF16, FORMAT_F16 };
    enum { RECORD = STATE_TAIL * STATE_COLS };
    const struct inst inst = { .op = OP_CAUSAL_CONVOLVE,
                               .nsrc = 1,
                               .weight = -1,
                               .weight2 = -1,
                               .taps.count = STATE_TAPS };
    const int32_t rows = STATE_ROWS;
    float *x = numbers_new(STATE_N, FORMAT_F32, 43),
          *states = numbers_new(STATE_ALL, FORMAT_F32, 44), y[STATE_N],
          memory[STATE_ALL];
    double worst = 0;

    for (int k = 0; k < 3; k++) {
        struct matrix w = weight(STATE_COLS, STATE_TAPS, types[k]);
        struct call c = { .inst = &inst, .w = &w };
        double apart;

        c.x[0] = (struct buffer){ x, &rows, STATE_ROWS, STATE_COLS, FORMAT_F32, 0 };
        c.y = (struct buffer){ y, &rows, STATE_ROWS, STATE_COLS, FORMAT_F32, 0 };
        c.state = (struct states_view){ memory, state_uses, 3, state_saves };
        memcpy(memory, states, sizeof(memory));
        check(backend_cpu.kernel[inst.op](cpu, &c, &err) == 0);
        apart = states_differ(&c, y, memory, states);
        worst = apart > worst ? apart : worst;
        release(&w);
    }
    if (!tap_ok(worst < 1e-6, "causal_convolve is the CPU's, and so are its states"))
        printf("# apart by %.3g\n", worst);
    tap_ok(!memcmp(memory + 3 * RECORD, x, RECORD * sizeof(*x)) &&
               !memcmp(memory + 4 * RECORD, x + RECORD, RECORD * sizeof(*x)) &&
               !memcmp(memory + RECORD, x + 2 * RECORD, RECORD * sizeof(*x)),
           "a state is the last rows");
    tap_ok(!memcmp(memory + 2 * STATE_COLS, x + 3 * RECORD, STATE_COLS * sizeof(*x)) &&
               memory[0] == 0 && memory[2 * STATE_COLS - 1] == 0,
           "of a sequence that is shorter, after zeros");
    free(x);
    free(states);
}

/* ---- positions and the cache ---- */

/* Heads that rotate whole or in part, in pairs of neighbours or of halves. */
static void try_rotate(void)
{
    static const struct {
        uint64_t heads, head, dim;
    } all[] = { { 1, 2, 2 },   { 5, 10, 6 },   { 7, 12, 8 },
                { 33, 20, 8 }, { 40, 64, 64 }, { 9, 24, 20 } };

    for (int interleaved = 0; interleaved < 2; interleaved++) {
        bool same = true;

        for (size_t i = 0; i < 6 * 3; i++) {
            uint64_t head = all[i / 3].head, dim = all[i / 3].dim;
            struct rope rope = { .dim = dim, .interleaved = interleaved };
            struct trial t = plain(OP_ROPE, 2, counts[i % 3], all[i / 3].heads * head);

            t.x_cols[1] = dim;
            t.inst.rope.head = head;
            t.rope = &rope;
            t.bound = 3e-7;
            same = run_all(&t) && same;
        }
        tap_ok(same, "rope is the CPU's, of %s", interleaved ? "neighbours" : "halves");
    }
}

enum { CACHED_ROWS = 10, CACHED_KEYS = 23, CACHED_BLOCKS = 5 };

/* Do the backends append X's rows to a cache alike, and read it alike? */
static bool is_cached(const float *x, const float *cache, size_t cols)
{
    static const struct range one[] = {
        { .rows = 9, .keys = 20, .write_row = 11, .block = 0 },
        { .row = 9, .rows = 1, .keys = 3, .write_row = 2, .block = 2 }
    };
    static const int32_t block[] = { 3, 1, 4 };
    struct inst inst = { .op = OP_KEEP, .nsrc = 1, .weight = -1, .weight2 = -1 };
    struct call c = { .inst = &inst, .range = { one, 2, block, BLOCK_ROWS, 9, 20 } }, d;
    size_t all = CACHED_BLOCKS * BLOCK_ROWS * cols, keys = CACHED_KEYS * cols;
    float *y = xmalloc(all * sizeof(*y)), *z = xmalloc(all * sizeof(*z));
    float *back = xmalloc(keys * sizeof(*back));
    bool same;

    owned.n = 0;
    memcpy(y, cache, all * sizeof(*y));
    c.y = (struct buffer){ .data = y, .cols = cols, .format = FORMAT_F32 };
    c.x[0] = (struct buffer){ .data = (void *)(uintptr_t)x,
                              .cols = cols,
                              .format = FORMAT_F32 };
    d = c;
    d.range.v = copy_new(one, sizeof(one), 0);
    d.range.block = copy_new(block, sizeof(block), 0);
    d.x[0].data = copy_new(x, CACHED_ROWS * cols * sizeof(*x), 4);
    d.y.data = copy_new(y, all * sizeof(*y), 4);
    check(backend_cpu.kernel[OP_KEEP](cpu, &c, &err) == 0 &&
          backend_cuda.kernel[OP_KEEP](gpu, &d, &err) == 0 &&
          backend_cuda.copy_out(gpu, z, d.y.data, all * sizeof(*z), &err) == 0);
    same = !memcmp(y, z, all * sizeof(*y));
    inst.op = OP_CACHE_READ;
    c.x[0] = c.y;
    c.y.data = back;
    d.x[0] = d.y;
    d.y.data = copy_new(back, keys * sizeof(*back), 4);
    check(backend_cpu.kernel[OP_CACHE_READ](cpu, &c, &err) == 0 &&
          backend_cuda.kernel[OP_CACHE_READ](gpu, &d, &err) == 0 &&
          backend_cuda.copy_out(gpu, z, d.y.data, keys * sizeof(*z), &err) == 0);
    same = same && !memcmp(back, z, keys * sizeof(*z));
    for (size_t i = 0; i < owned.n; i++)
        backend_cuda.release(gpu, owned.v[i]);
    free(y);
    free(z);
    free(back);
    return same;
}

static void try_cache(void)
{
    bool same = true;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        float *x = numbers_new(CACHED_ROWS * sizes[i], FORMAT_F32, 51);
        float *cache =
            numbers_new(CACHED_BLOCKS * BLOCK_ROWS * sizes[i], FORMAT_F32, 52);

        for (size_t o = 0; o < norders(); o++) {
            setenv("EMU_ORDER", orders[o], 1);
            aligned = o % 2;
            same = is_cached(x, cache, sizes[i]) && same;
        }
        free(x);
        free(cache);
    }
    aligned = false;
    tap_ok(same, "rows are appended to the cache, and read, as by the CPU");
}

/* ---- parts of x in bf16 ---- */

enum { PART_ROWS = 40, PART_IN = 16, PART_OUT = 8, PART_X = PART_ROWS * PART_IN };

/* Rows X and Z in device memory, X's product with W, and calls that make it and copy Z
 * to X. */
struct parts {
    struct program program;
    struct inst product_inst, copy_inst;
    struct matrix w, far_w;
    struct call product, copy;
    float z[PART_X];
};

static void open_parts(struct parts *p)
{
    static const int32_t nrows = PART_ROWS;
    float y[PART_ROWS * PART_OUT] = { 0 };
    struct buffer b = { .most = PART_ROWS, .format = FORMAT_F32 };

    owned.n = 0;
    aligned = true;
    *p = (struct parts){ .w = weight(PART_OUT, PART_IN, FORMAT_BF16) };
    p->far_w = matrix_copy(&p->w);
    p->product_inst = p->copy_inst = (struct inst){ .nsrc = 1 };
    p->product_inst.op = OP_LINEAR;
    p->copy_inst.op = OP_SCALE;
    p->copy_inst.scalar = 1;
    p->product = (struct call){ .program = &p->program, .inst = &p->product_inst };
    p->copy = (struct call){ .program = &p->program, .inst = &p->copy_inst };
    p->product.w = &p->far_w;
    b.rows = copy_new(&nrows, sizeof(nrows), 0);
    b.cols = PART_IN;
    b.data = copy_new(p->z, sizeof(p->z), 0);
    p->product.x[0] = p->copy.y = b;
    b.data = copy_new(p->z, sizeof(p->z), 0);
    p->copy.x[0] = b;
    b.cols = PART_OUT;
    b.data = copy_new(y, sizeof(y), 0);
    p->product.y = b;
    aligned = false;
}

static void close_parts(struct parts *p)
{
    for (size_t i = 0; i < owned.n; i++)
        backend_cuda.release(gpu, owned.v[i]);
    release(&p->w);
}

static void put(struct parts *p, void *to, uint64_t stream)
{
    float *z = numbers_new(PART_X, FORMAT_F32, stream);

    memcpy(p->z, z, sizeof(p->z));
    check(backend_cuda.copy_in(gpu, to, p->z, sizeof(p->z), &err) == 0);
    free(z);
}

static void make(const struct call *c)
{
    check(backend_cuda.kernel[c->inst->op](gpu, c, &err) == 0);
}

/* The last product is that of the rows that were put last. */
static bool is_product(struct parts *p)
{
    float want[PART_ROWS * PART_OUT], got[PART_ROWS * PART_OUT], largest = 0, apart = 0;
    int32_t nrows = PART_ROWS;
    struct call c = p->product;

    check(backend_cuda.copy_out(gpu, got, c.y.data, sizeof(got), &err) == 0);
    c.w = &p->w;
    c.y.data = want;
    c.x[0].data = p->z;
    c.y.rows = c.x[0].rows = &nrows;
    check(backend_cpu.kernel[OP_LINEAR](cpu, &c, &err) == 0);
    for (int i = 0; i < PART_ROWS * PART_OUT; i++) {
        largest = fmaxf(largest, fabsf(want[i]));
        apart = fmaxf(apart, fabsf(got[i] - want[i]));
    }
    return apart <= 1e-4F * largest;
}

static struct recording *record_call(const struct call *c)
{
    struct recording *r = NULL;

    check(backend_cuda.record(gpu, &err) == 1);
    make(c);
    check(backend_cuda.recorded(gpu, &r, &err) == 0 && r);
    return r;
}

/* cuBLASLt's products of the same x share its parts, until something writes there. */
static void try_parts(void)
{
    struct parts p;
    struct recording *copies, *multiplies;
    void *x, *z;
    bool fine;

    if (!gpu->blas) {
        tap_ok(true, "parts of x # SKIP no cuBLASLt");
        return;
    }
    open_parts(&p);
    x = p.product.x[0].data;
    z = p.copy.x[0].data;
    put(&p, x, 1);
    make(&p.product);
    /* behind the backend's back */
    check(cudaMemcpyAsync(x, z, sizeof(p.z), cudaMemcpyDeviceToDevice, gpu->stream) ==
          cudaSuccess);
    make(&p.product);
    tap_ok(is_product(&p), "products of the same x share its parts");
    put(&p, x, 2);
    make(&p.product);
    tap_ok(is_product(&p), "parts are made again behind a copy from the host");
    put(&p, z, 3);
    make(&p.product);
    make(&p.copy);
    make(&p.product);
    tap_ok(is_product(&p), "and behind a kernel");
    put(&p, z, 4);
    make(&p.product);
    check(backend_cuda.copy(gpu, x, z, sizeof(p.z), &err) == 0);
    make(&p.product);
    tap_ok(is_product(&p), "and behind a copy within the device");
    copies = record_call(&p.copy);
    put(&p, z, 5);
    make(&p.product);
    check(backend_cuda.replay(gpu, copies, &err) == 0);
    make(&p.product);
    tap_ok(is_product(&p), "and behind a recorded step");
    make(&p.product);
    multiplies = record_call(&p.product);
    put(&p, z, 6);
    make(&p.copy);
    check(backend_cuda.replay(gpu, multiplies, &err) == 0);
    fine = is_product(&p);
    backend_cuda.forget(gpu, multiplies);
    put(&p, z, 7);
    make(&p.copy);
    multiplies = record_call(&p.product);
    make(&p.product);
    tap_ok(fine && is_product(&p),
           "a recorded step makes its own, and for itself alone");
    backend_cuda.forget(gpu, multiplies);
    backend_cuda.forget(gpu, copies);
    close_parts(&p);
}

/* And until another rank does. */
static void try_far_parts(void)
{
    const struct device_collectives *all = backend_cuda.collectives;
    struct parts p;
    char id[DEVICE_GROUP_ID];
    struct device_group *group;
    size_t bytes = sizeof(p.z);

    if (!gpu->blas || !all->probe(gpu, false, 0)) {
        tap_ok(true, "parts of x and ranks # SKIP no cuBLASLt, or no NCCL");
        return;
    }
    check(all->make_id(gpu, id, &err) == 0 &&
          all->join(&group, gpu, id, 0, 1, &err) == 0);
    open_parts(&p);
    put(&p, p.copy.x[0].data, 8);
    make(&p.product);
    check(all->all_gather(group, p.copy.x[0].data, p.product.x[0].data, &bytes, &err) ==
          0);
    make(&p.product);
    tap_ok(is_product(&p), "parts are made again behind a collective");
    close_parts(&p);
    check(all->finish(group, &err) == 0);
    all->leave(group);
}

/* ---- sequences beside each other ---- */

enum { SEQUENCES = 4, HEADS = 4, HEAD = 16 };

/* Attention of the N sequences at ONE to y. */
static void attend_sequences(float *y, const struct range *one, size_t n,
                             const float *x[3], const size_t *count,
                             const int32_t *block, size_t blocks, bool narrow)
{
    struct inst inst = { .op = OP_ATTENTION, .nsrc = 3, .weight = -1, .weight2 = -1 };
    struct call c = { .inst = &inst, .narrow = narrow };
    size_t rows = count[0] / (HEADS * HEAD);
    int32_t nrows = (int32_t)rows;

    owned.n = 0;
    aligned = true;
    inst.attention.heads = inst.attention.all_heads = HEADS;
    inst.attention.kv_heads = inst.attention.groups = 2;
    inst.attention.within = inst.attention.per_group = 2;
    inst.attention.head_dim = inst.attention.value_dim = inst.attention.value_cols =
        HEAD;
    inst.attention.scale = 0.25;
    inst.attention.causal = true;
    c.range = (struct ranges){ .v = copy_new(one, n * sizeof(*one), 0),
                               .n = n,
                               .block = copy_new(block, blocks * sizeof(*block), 0),
                               .block_rows = BLOCK_ROWS };
    for (size_t i = 0; i < n; i++) {
        if ((size_t)one[i].rows > c.range.most_rows)
            c.range.most_rows = (size_t)one[i].rows;
        if ((size_t)one[i].keys > c.range.most_keys)
            c.range.most_keys = (size_t)one[i].keys;
    }
    for (int k = 0; k < 3; k++)
        c.x[k] = (struct buffer){ copy_new(x[k], count[k] * sizeof(float), 0),
                                  copy_new(&nrows, sizeof(nrows), 0),
                                  rows,
                                  k ? 2 * HEAD : HEADS * HEAD,
                                  FORMAT_F32,
                                  0 };
    c.y = c.x[0];
    c.y.data = copy_new(y, count[0] * sizeof(*y), 0);
    check(backend_cuda.kernel[OP_ATTENTION](gpu, &c, &err) == 0 &&
          backend_cuda.copy_out(gpu, y, c.y.data, count[0] * sizeof(*y), &err) == 0);
    for (size_t i = 0; i < owned.n; i++)
        backend_cuda.release(gpu, owned.v[i]);
    aligned = false;
}

/* One token after a long text, one after a short one, some, and a whole text: alone
 * chunks of the long one have a block each, with the others they have not. */
static void try_sequences(void)
{
    static const int32_t rows[SEQUENCES] = { 1, 3, 1, 21 },
                         keys[SEQUENCES] = { 77, 40, 5, 21 };
    struct range one[SEQUENCES];
    int32_t block[SEQUENCES * 5], row = 0, at = 0;
    size_t count[3];
    float *x[3];

    for (int i = 0; i < SEQUENCES; i++) {
        one[i] = (struct range){ .row = row,
                                 .rows = rows[i],
                                 .start = keys[i] - rows[i],
                                 .keys = keys[i],
                                 .block = at };
        row += rows[i];
        for (int32_t k = 0; k < keys[i]; k += BLOCK_ROWS, at++)
            block[at] = at;
    }
    for (int k = 0; k < 3; k++) {
        count[k] = (size_t)(k ? at * BLOCK_ROWS * 2 : row * HEADS) * HEAD;
        x[k] = numbers_new(count[k], FORMAT_F32, (uint64_t)k + 11);
    }
    for (int narrow = 0; narrow < 2; narrow++) {
        float *all = xcalloc(count[0], sizeof(*all));
        float *each = xcalloc(count[0], sizeof(*each));

        attend_sequences(all, one, SEQUENCES, (const float **)x, count, block,
                         (size_t)at, narrow);
        for (int i = 0; i < SEQUENCES; i++)
            attend_sequences(each, &one[i], 1, (const float **)x, count, block,
                             (size_t)at, narrow);
        tap_ok(!memcmp(all, each, count[0] * sizeof(*all)),
               "a sequence has the same bits alone and beside others%s",
               narrow ? ", also on tensor cores" : "");
        free(all);
        free(each);
    }
    for (int k = 0; k < 3; k++)
        free(x[k]);
}

/* ---- products by codes ---- */

/* Random codes of F, OUT x IN, with scales; the caller's, and the device's in *D. */
static struct format_codes codes_new(struct matrix *d, enum format f, uint64_t out,
                                     uint64_t in, uint64_t seed)
{
    struct format_codes c = { .rows = out,
                              .cols = in,
                              .per = f == FORMAT_E4M3 ? 16 : 0 };
    uint64_t codes = 0, scales = 0;
    float *x;

    check(format_bytes(&codes, f, out, in) &&
          format_scale_bytes(&scales, f, out, in, c.per));
    c.data = xmalloc((size_t)codes);
    c.scale = xmalloc((size_t)scales);
    format_clear(f, &c);
    x = numbers_new((size_t)in, FORMAT_F32, seed);
    for (uint64_t r = 0; r < out; r++) {
        uint8_t *code = xcalloc((size_t)in, 1), *power = xcalloc((size_t)in, 1);
        float *scale = xcalloc((size_t)in, sizeof(*scale));

        for (uint64_t k = 0; k < in; k++) {
            uint64_t n = seed + r * 131 + k * 7;

            x[k] += (float)(r % 3) - 1;
            code[k] = (uint8_t)(f == FORMAT_MXFP4 ? n % 16 : n * 37 % 256);
            if ((code[k] & 0x7c) == 0x7c) /* no numbers */
                code[k] = 3;
            power[k] = (uint8_t)(120 + n % 9);
            scale[k] = 0.01F + (float)(n % 11);
        }
        if (format_table[f].put)
            check(format_table[f].put(
                &c, r, code, f == FORMAT_MXFP4 ? (void *)power : (void *)scale));
        else
            format_table[f].encode(&c, r, x, codes_largest(x, (size_t)in), false);
        free(code);
        free(power);
        free(scale);
    }
    free(x);
    *d = (struct matrix){ .format = f, .rows = out, .cols = in, .per = c.per };
    d->data = copy_new(c.data, (size_t)codes, 0);
    d->scale = copy_new(c.scale, (size_t)scales, 0);
    return c;
}

/* How far Y is from X times W, relative to the size of the terms, in rows [FIRST,
 * END). */
static double apart_by_codes(const float *y, const float *x,
                             const struct format_codes *w, enum format f, size_t first,
                             size_t end)
{
    float *row = xcalloc((size_t)w->cols, sizeof(*row));
    double most = 0;

    for (uint64_t o = 0; o < w->rows; o++) {
        format_table[f].widen(row, w, o, 0, w->cols);
        for (size_t t = first; t < end; t++) {
            double want = 0, size = 1e-30, d;

            for (uint64_t k = 0; k < w->cols; k++) {
                want += (double)x[t * w->cols + k] * (double)row[k];
                size += fabs((double)x[t * w->cols + k] * (double)row[k]);
            }
            d = fabs((double)y[t * w->rows + o] - want) / size;
            most = d <= most ? most : d;
        }
    }
    free(row);
    return most;
}

/* Products of ROWS rows by codes: of one weight, or of two experts. */
static double by_codes(enum format f, int32_t rows, uint64_t in, uint64_t out,
                       bool experts, float *y, const float *x)
{
    struct inst inst = { .op = OP_LINEAR, .nsrc = 1 };
    struct program program = { 0 };
    struct matrix w[2];
    struct format_codes own[2];
    const int32_t first[3] = { 0, rows / 3, rows };
    struct call c = { .program = &program, .inst = &inst, .w = w };
    size_t n = (size_t)rows * (size_t)out;
    double apart;

    owned.n = 0;
    for (uint64_t i = 0; i < 2; i++)
        own[i] = codes_new(&w[i], f, out, in, i + 3);
    c.x[0] = (struct buffer){ .data = copy_new(x, (size_t)rows * in * sizeof(*x), 4),
                              .rows = copy_new(&rows, sizeof(rows), 0),
                              .most = (size_t)rows,
                              .cols = in };
    c.y = c.x[0];
    c.y.cols = out;
    c.y.data = copy_new(y, n * sizeof(*y), 4);
    if (experts) {
        c.expert_rows = copy_new(first, sizeof(first), 0);
        c.nexperts = 2;
        c.x[0].rows = c.y.rows = c.expert_rows + 2;
    }
    check(backend_cuda.kernel[OP_LINEAR](gpu, &c, &err) == 0 &&
          backend_cuda.copy_out(gpu, y, c.y.data, n * sizeof(*y), &err) == 0);
    apart = apart_by_codes(y, x, &own[0], f, 0, (size_t)(experts ? first[1] : rows));
    if (experts)
        apart = fmax(apart,
                     apart_by_codes(y, x, &own[1], f, (size_t)first[1], (size_t)rows));
    for (size_t i = 0; i < owned.n; i++)
        backend_cuda.release(gpu, owned.v[i]);
    for (int i = 0; i < 2; i++) {
        free(own[i].data);
        free(own[i].scale);
    }
    return apart;
}

static void try_codes(void)
{
    static const enum format formats[] = { FORMAT_INT8, FORMAT_INT4, FORMAT_E4M3,
                                           FORMAT_E5M2, FORMAT_MXFP4 };
    static const struct {
        int32_t rows;
        uint64_t in, out;
    } shapes[] = { { 1, 64, 40 }, { 9, 160, 17 }, { 21, 32, 16 }, { 3, 61, 5 } };

    for (size_t f = 0; f < sizeof(formats) / sizeof(*formats); f++) {
        bool four = format_table[formats[f]].whole, same = true;
        double worst = 0;

        for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
            int32_t rows = shapes[i].rows;
            uint64_t in = shapes[i].in, out = shapes[i].out;
            size_t n = (size_t)rows * (size_t)out;
            float *x = numbers_new((size_t)rows * in, FORMAT_F32, 31);
            float *y = xcalloc(2 * n, sizeof(*y));

            if (four && in % 32)
                in = 32;
            for (size_t o = 0; o < norders(); o++) {
                setenv("EMU_ORDER", orders[o], 1);
                worst = fmax(worst, by_codes(formats[f], rows, in, out, o % 2, y, x));
            }
            worst = fmax(worst, by_codes(formats[f], rows, in, out, false, y, x));
            for (int32_t r = 0; r < rows; r++)
                by_codes(formats[f], 1, in, out, false, y + n + (size_t)r * out,
                         x + (size_t)r * in);
            same = same && !memcmp(y, y + n, n * sizeof(*y));
            free(x);
            free(y);
        }
        if (!tap_ok(worst < 1e-6, "products by codes of %s", format_name(formats[f])))
            printf("# apart by %.3g\n", worst);
        tap_ok(same, "a row of which has the same bits alone");
    }
}

/* ---- caches of other formats ---- */

struct cache_trial {
    const char *name;
    uint64_t heads, kv_heads, dim;
    int32_t rows, keys; /* queries; keys, with theirs */
};

/* Appends the rows X to the cache C of BLOCKS through the table BLOCK, on B; the
 * cache's bytes, the caller's. */
static char *append(const struct backend *b, struct device *on, struct buffer c,
                    const float *x, const struct range *range, const int32_t *block,
                    size_t blocks, struct buffer *kept)
{
    struct inst inst = { .op = OP_KEEP, .nsrc = 1, .weight = -1, .weight2 = -1 };
    struct call call = { .inst = &inst, .y = c };
    size_t bytes = blocks * BLOCK_ROWS * format_row_bytes(c.format, c.cols, c.width);
    bool gpus = b == &backend_cuda;
    char *memory = xcalloc(bytes, 1);

    call.range =
        (struct ranges){ .v = gpus ? copy_new(range, sizeof(*range), 0) : range,
                         .n = 1,
                         .block =
                             gpus ? copy_new(block, blocks * sizeof(*block), 0) : block,
                         .block_rows = BLOCK_ROWS,
                         .most_rows = (size_t)range->rows,
                         .most_keys = (size_t)range->keys };
    call.x[0] = (struct buffer){ .data = (void *)(uintptr_t)x,
                                 .most = (size_t)range->rows,
                                 .cols = c.cols };
    call.y.data = memory;
    if (gpus) {
        call.x[0].data = copy_new(x, (size_t)range->rows * c.cols * sizeof(*x), 4);
        call.y.data = copy_new(memory, bytes, 4);
    }
    check(b->kernel[OP_KEEP](on, &call, &err) == 0);
    if (gpus)
        check(b->copy_out(on, memory, call.y.data, bytes, &err) == 0);
    *kept = call.y;
    return memory;
}

/* Attention of T's queries over the caches K and V on the GPU to Y. */
static void attend_cached(float *y, const struct cache_trial *t, const float *q,
                          const struct buffer *k, const struct buffer *v,
                          const int32_t *block, size_t blocks, int bits)
{
    struct inst inst = { .op = OP_ATTENTION, .nsrc = 3, .weight = -1, .weight2 = -1 };
    struct call c = { .inst = &inst, .narrow = bits <= 16, .rounded = bits == 8 };
    const struct range one = { .rows = t->rows,
                               .start = t->keys - t->rows,
                               .keys = t->keys };
    size_t n = (size_t)t->rows * t->heads * t->dim;

    inst.attention.heads = inst.attention.all_heads = t->heads;
    inst.attention.kv_heads = inst.attention.groups = t->kv_heads;
    inst.attention.within = inst.attention.per_group = t->heads / t->kv_heads;
    inst.attention.head_dim = inst.attention.value_dim = inst.attention.value_cols =
        t->dim;
    inst.attention.scale = 1 / sqrt((double)t->dim);
    inst.attention.causal = true;
    c.range = (struct ranges){ .v = copy_new(&one, sizeof(one), 0),
                               .n = 1,
                               .block = copy_new(block, blocks * sizeof(*block), 0),
                               .block_rows = BLOCK_ROWS,
                               .most_rows = (size_t)t->rows,
                               .most_keys = (size_t)t->keys };
    c.x[0] = (struct buffer){ .data = copy_new(q, n * sizeof(*q), 4),
                              .rows = copy_new(&t->rows, sizeof(t->rows), 0),
                              .most = (size_t)t->rows,
                              .cols = t->heads * t->dim };
    c.x[1] = *k;
    c.x[2] = *v;
    c.y = c.x[0];
    c.y.data = copy_new(y, n * sizeof(*y), 4);
    check(backend_cuda.kernel[OP_ATTENTION](gpu, &c, &err) == 0 &&
          backend_cuda.copy_out(gpu, y, c.y.data, n * sizeof(*y), &err) == 0);
}

/* All numbers of the cache at MEMORY, in the order of its rows; the caller's. */
static float *widened(const char *memory, const struct buffer *c, size_t rows)
{
    size_t bytes = format_row_bytes(c->format, c->cols, c->width);
    float *x = xcalloc(rows * c->cols, sizeof(*x));

    for (size_t i = 0; i < rows; i++)
        format_table[c->format].widen(
            x + i * c->cols,
            &(struct format_codes){ .data = (void *)(uintptr_t)(memory + i * bytes),
                                    .rows = 1,
                                    .cols = c->cols,
                                    .per = c->width },
            0, 0, c->cols);
    return x;
}

/* Does attention over a cache of F have the bits of one over f32 with its numbers? */
static bool reads_cache(const struct cache_trial *t, enum format f,
                        const float *const x[3], int bits)
{
    const struct range all = { .rows = t->keys, .keys = t->keys };
    size_t blocks = ((size_t)t->keys + BLOCK_ROWS - 1) / BLOCK_ROWS;
    size_t rows = blocks * BLOCK_ROWS, n = (size_t)t->rows * t->heads * t->dim;
    struct buffer c = { .cols = t->kv_heads * t->dim,
                        .most = rows,
                        .format = f,
                        .width = format_cached_per(f, t->dim) };
    struct buffer plain = { .cols = c.cols, .most = rows }, kept[2], wide[2];
    float *y = xcalloc(2 * n, sizeof(*y));
    int32_t block[MOST_BLOCKS];
    bool same;

    owned.n = 0;
    for (size_t i = 0; i < blocks; i++)
        block[i] = (int32_t)(blocks - 1 - i);
    for (int i = 0; i < 2; i++) {
        char *memory =
            append(&backend_cuda, gpu, c, x[i + 1], &all, block, blocks, &kept[i]);
        float *w = widened(memory, &c, rows);

        wide[i] = plain;
        wide[i].data = copy_new(w, rows * c.cols * sizeof(*w), 4);
        free(memory);
        free(w);
    }
    attend_cached(y, t, x[0], &kept[0], &kept[1], block, blocks, bits);
    attend_cached(y + n, t, x[0], &wide[0], &wide[1], block, blocks, bits);
    same = !memcmp(y, y + n, n * sizeof(*y)) && y[0] == y[0];
    for (size_t i = 0; i < owned.n; i++)
        backend_cuda.release(gpu, owned.v[i]);
    free(y);
    return same;
}

/* Are the bytes that a GPU appends those of the CPU, and is what it reads back what
 * they stand for? */
static bool keeps_cache(const struct cache_trial *t, enum format f, const float *x)
{
    const struct range all = { .rows = t->keys, .keys = t->keys };
    size_t blocks = ((size_t)t->keys + BLOCK_ROWS - 1) / BLOCK_ROWS;
    size_t rows = blocks * BLOCK_ROWS, n = (size_t)t->keys * t->kv_heads * t->dim;
    struct buffer c = { .cols = t->kv_heads * t->dim,
                        .most = rows,
                        .format = f,
                        .width = format_cached_per(f, t->dim) };
    struct buffer of_cpu, of_gpu;
    struct inst inst = { .op = OP_CACHE_READ, .nsrc = 1, .weight = -1, .weight2 = -1 };
    struct call read = { .inst = &inst };
    int32_t block[MOST_BLOCKS];
    float *y = xcalloc(n, sizeof(*y)), *w;
    char *a, *b;
    bool same;

    owned.n = 0;
    for (size_t i = 0; i < blocks; i++)
        block[i] = (int32_t)i;
    a = append(&backend_cpu, cpu, c, x, &all, block, blocks, &of_cpu);
    b = append(&backend_cuda, gpu, c, x, &all, block, blocks, &of_gpu);
    /* a NaN's sign and bits are not told apart */
    same = !memcmp(a, b, rows * format_row_bytes(f, c.cols, c.width));
    w = widened(b, &c, rows);
    read.range = (struct ranges){ .v = copy_new(&all, sizeof(all), 0),
                                  .n = 1,
                                  .block = copy_new(block, sizeof(block), 0),
                                  .block_rows = BLOCK_ROWS,
                                  .most_keys = (size_t)t->keys };
    read.x[0] = of_gpu;
    read.y = (struct buffer){ .data = copy_new(y, n * sizeof(*y), 4),
                              .rows = copy_new(&t->keys, sizeof(t->keys), 0),
                              .most = (size_t)t->keys,
                              .cols = c.cols };
    check(backend_cuda.kernel[OP_CACHE_READ](gpu, &read, &err) == 0 &&
          backend_cuda.copy_out(gpu, y, read.y.data, n * sizeof(*y), &err) == 0);
    for (size_t i = 0; i < n; i++)
        same = same && (y[i] == w[i] || (y[i] != y[i] && w[i] != w[i]));
    for (size_t i = 0; i < owned.n; i++)
        backend_cuda.release(gpu, owned.v[i]);
    free(a);
    free(b);
    free(w);
    free(y);
    return same;
}

static void try_caches(void)
{
    static const struct cache_trial all[] = {
        { "one query", 4, 2, 64, 1, 70 },
        { "one query of eight heads", 8, 1, 8, 1, 40 },
        { "heads of odd width", 3, 3, 7, 2, 37 },
        { "heads of 10", 2, 1, 10, 1, 20 },
        { "a prompt", 2, 1, 64, 18, 33 },
        { "a prompt of wide heads", 1, 1, 96, 10, 10 },
        { "a prompt of odd heads", 2, 2, 9, 12, 17 },
    };
    static const enum format formats[] = { FORMAT_BF16, FORMAT_CACHE_INT8,
                                           FORMAT_CACHE_FP8, FORMAT_CACHE_INT4 };

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        for (size_t f = 0; f < sizeof(formats) / sizeof(*formats); f++) {
            const struct cache_trial *t = &all[i];
            const char *name = format_name(formats[f]);
            size_t n = (size_t)t->keys * t->heads * t->dim;
            bool kept = true, read = true;
            float *x[3];

            for (int k = 0; k < 3; k++)
                x[k] = numbers_new(n, FORMAT_F32, (uint64_t)k + 21);
            for (size_t o = 0; o < norders(); o += 3) {
                bool tiles = t->rows >= 8; /* on tensor cores */

                setenv("EMU_ORDER", orders[o], 1);
                aligned = o % 2 == 0;
                read = read && reads_cache(t, formats[f], (const float **)x, 32);
                aligned = true;
                for (int bits = 16; tiles && bits >= 8; bits -= 8)
                    read = read && reads_cache(t, formats[f], (const float **)x, bits);
                for (size_t c = 0; c < t->dim; c++) /* a head of zeros */
                    x[1][c] = 0;
                x[1][n / 2] = 1e30F;
                x[1][n / 3] = 1e-41F;
                kept = kept && keeps_cache(t, formats[f], x[1]);
                x[1][n / 4] = NAN;
                x[1][n / 5] = -INFINITY;
                kept = kept && keeps_cache(t, formats[f], x[1]);
                x[1][n / 4] = x[1][n / 5] = 1;
            }
            aligned = false;
            tap_ok(kept, "a cache of %s gets the CPU's bytes: %s", name, t->name);
            tap_ok(read, "attention reads it as its numbers in f32");
            for (int k = 0; k < 3; k++)
                free(x[k]);
        }
}

/* ---- fragments ---- */

/* Row and column of element I (not word) of LANE, as the PTX ISA prints them ("Matrix
 * Fragments for mma.m16n8k16 with floating point type", .bf16). */
static void place_a(int lane, int i, int *row, int *col)
{
    *row = (i >= 0 && i < 2) || (i >= 4 && i < 6) ? lane >> 2 : (lane >> 2) + 8;
    *col = i < 4 ? lane % 4 * 2 + (i & 1) : lane % 4 * 2 + (i & 1) + 8;
}

static void place_b(int lane, int i, int *row, int *col)
{
    *row = i < 2 ? lane % 4 * 2 + (i & 1) : lane % 4 * 2 + (i & 1) + 8;
    *col = lane >> 2;
}

static void place_d(int lane, int i, int *row, int *col)
{
    *row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
    *col = lane % 4 * 2 + (i & 1);
}

static uint16_t bf16_of(int v)
{
    return dtype_f32_to_bf16((float)v);
}

/* Whole numbers whose products and sums f32 has exactly, all different. */
static void try_fragments(void)
{
    enum { LANES = 32 };
    int a[16][16], b[16][8], row, col;
    float want[16][8], d[LANES * 4], twin[LANES * 4];
    uint16_t a_word[LANES * 8], b_word[LANES * 4], matrices[4 * 64];
    uint32_t plain[LANES * 4], transposed[LANES * 4];
    struct fragments f;
    bool products = true, twins = true, rows = true, columns = true;

    for (int i = 0; i < 256; i++)
        a[i / 16][i % 16] = i * 37 % 256 - 128;
    for (int i = 0; i < 128; i++)
        b[i / 8][i % 8] = i * 29 % 128 - 60;
    for (int i = 0; i < 128; i++) {
        want[i / 8][i % 8] = (float)i;
        for (int k = 0; k < 16; k++)
            want[i / 8][i % 8] += (float)(a[i / 8][k] * b[k][i % 8]);
    }
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 8; i++) {
            place_a(lane, i, &row, &col);
            a_word[lane * 8 + i] = bf16_of(a[row][col]);
        }
        for (int i = 0; i < 4; i++) {
            place_b(lane, i, &row, &col);
            b_word[lane * 4 + i] = bf16_of(b[row][col]);
            place_d(lane, i, &row, &col);
            d[lane * 4 + i] = (float)(row * 8 + col);
        }
    }
    for (int i = 0; i < 4 * 64; i++)
        matrices[i] = (uint16_t)(i + 1);
    owned.n = 0;
    aligned = true;
    memset(twin, 0xff, sizeof(twin));
    memset(plain, 0xff, sizeof(plain));
    f = (struct fragments){ .a = copy_new(a_word, sizeof(a_word), 0),
                            .b = copy_new(b_word, sizeof(b_word), 0),
                            .d = copy_new(d, sizeof(d), 0),
                            .twin = copy_new(twin, sizeof(twin), 0),
                            .matrices = copy_new(matrices, sizeof(matrices), 0),
                            .plain = copy_new(plain, sizeof(plain), 0),
                            .transposed = copy_new(plain, sizeof(plain), 0) };
    fragments_launch(f, gpu->stream);
    check(backend_cuda.copy_out(gpu, d, f.d, sizeof(d), &err) == 0 &&
          backend_cuda.copy_out(gpu, twin, f.twin, sizeof(twin), &err) == 0 &&
          backend_cuda.copy_out(gpu, plain, f.plain, sizeof(plain), &err) == 0 &&
          backend_cuda.copy_out(gpu, transposed, f.transposed, sizeof(transposed),
                                &err) == 0);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 4; i++) {
            const uint16_t *m = &matrices[i * 64];
            int r = lane / 4, c = lane % 4 * 2; /* as ldmatrix is printed */

            place_d(lane, i, &row, &col);
            products = products && d[lane * 4 + i] == want[row][col];
            twins = twins && twin[lane * 4 + i] == want[row][col];
            rows = rows && plain[lane * 4 + i] ==
                               (m[r * 8 + c] | (uint32_t)m[r * 8 + c + 1] << 16);
            columns =
                columns && transposed[lane * 4 + i] ==
                               (m[c * 8 + r] | (uint32_t)m[(c + 1) * 8 + r] << 16);
        }
    tap_ok(products, "a warp's product has its elements where the PTX ISA says");
    tap_ok(twins, "and so has its twin of FMAs");
    tap_ok(rows, "matrices are loaded by rows");
    tap_ok(columns, "and by columns");
    for (size_t i = 0; i < owned.n; i++)
        backend_cuda.release(gpu, owned.v[i]);
    aligned = false;
}

/* ---- what there is no kernel for ---- */

/* May INST run with weights of F32 and a cache of CACHE? */
static bool supports(const struct inst *inst, uint64_t cols, enum format cache)
{
    struct value value[] = { { .cols = cols, .kept = true } };
    const struct program program = { .value = value };
    const struct device_request r = {
        .program = &program, .inst = inst, .weight = FORMAT_F32, .cache = cache
    };
    struct err no = { 0 };

    return backend_supports(&backend_cuda, &r, &no) == 0;
}

static void try_lacks(void)
{
    struct inst inst = { .op = OP_LINEAR, .nsrc = 1, .weight = -1, .weight2 = -1 };
    struct inst fused[2] = {
        { .op = OP_ROPE_KEEP, .parts = 1, .weight = -1, .weight2 = -1 }
    };
    static const enum op wide[] = {
        OP_ATTENTION, OP_STREAM,           OP_RELATE,
        OP_RELATE_XL, OP_GLOBAL_ATTENTION, OP_SIDE_ATTENTION
    };
    bool small = true, large = false;

    tap_ok(supports(&inst, 8, FORMAT_F32), "a product can be run on GPUs");
    inst.tree = 1;
    tap_ok(!supports(&inst, 8, FORMAT_F32), "but not as a tree of sums");
    inst.op = OP_MATMUL;
    tap_ok(!supports(&inst, 8, FORMAT_F32), "nor the other product");
    inst = (struct inst){ .op = OP_ROW_SUM, .nsrc = 1, .weight = -1, .weight2 = -1 };
    inst.norm.tree = 1;
    large |= supports(&inst, 8, FORMAT_F32);
    inst.op = OP_ROW_SQUARES;
    large |= supports(&inst, 8, FORMAT_F32);
    inst.norm.tree = 0;
    tap_ok(!large && supports(&inst, 8, FORMAT_F32), "nor sums of rows");
    for (size_t i = 0; i < sizeof(wide) / sizeof(*wide); i++) {
        inst = (struct inst){ .op = wide[i], .nsrc = 1, .weight = -1, .weight2 = -1 };
        inst.attention.head_dim = inst.attention.value_dim = GPU_VALUE_DIM;
        small &= supports(&inst, 8, FORMAT_F32);
        inst.attention.head_dim++;
        large |= supports(&inst, 8, FORMAT_F32);
    }
    tap_ok(small && !large, "heads have at most as many columns as there is room for");
    inst = (struct inst){ .op = OP_ATTENTION, .nsrc = 1, .weight = -1, .weight2 = -1 };
    tap_ok(supports(&inst, 8, FORMAT_BF16) && supports(&inst, 8, FORMAT_CACHE_INT4) &&
               !supports(&inst, 8, FORMAT_F16),
           "attention reads the formats of caches");
    inst.attention.value_dim = GPU_VALUE_DIM + 1;
    tap_ok(!supports(&inst, 8, FORMAT_F32), "of values that are not too wide, either");
    inst.attention.value_dim = 8;
    inst.attention.drop = 0.1;
    tap_ok(!supports(&inst, 8, FORMAT_F32), "and drops nothing");
    inst = (struct inst){ .op = OP_CHOOSE, .nsrc = 1, .weight = -1, .weight2 = -1 };
    tap_ok(supports(&inst, GPU_EXPERTS, FORMAT_F32) &&
               !supports(&inst, GPU_EXPERTS + 1, FORMAT_F32),
           "experts are as many as there is room for");
    inst = (struct inst){ .op = OP_KEEP, .nsrc = 1, .weight = -1, .weight2 = -1 };
    tap_ok(supports(&inst, 8, FORMAT_F32) && supports(&inst, 8, FORMAT_CACHE_FP8) &&
               !supports(&inst, 8, FORMAT_F16),
           "and are what is appended");
    fused[1] = inst;
    tap_ok(supports(fused, 8, FORMAT_F32) && !supports(fused, 8, FORMAT_BF16),
           "but for rotation and append in one");
    inst.op = OP_ALL_REDUCE;
    tap_ok(supports(&inst, 8, FORMAT_BF16), "a collective needs no kernel");
}

/* ---- arrays ---- */

enum { ARRAY_OPERANDS = 5 }; /* y, x, z and the slots */

/* Sums of squares have one value with 32 bits in each lower part. */
static void carry(uint64_t *sum)
{
    for (int e = 0; e < SQUARES_EXPONENTS; e++) {
        sum[SQUARES_EXPONENTS + e] += sum[e] >> 32;
        sum[e] &= UINT32_MAX;
    }
}

/* Runs OP with N elements on both devices, on copies of the same numbers, and compares
 * all of them. */
static bool array_agrees(enum array_op op, struct array_call c)
{
    enum format format[ARRAY_OPERANDS] = { c.y_format, c.x_format };
    size_t n[ARRAY_OPERANDS], unit[ARRAY_OPERANDS];
    void *mine[ARRAY_OPERANDS], *theirs[ARRAY_OPERANDS];
    struct array_call on = c;
    bool same = true;

    owned.n = 0;
    for (int k = 0; k < ARRAY_OPERANDS; k++) {
        n[k] = k || op != ARRAY_SQUARES ? c.n : SQUARES_WORDS;
        unit[k] = unit_of(format[k]);
        mine[k] = numbers_new(n[k] + 1, format[k], (uint64_t)k + 3);
        if (unit[k] == 8)
            memset(mine[k], 1, n[k] * unit[k]);
        for (size_t i = 0; k == 4 && i < n[k]; i++) /* averages of squares */
            ((float *)mine[k])[i] = fabsf(((float *)mine[k])[i]);
        theirs[k] = copy_new(mine[k], n[k] * unit[k], unit[k]);
    }
    c.y = mine[0];
    c.x = mine[1];
    c.z = mine[2];
    on.y = theirs[0];
    on.x = theirs[1];
    on.z = theirs[2];
    for (int k = 0; k < ARRAY_SLOTS; k++) {
        c.slot[k] = mine[3 + k];
        on.slot[k] = theirs[3 + k];
    }
    check(backend_cpu.array[op](cpu, &c, &err) == 0 &&
          backend_cuda.array[op](gpu, &on, &err) == 0);
    for (int k = 0; k < ARRAY_OPERANDS; k++) {
        void *got = xcalloc(n[k] + 1, unit[k]);

        check(backend_cuda.copy_out(gpu, got, theirs[k], n[k] * unit[k], &err) == 0);
        if (unit[k] == 8) {
            carry(got);
            carry(mine[k]);
        }
        same = same && !memcmp(got, mine[k], n[k] * unit[k]);
        free(got);
        free(mine[k]);
    }
    while (owned.n)
        backend_cuda.release(gpu, owned.v[--owned.n]);
    return same;
}

static void try_arrays(void)
{
    static const uint64_t many[] = { 0, 1, 31, 1000, (1 << 16) + 5 };
    static const enum format formats[] = { FORMAT_F32, FORMAT_BF16, FORMAT_F16 };
    const struct adamw_numbers adamw = { 0.7f,  0.999f, 0.1f,  0.99f,
                                         0.01f, 0.1f,   1e-8f, -1e-2f };
    const struct sgd_numbers sgd = { 0.7f, 0.01f, 0.9f, -1e-2f };

    for (int op = 0; op < ARRAY_COUNT; op++) {
        bool same = true;

        if (!backend_cuda.array[op])
            continue;
        for (size_t i = 0; i < sizeof(many) / sizeof(*many); i++) {
            struct array_call c = { .n = many[i],
                                    .y_format =
                                        op == ARRAY_SQUARES ? FORMAT_F64 : FORMAT_F32 };

            if (op == ARRAY_ADAMW)
                c.by.adamw = adamw;
            else
                c.by.sgd = sgd;
            for (int k = 0; k < (op == ARRAY_CAST ? 6 : 1); k++) {
                if (op == ARRAY_CAST) {
                    c.x_format = k % 2 ? FORMAT_F32 : formats[k / 2];
                    c.y_format = k % 2 ? formats[k / 2] : FORMAT_F32;
                }
                same = same && array_agrees((enum array_op)op, c);
            }
        }
        tap_ok(same, "%s of arrays: the CPU's bits", array_names[op]);
    }
}

/* Numbers of a matrix that is cut, with some that are none, infinite, or near it. */
static void try_rounding(void)
{
    enum { N = 70001 };
    struct rounding r = { .n = N,
                          .stream = 24,
                          .step = 11,
                          .key = UINT64_C(0x123456789abcdef),
                          .first = (UINT64_C(1) << 35) + 3,
                          .cols = 77,
                          .stride = 12345,
                          .skip = 5 };
    float *x = numbers_new(N, FORMAT_F32, 5);
    uint16_t *mine = xcalloc(N, sizeof(*mine)), *got = xcalloc(N, sizeof(*got));
    struct rounding on = r;

    x[7] = INFINITY;
    x[8] = NAN;
    x[9] = -FLT_MAX;
    owned.n = 0;
    r.x = x;
    r.y = mine;
    on.x = copy_new(x, N * sizeof(*x), sizeof(*x));
    on.y = copy_new(mine, N * sizeof(*mine), sizeof(*mine));
    check(backend_cpu.round(cpu, &r, &err) == 0 &&
          backend_cuda.round(gpu, &on, &err) == 0 &&
          backend_cuda.copy_out(gpu, got, on.y, N * sizeof(*got), &err) == 0);
    tap_ok(!memcmp(got, mine, N * sizeof(*got)), "stochastic rounding: the CPU's bits");
    while (owned.n)
        backend_cuda.release(gpu, owned.v[--owned.n]);
    free(x);
    free(mine);
    free(got);
}

/* ---- fused operations ---- */

enum { BESIDE_LAYERS = 10 }; /* launches of a step, at most */

/* Launches of a step of one token, after a prompt of two; sets *layers. */
#ifndef GPU_REAL /* the fakes count launches */
static unsigned long launches_of(const char *name, bool unfused, int *layers)
{
    const struct program_options options = { .tail = TAIL_ARGMAX, .wanted = true };
    const struct engine_limits limits = { .tokens = 2, .wanted = 1, .context = 4 };
    const struct runner_machine machine = { .ops = &backend_cuda,
                                            .threads = 1,
                                            .unfused = unfused };
    const struct checkpoint_options plain = { 0 };
    static const int32_t ids[] = { 3, 4, 5 }, last[] = { 1, 0 };
    char *path = str_dupf("%s/tests/data/models/%s", getenv("top_srcdir"), name);
    struct comm *world = comm_self_open();
    unsigned long before = 0, after;
    struct checkpoint *c;
    struct runner r;
    struct mesh mesh;

    mesh_one(&mesh);
    check(checkpoint_open(&c, path, &plain, &err) == 0 &&
          runner_open(&r, c, &mesh, &machine, world, &options, &limits, &err) == 0);
    for (int i = 0; i < 2; i++) {
        struct segment s = { .input = { ids + 2 * i },
                             .n = i ? 1 : 2,
                             .start = i ? 2 : 0,
                             .wanted = &last[i],
                             .nwanted = 1 };

        before = fake_launches();
        check(engine_step(r.engine, &s, 1, &err) == 0);
    }
    after = fake_launches();
    *layers = model_layers(c->model);
    check(runner_finish(&r, 0, &err) == 0);
    runner_close(&r);
    checkpoint_close(c);
    world->ops->close(world);
    free(path);
    return after - before;
}

/* A token of a model has at most MOST launches a layer, and LESS fewer than unfused. */
static void check_launches(const char *name, int most, int less)
{
    int layers, n, m;

    n = (int)launches_of(name, false, &layers);
    m = (int)launches_of(name, true, &layers);
    /* before and after the layers there are as many */
    tap_ok(m - n >= less * layers && n <= most * layers + BESIDE_LAYERS,
           "%s: a token of %d layers has %d launches, and %d unfused", name, layers, n,
           m);
}

#endif

static void try_launches(void)
{
    bool as_said = true;

#ifndef GPU_REAL
    /* one more than on a GPU, whose chunks of keys are larger */
    check_launches("mistral-window", 10, 8);
    check_launches("qwen2-window", 10, 11);
    check_launches("deepseek-v2", 30, 0);
#endif
    for (int op = 0; op < OP_COUNT; op++)
        as_said &= !op_table[op].parts || gpu_fuses((enum op)op, FORMAT_F32) ==
                                              (backend_cuda.kernel[op] != NULL);
    tap_ok(as_said, "CUDA fuses what predictions say");
}

/* Those that are named, or all. */
int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {
        { "elementwise", try_elementwise },
        { "result", try_results },
        { "rows", try_rows },
        { "norm", try_norms },
        { "experts", try_choose },
        { "experts", try_expert_count },
        { "linear", try_expert_products },
        { "elementwise", try_expert_vectors },
        { "sample", try_sample },
        { "linear", try_products },
        { "linear", try_wide_products },
        { "linear", try_wide_columns },
        { "linear", try_product_rows },
        { "parts", try_parts },
        { "parts", try_far_parts },
        { "attention", try_attention },
        { "attention", try_ring },
        { "attention", try_sequences },
        { "codes", try_codes },
        { "caches", try_caches },
        { "stream", try_streams },
        { "relative", try_relate },
        { "longformer", try_globals },
        { "side", try_sides },
        { "beside", try_beside },
        { "states", try_states },
        { "embedding", try_unfolds },
        { "rope", try_rotate },
        { "kv-cache", try_cache },
        { "fragments", try_fragments },
        { "arrays", try_arrays },
        { "rounding", try_rounding },
        { "lacks", try_lacks },
        { "fused", try_launches },
    };

    check(backend_cpu.open(&cpu, 1, 0, &err) == 0 &&
          backend_cuda.open(&gpu, 1, 0, &err) == 0);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        bool wanted = argc < 2;

        for (int k = 1; k < argc; k++)
            wanted = wanted || !strcmp(argv[k], parts[i].name);
        if (wanted)
            parts[i].run();
    }
    backend_cuda.close(gpu);
    backend_cpu.close(cpu);
    return tap_done();
}
