/* reversed - the memory that tp-run train needs, by the program that it runs
 *
 * The other estimates of training follow from what a derivative has to read.  tp-run's
 * is the plan itself: the derivative as instructions, and where their values lie. */
#ifndef LIB_ESTIMATE_REVERSED_H
#define LIB_ESTIMATE_REVERSED_H

#include "lib/estimate/memory.h"

/* Does O say what tp-run train can do, and nothing besides? */
bool reversed_applies(const struct memory_options *o);
/* As memory_estimate, of such O.  ERR_NO where M cannot be trained. */
MUST_CHECK int reversed_estimate(struct memory_estimate *e, const struct model *m,
                                 const struct memory_options *o, struct err *err);

#endif
