/* measured - a device by what was measured on it
 *
 * Files of `tp-run bench` tell how long parts of models took and what they ask; from
 * one or more of them follow the rates of the device, which a file of its own holds
 * (shardutils-calibration(5)). */
#ifndef LIB_ESTIMATE_MEASURED_H
#define LIB_ESTIMATE_MEASURED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/estimate/gpu.h"
#include "lib/pipe/calibration.h"

struct measured {
    char name[64];
    uint64_t memory; /* bytes */
    double
        product[GPU_RATES]; /* operations a second that products reach; 0: not known */
    double attention;       /* and attention */
    double weights, values; /* bytes of them moved a second */
    double instruction;     /* seconds that each takes besides */
    double backward;        /* time of a backward pass, as a multiple of what these
                               rates say; 0: not known */
    double link, latency;   /* bytes a second to another rank, and seconds; or 0 */
};

/* Fit *out to the N calibrations C, which were read from PATHS: of each the time of a
 * step and of a token, for all layers and for what is before and after them, by least
 * squares of what is off in shares of the whole.  What they tell little of stays near
 * the probes' rates.  ERR_INPUT for a file that tells no work. */
MUST_CHECK int measured_fit(struct measured *out, const struct calibration *c,
                            const char *const *paths, size_t n, struct err *err);
/* The seconds that a step of C, or one token after it, would take on M. */
double measured_seconds(const struct measured *m, const struct calibration *c,
                        bool token);

/* May NAME be a device's?  It is plain text that stays on its line. */
bool measured_may_be_called(const char *name);
/* Read the file PATH, or TEXT (N bytes) that is called NAME. */
MUST_CHECK int measured_read(struct measured *out, const char *path, struct err *err);
MUST_CHECK int measured_parse(struct measured *out, const char *name, const char *text,
                              size_t n, struct err *err);
/* Append the file's text. */
void measured_print(struct str *out, const struct measured *m);

#endif
