/* link - collectives and messages on device memory
 *
 * When the devices of a communicator's ranks can communicate directly (wires.h), they
 * do.  Otherwise data goes through host memory: without a copy when that is the
 * device's own memory; else it is copied out before a send and copied in after a
 * receive. */
#ifndef LIB_RUN_LINK_H
#define LIB_RUN_LINK_H

#include "lib/comm/comm.h"
#include "lib/device/device.h"
#include "lib/run/wires.h"

struct link {
    const struct backend *ops;
    struct device *device;
    const struct wires *wires; /* borrowed; or NULL */
    void *host[2];             /* send and receive buffers; unused with host memory */
    size_t cap[2];
    uint64_t most;  /* bytes of what is sent or received; 0: nothing */
    uint64_t grown; /* how often more was */
};

void link_init(struct link *l, const struct backend *ops, struct device *device);
void link_clear(struct link *l);
/* Does what ranks of C exchange go through the host's memory?  C may be NULL. */
bool link_is_staged(const struct link *l, const struct comm *c);
/* BYTES will be sent, received or read at a time; link_open makes room for all that. */
void link_plan(struct link *l, uint64_t bytes);
MUST_CHECK int link_open(struct link *l, struct err *err);
/* Bytes of the buffers. */
uint64_t link_bytes(const struct link *l);

/* y[n] = the sum of all ranks' x, of dtype f32 or f64; y may be x. */
MUST_CHECK int link_all_reduce(struct link *l, struct comm *c, const void *x, void *y,
                               size_t n, enum dtype dtype, struct err *err);
/* The COUNT[rank] elements of x that are this rank's, in rank order, become those of
 * the sum of all ranks' x; the others are of no use afterwards. */
MUST_CHECK int link_reduce_scatter(struct link *l, struct comm *c, float *x,
                                   const size_t *count, struct err *err);
/* all = the ranks' mine[count[rank]] elements of UNIT bytes, concatenated */
MUST_CHECK int link_all_gather(struct link *l, struct comm *c, const void *mine,
                               void *all, const size_t *count, size_t unit,
                               struct err *err);
MUST_CHECK int link_send(struct link *l, struct comm *c, const void *x, size_t bytes,
                         int to, struct err *err);
MUST_CHECK int link_receive(struct link *l, struct comm *c, void *x, size_t bytes,
                            int from, struct err *err);

/* Sets *out to the BYTES at X, device memory, readable by the host until the next
 * call. */
MUST_CHECK int link_read(struct link *l, const void *x, size_t bytes, const void **out,
                         struct err *err);

#endif
