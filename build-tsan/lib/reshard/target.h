/* target - the weight files that a conversion makes
 *
 * Either one rank file for each part of a mesh, or the files of the original directory.
 * A target is prepared (who holds what), then begun (headers written in a directory),
 * then filled through its side by cut_copy, then synced. */
#ifndef LIB_RESHARD_TARGET_H
#define LIB_RESHARD_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/ckpt/outdir.h"
#include "lib/reshard/checkpoint.h"
#include "lib/reshard/cut.h"
#include "lib/model/mesh.h"

#define TARGET_NOT_THERE UINT64_MAX

struct target_file {
    char *name, *path;
    int fd;
    uint64_t size;       /* bytes */
    uint64_t unsynced;   /* bytes written since the disk was last set to work */
    uint32_t header_crc; /* of the length and the header */
};

struct target {
    struct checkpoint *from;
    bool cut;                 /* rank files; else the original's */
    struct mesh mesh;         /* when cut */
    const struct outdir *out; /* where the files are made, once begun */
    const enum dtype *cast;   /* what real floating tensors become, or NULL */
    int nparts;               /* 1 unless cut */
    struct cutter **cutter;   /* [nparts], or NULL unless cut */
    struct cut_side side;     /* to copy the present tensor to */
    size_t tensor;            /* the present one, set by the caller */
    enum dtype *dtype;        /* [ntensors] as stored */
    uint32_t *crc; /* [ntensors * nparts] the caller's: of what was written */
    struct target_file *file;
    size_t nfiles;
    int *file_of;     /* private: [ntensors] unless cut */
    uint64_t *offset; /* private: [ntensors * nparts] in the file */
    uint64_t total;   /* bytes of weights in all, and written so far */
    uint64_t done;
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* or NULL */
    void *arg;
};

/* Prepare *to for the tensors of FROM: for MESH, or (NULL) as FROM's original was,
 * which must then be sharded.  ERR_NO when the model cannot be cut so.  Cleared in any
 * case with target_clear. */
MUST_CHECK int target_init(struct target *to, struct checkpoint *from,
                           const struct mesh *mesh, const enum dtype *cast,
                           struct err *err);
void target_clear(struct target *to);

/* Make the files in OUT (or open them again) and write their headers. */
MUST_CHECK int target_begin(struct target *to, const struct outdir *out,
                            struct err *err);
/* Give the files their sizes and modes and wait until they are on the disk. */
MUST_CHECK int target_sync(struct target *to, struct err *err);

/* Where part P's bytes of tensor I begin in their file; TARGET_NOT_THERE when it holds
 * none. */
uint64_t target_place(const struct target *to, size_t i, int p);
struct target_file *target_file(const struct target *to, size_t i, int p);
MUST_CHECK int target_part_bytes(const struct target *to, size_t i, int p,
                                 uint64_t *bytes, bool *held, struct err *err);
/* The CRC-32 of file F, from those of its header and of its tensors' bytes. */
MUST_CHECK int target_crc(const struct target *to, size_t f, uint32_t *crc,
                          struct err *err);

#endif
