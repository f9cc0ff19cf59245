/* checkpoint - a model and its weights on disk, whole or cut
 *
 * What is opened is a Hugging Face directory, a checkpoint that tp-shard made
 * (checkpoint.json and rank files), or a single safetensors file, which has tensors but
 * no model.  All answer the same questions: which tensors, and the bytes of one for any
 * part of any mesh. */
#ifndef LIB_RESHARD_CHECKPOINT_H
#define LIB_RESHARD_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"
#include "lib/ckpt/manifest.h"
#include "lib/ckpt/source.h"
#include "lib/ckpt/tensor.h"
#include "lib/reshard/cut.h"
#include "lib/model/mesh.h"
#include "lib/model/model.h"

struct checkpoint {
    char *path;               /* as given */
    bool sharded;             /* has a manifest */
    bool drawn;               /* its weights are to be drawn: none is ever read */
    struct source source;     /* unless sharded */
    struct manifest manifest; /* when sharded */
    struct model *model;      /* bound to the tensors; NULL when there is no config */
    struct mesh mesh;         /* of the rank files; one rank unless sharded */
    struct tensor *tensor;    /* whole tensors; .file and .offset unless sharded */
    size_t ntensors;
    size_t nweights; /* the first of them; a training's state follows */
    long *which;     /* [ntensors] index in model, -1 for a carried tensor; state is cut
                        as its weight is */
    struct checkpoint_files *files; /* private: what is open */
};

struct checkpoint_options {
    const char *family_file; /* --family, or NULL */
    const char *family_path; /* SHARDUTILS_FAMILY_PATH, or NULL */
    bool no_model;           /* tensors only: unknown families are fine */
    bool draw;               /* weights are not read, and need not be there */
};

/* Set *err for PATH, which does not exist: where it may be a name on the hub, how that
 * is fetched.  Returns -1. */
int checkpoint_missing(const char *path, struct err *err);

/* Open PATH; rank files are not opened yet.  OPT may be NULL.  Errors as of the readers
 * and of model_open and model_bind. */
MUST_CHECK int checkpoint_open(struct checkpoint **out, const char *path,
                               const struct checkpoint_options *opt, struct err *err);
void checkpoint_close(struct checkpoint *c);

/* The tensor that is the state of weight I in ROLE (manifest.h); -1: there is none. */
long checkpoint_state(const struct checkpoint *c, size_t i, const char *role);

/* Does PATH hold a manifest? */
bool checkpoint_is_sharded(const char *path);

/* Open the files of weights and check that rank files are the manifest's: size, names,
 * types, shapes. P >= 0: only part P's.  checkpoint_copy and the loader do it
 * themselves.  ERR_INPUT names the file. */
MUST_CHECK int checkpoint_open_files(struct checkpoint *c, int p, struct err *err);

/* The permission bits that all of its open weight files have. */
mode_t checkpoint_mode(const struct checkpoint *c);
/* ERR_USAGE when an output PATH that replaces what is there would take files of C's
 * with it. */
MUST_CHECK int checkpoint_spares(const struct checkpoint *c, const char *path,
                                 struct err *err);

/* Copy tensor I to TO as DTYPE, checking the CRC-32 of every rank file's part that is
 * read. WHOLE_CRC, unless NULL, becomes the CRC-32 of the tensor's bytes where the
 * checkpoint is not sharded.  TO_CRC and OVERFLOWS as in cut_copy. */
MUST_CHECK int checkpoint_copy(struct checkpoint *c, struct cut *cut, size_t i,
                               enum dtype dtype, const struct cut_side *to,
                               uint32_t *whole_crc, uint32_t *to_crc,
                               uint64_t *overflows, struct err *err);
/* After tensors of a sharded C were copied: read the copies of them that were not
 * needed, and report each that is damaged with FILE, tensor and cause. */
void checkpoint_check_spared(struct checkpoint *c,
                             void (*finding)(void *arg, const char *text), void *arg);
/* Copy the rows [FIRST, FIRST + ROWS) of tensor I (see cut_tensor) to TO, nothing being
 * checked. */
MUST_CHECK int checkpoint_copy_rows(struct checkpoint *c, struct cut *cut, size_t i,
                                    uint64_t first, uint64_t rows,
                                    const struct cut_side *to, struct err *err);
/* Tensor I as cut_copy wants it. */
struct cut_tensor checkpoint_cut_tensor(const struct checkpoint *c, size_t i,
                                        enum dtype dtype);

/* A loader reads what one part of any mesh stores.  When the mesh is the files' own,
 * only that part's file is read.  Every CRC-32 of a rank file that is met is
 * checked. */
struct loader;
MUST_CHECK int loader_open(struct loader **out, struct checkpoint *c,
                           const struct mesh *mesh, const int coord[MESH_NAXES],
                           struct err *err);
void loader_close(struct loader *l);
/* Bytes that the part stores of the model's tensor T (its .source >= 0); 0 when it does
 * not hold it. */
MUST_CHECK int loader_bytes(struct loader *l, size_t t, uint64_t *bytes,
                            struct err *err);
/* Which part of the whole tensor they are; borrowed from L. */
void loader_slice(struct loader *l, size_t t, struct slice *out);
/* They, BYTES of them, where they lie in the file, as long as the checkpoint is open;
 * NULL where they are not there as the part wants them, or the file cannot be mapped.
 * Their CRC-32 is not checked: where loader_part is none less than 0 that is for
 * checkpoint_check_part. */
const void *loader_map(struct loader *l, size_t t, uint64_t bytes);
/* The part of the files that is the loader's own; -1 where there is none, and then no
 * CRC-32 of what is mapped. */
int loader_part(const struct loader *l);
/* ERR_INPUT when CRC is not that which the manifest has of tensor T's bytes in PART. */
MUST_CHECK int checkpoint_check_part(const struct checkpoint *c, size_t t, int part,
                                     uint32_t crc, struct err *err);
/* The name of the file that is mapped at AT, or NULL.  A signal's handler may ask. */
const char *checkpoint_mapped(const struct checkpoint *c, const void *at);
/* Read them to BUF, which has room for loader_bytes. */
MUST_CHECK int loader_read(struct loader *l, size_t t, void *buf, struct err *err);
/* The same of the checkpoint's tensor I, state of T. */
MUST_CHECK int loader_read_state(struct loader *l, size_t t, size_t i, void *buf,
                                 struct err *err);

#endif
