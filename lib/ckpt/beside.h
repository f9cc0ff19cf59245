/* beside - the files that lie beside a model's weights
 *
 * Configuration, tokenizer, licence and the like are carried unchanged to what is made
 * of a source; weights in other forms and what is too large or too deep are left. */
#ifndef LIB_CKPT_BESIDE_H
#define LIB_CKPT_BESIDE_H

#include "lib/ckpt/source.h"

/* Fills .small and .left of S from the directory DIR, except for S's own inputs. */
MUST_CHECK int beside_look(struct source *s, const char *dir, struct err *err);

#endif
