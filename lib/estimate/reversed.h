/* reversed - the memory of tp-run train, from the program that it runs
 *
 * For other frameworks the estimate adds up what a derivative must read.  tp-run's
 * memory is known exactly: its program with the derivative, and the arena of its
 * values. */
#ifndef LIB_ESTIMATE_REVERSED_H
#define LIB_ESTIMATE_REVERSED_H

#include "lib/estimate/memory.h"

/* True if O asks for exactly what tp-run train does. */
bool reversed_applies(const struct memory_options *o);
/* As memory_estimate, for such O.  ERR_NO if M cannot be trained. */
MUST_CHECK int reversed_estimate(struct memory_estimate *e, const struct model *m,
                                 const struct memory_options *o, struct err *err);

#endif
