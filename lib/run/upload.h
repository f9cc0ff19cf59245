/* upload - copies a step's host arrays to device memory in one transfer
 *
 * The host adds arrays one after another and gets their offsets; upload_send copies all
 * to the device, after which upload_at gives their device addresses.  They are valid
 * until the next upload_begin.
 *
 * The memory is made for the largest step: upload_plan, the same calls of upload_add
 * with its sizes, which then only count, and upload_open. */
#ifndef LIB_RUN_UPLOAD_H
#define LIB_RUN_UPLOAD_H

#include "lib/device/device.h"

struct upload {
    const struct backend *ops;
    struct device *device;
    char *host, *memory; /* host buffer, and device memory */
    size_t n, cap, room; /* bytes used; capacity of the host buffer; of the device
                          * memory */
    size_t most;         /* of the largest step */
    bool plans;          /* upload_add only counts */
    uint64_t grown;      /* how often a step was larger */
};

void upload_init(struct upload *u, const struct backend *ops, struct device *device);
void upload_clear(struct upload *u);
void upload_plan(struct upload *u);
uint64_t upload_bytes(const struct upload *u);
MUST_CHECK int upload_open(struct upload *u, struct err *err);
void upload_begin(struct upload *u);
/* Adds N elements of SIZE bytes, copied from V, or zeros when V is NULL.  Returns the
 * offset. */
size_t upload_add(struct upload *u, const void *v, size_t n, size_t size);
/* The host copy of the array at OFFSET, to be filled; valid until the next
 * upload_add. */
void *upload_host(struct upload *u, size_t offset);
MUST_CHECK int upload_send(struct upload *u, struct err *err);
const void *upload_at(const struct upload *u, size_t offset);

#endif
