/* flows - messages between the stages of a pipeline whose ranks have several */
#include "lib/comm/flows.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* Goes before each message. */
struct head {
    int from, to; /* stages */
    uint64_t bytes;
};

/* A message that was not asked for yet, or room for one. */
struct kept {
    struct kept *next;
    struct head head;
    uint64_t cap;
    char *data;
};

struct stage_comm {
    struct comm comm;
    struct flows *flows;
};

struct flows {
    struct comm *pipe;
    int stages;
    int *rank_of;             /* [stages] */
    struct stage_comm *stage; /* [stages] */
    struct kept *first, *free;
    uint64_t bytes, most;
};

/* ---- what is kept ---- */

/* Room for a message, behind all others. */
static struct kept *keep(struct flows *f, struct head head, struct err *err)
{
    struct kept **link = &f->free, *k;

    while (*link && (*link)->cap < head.bytes)
        link = &(*link)->next;
    k = *link;
    if (k) {
        *link = k->next;
    } else {
        char *data = mem_alloc(head.bytes + 1, "a message", err);

        if (!data)
            return NULL;
        k = xcalloc(1, sizeof(*k));
        k->cap = head.bytes;
        k->data = data;
    }
    k->head = head;
    k->next = NULL;
    for (link = &f->first; *link; link = &(*link)->next)
        ;
    *link = k;
    f->bytes += head.bytes;
    f->most = f->bytes > f->most ? f->bytes : f->most;
    return k;
}

/* Takes the first message of FROM to TO, if there is one; its room is free. */
static struct kept *take(struct flows *f, int from, int to)
{
    struct kept **link = &f->first, *k;

    while (*link && ((*link)->head.from != from || (*link)->head.to != to))
        link = &(*link)->next;
    k = *link;
    if (!k)
        return NULL;
    *link = k->next;
    k->next = f->free;
    f->free = k;
    f->bytes -= k->head.bytes;
    return k;
}

static int refuse_size(struct head head, size_t bytes, struct err *err)
{
    return err_set(err, ERR_SYSTEM,
                   "stage %d sent %llu bytes where stage %d expects %zu", head.from,
                   (unsigned long long)head.bytes, head.to, bytes);
}

/* ---- a stage's communicator ---- */

static int no_group(struct err *err)
{
    return err_set(err, ERR_SYSTEM, "stages exchange messages alone");
}

static int stage_start(struct comm *c, const struct collective *op, struct err *err)
{
    (void)c;
    (void)op;
    return no_group(err);
}

static int stage_wait(struct comm *c, struct err *err)
{
    (void)c;
    return no_group(err);
}

static int stage_group(struct comm *c, const int *member, int n, struct comm **out,
                       struct err *err)
{
    (void)c;
    (void)member;
    (void)n;
    (void)out;
    return no_group(err);
}

static int stage_send(struct comm *c, const void *buf, size_t bytes, int to,
                      struct err *err)
{
    struct flows *f = ((struct stage_comm *)c)->flows;
    const struct head head = { c->rank, to, bytes };
    const int rank = f->rank_of[to];
    struct kept *k;

    if (rank != f->pipe->rank)
        return f->pipe->ops->send(f->pipe, &head, sizeof(head), rank, err) < 0 ||
                       f->pipe->ops->send(f->pipe, buf, bytes, rank, err) < 0
                   ? -1
                   : 0;
    k = keep(f, head, err);
    if (!k)
        return -1;
    memcpy(k->data, buf, bytes);
    return 0;
}

static int stage_receive(struct comm *c, void *buf, size_t bytes, int from,
                         struct err *err)
{
    struct flows *f = ((struct stage_comm *)c)->flows;
    const int rank = f->rank_of[from];
    struct kept *k = take(f, from, c->rank);

    while (!k) {
        struct head head;

        if (rank == f->pipe->rank)
            return err_set(err, ERR_SYSTEM, "stage %d has sent nothing to stage %d",
                           from, c->rank);
        if (f->pipe->ops->receive(f->pipe, &head, sizeof(head), rank, err) < 0)
            return -1;
        if (head.from == from && head.to == c->rank)
            return head.bytes != bytes
                       ? refuse_size(head, bytes, err)
                       : f->pipe->ops->receive(f->pipe, buf, bytes, rank, err);
        k = keep(f, head, err);
        if (!k ||
            f->pipe->ops->receive(f->pipe, k->data, (size_t)head.bytes, rank, err) < 0)
            return -1;
        k = NULL;
    }
    if (k->head.bytes != bytes)
        return refuse_size(k->head, bytes, err);
    memcpy(buf, k->data, bytes);
    return 0;
}

static int stage_flush(struct comm *c, struct err *err)
{
    struct comm *pipe = ((struct stage_comm *)c)->flows->pipe;

    return pipe->ops->flush(pipe, err);
}

static void stage_close(struct comm *c)
{
    (void)c; /* it is the flows' */
}

static const struct comm_ops comm_stage = {
    .name = "stages",
    .start = stage_start,
    .wait = stage_wait,
    .send = stage_send,
    .receive = stage_receive,
    .group = stage_group,
    .flush = stage_flush,
    .close = stage_close,
};

/* ---- opening ---- */

struct flows *flows_open(struct comm *pipe, const int *rank_of, int stages)
{
    struct flows *f = xcalloc(1, sizeof(*f));

    f->pipe = pipe;
    f->stages = stages;
    f->rank_of = xcalloc((size_t)stages, sizeof(*f->rank_of));
    memcpy(f->rank_of, rank_of, (size_t)stages * sizeof(*rank_of));
    f->stage = xcalloc((size_t)stages, sizeof(*f->stage));
    for (int s = 0; s < stages; s++)
        f->stage[s] = (struct stage_comm){
            .comm = { .ops = &comm_stage, .rank = s, .size = stages }, .flows = f
        };
    return f;
}

static void free_all(struct kept *k)
{
    while (k) {
        struct kept *next = k->next;

        free(k->data);
        free(k);
        k = next;
    }
}

void flows_close(struct flows *f)
{
    if (!f)
        return;
    free_all(f->first);
    free_all(f->free);
    free(f->rank_of);
    free(f->stage);
    free(f);
}

struct comm *flows_of(struct flows *f, int stage)
{
    return &f->stage[stage].comm;
}

uint64_t flows_kept(const struct flows *f)
{
    return f->most;
}
