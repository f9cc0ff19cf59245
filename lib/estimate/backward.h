/* backward - the peak of activations and their gradients in each unit's backward pass
 *
 * Goes through a unit from its last instruction to its first.  Saved activations are
 * freed after their last use; gradients of activations come and go. */
#ifndef LIB_ESTIMATE_BACKWARD_H
#define LIB_ESTIMATE_BACKWARD_H

#include "lib/estimate/values.h"

/* Sets unit.worst of all units of V, whose unit.kept is known.  Destroys V's keeper. */
void backward_find_worst(struct values *v);

#endif
