/* replays - recorded steps of a device, keyed by shape */
#include "lib/run/replays.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

void shape_begin(struct shape *s)
{
    s->n = 0;
}

void shape_add(struct shape *s, const void *p, size_t bytes)
{
    s->v = xgrow(s->v, &s->cap, s->n + bytes, 1);
    memcpy(s->v + s->n, p, bytes);
    s->n += bytes;
}

struct shape *replays_shape(struct replays *r)
{
    return &r->shape;
}

void replays_init(struct replays *r, const struct backend *ops, struct device *d)
{
    *r = (struct replays){ .ops = ops, .device = d };
}

static void drop(struct replays *r, struct replay *one)
{
    if (one->made)
        r->ops->forget(r->device, one->made);
    one->made = NULL;
}

void replays_clear(struct replays *r)
{
    for (int i = 0; i < REPLAYS; i++) {
        drop(r, &r->v[i]);
        free(r->v[i].shape.v);
    }
    free(r->shape.v);
    *r = (struct replays){ 0 };
}

static struct replay *find(struct replays *r)
{
    for (int i = 0; i < REPLAYS; i++)
        if (r->v[i].shape.n == r->shape.n &&
            !memcmp(r->v[i].shape.v, r->shape.v, r->shape.n))
            return &r->v[i];
    return NULL;
}

int replays_run(struct replays *r, struct err *err)
{
    struct replay *one = find(r);
    int done;

    if (!one || !one->made)
        return 0;
    one->used = ++r->now;
    done = r->ops->replay(r->device, one->made, err);
    if (done == 0) {
        drop(r, one);
        one->shape.n = 0; /* not seen yet */
    }
    return done;
}

bool replays_seen(struct replays *r)
{
    struct replay *one = find(r), *oldest = &r->v[0];

    if (one)
        return true;
    for (int i = 1; i < REPLAYS; i++)
        if (r->v[i].used < oldest->used)
            oldest = &r->v[i];
    drop(r, oldest);
    oldest->used = ++r->now;
    shape_begin(&oldest->shape);
    shape_add(&oldest->shape, r->shape.v, r->shape.n);
    return false;
}

void replays_add(struct replays *r, struct recording *made)
{
    struct replay *one = find(r);

    assert(one && !one->made);
    one->made = made;
}
