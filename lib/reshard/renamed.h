/* renamed - the tensors of another framework under the names of a family
 *
 * A source of a dialect (source.h) has tensors as that framework stores them: fused,
 * stacked, in shards of tensor-parallel ranks.  The family says what of them is which
 * tensor (names.h). */
#ifndef LIB_RESHARD_RENAMED_H
#define LIB_RESHARD_RENAMED_H

#include "lib/base/err.h"
#include "lib/ckpt/source.h"
#include "lib/model/model.h"

/* Replaces the tensors of S, if it has a dialect, by those of M; else strips prefixes
 * that wrappers of a model leave, when and only when all names are M's then, and sets
 * s->stripped.  ERR_INPUT names a stored tensor that is of no use to M, or of a wrong
 * shape. */
MUST_CHECK int renamed_apply(struct source *s, const struct model *m, struct err *err);

#endif
