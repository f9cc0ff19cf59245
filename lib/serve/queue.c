/* queue - hands requests to the thread that runs the model, and back what it makes */
#define _GNU_SOURCE
#include "lib/serve/queue.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/mem.h"

struct queue {
    size_t most;
    struct job *touched; /* of the model's side alone */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t news;
    struct job *first, **end;
    size_t n;
    bool stirred; /* since the last queue_wait */
    bool closed;
};

/* ---- jobs ---- */

struct job *job_new(void)
{
    struct job *j = xcalloc(1, sizeof(*j));

    pthread_mutex_init(&j->lock, NULL);
    atomic_init(&j->users, 1);
    atomic_init(&j->cancelled, false);
    j->most = SIZE_MAX;
    return j;
}

static void free_pieces(struct job_piece *piece, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(piece[i].text);
        free(piece[i].told);
    }
    free(piece);
}

void job_drop(struct job *j)
{
    if (!j || atomic_fetch_sub(&j->users, 1) > 1)
        return;
    free_pieces(j->piece, j->n);
    if (j->free_request)
        j->free_request(j->request);
    if (j->release_wake)
        j->release_wake(j->wake_arg);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

void job_take(struct job *j, struct job_taken *out)
{
    pthread_mutex_lock(&j->lock);
    *out = (struct job_taken){ .piece = j->piece,
                               .n = j->n,
                               .over = j->over,
                               .err = j->err,
                               .cached = j->cached };
    j->piece = NULL;
    j->n = j->cap = j->bytes = 0;
    pthread_mutex_unlock(&j->lock);
}

void job_taken_clear(struct job_taken *t)
{
    free_pieces(t->piece, t->n);
    *t = (struct job_taken){ 0 };
}

bool job_is_over(struct job *j)
{
    bool over;

    pthread_mutex_lock(&j->lock);
    over = j->over;
    pthread_mutex_unlock(&j->lock);
    return over;
}

void job_cancel(struct job *j)
{
    atomic_store(&j->cancelled, true);
}

bool job_is_cancelled(const struct job *j)
{
    return atomic_load(&j->cancelled);
}

static void touch(struct queue *q, struct job *j)
{
    if (j->touched)
        return;
    j->touched = true;
    atomic_fetch_add(&j->users, 1);
    j->next = q->touched;
    q->touched = j;
}

void job_add(struct queue *q, struct job *j, const struct job_piece *piece)
{
    struct job_piece own = *piece;
    const size_t told = own.ntokens * own.ntold * sizeof(*own.told);

    own.told = own.told ? memcpy(xmalloc(told), piece->told, told) : NULL;
    own.text = own.len ? memcpy(xmalloc(own.len), piece->text, own.len) : NULL;
    pthread_mutex_lock(&j->lock);
    j->piece = xgrow(j->piece, &j->cap, j->n + 1, sizeof(*j->piece));
    j->piece[j->n++] = own;
    j->bytes += own.len + sizeof(own) + (own.told ? told : 0);
    if (j->bytes > j->most && !j->whole)
        job_cancel(j);
    pthread_mutex_unlock(&j->lock);
    if (!j->whole)
        touch(q, j);
}

void job_end(struct queue *q, struct job *j, size_t cached, const struct err *err)
{
    pthread_mutex_lock(&j->lock);
    j->over = true;
    j->cached = cached;
    if (err)
        j->err = *err;
    pthread_mutex_unlock(&j->lock);
    touch(q, j);
}

/* ---- the queue ---- */

struct queue *queue_new(size_t most)
{
    struct queue *q = xcalloc(1, sizeof(*q));
    pthread_condattr_t clock;

    q->most = most;
    q->end = &q->first;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&q->news, &clock);
    pthread_condattr_destroy(&clock);
    return q;
}

void queue_free(struct queue *q)
{
    struct job *next;

    if (!q)
        return;
    queue_flush(q);
    for (struct job *j = q->first; j; j = next) {
        next = j->next;
        job_drop(j);
    }
    pthread_cond_destroy(&q->news);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

/* Jobs that nobody wants take no place of others. */
static void sweep(struct queue *q)
{
    struct job **at = &q->first, *j;

    while ((j = *at)) {
        if (!job_is_cancelled(j)) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        q->n--;
        job_drop(j);
    }
    q->end = at;
}

enum queue_answer queue_push(struct queue *q, struct job *j)
{
    enum queue_answer answer = QUEUE_TAKEN;

    pthread_mutex_lock(&q->lock);
    if (q->n >= q->most)
        sweep(q);
    if (q->closed) {
        answer = QUEUE_CLOSED;
    } else if (q->n >= q->most) {
        answer = QUEUE_FULL;
    } else {
        atomic_fetch_add(&j->users, 1);
        j->next = NULL;
        *q->end = j;
        q->end = &j->next;
        q->n++;
        q->stirred = true;
        pthread_cond_signal(&q->news);
    }
    pthread_mutex_unlock(&q->lock);
    return answer;
}

size_t queue_length(struct queue *q)
{
    size_t n;

    pthread_mutex_lock(&q->lock);
    n = q->n;
    pthread_mutex_unlock(&q->lock);
    return n;
}

bool queue_is_closed(struct queue *q)
{
    bool closed;

    pthread_mutex_lock(&q->lock);
    closed = q->closed;
    pthread_mutex_unlock(&q->lock);
    return closed;
}

struct job *queue_take(struct queue *q)
{
    struct job *j;

    pthread_mutex_lock(&q->lock);
    j = q->first;
    if (j) {
        q->first = j->next;
        if (!q->first)
            q->end = &q->first;
        q->n--;
        j->next = NULL;
    }
    pthread_mutex_unlock(&q->lock);
    return j;
}

void queue_wait(struct queue *q, int ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_mutex_lock(&q->lock);
    while (!q->stirred && pthread_cond_timedwait(&q->news, &q->lock, &until) == 0)
        ;
    q->stirred = false;
    pthread_mutex_unlock(&q->lock);
}

void queue_flush(struct queue *q)
{
    struct job *next;

    for (struct job *j = q->touched; j; j = next) {
        next = j->next;
        j->next = NULL;
        j->touched = false;
        j->wake(j->wake_arg);
        job_drop(j);
    }
    q->touched = NULL;
}

void queue_close(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_mutex_unlock(&q->lock);
}
