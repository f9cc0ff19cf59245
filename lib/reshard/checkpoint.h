/* checkpoint - a model and its weights on disk, whole or sharded
 *
 * PATH may be a Hugging Face directory, a checkpoint that tp-shard wrote
 * (checkpoint.json and one shard file per rank), or a single safetensors file, which
 * has tensors but no model.  The same functions serve all three: they list the tensors
 * and read any rank's shard of a tensor for any mesh. */
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

struct adapter;
struct grown;

struct checkpoint {
    char *path;           /* as given, or what that means (locate.h) */
    const char *home;     /* the directory of its small files */
    bool sharded;         /* has a manifest */
    bool drawn;           /* weights will be initialized at random: none is ever
                           * read */
    struct source source; /* unless sharded; the last REPLACED inputs are other
                           * files (checkpoint_replace) */
    size_t replaced;
    struct manifest manifest; /* when sharded */
    struct model *model;      /* bound to the tensors; NULL when there is no config */
    struct mesh mesh;         /* of the shard files; one rank unless sharded */
    struct tensor *tensor; /* global tensors; .file and .offset only unless sharded */
    size_t ntensors;
    size_t nweights; /* tensors [0, nweights) are weights; training state follows */
    long *which;     /* [ntensors] index in model; -1: not in the model, copied whole to
                      * shard 0.  Training state is sharded as its weight */
    bool averaged;   /* weights are their averages (--average) */
    struct grown
        *grown; /* private: rows that the files do not have (grow.h), or NULL */
    struct checkpoint_files *files; /* private: the open files */
    struct adapter *adapter;        /* the adapters of .model (run/adapter.h), borrowed;
                                     * NULL: it has none */
};

struct checkpoint_options {
    bool moments;     /* --moments: an optimizer's, too, of a form that has them */
    bool any_moments; /* those there are, also of the checkpoint of a training */
    bool masters;     /* --masters: and in place of weights its f32 masters of them */
    bool average;    /* --average: in place of weights, the moving averages of them that
                      * the checkpoint of a training has */
    uint64_t vocab;  /* --resize-vocab: tokens that the model shall have (grow.h); 0:
                      * as many as it has */
    bool vocab_zero; /* whose new rows are 0, not the mean of the others */
    const char *family_file; /* --family, or NULL */
    const char *family_path; /* SHARDUTILS_FAMILY_PATH, or NULL */
    const char *config; /* --config, a config.json or its directory, or NULL; not for
                         * a checkpoint that has a manifest */
    bool no_model;      /* tensors only: an unknown family is no error */
    bool draw;          /* weights are not read, and may be missing */
};

/* Checks that PATH exists: ERR_INPUT otherwise.  When PATH looks like a name on the
 * hub, the message says how to download it. */
MUST_CHECK int checkpoint_find(const char *path, struct err *err);

/* Opens PATH, but not the shard files.  OPT may be NULL.  Errors as of the readers, and
 * of model_open and model_bind. */
MUST_CHECK int checkpoint_open(struct checkpoint **out, const char *path,
                               const struct checkpoint_options *opt, struct err *err);
void checkpoint_close(struct checkpoint *c);

/* "weight", or the kind of training state that tensor I is (manifest.h). */
const char *checkpoint_role(const struct checkpoint *c, size_t i);
/* The tensor with the training state of weight I in ROLE (manifest.h), or -1. */
long checkpoint_state(const struct checkpoint *c, size_t i, const char *role);

/* The axis of the model's tensor, from 1, that tensor I, training state, lacks; 0: it
 * has all. */
int checkpoint_lacks(const struct checkpoint *c, size_t i);

/* *sharded becomes true when PATH has a manifest. */
MUST_CHECK int checkpoint_is_sharded(bool *sharded, const char *path, struct err *err);

/* Opens the weight files and checks size, names, types and shapes of shard files
 * against the manifest.  P >= 0: only the file of shard P.  checkpoint_copy and the
 * loader call it.  ERR_INPUT names the file. */
MUST_CHECK int checkpoint_open_files(struct checkpoint *c, int p, struct err *err);

/* ERR_INPUT when an open file of an unsharded source was written to since it was opened
 * first: what was read of it may be of two states.  Shard files have checksums. */
MUST_CHECK int checkpoint_unchanged(const struct checkpoint *c, struct err *err);

/* The type in which loaders read tensor I of C. */
enum dtype checkpoint_dtype(const struct checkpoint *c, size_t i);
/* The permission bits common to all open weight files. */
mode_t checkpoint_mode(const struct checkpoint *c);
/* ERR_USAGE when replacing the output PATH would delete files of C. */
MUST_CHECK int checkpoint_spares(const struct checkpoint *c, const char *path,
                                 struct err *err);

