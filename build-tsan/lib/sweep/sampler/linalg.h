/* linalg - eigenvectors and Cholesky factors of small symmetric matrices */
#ifndef LIB_SWEEP_SAMPLER_LINALG_H
#define LIB_SWEEP_SAMPLER_LINALG_H

#include <stdbool.h>
#include <stddef.h>

/* Eigenvalues and orthonormal eigenvectors of the symmetric A[n][n], which is
 * destroyed: VALUES[n], and column i of VECTORS[n][n] belongs to value i.  Not sorted.
 * Cyclic Jacobi rotations (Golub and Van Loan, section 8.5). */
void linalg_eigen(double *values, double *vectors, double *a, size_t n);

/* Replace the lower triangle of the symmetric A[n][n] by L with A = L L'; the upper one
 * is not touched.  False when A is not positive definite; A is destroyed then. */
bool linalg_cholesky(double *a, size_t n);
/* Solve L x = b, and L' x = b, in place of B[n]; L as linalg_cholesky leaves it. */
void linalg_solve_lower(const double *l, double *b, size_t n);
void linalg_solve_upper(const double *l, double *b, size_t n);
/* OUT[n][n] = (L L')^-1, the lower triangle only. */
void linalg_inverse(double *out, const double *l, size_t n);

#endif
