/* endpoints - what tp-run serve answers, by path */
#ifndef CMD_TP_RUN_ENDPOINTS_H
#define CMD_TP_RUN_ENDPOINTS_H

#include "cmd/tp-run/messages.h"
#include "cmd/tp-run/pooled.h"
#include "cmd/tp-run/sampling.h"
#include "lib/serve/http.h"
#include "lib/serve/accesslog.h"
#include "lib/serve/address.h"
#include "lib/serve/apikeys.h"
#include "lib/serve/metrics.h"
#include "lib/serve/queue.h"

struct endpoints {
    const struct session *session;
    enum pooled_task task;            /* what the model does */
    const struct messages_form *form; /* NULL: there is no chat template, because of */
    struct ids chat_stop; /* the session's, and the template's; the caller's */
    struct err no_form;   /* this */
    const struct sampling *sampling; /* defaults of requests */
    const char *name;                /* of the model */
    uint64_t context;                /* most tokens of a text */
    int64_t created;                 /* seconds since 1970 */
    const char *layout;              /* such as "tp=2" */
    struct queue *queue;
    struct metrics *metrics;
    struct accesslog *log;    /* or NULL */
    struct apikeys *keys;     /* NULL: anybody may ask, */
    const struct address *at; /* if the request names this; NULL: whatever it names */
};

/* Answers requests of any thread; the handler's .arg is *e. */
struct http_handler endpoints_handler(struct endpoints *e);

#endif
