/* stagecut - layers over the stages of a pipeline by the bytes that their ranks need
 *
 * A stage's bytes depend on where it stands: under 1f1b the first holds as many
 * micro-batches as there are stages, the last one, and has the logits. */
#ifndef LIB_ESTIMATE_STAGECUT_H
#define LIB_ESTIMATE_STAGECUT_H

#include "lib/estimate/memory.h"

/* Cut the layers of A's model into the stages of O's mesh, to COUNT[pp], so that the
 * stage with most bytes has as few as possible; those before it take as many layers as
 * that allows.  A stage has a layer at least.  ERR_NO where there are too few, or O's
 * stages are not one range of layers each. */
MUST_CHECK int stagecut_memory(int *count, const struct anatomy *a,
                               const struct memory_options *o, struct err *err);

/* "N,N,...": the layers of each of PP stages, all NLAYERS of them, to COUNT[PP]. */
MUST_CHECK int stagecut_parse(int *count, int pp, int nlayers, const char *text,
                              struct err *err);

/* What pp-partition takes for the memory of training: AdamW in mixed precision, one
 * sequence of the model's context in a micro-batch, as many as stages under 1f1b, whose
 * INFLIGHT[pp] it fills. */
void stagecut_training(struct memory_options *o, const struct model *m, int pp,
                       uint64_t *inflight);

#endif
