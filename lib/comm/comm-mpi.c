/* comm-mpi - ranks that mpirun or srun has started */
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

enum {
    PIECE = 1 << 28, /* bytes of one call: MPI counts in ints */
    FEW = 4096,      /* numbers that all ranks sum for themselves */
    TAG = 1,
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

struct mpi_comm {
    struct comm comm;
    MPI_Comm mpi;
    struct parcel **parcels; /* of all groups of this process */
    struct rest *rest;       /* [size] by sender */
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

/* Release what has arrived. */
static int push(struct mpi_comm *c, struct err *err)
{
    for (struct parcel **link = c->parcels; *link;) {
        struct parcel *p = *link;
        int done = 0;

        if (check(&c->comm, MPI_Test(&p->request, &done, MPI_STATUS_IGNORE), "sending",
                  err) < 0)
            return -1;
        if (!done) {
            link = &p->next;
            continue;
        }
        *link = p->next;
        free(p);
    }
    return 0;
}

/* ---- collectives ---- */

static int gather(struct comm *c, const void *mine, void *all, size_t bytes,
                  struct err *err)
{
    size_t most = PIECE / (size_t)c->size;
    char *part = NULL;
    int ret = 0;

    if (push((struct mpi_comm *)c, err) < 0)
        return -1;
    if (bytes <= most)
        return check(c,
                     MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes,
                                   MPI_BYTE, mpi_of(c)),
                     "gathering", err);
    part = mem_alloc(most * (size_t)c->size, "a gathering", err);
    if (!part)
        return -1;
    for (size_t at = 0; at < bytes && ret == 0; at += most) {
        size_t n = bytes - at < most ? bytes - at : most;

        ret = check(c,
                    MPI_Allgather((const char *)mine + at, (int)n, MPI_BYTE, part,
                                  (int)n, MPI_BYTE, mpi_of(c)),
                    "gathering", err);
        for (int r = 0; r < c->size && ret == 0; r++)
            memcpy((char *)all + (size_t)r * bytes + at, part + (size_t)r * n, n);
    }
    free(part);
    return ret;
}

static int broadcast(struct comm *c, void *buf, size_t bytes, int root, struct err *err)
{
    if (push((struct mpi_comm *)c, err) < 0)
        return -1;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;

        if (check(c, MPI_Bcast((char *)buf + at, (int)n, MPI_BYTE, root, mpi_of(c)),
                  "broadcasting", err) < 0)
            return -1;
    }
    return 0;
}

/* x[n] = the sum, in rank order, of all[rank][n], numbers of SIZE bytes. */
static void add_up(void *x, const void *all, size_t n, size_t size, int ranks)
{
    memcpy(x, all, n * size);
    for (int r = 1; r < ranks; r++) {
        const char *from = (const char *)all + (size_t)r * n * size;

        for (size_t i = 0; i < n; i++)
            if (size == sizeof(float))
                ((float *)x)[i] += ((const float *)(const void *)from)[i];
            else
                ((double *)x)[i] += ((const double *)(const void *)from)[i];
    }
}

/* Few numbers: every rank sums all.  Many: each rank sums a part of the numbers, and
 * the sums are gathered, which moves the fewest bytes (Thakur et al. 2005). */
static int sum(struct comm *c, char *x, size_t n, size_t size, struct err *err)
{
    size_t ranks = (size_t)c->size, each = (n + ranks - 1) / ranks;
    bool few = n <= FEW;
    size_t part = few ? n : each, bytes = part * size;
    char *all = mem_alloc(ranks * bytes * 2 + 1, "a sum", err), *padded = all;
    int ret = -1;

    if (!all)
        return -1;
    if (few) {
        if (gather(c, x, all, bytes, err) == 0) {
            add_up(x, all, n, size, c->size);
            ret = 0;
        }
        goto out;
    }
    padded = all + ranks * bytes;
    memcpy(padded, x, n * size);
    memset(padded + n * size, 0, (ranks * each - n) * size);
    if (check(c,
              MPI_Alltoall(padded, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                           mpi_of(c)),
              "summing", err) < 0)
        goto out;
    add_up(padded, all, each, size, c->size);
    if (gather(c, padded, all, bytes, err) < 0)
        goto out;
    memcpy(x, all, n * size);
    ret = 0;
out:
    free(all);
    return ret;
}

