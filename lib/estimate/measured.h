/* measured - rates of a device, fitted to measurements
 *
 * Files of `tp-run bench` list the time of each part of a model and its work.  From one
 * or more of them measured_fit derives the rates of the device, which a device file
 * stores (shardutils-calibration(5)). */
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
    uint64_t memory;           /* bytes */
    double product[GPU_RATES]; /* FLOP/s of products; 0: not known */
    double attention;          /* FLOP/s of attention */
    double weights, values;    /* bytes/s of weights and of activations */
    double instruction;        /* overhead of an instruction in seconds */
    double backward;           /* time of a backward pass, relative to what these rates
                                  predict (step_back); 0: not known */
    double reverse;            /* the same of the program's own (step_reverse) */
    double link, latency;      /* bytes/s to another rank, and seconds; 0: not known */
};

/* Fits *out to the N calibrations C, read from PATHS, by least squares of the relative
 * errors.  Each gives six times: of a step and of a token, for the layers and for the
 * parts before and after them.  Rates that these times determine badly stay near the
 * rates of the probes.  ERR_INPUT for a file without work. */
MUST_CHECK int measured_fit(struct measured *out, const struct calibration *c,
                            const char *const *paths, size_t n, struct err *err);
/* Predicted seconds of C's step, or of one token after it, on M. */
double measured_seconds(const struct measured *m, const struct calibration *c,
                        bool token);

/* True if NAME may be a device's name: 1 to 63 bytes without control characters. */
bool measured_may_be_called(const char *name);
/* Reads the file PATH; or the N bytes of TEXT, called NAME in messages. */
MUST_CHECK int measured_read(struct measured *out, const char *path, struct err *err);
MUST_CHECK int measured_parse(struct measured *out, const char *name, const char *text,
                              size_t n, struct err *err);
/* Appends the device file's text. */
void measured_print(struct str *out, const struct measured *m);

#endif
