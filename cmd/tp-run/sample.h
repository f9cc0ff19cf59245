/* sample - draw the next token from logits */
#ifndef CMD_TP_RUN_SAMPLE_H
#define CMD_TP_RUN_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

struct sampling {
    double temperature; /* above 0 */
    uint64_t top_k;     /* 0: all */
    double top_p;       /* 1: all */
    uint64_t seed;
};

/* Draw from softmax(logits / temperature) over the VOCAB logits, limited to the top_k
 * likeliest and then to the fewest likeliest that sum to top_p (Holtzman et al. 2020).
 * The draw depends on the seed and POSITION alone. */
int32_t sample(const struct sampling *s, const float *logits, size_t vocab,
               uint64_t position);

#endif
