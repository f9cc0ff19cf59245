/* outer - C += A^T B, by one thread: gradients of weights */
#include "config.h"
#include "lib/cpu/cpu.h"

#ifdef HAVE_DNNL
#include <dnnl.h>
#endif

bool cpu_outer(float *c, size_t ldc, const float *a, size_t lda, size_t m,
               const float *b, size_t ldb, size_t n, size_t rows)
{
#ifdef HAVE_DNNL
    return dnnl_sgemm('T', 'N', (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)rows, 1.0f, a,
                      (dnnl_dim_t)lda, b, (dnnl_dim_t)ldb, 1.0f, c,
                      (dnnl_dim_t)ldc) == dnnl_success;
#else
    for (size_t t = 0; t < rows; t++)
        for (size_t i = 0; i < m; i++)
            for (size_t k = 0; k < n; k++)
                c[i * ldc + k] += a[t * lda + i] * b[t * ldb + k];
    return true;
#endif
}
