/* stagecut - splits layers into pipeline stages by memory
 *
 * The bytes of a stage depend on its position: under 1f1b the first stage has as many
 * micro-batches in flight as there are stages, the last one has one, and the logits. */
#ifndef LIB_ESTIMATE_STAGECUT_H
#define LIB_ESTIMATE_STAGECUT_H

#include "lib/estimate/memory.h"

/* Splits the layers of A's model into the stages of O's mesh, to COUNT[pp], so that the
 * largest stage is as small as possible; earlier stages take as many layers as that
 * allows. Each stage has at least one layer.  ERR_NO if there are too few layers, or
 * O's stages are not one range of layers each. */
MUST_CHECK int stagecut_memory(int *count, const struct anatomy *a,
                               const struct memory_options *o, struct err *err);

/* Parses "N,N,...", the layers of each of PP stages, NLAYERS in all, to COUNT[PP]. */
MUST_CHECK int stagecut_parse(int *count, int pp, int nlayers, const char *text,
                              struct err *err);

/* Sets *o to what pp-partition assumes for training memory: AdamW in mixed precision,
 * micro-batches of one sequence of the model's context, as many as stages, under 1f1b.
 * Fills INFLIGHT[pp], which *o then borrows. */
void stagecut_training(struct memory_options *o, const struct model *m, int pp,
                       uint64_t *inflight);

#endif
