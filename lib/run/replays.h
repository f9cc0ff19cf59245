/* replays - recorded steps of a device, keyed by shape
 *
 * A step's shape is everything that its kernel launches depend on: row counts and
 * addresses.  Steps with equal shapes differ only in the contents of device memory. */
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
    struct shape shape; /* of the current step */
    struct replay {
        struct shape shape;
        struct recording *made; /* NULL: seen, but not recorded */
        int id;
        unsigned long used;
    } v[REPLAYS];
    unsigned long now;
    const struct backend *ops;
    struct device *device;
};

void replays_init(struct replays *r, const struct backend *ops, struct device *d);
void replays_clear(struct replays *r);
/* The shape of the current step; the caller fills it. */
struct shape *replays_shape(struct replays *r);
/* The id of the recording of the current shape; 0: a previous step had the shape, and
 * there is none; -1: the shape is new. */
int replays_find(struct replays *r);
/* Remembers the current shape; its recording, if any, is forgotten. */
void replays_see(struct replays *r);
/* Stores the recording of the current shape, which has been seen, under ID > 0; takes
 * ownership of MADE. */
void replays_add(struct replays *r, struct recording *made, int id);
/* Replays the recording that replays_find has found, or replays_add has stored. */
MUST_CHECK int replays_run(struct replays *r, struct err *err);

#endif
