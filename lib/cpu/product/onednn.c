/* onednn - products of matrices in 16 or 8 bits by oneDNN */
#define _GNU_SOURCE /* dladdr */
#include "lib/cpu/product/onednn.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include "config.h"
#include "lib/base/mem.h"
#include "lib/cpu/cpu.h"

#ifdef HAVE_DNNL
#include <dnnl.h>
#endif

/* Version 3 has another interface. */
#if defined(HAVE_DNNL) && DNNL_VERSION_MAJOR == 2
struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t product;
    dnnl_memory_t x, w, y;
};

/* A matrix [ROWS][COLS] with strides of its rows and columns. */
static bool describe(dnnl_memory_desc_t *out, size_t rows, size_t cols, size_t by_row,
                     size_t by_col, dnnl_data_type_t type)
{
    const dnnl_dims_t dims = { (dnnl_dim_t)rows, (dnnl_dim_t)cols };
    const dnnl_dims_t strides = { (dnnl_dim_t)by_row, (dnnl_dim_t)by_col };

    return dnnl_memory_desc_init_by_strides(out, 2, dims, type, strides) ==
           dnnl_success;
}

static bool open_product(struct onednn *p, enum dtype type,
                         const struct onednn_shape *s)
{
    const bool bytes = type == DTYPE_I8;
    dnnl_memory_desc_t x, w, y;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t desc;
    bool ok;

    if (!describe(&x, s->m, s->k, s->x_stride, 1, bytes ? dnnl_u8 : dnnl_bf16) ||
        !describe(&w, s->k, s->n, 1, s->k, bytes ? dnnl_s8 : dnnl_bf16) ||
        !describe(&y, s->m, s->n, s->y_stride, 1, bytes ? dnnl_s32 : dnnl_f32) ||
        dnnl_matmul_desc_init(&matmul, &x, &w, NULL, &y) != dnnl_success ||
        dnnl_engine_create(&p->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags) !=
            dnnl_success ||
        dnnl_primitive_desc_create(&desc, &matmul, NULL, p->engine, NULL) !=
            dnnl_success)
        return false;
    ok = dnnl_primitive_create(&p->product, desc) == dnnl_success &&
         dnnl_memory_create(&p->x, &x, p->engine, DNNL_MEMORY_NONE) == dnnl_success &&
         dnnl_memory_create(&p->w, &w, p->engine, DNNL_MEMORY_NONE) == dnnl_success &&
         dnnl_memory_create(&p->y, &y, p->engine, DNNL_MEMORY_NONE) == dnnl_success;
    dnnl_primitive_desc_destroy(desc);
    return ok;
}

struct onednn *onednn_new(enum dtype type, const struct onednn_shape *shape)
{
    struct onednn *p = xcalloc(1, sizeof(*p));

    if (open_product(p, type, shape))
        return p;
    onednn_free(p);
    return NULL;
}

void onednn_free(struct onednn *p)
{
    if (!p)
        return;
    dnnl_memory_destroy(p->x);
    dnnl_memory_destroy(p->w);
    dnnl_memory_destroy(p->y);
    dnnl_primitive_destroy(p->product);
    dnnl_stream_destroy(p->stream);
    dnnl_engine_destroy(p->engine);
    free(p);
}

bool onednn_run(struct onednn *p, void *y, const void *x, const void *w)
{
    const dnnl_exec_arg_t args[] = { { DNNL_ARG_SRC, p->x },
                                     { DNNL_ARG_WEIGHTS, p->w },
                                     { DNNL_ARG_DST, p->y } };

    return dnnl_memory_set_data_handle(p->x, (void *)(uintptr_t)x) == dnnl_success &&
           dnnl_memory_set_data_handle(p->w, (void *)(uintptr_t)w) == dnnl_success &&
           dnnl_memory_set_data_handle(p->y, y) == dnnl_success &&
           dnnl_primitive_execute(p->product, p->stream, 3, args) == dnnl_success &&
           dnnl_stream_wait(p->stream) == dnnl_success;
}
#else
struct onednn *onednn_new(enum dtype type, const struct onednn_shape *shape)
{
    (void)type;
    (void)shape;
    return NULL;
}

void onednn_free(struct onednn *p)
{
    (void)p;
}

bool onednn_run(struct onednn *p, void *y, const void *x, const void *w)
{
    (void)p;
    (void)y;
    (void)x;
    (void)w;
    return false;
}
#endif

bool cpu_is_dnnl(const void *code)
{
#ifdef HAVE_DNNL
    Dl_info at, library;

    return dladdr(code, &at) && dladdr((void *)(uintptr_t)dnnl_sgemm, &library) &&
           at.dli_fbase == library.dli_fbase;
#else
    (void)code;
    return false;
#endif
}

void cpu_gemm(size_t m, size_t n, size_t k, const float *a, const float *b, float *c)
{
#ifdef HAVE_DNNL
    if (dnnl_sgemm('N', 'T', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, 1.0f, a,
                   (dnnl_dim_t)k, b, (dnnl_dim_t)k, 0.0f, c,
                   (dnnl_dim_t)n) == dnnl_success)
        return;
#endif
    cpu_dots(c, n, a, k, m, b, k, n, k);
}
