/* guard - a process that outlives a runner which is killed, and ends its commands */
#define _GNU_SOURCE /* SOCK_CLOEXEC */
#include "lib/sweep/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/sweep/job.h"

enum { FILES = 1024 };

/* A message: a group that has begun, or less than 0 one that has ended. */
struct groups {
    pid_t *v; /* [n] */
    size_t n, cap;
};

static void note(struct groups *g, pid_t message)
{
    if (message > 0) {
        g->v = xgrow(g->v, &g->cap, g->n + 1, sizeof(*g->v));
        g->v[g->n++] = message;
        return;
    }
    for (size_t i = 0; i < g->n; i++)
        if (g->v[i] == -message) {
            g->v[i] = g->v[--g->n];
            return;
        }
}

/* Whether any group is left; SIG 0 only asks. */
static bool signal_all(const struct groups *g, int sig)
{
    bool left = false;

    for (size_t i = 0; i < g->n; i++)
        left |= kill(-g->v[i], sig) == 0;
    return left;
}

static void end_all(const struct groups *g)
{
    const struct timespec nap = { .tv_nsec = 50000000 };
    double start = clock_seconds();

    signal_all(g, SIGTERM);
    while (signal_all(g, 0) && clock_seconds() - start < JOB_GRACE)
        nanosleep(&nap, NULL);
    signal_all(g, SIGKILL);
}

/* The guard: of its own session, so that what is sent to the runner's group or terminal
 * does not reach it. */
_Noreturn static void watch(int fd)
{
    struct groups groups = { 0 };
    int null = open("/dev/null", O_RDWR);
    sigset_t all;
    pid_t message;

    prctl(PR_SET_NAME, "hpo-guard");
    setsid();
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    for (int i = 3; i < FILES; i++) /* locks of who started the run, for instance */
        if (i != fd)
            close(i);
    if (chdir("/") == 0) /* keeps no directory from being removed */
        while (recv(fd, &message, sizeof(message), MSG_WAITALL) == sizeof(message))
            note(&groups, message);
    end_all(&groups);
    _exit(0);
}

int guard_open(struct guard *g, struct err *err)
{
    int ends[2];

    g->fd = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return err_errno(err, "a guard of the run");
    g->pid = fork();
    if (g->pid == 0) {
        close(ends[0]);
        watch(ends[1]);
    }
    close(ends[1]);
    if (g->pid < 0) {
        err_errno(err, "a guard of the run");
        close(ends[0]);
        return -1;
    }
    g->fd = ends[0];
    return 0;
}

/* The run goes on when the guard is gone. */
static void tell(struct guard *g, pid_t message)
{
    send(g->fd, &message, sizeof(message), MSG_NOSIGNAL);
}

void guard_add(struct guard *g, pid_t group)
{
    tell(g, group);
}

void guard_remove(struct guard *g, pid_t group)
{
    tell(g, -group);
}

void guard_close(struct guard *g)
{
    if (g->fd < 0)
        return;
    close(g->fd);
    g->fd = -1;
    while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
