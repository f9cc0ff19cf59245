/* http-talk - a client of one request, for tests of web servers
 *
 *   http-talk [OPTION]... URL METHOD PATH [HEADER]... < BODY
 *                     prints the answer's status and body, a line feed between them;
 *                     a chunked body is put together; BODY is sent unless METHOD is GET
 *   http-talk --raw URL < BYTES
 *                     sends the bytes, and prints all that comes until the end
 *
 *   --headers         prints the answer's headers as well
 *   --leave N         closes the connection when N bytes of the answer have come
 *   --reset           closes it so that the server's side is reset
 *   --mark FILE       makes FILE when the first byte of the answer has come
 *   --slow            sends a byte at a time
 *   --blind           in --raw: sends, and closes
 *   --burst N         in --raw: N connections at a time that send, read something with
 *                     --leave, and close
 *   --hold            in --raw: sends, and waits for the end of the connection
 *
 *   http-talk --told PATH
 *                     prints the first datagram that comes to a new Unix socket
 *   http-talk --sockets N COMMAND...
 *                     runs it with N sockets that listen, as systemd does
 *
 * URL is http://ADDRESS:PORT or unix:PATH.  Status 1: the connection ended early. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

static struct {
    bool raw, headers, slow, hold, blind, reset;
    size_t leave, burst;
    const char *mark;
} opt;

static void fail(const char *why)
{
    fprintf(stderr, "http-talk: %s\n", why);
    exit(1);
}

static int connect_unix(const char *path)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    memcpy(at.sun_path, path, strnlen(path, sizeof(at.sun_path) - 1));
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
        fail("no connection");
    return fd;
}

static int connect_port(const char *url)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    const char *colon = strrchr(url, ':');
    size_t n = colon ? (size_t)(colon - url) : 0;
    bool bracketed = n > 1 && *url == '[';
    char *host = xstrndup(url + bracketed, n - 2 * (size_t)bracketed);
    struct addrinfo *to;
    int fd;

    if (!colon || getaddrinfo(host, colon + 1, &hints, &to) != 0)
        fail("no such address");
    fd = socket(to->ai_family, to->ai_socktype, 0);
    if (connect(fd, to->ai_addr, to->ai_addrlen) < 0)
        fail("no connection");
    freeaddrinfo(to);
    free(host);
    return fd;
}

static int open_url(const char *url)
{
    const struct linger at_once = { .l_onoff = 1 };
    int fd;

    if (!strncmp(url, "unix:", 5))
        return connect_unix(url + 5);
    fd = connect_port(strncmp(url, "http://", 7) != 0 ? url : url + 7);
    if (opt.reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    return fd;
}

static void read_input(struct str *out)
{
    char bytes[4096];
    ssize_t n;

    while ((n = read(STDIN_FILENO, bytes, sizeof(bytes))) > 0)
        str_addn(out, bytes, (size_t)n);
}

static void send_all(int fd, const struct str *s)
{
    for (size_t at = 0; at < s->len;) {
        size_t want = opt.slow ? 1 : s->len - at;
        ssize_t n = send(fd, s->s + at, want, MSG_NOSIGNAL);

        if (n <= 0)
            return; /* the answer tells */
        at += (size_t)n;
    }
}

/* Reads on; false at the end. */
static bool receive(int fd, struct str *in)
{
    char bytes[4096];
    ssize_t n = recv(fd, bytes, sizeof(bytes), 0);

    if (n <= 0)
        return false;
    if (opt.mark) {
        close(open(opt.mark, O_CREAT | O_WRONLY, 0666));
        opt.mark = NULL;
    }
    str_addn(in, bytes, (size_t)n);
    if (opt.leave && in->len >= opt.leave)
        exit(0);
    return true;
}

static const char *header(const struct str *head, const char *name)
{
    const char *at = strcasestr(head->s, name);

    return at ? at + strlen(name) + strspn(at + strlen(name), " ") : NULL;
}

/* The body of N bytes (or to the end) that follow the first AT bytes of IN. */
static void read_length(int fd, struct str *in, size_t at, const char *length)
{
    size_t n = length ? strtoul(length, NULL, 10) : SIZE_MAX;

    while (in->len - at < n && receive(fd, in))
        ;
    if (length && in->len - at < n)
        fail("the answer is incomplete");
    fwrite(in->s + at, 1, length ? n : in->len - at, stdout);
}

static void read_chunks(int fd, struct str *in, size_t at)
{
    for (;;) {
        const char *end;
        size_t n;

        while (!(end = memmem(in->s + at, in->len - at, "\r\n", 2)))
            if (!receive(fd, in))
                fail("the answer is incomplete");
        n = strtoul(in->s + at, NULL, 16);
        at = (size_t)(end - in->s) + 2;
        while (in->len < at + n + 2)
            if (!receive(fd, in))
                fail("the answer is incomplete");
        if (!n)
            return;
        fwrite(in->s + at, 1, n, stdout);
        fflush(stdout);
        at += n + 2;
    }
}

