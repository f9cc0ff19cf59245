/* http - an HTTP/1.1 server (libmicrohttpd) for answers that come with time
 *
 * Threads of the server read requests and write answers; nobody else waits for a
 * socket.  A request is answered at once, or later: then its exchange waits until
 * somebody who works on the answer calls http_wake, from any thread, and the server
 * asks again what there is.
 *
 *     head --> admit --> body --> answer --> reply
 *                                    \--> later: look, http_wake, look, ...
 *                                               more, http_wake, more, ... end
 *
 * A connection has a time for the head of a request, its body, and between requests;
 * it is closed after that, however many bytes have come.  A client that closes its
 * connection is noticed while it waits. */
#ifndef LIB_SERVE_HTTP_H
#define LIB_SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

struct http;
struct http_exchange; /* a request and its answer */

struct http_request {
    const char *method, *path; /* the path without its query, percent-decoded */
    const char *authorization; /* of this header; or NULL */
    const char *host, *origin; /* the same */
    const char *body;          /* [nbody], and a NUL */
    size_t nbody;
};

/* `struct http_reply r = { 0 }` has no status yet. */
struct http_reply {
    int status;
    const char *type;  /* a constant: of the body */
    struct str body;   /* not read in a streamed answer */
    int retry_after_s; /* 0: not said */
    const char *allow; /* a constant: methods; or NULL */
};

enum http_turn {
    HTTP_WAITS,   /* there is nothing yet; http_wake follows */
    HTTP_WHOLE,   /* of .look: the reply is set */
    HTTP_STREAMS, /* of .look: status and type are set, .more has the body; of .more:
                   * bytes were appended */
    HTTP_ENDS,    /* of .more: it was all */
    HTTP_BREAKS   /* of .more: the connection is cut, the answer stays incomplete */
};

/* An answer that comes later.  Calls for an exchange are made one after another. */
struct http_later {
    enum http_turn (*look)(void *state, struct http_reply *reply);
    enum http_turn (*more)(void *state, struct str *out);
    /* The last call.  LEFT: the client is gone, or the connection was cut. */
    void (*end)(void *state, bool left);
};

/* What has become of a request. */
struct http_record {
    const char *client; /* its address, or "unix" */
    int status;         /* of the answer; 0: none was sent */
    bool left;          /* the client has not waited for all of it */
    double seconds;     /* since its head was read */
    const char *notes;  /* what http_note has been given */
};

/* What answers requests, called by several threads at a time. */
struct http_handler {
    /* Before the body is read: sets *reply to answer already, which closes the
     * connection; or leaves .status 0. */
    void (*admit)(void *arg, const struct http_request *r, struct http_reply *reply);
    /* Sets *reply, or calls http_later. */
    void (*answer)(void *arg, const struct http_request *r, struct http_exchange *x,
                   struct http_reply *reply);
    /* Sets the reply's body and type for STATUS, which the server gives itself: 413. */
    void (*refuse)(void *arg, int status, const char *why, struct http_reply *reply);
    /* A request is over.  .body is not read any more; or NULL. */
    void (*log)(void *arg, const struct http_request *r,
                const struct http_record *record);
    void *arg;
};

struct http_limits {
    int connections;
    size_t body; /* bytes */
    int head_s, body_s, idle_s;
};

/* ERR_NO: this build has no libmicrohttpd. */
MUST_CHECK int http_check(struct err *err);
/* Serves the listening socket FD, which becomes the server's. */
MUST_CHECK int http_open(struct http **out, int fd, const struct http_limits *limits,
                         const struct http_handler *handler, struct err *err);
/* During .answer: LATER has the answer of X. */
void http_answer_later(struct http_exchange *x, const struct http_later *later,
                       void *state);
/* During .answer, .look, .more or .end: appends to what the log is given of X. */
void http_note(struct http_exchange *x, const char *text);
/* Somebody besides the server uses X until http_drop. */
void http_hold(struct http_exchange *x);
void http_drop(struct http_exchange *x);
/* The next .look or .more of X finds something.  A no-op when X is over. */
void http_wake(struct http_exchange *x);
/* No new connection; waits LIMIT_S seconds for answers on their way, ends all others,
 * and releases S.  NULL is allowed. */
void http_close(struct http *s, int limit_s);

#endif
