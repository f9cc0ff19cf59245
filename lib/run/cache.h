/* cache - the keys and values of one rank's sequences, in blocks
 *
 * What a program keeps lies in slots, one for each OP_KEEP.  The slots of a group are
 * read alike: through the same window, or of the source.  A group has a pool of blocks
 * of some rows, and each sequence a table of the blocks that it has: row I of a slot is
 * row I % block_rows of block table[I / block_rows].  Rows that no later token sees
 * give their blocks back. */
#ifndef LIB_RUN_CACHE_H
#define LIB_RUN_CACHE_H

#include "lib/device/device.h"
#include "lib/run/upload.h"

enum { CACHE_BLOCK = 16 }; /* rows */

/* A group of slots. */
struct cache_group {
    size_t window; /* 0, or as many of the last rows are read at most */
    bool source;   /* rows are of sources */
    size_t most;   /* rows of one sequence at a time */
    size_t blocks; /* of the pool */
    size_t rows;   /* of the pool; the last block may be shorter */
    bool *used;    /* [blocks] */
    struct cache_table {
        int32_t *block;
        size_t n, cap;
        size_t first; /* position of the first row of the first block */
        size_t end;   /* of the row after the last */
        size_t at;    /* offset in the upload of this step */
    } * table;        /* [sequences] */
};

struct cache {
    const struct program *program;
    const struct backend *ops;
    struct device *device;
    size_t sequences;
    struct cache_group *group;
    int ngroups;
    int *group_of;   /* [nslots]; -1: never read */
    uint64_t *cols;  /* [nslots]: of a row on this rank */
    uint64_t *width; /* [nslots]: columns of a head, which share a scale */
    enum dtype dtype;
    void **memory; /* [nslots]: device, [rows], see layout_cached_bytes */
    uint64_t bytes;
};

struct cache_limits {
    size_t tokens, source; /* of one step, and of a sequence's source */
    size_t context;        /* rows of a sequence */
    size_t rows; /* of all together, in whole blocks; 0: of all at their most */
    size_t sequences;
    enum dtype dtype; /* of what is kept: f32, bf16 or i8; 0: f32 */
    bool windows;     /* rows that no token sees any more may be given back */
};

/* Blocks for SEQUENCES of CONTEXT rows, no more than there are in ROWS unless that is
 * 0.
 */
size_t cache_blocks(size_t context, size_t sequences, size_t rows);
/* COLS[slot] are the columns of a row that this rank keeps, in heads of WIDTH[slot].
 * ERR_NO: the device's kernels know no cache of that type. */
MUST_CHECK int cache_open(struct cache *c, const struct program *program,
                          const struct backend *ops, struct device *device,
                          const uint64_t *cols, const uint64_t *width,
                          const struct cache_limits *limits, struct err *err);
void cache_close(struct cache *c);

/* The group of what side SIDE (1: keys, 2: values) of attention INST reads, or -1. */
int cache_side(const struct cache *c, const struct inst *inst, int side);
/* Forget sequence SEQUENCE. */
void cache_reset(struct cache *c, size_t sequence);
/* Make room in group GROUP for the rows [START, START + N) of SEQUENCE, and give back
 * what they do not see.  ERR_SYSTEM when the pool has no block left. */
MUST_CHECK int cache_extend(struct cache *c, int group, size_t sequence, size_t start,
                            size_t n, struct err *err);
/* The table, as kernels read it, into U. */
void cache_upload(struct cache *c, int group, size_t sequence, struct upload *u);

#endif
