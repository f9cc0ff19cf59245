/* dcp - writes checkpoints of torch.distributed.checkpoint (DCP)
 *
 * A directory has .metadata, a pickle with the type, shape and chunks of every tensor,
 * and files of items.  An item is what torch.save writes for one tensor: a zip archive
 * with a pickle and the raw storage.  Facts: PyTorch 2.13,
 * torch/distributed/checkpoint/{metadata,filesystem}.py and torch/serialization.py. */
#ifndef LIB_CKPT_DCP_H
#define LIB_CKPT_DCP_H

#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/base/str.h"

/* A tensor in the file of items, stored as one chunk. */
struct dcp_item {
    const char *name; /* borrowed */
    enum dtype dtype;
    int ndim;
    const uint64_t *shape;   /* borrowed */
    uint64_t offset, length; /* of its archive in the file */
    uint64_t data, bytes;    /* of its raw storage in the file */
    uint32_t crc;            /* of those bytes */
};

extern const char DCP_METADATA[], DCP_ITEMS[]; /* names of the two files */

/* Lays out ITEM (name, type and shape are set) at OFFSET of the file of items.  ERR_NO
 * when PyTorch lacks its type. */
MUST_CHECK int dcp_item_place(struct dcp_item *item, uint64_t offset, struct err *err);
/* The bytes of the archive before and after the raw storage, whose size and CRC-32 must
 * be set for the tail. */
void dcp_item_head(struct str *out, const struct dcp_item *item);
void dcp_item_tail(struct str *out, const struct dcp_item *item);

/* Writes .metadata for N items to the open file FD; PATH is for messages. */
MUST_CHECK int dcp_metadata_write(int fd, const char *path, const struct dcp_item *item,
                                  size_t n, struct err *err);

#endif
