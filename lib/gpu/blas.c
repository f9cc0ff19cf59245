/* blas - large products by cuBLASLt, if it is installed */
#include "lib/gpu/blas.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/gpu/back.h"
#include "lib/gpu/cublaslt.h"
#include "lib/gpu/library.h"

enum {
    SHAPES = 256 /* cached choices of algorithms */
};

struct blas {
    void *library, *lt;
#define FUNCTION(name, arguments) int(*name) arguments;
    LT_FUNCTIONS(FUNCTION)
#undef FUNCTION
    void *workspace;
    /* Operands in parts: x of a product, or the left one of an outer product, and its
     * right one. */
    struct operand {
        char *memory; /* device: GPU_BLAS_FACTORS bytes, then one or two parts */
        uint64_t room;
        /* whose parts they are, as long as nothing has been written there; x NULL:
         * none */
        const void *x;
        uint64_t rows, cols, parts;
        enum format format;
    } of[BLAS_OPERANDS];
    /* the algorithm of a shape is chosen once */
    struct shape {
        uint64_t rows, in, out;
        int type;
        uint32_t align; /* of y */
        enum blas_kind { BLAS_LINEAR, BLAS_PLAIN, BLAS_OUTER } kind;
        bool none;
        struct lt_algo algo;
        size_t workspace;
    } shape[SHAPES];
    int nshapes; /* chosen so far */
};

static void *load(void)
{
    static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12",
                                         NULL };

    return library_open(names);
}

size_t blas_version(void)
{
    void *library = load();
    size_t (*get)(void) = NULL, version;

    if (!library)
        return 0;
    *(void **)&get = dlsym(library, "cublasLtGetVersion");
    version = get ? get() : 0;
    dlclose(library);
    return version;
}

struct blas *blas_open(void)
{
    void *library = load();
    struct blas *b;
    bool all = true;

    if (!library)
        return NULL;
    b = xcalloc(1, sizeof(*b));
    b->library = library;
#define FUNCTION(name, arguments)               \
    *(void **)&b->name = dlsym(library, #name); \
    all = all && b->name;
    LT_FUNCTIONS(FUNCTION)
#undef FUNCTION
    if (!all || b->cublasLtCreate(&b->lt) != 0) {
        b->lt = NULL;
        blas_close(b);
        return NULL;
    }
    return b;
}

void blas_close(struct blas *b)
{
    if (!b)
        return;
    if (b->lt)
        b->cublasLtDestroy(b->lt);
    cudaFree(b->workspace);
    for (int i = 0; i < BLAS_OPERANDS; i++)
        cudaFree(b->of[i].memory);
    dlclose(b->library);
    free(b);
}

void blas_forget(struct blas *b)
{
    for (int i = 0; b && i < BLAS_OPERANDS; i++)
        b->of[i].x = NULL;
}

void blas_wrote(struct blas *b, const void *at, uint64_t bytes)
{
    for (int i = 0; b && i < BLAS_OPERANDS; i++) {
        struct operand *of = &b->of[i];
        uintptr_t first = (uintptr_t)at, x = (uintptr_t)of->x;

        if (x && first < x + of->rows * of->cols * sizeof(float) && x < first + bytes)
            of->x = NULL;
    }
}

/* ---- one product ---- */

/* A product in cuBLAS' column-major terms: y [out][rows] = op(w) x, x [in][rows]; w is
 * [in][out] and transposed, or [out][in]. */
struct problem {
    void *desc, *w, *x, *y;
};

static void close_problem(struct blas *b, struct problem *q)
{
    if (q->desc)
        b->cublasLtMatmulDescDestroy(q->desc);
    if (q->w)
        b->cublasLtMatrixLayoutDestroy(q->w);
    if (q->x)
        b->cublasLtMatrixLayoutDestroy(q->x);
    if (q->y)
        b->cublasLtMatrixLayoutDestroy(q->y);
}

/* A matrix as it lies: column-major [rows][cols], its columns STRIDE apart. */
struct lt_matrix {
    uint64_t rows, cols, stride;
};

static bool open_problem(struct blas *b, struct problem *q, enum blas_kind kind,
                         int type, struct lt_matrix left, struct lt_matrix right,
                         struct lt_matrix y)
{
    int32_t w = kind == BLAS_LINEAR ? LT_OP_T : LT_OP_N;
    int32_t x = kind == BLAS_OUTER ? LT_OP_T : LT_OP_N, device = LT_POINTERS_DEVICE;

