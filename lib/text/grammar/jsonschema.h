/* jsonschema - the texts of JSON that a JSON schema describes, as terms
 *
 * Texts that are made by it meet the schema; not each text that meets it can be made:
 *
 * - properties come in the order of the schema, and others, where the schema allows
 *   them in so many words or names none at all, after them;
 * - white space is one space, or a line's end and its indentation, where JSON has it;
 * - a keyword about objects, lists, strings or numbers, without a type, asks for one.
 *
 * Keywords of drafts 4 to 2020-12 that are not supported are refused by name; what the
 * schema's language does not know is an annotation. */
#ifndef LIB_TEXT_GRAMMAR_JSONSCHEMA_H
#define LIB_TEXT_GRAMMAR_JSONSCHEMA_H

#include "lib/base/json.h"
#include "lib/text/grammar/terms.h"

/* *OUT becomes the texts of SCHEMA, a value of DOC; NULL: any object.  *UNIT: a
 * character of a string. */
MUST_CHECK int jsonschema_compile(struct terms *t, const struct json_doc *doc,
                                  const struct json *schema, uint32_t *out,
                                  uint32_t *unit, struct err *err);

#endif
