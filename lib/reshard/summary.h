/* summary - model summary: the tensors of a model, from its config or its files
 *
 * For programs that only count and plan.  PATH is a Hugging Face directory with or
 * without weights, a config.json of any name, a safetensors index with its config
 * beside it, or a sharded checkpoint. */
#ifndef LIB_RESHARD_SUMMARY_H
#define LIB_RESHARD_SUMMARY_H

#include "lib/reshard/checkpoint.h"

struct summary {
    struct model *model;           /* borrowed from the checkpoint when there is one */
    struct checkpoint *checkpoint; /* NULL when there are no weights */
    enum dtype dtype;              /* torch_dtype of the config; else the type of most
                                    * elements of the weights; else f32 */
    bool dtype_known;              /* false: f32 was assumed */
};

/* Opens PATH.  OPT may be NULL.  Errors as of model_open and checkpoint_open. */
MUST_CHECK int summary_open(struct summary *o, const char *path,
                            const struct checkpoint_options *opt, struct err *err);
void summary_close(struct summary *o);

/* Is tensor I a parameter of M?  Not counted are the second name of a tied tensor, a
 * quantized weight's companions (such as scales), and optional tensors that the files
 * lack. A quantized weight counts once, as the weight. */
bool summary_has(const struct model *m, size_t i);

#endif
