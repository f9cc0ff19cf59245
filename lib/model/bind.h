/* bind - tensor names: expands name patterns and matches a checkpoint's names to
 * them */
#ifndef LIB_MODEL_BIND_H
#define LIB_MODEL_BIND_H

#include "lib/model/model.h"
#include "lib/model/state.h"

/* Expands the alternatives "{a|b}" of D's pattern and finds its captures "{layer}". */
MUST_CHECK int bind_pattern(struct model *m, struct tensor_def *d, struct err *err);
/* Fills m->tensor from the definitions; names use the first alternative of each. */
MUST_CHECK int bind_tensors(struct model *m, struct err *err);
/* Appends the tensors of definition DEF, which was added after bind_tensors. */
MUST_CHECK int bind_definition(struct model *m, size_t def, struct err *err);
/* Index of D's tensor for LAYER and EXPERT, as far as D has these captures.  -1 if
 * there is no such tensor; -3 if D has a capture whose argument is negative. */
long bind_index(const struct model *m, const struct tensor_def *d, int layer,
                int expert);
/* Index of the tensor that a checkpoint calls NAME, or -1. */
long bind_match(const struct model *m, const char *name);
/* Releases what these functions allocated. */
void bind_clear(struct model *m);

#endif
