/* on-pty - a person at a terminal, for tests
 *
 *     on-pty [-c COLUMNS] COMMAND... < script
 *
 * Runs COMMAND on a terminal of its own and follows the script, a line each:
 *
 *     wait TEXT    until the terminal has shown TEXT since the last wait
 *     type TEXT    with the escapes \n \r \e \\ and \cX, the character of Control-X
 *     size N       columns
 *     kill SIGNAL  to COMMAND, by number
 *     pause N      for N tenths of a second; nothing that is shown is read meanwhile
 *
 * What the terminal shows goes to standard output, and the status is COMMAND's, 128
 * plus a signal's number, or 99 when a wait has lasted too long. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 60, ROOM = 1 << 20 };

static char seen[ROOM + 1];
static size_t n, waited; /* bytes in SEEN; those before the second are done with */

static long now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* Reads what the terminal shows, for at most MS; false at its end. */
static int look(int fd, int ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    ssize_t got;

    if (poll(&p, 1, ms) <= 0)
        return 1;
    got = read(fd, seen + n, ROOM - n);
    if (got <= 0)
        return 0;
    if (write(STDOUT_FILENO, seen + n, (size_t)got) != got)
        return 0;
    n += (size_t)got;
    seen[n] = '\0';
    return 1;
}

static void wait_for(int fd, const char *text)
{
    long end = now_s() + LIMIT_S;
    char *at;

    while (!(at = memmem(seen + waited, n - waited, text, strlen(text)))) {
        if (now_s() > end || !look(fd, 1000)) {
            fprintf(stderr, "on-pty: never shown: %s\n", text);
            exit(99);
        }
    }
    waited = (size_t)(at - seen) + strlen(text);
}

static void type(int fd, const char *text)
{
    char out[4096];
    size_t len = 0;

    for (const char *p = text; *p && len < sizeof(out); p++) {
        char c = *p;

        if (c == '\\') {
            c = *++p;
            if (c == 'c')
                c = *++p & 31;
            else
                c = c == 'n' ? '\n' : c == 'r' ? '\r' : c == 'e' ? '\033' : c;
        }
        out[len++] = c;
    }
    if (write(fd, out, len) != (ssize_t)len)
        exit(99);
}

static void set_size(int fd, int columns)
{
    struct winsize size = { .ws_row = 24, .ws_col = (unsigned short)columns };

    ioctl(fd, TIOCSWINSZ, &size);
}

int main(int argc, char **argv)
{
    int fd, columns = 80, status, first = 1;
    char line[4096];
    pid_t pid;

    if (argc > 3 && !strcmp(argv[1], "-c")) {
        columns = (int)strtol(argv[2], NULL, 10);
        first = 3;
    }
    if (first >= argc)
        return 99;
    pid = forkpty(&fd, NULL, NULL, NULL);
    if (pid < 0)
        return 99;
    if (pid == 0) {
        struct winsize size = { .ws_row = 24, .ws_col = (unsigned short)columns };

        ioctl(STDIN_FILENO, TIOCSWINSZ, &size);
        /* as a shell at a terminal does; in the background they are ignored */
        signal(SIGINT, SIG_DFL);
        signal(SIGQUIT, SIG_DFL);
        execvp(argv[first], argv + first);
        _exit(127);
    }
    while (fgets(line, sizeof(line), stdin)) {
        char *arg;

        line[strcspn(line, "\n")] = '\0';
        arg = line + strcspn(line, " ");
        arg += *arg == ' ';
        if (!strncmp(line, "wait ", 5))
            wait_for(fd, arg);
        else if (!strncmp(line, "type ", 5))
            type(fd, arg);
        else if (!strncmp(line, "size ", 5))
            set_size(fd, (int)strtol(arg, NULL, 10));
        else if (!strncmp(line, "pause ", 6))
            poll(NULL, 0, 100 * (int)strtol(arg, NULL, 10));
        else if (!strncmp(line, "kill ", 5))
            kill(pid, (int)strtol(arg, NULL, 10));
        else
            return 99;
    }
    for (long end = now_s() + LIMIT_S; look(fd, 1000);)
        if (now_s() > end) {
            fprintf(stderr, "on-pty: the command did not end\n");
            kill(pid, SIGKILL);
            return 99;
        }
    if (waitpid(pid, &status, 0) != pid)
        return 99;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
