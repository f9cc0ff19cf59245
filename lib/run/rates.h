/* rates - measured memory bandwidth and matrix throughput of a device */
#ifndef LIB_RUN_RATES_H
#define LIB_RUN_RATES_H

#include "lib/device/device.h"

/* *memory: bytes a second that copies within the device read and write.  *product:
 * FLOPs a second of the backend's matrix product with bf16 weights, before which rows
 * are rounded to bf16 if ROUNDED (struct program); its size grows, as memory and a few
 * milliseconds permit, to 8192 rows by 8192 x 8192. */
MUST_CHECK int rates_measure(const struct backend *ops, struct device *d, bool rounded,
                             double *memory, double *product, struct err *err);

#endif