    *q = (struct problem){ 0 };
    return b->cublasLtMatmulDescCreate(&q->desc, LT_COMPUTE_32F, LT_REAL_32F) == 0 &&
           (type != LT_REAL_16F ||
            b->cublasLtMatmulDescSetAttribute(q->desc, LT_DESC_POINTER_MODE, &device,
                                              sizeof(device)) == 0) &&
           b->cublasLtMatmulDescSetAttribute(q->desc, LT_DESC_TRANSA, &w, sizeof(w)) ==
               0 &&
           b->cublasLtMatmulDescSetAttribute(q->desc, LT_DESC_TRANSB, &x, sizeof(x)) ==
               0 &&
           b->cublasLtMatrixLayoutCreate(&q->w, type, left.rows, left.cols,
                                         (int64_t)left.stride) == 0 &&
           b->cublasLtMatrixLayoutCreate(&q->x, type, right.rows, right.cols,
                                         (int64_t)right.stride) == 0 &&
           b->cublasLtMatrixLayoutCreate(&q->y, LT_REAL_32F, y.rows, y.cols,
                                         (int64_t)y.stride) == 0;
}

/* Of y = w x. */
static bool open_product(struct blas *b, struct problem *q, const struct products *p,
                         int type)
{
    const struct lt_matrix w = { p->plain ? p->out : p->in, p->plain ? p->in : p->out,
                                 p->w_stride };

    return open_problem(b, q, p->plain ? BLAS_PLAIN : BLAS_LINEAR, type, w,
                        (struct lt_matrix){ p->in, p->rows.most, p->x_stride },
                        (struct lt_matrix){ p->out, p->rows.most, p->y_stride });
}

/* The largest power of two, up to GPU_BLAS_ALIGN, that divides P and STRIDE. */
static uint32_t align_of(const void *p, uint64_t stride)
{
    uint64_t bits = (uintptr_t)p | stride | GPU_BLAS_ALIGN;

    return (uint32_t)(bits & (~bits + 1));
}

/* Chooses an algorithm.  Parts of a sum may be made by several blocks (split-K) if they
 * are added in the workspace, in a fixed order: with few rows there are too few blocks
 * otherwise. */
static bool choose(struct blas *b, const struct problem *q, struct shape *s)
{
    uint32_t align[] = { GPU_BLAS_ALIGN, GPU_BLAS_ALIGN, s->align, s->align };
    uint32_t reduction = LT_REDUCTION_COMPUTE_TYPE;
    uint64_t room = GPU_BLAS_WORKSPACE;
    struct lt_heuristic h = { .state = -1 };
    void *pref = NULL;
    int found = 0;
    bool fine;

    if (b->cublasLtMatmulPreferenceCreate(&pref) != 0)
        return false;
    fine = b->cublasLtMatmulPreferenceSetAttribute(pref, LT_PREF_MAX_WORKSPACE, &room,
                                                   sizeof(room)) == 0 &&
           b->cublasLtMatmulPreferenceSetAttribute(pref, LT_PREF_REDUCTION_MASK,
                                                   &reduction, sizeof(reduction)) == 0;
    for (int i = 0; i < 4; i++)
        fine = fine && b->cublasLtMatmulPreferenceSetAttribute(
                           pref, LT_PREF_ALIGN_A + i, &align[i], sizeof(*align)) == 0;
    fine = fine &&
           b->cublasLtMatmulAlgoGetHeuristic(b->lt, q->desc, q->w, q->x, q->y, q->y,
                                             pref, 1, &h, &found) == 0 &&
           found && h.state == 0;
    b->cublasLtMatmulPreferenceDestroy(pref);
    s->algo = h.algo;
    s->workspace = h.workspace;
    return fine;
}

/* The cached shape with the sizes, type, alignment and kind of WANT; NULL if cuBLASLt
 * cannot compute it. */
static const struct shape *shape_of(struct blas *b, const struct problem *q,
                                    struct shape want)
{
    struct shape *s;

