/* arrays - operations on flat arrays in device memory
 *
 * Training keeps weights, gradients and the state of an optimizer as flat arrays, which
 * no instruction of a program names: their operations have this table, beside that of
 * instructions (program/op.h).  A row has the operation's ID and the word by which its
 * kernel is called: array_WORD (lib/cpu/arrays.c, lib/gpu/arrays.cu).  What y, x and z
 * are stands above the row; they have .n elements, f32 unless it says another type.
 *
 * An update is one step of an optimizer: y are weights, x their gradients, slot what
 * the optimizer keeps for each weight, .by its numbers (updates.h). */
#ifndef LIB_DEVICE_ARRAYS_H
#define LIB_DEVICE_ARRAYS_H

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/format.h"
#include "lib/device/updates.h"

/* clang-format off */
#define ARRAY_OPS(ROW)                                                                 \
    /* y = 0 */                                                                        \
    ROW(ZERO, zero)                                                                    \
    /* y = x + z; y may be x or z */                                                   \
    ROW(SUM, sum)                                                                      \
    /* y, of y_format, = x, of x_format: f32, bf16 or f16; rounds to nearest even */   \
    ROW(CAST, cast)                                                                    \
    /* y[SQUARES_WORDS], u64, += the squares of x, as integers (see below) */          \
    ROW(SQUARES, squares)                                                              \
    /* y moves towards x: an average of what x was (by.average) */                     \
    ROW(AVERAGE, average)                                                              \
    /* y, the biases of a router, from x, how many rows chose each expert (by.bias) */ \
    ROW(BIAS, bias)                                                                    \
    /* updates: slots m, v; */                                                         \
    ROW(ADAMW, adamw)                                                                  \
    /* none; */                                                                        \
    ROW(SGD, sgd)                                                                      \
    /* the sum of gradients */                                                         \
    ROW(MOMENTUM, momentum)                                                            \
    /* an average of gradients */                                                      \
    ROW(LION, lion)
/* of memory of the host alone: */
#define ARRAY_HOST_OPS(ROW)                                                            \
    /* a product of matrices: y[n / cols][cols] = x[.rows][.inner] z[.inner][cols] */  \
    ROW(PRODUCT, product)
/* clang-format on */

enum array_op {
#define ROW(id, ...) ARRAY_##id,
    ARRAY_OPS(ROW) ARRAY_HOST_OPS(ROW)
#undef ROW
        ARRAY_COUNT
};
enum { ARRAY_SLOTS = 2, ARRAY_UPDATES = ARRAY_ADAMW /* the first update */ };

/* The square of an f32 number is an integer of 48 bits times a power of two that only
 * the number's exponent determines.  Those of exponent E are added as integers: y[E]
 * has the sum of their lower 32 bits, y[SQUARES_EXPONENTS + E] that of the others, so
 * the sum depends neither on the order nor on who adds.  At most 2^32 calls. */
enum { SQUARES_EXPONENTS = 256, SQUARES_WORDS = 2 * SQUARES_EXPONENTS };

struct array_call {
    uint64_t n;
    void *y;
    const void *x, *z;
    enum format y_format, x_format;
    float *slot[ARRAY_SLOTS];
    uint64_t rows, inner; /* of a product */
    union update_numbers by;
};

struct device;
typedef int array_kernel(struct device *d, const struct array_call *c, struct err *err);

extern const char *const array_names[ARRAY_COUNT];

#endif
