/* init - random initial weights, distributed as in the model's reference code
 *
 * The role of a weight in the program determines its distribution: matrices and
 * embedding tables are normal with the family's standard deviation, norm weights are 1,
 * biases are 0.  The family defines exceptions (shardutils-family(5): init, padding,
 * init_std).
 *
 * An element depends only on the seed, its tensor and its index in the global tensor,
 * so all meshes start from identical bits. */
#ifndef LIB_TRAIN_INIT_H
#define LIB_TRAIN_INIT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/train/parameters.h"

struct init;

/* For the weights of PROGRAM, which must outlive *out.  ERR_INPUT when a family's
 * "init" or "padding" is not a number. */
MUST_CHECK int init_open(struct init **out, const struct program *program,
                         uint64_t seed, struct err *err);
void init_close(struct init *x);
/* Writes N elements of program weight I, from index WHOLE of the global tensor. */
void init_fill(const struct init *x, int i, uint64_t whole, size_t n, float *out);

/* Initializes all weights of P. */
MUST_CHECK int init_parameters(struct parameters *p, uint64_t seed, struct err *err);

#endif
