/* client - requests to an HTTP/1.1 server, whose answers are read as they come */
#ifndef LIB_SERVE_CLIENT_H
#define LIB_SERVE_CLIENT_H

#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

/* Where a server is: http://HOST[:PORT][/BASE] or unix:PATH. */
struct client_url {
    char *host, *port; /* or NULL, with */
    char *path;        /* a Unix socket's */
    char *base;        /* what paths begin with; perhaps empty */
};

/* ERR_USAGE: TEXT is no such URL. */
MUST_CHECK int client_url_parse(struct client_url *u, const char *text,
                                struct err *err);
void client_url_clear(struct client_url *u);

struct client_request {
    const char *method, *path;
    const char *key;  /* an API key, or NULL */
    const char *body; /* JSON, or NULL */
};

/* Sends R on a connection of its own, and calls TAKE for each piece of the answer's
 * body as it comes, until it returns -1.  *status is that of the answer.  ERR_SYSTEM:
 * no connection, or it ended early; ERR_INPUT: what came is not HTTP. */
MUST_CHECK int client_run(const struct client_url *u, const struct client_request *r,
                          int *status,
                          int (*take)(void *arg, const char *bytes, size_t n),
                          void *arg, struct err *err);

#endif
