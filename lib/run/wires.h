/* wires - the groups of a rank whose devices exchange values by themselves
 *
 * Ranks know each other as groups of processes (comm.h).  Where all of their devices
 * can, a group of devices stands beside each, and what the ranks compute goes from
 * device to device; what the hosts say to one another goes on as before. */
#ifndef LIB_RUN_WIRES_H
#define LIB_RUN_WIRES_H

#include "lib/comm/comm.h"
#include "lib/device/device.h"

enum wires_mode {
    WIRES_AUTO, /* where all can, each with a device of its own */
    WIRES_NONE, /* through the hosts */
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

/* How a rank's device is to be used. */
struct wires_setup {
    enum wires_mode mode;
    bool shared; /* several ranks may use one device */
    int limit_s; /* that a rank may take for its part of an exchange; 0: any */
};

/* Make a group of devices beside each of the N groups of COMM that has several ranks;
 * all ranks of WORLD call it.  Release with wires_close, also after a failure. */
MUST_CHECK int wires_open(struct wires *w, const struct backend *ops,
                          struct device *device, const struct wires_setup *setup,
                          struct comm *world, struct comm *const *comm, int n,
                          struct err *err);
/* All ranks of all groups have done what they had to do. */
MUST_CHECK int wires_finish(struct wires *w, struct err *err);
void wires_close(struct wires *w);
/* The devices of COMM's ranks, or NULL; W may be NULL. */
struct device_group *wires_of(const struct wires *w, const struct comm *comm);

#endif
