/* jobs - the requests of a web server as texts of a scheduler
 *
 * The model's side of lib/serve/queue: on rank 0 one thread takes jobs, submits their
 * choices, runs steps and gives back what they gain.  It never waits for a client. */
#ifndef CMD_TP_RUN_JOBS_H
#define CMD_TP_RUN_JOBS_H

#include "cmd/tp-run/inputs.h"
#include "cmd/tp-run/sampling.h"
#include "lib/run/draft.h"
#include "lib/run/scheduler.h"
#include "lib/serve/metrics.h"
#include "lib/serve/openai.h"
#include "lib/serve/queue.h"

/* What a job's .request points to. */
struct serve_request {
    struct openai_request asked;
    int adapter;        /* by whose name the model was asked for, or 0 */
    struct ids *prompt; /* [nprompts] */
    size_t nprompts;
    struct str *echo;      /* [nprompts]: texts that answers begin with; or NULL */
    struct sampling how;   /* how tokens are chosen, and what ends a text */
    struct said_form said; /* of a chat */
    bool shows_special;    /* tokens that mark its parts are special */
    struct inputs inputs;  /* of a request for vectors, in place of prompts */
};
void serve_request_free(void *request);
size_t serve_choices(const struct serve_request *r);
/* The tokens of all its prompts, or inputs. */
size_t serve_tokens(const struct serve_request *r);

struct jobs;
/* SESSION, Q and M must outlive the result.  CONTEXT: most tokens of a text, the prompt
 * included. */
struct jobs *jobs_new(const struct session *session, struct queue *q, struct metrics *m,
                      uint64_t context);
void jobs_free(struct jobs *s);
/* The scheduler's .gain, whose .arg is S. */
int jobs_gain(void *s, const struct scheduler_gain *gain, struct err *err);
/* Its .told, with the same .arg. */
int jobs_told(void *s, const struct scheduler_told *told, struct err *err);
/* Its .draft, with the same .arg, by D, which must outlive S; call it before steps are
 * made. */
int jobs_draft(void *s, struct scheduler_draft *v, size_t n, struct err *err);
void jobs_draft_by(struct jobs *s, struct drafter *d);
/* The vector X[n] of the input with NUMBER, which is the tag of its text; a no-op if
 * nobody wants it any more. */
void jobs_vector(struct jobs *s, uint64_t number, const float *x, size_t n);

/* What others ask of a server while it runs. */
struct jobs_orders {
    const volatile int *end; /* a signal's number: to end */
    int drain_s;             /* what runs so long after that is given up */
    void (*heed)(void *arg); /* called at least ten times a second */
    void *arg;
};
/* Serves until it is to end and has nothing more to do.  -1: the model has failed, of
 * which all clients are told. */
MUST_CHECK int jobs_run(struct jobs *s, struct scheduler *scheduler,
                        const struct jobs_orders *orders, struct err *err);

#endif
