/* cut-commit - lose a connection just after its COMMIT, before the answer is read
 *
 * To be preloaded, for PostgreSQL's library.  Of every CUT_EVERY commits of the program
 * CUT_IN the last is carried out by the server, and the program never hears of it.
 * CUT_LOG names a file that gets a line for each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int cut = -1; /* the socket whose answer is lost */

ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    static long commits;
    const char *every = getenv("CUT_EVERY"), *in = getenv("CUT_IN");
    ssize_t (*real)(int, const void *, size_t, int);

    *(void **)&real = dlsym(RTLD_NEXT, "send");
    if (every && in && !strcmp(in, program_invocation_short_name) &&
        memmem(buf, n, "COMMIT", 6) && ++commits % strtol(every, NULL, 10) == 0)
        cut = fd;
    return real(fd, buf, n, flags);
}

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    const char *path = getenv("CUT_LOG");
    ssize_t (*real)(int, void *, size_t, int), got;
    int log;

    *(void **)&real = dlsym(RTLD_NEXT, "recv");
    got = real(fd, buf, n, flags);
    if (fd != cut || got <= 0)
        return got;
    shutdown(fd, SHUT_RDWR);
    cut = -1;
    log = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0666) : -1;
    if (log >= 0 && write(log, "cut\n", 4) != 4)
        abort();
    if (log >= 0)
        close(log);
    return 0;
}
