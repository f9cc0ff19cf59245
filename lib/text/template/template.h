/* template - a program that makes text of variables: a subset of Jinja
 *
 * The subset is what published chat templates use; shardutils-template(5) has it.  A
 * template gives what jinja2 gives in transformers' environment (trim_blocks,
 * lstrip_blocks, loop controls, {% generation %}, raise_exception, strftime_now, and a
 * tojson that is json.dumps), and fails where jinja2 fails.  What the subset lacks is
 * refused, with its line. */
#ifndef LIB_TEXT_TEMPLATE_TEMPLATE_H
#define LIB_TEXT_TEMPLATE_TEMPLATE_H

#include <time.h>

#include "lib/text/template/builder.h"

struct template;

/* Reads the N bytes at TEXT; NAME is for messages.  ERR_INPUT "NAME:LINE: cause". */
MUST_CHECK int template_parse(struct template **out, const char *name, const char *text,
                              size_t n, struct err *err);
void template_free(struct template *t); /* NULL is fine */

size_t template_bytes(const struct template *t); /* of its source */
const char *template_name(const struct template *t);
bool template_has_generation(const struct template *t);
/* Does the template's own text, or a string in it, contain WORD? */
bool template_contains(const struct template *t, const char *word);

struct template_variable {
    const char *name;
    struct value value;
};

/* Runs T with N variables, of which a later one replaces an earlier one of its name,
 * and appends its text to *out.  S bounds it and gets its errors. */
MUST_CHECK int template_run(const struct template *t, struct scratch *s,
                            const struct template_variable *v, size_t n,
                            const struct tm *date, struct builder *out);

#endif
