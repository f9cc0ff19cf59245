/* border - cuts a program down to one pipeline stage
 *
 * A stage runs the instructions of its sections and layers (model_stage).  It receives
 * from the previous stage the values that it reads but does not make (p->import), and
 * sends to the next stage the values that any later stage reads (p->export).  A value
 * that only passes through is in both lists.  A cached value is never sent: each stage
 * that reads it makes it from the rows in its own cache. */
#ifndef LIB_PROGRAM_BORDER_H
#define LIB_PROGRAM_BORDER_H

#include "lib/program/program.h"

/* Reduces the program *P of the whole model to the stage at P's pp coordinate. */
void border_cut(struct program *p);

#endif
