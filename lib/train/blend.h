/* blend - which of several sources each sample of a mixture comes from
 *
 * Of the first n samples, source s with share w of all has n w, to less than one
 * sample: each place goes, of the sources that have fallen behind, to the one that must
 * have it first (Tijdeman 1980, "The chairman assignment problem").  The sequence
 * depends on the weights alone.  It is walked: a place far behind takes a walk of about
 * 10 ns a sample and source, and one before the last that was asked for begins it
 * again. */
#ifndef LIB_TRAIN_BLEND_H
#define LIB_TRAIN_BLEND_H

#include <stddef.h>
#include <stdint.h>

enum { BLEND_MOST = 64 }; /* sources */

struct blend {
    size_t n;
    uint64_t share[BLEND_MOST]; /* of all, which is 2^32 */
    uint64_t at;                /* the next place, */
    int64_t owed[BLEND_MOST];   /* of it: share times places minus those that it had, in
                                 * 2^-32 samples */
    uint64_t had[BLEND_MOST];   /* samples before it */
};

/* WEIGHT[N] are above 0, N from 1 to BLEND_MOST. */
void blend_init(struct blend *b, const double *weight, size_t n);
/* The source of place AT; *NUMBER: how many samples that source has before it. */
size_t blend_source(struct blend *b, uint64_t at, uint64_t *number);
/* Fills HAD[n] with the samples that each source has before place AT. */
void blend_counts(struct blend *b, uint64_t at, uint64_t *had);

#endif
