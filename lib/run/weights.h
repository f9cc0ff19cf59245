/* weights - the weights of one rank in device memory */
#ifndef LIB_RUN_WEIGHTS_H
#define LIB_RUN_WEIGHTS_H

#include "lib/base/err.h"
#include "lib/device/device.h"
#include "lib/reshard/checkpoint.h"
#include "lib/program/program.h"
#include "lib/run/encode.h"
#include "lib/run/resident.h"

struct weights {
    const struct backend *ops;
    struct device *device;
    struct matrix *matrix; /* [n]: in the stored type, or codes */
    bool *part;            /* [n]: a slice of the previous weight's memory */
    bool *mapped;          /* [n]: memory-mapped from the checkpoint file */
    int n;
    struct resident resident;    /* copies of what is mapped */
    uint64_t bytes;              /* of all weights */
    uint64_t file_bytes;         /* of those that are mapped */
    struct weights_check *check; /* CRC checks; or NULL */
};

/* Loads this rank's weights of PROGRAM from C, resharding if C has another mesh.
 * DEVICE, opened by OPS, and C must outlive W.
 *
 * Weights that are stored contiguously are mapped instead of copied if the device uses
 * host memory.  The CRC-32 of data read from shard files is checked: at once if the
 * data are copied, on a thread if they are mapped (see weights_settle).  ERR_INPUT: a
 * tensor's type is not f32, bf16 or f16, and it is not quantized.
 *
 * FORM other than WEIGHTS_STORED: see held.h and encode.h; made by THREADS threads,
 * collective over TENSOR, the tensor group. */
MUST_CHECK int weights_open(struct weights *w, struct checkpoint *c,
                            const struct program *program, const struct backend *ops,
                            struct device *device, enum weights_form form,
                            struct comm *tensor, int threads, struct err *err);
/* Before that: STORED[i] = the format that weight I of PROGRAM will have on a device
 * with memory of its own, and *bytes are those of all.  What weights_open would refuse
 * is left out. */
MUST_CHECK int weights_survey(enum format *stored, uint64_t *bytes,
                              struct checkpoint *c, const struct program *program,
                              enum weights_form form, struct err *err);
/* Lets go of weight I of PROGRAM, whose matrix has no data then; call it for all slices
 * of a tensor, or for none. */
void weights_drop(struct weights *w, const struct program *program, int i);
/* Adds what is allocated and mapped. */
void weights_memory(const struct weights *w, struct ledger *list);
/* Waits for the CRC checks; later calls return 0 immediately.  Callers must not output
 * results computed from W before this returns 0. */
MUST_CHECK int weights_settle(struct weights *w, struct err *err);
/* Lets weights_step copy mapped weights to huge pages; see resident_plan. */
void weights_plan(struct weights *w, const struct program *program, uint64_t steps,
                  int ranks);
/* Call it after each step. */
void weights_step(struct weights *w);
void weights_close(struct weights *w);

#endif
