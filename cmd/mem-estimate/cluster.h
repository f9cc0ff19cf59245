/* cluster - the machine of a plan, and what is assumed about it */
#ifndef CMD_MEM_ESTIMATE_CLUSTER_H
#define CMD_MEM_ESTIMATE_CLUSTER_H

#include "lib/base/str.h"
#include "lib/estimate/gpu.h"
#include "lib/estimate/measured.h"
#include "lib/estimate/steptime.h"

/* The options that describe it. */
struct cluster_options {
    const char *net, *calibration, *host_bandwidth, *link; /* or NULL */
    bool offload; /* something may go to the host: what is assumed of it is noted */
    const struct measured *device; /* the only source of rates, or NULL */
    int per_node;                  /* 0: not given */
    bool experts;                  /* the model has some, and is trained */
    bool older; /* attention is FlashAttention-2, or of single products */
};

/* Fills *m for devices of GPU (NULL if there is a calibration or a measured device) and
 * products of type RATE.  Appends assumptions to ASSUMED, and as JSON objects to
 * CODES. */
MUST_CHECK int cluster_machine(struct machine *m, const struct cluster_options *o,
                               const struct gpu *gpu, enum gpu_rate rate,
                               struct str *assumed, struct str *codes, struct err *err);

#endif
