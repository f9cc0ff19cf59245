/* cluster - the machine that a plan is made for, and what is assumed of it */
#ifndef CMD_MEM_ESTIMATE_CLUSTER_H
#define CMD_MEM_ESTIMATE_CLUSTER_H

#include "lib/base/str.h"
#include "lib/estimate/gpu.h"
#include "lib/estimate/measured.h"
#include "lib/estimate/steptime.h"

/* As the options describe it. */
struct cluster_options {
    const char *net, *calibration; /* or NULL */
    const struct measured *device; /* or NULL; then nothing else tells its rates */
    int per_node;                  /* 0: not given */
    bool flash2;                   /* attention is FlashAttention-2 */
};

/* Fill *m for devices of GPU (which may be NULL where there is a calibration or a
 * measured device) and
 * products of RATE, and append to ASSUMED, and with codes to CODES, what was not given.
 */
MUST_CHECK int cluster_machine(struct machine *m, const struct cluster_options *o,
                               const struct gpu *gpu, enum gpu_rate rate, bool train,
                               struct str *assumed, struct str *codes, struct err *err);

#endif
