/* decompress - the bytes of a file, decompressed if it begins as gzip or zstd do
 *
 * A file may have several members (gzip) or frames (zstd), which follow each other;
 * zstd's skippable frames are left out. */
#ifndef LIB_TRAIN_DECOMPRESS_H
#define LIB_TRAIN_DECOMPRESS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

struct decompress;

/* FD is read from where it is, and becomes D's; NAME is for messages and stays the
 * caller's. */
MUST_CHECK int decompress_open(struct decompress **d, int fd, const char *name,
                               struct err *err);
void decompress_close(struct decompress *d); /* D may be NULL */
/* Reads at most ROOM (at least 1) bytes; *n is 0 at the end only.  ERR_INPUT:
 * truncated, damaged, or a zstd window of more than 8 MiB. */
MUST_CHECK int decompress_read(struct decompress *d, char *out, size_t room, size_t *n,
                               struct err *err);
/* Bytes of the (compressed) file read so far. */
uint64_t decompress_bytes(const struct decompress *d);

#endif
