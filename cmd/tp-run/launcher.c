/* launcher - starts the ranks, or joins those that another launcher has started */
#define _GNU_SOURCE
#include "cmd/tp-run/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/hash.h"
#include "lib/base/mem.h"
#include "lib/base/sha256.h"
#include "lib/base/str.h"
#include "lib/comm/mpi.h"
#include "lib/comm/tcp.h"

/* Variables that launchers with MPI support set for each rank: Open MPI; MPICH and
 * Slurm's pmi2; PMIx, in Slurm and others. */
static bool has_mpi_launcher(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_RANK") || getenv("PMIX_RANK");
}

/* The number in the first environment variable of NAME that is set; else OTHERWISE. */
static int number_of(const char *const *name, int otherwise)
{
    for (; *name; name++) {
        const char *text = getenv(*name);
        uint64_t n;

        if (text && str_u64(text, &n) && n <= INT32_MAX)
            return (int)n;
    }
    return otherwise;
}

/* Number of tasks that the launcher started, and the index of this task, if it sets
 * them. */
static int started(void)
{
    static const char *const size[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                        "SLURM_STEP_NUM_TASKS", NULL };

    return number_of(size, 1);
}

static int own_number(void)
{
    static const char *const rank[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                        "SLURM_PROCID", NULL };

    return number_of(rank, 0);
}

/* Redirects standard output and error to /dev/null; returns a copy of standard
 * error. */
static int keep_quiet(void)
{
    int was = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3),
        null = open("/dev/null", O_WRONLY);

    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        close(null);
    }
    return was;
}

/* ---- ranks that variables number: torchrun's and others' ---- */

/* Who has set the variables, for messages. */
struct origin {
    const char *before, *after;
    bool torchrun; /* which sets all of them */
};

static const struct origin torchrun = { "--launcher torchrun: ", "", true };
static const struct origin named = { "--launcher env: ", "", false };
static const struct origin found = {
    "RANK or WORLD_SIZE asks for ranks of another launcher, but ",
    " (--launcher local ignores these variables)", false
};

/* A rank as the variables describe it. */
struct joining {
    const struct origin *by;
    int rank, size;
    int local, here; /* index on its machine, or -1; ranks there, or 0: unknown */
    int port;
    const char *host;
};

static const char *const rank_names[] = { "RANK", NULL };
static const char *const size_names[] = { "WORLD_SIZE", NULL };
static const char *const local_names[] = { "LOCAL_RANK", NULL };
/* torchrun's name and DeepSpeed's */
static const char *const here_names[] = { "LOCAL_WORLD_SIZE", "LOCAL_SIZE", NULL };
static const char *const port_names[] = { "MASTER_PORT", NULL };

/* Has torchrun started several ranks?  A single one starts its ranks itself. */
static bool has_torchrun(void)
{
    return getenv("TORCHELASTIC_RUN_ID") && getenv("RANK") &&
           number_of(size_names, 1) > 1;
}

/* Is this one of several processes?  A single one, as in a notebook or a container that
 * exports RANK and WORLD_SIZE, starts its ranks itself. */
static bool is_numbered(void)
{
    int rank = number_of(rank_names, -1), size = number_of(size_names, -1);

    if (size >= 1)
        return size > 1 || rank > 0;
    return rank > 0 || (rank == 0 && getenv("WORLD_SIZE"));
}

/* Reads the first variable of NAMES that is set.  *out stays as it is where none is,
 * unless one MUST be set. */
static int read_number(const struct origin *by, const char *const *names, bool must,
                       int *out, struct err *err)
{
    const char *text = NULL;
    uint64_t n;

    for (; *names && !(text = getenv(*names)) && names[1]; names++)
        ;
    if (!text)
        return must ? err_set(err, ERR_USAGE, "%s%s is not set%s", by->before, *names,
                              by->after)
                    : 0;
    if (!str_u64(text, &n) || n > INT32_MAX)
        return err_set(err, ERR_USAGE, "%s%s is '%.40s', not a number%s", by->before,
                       *names, text, by->after);
    *out = (int)n;
    return 0;
}

