/* foretold - the types of weights that a config.json alone tells of */
#ifndef LIB_ESTIMATE_FORETOLD_H
#define LIB_ESTIMATE_FORETOLD_H

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/model/model.h"

/* If the config of M, of which no file is read, says how its weights are quantized,
 * binds M to the tensors that files would hold, and sets *types to the type of each
 * input, which the caller frees; otherwise *types = NULL.  PLAIN: the type of what is
 * not quantized. */
MUST_CHECK int foretold_types(enum dtype **types, struct model *m, enum dtype plain,
                              struct err *err);

#endif
