/* http - an HTTP/1.1 server (libmicrohttpd) for answers that come with time
 *
 * The library's threads run all of this but http_wake, http_close and watch().  It
 * stops looking at a connection that waits (MHD_suspend_connection), also for its end;
 * so one more thread polls those, and enforces the times of all connections by shutting
 * their sockets down. */
#define _GNU_SOURCE
#include "lib/serve/http.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#ifdef HAVE_MICROHTTPD
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

enum {
    THREADS = 4,        /* that read requests and write answers */
    BLOCK = 1 << 14,    /* bytes of an answer that are asked for at a time */
    BODIES = 32,        /* total room for bodies, in largest ones */
    POLL_MOST_MS = 1000 /* times are looked at so often */
};

/* What a connection has a limited time for. */
enum phase { IDLE, HEAD, BODY, ANSWER };

struct connection {
    int fd;
    enum phase phase;
    double until;                   /* its end; unused in ANSWER */
    uint64_t number;                /* of the connection, from 1 */
    struct http_exchange *exchange; /* the current one */
    struct connection *prev, *next;
};

struct http {
    struct MHD_Daemon *daemon;
    struct http_limits limits;
    const struct http_handler *handler;
    pthread_t watcher;
    int wake[2];                /* pipe: the watcher looks again */
    pthread_mutex_t lock;       /* of what follows; taken before an exchange's */
    pthread_cond_t fewer;       /* an exchange has ended */
    struct connection *first;   /* open connections */
    uint64_t nconnections;      /* so far */
    size_t nexchanges, nbodies; /* requests that are not over; bytes of their bodies */
    bool closing;
};

struct http_exchange {
    struct http *server;
    struct MHD_Connection *connection;
    struct connection *of;
    struct http_request request;
    char *path;
    struct str body;
    size_t counted;          /* bytes of the body that .nbodies has */
    struct http_reply early; /* its answer whatever the body, which is not kept */
    size_t dropped;          /* bytes of it that were not */
    bool answered;
    int status;
    double came;
    struct str notes; /* for the log */
    const struct http_later *later;
    void *state;
    struct str rest; /* of a streamed answer: bytes that are not sent yet */
    size_t sent;     /* bytes of it that are */
    bool ended;      /* .rest is all that is left */
    bool whole;      /* all is sent */

    pthread_mutex_t lock; /* of what follows */
    int users;
    bool over;      /* no call may follow */
    bool suspended; /* the library does not look at the connection */
    bool woken;     /* since the last look */
    bool gone;      /* the client has closed the connection, or it is cut */
};

static void stir(struct http *s)
{
    (void)!write(s->wake[1], "", 1); /* a full pipe wakes as well */
}

/* ---- exchanges ---- */

void http_hold(struct http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->users++;
    pthread_mutex_unlock(&x->lock);
}

void http_drop(struct http_exchange *x)
{
    int users;

    pthread_mutex_lock(&x->lock);
    users = --x->users;
    pthread_mutex_unlock(&x->lock);
    if (users)
        return;
    pthread_mutex_destroy(&x->lock);
    str_clear(&x->body);
    str_clear(&x->rest);
    str_clear(&x->early.body);
    str_clear(&x->notes);
    free(x->path);
    free(x);
}

