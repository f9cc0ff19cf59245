/* partconfig - the config.json under which a part opens as a model of its own
 *
 * A family's "part_config" names the keys that say how wide the dealt axes are, each
 * with a shape ("num_attention_heads": "heads"); with the part's counts under these
 * keys the architecture is that of the part's tensors: fewer heads, a narrower FFN.
 * The member "when" is a condition on the part's model ("hidden % heads == 0"). */
#ifndef LIB_MODEL_PARTCONFIG_H
#define LIB_MODEL_PARTCONFIG_H

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/model/model.h"

/* Append the text of CONFIG (NAME is for messages) as the part at COORD of MESH needs
 * it: CONFIG itself where only layers are dealt.  ERR_NO when the family names no keys,
 * experts are dealt, the part has nothing under a key, its counts do not meet the
 * family's condition, or its tensors have other shapes than such a model's; ERR_USAGE
 * when the vocabulary is cut. */
MUST_CHECK int partconfig_print(struct str *out, const struct model *m,
                                const char *name, const char *config,
                                const struct mesh *mesh, const int coord[MESH_NAXES],
                                struct err *err);

/* Are the family's shapes sound?  ERR_INPUT names the place. */
MUST_CHECK int partconfig_check(const struct model *m, struct err *err);

#endif
