/* resident - copies of mapped weights in huge pages, made between steps */
#include "config.h"

#include "lib/run/resident.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/mem.h"

enum {
    LEAST = 2 << 20, /* bytes of a part that has use for huge pages */
    STEPS = 8,       /* in which the copies are made */
    FEW = 64,        /* steps of a run that is too short for a copy */
    AMPLE = 2        /* times the bytes of all copies must be available */
};

/* The share of a step's time that huge pages save: 0.07 to 0.13 were measured on a
 * quiet machine, 0.1 to 0.3 on a busy one. */
static const double SAVED = 0.08;

/* ---- what memory there is ---- */

/* *out = the number after KEY in the lines of PATH, or the first one if KEY is NULL. */
static bool number_in(const char *path, const char *key, uint64_t *out)
{
    FILE *f = fopen(path, "r");
    char line[256];
    bool found = false;

    while (f && !found && fgets(line, sizeof(line), f)) {
        size_t n = key ? strlen(key) : 0;

        if (!key || !strncmp(line, key, n))
            found = sscanf(line + n, "%" SCNu64, out) == 1;
    }
    if (f)
        fclose(f);
    return found;
}

/* Lowers *bytes to what the control group at PATH (below /sys/fs/cgroup) has left: its
 * page cache is given back when memory is wanted. */
static void limit_by_group(const char *path, uint64_t *bytes)
{
    char file[4200];
    uint64_t most, used, active = 0, inactive = 0, left;

    snprintf(file, sizeof(file), "/sys/fs/cgroup%s/memory.max", path);
    if (!number_in(file, NULL, &most)) /* "max", or no such group */
        return;
    snprintf(file, sizeof(file), "/sys/fs/cgroup%s/memory.current", path);
    if (!number_in(file, NULL, &used))
        return;
    snprintf(file, sizeof(file), "/sys/fs/cgroup%s/memory.stat", path);
    (void)number_in(file, "active_file ", &active);
    (void)number_in(file, "inactive_file ", &inactive);
    left = most + active + inactive > used ? most + active + inactive - used : 0;
    left = left < most ? left : most;
    *bytes = left < *bytes ? left : *bytes;
}

