/* flatvec - a vector of numbers that lies in runs of several files
 *
 * Data-parallel ranks keep parameters in flat vectors, and store a run of each.  A
 * parameter is a range of one vector, or of every rank's. */
#ifndef LIB_CKPT_FLATVEC_H
#define LIB_CKPT_FLATVEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/pool.h"
#include "lib/ckpt/boxes.h"

struct flatvec {
    struct flatvec_run *run; /* private: in order, without gaps */
    size_t n, cap;
    uint64_t length; /* elements */
};

/* Appends N elements at OFFSET of input INPUT; false if there are too many. */
bool flatvec_append(struct flatvec *f, int input, uint64_t offset, uint64_t n);
void flatvec_clear(struct flatvec *f);

/* Boxes of one axis that are being collected; the caller frees .box. */
struct flatvec_boxes {
    struct box *box;
    size_t n, cap;
};

/* Adds elements [AT, AT + N) of F, of WIDTH bytes, to B, where they are those from
 * FIRST on; numbers are in POOL.  False if F is too short. */
bool flatvec_cut(struct flatvec_boxes *b, struct pool *pool, const struct flatvec *f,
                 size_t width, uint64_t at, uint64_t n, uint64_t first);
/* Adds one box: N elements at OFFSET of input INPUT, which are those from FIRST on. */
void flatvec_add(struct flatvec_boxes *b, struct pool *pool, int input, uint64_t offset,
                 uint64_t n, uint64_t first);

#endif
