/* printing - values as text: Python's str and repr, and json.dumps */
#ifndef LIB_TEXT_TEMPLATE_PRINTING_H
#define LIB_TEXT_TEMPLATE_PRINTING_H

#include "lib/text/template/builder.h"

/* str(V); nothing for an undefined value. */
MUST_CHECK int printing_str(struct builder *b, const struct value *v);
MUST_CHECK int printing_repr(struct builder *b, const struct value *v);
/* The same as a value; a text is itself. */
MUST_CHECK int printing_to_text(struct scratch *s, struct value *out,
                                const struct value *v);

struct printing_json {
    bool ascii, sort_keys;
    const struct text *indent;          /* NULL: all on one line */
    const struct text *between, *colon; /* separators */
};
/* json.dumps(V) of Python. */
MUST_CHECK int printing_json(struct builder *b, const struct value *v,
                             const struct printing_json *how);

#endif
