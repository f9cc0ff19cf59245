/* pick - chooses a token from a row of logits in host memory
 *
 * What a backend's sampler does not do: logits are edited (processors.h), candidates
 * are left out by more than their rank and mass, and the likeliest tokens are told with
 * their log-probabilities.  The order is transformers': edits, temperature, top_h,
 * top_k, top_p, min_p, typical_p, epsilon and eta cutoffs. */
#ifndef LIB_RUN_PICK_H
#define LIB_RUN_PICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/device/layout.h"

/* x += bias; x = x > 0 ? x / scale : x * scale; x += after; x += |x| * decay. */
struct edit {
    int32_t id;
    float bias, scale, after, decay;
};

/* The log-probabilities that are told are those of */
enum pick_of {
    PICK_RAW,       /* the model's logits, or */
    PICK_PROCESSED, /* the distribution from which the token is drawn, or */
    PICK_SCORES     /* the logits', edited: what a beam search adds up (beams.h) */
};

struct pick {
    struct draw draw; /* a temperature of 0: the likeliest token */
    double top_h, min_p, typical_p, epsilon, eta; /* 0, 0, 1, 0, 0: nothing */
    int32_t only;   /* the one token that is possible; -1: any */
    int32_t likely; /* as in struct choosing */
    uint8_t of;     /* enum pick_of */
    bool edited;    /* the token is chosen here, not by the backend's sampler */
    int32_t draws;  /* tokens, the I-th with the seed of .draw + I; 0: one */
    /* of PICK_SCORES: */
    bool normal;    /* the scores are made log-probabilities again */
    int32_t fewest; /* candidates that nothing but their rank in top_h leaves out */
};

/* A token and its log-probability; id -1: there is none. */
struct likely {
    int32_t id;
    float logprob;
};

/* The noise of token ID in the draw D, of the standard Gumbel distribution.  The n
 * tokens with the largest sums of log-probability and noise are n draws without
 * replacement (Kool et al. 2019, "Stochastic beams and where to find them"). */
double pick_noise(const struct draw *d, int32_t id);

/* What becomes of single logits: V[n], each of another id; and of ids that are not
 * ALLOWED[words], a bit each, nothing is possible (NULL: all are). */
struct pick_edits {
    const struct edit *v;
    size_t n;
    const uint32_t *allowed;
    size_t words;
};

struct picker; /* memory */
struct picker *picker_new(void);
void picker_free(struct picker *p);
/* Does HOW need the logits? */
bool pick_needs_logits(const struct pick *how);
/* How many of struct likely a token chosen by HOW has. */
size_t pick_told(const struct pick *how);
/* OUT[1 + LIKELY] becomes token ID, which is known, and the likeliest ones, after
 * LOGITS[vocab].  OUT[0].id is -1 where a logit is NaN or +inf, or all are -inf. */
void pick_tell(const float *logits, size_t vocab, int32_t id, size_t likely,
               struct likely *out);
/* In place of a token: */
enum {
    PICK_NOT_FINITE = -1, /* a logit is NaN or +inf, or all are -inf, */
    PICK_NOTHING = -2     /* or edits leave none */
};
/* OUT[pick_told(HOW)] becomes the token after LOGITS[vocab], changed by EDITS, the
 * likeliest ones, and what else is drawn.  NEXT is what the backend's
 * sampler has chosen. Of PICK_SCORES the likeliest are those with the best scores, or
 * where tokens are drawn, with the best sums of score and noise, and OUT[0].id is NEXT.
 * OUT[0].id is one of the above where none is decided.  LOGITS may be NULL unless
 * pick_needs_logits. */
void pick_token(struct picker *p, const float *logits, size_t vocab,
                const struct pick *how, const struct pick_edits *edits, int32_t next,
                struct likely *out);

#endif