/* In pieces whose parts MPI can count. */
static int sum_all(struct comm *c, char *x, size_t n, size_t size, struct err *err)
{
    size_t most = PIECE / size;

    for (size_t at = 0; at < n; at += most)
        if (sum(c, x + at * size, n - at < most ? n - at : most, size, err) < 0)
            return -1;
    return 0;
}

static int sum_f32(struct comm *c, float *x, size_t n, struct err *err)
{
    return sum_all(c, (char *)x, n, sizeof(*x), err);
}

static int sum_f64(struct comm *c, double *x, size_t n, struct err *err)
{
    return sum_all(c, (char *)x, n, sizeof(*x), err);
}

/* ---- messages ---- */

static int send(struct comm *comm, const void *buf, size_t bytes, int to,
                struct err *err)
{
    struct mpi_comm *c = (struct mpi_comm *)comm;

    if (push(c, err) < 0)
        return -1;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        struct parcel *p = mem_alloc(sizeof(*p) + n, "a message", err);

        if (!p)
            return -1;
        memcpy(p->data, (const char *)buf + at, n);
        if (check(comm,
                  MPI_Isend(p->data, (int)n, MPI_BYTE, to, TAG, c->mpi, &p->request),
                  "sending", err) < 0) {
            free(p);
            return -1;
        }
        p->next = *c->parcels;
        *c->parcels = p;
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
        if (check(&c->comm, MPI_Improbe(from, TAG, c->mpi, &there, &message, &status),
                  "receiving", err) < 0 ||
            (*c->parcels && push(c, err) < 0))
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

    while (*c->parcels)
        if (push(c, err) < 0)
            return -1;
    return 0;
}

/* ---- groups ---- */

static int group(struct comm *comm, const int *member, int n, struct comm **out,
                 struct err *err);

static void close_comm(struct comm *comm)
{
    struct mpi_comm *c = (struct mpi_comm *)comm;

    for (int r = 0; r < comm->size; r++)
        free(c->rest[r].data);
    free(c->rest);
    if (c->world)
        free(c->parcels);
    else
        MPI_Comm_free(&c->mpi);
    free(c);
}

static const struct comm_ops comm_mpi = {
    .name = "mpi",
    .sum_f32 = sum_f32,
    .sum_f64 = sum_f64,
    .gather = gather,
    .broadcast = broadcast,
    .send = send,
    .receive = receive,
    .group = group,
    .flush = flush,
    .close = close_comm,
};

static struct mpi_comm *open_comm(MPI_Comm mpi, struct parcel **parcels)
{
    struct mpi_comm *c = xcalloc(1, sizeof(*c));

    c->comm.ops = &comm_mpi;
    c->mpi = mpi;
    c->parcels = parcels;
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
    *out = &open_comm(mpi, c->parcels)->comm;
    return 0;
}

int mpi_open(struct comm **world, struct err *err)
{
    struct mpi_comm *c;
    int level;

    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return err_set(err, ERR_SYSTEM, "MPI does not start");
    c = open_comm(MPI_COMM_WORLD, xcalloc(1, sizeof(struct parcel *)));
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

int mpi_local_ranks(const struct comm *world)
{
    MPI_Comm local;
    int n = 1;

    if (MPI_Comm_split_type(mpi_of(world), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                            &local) == MPI_SUCCESS) {
        MPI_Comm_size(local, &n);
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

int mpi_local_ranks(const struct comm *world)
{
    (void)world;
    return 1;
}

void mpi_abort(int status)
{
    _Exit(status);
}
#endif
