/* passtimes - what the actions of a table took
 *
 * A table whose actions have times (action.h) was measured: a mean over the
 * micro-batches of each stage's passes is what a simulation of the same table needs,
 * and where that takes as long as what was measured, the means are all there is to say.
 */
#ifndef LIB_PIPE_PASSTIMES_H
#define LIB_PIPE_PASSTIMES_H

#include "lib/pipe/simulate.h"

struct passtimes {
    double first;    /* start of all, from the beginning of the step */
    double makespan; /* seconds from it to the last end */
    double *each;    /* [stages][ACTION_KINDS]: mean seconds of such a pass; 0: none */
};

/* Have all actions of T times? */
bool passtimes_is(const struct action_table *t);
/* T was measured; the caller clears *M. */
void passtimes_open(struct passtimes *m, const struct action_table *t);
void passtimes_clear(struct passtimes *m);
/* Simulates T with the means of M, messages that take no time, and no share of
 * activations freed early; the caller clears *OUT.  *TIMES refers to M. */
MUST_CHECK int passtimes_simulate(struct pipe_result *out, struct pipe_times *times,
                                  const struct passtimes *m,
                                  const struct action_table *t, struct err *err);
/* Adds the means as a JSON array of an object for each stage: "stage", "rank", "chunk",
 * and "forward", "backward", "backward_input" and "backward_weight", those that T has.
 */
void passtimes_add_json(struct str *out, const struct passtimes *m,
                        const struct action_table *t);
/* Adds T in the JSON of Chrome's trace viewer ("Trace Event Format", complete events
 * "X"): a process for each rank, a thread for each chunk of it, microseconds. */
void passtimes_add_trace(struct str *out, const struct action_table *t);

#endif
