/* rng - counter-based random numbers (Philox4x32-10, Salmon et al., SC'11)
 *
 * The counter consists of the draw's block number and the stream; the key is the
 * seed. */
#include <math.h>

#include "lib/base/rng.h"

static const uint32_t MULTIPLIER[2] = { 0xD2511F53, 0xCD9E8D57 };
static const uint32_t WEYL[2] = { 0x9E3779B9, 0xBB67AE85 };
static const double TWO_PI = 6.283185307179586476925286766559;

/* Applies ten rounds to the counter C with KEY. */
void rng_block(uint32_t c[4], uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)MULTIPLIER[0] * c[0];
        uint64_t p1 = (uint64_t)MULTIPLIER[1] * c[2];

        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)p0;
        k0 += WEYL[0];
        k1 += WEYL[1];
    }
}

void rng_init(struct rng *r, uint64_t seed, uint64_t stream)
{
    *r = (struct rng){ .seed = seed, .stream = stream, .used = 4 };
}

uint32_t rng_u32(struct rng *r)
{
    if (r->used == 4) {
        r->block[0] = (uint32_t)r->counter;
        r->block[1] = (uint32_t)(r->counter >> 32);
        r->block[2] = (uint32_t)r->stream;
        r->block[3] = (uint32_t)(r->stream >> 32);
        rng_block(r->block, r->seed);
        r->counter++;
        r->used = 0;
    }
    return r->block[r->used++];
}

uint64_t rng_u64(struct rng *r)
{
    uint64_t low = rng_u32(r);

    return low | (uint64_t)rng_u32(r) << 32;
}

double rng_uniform(struct rng *r)
{
    return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
    /* Draws at or above the largest multiple of n are rejected, to avoid bias. */
    uint64_t excess = (UINT64_MAX % n + 1) % n;
    uint64_t x;

    do {
        x = rng_u64(r);
    } while (x > UINT64_MAX - excess);
    return x % n;
}

/* The Box-Muller transform (1958) without its sine half: each draw takes two
 * uniforms. */
double rng_normal(struct rng *r)
{
    double u = 1.0 - rng_uniform(r);
    double v = rng_uniform(r);

    return sqrt(-2.0 * log(u)) * cos(TWO_PI * v);
}
