/* zip - locates the uncompressed members of a zip archive
 *
 * PyTorch stores tensors uncompressed in a zip archive (APPNOTE.TXT 6.3, including
 * zip64).  Other members are listed with stored false. */
#ifndef LIB_CKPT_ZIP_H
#define LIB_CKPT_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"

struct zip_member {
    const char *name;
    uint64_t offset; /* of its bytes in the archive */
    uint64_t size;
    uint32_t crc; /* of its uncompressed bytes */
    bool stored;  /* neither compressed nor encrypted */
};

struct zip {
    struct zip_member *member; /* sorted by name */
    size_t n;
    struct pool pool; /* private */
};

/* Reads the directory of the archive in the SIZE bytes at DATA.  PATH is for messages;
 * ERR_INPUT when malformed.  On failure *z needs no clearing. */
MUST_CHECK int zip_read(struct zip *z, const char *path, const unsigned char *data,
                        uint64_t size, struct err *err);
const struct zip_member *zip_find(const struct zip *z, const char *name);
void zip_clear(struct zip *z);

#endif
