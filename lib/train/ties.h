/* ties - weights that several stages of a pipeline have and train together
 *
 * Such as an embedding table that is the head's matrix, too, or layers that share their
 * weights, or an adapter of these.  Each stage has them whole, and the gradient of one
 * is the sum over the stages that read it, in their order: the first of them adds up,
 * and sends the sum to the others. */
#ifndef LIB_TRAIN_TIES_H
#define LIB_TRAIN_TIES_H

#include "lib/train/gradients.h"

struct ties {
    struct tie {
        size_t index; /* of a tensor of the model; or, from .ntensors on, an adapter */
        int first, n;
    } * v;
    int n;
    size_t ntensors;
    int *stage; /* [v[n - 1].first + v[n - 1].n]: of each tie its stages, ascending */
};

/* Finds what the STAGES stages of the ranks of PIPE share, and notes it in the N stores
 * P, of this rank's.  Collective over PIPE. */
MUST_CHECK int ties_find(struct ties *t, struct parameters *const *p, int n,
                         struct comm *pipe, int stages, struct err *err);
void ties_close(struct ties *t);
/* Sums the gradients of the N stages G of this rank over all that share them. */
MUST_CHECK int ties_sum(const struct ties *t, struct gradients *const *g, int n,
                        struct err *err);

#endif
