/* init - weights drawn at random, as a model's own code draws them
 *
 * What a weight is to the program says how it begins: matrices and tables are normal
 * with the family's standard deviation, norms multiply by 1, what is added is 0.  The
 * family says what is otherwise (shardutils-family(5): init, padding, init_std).
 *
 * An element depends on the seed, on its tensor and on its place in the whole tensor
 * alone, so all meshes begin with the same bits. */
#ifndef LIB_TRAIN_INIT_H
#define LIB_TRAIN_INIT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/train/parameters.h"

struct init;

/* For the weights of PROGRAM, which must outlive *out.  A "init" or "padding" of the
 * family that is no number is ERR_INPUT. */
MUST_CHECK int init_open(struct init **out, const struct program *program,
                         uint64_t seed, struct err *err);
void init_close(struct init *x);
/* N elements of weight I of the program, from WHOLE on in its whole tensor. */
void init_fill(const struct init *x, int i, uint64_t whole, size_t n, float *out);

/* All weights of P, whatever they were. */
MUST_CHECK int init_parameters(struct parameters *p, uint64_t seed, struct err *err);

#endif
