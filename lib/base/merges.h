/* merges - the merges of a BPE vocabulary that has only scores: SentencePiece's, and
 * that of GGUF files
 *
 * Sennrich et al. 2016 merge pairs in the order in which they were learned.
 * SentencePiece keeps a score for each piece instead: the pair whose piece has the best
 * score is merged first. */
#ifndef LIB_BASE_MERGES_H
#define LIB_BASE_MERGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct merges_piece {
    const char *s; /* [n] borrowed */
    size_t n;
    float score; /* no NaN */
    bool made;   /* merges make it; others are only parts */
};

/* A merge: the piece that it makes, and how many of its bytes are the left part. */
struct merge {
    uint32_t piece, left;
};

/* Lists all pairs of the N pieces at P that make a piece, in the order in which they
 * are merged: best scores first; of one score the longer left part, as transformers
 * orders them.  The caller frees *out.  Pieces of more than 256 bytes are made by none.
 * Returns false, and *out is NULL, if the list would take more than LIMIT bytes. */
bool merges_list(struct merge **out, size_t *count, const struct merges_piece *p,
                 uint32_t n, uint64_t limit);

#endif
