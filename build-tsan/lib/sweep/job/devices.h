/* devices - which GPUs each of the jobs that run at the same time may use */
#ifndef LIB_SWEEP_JOB_DEVICES_H
#define LIB_SWEEP_JOB_DEVICES_H

#include "lib/base/err.h"

struct devices {
    char **masks; /* [nslots]: "2,3", for CUDA_VISIBLE_DEVICES */
    int nslots;
};

/* Deal LIST ("0,1,2,3", names as of CUDA_VISIBLE_DEVICES, or "all") to slots of PER
 * neighbours each.  INHERITED is the mask this process itself is under, or NULL: then
 * numbers count within it, and "all" means all of it.  What is left over, a device
 * named twice and a number beyond the mask are ERR_USAGE. */
MUST_CHECK int devices_deal(struct devices *d, const char *list, int per,
                            const char *inherited, struct err *err);
void devices_clear(struct devices *d);

#endif
