/* target - the weight files that a conversion writes
 *
 * These are either one shard file per part of a mesh, or the files of the original
 * directory.  The steps: target_init (which part stores what), target_begin (create the
 * files, write headers), cut_copy through the target's side, target_sync. */
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

struct convert_change; /* convert.h */

struct target_file {
    char *name, *path;
    int fd;
    uint64_t size;       /* bytes */
    uint64_t unsynced;   /* bytes written since the kernel was last asked to start
                          * writing */
    uint32_t header_crc; /* of the length word and the header, whose bytes are: */
    size_t header_size;
};

struct target {
    struct checkpoint *from;
    bool cut;                 /* write shard files; else the original's files */
    struct mesh mesh;         /* when cut */
    const struct outdir *out; /* the output directory, once begun */
    const enum dtype *cast; /* [ntensors] new types of real floating tensors, or NULL */
    int nparts;             /* 1 unless cut */
    struct cutter **cutter; /* [nparts], or NULL unless cut */
    bool chosen; /* only the files FIRST to LAST are written (target_choose) */
    int first, last;
    bool *wanted;         /* private: [nparts] for SIDE */
    struct cut_side side; /* for cut_copy of the current tensor */
    size_t n;             /* number of tensors to write: a merge drops training
                           * state */
    size_t tensor;        /* index of the current one, set by the caller */
    enum dtype *dtype;    /* [ntensors] type in the output */
    uint32_t *crc; /* [ntensors * nparts] of what was written; filled by the caller */
    struct target_file *file;
    size_t nfiles;
    int *file_of;                        /* private: [ntensors] unless cut */
    uint64_t *offset;                    /* private: [ntensors * nparts] in the file */
    const struct convert_change *change; /* of what is written; or NULL */
    uint64_t total;                      /* bytes of weights in all */
    uint64_t done;
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* or NULL */
    void *arg;
};

/* Prepares *to for the tensors of FROM: shard files for MESH, or, when MESH is NULL,
 * the files of the original or, if FROM is not sharded, of its safetensors form. ERR_NO
 * when the model cannot be sharded so.  Call target_clear in any case. */
MUST_CHECK int target_init(struct target *to, struct checkpoint *from,
                           const struct mesh *mesh, const enum dtype *cast,
                           struct err *err);
void target_clear(struct target *to);

/* Only the files FIRST to LAST are written, by number: of rank files, those of the
 * ranks.  Call it before target_begin, which fails with ERR_USAGE if there are fewer.
 */
void target_choose(struct target *to, int first, int last);
/* Is file F to be written? */
bool target_wants(const struct target *to, size_t f);

/* Creates the files in OUT, or reopens those of an interrupted run, and writes
 * headers.  OUT NULL: only computes the layout and .total; it can
 * be called again. */
MUST_CHECK int target_begin(struct target *to, const struct outdir *out,
                            struct err *err);
/* Sets sizes and modes of the files and syncs them to disk. */
MUST_CHECK int target_sync(struct target *to, struct err *err);

/* Offset of tensor I of part P in its file; TARGET_NOT_THERE when the part does not
 * store it. */
uint64_t target_place(const struct target *to, size_t i, int p);
struct target_file *target_file(const struct target *to, size_t i, int p);
MUST_CHECK int target_part_bytes(const struct target *to, size_t i, int p,
                                 uint64_t *bytes, bool *held, struct err *err);
/* The CRC-32 of file F, combined from the CRCs of its header and its tensors. */
MUST_CHECK int target_crc(const struct target *to, size_t f, uint32_t *crc,
                          struct err *err);

#endif
