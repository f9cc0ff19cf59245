/* queue - hands requests to the thread that runs the model, and back what it makes
 *
 * A job is one request: prompts, and continuations of each (choices), which are
 * numbered prompt by prompt.  A thread of the web server makes it, pushes it, and takes
 * what there is of its choices (pieces) whenever the job's wake is called.  The model's
 * thread takes jobs and adds pieces.  Neither waits for the other: the queue has a
 * limit, pieces of a client that reads too slowly have one, and a job that is cancelled
 * is seen before the next step of the model.
 *
 * A job has two users, who each call job_drop.  The functions of either side may be
 * called at any time. */
#ifndef LIB_SERVE_QUEUE_H
#define LIB_SERVE_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

enum job_end { JOB_GOES_ON, JOB_STOP, JOB_LENGTH };

/* A token and its log-probability, NAN if nobody knows it; id -1: there is none. */
struct job_told {
    int32_t id;
    float logprob;
};

/* What is new of a choice. */
struct job_piece {
    int choice;
    struct job_told *told; /* [ntokens][ntold], each and the likeliest in its place; or
                            * NULL */
    size_t ntold;
    bool of_prompt; /* they are not new, but of the prompt, */
    size_t ntokens; /* new ones, */
    char *text;     /* [len]: and their text as far as it is complete */
    size_t len;
    enum job_end end;
};

struct job {
    void *request; /* the server's: what the job is made from; read by both sides */
    void (*free_request)(void *request);
    void (*wake)(
        void *arg); /* there is something to take; called by the model's side */
    void (*release_wake)(void *arg); /* nobody will call it any more */
    void *wake_arg;
    bool whole;  /* it is woken at the end alone */
    size_t most; /* otherwise: bytes of pieces that may wait; more ends the job */
    double came; /* clock_seconds */

    /* private */
    struct job *next; /* in the queue, then among the touched */
    bool touched;     /* since the last queue_flush */
    atomic_int users;
    atomic_bool cancelled;
    pthread_mutex_t lock; /* of what follows */
    struct job_piece *piece;
    size_t n, cap, bytes;
    bool over;
    struct err err; /* kind 0: it ended well */
    size_t cached;  /* tokens of its prompts that were not computed again */
};

struct job *job_new(void);
void job_drop(struct job *j);

/* The server's side. */
struct job_taken {
    struct job_piece *piece; /* [n] */
    size_t n;
    bool over;      /* no more will come, */
    struct err err; /* because of this unless its kind is 0 */
    size_t cached;
};
/* Moves what there is to *out, which job_taken_clear releases. */
void job_take(struct job *j, struct job_taken *out);
void job_taken_clear(struct job_taken *t);
bool job_is_over(struct job *j);
/* Nobody wants the rest. */
void job_cancel(struct job *j);

/* The model's side. */
bool job_is_cancelled(const struct job *j);
/* Adds a piece, whose text and tokens are copied.  The server is woken by queue_flush.
 * A job whose pieces have more than .most bytes is cancelled. */
struct queue;
void job_add(struct queue *q, struct job *j, const struct job_piece *piece);
/* No more pieces; ERR is NULL, or why. */
void job_end(struct queue *q, struct job *j, size_t cached, const struct err *err);

enum queue_answer {
    QUEUE_TAKEN, /* which makes the queue a user of the job */
    QUEUE_FULL,
    QUEUE_CLOSED /* nothing is taken any more */
};
/* MOST jobs may wait at a time. */
struct queue *queue_new(size_t most);
void queue_free(struct queue *q);
enum queue_answer queue_push(struct queue *q, struct job *j);
size_t queue_length(struct queue *q);
bool queue_is_closed(struct queue *q);

/* The model's side: */
/* The oldest job, whose user the caller becomes; NULL: none. */
struct job *queue_take(struct queue *q);
/* Waits at most MS milliseconds until a job has come or one was cancelled. */
void queue_wait(struct queue *q, int ms);
/* Wakes the server for all jobs to which something was added. */
void queue_flush(struct queue *q);
/* No job is taken from now on; those that wait can still be taken out. */
void queue_close(struct queue *q);

#endif
