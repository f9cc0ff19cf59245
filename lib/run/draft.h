/* draft - what may follow texts: from what they have had before, or by a smaller model
 *
 * drafter_draft is what scheduler_options.draft asks for.  Looking up: where a text has
 * had its last tokens before, it goes on as it did there (Saxena 2023, "Prompt lookup
 * decoding").  A model generates the tokens, on rank 0 alone and with a cache of its
 * own.  Where the text's tokens are drawn, it draws by the same random numbers, so that
 * both draw the same token where they agree (Daliri et al. 2025, "Coupling without
 * communication and drafter-invariant speculative decoding").
 *
 * A draft is tried, some steps with it beside some without, by the clock; it is given
 * up when it does not pay in two trials one after the other.  The clock decides what is
 * computed, never a token (scheduler.h). */
#ifndef LIB_RUN_DRAFT_H
#define LIB_RUN_DRAFT_H

#include "lib/reshard/checkpoint.h"
#include "lib/run/scheduler.h"

struct drafter;

/* Drafts by looking up. */
struct drafter *drafter_lookup(void);

struct drafter_model {
    struct checkpoint *checkpoint; /* must outlive the drafter */
    struct runner_machine machine; /* of this rank */
    size_t texts;                  /* at a time; at most DRAFTER_TEXTS are drafted */
    size_t context;                /* most tokens of a text */
    uint64_t vocab;                /* tokens of its ids */
    bool draws;                    /* some are drawn */
    bool deterministic, rounded;   /* as of program_options */
    /* What else this rank runs, whose steps have ended before a draft begins: kernels
     * of one process share counters on its device.  NULL is allowed. */
    const struct runner *beside;
};
enum { DRAFTER_TEXTS = 32 };
/* Opens the model.  ERR_INPUT: it cannot draft. */
MUST_CHECK int drafter_open(struct drafter **out, const struct drafter_model *model,
                            struct err *err);
void drafter_close(struct drafter *d); /* or NULL */
/* Adds what a model has allocated, as "draft". */
void drafter_memory(const struct drafter *d, struct ledger *list);

/* Tries whether the draft pays, in the steps of S, which have STAGES stages; without it
 * a draft goes on.  S must live as long as drafter_draft is called. */
void drafter_try(struct drafter *d, const struct scheduler *s, int stages);
MUST_CHECK int drafter_draft(struct drafter *d, struct scheduler_draft *v, size_t n,
                             struct err *err);

/* What trials have found. */
struct drafter_gain {
    unsigned trials;
    double last;   /* tokens a second of the last one, over those without */
    bool given_up; /* the draft, after two that were below 1 */
};
struct drafter_gain drafter_gain(const struct drafter *d);

#endif
