/* benchcomm - measures the collectives of each mesh axis */
#include "cmd/tp-run/benchcomm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/run/link.h"

enum { LEAST_BYTES = 1 << 10, MOST_BYTES = 1 << 26, TIMES_LARGER = 4 };
static const double enough_s = 0.25; /* stop after a collective that takes this long */

/* A group, and the memory of its collectives. */
struct trial {
    const char *axis;
    struct comm *comm;
    struct link link;
    float *x, *all; /* device: a rank's part, and room for all ranks' parts */
    size_t *count;  /* [size] */
};

int bench_largest(struct comm *c, double *x, size_t n, struct err *err)
{
    double *all = xcalloc(n * (size_t)c->size + 1, sizeof(*all));
    int ret = comm_run(c, comm_all_gather(x, all, n * sizeof(*x)), err);

    for (size_t i = 0; i < n && ret == 0; i++)
        for (int r = 0; r < c->size; r++)
            if (all[(size_t)r * n + i] > x[i])
                x[i] = all[(size_t)r * n + i];
    free(all);
    return ret;
}

/* BYTES is the size of the whole: of x in an all-reduce, of all ranks' parts in an
 * all-gather. */
static int run_once(struct trial *t, bool gathers, size_t bytes, struct err *err)
{
    size_t n = bytes / sizeof(float);

    if (!gathers)
        return link_all_reduce(&t->link, t->comm, t->x, t->x, n, DTYPE_F32, err);
    for (int r = 0; r < t->comm->size; r++)
        t->count[r] = n / (size_t)t->comm->size;
    return link_all_gather(&t->link, t->comm, t->x, t->all, t->count, sizeof(float),
                           err);
}

/* The minimum of REPEAT times after a warm-up, on the slowest rank. */
static int time_one(struct trial *t, bool gathers, size_t bytes, int repeat,
                    double *seconds, struct err *err)
{
    *seconds = 0;
    for (int i = 0; i <= repeat; i++) {
        double start, one;

        if (comm_run(t->comm, comm_all_reduce(&(float){ 0 }, 1), err) < 0)
            return -1;
        start = clock_seconds();
        if (run_once(t, gathers, bytes, err) < 0 ||
            t->link.ops->wait(t->link.device, err) < 0)
            return -1;
        one = clock_seconds() - start;
        if (bench_largest(t->comm, &one, 1, err) < 0)
            return -1;
        if (i == 1 || (i > 1 && one < *seconds))
            *seconds = one;
    }
    return 0;
}

/* The bus bandwidth does not depend on the number of ranks (NVIDIA's nccl-tests,
 * PERFORMANCE.md): over N ranks an all-reduce sends each byte 2 (N - 1) / N times, an
 * all-gather (N - 1) / N times. */
static void print(const struct trial *t, bool gathers, size_t bytes, double seconds,
                  bool json)
{
    const char *kind = gathers ? "all-gather" : "all-reduce";
    const char *by = wires_of(t->link.wires, t->comm) ? t->link.wires->ops->name
                                                      : t->comm->ops->name;
    double n = t->comm->size,
           bus = (gathers ? 1 : 2) * (n - 1) / n * (double)bytes / seconds;
    char size[32];

    if (json)
        printf("{\"type\":\"collective\",\"axis\":\"%s\",\"ranks\":%d,\"by\":\"%s\","
               "\"kind\":\"%s\",\"bytes\":%zu,\"seconds\":%.6g,\"bus_bandwidth\":%.6g}"
               "\n",
               t->axis, t->comm->size, by, kind, bytes, seconds, bus);
    else
        printf("%-4s %5d  %-5s %-10s %10s %11.4g %12.4g\n", t->axis, t->comm->size, by,
               kind, str_human(size, bytes), 1e3 * seconds, bus / 1e9);
}

static void release_memory(struct trial *t)
{
    t->link.ops->release(t->link.device, t->x);
    t->link.ops->release(t->link.device, t->all);
    t->x = t->all = NULL;
}

static int open_memory(struct trial *t, size_t bytes, struct err *err)
{
    const struct backend *ops = t->link.ops;
    struct device *d = t->link.device;
    void *zeros = mem_alloc(bytes, "collectives", err);
    int ret = -1;

    if (zeros) {
        memset(zeros, 0, bytes);
        t->x = ops->alloc(d, bytes, "collectives", err);
        t->all = t->x ? ops->alloc(d, bytes, "collectives", err) : NULL;
        ret = t->all ? ops->copy_in(d, t->x, zeros, bytes, err) : -1;
    }
    free(zeros);
    return ret;
}

static int measure_axis(struct trial *t, int repeat, bool prints, bool json,
                        struct err *err)
{
    for (int gathers = 0; gathers < 2; gathers++) {
        double seconds = 0;

        for (size_t bytes = LEAST_BYTES; bytes <= MOST_BYTES && seconds < enough_s;
             bytes *= TIMES_LARGER) {
            int ret = open_memory(t, bytes, err);

            if (ret == 0)
                ret = time_one(t, gathers, bytes, repeat, &seconds, err);
            release_memory(t);
            if (ret < 0)
                return -1;
            if (prints)
                print(t, gathers, bytes, seconds, json);
        }
    }
    return 0;
}

int bench_collectives(struct runner *r, int repeat, bool json, struct err *err)
{
    const struct {
        const char *axis;
        struct comm *comm;
    } all[] = { { "tp", r->groups.tensor },
                { "sp", r->groups.sequence },
                { "ep", r->groups.expert },
                { "pp", r->groups.pipe } };
    struct trial t = { 0 };
    bool prints = r->world->rank == 0;
    int ret = 0;

    if (prints && !json)
        printf("%-4s %5s  %-5s %-10s %10s %11s %12s\n", "axis", "ranks", "by", "what",
               "bytes", "ms", "bus, GB/s");
    for (size_t i = 0; i < sizeof(all) / sizeof(*all) && ret == 0; i++) {
        t.axis = all[i].axis;
        t.comm = all[i].comm;
        if (t.comm->size == 1)
            continue;
        link_init(&t.link, r->ops, r->device);
        t.link.wires = &r->wires;
        t.count = xcalloc((size_t)t.comm->size, sizeof(*t.count));
        ret = measure_axis(&t, repeat, prints, json, err);
        free(t.count);
        link_clear(&t.link);
    }
    if (fflush(stdout) != 0 && ret == 0)
        ret = err_errno(err, "standard output");
    return ret;
}
