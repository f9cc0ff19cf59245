/* outline - a model from whatever of it is at hand
 *
 * For programs that count and plan, and need no weights: a Hugging Face directory with
 * or without its weights, a bare config.json of any name, a safetensors index with the
 * config beside it, or a checkpoint that tp-shard made. */
#ifndef LIB_RESHARD_OUTLINE_H
#define LIB_RESHARD_OUTLINE_H

#include "lib/reshard/checkpoint.h"

struct outline {
    struct model *model;           /* borrowed from the checkpoint when there is one */
    struct checkpoint *checkpoint; /* NULL when there are no weights */
    enum dtype dtype;              /* the config's torch_dtype, else that of most
                                      elements of the weights, else f32 */
    bool dtype_known;              /* false: f32 was assumed */
};

/* Open PATH.  OPT may be NULL.  Errors as of model_open and checkpoint_open. */
MUST_CHECK int outline_open(struct outline *o, const char *path,
                            const struct checkpoint_options *opt, struct err *err);
void outline_close(struct outline *o);

/* Is tensor I a parameter of M: neither a second name of a tied one, nor a quantised
 * weight's companion, nor an optional one that is not stored?  A weight that is stored
 * in another form counts as itself. */
bool outline_has(const struct model *m, size_t i);

#endif
