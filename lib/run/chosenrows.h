/* chosenrows - the rows of a step whose texts choose an adapter
 *
 * What an adapter adds is computed for these rows alone (inst.only), where the host
 * sees the device's memory.  They are found when the first instruction of the adapter
 * runs, and known until the step ends. */
#ifndef LIB_RUN_CHOSENROWS_H
#define LIB_RUN_CHOSENROWS_H

#include "lib/device/device.h"

struct row_span {
    size_t first, n;
};

struct chosenrows {
    struct chosen_key {
        int by, column;
        size_t first, n; /* in span */
    } * key;             /* [nkeys] */
    struct row_span *span;
    size_t nkeys, nspans, key_cap, span_cap;
};

void chosenrows_clear(struct chosenrows *c);
/* A step begins. */
void chosenrows_begin(struct chosenrows *c);
/* The rows of INST, which has .only: *N runs of them.  CHOICE [rows][cols] is the value
 * by which they are chosen, or NULL, if its memory may have another value by now: then
 * NULL is returned if they are not known. */
const struct row_span *chosenrows_find(struct chosenrows *c, size_t *n,
                                       const struct inst *inst, const float *choice,
                                       size_t rows, size_t cols);
/* Runs C, of INST, on these N runs of rows at SPAN. */
MUST_CHECK int chosenrows_run(const struct row_span *span, size_t n,
                              const struct backend *ops, struct device *device,
                              const struct call *c, size_t rows, struct err *err);

#endif