void http_wake(struct http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->woken = true;
    if (x->suspended && !x->over) {
        x->suspended = false;
        MHD_resume_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
}

/* Stops looking at X's connection until it is woken; false: it has been already. */
static bool suspend(struct http_exchange *x)
{
    bool waits;

    pthread_mutex_lock(&x->lock);
    waits = !x->woken && !x->gone;
    x->woken = false;
    if (waits) {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
    return waits;
}

static bool is_gone(struct http_exchange *x)
{
    bool gone;

    pthread_mutex_lock(&x->lock);
    gone = x->gone;
    pthread_mutex_unlock(&x->lock);
    return gone;
}

/* Under the server's lock.  The library's thread then finds out. */
static void cut_off(struct http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->gone = true;
    pthread_mutex_unlock(&x->lock);
    http_wake(x);
}

void http_note(struct http_exchange *x, const char *text)
{
    str_add(&x->notes, text);
}

void http_answer_later(struct http_exchange *x, const struct http_later *later,
                       void *state)
{
    x->later = later;
    x->state = state;
}

static double time_of(const struct http *s, enum phase phase)
{
    return phase == HEAD   ? s->limits.head_s
           : phase == BODY ? s->limits.body_s
                           : s->limits.idle_s;
}

static void enter(struct http *s, struct connection *c, enum phase phase)
{
    pthread_mutex_lock(&s->lock);
    c->phase = phase;
    c->until = clock_seconds() + time_of(s, phase);
    pthread_mutex_unlock(&s->lock);
    if (phase == ANSWER)
        stir(s);
}

/* ---- the watcher ---- */

struct watched {
    uint64_t number; /* of the connection, whose memory another one may have by now */
    struct http_exchange *x;
};

/* Fills POLLED after its first entry with connections that are being answered, and
 * closes those whose time is over.  Returns their number. */
static size_t look_around(struct http *s, struct pollfd *polled,
                          struct watched *watched)
{
    const double now = clock_seconds();
    size_t n = 0;

    for (struct connection *c = s->first; c; c = c->next) {
        if (c->phase != ANSWER && now >= c->until)
            shutdown(c->fd, SHUT_RDWR);
        if (c->phase != ANSWER || !c->exchange || is_gone(c->exchange) ||
            n == (size_t)s->limits.connections)
            continue;
        polled[++n] = (struct pollfd){ .fd = c->fd, .events = POLLRDHUP };
        watched[n] = (struct watched){ c->number, c->exchange };
    }
    return n;
}

/* The client of W has closed its connection. */
static void notice_hangup(struct http *s, const struct watched *w)
{
    struct connection *c = s->first;

    while (c && c->number != w->number)
        c = c->next;
    if (c && c->exchange == w->x && c->phase == ANSWER)
        cut_off(w->x);
}

static void *watch(void *arg)
{
    struct http *s = arg;
    const size_t most = (size_t)s->limits.connections + 1;
    struct pollfd *polled = xcalloc(most, sizeof(*polled));
    struct watched *watched = xcalloc(most, sizeof(*watched));
    char bytes[64];

    polled[0] = (struct pollfd){ .fd = s->wake[0], .events = POLLIN };
    pthread_mutex_lock(&s->lock);
    while (!s->closing || s->first) {
        size_t n = look_around(s, polled, watched);

        pthread_mutex_unlock(&s->lock);
        poll(polled, n + 1, POLL_MOST_MS);
        while (read(s->wake[0], bytes, sizeof(bytes)) > 0)
            ;
        pthread_mutex_lock(&s->lock);
        for (size_t i = 1; i <= n; i++)
            if (polled[i].revents)
                notice_hangup(s, &watched[i]);
    }
    pthread_mutex_unlock(&s->lock);
    free(polled);
    free(watched);
    return NULL;
}

/* ---- connections, on the library's threads ---- */

static void notice_connection(void *arg, struct MHD_Connection *connection,
                              void **context, enum MHD_ConnectionNotificationCode code)
{
    struct http *s = arg;
    struct connection *c = *context;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

        *context = c = xcalloc(1, sizeof(*c));
        c->fd = info->connect_fd;
        c->phase = HEAD;
        c->until = clock_seconds() + s->limits.head_s;
        pthread_mutex_lock(&s->lock);
        c->number = ++s->nconnections;
        c->next = s->first;
        if (c->next)
            c->next->prev = c;
        s->first = c;
        pthread_mutex_unlock(&s->lock);
        return;
    }
    /* the socket is closed after this call, so that nobody shuts down another one */
    pthread_mutex_lock(&s->lock);
    if (c->prev)
        c->prev->next = c->next;
    else
        s->first = c->next;
    if (c->next)
        c->next->prev = c->prev;
    pthread_mutex_unlock(&s->lock);
    free(c);
    *context = NULL;
}

/* The first line of a request has come. */
static void *notice_line(void *arg, const char *uri, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http *s = arg;
    struct connection *c = info->socket_context;

    (void)uri;
    if (c->phase == IDLE)
        enter(s, c, HEAD);
    return NULL;
}

static void add_client(struct str *out, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *at = info ? info->client_addr : NULL;
    char name[NI_MAXHOST];

    if (at && (at->sa_family == AF_INET || at->sa_family == AF_INET6) &&
        getnameinfo(at,
                    at->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                             : sizeof(struct sockaddr_in6),
                    name, sizeof(name), NULL, 0, NI_NUMERICHOST) == 0)
        str_add(out, name);
    else
        str_add(out, "unix");
}

static void log_end(struct http *s, struct http_exchange *x,
                    struct MHD_Connection *connection, bool left)
{
    struct str client = { 0 };
    struct http_record record = { .status = x->status,
                                  .left = left,
                                  .seconds = clock_seconds() - x->came,
                                  .notes = str_text(&x->notes) };

    if (!s->handler->log)
        return;
    add_client(&client, connection);
    record.client = str_text(&client);
    s->handler->log(s->handler->arg, &x->request, &record);
    str_clear(&client);
}

static void notice_end(void *arg, struct MHD_Connection *connection, void **context,
                       enum MHD_RequestTerminationCode how)
{
    struct http *s = arg;
    struct http_exchange *x = *context;
    bool left;

    if (!x)
        return;
    *context = NULL;
    left = how != MHD_REQUEST_TERMINATED_COMPLETED_OK || (!x->whole && !x->answered);
    pthread_mutex_lock(&x->lock);
    x->over = true;
    pthread_mutex_unlock(&x->lock);
    if (x->later)
        x->later->end(x->state, left);
    log_end(s, x, connection, left);
    pthread_mutex_lock(&s->lock);
    x->of->exchange = NULL;
    x->of->phase = IDLE;
    x->of->until = clock_seconds() + s->limits.idle_s;
    s->nbodies -= x->counted;
    s->nexchanges--;
    pthread_cond_broadcast(&s->fewer);
    pthread_mutex_unlock(&s->lock);
    http_drop(x);
}

/* ---- answers ---- */

static enum MHD_Result queue(struct http_exchange *x, struct http_reply *reply,
                             struct MHD_Response *response)
{
    char number[16];
    enum MHD_Result ret;

    if (!response)
        return MHD_NO;
    if (reply->type)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
    if (reply->allow)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, reply->allow);
    if (reply->status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                "Bearer, Basic realm=\"API key as the password\"");
    if (reply->retry_after_s) {
        snprintf(number, sizeof(number), "%d", reply->retry_after_s);
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, number);
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    x->status = reply->status;
    ret = MHD_queue_response(x->connection, (unsigned)reply->status, response);
    MHD_destroy_response(response);
    return ret;
}

