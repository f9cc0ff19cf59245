/* formatting - str.format and the % operator */
#ifndef LIB_TEXT_TEMPLATE_FORMATTING_H
#define LIB_TEXT_TEMPLATE_FORMATTING_H

#include "lib/text/template/render.h"

/* FORMAT.format(arguments): "{}", "{0}", "{name}", with !r, and :fill, alignment, sign,
 * width, precision, and a type of d, f, s or x. */
MUST_CHECK int formatting_braces(struct render *r, struct value *out,
                                 const struct text *format, const struct arguments *a);
/* FORMAT % argument: %s %r %d %i %f %x %%, with flags, width and precision. */
MUST_CHECK int formatting_percent(struct render *r, struct value *out,
                                  const struct text *format, const struct value *v);

#endif
