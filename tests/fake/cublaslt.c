/* cublaslt - what lib/gpu uses of cuBLASLt, in the host's memory (cudart.h)
 *
 * Matrices are column-major; a product is put into the stream.  What has no divisor of
 * 16 for a stride in bytes has no algorithm, but for the result, whose stride has the
 * divisor that was promised; and neither have wrong sizes.  In place of
 * the library it is "loaded" unless the environment has FAKE_BLAS=0. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/gpu/cublaslt.h"
#include "tests/fake/cudart.h"

struct desc {
    int32_t a, b, pointers;
};

struct layout {
    int type;
    uint64_t rows, cols;
    int64_t stride;
};

struct product {
    struct desc desc;
    struct layout a, b, d;
    const void *a_at, *b_at;
    float *d_at;
    const float *alpha, *beta; /* where they are, or their copies */
    float own_alpha, own_beta;
};

struct preference {
    uint32_t align[4];
};

static int make(void **out, size_t size)
{
    if (fake_fails())
        return 3;
    *out = calloc(1, size);
    fake_live(1);
    return 0;
}

static int release(void *p)
{
    free(p);
    fake_live(-1);
    return 0;
}

static int create(void **lt)
{
    return make(lt, 1);
}

static int desc_create(void **desc, int compute, int scale)
{
    return compute == LT_COMPUTE_32F && scale == LT_REAL_32F
               ? make(desc, sizeof(struct desc))
               : 7;
}

static int desc_set(void *desc, int attribute, const void *value, size_t size)
{
    struct desc *d = desc;

    if (size != sizeof(int32_t))
        return 7;
    memcpy(attribute == LT_DESC_TRANSA         ? &d->a
           : attribute == LT_DESC_POINTER_MODE ? &d->pointers
                                               : &d->b,
           value, size);
    return 0;
}

static int layout_create(void **layout, int type, uint64_t rows, uint64_t cols,
                         int64_t stride)
{
    if (make(layout, sizeof(struct layout)) != 0)
        return 3;
    *(struct layout *)*layout = (struct layout){ type, rows, cols, stride };
    return 0;
}

static int preference_create(void **pref)
{
    return make(pref, sizeof(struct preference));
}

static int preference_set(void *pref, int attribute, const void *value, size_t size)
{
    struct preference *p = pref;

    if (size != (attribute == LT_PREF_MAX_WORKSPACE ? 8 : 4))
        return 7;
    if (attribute >= LT_PREF_ALIGN_A && attribute < LT_PREF_ALIGN_A + 4)
        memcpy(&p->align[attribute - LT_PREF_ALIGN_A], value, size);
    return 0;
}

static size_t unit(const struct layout *l)
{
    return l->type == LT_REAL_32F ? 4 : 2;
}

static bool fits(const struct desc *desc, const struct layout *a,
                 const struct layout *b, const struct layout *d, uint32_t align)
{
    uint64_t m = desc->a == LT_OP_T ? a->cols : a->rows;
    uint64_t k = desc->a == LT_OP_T ? a->rows : a->cols;

    uint64_t n = desc->b == LT_OP_T ? b->rows : b->cols;

    return m == d->rows && k == (desc->b == LT_OP_T ? b->cols : b->rows) &&
           n == d->cols && a->type == b->type && d->type == LT_REAL_32F &&
           (uint64_t)a->stride >= a->rows && (uint64_t)b->stride >= b->rows &&
           (uint64_t)d->stride >= d->rows && a->stride * (int64_t)unit(a) % 16 == 0 &&
           b->stride * (int64_t)unit(b) % 16 == 0 && d->stride * 4 % align == 0;
}

static int get_heuristic(void *lt, void *desc, void *a, void *b, void *c, void *d,
                         void *pref, int most, struct lt_heuristic *out, int *found)
{
    const struct preference *p = pref;

    (void)lt;
    (void)c;
    if (fake_fails())
        return 15;
    *found = most > 0 && fits(desc, a, b, d, p->align[3]);
    if (!*found)
        return 15;
    *out = (struct lt_heuristic){ .workspace = 1 << 20 };
    out->algo.data[0] = 42;
    out->algo.data[1] = p->align[3];
    return 0;
}

static float of_f16(uint16_t h)
{
    int exponent = h >> 10 & 31;
    float f = (float)(h & 1023) + (exponent ? 1024.0F : 0);

    f = exponent == 31 ? (h & 1023 ? NAN : INFINITY)
                       : ldexpf(f, (exponent ? exponent : 1) - 25);
    return h >> 15 ? -f : f;
}

