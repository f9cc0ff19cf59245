/* lossroom - memory of the host for a loss that is made of what a program puts out
 *
 * A loss of likelihoods weighs each of them; one of logits gives each a gradient. */
#ifndef LIB_RUN_LOSSROOM_H
#define LIB_RUN_LOSSROOM_H

#include <stdint.h>

#include "lib/program/program.h"

enum lossroom {
    LOSSROOM_NONE,  /* it is the sum of likelihoods */
    LOSSROOM_TOKEN, /* it weighs the likelihoods of tokens */
    LOSSROOM_TEXT,  /* of rows of logits, one of each document, */
    LOSSROOM_ROWS   /* or of all tokens */
};

/* Numbers of f32 that the rank of P has for HOW in a micro-batch of at most TOKENS in
 * SEGMENTS documents, where it computes output 0: a row for each of them, and of
 * LOSSROOM_TEXT two for each document.  With sequence parallelism (SIZE ranks, of which
 * it is RANK) rows of tokens are on the first rank, and each has its own OWN rows
 * besides. */
uint64_t lossroom_numbers(const struct program *p, enum lossroom how, uint64_t tokens,
                          uint64_t segments, int size, int rank, uint64_t own);

#endif
