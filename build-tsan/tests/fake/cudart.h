/* cudart - a CUDA runtime in the host's memory, for tests
 *
 * Device memory is readable by kernels and copies alone: the host that touches it dies
 * where it does so.  A stream is a queue that runs when it is waited for, so that a
 * missing wait is seen in what comes out.  Like CUDA it fails in a process that was
 * forked after it was used.  Environment:
 *
 *   FAKE_GPUS    how many GPUs there are (2)
 *   FAKE_MEMORY  bytes of each (1 GiB)
 *   FAKE_FAIL    the number of the call that fails, from 1
 *   FAKE_DRIVER  version that the driver is for (13000); 0: there is none
 *   FAKE_LOG     a file to which a line is added when a process's last stream goes:
 *                "calls N live N", the latter what has not been released */
#ifndef TESTS_FAKE_CUDART_H
#define TESTS_FAKE_CUDART_H

#include <stddef.h>

/* Put RUN on a copy of the SIZE bytes at ARG into STREAM. */
void fake_enqueue(void *stream, void (*run)(void *), const void *arg, size_t size);
/* The number of this call is the one that is to fail. */
int fake_fails(void);

/* As if this process had never used it, so that it may fork. */
void fake_forget(void);

#endif
