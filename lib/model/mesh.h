/* mesh - the grid of ranks: pipeline x data x expert x sequence x tensor
 *
 * A mesh gives every rank five coordinates.  Tensor varies fastest, so the ranks of one
 * tensor group are neighbours and share a node.  A mesh also says how layers and the
 * vocabulary are split.  It is a plain value: copy it freely, there is nothing to
 * release. */
#ifndef LIB_MODEL_MESH_H
#define LIB_MODEL_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

enum mesh_axis { MESH_TP, MESH_SP, MESH_EP, MESH_DP, MESH_PP, MESH_NAXES };

struct mesh {
    int size[MESH_NAXES]; /* ranks along each axis, each at least 1 */
    int nranks;           /* product of the sizes */
    const int *stages;    /* [pp] layers of each pipeline stage; NULL: split evenly.
                             Borrowed: see the function that set it */
    uint64_t pad_vocab;   /* each rank stores as many vocabulary rows as the others, a
                             multiple of this; 0: no padding */
    bool keep_vocab;      /* every shard file has the full vocabulary.  For files only:
                             tp-run always shards it */
};

extern const char *const mesh_axis_names[MESH_NAXES + 1]; /* "tp" ... and NULL */

/* Sets *m to the mesh of one rank. */
void mesh_one(struct mesh *m);

/* Sets *m from SIZE.  Where SIZE is 0, the size of BASE is used, or 1 if BASE is NULL.
 * The padding comes from BASE, the stages too if pp is the same; keep_vocab is false.
 * ERR_USAGE if a size is above 2^20 or the product above 2^30; *m is untouched then. */
MUST_CHECK int mesh_set(struct mesh *m, const int size[MESH_NAXES],
                        const struct mesh *base, struct err *err);

/* The layers [*first, *first + *count), of NLAYERS, of pipeline stage STAGE. */
void mesh_stage(const struct mesh *m, int nlayers, int stage, int *first, int *count);

/* Overwrites the entries of SIZE that SPEC, such as "tp=4,pp=2", names.  ERR_USAGE for
 * an unknown or repeated axis or a bad number; SIZE is untouched then. */
MUST_CHECK int mesh_parse(int size[MESH_NAXES], const char *spec, struct err *err);

/* Coordinates of RANK, 0 <= RANK < nranks, and the inverse. */
void mesh_coord(const struct mesh *m, int rank, int coord[MESH_NAXES]);
int mesh_rank(const struct mesh *m, const int coord[MESH_NAXES]);

#endif
