/* comm-mpi - ranks that mpirun or srun has started
 *
 * Collectives are messages that do not block; MPI moves them on whenever this rank
 * calls it.  Only sums have something left to do when they are waited for. */
#include "config.h"

#include "lib/comm/mpi.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_MPI
#include <mpi.h>

#include "lib/base/mem.h"
#include "lib/comm/collective.h"
#include "lib/comm/pairwise.h"

enum {
    PIECE = 1 << 28, /* bytes of one call: MPI counts in ints */
    /* tags: messages; and from COLLECTIVES on the channels of pairwise.h */
    MESSAGES = 1,
    COLLECTIVES,
};

/* A message on its way; its bytes are kept until MPI has taken them. */
struct parcel {
    struct parcel *next;
    MPI_Request request;
    char data[];
};

/* The rest of a message that was received in smaller pieces. */
struct rest {
    char *data;
    size_t at, n;
};

/* A collective under way. */
struct flight {
    struct flight *next; /* a younger one */
    struct collective op;
    MPI_Request *request; /* [nrequests] */
    int nrequests;
    size_t cap;
    char *part;  /* [size] by sender: what this rank sums */
    bool summed; /* or nothing is to be summed; REQUEST is of what follows */
};

/* What the groups of this process share. */
struct process {
    struct parcel *parcels; /* messages */
    struct mpi_comm *groups;
    size_t under_way; /* collectives */
};

struct mpi_comm {
    struct comm comm;
    struct mpi_comm *next; /* of the process's */
    struct process *process;
    struct flight *flights; /* oldest first */
    MPI_Comm mpi;
    struct rest *rest; /* [size] by sender */
    bool world;
};

static MPI_Comm mpi_of(const struct comm *c)
{
    return ((const struct mpi_comm *)c)->mpi;
}

/* RET of an MPI call as an error. */
static int check(const struct comm *c, int ret, const char *what, struct err *err)
{
    char text[MPI_MAX_ERROR_STRING];
    int len;

    if (ret == MPI_SUCCESS)
        return 0;
    MPI_Error_string(ret, text, &len);
    return err_set(err, ERR_SYSTEM, "rank %d: %s: %s", c->rank, what, text);
}

/* ---- collectives: every rank sends each other rank its part ---- */

/* Start to receive, or to send, buf[bytes] in pieces that MPI can count.  Messages
 * between two ranks under one tag arrive in the order in which they were sent. */
static int post(const struct pairwise *pair, bool sends, enum pairwise_channel channel,
                void *buf, size_t bytes, int rank, struct err *err)
{
    const struct mpi_comm *c = (const struct mpi_comm *)pair->comm;
    struct flight *f = pair->flight;
    int tag = COLLECTIVES + (int)channel;

    for (size_t at = 0; at < bytes; at += PIECE) {
        int n = (int)(bytes - at < PIECE ? bytes - at : PIECE);
        char *p = (char *)buf + at;
        MPI_Request *r;

        f->request =
            xgrow(f->request, &f->cap, (size_t)f->nrequests + 1, sizeof(*f->request));
        r = &f->request[f->nrequests];
        if (check(&c->comm,
                  sends ? MPI_Isend(p, n, MPI_BYTE, rank, tag, c->mpi, r)
                        : MPI_Irecv(p, n, MPI_BYTE, rank, tag, c->mpi, r),
                  "exchanging", err) < 0)
            return -1;
        f->nrequests++;
    }
    return 0;
}

static struct pairwise pairwise_of(struct mpi_comm *c, struct flight *f)
{
    return (struct pairwise){ &c->comm, &f->op, &f->part, post, f };
}

static int start_broadcast(struct mpi_comm *c, struct flight *f, struct err *err)
{
    for (size_t at = 0; at < f->op.n; at += PIECE) {
        size_t n = f->op.n - at < PIECE ? f->op.n - at : PIECE;

        f->request =
            xgrow(f->request, &f->cap, (size_t)f->nrequests + 1, sizeof(*f->request));
        if (check(&c->comm,
                  MPI_Ibcast((char *)f->op.to + at, (int)n, MPI_BYTE, f->op.root,
                             c->mpi, &f->request[f->nrequests]),
                  "broadcasting", err) < 0)
            return -1;
        f->nrequests++;
    }
    return 0;
}

/* ---- moving on ---- */

/* See how far F is, and wait for its requests where WAITS. */
static int step(struct mpi_comm *c, struct flight *f, bool waits, bool *done,
                struct err *err)
{
    struct pairwise pair = pairwise_of(c, f);
    int all = 1;

