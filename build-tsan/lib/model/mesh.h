/* mesh - the grid of ranks: pipeline x data x expert x sequence x tensor
 *
 * A mesh names every rank by five coordinates.  Tensor is the fastest-moving
 * axis, so the ranks of one tensor group are neighbours and share a node.
 * A mesh is a plain value: copy it freely, there is nothing to release.  How layers and
 * the vocabulary are dealt on it belongs to it. */
#ifndef LIB_MODEL_MESH_H
#define LIB_MODEL_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

enum mesh_axis { MESH_TP, MESH_SP, MESH_EP, MESH_DP, MESH_PP, MESH_NAXES };

struct mesh {
    int size[MESH_NAXES]; /* ranks along each axis, each at least 1 */
    int nranks;           /* product of the sizes */
    const int *stages;    /* [pp] layers of each pipeline stage; NULL: dealt evenly.
                             Borrowed: lives as long as whoever gave it says */
    uint64_t pad_vocab;   /* each rank's rows of the vocabulary are a multiple of this,
                             the same on every rank; 0: as they fall */
    bool keep_vocab;      /* every part has all of the vocabulary.  Of files only: what
                             runs deals it */
};

extern const char *const mesh_axis_names[MESH_NAXES + 1]; /* "tp" ... and NULL */

/* The mesh of one rank. */
void mesh_one(struct mesh *m);

/* Fill *m from sizes, 0 meaning "not named": the size that BASE has, or 1 when BASE is
 * NULL; so is the padding, and the stages where pp stays; the vocabulary is dealt.  A
 * size above 2^20 or a product above 2^30 is ERR_USAGE; *m untouched then. */
MUST_CHECK int mesh_set(struct mesh *m, const int size[MESH_NAXES],
                        const struct mesh *base, struct err *err);

/* The layers [*first, *first + *count) of NLAYERS that pipeline stage STAGE runs. */
void mesh_stage(const struct mesh *m, int nlayers, int stage, int *first, int *count);

/* Overwrite the entries of SIZE (0 = not named) that SPEC, such as "tp=4,pp=2", names.
 * An unknown or repeated axis or a bad number is ERR_USAGE, SIZE untouched. */
MUST_CHECK int mesh_parse(int size[MESH_NAXES], const char *spec, struct err *err);

/* Coordinates of RANK (0 <= rank < nranks), and back. */
void mesh_coord(const struct mesh *m, int rank, int coord[MESH_NAXES]);
int mesh_rank(const struct mesh *m, const int coord[MESH_NAXES]);

#endif
