/* tally - a sum of sizes with an overflow flag
 *
 * Starts as { 0 }; after an overflow .over is true and .v is meaningless. */
#ifndef LIB_ESTIMATE_TALLY_H
#define LIB_ESTIMATE_TALLY_H

#include <stdbool.h>
#include <stdint.h>

struct tally {
    uint64_t v;
    bool over;
};

/* Returns A * B; on overflow sets s->over.  Does not change s->v. */
uint64_t tally_times(struct tally *s, uint64_t a, uint64_t b);
void tally_add(struct tally *s, uint64_t a);
/* S += A * B * C */
void tally_add3(struct tally *s, uint64_t a, uint64_t b, uint64_t c);
/* N / PARTS, rounded up: the largest of PARTS nearly equal parts. */
uint64_t tally_part(uint64_t n, uint64_t parts);

#endif
