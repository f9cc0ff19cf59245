/* pass - what is done to a program once its lines are built
 *
 * Each pass takes the program of B and changes it; they run in the order of the table.
 * A pass that has nothing to do (one stage, no derivative) changes nothing.  `tp-run
 * program --pass NAME` prints what one leaves.  The arena is laid out last, for a
 * step's sizes (program_arena). */
#ifndef LIB_PROGRAM_PASS_H
#define LIB_PROGRAM_PASS_H

#include "lib/program/build.h"

/* 0, or -1 with *B->err set. */
typedef int pass_rule(struct builder *b);
pass_rule pass_adapters, pass_unused, pass_boundary, pass_order, pass_weights,
    pass_reverse, pass_sequence, pass_recompute, pass_split, pass_types, pass_fuse,
    pass_lifetimes, pass_chunks;

struct pass {
    const char *name;
    pass_rule *run;
};
extern const struct pass pass_all[]; /* ends with .name NULL */

/* Runs all passes, or those up to B->opt->pass.  ERR_USAGE if there is none of that
 * name; it lists the names. */
MUST_CHECK int pass_run(struct builder *b);

#endif
