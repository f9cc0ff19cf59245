/* parameters - the weights of one rank that are trained, and their gradients
 *
 * The weights of a program, in f32 whatever they are stored in, and as many gradients
 * lie in one block each, one weight after the other in the program's order, in memory
 * of the host. */
#ifndef LIB_TRAIN_PARAMETERS_H
#define LIB_TRAIN_PARAMETERS_H

#include "lib/comm/comm.h"
#include "lib/device/device.h"
#include "lib/model/model.h"
#include "lib/reshard/checkpoint.h"

struct parameters {
    const struct program *program;
    struct cutter *cutter;    /* in the order of programs */
    struct matrix *matrix;    /* [program->nweights]: the weights, for the engine */
    size_t *at;               /* [nweights + 1]: where each begins in the blocks */
    float *weight, *gradient; /* [at[nweights]] */
    bool *shared; /* [model->ntensors]: the first and the last stage both have it */
};

/* Load the weights of PROGRAM, which must outlive *p, from C by way of DEVICE; those of
 * a model that is drawn are left as they are (init.h). */
MUST_CHECK int parameters_open(struct parameters *p, struct checkpoint *c,
                               const struct program *program, const struct backend *ops,
                               struct device *device, struct err *err);
void parameters_close(struct parameters *p);

void parameters_zero(struct parameters *p); /* the gradients */
/* Add up over the ranks of the tensor group C the gradients that are terms of a sum. */
MUST_CHECK int parameters_sum(struct parameters *p, struct comm *c, struct err *err);

/* Find what the first and the last stage of PIPE both have; before any of these: */
MUST_CHECK int parameters_find_shared(struct parameters *p, struct comm *pipe,
                                      struct err *err);
/* Add up those of tensors that the first and the last stage of PIPE both have. */
MUST_CHECK int parameters_tie(struct parameters *p, struct comm *pipe, struct err *err);

/* Call SEE for each run of weight I's elements that follow each other here and in the
 * whole tensor: N from HERE and from WHOLE.  OWNED: they count on this rank. */
void parameters_runs(struct parameters *p, int i,
                     void (*see)(void *arg, size_t here, size_t whole, size_t n,
                                 bool owned),
                     void *arg);
/* Elements of weight I's whole tensor. */
uint64_t parameters_whole(const struct parameters *p, int i);

#endif