static void read_answer(int fd, const char *method)
{
    struct str in = { 0 }, head = { 0 };
    char *end = NULL;
    const char *chunked;
    size_t n;

    while (!end) {
        if (!receive(fd, &in))
            fail("no answer");
        end = memmem(in.s, in.len, "\r\n\r\n", 4);
    }
    n = (size_t)(end - in.s) + 4;
    str_addn(&head, in.s, n);
    if (opt.headers)
        fwrite(head.s, 1, n, stdout);
    else
        printf("%.3s\n", head.s + 9);
    fflush(stdout);
    chunked = header(&head, "Transfer-Encoding:");
    if (!strcmp(method, "HEAD"))
        ;
    else if (chunked)
        read_chunks(fd, &in, n);
    else
        read_length(fd, &in, n, header(&head, "Content-Length:"));
    putchar('\n');
    str_clear(&in);
    str_clear(&head);
}

static void talk_raw(int fd)
{
    struct str bytes = { 0 }, in = { 0 };

    read_input(&bytes);
    send_all(fd, &bytes);
    if (opt.blind)
        exit(0);
    if (!opt.hold)
        shutdown(fd, SHUT_WR);
    while (receive(fd, &in))
        ;
    fwrite(str_text(&in), 1, in.len, stdout);
    str_clear(&bytes);
    str_clear(&in);
}

static void talk_often(const char *url)
{
    int *fd = xcalloc(opt.burst, sizeof(*fd));
    struct str bytes = { 0 };
    char some[64];

    read_input(&bytes);
    for (size_t i = 0; i < opt.burst; i++)
        fd[i] = open_url(url);
    for (size_t i = 0; i < opt.burst; i++)
        send_all(fd[i], &bytes);
    for (size_t i = 0; i < opt.burst; i++) {
        if (opt.leave)
            (void)!recv(fd[i], some, sizeof(some), 0);
        close(fd[i]);
    }
    str_clear(&bytes);
    free(fd);
}

static void talk(int fd, char **word)
{
    struct str request = { 0 }, body = { 0 };

    str_addf(&request, "%s %s HTTP/1.1\r\n", word[0], word[1]);
    if (!word[2] || strncmp(word[2], "Host:", 5) != 0)
        str_add(&request, "Host: localhost\r\n");
    for (char **h = word + 2; *h; h++)
        str_addf(&request, "%s\r\n", *h);
    if (strcmp(word[0], "GET") != 0 && strcmp(word[0], "HEAD") != 0) {
        read_input(&body);
        str_addf(&request, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                 body.len);
    }
    str_add(&request, "\r\n");
    str_addn(&request, str_text(&body), body.len);
    send_all(fd, &request);
    read_answer(fd, word[0]);
    str_clear(&request);
    str_clear(&body);
}

static void print_datagram(const char *path)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    char bytes[256];
    ssize_t n;

    memcpy(at.sun_path, path, strnlen(path, sizeof(at.sun_path) - 1));
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
        fail("no socket");
    n = recv(fd, bytes, sizeof(bytes), 0);
    printf("%.*s\n", n > 0 ? (int)n : 0, bytes);
    close(fd);
}

static void run_with_sockets(const char *count, char **command)
{
    const struct sockaddr_in at = { .sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int n = (int)strtoul(count, NULL, 10);
    char pid[32];

    for (int i = 0; i < n; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 ||
            listen(fd, 9) < 0 || dup2(fd, 3 + i) < 0)
            fail("no socket");
        if (fd != 3 + i)
            close(fd);
    }
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", count, 1);
    execvp(command[0], command);
    fail("no such command");
}

int main(int argc, char **argv)
{
    int i = 1, fd;

    if (argc > 3 && !strcmp(argv[1], "--sockets"))
        run_with_sockets(argv[2], argv + 3);

    if (argc == 3 && !strcmp(argv[1], "--told")) {
        print_datagram(argv[2]);
        return 0;
    }

    for (; i < argc && !strncmp(argv[i], "--", 2); i++)
        if (!strcmp(argv[i], "--raw"))
            opt.raw = true;
        else if (!strcmp(argv[i], "--headers"))
            opt.headers = true;
        else if (!strcmp(argv[i], "--slow"))
            opt.slow = true;
        else if (!strcmp(argv[i], "--blind"))
            opt.blind = true;
        else if (!strcmp(argv[i], "--hold"))
            opt.hold = true;
        else if (!strcmp(argv[i], "--reset"))
            opt.reset = true;
        else if (!strcmp(argv[i], "--burst") && i + 1 < argc)
            opt.burst = strtoul(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--leave") && i + 1 < argc)
            opt.leave = strtoul(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--mark") && i + 1 < argc)
            opt.mark = argv[++i];
        else
            fail("unknown option");
    if (argc - i < (opt.raw ? 1 : 3))
        fail("usage: see the source");
    if (opt.burst) {
        talk_often(argv[i]);
        return 0;
    }
    fd = open_url(argv[i]);
    if (opt.raw)
        talk_raw(fd);
    else
        talk(fd, argv + i + 1);
    close(fd);
    return 0;
}