/* Fails unless IS_SO, for the two variables contradict each other. */
static int agree(const struct origin *by, bool is_so, const char *name, int n,
                 const char *other_name, int other, struct err *err)
{
    return is_so ? 0
                 : err_set(err, ERR_USAGE, "%s%s is %d and %s is %d%s", by->before,
                           name, n, other_name, other, by->after);
}

/* The number of ranks, and this one's. */
static int read_ranks(struct joining *j, struct err *err)
{
    const struct origin *by = j->by;

    if (read_number(by, rank_names, true, &j->rank, err) < 0 ||
        read_number(by, size_names, true, &j->size, err) < 0 ||
        agree(by, j->rank < j->size, "RANK", j->rank, "WORLD_SIZE", j->size, err) < 0 ||
        read_number(by, local_names, by->torchrun, &j->local, err) < 0 ||
        read_number(by, here_names, by->torchrun, &j->here, err) < 0)
        return -1;
    if (j->size == 1 && !j->here) /* no other process is asked for */
        j->here = 1;
    return agree(by, !j->here || j->local < j->here, "LOCAL_RANK", j->local,
                 "LOCAL_WORLD_SIZE", j->here, err) < 0
               ? -1
               : agree(by, j->here <= j->size, "LOCAL_WORLD_SIZE", j->here,
                       "WORLD_SIZE", j->size, err);
}

/* Where they meet. */
static int read_address(struct joining *j, struct err *err)
{
    const struct origin *by = j->by;

    if (by->torchrun && j->here == j->size) /* on one machine; no address is needed */
        return 0;
    j->host = getenv("MASTER_ADDR");
    if (!j->host || !*j->host)
        return err_set(err, ERR_USAGE, "%sMASTER_ADDR is not set%s", by->before,
                       by->after);
    if (read_number(by, port_names, true, &j->port, err) < 0)
        return -1;
    if (j->port < 1 || j->port > 65534)
        return err_set(err, ERR_USAGE,
                       "%sMASTER_PORT is %d: 1 to 65534 can be, because the ranks meet "
                       "on the next port%s",
                       by->before, j->port, by->after);
    return 0;
}

/* What processes have in common that share this machine's memory, and its devices. */
struct machine {
    unsigned char id[SHA256_BYTES];
};

static struct machine this_machine(void)
{
    char boot[64] = "", net[64] = "", name[256] = "";
    FILE *fp = fopen("/proc/sys/kernel/random/boot_id", "re");
    struct machine m;
    struct sha256 s;

    if (fp) {
        (void)!fgets(boot, sizeof(boot), fp);
        fclose(fp);
    }
    /* a container of its own network is a machine of its own */
    (void)!readlink("/proc/self/ns/net", net, sizeof(net) - 1);
    (void)!gethostname(name, sizeof(name) - 1);
    sha256_init(&s);
    sha256_add(&s, boot, sizeof(boot));
    sha256_add(&s, net, sizeof(net));
    sha256_add(&s, name, sizeof(name));
    sha256_end(&s, m.id);
    return m;
}

/* Finds what the variables may not say: the ranks on this machine, and this one's index
 * among them. */
static int find_neighbours(struct launcher *l, struct err *err)
{
    struct machine mine = this_machine(), *all;
    int rank = l->world->rank, below = 0, here = 0, ret;

    all = xcalloc((size_t)l->world->size, sizeof(*all));
    ret = comm_run(l->world, comm_all_gather(&mine, all, sizeof(mine)), err);
    for (int r = 0; r < l->world->size; r++)
        if (!memcmp(&all[r], &mine, sizeof(mine))) {
            here++;
            below += r < rank;
        }
    free(all);
    if (ret < 0)
        return -1;
    l->here = l->here ? l->here : here;
    l->local = l->local >= 0 ? l->local : below;
    return 0;
}

/* On several machines the ranks find each other on the port after MASTER_PORT, where
 * torchrun's own store listens. */
