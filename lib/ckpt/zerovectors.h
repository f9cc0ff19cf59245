/* zerovectors - the flat vectors in which ZeRO's ranks keep f32 masters and moments
 *
 * Stages 1 and 2: each group of parameters is one vector, of which each rank has a
 * piece.  Stage 3: each rank has a vector of its pieces of all parameters. */
#ifndef LIB_CKPT_ZEROVECTORS_H
#define LIB_CKPT_ZEROVECTORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/ckpt/flatvec.h"
#include "lib/ckpt/pickle.h"
#include "lib/ckpt/source.h"
#include "lib/ckpt/unpickle.h"

/* Masters, and the moments of Adam. */
enum { ZEROVECTORS_MASTERS = 0, ZEROVECTORS_MOST = 3 };
extern const char *const zerovectors_names[ZEROVECTORS_MOST];

struct zerovectors {
    struct source *s;
    const char *dir;      /* of the tag, for messages */
    size_t ranks;         /* files of optimizer states */
    const uint64_t *read; /* bytes of pickles so far */
    int nvectors;         /* 1, or ZEROVECTORS_MOST when moments are read */
    int64_t stage;        /* 0 to 3 */
    enum dtype dtype;     /* of the masters */
    bool typed;           /* .dtype is known */
    struct flatvec *flat[ZEROVECTORS_MOST]; /* [nflat] of the groups, or with stage 3 of
                                             * the ranks */
    size_t nflat;
    uint64_t *padding; /* after each parameter, all groups joined; NULL: none */
    size_t npadding;
    uint64_t steps; /* private: entries of optimizers looked at */
};

/* Adds the vectors of rank I, whose optimizer states are in V, of file PATH, input
 * INPUT; rank 0 comes first, and tells the progress of the training.  ERR_INPUT names
 * the file. */
MUST_CHECK int zerovectors_add_rank(struct zerovectors *z,
                                    const struct pickle_values *v, size_t i,
                                    const char *path, int input, struct err *err);
/* Adds to S->progress the settings of GROUPS, a list, and the updates that these and
 * the optimizer's STATE say; both are of the file V at PATH, and may be NULL.
 * ERR_INPUT for a group that is none. */
MUST_CHECK int zerovectors_progress(struct source *s, const struct pickle_values *v,
                                    const struct pickled *groups,
                                    const struct pickled *state, const char *path,
                                    struct err *err);
/* Releases the vectors; stage and type stay. */
void zerovectors_clear(struct zerovectors *z);

#endif
