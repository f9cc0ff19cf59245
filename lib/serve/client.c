/* client - requests to an HTTP/1.1 server, whose answers are read as they come */
#define _GNU_SOURCE
#include "lib/serve/client.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/mem.h"

enum { HEAD_MOST = 1 << 16, BLOCK = 1 << 14 };

int client_url_parse(struct client_url *u, const char *text, struct err *err)
{
    const char *at = text + 7, *slash, *colon;
    size_t n, host;

    *u = (struct client_url){ 0 };
    if (str_starts(text, "unix:") && text[5]) {
        u->path = xstrdup(text + 5);
        u->base = xstrdup("");
        return 0;
    }
    if (!str_starts(text, "http://") || !*at || *at == '/')
        return err_set(err, ERR_USAGE,
                       "expected http://HOST:PORT or unix:PATH, not '%s'", text);
    slash = strchr(at, '/');
    n = slash ? (size_t)(slash - at) : strlen(at);
    colon = memrchr(at, ':', n);
    if (colon && memchr(colon, ']', n - (size_t)(colon - at)))
        colon = NULL; /* of [::1] */
    host = colon ? (size_t)(colon - at) : n;
    u->host = *at == '[' && host > 2 ? xstrndup(at + 1, host - 2) : xstrndup(at, host);
    u->port = colon ? xstrndup(colon + 1, n - host - 1) : xstrdup("80");
    u->base = xstrdup(slash ? slash : "");
    for (n = strlen(u->base); n && u->base[n - 1] == '/';)
        u->base[--n] = '\0';
    return 0;
}

void client_url_clear(struct client_url *u)
{
    free(u->host);
    free(u->port);
    free(u->path);
    free(u->base);
    *u = (struct client_url){ 0 };
}

/* ---- a connection ---- */

