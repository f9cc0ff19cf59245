/* cut - copies a tensor between two shardings, in bounded memory
 *
 * A side describes how a tensor lies in files: whole in one part (a Hugging Face file),
 * or sharded over the parts of a mesh.  The copy goes through blocks of a few MiB in
 * the order of the tensor's elements: each block is gathered from the source's parts
 * and scattered to the target's parts, so neither the tensor nor a shard is ever in
 * memory as a whole.  The copy also computes each part's CRC-32. */
#ifndef LIB_RESHARD_CUT_H
#define LIB_RESHARD_CUT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/model/model.h"

/* Reads (a source) or writes (a target) N bytes of BUF at OFFSET within the tensor's
 * bytes in part PART. */
typedef int cut_io(void *arg, int part, uint64_t offset, void *buf, size_t n,
                   struct err *err);

struct cut_side {
    int nparts;
    struct cutter *const
        *cutter; /* [nparts]; NULL: one part with all of every tensor */
    cut_io *io;  /* reads for a source, writes for a target */
    void *arg;
    bool replicas; /* of a source: read replicas too.  Otherwise each element is read
                    * once, from its primary replica */
    const bool *wanted; /* of a target: [nparts] the parts to write; NULL: all.  Only
                         * rows that they need are read (see cut_copy) */
};

/* The tensor to copy. */
struct cut_tensor {
    const char *name; /* for messages */
    long model;       /* index in the model; -1: not in the model, stored whole in part
                       * 0 */
    int lacks; /* from 1: the axis of the model's tensor that it has not, as state
                * with one number for each row; 0: it has all */
    int ndim;
    const uint64_t *shape;
    enum dtype from, to; /* elements are converted when these differ */
    /* Copy only the rows [first, first + rows) of the first axis, and compute no
     * CRC-32.  rows 0: all.  For tensors with at most one axis, and those outside the
     * model, a row is an element. */
    uint64_t first, rows;
    /* For index tensors (int32; such as GPTQ's g_idx), else 0: the element of a row is
     * the row's group, and each group has GROUP rows.  A shard numbers its own groups
     * from 0, so that its file is complete in itself. */
    uint64_t group;
};

struct cut; /* buffers, reused for any number of tensors */
struct cut *cut_new(void);
void cut_free(struct cut *c);

/* Bytes of T in part P of SIDE with type DTYPE.  *held: whether the part stores T.
 * ERR_INPUT when the part's elements would not fill whole bytes. */
MUST_CHECK int cut_part_bytes(uint64_t *bytes, bool *held, const struct cut_side *side,
                              int p, const struct cut_tensor *t, enum dtype dtype,
                              struct err *err);
/* The slice of T that part P of SIDE stores; its runs are borrowed. */
void cut_part_slice(struct slice *out, const struct cut_side *side, int p,
                    const struct cut_tensor *t);
/* The shape of T in part P. */
void cut_part_shape(uint64_t *shape, const struct cut_side *side, int p,
                    const struct cut_tensor *t);

/* With TO->wanted, FROM_CRC[p] is a share: of copies whose wanted parts are disjoint
 * and together all, the shares are the CRC-32 when they are joined by exclusive or.  A
 * row counts for the copy that wants the first part with some of it.
 *
 * Copies T.  FROM_CRC[p] and TO_CRC[p] become the CRC-32 of the tensor's bytes in each
 * part; READ[p] says whether part p of FROM was read (replicas may not be).  *OVERFLOWS
 * is increased by the number of finite values that became infinite.  The arrays may be
 * NULL. */
MUST_CHECK int cut_copy(struct cut *c, const struct cut_tensor *t,
                        const struct cut_side *from, const struct cut_side *to,
                        uint32_t *from_crc, bool *read, uint32_t *to_crc,
                        uint64_t *overflows, struct err *err);

#endif
