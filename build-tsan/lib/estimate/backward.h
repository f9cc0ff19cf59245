/* backward - what there is of a unit's values while the backward pass is in it
 *
 * From its last instruction to its first what has been read is let go, while gradients
 * of values come and go. */
#ifndef LIB_ESTIMATE_BACKWARD_H
#define LIB_ESTIMATE_BACKWARD_H

#include "lib/estimate/values.h"

/* Set `worst` of V's units, whose `kept` is known.  What keeps
 * values is used up. */
void backward_find_worst(struct values *v);

#endif