static int connect_path(const struct client_url *u, struct err *err)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int fd;

    if (strlen(u->path) >= sizeof(at.sun_path))
        return err_set(err, ERR_USAGE, "unix:%s: the path is too long", u->path);
    memcpy(at.sun_path, u->path, strlen(u->path));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof(at)) < 0) {
        err_errno(err, "unix:%s", u->path);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

static int connect_host(const struct client_url *u, struct err *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *list;
    int failed = getaddrinfo(u->host, u->port, &hints, &list), fd = -1, cause = 0;

    if (failed)
        return err_set(err, ERR_SYSTEM, "%s:%s: %s", u->host, u->port,
                       gai_strerror(failed));
    for (struct addrinfo *to = list; to && fd < 0; to = to->ai_next) {
        fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0)
            break;
        cause = errno;
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    errno = cause;
    return fd >= 0 ? fd : err_errno(err, "%s:%s", u->host, u->port);
}

/* What cannot be sent, the answer may explain. */
static void send_request(int fd, const struct client_url *u,
                         const struct client_request *r)
{
    struct str out = { 0 };
    size_t at = 0;

    str_addf(&out, "%s %s%s HTTP/1.1\r\nConnection: close\r\n", r->method, u->base,
             r->path);
    if (u->host) /* an IPv6 address has colons, and is in brackets */
        str_addf(&out, strchr(u->host, ':') ? "Host: [%s]:%s\r\n" : "Host: %s:%s\r\n",
                 u->host, u->port);
    else
        str_add(&out, "Host: localhost\r\n");
    if (r->key)
        str_addf(&out, "Authorization: Bearer %s\r\n", r->key);
    if (r->body)
        str_addf(&out, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                 strlen(r->body));
    str_add(&out, "\r\n");
    str_add(&out, r->body ? r->body : "");
    while (at < out.len) {
        ssize_t n = send(fd, out.s + at, out.len - at, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    str_clear(&out);
}

/* ---- an answer ---- */

struct answer {
    int fd;
    struct str in; /* bytes that have come and are not used */
    size_t used;
    bool ended;
};

/* Reads on; false at the end of the connection. */
static bool read_on(struct answer *a)
{
    char bytes[BLOCK];
    ssize_t n;

    do
        n = recv(a->fd, bytes, sizeof(bytes), 0);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return false;
    if (a->used == a->in.len) {
        str_reset(&a->in);
        a->used = 0;
    }
    str_addn(&a->in, bytes, (size_t)n);
    return true;
}

/* The next line, without its end, in *out; borrowed until the next call. */
static int read_line(struct answer *a, const char **out, size_t *len, struct err *err)
{
    size_t looked = 0;

    for (;;) {
        char *from = a->in.s ? a->in.s + a->used : NULL;
        char *end =
            from ? memchr(from + looked, '\n', a->in.len - a->used - looked) : NULL;

        if (end) {
            *out = from;
            *len = (size_t)(end - from);
            a->used += *len + 1;
            while (*len && from[*len - 1] == '\r')
                --*len;
            return 0;
        }
        looked = a->in.len - a->used;
        if (looked > HEAD_MOST)
            return err_set(err, ERR_INPUT, "the server's answer is not HTTP");
        if (!read_on(a))
            return err_set(err, ERR_SYSTEM, "the server has closed the connection");
    }
}

static int read_head(struct answer *a, int *status, bool *chunked, uint64_t *length,
                     struct err *err)
{
    const char *line;
    size_t n, total = 0;

    if (read_line(a, &line, &n, err) < 0)
        return -1;
    if (n < 12 || strncmp(line, "HTTP/1.", 7) != 0)
        return err_set(err, ERR_INPUT, "the server's answer is not HTTP");
    *status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    for (;;) {
        char *copy;

        if (read_line(a, &line, &n, err) < 0)
            return -1;
        total += n;
        if (!n || total > HEAD_MOST)
            return n ? err_set(err, ERR_INPUT,
                               "the server's answer has no end of its "
                               "head")
                     : 0;
        copy = xstrndup(line, n);
        if (!strncasecmp(copy, "Transfer-Encoding:", 18))
            *chunked = strcasestr(copy + 18, "chunked") != NULL;
        else if (!strncasecmp(copy, "Content-Length:", 15))
            (void)str_u64(copy + 15 + strspn(copy + 15, " \t"), length);
        free(copy);
    }
}

/* Gives TAKE the next N bytes of the body, or all that come (UINT64_MAX). */
static int take_bytes(struct answer *a, uint64_t n,
                      int (*take)(void *arg, const char *bytes, size_t n), void *arg,
                      struct err *err)
{
    while (n) {
        size_t have = a->in.len - a->used, part = have < n ? have : (size_t)n;

        if (!have && !read_on(a))
            return n == UINT64_MAX ? 0
                                   : err_set(err, ERR_SYSTEM,
                                             "the server has closed the connection");
        if (!have)
            continue;
        if (take(arg, a->in.s + a->used, part) < 0) {
            a->ended = true;
            return 0;
        }
        a->used += part;
        n -= n == UINT64_MAX ? 0 : part;
    }
    return 0;
}

static int take_chunks(struct answer *a,
                       int (*take)(void *arg, const char *bytes, size_t n), void *arg,
                       struct err *err)
{
    while (!a->ended) {
        const char *line;
        char word[17], *end;
        uint64_t size;
        size_t n;

        if (read_line(a, &line, &n, err) < 0)
            return -1;
        n = n < sizeof(word) - 1 ? n : sizeof(word) - 1;
        memcpy(word, line, n);
        word[n] = '\0';
        size = strtoull(word, &end, 16);
        if (end == word || size > SIZE_MAX / 2)
            return err_set(err, ERR_INPUT, "the server's answer has a bad chunk");
        if (!size)
            return 0;
        if (take_bytes(a, size, take, arg, err) < 0 ||
            (!a->ended && read_line(a, &line, &n, err) < 0))
            return -1;
    }
    return 0;
}

int client_run(const struct client_url *u, const struct client_request *r, int *status,
               int (*take)(void *arg, const char *bytes, size_t n), void *arg,
               struct err *err)
{
    struct answer a = { .fd = u->host ? connect_host(u, err) : connect_path(u, err) };
    bool chunked = false;
    uint64_t length = UINT64_MAX;
    int ret = -1;

    *status = 0;
    if (a.fd < 0)
        return -1;
    send_request(a.fd, u, r);
    if (read_head(&a, status, &chunked, &length, err) == 0)
        ret = chunked ? take_chunks(&a, take, arg, err)
                      : take_bytes(&a, length, take, arg, err);
    str_clear(&a.in);
    close(a.fd);
    return ret;
}
