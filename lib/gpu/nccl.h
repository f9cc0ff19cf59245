/* nccl - collectives and messages between GPUs of several ranks, by NCCL
 *
 * One communicator per group of ranks.  No call blocks the host: it polls NCCL until an
 * operation is enqueued, and while it waits for the stream it checks that the other
 * ranks are alive.  A failure aborts all communicators of the device, so that nothing
 * in its stream waits for another rank. */
#ifndef LIB_GPU_NCCL_H
#define LIB_GPU_NCCL_H

#include "lib/device/device.h"

extern const struct device_collectives nccl_collectives;

/* Version of the installed library; 0: none, or too old. */
int nccl_version(void);

/* Fails if a rank of D's groups has failed, or D has waited for longer than the limit
 * since START (clock_seconds). */
MUST_CHECK int nccl_watch(struct device *d, double start, struct err *err);
/* Aborts all communicators of D. */
void nccl_abort(struct device *d);
void nccl_close(struct device *d);

#endif
