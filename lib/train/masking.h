/* masking - which tokens a model is to fill in (Devlin et al. 2018)
 *
 * Each token that is not special is chosen with a probability.  Of those chosen 80 %
 * are replaced by the mask token, 10 % by any token, and 10 % are left.  The draws
 * depend on the seed and on the sample's index in the run alone. */
#ifndef LIB_TRAIN_MASKING_H
#define LIB_TRAIN_MASKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct masking {
    double probability;
    int32_t mask;   /* id of the mask token */
    uint64_t vocab; /* any token is one below it */
    bool *special;  /* [vocab]: never chosen; NULL: none */
    uint64_t seed;
};

/* Masks ID[n] of the sample with index INDEX; TARGET[k] becomes what was at k, or -1
 * where nothing is to be filled in. */
void masking_apply(const struct masking *m, uint64_t index, int32_t *id,
                   int32_t *target, size_t n);

#endif
