/* offload - what an optimizer keeps for weights, in memory of the host
 *
 * The CPU then makes the updates, by the formulas that devices compile, too
 * (updates.h): gradients come down and weights go up, a piece at a time.  Where a
 * device's memory is the host's, nothing moves; the slots are only outside what the
 * backend has allocated. */
#ifndef LIB_TRAIN_OFFLOAD_H
#define LIB_TRAIN_OFFLOAD_H

#include "lib/device/device.h"

struct offloading;

/* For weights and gradients in memory of DEVICE, which OPS opened and which must
 * outlive *out; with THREADS threads. */
MUST_CHECK int offload_open(struct offloading **out, const struct backend *ops,
                            struct device *device, int threads, struct err *err);
void offload_close(struct offloading *o); /* NULL is allowed */
/* The CPU that makes the updates; NULL where the device's memory is the host's. */
struct device *offload_device(const struct offloading *o);
/* N floats of the host, which are 0, for a slot; free() releases them. */
float *offload_slot_new(uint64_t n, struct err *err);
/* Runs OP as the backend would, the slots of C in memory of the host; KEPT: its y is
 * one of them. */
MUST_CHECK int offload_run(struct offloading *o, enum array_op op,
                           const struct array_call *c, bool kept, struct err *err);
/* Adds what it has allocated: "offload". */
void offload_memory(const struct offloading *o, struct ledger *list);

#endif
