/* linalg - eigenvectors of small symmetric matrices */
#ifndef LIB_SWEEP_SAMPLER_LINALG_H
#define LIB_SWEEP_SAMPLER_LINALG_H

#include <stddef.h>

/* Eigenvalues and orthonormal eigenvectors of the symmetric A[n][n], which is
 * destroyed: VALUES[n], and column i of VECTORS[n][n] belongs to value i.  Not sorted.
 * Cyclic Jacobi rotations (Golub and Van Loan, section 8.5). */
void linalg_eigen(double *values, double *vectors, double *a, size_t n);

#endif
