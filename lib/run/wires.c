/* wires - device communicators beside a rank's process groups */
#include "lib/run/wires.h"

#include <assert.h>
#include <stdlib.h>

#include "lib/base/mem.h"

/* Can the devices of all ranks take part?  All ranks get the same answer. */
static int ask(struct wires *w, const struct backend *ops, struct device *device,
               const struct wires_setup *setup, struct comm *world, bool *can,
               struct err *err)
{
    bool wanted =
        setup->mode == WIRES_MUST || (setup->mode == WIRES_AUTO && !setup->shared);
    bool mine = wanted && ops->exchange &&
                ops->exchange->probe(device, setup->shared, setup->limit_s);
    bool *all = xcalloc((size_t)world->size, sizeof(*all));
    int ret = comm_run(world, comm_all_gather(&mine, all, sizeof(mine)), err);

    *can = ret == 0;
    for (int r = 0; r < world->size && ret == 0; r++)
        if (!all[r]) {
            *can = false;
            if (setup->mode == WIRES_MUST)
                ret = err_set(err, ERR_SYSTEM,
                              "--comm nccl: rank %d has no NCCL 2.18 or newer: see "
                              "'tp-run devices'",
                              r);
        }
    free(all);
    if (*can)
        w->ops = ops->exchange;
    return ret;
}

static int add(struct wires *w, struct device *device, struct comm *comm,
               struct err *err)
{
    struct wire *wire = &w->wire[w->n];
    char id[DEVICE_GROUP_ID] = { 0 };

    assert((size_t)w->n < sizeof(w->wire) / sizeof(*w->wire));
    if ((comm->rank == 0 && w->ops->make_id(device, id, err) < 0) ||
        comm_run(comm, comm_broadcast(id, sizeof(id), 0), err) < 0 ||
        w->ops->join(&wire->group, device, id, comm->rank, comm->size, err) < 0)
        return -1;
    wire->comm = comm;
    w->n++;
    return 0;
}

int wires_open(struct wires *w, const struct backend *ops, struct device *device,
               const struct wires_setup *setup, struct comm *world,
               struct comm *const *comm, int n, struct err *err)
{
    bool can;

    *w = (struct wires){ 0 };
    if (world->size == 1)
        return 0;
    if (ask(w, ops, device, setup, world, &can, err) < 0)
        return -1;
    for (int i = 0; i < n && can; i++)
        if (comm[i]->size > 1 && add(w, device, comm[i], err) < 0)
            return -1;
    return 0;
}

int wires_finish(struct wires *w, struct err *err)
{
    for (int i = 0; i < w->n; i++) /* a rank that has ended normally is no failure */
        if (comm_run(w->wire[i].comm, comm_all_reduce(&(float){ 0 }, 1), err) < 0)
            return -1;
    for (int i = 0; i < w->n; i++)
        if (w->ops->finish(w->wire[i].group, err) < 0)
            return -1;
    return 0;
}

void wires_close(struct wires *w)
{
    for (int i = 0; i < w->n; i++)
        w->ops->leave(w->wire[i].group);
    *w = (struct wires){ 0 };
}

struct device_group *wires_of(const struct wires *w, const struct comm *comm)
{
    for (int i = 0; w && i < w->n; i++)
        if (w->wire[i].comm == comm)
            return w->wire[i].group;
    return NULL;
}
