/* held - the format in which a program's weights are held while it runs
 *
 * The one answer to this question: choice asks a backend about these formats, the
 * runner plans memory for them, and weights_open makes them. */
#ifndef LIB_RUN_HELD_H
#define LIB_RUN_HELD_H

#include "lib/base/format.h"
#include "lib/program/packable.h"
#include "lib/program/program.h"
#include "lib/reshard/checkpoint.h"

/* What is asked for. */
enum weights_form {
    WEIGHTS_STORED,
    WEIGHTS_INT8,
    WEIGHTS_INT4, /* where the inputs are whole blocks; others stay as stored */
    WEIGHTS_CODES /* the checkpoint's own, where they have a format; others as stored */
};

struct held {
    enum format format; /* of the matrix that kernels read */
    enum format wide;   /* as it is read from the checkpoint, before it becomes codes */
    bool packed;        /* the checkpoint has it quantized: it is unpacked to WIDE */
    bool coded;         /* WIDE becomes codes of FORMAT: encode.h */
    bool kept;          /* its codes are those of FORMAT, PER inputs to a scale */
    uint64_t per;
    bool foreign; /* weights_open refuses it: it is missing, or of another type */
    struct model_packing packing;
    enum packable how;         /* of what becomes codes */
    const struct inst *reader; /* an instruction that reads it; NULL: none */
};

/* *OUT = an array, one for each weight of PROGRAM, which the caller frees: how those of
 * C are held if FORM is asked for.  TRAINS: those that are trained, all vectors, and
 * what is drawn are f32. */
MUST_CHECK int held_find(struct held **out, const struct checkpoint *c,
                         const struct program *program, enum weights_form form,
                         bool trains, struct err *err);
/* The same of a checkpoint without an adapter, of which the types are known:
 * STORED[source], or with NULL that of all.  TRAINED[weight]: what is trained; NULL:
 * nothing is, and the program answers. */
struct held_types {
    const enum dtype *stored;
    enum dtype all;
};
MUST_CHECK int held_foretell(struct held **out, const struct held_types *types,
                             const struct program *program, enum weights_form form,
                             const bool *trained, struct err *err);
/* The shape of weight W, held as H, in memory: codes have a row for each output. */
void held_shape(const struct held *h, const struct weight *w, uint64_t *rows,
                uint64_t *cols);
/* *BYTES = those of one weight W that is held as H; false on overflow. */
bool held_bytes(uint64_t *bytes, const struct held *h, const struct weight *w);

#endif
