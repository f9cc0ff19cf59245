/* blas - large products by cuBLASLt, if it is installed */
#include "lib/gpu/blas.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/gpu/bounds.h"
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
    char *parts; /* device: GPU_BLAS_FACTORS bytes, then x in one or two parts */
    uint64_t room;
    /* whose parts they are, as long as nothing has been written there; x NULL: none */
    struct {
        const void *x;
        uint64_t rows, cols, parts;
        enum format format;
    } of;
    /* the algorithm of a shape is chosen once */
    struct shape {
        uint64_t rows, in, out;
        int type;
        uint32_t align; /* of y */
        bool plain, none;
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
    cudaFree(b->parts);
    dlclose(b->library);
    free(b);
}

void blas_forget(struct blas *b)
{
    if (b)
        b->of.x = NULL;
}

void blas_wrote(struct blas *b, const void *at, uint64_t bytes)
{
    uintptr_t first = (uintptr_t)at, x = b ? (uintptr_t)b->of.x : 0;

    if (x && first < x + b->of.rows * b->of.cols * sizeof(float) && x < first + bytes)
        b->of.x = NULL;
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

static bool open_problem(struct blas *b, struct problem *q, const struct products *p,
                         int type)
{
    int32_t w = p->plain ? LT_OP_N : LT_OP_T, x = LT_OP_N, device = LT_POINTERS_DEVICE;

    *q = (struct problem){ 0 };
    return b->cublasLtMatmulDescCreate(&q->desc, LT_COMPUTE_32F, LT_REAL_32F) == 0 &&
           (type != LT_REAL_16F ||
            b->cublasLtMatmulDescSetAttribute(q->desc, LT_DESC_POINTER_MODE, &device,
                                              sizeof(device)) == 0) &&
           b->cublasLtMatmulDescSetAttribute(q->desc, LT_DESC_TRANSA, &w, sizeof(w)) ==
               0 &&
           b->cublasLtMatmulDescSetAttribute(q->desc, LT_DESC_TRANSB, &x, sizeof(x)) ==
               0 &&
           b->cublasLtMatrixLayoutCreate(&q->w, type, p->plain ? p->out : p->in,
                                         p->plain ? p->in : p->out,
                                         (int64_t)p->w_stride) == 0 &&
           b->cublasLtMatrixLayoutCreate(&q->x, type, p->in, p->rows.most,
                                         (int64_t)p->x_stride) == 0 &&
           b->cublasLtMatrixLayoutCreate(&q->y, LT_REAL_32F, p->out, p->rows.most,
                                         (int64_t)p->y_stride) == 0;
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

/* The cached shape of P; NULL if cuBLASLt cannot compute it. */
static const struct shape *shape_of(struct blas *b, const struct problem *q,
                                    const struct products *p, int type)
{
    uint32_t align = align_of(p->y, p->y_stride * sizeof(*p->y));
    struct shape *s;

    for (int i = 0; i < SHAPES && i < b->nshapes; i++) {
        s = &b->shape[i];
        if (s->rows == p->rows.most && s->in == p->in && s->out == p->out &&
            s->type == type && s->plain == p->plain && s->align == align)
            return s->none ? NULL : s;
    }
    s = &b->shape[b->nshapes++ % SHAPES]; /* in place of the oldest */
    *s = (struct shape){ .rows = p->rows.most,
                         .in = p->in,
                         .out = p->out,
                         .type = type,
                         .align = align,
                         .plain = p->plain };
    s->none = !choose(b, q, s);
    return s->none ? NULL : s;
}

int blas_reserve(struct device *d, struct blas *b, uint64_t workspace, uint64_t parts,
                 struct err *err)
{
    if (!b)
        return 0;
    if (workspace && !b->workspace) {
        b->workspace =
            backend_cuda.alloc(d, GPU_BLAS_WORKSPACE, "cuBLASLt's work", err);
        if (!b->workspace)
            return -1;
    }
    if (parts <= b->room)
        return 0;
    cudaFree(b->parts);
    blas_forget(b);
    b->room = 0;
    d->rooms++;
    b->parts = backend_cuda.alloc(d, parts, "a product's rows in 16 bits", err);
    if (!b->parts)
        return -1;
    b->room = parts;
    return 0;
}

void blas_taken(const struct blas *b, uint64_t *workspace, uint64_t *parts)
{
    *workspace = b && b->workspace ? GPU_BLAS_WORKSPACE : 0;
    *parts = b ? b->room : 0;
}

/* The same in a step, for which the room should have been reserved. */
static int make_room(struct device *d, struct blas *b, uint64_t parts, struct err *err)
{
    if (b->workspace && parts <= b->room)
        return 0;
    d->grown++;
    return blas_reserve(d, b, GPU_BLAS_WORKSPACE, parts, err);
}

/* Makes the parts of P's x, unless they are there; products that follow each other
 * often have the same x. */
static void split(struct device *d, struct blas *b, const struct products *p,
                  uint64_t parts)
{
    uint64_t n = p->rows.most * p->in;
    char *high = b->parts + GPU_BLAS_FACTORS, *low = parts > 1 ? high + n * 2 : NULL;

    if (b->of.x == p->x && b->of.rows == p->rows.most && b->of.cols == p->in &&
        b->of.parts == parts && b->of.format == p->format)
        return;
    if (p->format == FORMAT_F16)
        gpu_split_f16(high, low, (float *)(void *)b->parts, p->x, p->rows, p->in,
                      d->stream);
    else
        gpu_split_bf16(high, low, p->x, n, d->stream);
    b->of.x = p->x;
    b->of.rows = p->rows.most;
    b->of.cols = p->in;
    b->of.parts = parts;
    b->of.format = p->format;
}

/* Enqueues y = w x, or y += w x if ADD. */
static bool multiply(struct device *d, struct blas *b, const struct problem *q,
                     const struct shape *s, const struct products *p, const void *x,
                     bool add)
{
    static const float one = 1, nothing = 0;
    const float *its = (const float *)(const void *)b->parts;
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
    const struct shape *s;
    struct problem q;
    int ret = 0;

    if (!b || !gpu_blas_serves(p) || !gpu_blas_aligned(p->w[0], p->w_stride, unit) ||
        !gpu_blas_aligned(p->x, p->x_stride, unit))
        return 0;
    if (make_room(d, b, gpu_blas_bytes(p), err) < 0)
        return -1;
    s = open_problem(b, &q, p, type) ? shape_of(b, &q, p, type) : NULL;
    if (s && parts) {
        const char *high = b->parts + GPU_BLAS_FACTORS;

        split(d, b, p, parts);
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
