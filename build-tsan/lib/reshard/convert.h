/* convert - writing a checkpoint anew: cut, merged, or cut otherwise, in one pass
 *
 * Memory is bounded: a few MiB of buffers, and what is kept of each tensor and part.
 * The output appears whole under its name; an interrupted one is continued by the same
 * call. */
#ifndef LIB_RESHARD_CONVERT_H
#define LIB_RESHARD_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/reshard/checkpoint.h"

struct convert_options {
    const struct mesh *mesh; /* to cut to; NULL: merge to Hugging Face's form */
    const enum dtype *dtype; /* real floating tensors become this, or NULL */
    bool force;              /* replace our own output */
    bool rank_configs;       /* and a directory for each part (rankconfig.h) */
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* bytes; may be NULL */
    void *arg;
};

struct convert_result {
    uint64_t bytes;     /* of weights written */
    uint64_t overflows; /* finite values that became infinite under dtype */
    uint64_t continued; /* bytes that an interrupted run had written */
};

/* Write CKPT to the directory PATH.  ERR_LOCKED when another run is writing it. */
MUST_CHECK int convert(struct checkpoint *ckpt, const char *path,
                       const struct convert_options *opt, struct convert_result *result,
                       struct err *err);

#endif
