/* cache - the KV cache of one rank, in blocks
 *
 * Each OP_KEEP has a slot of the cache.  Slots with the same window, or of encoder
 * inputs, form a group.  A group has a pool of blocks of CACHE_BLOCK rows, and each
 * sequence has a block table: row I of a slot is row I % block_rows of block table[I /
 * block_rows].  Blocks with rows that no later token attends to are freed.  Sequences
 * that begin alike can share full blocks, which are never written again. */
#ifndef LIB_RUN_CACHE_H
#define LIB_RUN_CACHE_H

#include "lib/device/device.h"
#include "lib/run/blockpool.h"

enum { CACHE_BLOCK = 16 }; /* rows */

/* Slots with equal windows, or all slots of encoder inputs. */
struct cache_group {
    size_t window; /* maximum number of keys that a row attends to; 0: no limit */
    bool source;   /* rows belong to encoder inputs */
    size_t most;   /* maximum number of blocks of a sequence */
    size_t first;  /* of cache.tables, its entry for sequence 0 */
    size_t rows;   /* in the pool; the last block may be shorter */
    struct blockpool pool;
    struct cache_table {
        int32_t *block;
        size_t n, cap;
        size_t first; /* position of the first row of the first block */
        size_t end;   /* position after the last row */
        size_t known; /* entries that the device has */
    } * table;        /* [sequences] */
};

struct cache {
    const struct program *program;
    const struct backend *ops;
    struct device *device;
    size_t sequences;
    struct cache_group *group;
    int ngroups;
    int32_t *tables; /* device: [groups][sequences][blocks of a sequence at most] */
    int *group_of;   /* [nslots]; -1: never read */
    uint64_t *cols;  /* [nslots]: columns of a row on this rank */
    uint64_t *width; /* [nslots]: columns of a head, which share a scale */
    enum format format;
    void **memory;  /* [nslots]: device, [rows][columns] in FORMAT: format_row_bytes
                     * per row */
    uint64_t *size; /* [nslots]: its bytes */
    uint64_t bytes; /* of all */
};

struct cache_limits {
    size_t tokens, source; /* maximum rows of a step, and of one sequence's encoder
                            * input */
    size_t context;        /* maximum rows of a sequence */
    size_t rows; /* capacity of a pool, a multiple of CACHE_BLOCK; 0: all sequences at
                  * their maximum length */
    size_t sequences;
    size_t texts; /* encoder inputs of the sequences; 0: one each */
    enum format format;
    bool whole;   /* or, if sequences may be cut back by more than a step, do not: */
    bool windows; /* free blocks that have left the attention window */
};

/* Number of blocks for SEQUENCES sequences of at most CONTEXT rows each; at most ROWS /
 * CACHE_BLOCK unless ROWS is 0. */
size_t cache_blocks(size_t context, size_t sequences, size_t rows);
/* A row of slot S has COLS[S] columns on this rank, in heads of WIDTH[S] columns.
 * cache_plan sizes the pools, cache_open allocates them in DEVICE; OPS and DEVICE must
 * outlive C.  ERR_NO: the backend has no kernels for limits->format. */
MUST_CHECK int cache_plan(struct cache *c, const struct program *program,
                          const struct backend *ops, const uint64_t *cols,
                          const uint64_t *width, const struct cache_limits *limits,
                          struct err *err);
MUST_CHECK int cache_open(struct cache *c, struct device *device, struct err *err);
void cache_close(struct cache *c);

/* The group that side SIDE (1: keys, 2: values) of attention INST reads, or -1. */
int cache_side(const struct cache *c, const struct inst *inst, int side);
/* Frees the blocks of SEQUENCE. */
void cache_reset(struct cache *c, size_t sequence);
/* SEQUENCE keeps its first N rows, in all groups, and what it has of its encoder.  What
 * row N - 1 attends to must still be there. */
void cache_truncate(struct cache *c, size_t sequence, size_t n);
/* Sequence TO begins with the first N rows of sequence FROM, and its encoder's: all
 * that FROM has of them, of what has left a window nothing.  Full blocks are shared;
 * the rows after them are copied, so that both sequences can go on. */
MUST_CHECK int cache_share(struct cache *c, size_t to, size_t from, size_t n,
                           struct err *err);
/* The smallest window of a group; 0: there is none. */
size_t cache_window(const struct cache *c);
/* Makes room in GROUP for the rows [START, START + N) of SEQUENCE, and frees blocks
 * that these rows do not attend to.  ERR_SYSTEM when the pool has no free block. */
MUST_CHECK int cache_extend(struct cache *c, int group, size_t sequence, size_t start,
                            size_t n, struct err *err);
/* Blocks that sequences hold, in all groups. */
size_t cache_held(const struct cache *c);
/* Copies to the device what has changed of SEQUENCE's block table, which stays where it
 * is, so that recorded steps find it. */
MUST_CHECK int cache_sync(struct cache *c, int group, size_t sequence, struct err *err);
/* Index in c->tables of the first block of SEQUENCE. */
int32_t cache_table(const struct cache *c, int group, size_t sequence);
uint64_t cache_tables_bytes(const struct cache *c);

#endif
