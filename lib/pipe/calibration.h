/* calibration - what a machine takes for each part of a model, measured
 *
 * The file that `tp-run bench` writes (shardutils-calibration(5)): times in seconds,
 * rates a second, sizes in bytes.  Parts are what stands before all layers, each layer,
 * and what comes after them. */
#ifndef LIB_PIPE_CALIBRATION_H
#define LIB_PIPE_CALIBRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"

/* What a part asks of a rank: operations of products and of attention, bytes of values
 * and of weights that are moved, and instructions. */
struct calibrated_work {
    double products, attention, values, weights, instructions;
};

/* One part: a step of .tokens tokens, and one of a single token after them. */
struct calibrated {
    double prefill, decode;
    struct calibrated_work step, token; /* their work; all 0 where it is not told */
};

struct calibration {
    uint64_t tokens;
    struct calibrated *part; /* [nlayers + 2] */
    int nlayers;
    double memory_read, product;        /* bytes and f32 operations a second: probes */
    double prefill_share, decode_share; /* of them that the model's steps reach */
    double latency, bandwidth;          /* between two ranks; 0: not measured */
    double message;                     /* what a step passes from stage to stage */
    bool works;      /* all parts tell their work, and the next two are known: */
    char weights[8]; /* type of the matrices, "bf16" */
    uint64_t memory; /* bytes of the machine, or of the GPU that was measured */
    struct {
        double seconds; /* of a step of training of .tokens tokens; 0: not measured */
        double states;  /* bytes of optimizer states that it updates */
        struct calibrated_work work;    /* of its forward pass, */
        struct calibrated_work reverse; /* and of its backward pass; all 0: not told */
    } training;
};

/* Does TEXT look like such a file, rather than another that stands in its place? */
bool calibration_is_text(const char *text);
/* Read the file PATH, or TEXT (N bytes) that is called NAME.  ERR_INPUT names place and
 * cause.  The caller clears *out. */
MUST_CHECK int calibration_read(struct calibration *out, const char *path,
                                struct err *err);
MUST_CHECK int calibration_parse(struct calibration *out, const char *name,
                                 const char *text, size_t n, struct err *err);
void calibration_clear(struct calibration *c);
/* Append the file's text. */
void calibration_print(struct str *out, const struct calibration *c);

#endif
