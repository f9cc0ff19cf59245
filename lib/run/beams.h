/* beams - beam search: the best continuations of a text, several at a time
 *
 * A search stands above the scheduler.  Each of its beams is a text there, which waits
 * after each of its tokens until all beams of the search have their candidates
 * (PICK_SCORES: scores of the next tokens).  Then beams_advance chooses the best
 * continuations of all: texts with none are cancelled, those with several forked, so
 * that beams share full blocks of the cache, and what an encoder has made, until they
 * differ.  Beams that are one sequence are one text.
 *
 * The rules are those of transformers' generate(), version 5, in float32, for a text by
 * itself.  Of the best (1 + ends, at least 2) * N continuations, where a text has ENDS
 * ids that end it, the best N that do not end are the next beams; of the best N, those
 * that end are found, with the score: sum / tokens ^ length_penalty.  The best N that
 * are found are kept.  The search is over when they are N, and no beam can become
 * better than the worst of them (or at once, of BEAMS_EARLY), or when all continuations
 * end.  (Wu et al. 2016, "Google's neural machine translation system", has another
 * penalty.)  Where tokens are drawn, the continuations are that many draws without
 * replacement. */
#ifndef LIB_RUN_BEAMS_H
#define LIB_RUN_BEAMS_H

#include "lib/run/scheduler.h"

/* What the best beam can still become: the score of */
enum beams_early {
    BEAMS_SOON,  /* its sum at its length so far; */
    BEAMS_EARLY, /* nothing: N that are found are enough; */
    BEAMS_NEVER  /* its sum at the most tokens, where the penalty is above 0 */
};

struct beams_how {
    size_t n; /* beams; at most 1: no search */
    double length_penalty;
    enum beams_early early;
};

/* A continuation that was found. */
struct beams_found {
    int32_t *ids; /* [n]: the new tokens */
    size_t n;
    float score;
};

struct beams_options {
    struct scheduler *scheduler;
    size_t places; /* texts in generation at a time, over all replicas; a search begins
                    * when it has as many places as beams */
    /* Does the text of TAG end with the last of its new tokens IDS[N]? */
    bool (*ends)(void *arg, uint64_t tag, const int32_t *ids, size_t n);
    /* The search of TAG is over: the best that were found, N of which there is one at
     * least, the best first. */
    int (*found)(void *arg, uint64_t tag, const struct beams_found *v, size_t n,
                 struct err *err);
    void *arg;
};

struct beams;

/* For rank 0; what *OPTIONS points to must outlive *b. */
struct beams *beams_new(const struct beams_options *options);
void beams_free(struct beams *b); /* NULL is allowed */
/* How many candidates a beam needs of a text that NSTOP ids end. */
size_t beams_candidates(const struct beams_how *how, size_t nstop);
/* Appends a search to the queue.  T, whose .tag is that of no other search, has a .how
 * with .likely of beams_candidates() and .of PICK_SCORES, and fewer tokens than
 * .most. */
void beams_submit(struct beams *b, const struct scheduler_text *t,
                  const struct beams_how *how);
/* To be called in .gain for a text whose tag is that of a search, and that has a next
 * token. */
void beams_gain(struct beams *b, const struct scheduler_gain *gain);
/* To be called between two steps: begins searches, goes on with those whose beams have
 * all gained, ends those that are over.  Returns 1; 0: there is none; -1: *err. */
MUST_CHECK int beams_advance(struct beams *b, struct err *err);

#endif
