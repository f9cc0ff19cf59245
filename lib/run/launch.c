/* launch - starts the ranks as processes on this machine */
#define _GNU_SOURCE
#include "lib/run/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/mem.h"

enum { GRACE_MS = 1500 }; /* between SIGTERM and SIGKILL */

struct group {
    pid_t *pid; /* [n]; 0 when it has ended */
    int n, alive;
    int report[2]; /* pipe: a failing rank writes its struct err */
    struct shm *shm;
    bool pipe_closed; /* a rank got SIGPIPE: the reader of its output is gone */
    int *stopped_s;   /* [n] seconds a rank has been seen stopped; -1: it runs */
    long asked_ms;    /* when the request to end arrived */
    struct launch how;
};

/* ---- the rank's side ---- */

static int rank_process(struct group *g, int rank, pid_t parent, const sigset_t *old,
                        rank_main main, void *arg)
{
    static const int watched[] = { SIGINT, SIGTERM, SIGHUP };
    struct err err = { 0 };
    struct comm *comm;
    int ret;

    /* the parent handles and reports these signals */
    for (size_t i = 0; i < sizeof(watched) / sizeof(*watched); i++)
        signal(watched[i], watched[i] == SIGHUP ? (g->how.hangups ? SIG_IGN : SIG_DFL)
                           : g->how.stop        ? SIG_IGN
                                                : SIG_DFL);
    if (g->how.stop)
        signal(SIGUSR1, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        return ERR_SYSTEM;
    sigprocmask(SIG_SETMASK, old, NULL);
    close(g->report[0]);
    comm = comm_shm_open(g->shm, rank);
    ret = main(arg, comm, &err);
    if (ret == 0)
        ret = comm->ops->flush(comm, &err);
    comm->ops->close(comm);
    if (ret == 0)
        return 0;
    if (write(g->report[1], &err, sizeof(err)) != sizeof(err))
        return ERR_SYSTEM;
    return err.kind == ERR_NONE ? ERR_SYSTEM : (int)err.kind;
}

/* ---- the parent's side ---- */

static int start(struct group *g, const sigset_t *old, rank_main main, void *arg,
                 struct err *err)
{
    pid_t parent = getpid();

    for (int r = 0; r < g->n; r++) {
        pid_t pid = fork();

        if (pid < 0)
            return err_errno(err, "starting rank %d", r);
        if (pid == 0)
            _exit(rank_process(g, r, parent, old, main, arg));
        g->pid[r] = pid;
        g->alive++;
    }
    return 0;
}

static void signal_all(const struct group *g, int sig)
{
    for (int r = 0; r < g->n; r++)
        if (g->pid[r])
            kill(g->pid[r], sig);
}

/* Has rank R ended, with *STATUS?  Also records whether it is stopped. */
static bool has_ended(struct group *g, int r, int *status)
{
    while (g->pid[r] &&
           waitpid(g->pid[r], status, WNOHANG | WUNTRACED | WCONTINUED) == g->pid[r]) {
        if (!WIFSTOPPED(*status) && !WIFCONTINUED(*status))
            return true;
        g->stopped_s[r] = WIFSTOPPED(*status) ? 0 : -1;
    }
    return false;
}

/* Called once a second.  Counts seconds instead of reading a clock: while the whole job
 * is stopped, as by Ctrl-Z, none pass. */
static int count_stopped(struct group *g, struct err *err)
{
    for (int r = 0; r < g->n; r++)
        if (g->pid[r] && g->stopped_s[r] >= 0 && ++g->stopped_s[r] == g->how.timeout_s)
            return err_set(err, ERR_SYSTEM,
                           "rank %d is stopped and has not answered for %d s "
                           "(--rank-timeout)",
                           r, g->how.timeout_s);
    return 0;
}

/* Reaps ended ranks.  *err is set for the first failure without a report. */
static void reap(struct group *g, bool *failed, struct err *err)
{
    for (int r = 0; r < g->n; r++) {
        int status;

        if (!has_ended(g, r, &status))
            continue;
        g->pid[r] = 0;
        g->alive--;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            continue;
        g->pipe_closed |=
            !*failed && WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE;
        if (!*failed && WIFSIGNALED(status))
            err_set(err, ERR_SYSTEM, "rank %d was killed by signal %d (SIG%s)", r,
                    WTERMSIG(status), sigabbrev_np(WTERMSIG(status)));
        else if (!*failed)
            err_set(err, ERR_SYSTEM, "rank %d ended with status %d", r,
                    WEXITSTATUS(status));
        *failed = true;
    }
}

/* Reads the first report, if any; it says more than an exit status. */
static bool read_report(struct group *g, struct err *err)
{
    struct err told;

    if (read(g->report[0], &told, sizeof(told)) != sizeof(told))
        return false;
    if (err)
        *err = told;
    return true;
}

static long now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Ends the remaining ranks: SIGTERM, a grace period, SIGKILL. */
static void stop(struct group *g, int fd)
{
    long end = now_ms() + GRACE_MS;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    bool ignored = true;

    shm_abort(g->shm);
    signal_all(g, SIGTERM);
    while (g->alive && now_ms() < end) {
        struct signalfd_siginfo info;

        poll(&p, 1, 20);
        while (read(fd, &info, sizeof(info)) == sizeof(info))
            ;
        reap(g, &ignored, NULL);
    }
    signal_all(g, SIGKILL);
    for (int r = 0; r < g->n; r++)
        if (g->pid[r])
            waitpid(g->pid[r], NULL, 0);
}

/* Is SIG a request to end, a repetition of that request, or none of ours? */
static bool is_asked(struct group *g, int sig)
{
    if (sig == SIGINT && g->how.interrupts)
        return true;
    if (sig == SIGHUP && g->how.hangups) {
        ++*g->how.hangups;
        return true;
    }
    if (!g->how.stop || sig == SIGHUP)
        return false;
    if (!*g->how.stop) {
        *g->how.stop = sig;
        g->asked_ms = now_ms();
    }
    return now_ms() - g->asked_ms < LAUNCH_AGAIN_MS;
}

static int watch(struct group *g, int fd, int *sig, struct err *err)
{
    bool failed = false;
    long tick = now_ms();

    while (g->alive && !failed) {
        struct signalfd_siginfo info;

        if (now_ms() - tick >= 1000) {
            tick = now_ms();
            if (count_stopped(g, err) < 0)
                return -1;
        }
        if (read(fd, &info, sizeof(info)) != sizeof(info)) {
            struct pollfd p = { .fd = fd, .events = POLLIN };

            poll(&p, 1, 1000);
            continue;
        }
        if (info.ssi_signo != SIGCHLD && is_asked(g, (int)info.ssi_signo))
            continue;
        if (info.ssi_signo != SIGCHLD) {
            *sig = (int)info.ssi_signo;
            err_set(err, ERR_SYSTEM, "ended by signal %d (SIG%s)", *sig,
                    sigabbrev_np(*sig));
            return -1;
        }
        reap(g, &failed, err);
    }
    if (!failed)
        return 0;
    if (g->pipe_closed)
        *sig = SIGPIPE;
    read_report(g, err);
    return -1;
}

static int launch_many(const struct launch *how, int nranks, rank_main main, void *arg,
                       int *sig, struct err *err)
{
    struct group g = { .n = nranks, .report = { -1, -1 }, .how = *how };
    sigset_t set, old;
    int fd = -1, ret = -1;

    g.pid = xcalloc((size_t)nranks, sizeof(*g.pid));
    g.stopped_s = xmalloc((size_t)nranks * sizeof(*g.stopped_s));
    for (int r = 0; r < nranks; r++)
        g.stopped_s[r] = -1;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    if (how->stop)
        sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    if (shm_open_group(&g.shm, nranks, err) < 0)
        goto out;
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0 || pipe2(g.report, O_CLOEXEC | O_NONBLOCK) < 0) {
        err_errno(err, "starting the ranks");
        goto out;
    }
    if (start(&g, &old, main, arg, err) == 0)
        ret = watch(&g, fd, sig, err);
    if (g.alive)
        stop(&g, fd);
out:
    if (fd >= 0)
        close(fd);
    if (g.report[0] >= 0) {
        close(g.report[0]);
        close(g.report[1]);
    }
    shm_close_group(g.shm);
    sigprocmask(SIG_SETMASK, &old, NULL);
    free(g.pid);
    free(g.stopped_s);
    return ret;
}

int launch_ranks(int nranks, rank_main main, void *arg, int *signal, struct err *err)
{
    return launch_ranks_as(&(struct launch){ 0 }, nranks, main, arg, signal, err);
}

int launch_ranks_as(const struct launch *how, int nranks, rank_main main, void *arg,
                    int *signal, struct err *err)
{
    struct comm *comm;
    int ret;

    *signal = 0;
    if (nranks > 1)
        return launch_many(how, nranks, main, arg, signal, err);
    comm = comm_self_open();
    ret = main(arg, comm, err);
    comm->ops->close(comm);
    return ret;
}