    if (check(&c->comm,
              waits ? MPI_Waitall(f->nrequests, f->request, MPI_STATUSES_IGNORE)
                    : MPI_Testall(f->nrequests, f->request, &all, MPI_STATUSES_IGNORE),
              "exchanging", err) < 0)
        return -1;
    *done = all && f->summed;
    if (!all || f->summed)
        return 0;
    f->nrequests = 0;
    f->summed = true;
    if (f->part && pairwise_sum(&pair, err) < 0)
        return -1;
    *done = f->nrequests == 0;
    return 0;
}

/* Release buffers that have been sent, and sum those that have arrived, in the order in
 * which the operations were started, as the other ranks do. */
static int push(struct process *p, struct err *err)
{
    for (struct parcel **link = &p->parcels; *link;) {
        struct parcel *parcel = *link;
        int done = 0;

        if (check(&p->groups->comm,
                  MPI_Test(&parcel->request, &done, MPI_STATUS_IGNORE), "sending",
                  err) < 0)
            return -1;
        if (!done) {
            link = &parcel->next;
            continue;
        }
        *link = parcel->next;
        free(parcel);
    }
    for (struct mpi_comm *c = p->groups; c; c = c->next) {
        bool done;

        for (struct flight *f = c->flights; f; f = f->next) {
            if (!f->summed && step(c, f, false, &done, err) < 0)
                return -1;
            if (!f->summed)
                break;
        }
    }
    return 0;
}

static bool is_busy(const struct process *p)
{
    return p->parcels || p->under_way;
}

static int start(struct comm *comm, const struct collective *op, struct err *err)
{
    struct mpi_comm *c = (struct mpi_comm *)comm;
    struct flight *f, **link = &c->flights;
    struct pairwise pair;

    if (is_busy(c->process) && push(c->process, err) < 0)
        return -1;
    f = xcalloc(1, sizeof(*f));
    f->op = *op;
    while (*link)
        link = &(*link)->next;
    *link = f;
    c->process->under_way++;
    if (comm->size == 1) {
        collective_alone(op);
        return 0;
    }
    pair = pairwise_of(c, f);
    return op->kind == COMM_BROADCAST ? start_broadcast(c, f, err)
                                      : pairwise_start(&pair, err);
}

static int wait_oldest(struct comm *comm, struct err *err)
{
    struct mpi_comm *c = (struct mpi_comm *)comm;
    struct process *p = c->process;
    struct flight *f = c->flights;
    bool waits = p->under_way == 1, done = false; /* else others may wait for those */

    while (!done)
        if (step(c, f, waits, &done, err) < 0 || (!waits && push(p, err) < 0))
            return -1;
    p->under_way--;
    c->flights = f->next;
    free(f->request);
    free(f->part);
    free(f);
    return 0;
}

/* ---- messages ---- */

static int send(struct comm *comm, const void *buf, size_t bytes, int to,
                struct err *err)
{
    struct mpi_comm *c = (struct mpi_comm *)comm;

    if (push(c->process, err) < 0)
        return -1;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        struct parcel *p = mem_alloc(sizeof(*p) + n, "a message", err);

        if (!p)
            return -1;
        memcpy(p->data, (const char *)buf + at, n);
        if (check(
                comm,
                MPI_Isend(p->data, (int)n, MPI_BYTE, to, MESSAGES, c->mpi, &p->request),
                "sending", err) < 0) {
            free(p);
            return -1;
        }
        p->next = c->process->parcels;
        c->process->parcels = p;
    }
    return 0;
}

/* The next message of rank FROM: to BUF when it is not longer than the BYTES wanted,
 * else it is kept. *got bytes are in BUF. */
static int take_message(struct mpi_comm *c, char *buf, size_t bytes, int from,
                        size_t *got, struct err *err)
{
    struct rest *rest = &c->rest[from];
    MPI_Message message;
    MPI_Status status;
    int n, there = 0;

    while (!there) /* what was sent goes on its way meanwhile */
        if (check(&c->comm,
                  MPI_Improbe(from, MESSAGES, c->mpi, &there, &message, &status),
                  "receiving", err) < 0 ||
            (is_busy(c->process) && push(c->process, err) < 0))
            return -1;
    MPI_Get_count(&status, MPI_BYTE, &n);
    *got = (size_t)n <= bytes ? (size_t)n : 0;
    if ((size_t)n > bytes) {
        rest->data = mem_alloc((uint64_t)n, "a message", err);
        if (!rest->data)
            return -1;
        rest->n = (size_t)n;
        rest->at = 0;
        buf = rest->data;
    }
    return check(&c->comm, MPI_Mrecv(buf, n, MPI_BYTE, &message, MPI_STATUS_IGNORE),
                 "receiving", err);
}

