/* border - a program cut at the borders of a pipeline stage
 *
 * Of the whole forward pass a stage runs the instructions of its sections and layers
 * (model_stage).  What it reads and does not make is imported from the stage before it,
 * and what it holds that a later stage reads is exported to the next, also when it only
 * passes through.  A cached value is made on every stage that reads it, from the rows
 * that were kept. */
#ifndef LIB_PROGRAM_BORDER_H
#define LIB_PROGRAM_BORDER_H

#include "lib/program/program.h"

/* Reduce the whole program *P to what the stage at P's coordinate runs. */
void border_cut(struct program *p);

#endif
