/* stated - the tensors that the files of a config would hold
 *
 * A config.json alone says how its weights are stored: their type, and of quantized
 * ones the method.  The tensors made of it bind as those of files do, so that whatever
 * counts files counts them: scales, zero points, words, blocks that a shard keeps
 * whole. */
#ifndef LIB_MODEL_STATED_H
#define LIB_MODEL_STATED_H

#include "lib/model/model.h"

struct stated {
    struct model_input *in;
    size_t n;
    char *names;     /* private */
    uint64_t *sizes; /* private */
};

/* True if M's config has weights quantized in a way that is known. */
bool stated_applies(const struct model *m);
/* Makes the inputs of M, which is not bound.  LINEAR[t]: tensor T is a matrix that only
 * products read, with rows for outputs, and no router.  PLAIN: the type of what is not
 * quantized.  The caller binds them and clears *out. */
void stated_make(struct stated *out, const struct model *m, const bool *linear,
                 enum dtype plain);
void stated_clear(struct stated *s);

#endif
