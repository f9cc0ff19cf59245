/* rng - counter-based random numbers (Philox4x32-10, Salmon et al., SC'11)
 *
 * A draw depends only on (seed, stream, counter), not on earlier draws elsewhere, so
 * results do not depend on the layout or on the order of computation. */
#ifndef LIB_BASE_RNG_H
#define LIB_BASE_RNG_H

#include <stdint.h>

/* Replaces COUNTER by four random words, a function of COUNTER and SEED. */
void rng_block(uint32_t counter[4], uint64_t seed);

struct rng {
    uint64_t seed, stream, counter;
    uint32_t block[4]; /* the current block of four words */
    int used;          /* words of the block already used; 4 at the start */
};

void rng_init(struct rng *r, uint64_t seed, uint64_t stream);
uint32_t rng_u32(struct rng *r);
uint64_t rng_u64(struct rng *r);
double rng_uniform(struct rng *r);             /* [0, 1), 53 bits */
uint64_t rng_below(struct rng *r, uint64_t n); /* [0, n), unbiased; n > 0 */
double rng_normal(struct rng *r);              /* mean 0, variance 1 */

#endif