    for (int i = 0; i < SHAPES && i < b->nshapes; i++) {
        s = &b->shape[i];
        if (s->rows == want.rows && s->in == want.in && s->out == want.out &&
            s->type == want.type && s->kind == want.kind && s->align == want.align)
            return s->none ? NULL : s;
    }
    s = &b->shape[b->nshapes++ % SHAPES]; /* in place of the oldest */
    *s = want;
    s->none = !choose(b, q, s);
    return s->none ? NULL : s;
}

static int reserve_operand(struct device *d, struct blas *b, struct operand *of,
                           uint64_t bytes, struct err *err)
{
    if (bytes <= of->room)
        return 0;
    cudaFree(of->memory);
    blas_forget(b);
    of->room = 0;
    d->rooms++;
    of->memory = backend_cuda.alloc(d, bytes, "a product's rows in 16 bits", err);
    if (!of->memory)
        return -1;
    of->room = bytes;
    return 0;
}

int blas_reserve(struct device *d, struct blas *b, uint64_t workspace,
                 const uint64_t parts[BLAS_OPERANDS], struct err *err)
{
    if (!b)
        return 0;
    if (workspace && !b->workspace) {
        b->workspace =
            backend_cuda.alloc(d, GPU_BLAS_WORKSPACE, "cuBLASLt's work", err);
        if (!b->workspace)
            return -1;
    }
    for (int i = 0; i < BLAS_OPERANDS; i++)
        if (reserve_operand(d, b, &b->of[i], parts[i], err) < 0)
            return -1;
    return 0;
}

void blas_taken(const struct blas *b, uint64_t *workspace,
                uint64_t parts[BLAS_OPERANDS])
{
    *workspace = b && b->workspace ? GPU_BLAS_WORKSPACE : 0;
    for (int i = 0; i < BLAS_OPERANDS; i++)
        parts[i] = b ? b->of[i].room : 0;
}

/* The same in a step, for which the room should have been reserved. */
static int make_room(struct device *d, struct blas *b,
                     const uint64_t parts[BLAS_OPERANDS], struct err *err)
{
    bool enough = b->workspace;

    for (int i = 0; i < BLAS_OPERANDS; i++)
        enough = enough && parts[i] <= b->of[i].room;
    if (enough)
        return 0;
    d->grown++;
    return blas_reserve(d, b, GPU_BLAS_WORKSPACE, parts, err);
}

/* Makes the PARTS parts of x[ROWS][cols], unless they are there: products that follow
 * each other often have the same x. */
static void split(struct device *d, struct operand *of, const void *x, struct span rows,
                  uint64_t cols, uint64_t parts, enum format format)
{
    uint64_t n = rows.most * cols;
    char *high = of->memory + GPU_BLAS_FACTORS, *low = parts > 1 ? high + n * 2 : NULL;

    if (of->x == x && of->rows == rows.most && of->cols == cols && of->parts == parts &&
        of->format == format)
        return;
    if (format == FORMAT_F16)
        gpu_split_f16(high, low, (float *)(void *)of->memory, x, rows, cols, d->stream);
    else
        gpu_split_bf16(high, low, x, n, d->stream);
    of->x = x;
    of->rows = rows.most;
    of->cols = cols;
    of->parts = parts;
    of->format = format;
}

/* Enqueues y = w x, or y += w x if ADD. */
static bool multiply(struct device *d, struct blas *b, const struct problem *q,
                     const struct shape *s, const struct products *p, const void *x,
                     bool add)
{
    static const float one = 1, nothing = 0;
    const float *its = (const float *)(const void *)b->of[0].memory;
    bool scaled = p->format == FORMAT_F16;
    const float *factor = scaled ? its + GPU_FACTOR : &one;
    const float *beta = add      ? scaled ? its + GPU_ONE : &one
                        : scaled ? its + GPU_NOTHING
                                 : &nothing;

    return b->cublasLtMatmul(b->lt, q->desc, factor, p->w[0], q->w, x, q->x, beta, p->y,
                             q->y, p->y, q->y, &s->algo, b->workspace, s->workspace,
                             d->stream) == 0;
}

int blas_product(struct device *d, struct blas *b, const struct products *p,
                 struct err *err)
{
    bool narrow = p->format != FORMAT_F32;
    uint64_t unit = narrow ? 2 : 4, n = p->rows.most * p->in;
    uint64_t parts = gpu_blas_parts(p);
    int type = p->format == FORMAT_BF16  ? LT_REAL_16BF
               : p->format == FORMAT_F16 ? LT_REAL_16F
                                         : LT_REAL_32F;
    const uint64_t bytes[BLAS_OPERANDS] = { gpu_blas_bytes(p) };
    const struct shape *s;
    struct problem q;
    int ret = 0;

