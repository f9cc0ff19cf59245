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

/* For the tensors of PROGRAM's model; only what a stage's program reads is known there.
 * A "init" or "padding" of the family that is no number is ERR_INPUT. */
MUST_CHECK int init_open(struct init **out, const struct program *program,
                         uint64_t seed, struct err *err);
void init_close(struct init *x);
/* N elements of the model's TENSOR, from WHOLE on. */
void init_fill(const struct init *x, size_t tensor, uint64_t whole, size_t n,
               float *out);

/* All weights of P, whatever they were. */
MUST_CHECK int init_parameters(struct parameters *p, uint64_t seed, struct err *err);

/* Write a Hugging Face directory OUT with the weights of M, in f32, and the small files
 * of the directory FROM: what training begins with.  An OUT that this call has made
 * before is made again. */
MUST_CHECK int init_write(const struct model *m, const char *from, const char *out,
                          uint64_t seed, struct err *err);

#endif
