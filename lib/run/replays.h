/* replays - steps that a device has recorded, by their shape
 *
 * A step's shape is all that its kernels' launches depend on: numbers of rows, and
 * addresses.  Steps of one shape differ in what lies in memory alone. */
#ifndef LIB_RUN_REPLAYS_H
#define LIB_RUN_REPLAYS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/device/device.h"

struct shape {
    char *v;
    size_t n, cap;
};

void shape_begin(struct shape *s);
void shape_add(struct shape *s, const void *p, size_t bytes);

enum { REPLAYS = 8 };

/* The shapes seen last. */
struct replays {
    struct shape shape; /* of the present step */
    struct replay {
        struct shape shape;
        struct recording *made; /* or NULL: it has been seen */
        unsigned long used;
    } v[REPLAYS];
    unsigned long now;
    const struct backend *ops;
    struct device *device;
};

void replays_init(struct replays *r, const struct backend *ops, struct device *d);
void replays_clear(struct replays *r);
/* To be filled with the present step's. */
struct shape *replays_shape(struct replays *r);
/* Run what has been recorded of the present step's shape: 1; 0 where nothing has; or
 * -1. */
MUST_CHECK int replays_run(struct replays *r, struct err *err);
/* Has there been a step of this shape?  The next will be told yes. */
bool replays_seen(struct replays *r);
/* What has been recorded of the present shape, which has been seen; takes ownership. */
void replays_add(struct replays *r, struct recording *made);

#endif
