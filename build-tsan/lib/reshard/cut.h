/* cut - copying a tensor from one set of parts to another
 *
 * A side says how a tensor's elements lie over parts: whole in one part (a Hugging Face
 * file), or cut by a mesh.  The tensor is taken in blocks of a few MiB, in the order of
 * its elements: a block is put together from the parts of the one side and dealt to
 * those of the other, so that neither the tensor nor a part is ever held in memory.
 * Each part's CRC-32 is made on the way. */
#ifndef LIB_RESHARD_CUT_H
#define LIB_RESHARD_CUT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/model/model.h"

/* Move N bytes at OFFSET (within the tensor's bytes in that part) of part PART from or
 * to BUF. */
typedef int cut_io(void *arg, int part, uint64_t offset, void *buf, size_t n,
                   struct err *err);

struct cut_side {
    int nparts;
    struct cutter *const
        *cutter; /* [nparts]; NULL: one part that holds all of every tensor */
    cut_io *io;  /* a source's reads, a target's writes */
    void *arg;
    bool replicas; /* of a source: read those too.  Without them each element is read
                      where it is owned, once */
};

/* The tensor to copy. */
struct cut_tensor {
    const char *name; /* for messages */
    long model;       /* index in the model; -1: carried, whole in part 0 */
    int ndim;
    const uint64_t *shape;
    enum dtype from, to; /* elements are converted when they differ */
    /* Only the rows [first, first + rows) of the first axis (of the elements, where
     * there is one axis or none or it is carried); no CRC-32 is made then.  rows 0:
     * all. */
    uint64_t first, rows;
    /* Unless 0: each element (an int32) is the group of so many rows that its row is
     * in. A part counts the groups that it stores from 0, so that its file stands
     * alone. */
    uint64_t group;
};

struct cut; /* the buffers, for any number of tensors */
struct cut *cut_new(void);
void cut_free(struct cut *c);

/* Bytes of T in part P of SIDE as type DTYPE; *held says whether the part stores it at
 * all.  ERR_INPUT when the part's bytes would not be whole. */
MUST_CHECK int cut_part_bytes(uint64_t *bytes, bool *held, const struct cut_side *side,
                              int p, const struct cut_tensor *t, enum dtype dtype,
                              struct err *err);
/* The shape that part P stores. */
void cut_part_shape(uint64_t *shape, const struct cut_side *side, int p,
                    const struct cut_tensor *t);

/* Copy T.  FROM_CRC[p] and TO_CRC[p] become the CRC-32 of the tensor's bytes in the
 * parts; READ[p] says whether part p of FROM was read (replicas are not).  Any of the
 * three may be NULL. */
MUST_CHECK int cut_copy(struct cut *c, const struct cut_tensor *t,
                        const struct cut_side *from, const struct cut_side *to,
                        uint32_t *from_crc, bool *read, uint32_t *to_crc,
                        uint64_t *overflows, struct err *err);

#endif
