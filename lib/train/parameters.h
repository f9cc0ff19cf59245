/* parameters - the trainable weights of one rank, and their gradients
 *
 * All weights of the program, converted to f32, lie in one block of host memory in the
 * program's order; the gradients lie in another block of the same layout. */
#ifndef LIB_TRAIN_PARAMETERS_H
#define LIB_TRAIN_PARAMETERS_H

#include "lib/comm/comm.h"
#include "lib/device/device.h"
#include "lib/model/model.h"
#include "lib/reshard/checkpoint.h"

struct parameters {
    const struct program *program;
    struct cutter *cutter;    /* the rank's shards, in the program's element order */
    struct matrix *matrix;    /* [program->nweights]: the weights, for the engine */
    size_t *at;               /* [nweights + 1]: offset of each weight in the blocks */
    float *weight, *gradient; /* [at[nweights]] */
    bool *shared; /* [model->ntensors]: on both the first and the last stage (tied) */
};

/* Loads the weights of PROGRAM, which must outlive *p, from C via DEVICE, whose memory
 * is the host's (choice_need.trains).  Weights of a model without files stay
 * uninitialized (see init.h). */
MUST_CHECK int parameters_open(struct parameters *p, struct checkpoint *c,
                               const struct program *program, const struct backend *ops,
                               struct device *device, struct err *err);
void parameters_close(struct parameters *p);

void parameters_zero(struct parameters *p); /* sets the gradients to 0 */
/* All-reduces, over the tensor group C, gradients that are partial sums. */
MUST_CHECK int parameters_sum(struct parameters *p, struct comm *c, struct err *err);

/* Finds the tensors that the first and the last stage of PIPE share.  Call it before
 * parameters_tie: */
MUST_CHECK int parameters_find_shared(struct parameters *p, struct comm *pipe,
                                      struct err *err);
/* Adds up the gradients of shared tensors over the first and the last stage of PIPE. */
MUST_CHECK int parameters_tie(struct parameters *p, struct comm *pipe, struct err *err);

/* Calls SEE for each run of weight I that is contiguous both here and in the global
 * tensor: N elements from HERE and from WHOLE.  OWNED: this rank has the primary
 * replica. */
void parameters_runs(struct parameters *p, int i,
                     void (*see)(void *arg, size_t here, size_t whole, size_t n,
                                 bool owned),
                     void *arg);
/* Number of elements of weight I's global tensor. */
uint64_t parameters_whole(const struct parameters *p, int i);

#endif
