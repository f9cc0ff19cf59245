/* dcp - writing torch.distributed.checkpoint directories
 *
 * A directory has a file .metadata, a pickle that tells of every tensor its type, its
 * shape and where its chunks lie, and files of items, each what torch.save makes of one
 * tensor: a zip archive with a pickle and the raw storage.  Facts: PyTorch 2.13,
 * torch/distributed/checkpoint/{metadata,filesystem}.py and torch/serialization.py. */
#ifndef LIB_CKPT_DCP_H
#define LIB_CKPT_DCP_H

#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/base/str.h"

/* One tensor in the items' file, as one chunk. */
struct dcp_item {
    const char *name; /* borrowed */
    enum dtype dtype;
    int ndim;
    const uint64_t *shape;   /* borrowed */
    uint64_t offset, length; /* of its archive in the file */
    uint64_t data, bytes;    /* of its raw storage in the file */
    uint32_t crc;            /* of those bytes */
};

extern const char DCP_METADATA[], DCP_ITEMS[]; /* the names of the two files */

/* Lay ITEM out (its name, type and shape are given) at OFFSET of the items' file.
 * ERR_NO when PyTorch has no such type. */
MUST_CHECK int dcp_item_place(struct dcp_item *item, uint64_t offset, struct err *err);
/* What goes before the raw storage (to item->offset), and after it: its bytes and their
 * CRC-32 are known by then. */
void dcp_item_head(struct str *out, const struct dcp_item *item);
void dcp_item_tail(struct str *out, const struct dcp_item *item);

/* Write .metadata for N items to the open file FD; PATH is for the message. */
MUST_CHECK int dcp_metadata_write(int fd, const char *path, const struct dcp_item *item,
                                  size_t n, struct err *err);

#endif
