/* decay - which weights decay in training
 *
 * Mostly all but those that transformers' Trainer spares (get_decay_parameter_names):
 * by their names, and the weights of layer norms, whatever their names are. */
#ifndef LIB_MODEL_DECAY_H
#define LIB_MODEL_DECAY_H

#include <stdbool.h>

#include "lib/model/model.h"

/* DECAY_USUAL: as above.  DECAY_MATRICES: what has two axes or more. */
enum decay_kind { DECAY_USUAL, DECAY_ALL, DECAY_MATRICES, DECAY_KINDS };
extern const char *const decay_names[DECAY_KINDS + 1];

/* Is a weight spared that has NAME? */
bool decay_spares(const char *name);
/* [M->ntensors]: does the tensor decay?  The caller frees it. */
bool *decay_new(const struct model *m, enum decay_kind kind);

#endif
