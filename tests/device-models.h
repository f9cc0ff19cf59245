/* device-models - every model of the tests on the CPU and on another backend
 *
 * On one rank and on each axis, by as many processes; what comes out is compared. */
#ifndef TESTS_DEVICE_MODELS_H
#define TESTS_DEVICE_MODELS_H

#include <stdbool.h>

#include "lib/device/device.h"

struct device_models {
    const struct backend *ops;
    const struct backend *beside; /* instead of the CPU, and both round (--compute
                                   * bf16); NULL: the CPU, and neither does */
    const char *const *only;      /* these models, NULL at the end; NULL: all */
    const char *const *held;      /* of these some values are bf16 on OPS, and none on
                                   * BESIDE; or NULL */
    double bound;          /* results differ by at most so much of the largest; */
    double narrow;         /* the same where all products' weights have 16 bits */
    void (*begin)(void);   /* before a model; or NULL */
    bool (*has_run)(void); /* the backend, in this process */
    bool unfused;          /* also without fusing, where results differ by at most */
    double fused;          /* so much; */
    const char *const *unfused_of; /* these models, NULL at the end; NULL: all */
    bool coded;                    /* weights may be codes, and the cache narrow */
    const char *claim;             /* of a test's name */
    /* How much this process has asked the backends called by their names for, and how
     * often; or NULL. */
    void (*count)(const char *backend, uint64_t *bytes, uint64_t *times);
    bool alone;              /* one rank alone: ranks would be forked */
    bool counts_host;        /* also the host's memory beside a device's */
    const char *const *some; /* models that run on several ranks, NULL at the end; NULL:
                                all */
};

/* A test of its own, before those of device_models; WHY is printed if it has not
 * passed. */
void device_report(bool passed, const char *why, const char *name);
/* The end of a program of such tests, whose status is returned. */
int device_done(void);
/* A test for each model and layout. */
void device_models_try(const struct device_models *d);
/* The same, the last of a program, whose status is returned. */
int device_models(const struct device_models *d);

#endif
