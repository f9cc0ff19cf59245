/* runner - one rank ready to run: its program, weights and engine */
#ifndef LIB_RUN_RUNNER_H
#define LIB_RUN_RUNNER_H

#include "lib/run/engine.h"
#include "lib/run/weights.h"

struct runner {
    struct program *program;
    struct weights weights;
    struct engine *engine;
    size_t chunk; /* most tokens of a step */
};

/* Make rank COMM->rank of MESH ready to run C.  C and COMM must outlive it.  With
 * dynamic rotary scaling a step may have as many tokens as a sequence, whatever LIMITS
 * says: all angles follow from the length at the step's end. */
int runner_open(struct runner *r, struct checkpoint *c, const struct mesh *mesh,
                struct comm *comm, const struct program_options *options,
                const struct engine_limits *limits, struct err *err);
void runner_close(struct runner *r);

/* Run the N tokens at IDS (and TARGETS, or NULL) from position START, in steps of at
 * most chunk.  Only the last row of all is wanted.  After each step SEE is called with
 * the step's first index in IDS, unless it is NULL. */
int runner_feed(struct runner *r, const int32_t *ids, const int32_t *targets, size_t n,
                size_t start,
                void (*see)(void *arg, struct engine *e, size_t first, size_t count),
                void *arg, struct err *err);

#endif
