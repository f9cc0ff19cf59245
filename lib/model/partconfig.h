/* partconfig - config.json with which one rank's shard opens as a model of its own
 *
 * A family's "part_config" lists config keys and their shapes
 * ("num_attention_heads": "heads").  With the rank's counts under these keys, the
 * config describes the rank's tensors: fewer heads, a narrower FFN.  The member "when"
 * is a condition on the resulting model ("hidden % heads == 0"). */
#ifndef LIB_MODEL_PARTCONFIG_H
#define LIB_MODEL_PARTCONFIG_H

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/model/model.h"

/* Appends CONFIG with the counts of the rank at COORD of MESH; CONFIG itself if neither
 * tp nor ep nor the vocabulary changes shapes.  NAME is its name in messages.  ERR_NO
 * if the family lists no keys, experts are sharded, a count is 0, the family's
 * condition is false, or the tensors of the resulting model have other shapes than the
 * rank's; ERR_USAGE if the vocabulary is sharded. */
MUST_CHECK int partconfig_print(struct str *out, const struct model *m,
                                const char *name, const char *config,
                                const struct mesh *mesh, const int coord[MESH_NAXES],
                                struct err *err);

/* Checks the shapes in "part_config".  ERR_INPUT names the place. */
MUST_CHECK int partconfig_check(const struct model *m, struct err *err);

#endif
