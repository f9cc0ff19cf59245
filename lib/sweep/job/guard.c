/* guard - a process that outlives a runner which is killed, and ends its commands */
#define _GNU_SOURCE /* pipe2, MAP_ANONYMOUS */
#include "lib/sweep/job/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/sweep/job/job.h"
#include "lib/sweep/job/strays.h"

enum { FILES = 1024, BASE_SIZE = 4096 };

static size_t table_size(const struct guard *g)
{
    return (size_t)g->slots * (sizeof(*g->groups) + sizeof(*g->trials)) + BASE_SIZE;
}

/* Whether any group is left; SIG 0 only asks. */
static bool signal_all(const struct guard *g, int sig)
{
    bool left = false;

    for (int i = 0; i < g->slots; i++)
        left |= g->groups[i] > 0 && kill(-g->groups[i], sig) == 0;
    for (int i = 0; *g->base && i < g->slots; i++)
        if (g->groups[i] > 0) {
            char *dir = str_dupf(JOB_DIR, g->base, g->trials[i]);

            left |= strays_signal(dir, sig);
            free(dir);
        }
    return left;
}

static void end_all(const struct guard *g)
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
_Noreturn static void watch(const struct guard *g, int fd)
{
    int null = open("/dev/null", O_RDWR);
    sigset_t all;
    char byte;

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
        while (read(fd, &byte, 1) < 0 && errno == EINTR)
            ;   /* nothing is ever written */
    end_all(g); /* of a runner that came to its end, nothing is left */
    _exit(0);
}

int guard_open(struct guard *g, int slots, struct err *err)
{
    struct guard made = { .slots = slots };
    int ends[2];

    g->fd = -1;
    made.groups = mmap(NULL, table_size(&made), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (made.groups == MAP_FAILED)
        return err_errno(err, "a guard of the run");
    made.trials = (volatile int *)(made.groups + slots);
    made.base = (char *)(made.trials + slots);
    if (pipe2(ends, O_CLOEXEC) < 0) {
        err_errno(err, "a guard of the run");
        munmap((void *)made.groups, table_size(&made));
        return -1;
    }
    made.pid = fork();
    if (made.pid == 0) {
        close(ends[1]);
        watch(&made, ends[0]);
    }
    made.fd = ends[1];
    close(ends[0]);
    if (made.pid < 0) {
        err_errno(err, "a guard of the run");
        close(made.fd);
        munmap((void *)made.groups, table_size(&made));
        return -1;
    }
    *g = made;
    return 0;
}

void guard_name(struct guard *g, const char *base)
{
    if (strlen(base) < BASE_SIZE)
        memcpy(g->base, base, strlen(base) + 1);
}

void guard_set(struct guard *g, int slot, pid_t group, int number)
{
    g->trials[slot] = number;
    g->groups[slot] = group;
}

void guard_close(struct guard *g)
{
    if (g->fd < 0)
        return;
    close(g->fd);
    g->fd = -1;
    while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    munmap((void *)g->groups, table_size(g));
}
