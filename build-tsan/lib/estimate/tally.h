/* tally - a sum of sizes that remembers overflow
 *
 * Begin with zero; once `over` is set `v` means nothing. */
#ifndef LIB_ESTIMATE_TALLY_H
#define LIB_ESTIMATE_TALLY_H

#include <stdbool.h>
#include <stdint.h>

struct tally {
    uint64_t v;
    bool over;
};

/* A * B; an overflow is noted in S, which is not changed otherwise. */
uint64_t tally_times(struct tally *s, uint64_t a, uint64_t b);
void tally_add(struct tally *s, uint64_t a);
/* S += A * B * C */
void tally_add3(struct tally *s, uint64_t a, uint64_t b, uint64_t c);
/* The largest of PARTS equal parts of N. */
uint64_t tally_part(uint64_t n, uint64_t parts);

#endif