static int meet_afar(struct launcher *l, const struct joining *j, int timeout_s,
                     struct err *err)
{
    const char *run = getenv("TORCHELASTIC_RUN_ID"),
               *again = getenv("TORCHELASTIC_RESTART_COUNT"),
               *secret = getenv("SHARDUTILS_JOB_SECRET");
    char job[TCP_JOB];
    struct tcp_meeting m = { .host = j->host,
                             .port = j->port + 1,
                             .job = job,
                             .secret = secret,
                             .rank = j->rank,
                             .nranks = j->size,
                             .limit_s = timeout_s };

    if (secret && !*secret)
        return err_set(err, ERR_USAGE, "SHARDUTILS_JOB_SECRET is empty");
    run = run ? run : "";
    snprintf(job, sizeof(job), "%d-%.8s-%08x-%.120s", m.port, again ? again : "0",
             (unsigned)hash_crc32(0, run, strlen(run)), run);
    if (tcp_meet(&l->world, &m, err) < 0)
        return -1;
    return find_neighbours(l, err);
}

/* On one machine they find each other by the name of their run, to which MASTER_PORT
 * only contributes. */
static int meet_here(struct launcher *l, const struct joining *j, int timeout_s,
                     struct err *err)
{
    const char *run = getenv("TORCHELASTIC_RUN_ID"), *port = getenv("MASTER_PORT"),
               *again = getenv("TORCHELASTIC_RESTART_COUNT");
    char name[64];

    run = run ? run : "";
    snprintf(name, sizeof(name), "%.8s-%08x-%.8s", port ? port : "0",
             (unsigned)hash_crc32(0, run, strlen(run)), again ? again : "0");
    if (shm_meet(&l->shm, name, j->rank, j->size, timeout_s, err) < 0)
        return -1;
    l->world = comm_shm_open(l->shm, j->rank);
    return 0;
}

static int meet(struct launcher *l, const struct origin *by, int timeout_s,
                struct err *err)
{
    struct joining j = { .by = by, .local = -1 };

    if (read_ranks(&j, err) < 0 || read_address(&j, err) < 0)
        return -1;
    if (j.rank > 0)
        l->err_fd = keep_quiet();
    l->joined = true;
    l->local = j.local;
    l->here = j.here;
    if ((j.here == j.size ? meet_here : meet_afar)(l, &j, timeout_s, err) < 0) {
        /* why this rank is refused, and one line of each machine why none has met */
        if (l->err_fd >= 0 && (err->kind != ERR_SYSTEM || l->local <= 0))
            dup2(l->err_fd, STDERR_FILENO);
        return -1;
    }
    l->local = l->local < 0 ? j.rank : l->local; /* all are on this machine */
    cmd_leave_signals(); /* the launcher ends the other ranks when one fails */
    return 0;
}

bool launcher_is_crowded(const struct launcher *l)
{
    enum { MANY = 64 };

    return l->joined && l->world && !l->shm && l->world->size > MANY;
}

/* ---- opening ---- */

static int open_mpi(struct launcher *l, struct err *err)
{
    if (mpi_open(&l->world, err) < 0)
        return -1;
    /* mpirun ends the other ranks when one fails, and reports it */
    cmd_leave_signals();
    if (l->world->size < started()) {
        if (own_number() > 0)
            keep_quiet();
        return err_set(err, ERR_INPUT,
                       "%d tasks have been started, and MPI knows %d: their launcher "
                       "and this MPI do not go together",
                       started(), l->world->size);
    }
    if (l->world->rank > 0)
        l->err_fd = keep_quiet();
    return 0;
}

