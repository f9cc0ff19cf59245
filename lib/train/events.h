/* events - TensorBoard's event files
 *
 * A file is records of TensorFlow's TFRecord format: u64 bytes, their masked CRC-32C,
 * the bytes, and their masked CRC-32C, all little-endian; each has one message Event of
 * event.proto.  The functions append one record to OUT. */
#ifndef LIB_TRAIN_EVENTS_H
#define LIB_TRAIN_EVENTS_H

#include <stdint.h>

#include "lib/base/str.h"

/* The first record of a file; WALL is seconds since 1970, here and below. */
void events_begin(struct str *out, double wall);
/* What an earlier file has of STEP and later is void. */
void events_restart(struct str *out, double wall, uint64_t step);
void events_scalar(struct str *out, double wall, uint64_t step, const char *tag,
                   double value);

#endif
