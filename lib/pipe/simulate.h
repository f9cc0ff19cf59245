/* simulate - how long a table of actions takes, and what it holds meanwhile
 *
 * A rank takes its actions in order, each as soon as what it needs has come: a forward
 * the stage before, a backward the stage after, on another rank by a message that
 * delays the receiver alone.  A chunk's activations are held from the start of its
 * forward to the end of its weights' gradient. */
#ifndef LIB_PIPE_SIMULATE_H
#define LIB_PIPE_SIMULATE_H

#include "lib/pipe/action.h"

struct pipe_times {
    /* [ranks]: seconds (or any unit) of one whole rank for one micro-batch; a chunk
     * takes its share of the rank's stages of one copy of the model */
    const double *forward, *input, *weight;
    const double *each;   /* [stages][ACTION_KINDS]: instead of these, of a pass of this
                           * kind through this stage; or NULL */
    double latency;       /* of a message */
    double bandwidth;     /* bytes a unit of time; 0: no limit */
    double message_bytes; /* of one message */
    double freed; /* share of a chunk's activations that its input's gradient frees; the
                     rest is held until its weights' gradient */
};

struct pipe_result {
    double makespan; /* from the first start to the last end */
    double span;     /* the longest time from a rank's first start to its last end */
    double ideal;    /* the largest rank's own work */
    int *peak;       /* [ranks]: chunks of activations held at most, in part or whole */
    double *held;    /* [ranks]: their peak, in chunks */
    uint64_t transfers;
    double transferred_bytes;
    double **start; /* [ranks][actions]; end = start + duration */
    int ranks;
};

/* Simulate T.  A deadlock is ERR_INPUT and names the first action that waits for ever.
 * The caller clears *out. */
MUST_CHECK int pipe_simulate(struct pipe_result *out, const struct action_table *t,
                             const struct pipe_times *times, struct err *err);
void pipe_result_clear(struct pipe_result *r);

/* What action A takes on its rank. */
double pipe_duration(const struct action_table *t, const struct pipe_times *times,
                     const struct action *a);

#endif
