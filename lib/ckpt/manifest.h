/* manifest - checkpoint.json, the manifest of a sharded checkpoint
 *
 * The format is shardutils-checkpoint(5).  A part is a shard: one point of the axes tp,
 * ep and pp, stored in one file (sp and dp are replicas and share files).  Its number
 * is (pp * EP + ep) * TP + tp. */
#ifndef LIB_CKPT_MANIFEST_H
#define LIB_CKPT_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"
#include "lib/ckpt/tensor.h"

/* In version 1 a sharded axis was stored segment by segment and unit by unit; in
 * version 2 in the order of the original; version 3 says what training state it has. */
enum { MANIFEST_VERSION = 3, MANIFEST_STATELESS = 2, MANIFEST_BY_UNIT = 1 };
enum manifest_axis {
    MANIFEST_TP,
    MANIFEST_SP,
    MANIFEST_EP,
    MANIFEST_DP,
    MANIFEST_PP,
    MANIFEST_AXES
};

extern const char MANIFEST_NAME[];                     /* "checkpoint.json" */
extern const char MANIFEST_FORMAT[];                   /* "shardutils-checkpoint" */
extern const char *const manifest_axes[MANIFEST_AXES]; /* names */

struct manifest_file {
    const char *name;
    uint64_t size; /* bytes */
    uint32_t crc;
    int part; /* shard of the file; -1: a small file, copied unchanged */
};

/* A weight file of the original, for merging; HEADER is its safetensors header. */
struct manifest_source {
    const char *name;
    uint64_t size;
    uint32_t crc;
    const char *header;
    size_t header_len;
    const char *origin; /* the file of torch.save that it replaces, or NULL */
    uint64_t origin_size;
    uint32_t origin_crc;
};

/* A global tensor, in the order of the original's files and data. */
struct manifest_tensor {
    const char *name;
    const char *role;        /* "weight", or the kind of training state; its name is
                              * then the weight's, a full stop and the role */
    const uint64_t *shape;   /* of the global tensor */
    const char *const *axis; /* [ndim] axis expressions; NULL for a tensor that the
                              * family does not use */
    const uint32_t *crc;     /* [nparts] of the tensor's bytes in each shard */
    const uint64_t *held;    /* bit p: shard p stores some of it */
    enum dtype dtype;        /* as stored */
    int ndim;
};

/* Training state: what tensors with this role are, and which of the weight's axes they
 * have. */
enum manifest_kind {
    MANIFEST_MASTER,  /* the weight in f32 */
    MANIFEST_SLOT,    /* the optimizer's */
    MANIFEST_AVERAGE, /* a moving average of the weight */
    MANIFEST_KINDS
};
extern const char *const manifest_kinds[MANIFEST_KINDS]; /* names */
enum manifest_form {
    MANIFEST_LIKE,    /* one number for each of the weight's */
    MANIFEST_ROWS,    /* one for each row: all axes but the last */
    MANIFEST_COLUMNS, /* one for each column: all axes but the last but one */
    MANIFEST_FORMS
};
extern const char *const manifest_forms[MANIFEST_FORMS]; /* names */
struct manifest_state {
    const char *role;
    enum manifest_kind kind;
    enum manifest_form form;
};
/* The axis that state of FORM lacks of a weight with NDIM of them; -1: none, or the
 * weight has no such axis. */
static inline int manifest_lacks(enum manifest_form form, int ndim)
{
    return form == MANIFEST_LIKE || ndim < 2 ? -1
           : form == MANIFEST_ROWS           ? ndim - 1
                                             : ndim - 2;
}

struct manifest {
    int version; /* as read; MANIFEST_VERSION is written if there are states or a base,
                  * else MANIFEST_STATELESS, which older programs read */
    int mesh[MANIFEST_AXES]; /* tp sp ep dp pp */
    int nparts;              /* number of shard files: tp * ep * pp */
    const int *stages;    /* [pp] layers of each pipeline stage; NULL: divided evenly */
    uint64_t pad_vocab;   /* number that divides each rank's rows; 0: no padding */
    bool keep_vocab;      /* each rank has the whole vocabulary */
    bool cast;            /* types differ from the original */
    const char *training; /* JSON text: progress of a training run, or NULL.  The
                           * CRC-32s of the sources are then unknown */
    const char *config;   /* text of config.json */
    const char *family;   /* the family with all that it inherits, JSON text */
    struct manifest_source *source;
    size_t nsources;
    struct manifest_file *file; /* shard files by part, then small files */
    size_t nfiles;
    struct manifest_tensor *tensor;
    size_t ntensors;
    struct manifest_state *state; /* every role but "weight" that a tensor has */
    size_t nstates;
    struct manifest_file *base; /* weight files of the model, which are elsewhere; */
    size_t nbase;               /* 0: the checkpoint has the model's weights */
    const uint32_t
        *rank_config; /* [nparts] CRC-32 of each shard's config.json; NULL: none */
    struct pool pool; /* private: memory of manifest_read */
};

/* The name of shard P's file: "rank-tp0-pp0.safetensors", with "-ep0" when ep > 1.  The
 * caller frees it. */
char *manifest_part_name_dup(const int mesh[MANIFEST_AXES], int p);
/* Its directory as a model of its own: "hf-tp0-pp0".  The caller frees it. */
char *manifest_config_dir_dup(const int mesh[MANIFEST_AXES], int p);
/* Its coordinates along tp, sp, ep, dp, pp. */
void manifest_part_coord(const int mesh[MANIFEST_AXES], int p,
                         int coord[MANIFEST_AXES]);
int manifest_nparts(const int mesh[MANIFEST_AXES]);

/* Writes *m to the open file FD and syncs it; PATH is for messages. */
MUST_CHECK int manifest_write(const struct manifest *m, int fd, const char *path,
                              struct err *err);

/* Reads PATH.  Malformed text, an unknown version or a wrong checksum is ERR_INPUT.  On
 * failure *m needs no clearing. */
MUST_CHECK int manifest_read(struct manifest *m, const char *path, struct err *err);
/* Fills .state from the roles of .tensor.  A role has the kind that KNOWN says, else
 * that of versions 1 and 2: "master" is one, all others are slots. */
MUST_CHECK int manifest_list_states(struct manifest *m,
                                    const struct manifest_state *known, size_t nknown,
                                    const char *path, struct err *err);
MUST_CHECK int manifest_parse(struct manifest *m, const char *path, const char *text,
                              size_t n, struct err *err);
void manifest_clear(struct manifest *m);
/* The form of M's state ROLE; MANIFEST_LIKE if it is none. */
enum manifest_form manifest_form_of(const struct manifest *m, const char *role);

static inline bool manifest_holds(const struct manifest_tensor *t, int part)
{
    return t->held[part / 64] >> part % 64 & 1;
}

#endif
