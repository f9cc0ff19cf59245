/* torchsave - writes archives as torch.save does
 *
 * An archive is a zip file, or a range of a file, with a pickle (pickler.h) and the raw
 * storages of its tensors.  Its layout is known before the storages are: whoever has
 * written storage I to its place sets its checksum and then writes gap I, the bytes
 * before it, and at last gap N, behind all.  Facts: PyTorch 2.13,
 * torch/serialization.py and caffe2/serialize. */
#ifndef LIB_CKPT_TORCHSAVE_H
#define LIB_CKPT_TORCHSAVE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/str.h"

struct torchsave_storage {
    uint64_t bytes;
    uint64_t at;   /* offset in the file */
    uint32_t crc;  /* CRC-32 of the bytes */
    uint64_t head; /* private: offset of its header */
};

struct torchsave {
    struct str pickle;
    struct torchsave_storage *storage; /* [n] */
    size_t n;
    uint64_t offset, length; /* of the archive in its file */
    uint64_t behind;         /* offset of what is behind the storages */
};

/* Appends a storage of BYTES; returns its number. */
size_t torchsave_add(struct torchsave *t, uint64_t bytes);
/* Lays T out at OFFSET of its file; its pickle is complete and its storages are added.
 */
void torchsave_place(struct torchsave *t, uint64_t offset);
/* Sets OUT to gap I; *at is its offset in the file. */
void torchsave_gap(struct str *out, uint64_t *at, const struct torchsave *t, size_t i);
void torchsave_clear(struct torchsave *t);

#endif