/* From now on tensor I of C is BY, a tensor of the same shape in the file PATH, whose
 * type it has: of a sharded C for loaders alone.  Call it before files are opened for
 * reading. */
MUST_CHECK int checkpoint_replace(struct checkpoint *c, size_t i,
                                  const struct tensor *by, const char *path,
                                  struct err *err);

/* Copies tensor I to TO as DTYPE and checks the CRC-32 of each shard that it reads.
 * WHOLE_CRC, unless NULL, becomes the CRC-32 of the tensor's bytes when the checkpoint
 * is not sharded.  TO_CRC and OVERFLOWS as in cut_copy. */
MUST_CHECK int checkpoint_copy(struct checkpoint *c, struct cut *cut, size_t i,
                               enum dtype dtype, const struct cut_side *to,
                               uint32_t *whole_crc, uint32_t *to_crc,
                               uint64_t *overflows, struct err *err);
/* The same for the wanted parts of TO alone.  SHARE[p] becomes this copy's share
 * (cut.h) in the CRC-32 of the tensor's bytes in part p of C; of a sharded C, whoever
 * wants the first part also joins the manifest's CRC-32, so that sound shares join to
 * 0. */
MUST_CHECK int checkpoint_copy_wanted(struct checkpoint *c, struct cut *cut, size_t i,
                                      enum dtype dtype, const struct cut_side *to,
                                      uint32_t *share, uint32_t *to_crc,
                                      uint64_t *overflows, struct err *err);
/* After tensors of a sharded C were copied: reads the replicas that the copies did not
 * need, and reports each damaged one with file, tensor and cause. */
void checkpoint_check_spared(struct checkpoint *c,
                             void (*finding)(void *arg, const char *text), void *arg);
/* Copies the rows [FIRST, FIRST + ROWS) of tensor I (see cut_tensor) to TO, without
 * checking any CRC-32. */
MUST_CHECK int checkpoint_copy_rows(struct checkpoint *c, struct cut *cut, size_t i,
                                    uint64_t first, uint64_t rows,
                                    const struct cut_side *to, struct err *err);
/* Reads N bytes at OFFSET of the row-major form of tensor I of C, which is not sharded
 * and whose files are open (checkpoint_open_files).  Several threads may call it. */
MUST_CHECK int checkpoint_read(struct checkpoint *c, size_t i, uint64_t offset,
                               void *buf, size_t n, struct err *err);
/* Checks the values of carried tensors that the family knows: ERR_INPUT names a tensor
 * with another value.  Reads shard 0 of a sharded checkpoint. */
MUST_CHECK int checkpoint_check_carried(struct checkpoint *c, struct err *err);
/* The description of tensor I for cut_copy. */
struct cut_tensor checkpoint_cut_tensor(const struct checkpoint *c, size_t i,
                                        enum dtype dtype);

/* A loader reads one rank's shard for any mesh.  When the mesh equals that of the
 * files, it reads only that rank's shard file.  It checks the CRC-32 of every shard
 * that it reads completely. */
struct loader;
MUST_CHECK int loader_open(struct loader **out, struct checkpoint *c,
                           const struct mesh *mesh, const int coord[MESH_NAXES],
                           struct err *err);
void loader_close(struct loader *l);
/* Bytes of the model's tensor T (its .source >= 0) in the rank's shard; 0 when the rank
 * does not store it. */
MUST_CHECK int loader_bytes(struct loader *l, size_t t, uint64_t *bytes,
                            struct err *err);
/* The slice of the whole tensor that the shard has; borrowed from L. */
void loader_slice(struct loader *l, size_t t, struct slice *out);
/* The rank's shard of T, BYTES of it, mapped from the file, valid while the checkpoint
 * is open; NULL if the file has it in another layout or cannot be mapped.  The caller
 * checks its CRC-32 (checkpoint_check_part) if loader_part is not -1. */
const void *loader_map(struct loader *l, size_t t, uint64_t bytes);
/* The checkpoint's shard that is the rank's own; -1 if there is none. */
int loader_part(const struct loader *l);
/* ERR_INPUT if CRC is not the manifest's CRC-32 of tensor T in shard PART. */
MUST_CHECK int checkpoint_check_part(const struct checkpoint *c, size_t t, int part,
                                     uint32_t crc, struct err *err);
/* The name of the file mapped at AT, or NULL.  Safe in a signal handler. */
const char *checkpoint_mapped(const struct checkpoint *c, const void *at);
/* Reads the rank's shard of T into BUF [loader_bytes]. */
MUST_CHECK int loader_read(struct loader *l, size_t t, void *buf, struct err *err);
/* The same for the checkpoint's tensor I, training state of T; as f32 where C is not
 * sharded. */
MUST_CHECK int loader_read_state(struct loader *l, size_t t, size_t i, void *buf,
                                 struct err *err);

#endif
