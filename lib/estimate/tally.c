/* tally - a sum of sizes with an overflow flag */
#include "lib/estimate/tally.h"

#include "lib/base/mem.h"

uint64_t tally_times(struct tally *s, uint64_t a, uint64_t b)
{
    uint64_t out = 0;

    s->over |= !mem_mul(&out, a, b);
    return out;
}

void tally_add(struct tally *s, uint64_t a)
{
    s->over |= !mem_add(&s->v, s->v, a);
}

void tally_add3(struct tally *s, uint64_t a, uint64_t b, uint64_t c)
{
    tally_add(s, tally_times(s, tally_times(s, a, b), c));
}

uint64_t tally_part(uint64_t n, uint64_t parts)
{
    return n / parts + (n % parts != 0);
}
