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

int replays_find(struct replays *r)
{
    struct replay *one = find(r);

    if (one && one->made && !r->ops->is_current(r->device, one->made)) {
        drop(r, one);
        one->shape.n = 0; /* not seen yet */
        one = NULL;
    }
    return !one ? -1 : one->made ? one->id : 0;
}

void replays_see(struct replays *r)
{
    struct replay *one = find(r);

    for (int i = 0; i < REPLAYS && !one; i++)
        one = r->v[i].shape.n ? NULL : &r->v[i];
    if (!one) {
        one = &r->v[0];
        for (int i = 1; i < REPLAYS; i++)
            if (r->v[i].used < one->used)
                one = &r->v[i];
    }
    drop(r, one);
    one->used = ++r->now;
    shape_begin(&one->shape);
    shape_add(&one->shape, r->shape.v, r->shape.n);
}

void replays_add(struct replays *r, struct recording *made, int id)
{
    struct replay *one = find(r);

    assert(one && !one->made && id > 0);
    one->made = made;
    one->id = id;
}

int replays_run(struct replays *r, struct err *err)
{
    struct replay *one = find(r);

    assert(one && one->made);
    one->used = ++r->now;
    return r->ops->replay(r->device, one->made, err);
}
