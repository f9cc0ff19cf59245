/* tests - {{ value is test }} */
#ifndef LIB_TEXT_TEMPLATE_TESTS_H
#define LIB_TEXT_TEMPLATE_TESTS_H

#include "lib/text/template/render.h"

struct test;

const struct test *test_find(const char *name); /* or NULL */
MUST_CHECK int test_run(struct render *r, bool *out, const struct test *t,
                        const struct value *v, const struct arguments *a);

#endif