static int receive(struct comm *comm, void *buf, size_t bytes, int from,
                   struct err *err)
{
    struct mpi_comm *c = (struct mpi_comm *)comm;
    struct rest *rest = &c->rest[from];
    size_t done = 0, n;

    while (done < bytes) {
        if (!rest->data) {
            if (take_message(c, (char *)buf + done, bytes - done, from, &n, err) < 0)
                return -1;
            done += n;
            continue;
        }
        n = rest->n - rest->at < bytes - done ? rest->n - rest->at : bytes - done;
        memcpy((char *)buf + done, rest->data + rest->at, n);
        rest->at += n;
        done += n;
        if (rest->at == rest->n) {
            free(rest->data);
            *rest = (struct rest){ 0 };
        }
    }
    return 0;
}

static int flush(struct comm *comm, struct err *err)
{
    struct mpi_comm *c = (struct mpi_comm *)comm;

    while (c->process->parcels)
        if (push(c->process, err) < 0)
            return -1;
    return 0;
}

/* ---- groups ---- */

static int group(struct comm *comm, const int *member, int n, struct comm **out,
                 struct err *err);

static void close_comm(struct comm *comm)
{
    struct mpi_comm *c = (struct mpi_comm *)comm, **link = &c->process->groups;

    /* what is under way stays: MPI may still write to it */
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    for (int r = 0; r < comm->size; r++)
        free(c->rest[r].data);
    free(c->rest);
    if (c->world)
        free(c->process);
    else
        MPI_Comm_free(&c->mpi);
    free(c);
}

static const struct comm_ops comm_mpi = {
    .name = "mpi",
    .start = start,
    .wait = wait_oldest,
    .send = send,
    .receive = receive,
    .group = group,
    .flush = flush,
    .close = close_comm,
};

static struct mpi_comm *open_comm(MPI_Comm mpi, struct process *process)
{
    struct mpi_comm *c = xcalloc(1, sizeof(*c));

    c->comm.ops = &comm_mpi;
    c->mpi = mpi;
    c->process = process;
    c->next = process->groups;
    process->groups = c;
    MPI_Comm_rank(mpi, &c->comm.rank);
    MPI_Comm_size(mpi, &c->comm.size);
    MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
    c->rest = xcalloc((size_t)c->comm.size, sizeof(*c->rest));
    return c;
}

static int group(struct comm *comm, const int *member, int n, struct comm **out,
                 struct err *err)
{
    struct mpi_comm *c = (struct mpi_comm *)comm;
    MPI_Comm mpi;

    (void)n; /* the groups are disjoint, so the first member names each */
    if (check(comm, MPI_Comm_split(c->mpi, member[0], comm->rank, &mpi),
              "making a group", err) < 0)
        return -1;
    *out = &open_comm(mpi, c->process)->comm;
    return 0;
}

int mpi_open(struct comm **world, struct err *err)
{
    struct mpi_comm *c;
    int level;

    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return err_set(err, ERR_SYSTEM, "MPI does not start");
    c = open_comm(MPI_COMM_WORLD, xcalloc(1, sizeof(struct process)));
    c->world = true;
    *world = &c->comm;
    return 0;
}

void mpi_close(struct comm *world)
{
    if (!world)
        return;
    world->ops->close(world);
    MPI_Finalize();
}

int mpi_local_ranks(const struct comm *world, int *own)
{
    MPI_Comm local;
    int n = 1;

    *own = 0;
    if (MPI_Comm_split_type(mpi_of(world), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                            &local) == MPI_SUCCESS) {
        MPI_Comm_size(local, &n);
        MPI_Comm_rank(local, own);
        MPI_Comm_free(&local);
    }
    return n;
}

void mpi_abort(int status)
{
    MPI_Abort(MPI_COMM_WORLD, status);
    _Exit(status);
}

#else

int mpi_open(struct comm **world, struct err *err)
{
    (void)world;
    return err_set(err, ERR_SYSTEM, "this tp-run was built without MPI");
}

void mpi_close(struct comm *world)
{
    (void)world;
}

int mpi_local_ranks(const struct comm *world, int *own)
{
    (void)world;
    *own = 0;
    return 1;
}

void mpi_abort(int status)
{
    _Exit(status);
}
#endif