/* The same for version 1 of the groups, as a container sees its own. */
static void limit_by_old_group(uint64_t *bytes)
{
    uint64_t most, used, left;

    if (!number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", NULL, &most) ||
        !number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes", NULL, &used))
        return;
    left = most > used ? most - used : 0;
    *bytes = left < *bytes ? left : *bytes;
}

/* Bytes that can be allocated without swapping, by /proc and by the process's control
 * groups; 0 if that is not known, or if the address space is limited. */
static uint64_t available(void)
{
    struct rlimit space, data;
    uint64_t bytes;
    char line[4096];
    FILE *f;

    if (getrlimit(RLIMIT_AS, &space) || space.rlim_cur != RLIM_INFINITY ||
        getrlimit(RLIMIT_DATA, &data) || data.rlim_cur != RLIM_INFINITY ||
        !number_in("/proc/meminfo", "MemAvailable:", &bytes) ||
        bytes > UINT64_MAX / 1024)
        return 0;
    bytes *= 1024;
    limit_by_old_group(&bytes);
    f = fopen("/proc/self/cgroup", "r");
    while (f && fgets(line, sizeof(line), f)) {
        char *path = line + 3, *slash;

        if (strncmp(line, "0::/", 4) != 0)
            continue;
        path[strcspn(path, "\n")] = '\0';
        limit_by_group("", &bytes);
        for (; (slash = strrchr(path, '/')) && slash[1]; *slash = '\0') {
            limit_by_group(path, &bytes);
            if (slash == path)
                break;
        }
    }
    if (f)
        fclose(f);
    return bytes;
}

/* Does the system give huge pages to memory that asks for them? */
static bool has_huge_pages(void)
{
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    char line[128] = "";
    bool has = f && fgets(line, sizeof(line), f) && !strstr(line, "[never]");

    if (f)
        fclose(f);
    return has;
}

/* ---- copies ---- */

void resident_add(struct resident *r, const void *data, uint64_t bytes)
{
    if (bytes < LEAST)
        return;
    for (size_t i = 0; i < r->n; i++) /* tied tensors */
        if (r->part[i].data == data && r->part[i].bytes == bytes)
            return;
    r->part = xgrow(r->part, &r->cap, r->n + 1, sizeof(*r->part));
    r->part[r->n++] = (struct resident_part){ data, bytes, NULL };
}

/* Allocates all copies, whose pages come with what is written there. */
static bool make_room(struct resident *r)
{
    struct err ignored;

    for (size_t i = 0; i < r->n; i++) {
        struct resident_part *p = &r->part[i];

        p->copy = r->ops->alloc(r->device, p->bytes, "weights", &ignored);
        if (!p->copy) {
            while (i-- > 0) {
                r->ops->release(r->device, r->part[i].copy);
                r->part[i].copy = NULL;
            }
            return false;
        }
    }
    r->bytes = r->all;
    return true;
}

void resident_plan(struct resident *r, const struct backend *ops, struct device *device,
                   uint64_t steps, int ranks)
{
    uint64_t all = 0, need;
    size_t least = 0;

    r->ops = ops;
    r->device = device;
    for (size_t i = 0; i < r->n; i++) {
        all += r->part[i].bytes;
        least = r->part[i].bytes < r->part[least].bytes ? i : least;
    }
    if (r->n) { /* the first copy tells what copies cost: no large one */
        struct resident_part first = r->part[0];

        r->part[0] = r->part[least];
        r->part[least] = first;
    }
    r->all = all;
    r->steps = steps;
    if (all && steps >= FEW && ops->host_memory &&
        mem_mul(&need, all, (uint64_t)AMPLE * (uint64_t)ranks) && has_huge_pages() &&
        available() >= need && make_room(r))
        r->each = all / STEPS + 1;
}

/* Directs the matrices within P to its copy. */
static void direct(const struct resident_part *p, struct matrix *matrix, int n)
{
    const char *from = p->data;

    for (int i = 0; i < n; i++) {
        const char *at = matrix[i].data;

        if ((uintptr_t)at >= (uintptr_t)from &&
            (uintptr_t)at - (uintptr_t)from < p->bytes)
            matrix[i].data = (const char *)p->copy + (at - from);
    }
}

/* Unmaps the whole pages of P from the process; they come back if they are read. */
static void forget(const struct resident_part *p)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = ((uintptr_t)p->data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)p->data + (uintptr_t)p->bytes) / page * page;

    if (end > start)
        madvise((void *)start, end - start, MADV_DONTNEED);
}

/* Is the copy of P worth its time?  The first tells what a copy costs. */
static bool is_worth(const struct resident *r, const struct resident_part *p)
{
    double left = r->done < r->steps ? (double)(r->steps - r->done) : 0;
    double share = (double)p->bytes / (double)r->all;
    double cost = r->seconds / (double)(r->copied + !r->copied) * (double)p->bytes;

    return cost < SAVED * r->step_seconds * left * share;
}

/* Copies P. */
static bool copy(struct resident *r, struct resident_part *p)
{
    double start = clock_seconds();
    struct err ignored;

    if (r->ops->copy_in(r->device, p->copy, p->data, (size_t)p->bytes, &ignored) < 0)
        return false;
    r->seconds += clock_seconds() - start;
    r->copied += p->bytes;
    return true;
}

void resident_step(struct resident *r, struct matrix *matrix, int n)
{
    uint64_t before = r->copied;

    if (!r->each)
        return;
    if (r->done++)
        r->step_seconds = clock_seconds() - r->before;
    while (r->done > 1 && r->each && r->next < r->n && r->copied - before < r->each) {
        struct resident_part *p = &r->part[r->next++];

        if (!is_worth(r, p) || !copy(r, p)) {
            r->each = 0;
            break;
        }
        direct(p, matrix, n);
        forget(p);
    }
    r->before = clock_seconds();
}

void resident_clear(struct resident *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->part[i].copy)
            r->ops->release(r->device, r->part[i].copy);
    free(r->part);
    *r = (struct resident){ 0 };
}
