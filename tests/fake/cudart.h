/* cudart - a CUDA runtime in the host's memory, for tests
 *
 * Device memory is readable by kernels and copies alone: the host that touches it dies
 * where it does so.  A stream is a queue that runs when it is waited for, so that a
 * missing wait is seen in what comes out.  Like CUDA it fails in a process that was
 * forked after it was used.  Environment:
 *
 *   FAKE_GPUS    how many GPUs there are (2)
 *   FAKE_BUS     the number of the first one's PCI bus (1)
 *   FAKE_MEMORY  bytes of each (1 GiB)
 *   FAKE_COMPUTE compute capabilities, times 10, with commas between; the last is also
 *                that of the remaining GPUs (90).  Code is for 80, with PTX
 *   FAKE_FAIL    the number of the call that fails, from 1
 *   FAKE_DIE     the number of the call at which the process is killed
 *   FAKE_HANG    the number of the call that does not return
 *   FAKE_CAPTURE 0: streams cannot be captured
 *   FAKE_ON      the GPU whose process the last four are meant for (all)
 *   FAKE_DRIVER  version that the driver is for (13000); 0: there is none
 *   FAKE_EARLY   1: until a block of a kernel that is launched early has waited for the
 *                others, it can read weights alone: what was copied before a kernel ran
 *   FAKE_LOG     a file to which a line is added when a process's last stream goes:
 *                "calls N live N blocks N products N exchanges N graphs N": what has
 * not been released, and what has been run */
#ifndef TESTS_FAKE_CUDART_H
#define TESTS_FAKE_CUDART_H

#include <stdbool.h>
#include <stddef.h>

/* Put RUN on a copy of the SIZE bytes at ARG into STREAM. */
void fake_enqueue(void *stream, void (*run)(void *), const void *arg, size_t size);
/* The same of what TRY is called for with JOB, at any time, until it returns true and
 * has released it.  COPY makes the jobs of a graph, and those that a graph puts into a
 * stream; DROP releases them. */
struct fake_job {
    bool (*try)(void *job);
    void *(*copy)(const void *job, bool for_graph);
    void (*drop)(void *job);
};
void fake_enqueue_job(void *stream, const struct fake_job *how, void *job);
/* Is work put into a graph in place of STREAM? */
bool fake_captures(void *stream);
/* Run what is in STREAM, as far as other ranks let it; is all of it done? */
bool fake_advance(void *stream);
/* The device of this process, or -1. */
int fake_device(void);
/* The number of this call is the one that is to fail. */
int fake_fails(void);
/* The same of a look at whether something is done, where only the first of those that
 * follow each other is counted; it is not done. */
enum fake_poll { FAKE_POLL_STREAM, FAKE_POLL_NCCL, FAKE_POLLS };
int fake_poll_fails(enum fake_poll which);
void fake_poll_waits(enum fake_poll which);

/* Bytes of device memory that are allocated now, and how often some were. */
void fake_memory(size_t *bytes, size_t *times);
/* So many more things are in use; another product has been asked for. */
void fake_live(int more);
void fake_count_product(void);
void fake_count_exchange(void);
/* Functions of the library that is called NAME; those of tests/fake/nccl.c. */
void *fake_nccl_library(const char *name);
void *fake_nccl_function(const char *name);
/* For libraries that are loaded when they are there: those of tests/fake. */
void *fake_dlopen(const char *name, int flags);
void *fake_dlsym(void *library, const char *name);
int fake_dlclose(void *library);
/* Kernels that have been launched. */
unsigned long fake_launches(void);
/* As if this process had never used it, so that it may fork. */
void fake_forget(void);

#endif
