/* scaler - the factor of the loss in a training with --compute f16
 *
 * Gradients below the range of f16 would be 0: the loss, and all gradients with it, are
 * multiplied by a power of two, which the update divides them by (Micikevicius et al.
 * 2018, "Mixed Precision Training", section 3.2).  The rules and numbers are those of
 * torch.amp.GradScaler: an update whose gradients are not finite is skipped and the
 * scale halved; it is doubled after SCALER_INTERVAL updates in turn that were not.
 * Since the scale is a power of two, nothing is rounded by it. */
#ifndef LIB_TRAIN_SCALER_H
#define LIB_TRAIN_SCALER_H

#include <stdbool.h>
#include <stdint.h>

enum { SCALER_FIRST = 65536, SCALER_INTERVAL = 2000 };

struct scaler {          /* part of a checkpoint */
    double scale;        /* 1: nothing is scaled */
    uint64_t good;       /* updates since it last changed */
    uint64_t overflowed; /* steps that were skipped for it, in all */
};

/* After a step: OVERFLOWS if its gradients were not finite. */
void scaler_see(struct scaler *s, bool overflows);

#endif
