/* print - programs as text and as JSON */
#ifndef LIB_PROGRAM_PRINT_H
#define LIB_PROGRAM_PRINT_H

#include "lib/program/cost.h"

/* Appends to OUT one line per instruction of P: result (rows, columns, type,
 * placement), operation, operands, and its rows, bytes and FLOPs in the step S; then
 * lines with the sums of collectives, bytes and FLOPs. */
void print_program(struct str *out, const struct program *p, const struct cost_step *s);
/* The same as JSON, one object a line: type "instruction" for each, then one object of
 * type "program" with the sums.  RANK is the rank of the program. */
void print_program_json(struct str *out, const struct program *p,
                        const struct cost_step *s, int rank);

#endif