static enum MHD_Result answer_whole(struct http_exchange *x, struct http_reply *reply)
{
    size_t n = reply->body.len;
    char *body = str_steal(&reply->body);
    struct MHD_Response *response = MHD_create_response_from_buffer(
        n, body ? body : (void *)(uintptr_t) "",
        body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);

    if (!response)
        free(body);
    x->answered = true;
    return queue(x, reply, response);
}

/* The next bytes of a streamed answer. */
static ssize_t read_more(void *arg, uint64_t position, char *to, size_t most)
{
    struct http_exchange *x = arg;
    enum http_turn turn = HTTP_STREAMS;
    size_t n;

    (void)position;
    if (is_gone(x))
        return MHD_CONTENT_READER_END_WITH_ERROR;
    while (x->sent == x->rest.len && !x->ended) {
        str_reset(&x->rest);
        x->sent = 0;
        turn = x->later->more(x->state, &x->rest);
        if (turn == HTTP_BREAKS)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        x->ended = turn == HTTP_ENDS;
        if (turn == HTTP_WAITS && suspend(x))
            return 0;
        if (is_gone(x))
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    n = x->rest.len - x->sent < most ? x->rest.len - x->sent : most;
    if (!n) {
        x->whole = true;
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    memcpy(to, x->rest.s + x->sent, n);
    x->sent += n;
    return (ssize_t)n;
}

static enum MHD_Result look(struct http_exchange *x)
{
    for (;;) {
        struct http_reply reply = { 0 };
        enum http_turn turn;

        if (is_gone(x))
            return MHD_NO;
        turn = x->later->look(x->state, &reply);
        if (turn == HTTP_WHOLE)
            return answer_whole(x, &reply);
        if (turn == HTTP_STREAMS)
            return queue(x, &reply,
                         MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK,
                                                           read_more, x, NULL));
        if (suspend(x))
            return MHD_YES;
    }
}

/* ---- requests ---- */

static const char *header(struct MHD_Connection *c, const char *name)
{
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

static struct http_exchange *exchange_new(struct http *s, struct MHD_Connection *c,
                                          const char *path, const char *method)
{
    struct http_exchange *x = xcalloc(1, sizeof(*x));

    x->server = s;
    x->connection = c;
    x->of =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    x->path = xstrdup(path);
    x->request = (struct http_request){ .method = method,
                                        .path = x->path,
                                        .authorization =
                                            header(c, MHD_HTTP_HEADER_AUTHORIZATION),
                                        .host = header(c, MHD_HTTP_HEADER_HOST),
                                        .origin = header(c, MHD_HTTP_HEADER_ORIGIN) };
    x->came = clock_seconds();
    x->users = 1;
    pthread_mutex_init(&x->lock, NULL);
    pthread_mutex_lock(&s->lock);
    s->nexchanges++;
    x->of->exchange = x;
    x->gone = s->closing;
    pthread_mutex_unlock(&s->lock);
    return x;
}

static void refuse_body(struct http_exchange *x)
{
    const struct http_handler *h = x->server->handler;

    x->early.status = MHD_HTTP_CONTENT_TOO_LARGE;
    h->refuse(h->arg, x->early.status, "the body is too large", &x->early);
}

/* The head of a request.  A client reads no answer while it sends, and a connection
 * that is closed with unread bytes takes the answer along: so the body of a refused
 * request is read as well, unless the client waits or says that it is huge. */
static enum MHD_Result admit(struct http *s, struct http_exchange *x)
{
    const char *length = header(x->connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    uint64_t n = 0;

    enter(s, x->of, BODY);
    s->handler->admit(s->handler->arg, &x->request, &x->early);
    if (length)
        (void)str_u64(length, &n);
    if (!x->early.status && n > s->limits.body)
        refuse_body(x);
    if (x->early.status &&
        (n > s->limits.body || header(x->connection, MHD_HTTP_HEADER_EXPECT)))
        return answer_whole(x, &x->early);
    return MHD_YES;
}

/* Keeps what has come of the body; false: there is no end of it. */
static bool take_body(struct http *s, struct http_exchange *x, const char *bytes,
                      size_t n)
{
    bool room = false;

    if (!x->early.status) {
        pthread_mutex_lock(&s->lock);
        room = x->body.len + n <= s->limits.body &&
               s->nbodies + n <= BODIES * s->limits.body;
        s->nbodies += room ? n : 0;
        x->counted += room ? n : 0;
        pthread_mutex_unlock(&s->lock);
        if (!room)
            refuse_body(x);
    }
    if (room)
        str_addn(&x->body, bytes, n);
    else
        x->dropped += n;
    return x->dropped <= s->limits.body;
}

static enum MHD_Result answer(struct http *s, struct http_exchange *x)
{
    struct http_reply reply = { 0 };

    if (x->early.status)
        return answer_whole(x, &x->early);
    enter(s, x->of, ANSWER);
    x->request.body = str_text(&x->body);
    x->request.nbody = x->body.len;
    s->handler->answer(s->handler->arg, &x->request, x, &reply);
    return x->later ? look(x) : answer_whole(x, &reply);
}

/* Called with each part of a request, and after a suspension. */
static enum MHD_Result handle(void *arg, struct MHD_Connection *connection,
                              const char *path, const char *method, const char *version,
                              const char *bytes, size_t *n, void **context)
{
    struct http *s = arg;
    struct http_exchange *x = *context;

    (void)version;
    if (!x) {
        *context = x = exchange_new(s, connection, path, method);
        return admit(s, x);
    }
    if (*n) {
        bool read_on = take_body(s, x, bytes, *n);

        *n = 0;
        return read_on ? MHD_YES : MHD_NO;
    }
    return x->later ? look(x) : answer(s, x);
}

/* ---- opening and closing ---- */

/* Signals are for the thread that opens the server. */
static int start(struct http *s, int fd, struct err *err)
{
    const struct MHD_OptionItem options[] = {
        { MHD_OPTION_LISTEN_SOCKET, fd, NULL },
        { MHD_OPTION_THREAD_POOL_SIZE, THREADS, NULL },
        { MHD_OPTION_CONNECTION_LIMIT, s->limits.connections, NULL },
        { MHD_OPTION_CONNECTION_TIMEOUT, s->limits.idle_s, NULL },
        { MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL },
        { MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)notice_connection, s },
        { MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)notice_end, s },
        { MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)notice_line, s },
        { MHD_OPTION_END, 0, NULL }
    };
    /* poll, as with epoll the library asks for edges, and misses ends of connections:
     * those that come with the last bytes it reads, and before it is resumed */
    const unsigned flags =
        MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC;
    sigset_t all, old;
    int ret = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    s->daemon = MHD_start_daemon(flags, 0, NULL, NULL, handle, s, MHD_OPTION_ARRAY,
                                 options, MHD_OPTION_END);
    if (!s->daemon)
        ret =
            err_set(err, ERR_SYSTEM, "libmicrohttpd cannot start: %s", strerror(errno));
    else if (pthread_create(&s->watcher, NULL, watch, s) != 0) {
        MHD_stop_daemon(s->daemon);
        ret = err_set(err, ERR_SYSTEM, "the server's thread cannot be started");
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ret;
}

static void release(struct http *s)
{
    close(s->wake[0]);
    close(s->wake[1]);
    pthread_cond_destroy(&s->fewer);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

int http_check(struct err *err)
{
    (void)err;
    return 0;
}

int http_open(struct http **out, int fd, const struct http_limits *limits,
              const struct http_handler *handler, struct err *err)
{
    struct http *s = xcalloc(1, sizeof(*s));
    pthread_condattr_t clock;

    s->limits = *limits;
    if (s->limits.connections < THREADS)
        s->limits.connections = THREADS;
    s->handler = handler;
    if (pipe2(s->wake, O_CLOEXEC | O_NONBLOCK) < 0) {
        free(s);
        return err_errno(err, "a pipe");
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&s->fewer, &clock);
    pthread_condattr_destroy(&clock);
    if (start(s, fd, err) < 0) {
        release(s);
        return -1;
    }
    *out = s;
    return 0;
}

/* Waits until no request is open, or LIMIT_S seconds have passed. */
static void settle(struct http *s, int limit_s)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += limit_s;
    while (s->nexchanges && pthread_cond_timedwait(&s->fewer, &s->lock, &until) == 0)
        ;
}

void http_close(struct http *s, int limit_s)
{
    MHD_socket fd;

    if (!s)
        return;
    fd = MHD_quiesce_daemon(s->daemon);
    pthread_mutex_lock(&s->lock);
    settle(s, limit_s);
    s->closing = true;
    for (struct connection *c = s->first; c; c = c->next)
        if (c->exchange)
            cut_off(c->exchange);
    pthread_mutex_unlock(&s->lock);
    MHD_stop_daemon(s->daemon);
    if (fd != MHD_INVALID_SOCKET)
        close(fd);
    stir(s);
    pthread_join(s->watcher, NULL);
    release(s);
}

#else /* HAVE_MICROHTTPD */

int http_check(struct err *err)
{
    return err_set(err, ERR_NO, "this build has no libmicrohttpd, which serves HTTP");
}

int http_open(struct http **out, int fd, const struct http_limits *limits,
              const struct http_handler *handler, struct err *err)
{
    (void)out;
    (void)fd;
    (void)limits;
    (void)handler;
    return http_check(err);
}

void http_answer_later(struct http_exchange *x, const struct http_later *later,
                       void *state)
{
    (void)x;
    (void)later;
    (void)state;
}

void http_note(struct http_exchange *x, const char *text)
{
    (void)x;
    (void)text;
}

void http_hold(struct http_exchange *x)
{
    (void)x;
}

void http_drop(struct http_exchange *x)
{
    (void)x;
}

void http_wake(struct http_exchange *x)
{
    (void)x;
}

void http_close(struct http *s, int limit_s)
{
    (void)s;
    (void)limit_s;
}
#endif
