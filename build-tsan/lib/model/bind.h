/* bind - tensor names: patterns, the tensors they stand for, and a checkpoint's own
 * names */
#ifndef LIB_MODEL_BIND_H
#define LIB_MODEL_BIND_H

#include "lib/model/model.h"
#include "lib/model/state.h"

/* Write out D's alternatives ("{a|b}") and find its captures ("{layer}"). */
MUST_CHECK int bind_pattern(struct model *m, struct tensor_def *d, struct err *err);
/* Make model.tensor from the definitions, named by their first alternatives. */
MUST_CHECK int bind_tensors(struct model *m, struct err *err);
/* Make the tensors of definition DEF, which was added after bind_tensors. */
MUST_CHECK int bind_definition(struct model *m, size_t def, struct err *err);
/* The tensor of D in LAYER, of EXPERT; what its captures do not name is not looked at.
 * -1 when there is none, -3 when a capture has no value. */
long bind_index(const struct model *m, const struct tensor_def *d, int layer,
                int expert);
/* The tensor that a checkpoint's NAME stands for, or -1. */
long bind_match(const struct model *m, const char *name);
/* Release what these made. */
void bind_clear(struct model *m);

#endif
