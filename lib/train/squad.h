/* squad - exact match and F1 of an answer that is a part of a text
 *
 * As the evaluation of SQuAD has them (Rajpurkar et al. 2016, 2018; squad_metrics.py of
 * transformers): answers are compared as words, without case, punctuation of ASCII and
 * articles.  F1 is that of the words, each as often as it is there; of several right
 * answers the one counts that is nearest.  Both are shares, from 0 to 1. */
#ifndef LIB_TRAIN_SQUAD_H
#define LIB_TRAIN_SQUAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/text/origins.h"

/* The text that the tokens of a sample are of, and its answers. */
struct squad_text {
    char *context;
    struct origin *place; /* [n]: the bytes of the context that each token is */
    size_t n, low, high;  /* tokens; those of the context are [low, high) */
    char **answer;        /* [answers]; 0: the question has none */
    size_t answers;
    bool may_none; /* some question of these data has none: to say so is an answer */
};

/* NULL of NULL; the caller frees the copy. */
struct squad_text *squad_text_dup(const struct squad_text *t);
void squad_text_free(struct squad_text *t);

/* Adds to *EXACT and *F1 those of the LEN bytes at SAYS. */
void squad_add(double *exact, double *f1, const char *says, size_t len,
               const char *const *answer, size_t answers);
/* The same where words are N ids, and M ids are the answer. */
void squad_add_ids(double *exact, double *f1, const int32_t *says, size_t n,
                   const int32_t *is, size_t m);

/* The tokens *FIRST to *LAST of [LOW, HIGH), at most SQUAD_LONGEST, with the largest
 * sum of the logits X[rows][2] of their first and last one; false: there are none, or
 * with MAY_NONE both of token 0 have a larger one. */
enum { SQUAD_LONGEST = 30 };
bool squad_best(const float *x, size_t low, size_t high, bool may_none, size_t *first,
                size_t *last);

#endif
