/* weights - the weights of one rank in device memory */
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
    int n;
    uint64_t bytes; /* of all of them */
};

/* Load what PROGRAM needs from C into the memory of DEVICE, which OPS has opened and
 * which must outlive it, whatever mesh C's files are cut for.  The CRC-32 of all that
 * is read from rank files is checked.  Types other than f32, bf16 and f16 are
 * ERR_INPUT. */
MUST_CHECK int weights_open(struct weights *w, struct checkpoint *c,
                            const struct program *program, const struct backend *ops,
                            struct device *device, struct err *err);
void weights_close(struct weights *w);

#endif
