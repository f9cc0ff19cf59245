/* wholes - updates of whole tensors: those of optimizers that have matrices
 *
 * The numbers of a matrix depend on one another, in adafactor those of vectors, too.  A
 * rank of the tensor group has a part of a tensor: sums are made over the group, and
 * Muon gathers the matrix.  Replicas that share deal whole tensors to each other.  It
 * is the CPU that computes, from memory of the host: that of the device, or with the
 * optimizer offloaded. */
#ifndef LIB_TRAIN_WHOLES_H
#define LIB_TRAIN_WHOLES_H

#include "lib/comm/comm.h"
#include "lib/train/optimizer.h"
#include "lib/train/parameters.h"

struct wholes;

/* For P's optimizer, by THREADS threads; collective over TENSOR, the tensor group.
 * *OUT is NULL where it has no matrices.  ERR_NO: P's device has memory of its own, and
 * the optimizer is not offloaded. */
MUST_CHECK int wholes_open(struct wholes **out, struct parameters *p,
                           struct comm *tensor, int threads, struct err *err);
void wholes_close(struct wholes *w); /* NULL is allowed */
/* Does the optimizer update weight I as a whole? */
bool wholes_has(const struct wholes *w, int i);
/* Update T of weight I of P, all of whose numbers this rank has: gradients are
 * multiplied by FACTOR.  Collective over the tensor group.  The gradients are lost. */
MUST_CHECK int wholes_update(struct wholes *w, int i, const struct optimizer_options *o,
                             double rate, uint64_t t, float factor, struct err *err);
/* Matrices of this rank of which other ranks have parts of blocks in codes. */
int wholes_divided(const struct wholes *w);
/* Adds what it has allocated: "optimizer_room". */
void wholes_memory(const struct wholes *w, struct ledger *list);

#endif
