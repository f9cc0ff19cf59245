/* signals - what the runner waits for besides its clocks */
#include <stdio.h>
#include <time.h>

#include "cmd/hpo-sweep/run.h"

static const int ending[] = { SIGTERM, SIGINT, SIGHUP };

enum { NENDING = sizeof(ending) / sizeof(*ending) };

/* Under nohup, SIGHUP is ignored. */
static bool is_ignored(int sig)
{
    struct sigaction old;

    return sigaction(sig, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
}

void signals_block(struct loop *l)
{
    sigemptyset(&l->signals);
    sigaddset(&l->signals, SIGCHLD);
    sigaddset(&l->signals, SIGUSR1);
    for (int i = 0; i < NENDING; i++)
        if (ending[i] != SIGHUP || !is_ignored(SIGHUP))
            sigaddset(&l->signals, ending[i]);
    sigprocmask(SIG_BLOCK, &l->signals, NULL);
}

bool signals_wait(struct loop *l)
{
    const struct timespec tick = { .tv_nsec = 100000000 };
    int sig = sigtimedwait(&l->signals, NULL, &tick);

    l->draining |= sig == SIGUSR1;
    for (int i = 0; i < NENDING; i++)
        if (sig == ending[i]) {
            l->hurry = l->signal != 0;
            l->signal = l->signal ? l->signal : sig;
        }
    return sig > 0;
}

const char *signals_name(char buf[16], int sig)
{
    static const struct {
        int sig;
        const char *name;
    } names[] = {
        { SIGHUP, "SIGHUP" },   { SIGINT, "SIGINT" },   { SIGQUIT, "SIGQUIT" },
        { SIGILL, "SIGILL" },   { SIGTRAP, "SIGTRAP" }, { SIGABRT, "SIGABRT" },
        { SIGBUS, "SIGBUS" },   { SIGFPE, "SIGFPE" },   { SIGKILL, "SIGKILL" },
        { SIGUSR1, "SIGUSR1" }, { SIGSEGV, "SIGSEGV" }, { SIGUSR2, "SIGUSR2" },
        { SIGPIPE, "SIGPIPE" }, { SIGALRM, "SIGALRM" }, { SIGTERM, "SIGTERM" },
        { SIGXCPU, "SIGXCPU" }, { SIGXFSZ, "SIGXFSZ" }, { SIGSYS, "SIGSYS" },
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (names[i].sig == sig)
            return names[i].name;
    snprintf(buf, 16, "signal %d", sig);
    return buf;
}