int launcher_open(struct launcher *l, const char *name, int timeout_s, struct err *err)
{
    bool automatic = !name || !strcmp(name, "auto"),
         torch = automatic ? has_torchrun() : !strcmp(name, "torchrun"),
         numbered = automatic ? is_numbered() : !strcmp(name, "env");

    *l = (struct launcher){ .err_fd = -1, .timeout_s = timeout_s };
    if (!automatic && strcmp(name, "local") != 0 && strcmp(name, "mpi") != 0 &&
        !torch && !numbered)
        return err_set(
            err, ERR_USAGE,
            "--launcher: expected auto, local, mpi, torchrun or env, not '%s'", name);
    /* srun can start several tasks without PMI; then they do not know each other */
    if (automatic && !has_mpi_launcher() && started() > 1 && !getenv("RANK")) {
        if (own_number() > 0)
            keep_quiet();
        return err_set(err, ERR_INPUT,
                       "srun has started tasks that do not know one another: add "
                       "--mpi=pmix to srun, or --launcher local here");
    }
    if (torch) /* also within tasks of srun, which may have set MPI's variables */
        return meet(l, &torchrun, timeout_s, err);
    if (automatic ? has_mpi_launcher() : !strcmp(name, "mpi"))
        return open_mpi(l, err);
    return numbered ? meet(l, automatic ? &found : &named, timeout_s, err) : 0;
}

/* the signal handler's variables; asked: NULL before and after the run */
static struct launcher_stop *volatile asked;
static struct timespec asked_at;

void launcher_close(struct launcher *l)
{
    if (l->joined && l->world)
        l->world->ops->close(l->world);
    else
        mpi_close(l->world);
    shm_close_group(l->shm);
    asked = NULL;
    if (l->stop)
        munmap(l->stop, sizeof(*l->stop));
    if (l->err_fd >= 0)
        close(l->err_fd);
}

bool launcher_is_front(const struct launcher *l)
{
    return !l->world || l->world->rank == 0;
}

int launcher_local_ranks(const struct launcher *l, int nranks, int *own)
{
    *own = l->joined ? l->local : -1;
    if (l->world && l->joined)
        return l->here;
    return l->world ? mpi_local_ranks(l->world, own) : nranks;
}

/* ---- agreement of all ranks ---- */

struct outcome {
    int ret;
    struct err err;
};

int launcher_agree(const struct launcher *l, int ret, struct err *err)
{
    struct comm *c = l->world;
    struct outcome mine = { .ret = ret }, *all;

    if (!c)
        return ret;
    if (ret < 0)
        mine.err = *err;
    all = xcalloc((size_t)c->size, sizeof(*all));
    if (comm_run(c, comm_all_gather(&mine, all, sizeof(mine)), err) < 0) {
        free(all);
        return -1;
    }
    ret = 0;
    for (int r = 0; r < c->size && ret == 0; r++) {
        ret = all[r].ret;
        if (ret < 0)
            *err = all[r].err;
    }
    free(all);
    return ret;
}

int launcher_same(const struct launcher *l, const void *p, size_t n, const char *what,
                  struct err *err)
{
    struct comm *c = l->world;
    uint32_t mine = hash_crc32(0, p, n), *all;
    int ret = 0;

    if (!c)
        return 0;
    all = xcalloc((size_t)c->size, sizeof(*all));
    ret = comm_run(c, comm_all_gather(&mine, all, sizeof(mine)), err);
    for (int r = 1; r < c->size && ret == 0; r++)
        if (all[r] != all[0])
            ret =
                err_set(err, ERR_INPUT, "rank %d has another %s than rank 0", r, what);
    free(all);
    return ret;
}

/* ---- running ---- */

static void wait_ms(long ms)
{
    struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

    nanosleep(&t, NULL);
}

/* Has another rank failed, which reports why? */
static bool is_aborted(const struct launcher *l)
{
    return l->joined && (l->shm ? shm_is_aborted(l->shm) : tcp_is_aborted(l->world));
}

/* Ends the other ranks, which may wait for this one forever.  If several fail at once,
 * the lowest rank reports the error. */
