/* cut-commit - lose a connection to PostgreSQL at a place that the test wants
 *
 * To be preloaded, for PostgreSQL's library.  Of every CUT_EVERY commits of the program
 * CUT_IN the last is carried out by the server, and the program never hears of it.
 * With CUT_AFTER instead, once a second change has begun, the connection is lost after
 * CUT_AFTER statements, the next after one, then after CUT_AFTER + 1, 2, CUT_AFTER + 2,
 * and so on, short ones up to CUT_SHORT: so every statement of a change and of what
 * connects again is lost in its turn.  The ways of it change too.  CUT_LOG names a file
 * that gets a line for each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What a server says that is stopped at once, a notice, which comes in two pieces. */
static const char notice[] = "N\0\0\0\x2cSWARNING\0C57P02\0Mthe server is stopped\0";
enum { PIECE = 9 };

static int cut = -1;  /* the socket whose answer is lost */
static int told = -1; /* the socket that has the notice from AT on to give */
static size_t at;

static long number(const char *name)
{
    const char *text = getenv(name);

    return text ? strtol(text, NULL, 10) : 0;
}

static void note(void)
{
    const char *path = getenv("CUT_LOG");
    int log = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0666) : -1;

    if (log >= 0 && write(log, "cut\n", 4) != 4)
        abort();
    if (log >= 0)
        close(log);
}

/* Is the statement in BUF, after those before, one that is lost?  *HOW counts them. */
static bool is_lost(const void *buf, size_t n, long *how)
{
    static long changes, left, cuts;
    long after = number("CUT_AFTER"), most = number("CUT_SHORT");

    if (changes < 2 && memmem(buf, n, "LOCK TABLE", 10) && ++changes == 2)
        left = after;
    if (changes < 2 || --left)
        return false;
    *how = ++cuts / 2;
    left = cuts % 2 ? cuts / 2 % most + 1 : after + cuts / 2;
    return true;
}

ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    static long commits;
    const char *in = getenv("CUT_IN");
    bool ours = in && !strcmp(in, program_invocation_short_name);
    long every = number("CUT_EVERY"), how = 0;
    ssize_t (*real)(int, const void *, size_t, int);

    *(void **)&real = dlsym(RTLD_NEXT, "send");
    if (ours && every && memmem(buf, n, "COMMIT", 6) && ++commits % every == 0)
        cut = fd;
    if (!ours || !number("CUT_AFTER") || !is_lost(buf, n, &how))
        return real(fd, buf, n, flags);
    if (how % 3 == 0) { /* it is carried out */
        cut = fd;
        return real(fd, buf, n, flags);
    }
    shutdown(fd, SHUT_RDWR);
    note();
    told = how % 3 == 1 ? fd : -1;
    at = 0;
    errno = EPIPE;
    return -1;
}

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    ssize_t (*real)(int, void *, size_t, int), got;

    *(void **)&real = dlsym(RTLD_NEXT, "recv");
    if (fd == told && at < sizeof(notice) && n >= sizeof(notice)) {
        size_t piece = at ? sizeof(notice) - at : PIECE;

        memcpy(buf, notice + at, piece);
        at += piece;
        return (ssize_t)piece;
    }
    if (fd == told)
        told = -1;
    got = real(fd, buf, n, flags);
    if (fd != cut || got <= 0)
        return got;
    shutdown(fd, SHUT_RDWR);
    cut = -1;
    note();
    return 0;
}
