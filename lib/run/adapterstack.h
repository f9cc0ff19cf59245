/* adapterstack - matrices of an adapter that all experts of a layer share
 *
 * PEFT adapts a parameter of experts, [experts][..][..], by two matrices for all of
 * them (target_parameters; peft.tuners.lora.layer.ParamWrapper): A has the experts'
 * rows one after another, B [out][rank][experts].  Where PEFT took rows for columns
 * its B and A are A and B of the model, each transposed. */
#ifndef LIB_RUN_ADAPTERSTACK_H
#define LIB_RUN_ADAPTERSTACK_H

#include "lib/model/model.h"

struct adapter_stack {
    uint64_t experts, expert; /* this one of so many; 0: the matrices are its own */
    uint64_t first, rows;     /* B's ROWS from FIRST on are of this matrix */
    bool swapped;
};

/* The shape of PEFT's matrix that has PART of adapter I of M, which has all rows of the
 * parameter. */
void adapter_stack_shape(const struct adapter_stack *s, const struct model *m, size_t i,
                         enum adapter_part part, uint64_t shape[2]);
/* The element of PEFT's matrix, whose rows have WIDTH elements, that is number K of row
 * I of the expert's PART, of RANK. */
uint64_t adapter_stack_place(const struct adapter_stack *s, enum adapter_part part,
                             uint64_t rank, uint64_t width, uint64_t i, uint64_t k);
/* The module of PEFT that adapts the parameter of adapter I of M: of several of one
 * module each wraps those before it.  The caller frees it. */
char *adapter_stack_module_dup(const struct model *m, size_t i);

#endif
