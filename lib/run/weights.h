/* weights - the weights of one rank in memory */
#ifndef LIB_RUN_WEIGHTS_H
#define LIB_RUN_WEIGHTS_H

#include "lib/base/err.h"
#include "lib/device/device.h"
#include "lib/reshard/checkpoint.h"
#include "lib/program/program.h"

struct weights {
    const struct backend *ops;
    struct device *device;
    struct matrix *matrix; /* [n]: the program's weights, as they are stored */
    bool *part;            /* [n]: its memory is that of one before it */
    bool *mapped;          /* [n]: its memory is that of the checkpoint's file */
    int n;
    uint64_t bytes;              /* of all of them */
    struct weights_check *check; /* of what is mapped, on a thread; or NULL */
};

/* Load what PROGRAM needs from C into the memory of DEVICE, which OPS has opened and
 * which must outlive it, as must C, whatever mesh C's files are cut for.  What the
 * files have as it is wanted is mapped where the device is in the host's memory.  The
 * CRC-32 of all that is read from rank files is checked, of what is mapped on a thread
 * (see weights_settle).  Types other than f32, bf16 and f16 are ERR_INPUT. */
MUST_CHECK int weights_open(struct weights *w, struct checkpoint *c,
                            const struct program *program, const struct backend *ops,
                            struct device *device, struct err *err);
/* Wait for those checks.  Nothing that was made of W is told to anyone before it
 * returns 0; afterwards it does so at once. */
MUST_CHECK int weights_settle(struct weights *w, struct err *err);
void weights_close(struct weights *w);

#endif
