/* rates - what a device with memory of its own can copy and multiply */
#ifndef LIB_RUN_RATES_H
#define LIB_RUN_RATES_H

#include "lib/device/device.h"

/* *memory: bytes a second that copies within the device read and write; *product: FLOPs
 * a second of the backend's own product of bf16 weights, as large as its memory and a
 * few milliseconds allow, up to 8192 rows by 8192 x 8192. */
MUST_CHECK int rates_measure(const struct backend *ops, struct device *d,
                             double *memory, double *product, struct err *err);

#endif