    if (!b || !gpu_blas_serves(p) || !gpu_blas_aligned(p->w[0], p->w_stride, unit) ||
        !gpu_blas_aligned(p->x, p->x_stride, unit))
        return 0;
    if (make_room(d, b, bytes, err) < 0)
        return -1;
    s = open_product(b, &q, p, type)
            ? shape_of(
                  b, &q,
                  (struct shape){ .rows = p->rows.most,
                                  .in = p->in,
                                  .out = p->out,
                                  .type = type,
                                  .align = align_of(p->y, p->y_stride * sizeof(*p->y)),
                                  .kind = p->plain ? BLAS_PLAIN : BLAS_LINEAR })
            : NULL;
    if (s && parts) {
        const char *high = b->of[0].memory + GPU_BLAS_FACTORS;

        split(d, &b->of[0], p->x, p->rows, p->in, parts, p->format);
        ret = multiply(d, b, &q, s, p, high, false) &&
                      (parts < 2 || multiply(d, b, &q, s, p, high + n * 2, true))
                  ? 1
                  : -1;
    } else if (s) {
        ret = multiply(d, b, &q, s, p, p->x, false) ? 1 : -1;
    }
    close_problem(b, &q);
    if (ret < 0)
        err_set(err, ERR_SYSTEM,
                "GPU %d: cuBLASLt cannot make a product of %zu x %llu "
                "by %llu",
                d->number, p->rows.most, (unsigned long long)p->in,
                (unsigned long long)p->out);
    return ret;
}

/* In column-major terms y [n][m] += b [n][rows] a [m][rows]^T. */
int blas_outer(struct device *d, struct blas *b, const struct outer *o, struct err *err)
{
    static const float one = 1;
    const int type = o->rounded ? LT_REAL_16BF : LT_REAL_32F;
    const uint64_t unit = o->rounded ? 2 : 4, rows = o->rows.most;
    const uint64_t bytes[BLAS_OPERANDS] = { gpu_blas_outer_bytes(o, o->m),
                                            gpu_blas_outer_bytes(o, o->n) };
    const void *left = o->b, *right = o->a;
    const struct shape *s;
    struct problem q;
    int ret = 0;

    if (!b || !gpu_blas_serves_outer(o) || !gpu_blas_aligned(o->a, o->m, unit) ||
        !gpu_blas_aligned(o->b, o->n, unit))
        return 0;
    if (make_room(d, b, bytes, err) < 0)
        return -1;
    s = open_problem(b, &q, BLAS_OUTER, type, (struct lt_matrix){ o->n, rows, o->n },
                     (struct lt_matrix){ o->m, rows, o->m },
                     (struct lt_matrix){ o->n, o->m, o->n })
            ? shape_of(b, &q,
                       (struct shape){ .rows = rows,
                                       .in = o->m,
                                       .out = o->n,
                                       .type = type,
                                       .align = align_of(o->y, o->n * sizeof(*o->y)),
                                       .kind = BLAS_OUTER })
            : NULL;
    if (s && o->rounded) {
        split(d, &b->of[0], o->a, o->rows, o->m, 1, FORMAT_BF16);
        split(d, &b->of[1], o->b, o->rows, o->n, 1, FORMAT_BF16);
        left = b->of[1].memory + GPU_BLAS_FACTORS;
        right = b->of[0].memory + GPU_BLAS_FACTORS;
    }
    if (s)
        ret = b->cublasLtMatmul(b->lt, q.desc, &one, left, q.w, right, q.x, &one, o->y,
                                q.y, o->y, q.y, &s->algo, b->workspace, s->workspace,
                                d->stream) == 0
                  ? 1
                  : -1;
    close_problem(b, &q);
    if (ret < 0)
        err_set(err, ERR_SYSTEM,
                "GPU %d: cuBLASLt cannot make the gradient of a weight of %llu x %llu",
                d->number, (unsigned long long)o->m, (unsigned long long)o->n);
    return ret;
}
