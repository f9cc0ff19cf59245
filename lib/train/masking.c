/* masking - which tokens a model is to fill in */
#include "lib/train/masking.h"

#include "lib/base/rng.h"

void masking_apply(const struct masking *m, uint64_t index, int32_t *id,
                   int32_t *target, size_t n)
{
    struct rng rng;

    rng_init(&rng, m->seed, index);
    for (size_t k = 0; k < n; k++) {
        const bool chosen = rng_uniform(&rng) < m->probability;
        const double how = rng_uniform(&rng);
        const uint64_t any = rng_below(&rng, m->vocab);

        target[k] = -1;
        if (!chosen || (m->special && m->special[id[k]]))
            continue;
        target[k] = id[k];
        id[k] = how < 0.8 ? m->mask : how < 0.9 ? (int32_t)any : id[k];
    }
}
