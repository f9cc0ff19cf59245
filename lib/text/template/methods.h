/* methods - the methods of texts, dicts, lists and loops */
#ifndef LIB_TEXT_TEMPLATE_METHODS_H
#define LIB_TEXT_TEMPLATE_METHODS_H

#include "lib/text/template/render.h"

struct method;

struct method_call {
    const struct method *method;
    struct value self;
};

/* The method NAME of values like V; NULL if Python's type has none.  *refused is true
 * when Python's sandbox does not let templates use it. */
const struct method *method_find(const struct value *v, const struct text *name,
                                 bool *refused);
MUST_CHECK int method_run(struct render *r, struct value *out,
                          const struct method_call *m, const struct arguments *a);

#endif