static void fail(const struct launcher *l, const struct cmd *cmd, const struct err *err)
{
    int rank = l->world->rank, status;

    if (is_aborted(l))
        _Exit((int)err->kind);
    if (rank > 0) {
        wait_ms(rank < 8 ? 100 * rank : 800);
        if (l->err_fd >= 0)
            dup2(l->err_fd, STDERR_FILENO);
    }
    fflush(stdout);
    if (rank > 0 && is_aborted(l))
        _Exit((int)err->kind);
    status = cmd_fail(cmd, err);
    if (!l->joined)
        mpi_abort(status);
    if (l->shm)
        shm_abort(l->shm);
    else
        tcp_abort(l->world);
    _Exit(status);
}

/* ---- requests to end ---- */

static void hear(int sig)
{
    struct timespec now;

    if (!asked) /* the run is over, and its status stands */
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!asked->signal) {
        asked_at = now;
        asked->signal = sig;
        return;
    }
    if ((now.tv_sec - asked_at.tv_sec) * 1000 +
            (now.tv_nsec - asked_at.tv_nsec) / 1000000 <
        LAUNCH_AGAIN_MS)
        return;
    signal(sig, SIG_DFL);
    raise(sig);
}

/* oneDNN's kernels point the stack pointer at memory from malloc, so signal handlers
 * need a stack of their own. */
int launcher_signal_stack(struct err *err)
{
    enum { SIZE = 1 << 16 };
    static char room[SIZE];
    const stack_t stack = { .ss_sp = room, .ss_size = SIZE };

    return sigaltstack(&stack, NULL) < 0 ? err_errno(err, "a stack for signals") : 0;
}

int launcher_ask(struct launcher *l, struct err *err)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGUSR1 };
    void *p = mmap(NULL, sizeof(*l->stop), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return err_errno(err, "shared memory");
    if (launcher_signal_stack(err) < 0) {
        munmap(p, sizeof(*l->stop));
        return -1;
    }
    l->stop = asked = p;
    *l->stop = (struct launcher_stop){ 0 };
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        struct sigaction was,
            act = { .sa_handler = hear, .sa_flags = SA_RESTART | SA_ONSTACK };

        if (sigaction(signals[i], NULL, &was) < 0 || was.sa_handler == SIG_IGN)
            continue;
        sigemptyset(&act.sa_mask);
        sigaction(signals[i], &act, NULL);
    }
    return 0;
}

static void count_hangup(int sig)
{
    (void)sig;
    if (asked)
        asked->hangups++;
}

void launcher_hear_hangups(struct launcher *l)
{
    struct sigaction was,
        act = { .sa_handler = count_hangup, .sa_flags = SA_RESTART | SA_ONSTACK };

    if (sigaction(SIGHUP, NULL, &was) < 0 || was.sa_handler == SIG_IGN)
        return;
    sigemptyset(&act.sa_mask);
    sigaction(SIGHUP, &act, NULL);
    l->hangups = true;
}

/* Exit status of ranks that ended without an error. */
static int ended(const struct launcher *l)
{
    return l->stop && l->stop->obeyed ? 128 + l->stop->obeyed : 0;
}

int launcher_run(struct launcher *l, const struct cmd *cmd, int nranks, rank_main main,
                 void *arg)
{
    struct err err = { 0 };
    const struct launch how = { .timeout_s = l->timeout_s,
                                .stop = l->stop ? &l->stop->signal : NULL,
                                .hangups = l->hangups ? &l->stop->hangups : NULL,
                                .interrupts = l->interrupts };
    int sig, status;

    fflush(stdout);
    if (!l->world) {
        if (launch_ranks_as(&how, nranks, main, arg, &sig, &err) == 0)
            return cmd_finish(cmd, ended(l));
        status = sig == SIGPIPE ? 0 : cmd_fail(cmd, &err);
        return sig ? 128 + sig : status;
    }
    if (l->world->size != nranks) {
        err_set(&err, ERR_INPUT, "%d ranks have been started for a layout of %d",
                l->world->size, nranks);
        return cmd_fail(cmd, &err);
    }
    if (main(arg, l->world, &err) < 0 || l->world->ops->flush(l->world, &err) < 0)
        fail(l, cmd, &err);
    return cmd_finish(cmd, ended(l));
}
