/* timing - when the actions of a step began and ended, on the ranks of a pipeline
 *
 * A rank notes its own clock.  The clocks of two machines differ by what cannot be
 * known but between bounds: a message is received after it was sent, in both
 * directions (Mills 1991, Internet Time Synchronization).  Clocks that may be one, as
 * those of one machine are, are taken as one; others are moved by the middle. */
#ifndef LIB_TRAIN_TIMING_H
#define LIB_TRAIN_TIMING_H

#include "lib/comm/comm.h"
#include "lib/pipe/action.h"

struct timing {
    struct comm *pipe;
    struct action_table table; /* the actions, each by itself; on the first rank with
                                * the times of the last step, from its first one on */
    size_t most;               /* actions of a rank at most */
    double *mark;              /* [most][2]: when this rank's began and ended */
    double entered;            /* the present one, */
    double received; /* and when what it needs had come: the engines write it */
    double *behind;  /* [ranks], on the first: its clock minus that of each */
};

/* For T, which each rank of PIPE has; PIPE must outlive *out. */
void timing_open(struct timing *m, const struct action_table *t, struct comm *pipe);
void timing_close(struct timing *m);
/* All ranks of the pipeline begin a step.  Compares clocks. */
MUST_CHECK int timing_begin(struct timing *m, struct err *err);
/* This rank begins an action; it has ended action I of its row.  It began when
 * .received says, if that is later. */
void timing_enter(struct timing *m);
void timing_leave(struct timing *m, size_t i);
/* All ranks have ended the step: sets the times of .table on the first. */
MUST_CHECK int timing_end(struct timing *m, struct err *err);

#endif
