/* rotary - the angles of rotary position embeddings, with the scalings of long
 * contexts */
#ifndef LIB_PROGRAM_ROTARY_H
#define LIB_PROGRAM_ROTARY_H

#include "lib/program/program.h"
#include "lib/model/family.h"

/* Evaluate the family's rotary table E for M.  The caller releases with
 * rotary_clear. */
MUST_CHECK int rotary_init(struct rope *out, const struct model *m,
                           const struct family_entry *e, struct err *err);
void rotary_clear(struct rope *r);

#endif
