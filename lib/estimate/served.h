/* served - the memory of tp-run generate, from the engines that it opens
 *
 * For other frameworks, and for plans, the estimate adds up what a step must hold.
 * Here the program of each rank is built and an engine planned for it, as tp-run does
 * before it loads a weight: what its --report-memory tells is foretold to the byte, if
 * the texts are as many and as long, and the ranks have as many threads. */
#ifndef LIB_ESTIMATE_SERVED_H
#define LIB_ESTIMATE_SERVED_H

#include "lib/device/device.h"
#include "lib/estimate/memory.h"

/* The CPU as far as engines are planned for it: without kernels. */
extern const struct backend served_cpu;
/* True if O asks for what tp-run generate does, on CPUs or GPUs. */
bool served_applies(const struct memory_options *o);
/* Replaces the categories of OUT by those of the rank at COORD, weights only where they
 * are held as they are stored; STORED has the types of the checkpoint's tensors, or is
 * NULL.  ERR_NO: its ranks cannot share sequences. */
MUST_CHECK int served_rank(struct rank_memory *out, const struct model *m,
                           const enum dtype *stored, const struct memory_options *o,
                           const int coord[MESH_NAXES], struct err *err);

#endif
