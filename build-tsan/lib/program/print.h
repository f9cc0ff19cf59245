/* print - a program as people read it, and as other programs do */
#ifndef LIB_PROGRAM_PRINT_H
#define LIB_PROGRAM_PRINT_H

#include "lib/program/cost.h"

/* Add to OUT a line for each instruction of P: its result with rows, columns, type and
 * placement, the operation, its operands, and in the step S rows, bytes and FLOPs; then
 * lines of the sums. */
void print_program(struct str *out, const struct program *p, const struct cost_step *s);
/* The same as objects of JSON, one a line, of type "instruction", and one of type
 * "program" with the sums.  RANK is that of the program. */
void print_program_json(struct str *out, const struct program *p,
                        const struct cost_step *s, int rank);

#endif
