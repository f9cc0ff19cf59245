/* limits - what of this machine each of the jobs that run at the same time may use */
#define _GNU_SOURCE /* sched_getaffinity */
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/sweep/job/limits.h"

enum { WORD = 8 * (int)sizeof(unsigned long) };

static bool has(const struct limits_cpus *c, int cpu)
{
    return c->bits[cpu / WORD] >> cpu % WORD & 1;
}

static int deal_cpus(struct limits *l, int per, struct err *err)
{
    struct limits_cpus ours = { { 0 } };
    int n = 0, at = 0;

    if (sched_getaffinity(0, sizeof(ours), (cpu_set_t *)(void *)ours.bits) < 0)
        return err_errno(err, "the processors");
    for (int cpu = 0; cpu < LIMITS_WORDS * WORD; cpu++)
        n += has(&ours, cpu);
    if (n < per)
        return err_set(err, ERR_USAGE, "%d processors for each trial, of %d", per, n);
    l->nslots = n / per;
    l->cpus = xcalloc((size_t)l->nslots, sizeof(*l->cpus));
    for (int cpu = 0; cpu < LIMITS_WORDS * WORD && at < l->nslots * per; cpu++)
        if (has(&ours, cpu))
            l->cpus[at++ / per].bits[cpu / WORD] |= 1ul << cpu % WORD;
    return 0;
}

int limits_deal(struct limits *l, int per, uint64_t memory_bytes, struct err *err)
{
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    int n;

    l->memory_bytes = memory_bytes;
    if (memory_bytes > all)
        return err_set(err, ERR_USAGE,
                       "%" PRIu64 " bytes of memory for each trial, of %" PRIu64,
                       memory_bytes, all);
    if (per && deal_cpus(l, per, err) < 0)
        return -1;
    n = memory_bytes
            ? (int)(all / memory_bytes < 1 << 20 ? all / memory_bytes : 1 << 20)
            : 0;
    if (n && (!l->nslots || n < l->nslots))
        l->nslots = n;
    return 0;
}

void limits_clear(struct limits *l)
{
    free(l->cpus);
    *l = (struct limits){ 0 };
}
