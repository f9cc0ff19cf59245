/* wires - device communicators beside a rank's process groups
 *
 * Ranks communicate as groups of processes (comm.h).  When the devices of all ranks of
 * a group can communicate directly, the group also gets a device communicator:
 * activations then go from device to device, while control messages still go through
 * the hosts. */
#ifndef LIB_RUN_WIRES_H
#define LIB_RUN_WIRES_H

#include "lib/comm/comm.h"
#include "lib/device/device.h"

enum wires_mode {
    WIRES_AUTO, /* if all devices can, and each rank has its own */
    WIRES_NONE, /* never */
    WIRES_MUST
};

struct wires {
    const struct device_exchange *ops;
    struct wire {
        struct comm *comm;
        struct device_group *group;
    } wire[4];
    int n;
};

/* How a rank uses its device. */
struct wires_setup {
    enum wires_mode mode;
    bool shared; /* several ranks may use one device */
    int limit_s; /* time limit for a rank's part in a collective; 0: none */
};

/* Creates a device communicator beside each of the N groups of COMM that has several
 * ranks.  Collective over WORLD.  Call wires_close also after a failure. */
MUST_CHECK int wires_open(struct wires *w, const struct backend *ops,
                          struct device *device, const struct wires_setup *setup,
                          struct comm *world, struct comm *const *comm, int n,
                          struct err *err);
/* Waits until all ranks of all groups have finished their work. */
MUST_CHECK int wires_finish(struct wires *w, struct err *err);
void wires_close(struct wires *w);
/* The device communicator of COMM, or NULL; W may be NULL. */
struct device_group *wires_of(const struct wires *w, const struct comm *comm);

#endif
