/* sorting - the order of values, stable */
#ifndef LIB_TEXT_TEMPLATE_SORTING_H
#define LIB_TEXT_TEMPLATE_SORTING_H

#include "lib/text/template/value.h"

/* *order are the indices [n] of V in ascending order; equal values keep theirs. */
MUST_CHECK int sorting_order(struct scratch *s, size_t **order, const struct value *v,
                             size_t n);

#endif
