/* frozen - which of a model's tensors training does not change */
#ifndef LIB_MODEL_FROZEN_H
#define LIB_MODEL_FROZEN_H

#include "lib/base/err.h"
#include "lib/model/model.h"

/* Is T called NAME, of N bytes: by the family's word for it, its name in files, or such
 * a name from or up to a full stop? */
bool frozen_is_called(const struct model_tensor *t, const char *name, size_t n);
/* Training changes buffers, too, from now on: biases in the choice of experts, which
 * follow their loads. */
void frozen_release_buffers(struct model *m);
/* Freezes those that LIST names, or with IS false all others.  A name, of several with
 * commas between, is the family's word for a tensor, its name in files, or such a name
 * from or up to a full stop: "model.layers.0" is the whole layer, "q_proj" the module
 * in every layer.  ERR_USAGE, with OPTION: no tensor has the name, or none is left. */
MUST_CHECK int frozen_names(struct model *m, const char *option, const char *list,
                            bool is, struct err *err);

#endif
