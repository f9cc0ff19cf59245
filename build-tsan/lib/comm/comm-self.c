/* comm-self - a group of one rank */
#include <stdlib.h>

#include "lib/base/mem.h"
#include "lib/comm/collective.h"

static int self_start(struct comm *c, const struct collective *op, struct err *err)
{
    (void)c;
    (void)err;
    collective_alone(op);
    return 0;
}

static int self_wait(struct comm *c, struct err *err)
{
    (void)c;
    (void)err;
    return 0;
}

static int self_send(struct comm *c, const void *buf, size_t bytes, int to,
                     struct err *err)
{
    (void)c;
    (void)buf;
    (void)bytes;
    return err_set(err, ERR_SYSTEM, "there is no rank %d", to);
}

static int self_receive(struct comm *c, void *buf, size_t bytes, int from,
                        struct err *err)
{
    (void)c;
    (void)buf;
    (void)bytes;
    return err_set(err, ERR_SYSTEM, "there is no rank %d", from);
}

static int self_group(struct comm *c, const int *member, int n, struct comm **out,
                      struct err *err)
{
    (void)c;
    (void)member;
    (void)n;
    (void)err;
    *out = comm_self_open();
    return 0;
}

static int self_flush(struct comm *c, struct err *err)
{
    (void)c;
    (void)err;
    return 0;
}

static void self_close(struct comm *c)
{
    free(c);
}

static const struct comm_ops comm_self = {
    .name = "self",
    .start = self_start,
    .wait = self_wait,
    .send = self_send,
    .receive = self_receive,
    .group = self_group,
    .flush = self_flush,
    .close = self_close,
};

struct comm *comm_self_open(void)
{
    struct comm *c = xcalloc(1, sizeof(*c));

    c->ops = &comm_self;
    c->size = 1;
    return c;
}
