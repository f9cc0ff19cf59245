/* roundable - the weights that are rounded to bf16 in a training with --compute bf16
 *
 * They are the matrices that products read, as torch.autocast rounds them; the table of
 * an embedding is one of them if it is also the head.  The f32 numbers stay, and are
 * what is updated. */
#ifndef LIB_PROGRAM_ROUNDABLE_H
#define LIB_PROGRAM_ROUNDABLE_H

#include <stdbool.h>

struct program;

/* Returns an array, one for each weight of P, which the caller frees. */
bool *roundable_new(const struct program *p);

#endif
