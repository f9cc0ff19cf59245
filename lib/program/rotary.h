/* rotary - inverse frequencies of rotary position embeddings, with the scalings for
 * long contexts */
#ifndef LIB_PROGRAM_ROTARY_H
#define LIB_PROGRAM_ROTARY_H

#include "lib/program/program.h"
#include "lib/model/family.h"

/* Evaluates the rotary table E of the family on M's config.  The caller releases *out
 * with rotary_clear. */
MUST_CHECK int rotary_init(struct rope *out, const struct model *m,
                           const struct family_entry *e, struct err *err);
void rotary_clear(struct rope *r);

#endif
