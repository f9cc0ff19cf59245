/* decay - which weights decay in training
 *
 * All but those that transformers' Trainer spares (get_decay_parameter_names): by
 * their names, and the weights of layer norms, whatever their names are. */
#ifndef LIB_MODEL_DECAY_H
#define LIB_MODEL_DECAY_H

#include <stdbool.h>

#include "lib/model/model.h"

/* Is a weight spared that has NAME? */
bool decay_spares(const char *name);
/* [M->ntensors]: does the tensor decay?  The caller frees it. */
bool *decay_new(const struct model *m);

#endif
