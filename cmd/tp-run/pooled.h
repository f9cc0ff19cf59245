/* pooled - vectors of whole texts while they are asked for: what a server of embeddings
 * runs in place of generation */
#ifndef CMD_TP_RUN_POOLED_H
#define CMD_TP_RUN_POOLED_H

#include "cmd/tp-run/jobs.h"
#include "cmd/tp-run/pooling.h"

enum pooled_task {
    TASK_AUTO,
    TASK_GENERATE,
    TASK_EMBED, /* a vector for each text */
    TASK_RERANK /* a number for each pair of texts, of a model with one label */
};

struct pooled {
    const struct session *session;
    enum pooled_task task;
    struct pooling pooling; /* of TASK_EMBED */
    struct runner *runner;
    struct jobs *jobs; /* on rank 0 */
    /* private */
    float *vector; /* [cols] */
    float *own;    /* [nown][cols]: of rank 0's own, in the order in which they are
                    * collected */
    size_t nown, cap_own;
};

/* What the model of S is for: WANTED, or what its head and files say.  ERR_INPUT: it is
 * not for WANTED. */
MUST_CHECK int pooled_find_task(enum pooled_task *task, enum pooled_task wanted,
                                const struct session *s, struct err *err);
/* Fills P but for its runner and jobs. */
MUST_CHECK int pooled_init(struct pooled *p, const struct session *s,
                           enum pooled_task task, struct err *err);
void pooled_clear(struct pooled *p);
struct program_options pooled_options(const struct pooled *p);
/* For texts of at most CONTEXT tokens, each in one step. */
struct engine_limits pooled_limits(const struct pooled *p, size_t context);
/* Sets the runner; ERR_INPUT: its program does not do the task. */
MUST_CHECK int pooled_begin(struct pooled *p, struct runner *r, struct err *err);
/* The scheduler's .see and .collect, whose .arg is P. */
int pooled_see(void *p, const struct scheduler_part *part, struct err *err);
int pooled_collect(void *p, const struct scheduler_part *part, struct err *err);

#endif
