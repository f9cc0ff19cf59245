/* fuse - what the column .parts of the table of operations is given and gives */
#ifndef LIB_PROGRAM_FUSE_H
#define LIB_PROGRAM_FUSE_H

#include "lib/program/program.h"

/* Who makes and reads the values of a program. */
struct fusing {
    const struct program *p;
    int *maker; /* [nvalues]: the instruction that makes it; -1: none */
    int *reads; /* [nvalues]: how often it is read, by instructions, outputs, stages */
    bool *part; /* [ninsts]: belongs to a fused operation */
};

/* Instructions that one operation can stand for, in the program's order. */
struct fusion {
    int n, inst[INST_PARTS];
    bool late; /* they are all run where the last of them stands, else the first */
};

/* Each finds the fusion of instruction AT: of the product's gate, the first product,
 * the sum, the attention.  False: there is none. */
typedef bool parts_rule(const struct fusing *f, int at, struct fusion *out);
parts_rule parts_gated_linear, parts_linears, parts_add_norm, parts_rope_keep;

#endif
