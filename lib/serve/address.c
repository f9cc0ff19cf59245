/* address - where a server listens: ADDRESS:PORT, [ADDRESS]:PORT or unix:PATH */
#define _GNU_SOURCE
#include "lib/serve/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/mem.h"

static bool is_loopback(const struct sockaddr *a)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)a;

    if (a->sa_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

/* The port that the kernel has chosen is known after bind. */
static int name_url(struct address *a, const char *text, struct err *err)
{
    struct sockaddr_storage bound;
    socklen_t n = sizeof(bound);
    char host[NI_MAXHOST], port[NI_MAXSERV];
    struct sockaddr *at = (struct sockaddr *)&bound;

    if (getsockname(a->fd, at, &n) < 0)
        return err_errno(err, "--listen %s", text);
    if (getnameinfo(at, n, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return err_set(err, ERR_SYSTEM, "--listen %s: it has no name", text);
    a->local = is_loopback(at);
    str_addf(&a->url, at->sa_family == AF_INET6 ? "http://[%s]:%s" : "http://%s:%s",
             host, port);
    return 0;
}

static int try_bind(struct address *a, const struct addrinfo *to)
{
    const int yes = 1;

    a->fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->fd < 0)
        return -1;
    setsockopt(a->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(a->fd, to->ai_addr, to->ai_addrlen) == 0)
        return 0;
    close(a->fd);
    a->fd = -1;
    return -1;
}

static int bind_port(struct address *a, const char *text, const char *host,
                     const char *port, struct err *err)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
    struct addrinfo *list, *to;
    int failed = getaddrinfo(host, port, &hints, &list), cause = 0;

    if (failed)
        return err_set(err, ERR_USAGE, "--listen %s: %s", text, gai_strerror(failed));
    for (to = list; to && try_bind(a, to) < 0; to = to->ai_next)
        cause = errno;
    freeaddrinfo(list);
    errno = cause;
    return to ? name_url(a, text, err) : err_errno(err, "--listen %s", text);
}

static int parse_port(struct address *a, const char *text, struct err *err)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    bool bracketed = n >= 2 && text[0] == '[' && text[n - 1] == ']';
    uint64_t port;
    char *host;
    int ret;

    if (!n || !str_u64(colon + 1, &port) || port > 65535)
        return err_set(err, ERR_USAGE,
                       "--listen: expected ADDRESS:PORT or unix:PATH, not '%s'", text);
    host = bracketed ? xstrndup(text + 1, n - 2) : xstrndup(text, n);
    ret = bind_port(a, text, host, colon + 1, err);
    a->name = host;
    return ret;
}

/* A socket that a server has left behind is removed; one that is served stays, and so
 * does anything else of this name. */
static void remove_stale(const struct sockaddr_un *at)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct stat st;

    if (fd < 0)
        return;
    if (lstat(at->sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
        connect(fd, (const struct sockaddr *)at, sizeof(*at)) < 0 &&
        errno == ECONNREFUSED)
        unlink(at->sun_path);
    close(fd);
}

static int bind_path(struct address *a, const char *text, const char *path,
                     struct err *err)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    mode_t mask;
    int ret;

    if (!*path || strlen(path) >= sizeof(at.sun_path))
        return err_set(err, ERR_USAGE, "--listen %s: the path has 1 to %zu bytes", text,
                       sizeof(at.sun_path) - 1);
    memcpy(at.sun_path, path, strlen(path));
    a->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->fd < 0)
        return err_errno(err, "--listen %s", text);
    remove_stale(&at);
    mask = umask(0077);
    ret = bind(a->fd, (const struct sockaddr *)&at, sizeof(at));
    umask(mask);
    if (ret < 0)
        return err_errno(err, "--listen %s", text);
    a->path = xstrdup(path);
    a->local = true;
    str_addf(&a->url, "unix:%s", path);
    return 0;
}

int address_bind(struct address *a, const char *text, struct err *err)
{
    *a = (struct address){ .fd = -1 };
    return str_starts(text, "unix:") ? bind_path(a, text, text + 5, err)
                                     : parse_port(a, text, err);
}

/* Does FD listen for streams? */
static bool listens(int fd)
{
    int is = 0, type = 0;
    socklen_t n = sizeof(is), ntype = sizeof(type);

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is, &n) == 0 && is &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &ntype) == 0 &&
           type == SOCK_STREAM;
}

int address_adopt(struct address *a, int fd, struct err *err)
{
    static const char what[] = "LISTEN_FDS";
    struct sockaddr_un at = { 0 };
    socklen_t n = sizeof(at);
    const char *host, *colon;

    *a = (struct address){ .fd = -1 };
    if (!listens(fd))
        return err_set(err, ERR_USAGE, "%s: descriptor %d is no socket that listens",
                       what, fd);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        return err_errno(err, "%s", what);
    a->fd = fd;
    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0 && at.sun_family == AF_UNIX) {
        a->local = true;
        str_addf(&a->url, "unix:%.*s", (int)sizeof(at.sun_path) - 1, at.sun_path);
        return 0;
    }
    if (name_url(a, what, err) < 0)
        return -1;
    host = strchr(str_text(&a->url), '/') + 2;
    colon = strrchr(host, ':');
    a->name = *host == '[' ? xstrndup(host + 1, (size_t)(colon - host) - 2)
                           : xstrndup(host, (size_t)(colon - host));
    return 0;
}

int address_listen(const struct address *a, struct err *err)
{
    return listen(a->fd, SOMAXCONN) < 0 ? err_errno(err, "%s", str_text(&a->url)) : 0;
}

static bool is_loopback_name(const char *name)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (inet_pton(AF_INET, name, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, name, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return !strcasecmp(name, "localhost");
}

bool address_is_named(const struct address *a, const char *host)
{
    const bool bracketed = host && *host == '[';
    char *name =
        host ? xstrndup(host + bracketed, strcspn(host, bracketed ? "]" : ":")) : NULL;
    bool is;

    if (bracketed)
        name[strcspn(name, "]")] = '\0';
    is = name && (is_loopback_name(name) || (a->name && !strcasecmp(name, a->name)));
    free(name);
    return is;
}

void address_close(struct address *a)
{
    if (a->path)
        unlink(a->path);
    free(a->path);
    free(a->name);
    if (a->fd >= 0)
        close(a->fd);
    str_clear(&a->url);
    *a = (struct address){ .fd = -1 };
}
