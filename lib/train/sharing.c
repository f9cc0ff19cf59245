/* sharing - the optimizer's state that replicas share, for one of them */
#include "lib/train/sharing.h"

#include <stdlib.h>

#include "lib/base/mem.h"

enum { PIECE = 1 << 20 }; /* bytes of a message, at most */

/* A replica asks another for N elements from AT of a slot; 0: no more. */
struct request {
    uint64_t at, n;
    int slot;
};

bool sharing_applies(const struct parameters *p)
{
    return p->owner.size > 1 && (p->slots > 0 || parameters_gathers(p));
}

/* The weight that has number AT of slot K, and in *IN which of its numbers. */
static int weight_at(const struct parameters *p, int k, uint64_t at, uint64_t *in)
{
    int low = 0, high = p->program->nweights - 1;

    while (low < high) {
        int middle = (low + high + 1) / 2;

        if (p->stored[k][middle] <= at)
            low = middle;
        else
            high = middle - 1;
    }
    *in = at - p->stored[k][low];
    return low;
}

/* The replica that has number AT of slot K, and *LEFT: as many of a weight from it on.
 */
static int owner_of(const struct parameters *p, int k, uint64_t at, uint64_t *left)
{
    uint64_t in, end, some;
    int i, r;

    if (k < 0)
        return parameters_owner_of(p, at, left);
    i = weight_at(p, k, at, &in);
    end = p->stored[k][i + 1] - p->stored[k][i];
    *left = end - in;
    if (parameters_form(p, i, k) != SLOT_LIKE) /* whole weights are dealt */
        return parameters_owner_of(p, p->row[i].at, &some);
    r = parameters_owner_of(p, p->row[i].at + in, &some);
    *left = some < *left ? some : *left;
    return r;
}

/* Copies N trained elements from AT, of one unit, which this rank owns, to BUF. */
static int copy_weights(const struct parameters *p, uint64_t at, float *buf, size_t n,
                        struct err *err)
{
    for (int i = 0; i < p->program->nweights; i++) {
        const struct parameter *row = &p->row[i];
        const uint64_t from = row->at > at ? row->at : at;
        const uint64_t end = row->at + row->n < at + n ? row->at + row->n : at + n;

        if (row->trained && from < end &&
            parameters_take(p, buf + (from - at), i, from - row->at, end - from, err) <
                0)
            return -1;
    }
    return 0;
}

/* Copies N elements from AT, which this rank owns, of slot K to BUF; of one weight. */
static int copy_own(const struct parameters *p, int k, uint64_t at, float *buf,
                    size_t n, struct err *err)
{
    uint64_t in;
    int i;

    if (k < 0)
        return copy_weights(p, at, buf, n, err);
    i = weight_at(p, k, at, &in);
    return parameters_take_slot(p, buf, i, k, in, n, err);
}

/* The same of those that rank R of the replicas owns, which serves. */
static int copy_other(struct comm *c, int r, int k, uint64_t at, float *buf, size_t n,
                      struct err *err)
{
    for (size_t done = 0, some; done < n; done += some) {
        struct request ask = { .at = at + done, .slot = k };

        some = n - done < PIECE / sizeof(float) ? n - done : PIECE / sizeof(float);
        ask.n = some;
        if (c->ops->send(c, &ask, sizeof(ask), r, err) < 0 ||
            c->ops->receive(c, buf + done, some * sizeof(float), r, err) < 0)
            return -1;
    }
    return 0;
}

int sharing_fetch(const struct parameters *p, struct comm *c, int k, uint64_t at,
                  float *buf, size_t n, struct err *err)
{
    while (n) {
        uint64_t left;
        int r = owner_of(p, k, at, &left);
        size_t some = left < n ? (size_t)left : n;

        if ((r == p->owner.rank ? copy_own(p, k, at, buf, some, err)
                                : copy_other(c, r, k, at, buf, some, err)) < 0)
            return -1;
        at += some;
        buf += some;
        n -= some;
    }
    return 0;
}

int sharing_serve(const struct parameters *p, struct comm *c, struct err *err)
{
    float *buf = xmalloc(PIECE);
    struct request ask = { .n = 1 };
    int ret = 0;

    while (ret == 0 && ask.n) {
        ret = c->ops->receive(c, &ask, sizeof(ask), 0, err);
        if (ret == 0 && ask.n &&
            (copy_own(p, ask.slot, ask.at, buf, (size_t)ask.n, err) < 0 ||
             c->ops->send(c, buf, (size_t)ask.n * sizeof(float), 0, err) < 0))
            ret = -1;
    }
    free(buf);
    return ret;
}

int sharing_dismiss(struct comm *c, struct err *err)
{
    const struct request none = { 0 };
    int ret = 0;

    for (int r = 1; r < c->size && ret == 0; r++)
        ret = c->ops->send(c, &none, sizeof(none), r, err);
    return ret;
}
