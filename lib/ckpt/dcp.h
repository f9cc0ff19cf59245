/* dcp - writes checkpoints of torch.distributed.checkpoint (DCP)
 *
 * A directory has .metadata, a pickle with the type, shape and chunks of every tensor,
 * and files of items.  An item is what torch.save writes for one tensor, or for another
 * object (torchsave.h).  Facts: PyTorch 2.13,
 * torch/distributed/checkpoint/{metadata,filesystem}.py. */
#ifndef LIB_CKPT_DCP_H
#define LIB_CKPT_DCP_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/ckpt/torchsave.h"

/* An item of the file of items: a tensor, stored as one chunk, or, of .object, another
 * value, which .save.pickle is. */
struct dcp_item {
    const char *name;       /* borrowed, as the arrays */
    const char *const *key; /* [nkeys] the path of keys that leads to it, of which "#0"
                             * is the number 0; NULL: its name alone */
    int nkeys;
    bool object;
    enum dtype dtype;
    int ndim;
    const uint64_t *shape;
    struct torchsave save; /* its archive in the file */
};

extern const char DCP_METADATA[], DCP_ITEMS[]; /* names of the two files */

/* Lays out ITEM at OFFSET of the file of items; the caller clears item->save.  ERR_NO
 * when PyTorch lacks its type. */
MUST_CHECK int dcp_item_place(struct dcp_item *item, uint64_t offset, struct err *err);

/* Writes .metadata for N items to the open file FD; PATH is for messages.  PATHS: with
 * the paths of keys, of which Megatron has none. */
MUST_CHECK int dcp_metadata_write(int fd, const char *path, const struct dcp_item *item,
                                  size_t n, bool paths, struct err *err);

#endif
