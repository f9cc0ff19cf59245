/* replays - recorded steps of a device, keyed by shape
 *
 * A step's shape is everything that its kernel launches depend on: numbers of rows, and
 * addresses.  Steps of one shape differ only in the contents of device memory. */
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

/* The most recent shapes. */
struct replays {
    struct shape shape; /* of the present step */
    struct replay {
        struct shape shape;
        struct recording *made; /* or NULL: seen, not recorded */
        unsigned long used;
    } v[REPLAYS];
    unsigned long now;
    const struct backend *ops;
    struct device *device;
};

void replays_init(struct replays *r, const struct backend *ops, struct device *d);
void replays_clear(struct replays *r);
/* The shape of the current step, for the caller to fill in. */
struct shape *replays_shape(struct replays *r);
/* Replays the recording of the current shape; returns 1, or 0 if there is none, or -1.
 */
MUST_CHECK int replays_run(struct replays *r, struct err *err);
/* Has there been a step of the current shape?  Remembers the shape. */
bool replays_seen(struct replays *r);
/* Sets the recording of the current shape, which has been seen; takes ownership of
 * MADE. */
void replays_add(struct replays *r, struct recording *made);

#endif
