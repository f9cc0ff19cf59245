/* sharing - the optimizer's state that replicas share, for one of them
 *
 * Under ZeRO each replica has ranges of every slot, in stage 3 of the weights, too
 * (parameters.h).  The first replica
 * fetches what it wants of all of it; meanwhile the others serve, until it dismisses
 * them. */
#ifndef LIB_TRAIN_SHARING_H
#define LIB_TRAIN_SHARING_H

#include "lib/train/parameters.h"

/* Do replicas share the state of P? */
bool sharing_applies(const struct parameters *p);
enum { SHARING_WEIGHTS = -1 }; /* in place of a slot, in stage 3 */
/* On the first replica, of C, all that share: copies N elements from AT of slot K
 * (SHARING_WEIGHTS) to BUF, memory of the host, from whoever owns them.  AT counts the
 * trained elements, of a slot the numbers that it has in checkpoints
 * (parameters.stored). */
MUST_CHECK int sharing_fetch(const struct parameters *p, struct comm *c, int k,
                             uint64_t at, float *buf, size_t n, struct err *err);
/* On the others: answers what the first one asks for, until it asks for nothing. */
MUST_CHECK int sharing_serve(const struct parameters *p, struct comm *c,
                             struct err *err);
/* On the first one: no more is asked for. */
MUST_CHECK int sharing_dismiss(struct comm *c, struct err *err);

#endif
