/* filters - {{ value|filter }} */
#ifndef LIB_TEXT_TEMPLATE_FILTERS_H
#define LIB_TEXT_TEMPLATE_FILTERS_H

#include "lib/text/template/render.h"

struct filter;

const struct filter *filter_find(const char *name); /* or NULL */
MUST_CHECK int filter_run(struct render *r, struct value *out, const struct filter *f,
                          const struct value *in, const struct arguments *a);

#endif
