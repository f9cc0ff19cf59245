/* boxes - a tensor whose elements lie in many ranges of many files
 *
 * Training frameworks store a tensor in pieces: a box of its rows and columns a rank, a
 * range of a flat vector, every n-th row of a fused matrix.  Each is a box of the
 * tensor, under the tensor's shape or another one with as many elements, and lies at
 * fixed strides in one file.  The boxes of a tensor do not overlap and cover it. */
#ifndef LIB_CKPT_BOXES_H
#define LIB_CKPT_BOXES_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"

/* The input of a box that is all of its tensor and is in no file: .made, or zeros. */
enum { BOXES_ZEROS = -1 };

struct box {
    int input;              /* index of its file among the inputs, or BOXES_ZEROS */
    uint64_t offset;        /* of its first element in the file, in bytes */
    const uint64_t *start;  /* [ndim] its first index along each axis */
    const uint64_t *size;   /* [ndim] */
    const uint64_t *stride; /* [ndim] in elements, in the file; NULL: row-major */
    const void *made;       /* its bytes, of BOXES_ZEROS; NULL: zeros */
};

/* The open descriptor of input INPUT and its name for messages; -1 with *err set. */
typedef int boxes_fd(void *arg, int input, const char **name, struct err *err);

struct boxes {
    int ndim;
    const uint64_t *shape; /* [ndim] */
    const struct box *box; /* in the order of their first elements */
    size_t n;
    uint64_t *highest; /* [n] private: largest end of the boxes up to this one */
    /* NULL, or reads as boxes_read does: the numbers are made, by .of, of what lies in
     * the boxes, whose sizes say nothing */
    int (*make)(const struct boxes *b, uint64_t first, uint64_t count, void *buf,
                boxes_fd *fd, void *arg, struct err *err);
    const void *of;
};

/* Sets *out, in POOL, to the N boxes at BOX of a tensor that has the shape SHAPE for
 * them; the arrays that they refer to must live as long.  ERR_INPUT, which names NAME
 * of PATH, when they leave the shape, overlap, or do not cover it. */
MUST_CHECK int boxes_new(const struct boxes **out, struct pool *pool, int ndim,
                         const uint64_t *shape, const struct box *box, size_t n,
                         const char *path, const char *name, struct err *err);

/* Sets *out, in POOL, to the elements of B, of WIDTH bytes, in the range [FIRST,
 * FIRST + COUNT) of the row-major tensor: COUNT / ROW rows of ROW elements, all of one
 * value of the axes before the last two if B has that shape.  Errors as boxes_new. */
MUST_CHECK int boxes_cut(const struct boxes **out, struct pool *pool,
                         const struct boxes *b, size_t width, uint64_t first,
                         uint64_t count, uint64_t row, const char *path,
                         const char *name, struct err *err);

/* Reads the COUNT elements of WIDTH bytes from the FIRST-th on, in row-major order. */
MUST_CHECK int boxes_read(const struct boxes *b, size_t width, uint64_t first,
                          uint64_t count, void *buf, boxes_fd *fd, void *arg,
                          struct err *err);

#endif