static float element(const void *p, const struct layout *l, uint64_t row, uint64_t col)
{
    uint64_t i = col * (uint64_t)l->stride + row;
    uint32_t bits;
    float f;

    if (l->type == LT_REAL_32F)
        return ((const float *)p)[i];
    if (l->type == LT_REAL_16F)
        return of_f16(((const uint16_t *)p)[i]);
    bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static void multiply(void *arg)
{
    const struct product *p = arg;
    float alpha = p->alpha ? *p->alpha : p->own_alpha;
    float beta = p->beta ? *p->beta : p->own_beta;
    bool turned = p->desc.b == LT_OP_T;

    for (uint64_t j = 0; j < p->d.cols; j++)
        for (uint64_t i = 0; i < p->d.rows; i++) {
            float *at = p->d_at + j * (uint64_t)p->d.stride + i, sum = 0;

            for (uint64_t k = 0; k < (turned ? p->b.cols : p->b.rows); k++)
                sum += element(p->a_at, &p->a, p->desc.a == LT_OP_T ? k : i,
                               p->desc.a == LT_OP_T ? i : k) *
                       element(p->b_at, &p->b, turned ? j : k, turned ? k : j);
            *at = alpha * sum + (beta != 0 ? beta * *at : 0);
        }
}

static int matmul(void *lt, void *desc, const void *alpha, const void *a,
                  void *a_layout, const void *b, void *b_layout, const void *beta,
                  const void *c, void *c_layout, void *d, void *d_layout,
                  const struct lt_algo *algo, void *workspace, size_t bytes,
                  void *stream)
{
    struct product p = { .desc = *(struct desc *)desc,
                         .a = *(struct layout *)a_layout,
                         .b = *(struct layout *)b_layout,
                         .d = *(struct layout *)d_layout,
                         .a_at = a,
                         .b_at = b,
                         .d_at = d };

    (void)lt;
    if (p.desc.pointers == LT_POINTERS_DEVICE) {
        p.alpha = alpha;
        p.beta = beta;
    } else {
        p.own_alpha = *(const float *)alpha;
        p.own_beta = *(const float *)beta;
    }
    if (fake_fails())
        return 13;
    if (algo->data[0] != 42 || !workspace || bytes != 1 << 20 || c != d ||
        c_layout != d_layout ||
        !fits(&p.desc, &p.a, &p.b, &p.d, (uint32_t)algo->data[1]) ||
        (uintptr_t)a % 16 || (uintptr_t)b % 16 || (uintptr_t)d % algo->data[1])
        return 7;
    fake_count_product();
    fake_enqueue(stream, multiply, &p, sizeof(p));
    return 0;
}

static size_t get_version(void)
{
    return 130002;
}

/* ---- loading ---- */

void *fake_dlopen(const char *name, int flags)
{
    static char library;
    const char *on = getenv("FAKE_BLAS");

    (void)flags;
    if (!strncmp(name, "libnccl", 7))
        return fake_nccl_library(name);
    return !strcmp(name, "libcublasLt.so.13") && (!on || strcmp(on, "0") != 0)
               ? &library
               : NULL;
}

void *fake_dlsym(void *library, const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } all[] = {
        { "cublasLtCreate", (void *)create },
        { "cublasLtDestroy", (void *)release },
        { "cublasLtMatmulDescCreate", (void *)desc_create },
        { "cublasLtMatmulDescDestroy", (void *)release },
        { "cublasLtMatmulDescSetAttribute", (void *)desc_set },
        { "cublasLtMatrixLayoutCreate", (void *)layout_create },
        { "cublasLtMatrixLayoutDestroy", (void *)release },
        { "cublasLtMatmulPreferenceCreate", (void *)preference_create },
        { "cublasLtMatmulPreferenceDestroy", (void *)release },
        { "cublasLtMatmulPreferenceSetAttribute", (void *)preference_set },
        { "cublasLtMatmulAlgoGetHeuristic", (void *)get_heuristic },
        { "cublasLtMatmul", (void *)matmul },
        { "cublasLtGetVersion", (void *)get_version },
    };

    if (library == fake_nccl_library("libnccl.so.2"))
        return fake_nccl_function(name);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (!strcmp(all[i].name, name))
            return all[i].function;
    return NULL;
}

int fake_dlclose(void *library)
{
    (void)library;
    return 0;
}
