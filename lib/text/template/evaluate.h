/* evaluate - the expressions of a template */
#ifndef LIB_TEXT_TEMPLATE_EVALUATE_H
#define LIB_TEXT_TEMPLATE_EVALUATE_H

#include "lib/text/template/render.h"

MUST_CHECK int evaluate(struct render *r, struct value *out, const struct node *n);
/* A chain of filters; an empty input is TEXT. */
MUST_CHECK int evaluate_filters(struct render *r, struct value *out,
                                const struct node *n, const struct value *text);
/* The arguments of the list N; their memory is the scratch's. */
MUST_CHECK int evaluate_arguments(struct render *r, struct arguments *out,
                                  const struct node *n);

#endif
