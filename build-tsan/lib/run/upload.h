/* upload - what a step's kernels read beside values, put into device memory at once
 *
 * The host adds arrays one after another and gets their offsets; upload_send copies
 * them all to the device, after which upload_at tells their addresses.  They stay until
 * the next upload_begin. */
#ifndef LIB_RUN_UPLOAD_H
#define LIB_RUN_UPLOAD_H

#include "lib/device/device.h"

struct upload {
    const struct backend *ops;
    struct device *device;
    char *host, *memory; /* of the device */
    size_t n, cap, room; /* bytes: added, and of both */
};

void upload_init(struct upload *u, const struct backend *ops, struct device *device);
void upload_clear(struct upload *u);
void upload_begin(struct upload *u);
/* N elements of SIZE bytes; those at V, or zeros where it is NULL. */
size_t upload_add(struct upload *u, const void *v, size_t n, size_t size);
/* What has been added at OFFSET, to be filled; until the next upload_add. */
void *upload_host(struct upload *u, size_t offset);
MUST_CHECK int upload_send(struct upload *u, struct err *err);
const void *upload_at(const struct upload *u, size_t offset);

#endif
