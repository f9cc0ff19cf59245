/* nccl - how GPUs of several ranks exchange values, where NCCL is there
 *
 * A communicator for each group of ranks, none of which ever blocks the host: what NCCL
 * has not begun yet is asked for again, and whoever waits for the stream looks whether
 * the others are still there.  After a failure all communicators of the device are
 * aborted, so that nothing in its stream waits for another rank. */
#ifndef LIB_GPU_NCCL_H
#define LIB_GPU_NCCL_H

#include "lib/device/device.h"

extern const struct device_exchange nccl_exchange;

/* Version of the library that is found; 0: none, or one that is too old. */
int nccl_version(void);

/* Has a rank of D's groups failed, while D has waited since START (clock_seconds)? */
MUST_CHECK int nccl_watch(struct device *d, double start, struct err *err);
/* End all that waits for other ranks. */
void nccl_abort(struct device *d);
void nccl_close(struct device *d);

#endif
