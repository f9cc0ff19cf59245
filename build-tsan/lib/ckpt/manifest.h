/* manifest - checkpoint.json, which makes a directory of rank files a checkpoint
 *
 * The format is shardutils-checkpoint(5).  A part is one rank file: one point of the
 * axes tp, ep and pp (sp and dp share files), numbered (pp * EP + ep) * TP + tp. */
#ifndef LIB_CKPT_MANIFEST_H
#define LIB_CKPT_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"
#include "lib/ckpt/tensor.h"

/* Version 1 had cut axes segment by segment and unit by unit; version 2 has them in the
 * order of the original. */
enum { MANIFEST_VERSION = 2, MANIFEST_BY_UNIT = 1, MANIFEST_AXES = 5 };

extern const char MANIFEST_NAME[]; /* "checkpoint.json" */

struct manifest_file {
    const char *name;
    uint64_t size; /* bytes */
    uint32_t crc;
    int part; /* -1: a small file, copied as it was */
};

/* A weight file of the source, as a merge gives it back: HEADER is its safetensors
 * header. */
struct manifest_source {
    const char *name;
    uint64_t size;
    uint32_t crc;
    const char *header;
    size_t header_len;
    const char *origin; /* the file of torch.save that it stands for, or NULL */
    uint64_t origin_size;
    uint32_t origin_crc;
};

/* A logical tensor; its bytes come in the order of the source's files and data. */
struct manifest_tensor {
    const char *name;
    const char *role;        /* "weight" */
    const uint64_t *shape;   /* of the whole tensor */
    const char *const *axis; /* [ndim] axis expressions; NULL for a carried tensor */
    const uint32_t *crc;     /* [nparts] of each part's bytes */
    const uint64_t *held;    /* bit p: part p holds some of it */
    enum dtype dtype;        /* as stored */
    int ndim;
};

struct manifest {
    int version;             /* as read; what is written has MANIFEST_VERSION */
    int mesh[MANIFEST_AXES]; /* tp sp ep dp pp */
    int nparts;              /* rank files: tp * ep * pp */
    const int *stages;  /* [pp] layers of each pipeline stage; NULL: dealt evenly */
    uint64_t pad_vocab; /* each rank has a multiple of this of rows; 0: no padding */
    bool keep_vocab;    /* each rank has all of the vocabulary */
    bool cast;          /* types were changed on the way here */
    const char *config; /* text of config.json */
    const char *family; /* the flattened family, JSON text */
    struct manifest_source *source;
    size_t nsources;
    struct manifest_file *file; /* rank files by part, then the small files */
    size_t nfiles;
    struct manifest_tensor *tensor;
    size_t ntensors;
    const uint32_t
        *rank_config; /* [nparts] CRC-32 of the parts' config.json; NULL: none */
    struct pool pool; /* private: holds what manifest_read made */
};

/* The name of part P's file: "rank-tp0-pp0.safetensors", "-ep0" added when ep > 1.
 * A fresh text. */
char *manifest_part_name_dup(const int mesh[MANIFEST_AXES], int p);
/* The directory in which it is a model of its own: "hf-tp0-pp0".  A fresh text. */
char *manifest_config_dir_dup(const int mesh[MANIFEST_AXES], int p);
/* Its coordinates tp, sp, ep, dp, pp, in the mesh's order. */
void manifest_part_coord(const int mesh[MANIFEST_AXES], int p,
                         int coord[MANIFEST_AXES]);
int manifest_nparts(const int mesh[MANIFEST_AXES]);

/* Write *m to the open file FD, synced; PATH is for messages. */
MUST_CHECK int manifest_write(const struct manifest *m, int fd, const char *path,
                              struct err *err);

/* Read PATH.  Malformed text, an unknown version or a wrong checksum is ERR_INPUT.  On
 * failure *m needs no clearing. */
MUST_CHECK int manifest_read(struct manifest *m, const char *path, struct err *err);
MUST_CHECK int manifest_parse(struct manifest *m, const char *path, const char *text,
                              size_t n, struct err *err);
void manifest_clear(struct manifest *m);

static inline bool manifest_holds(const struct manifest_tensor *t, int part)
{
    return t->held[part / 64] >> part % 64 & 1;
}

#endif
