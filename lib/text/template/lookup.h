/* lookup - members, items, slices and membership */
#ifndef LIB_TEXT_TEMPLATE_LOOKUP_H
#define LIB_TEXT_TEMPLATE_LOOKUP_H

#include "lib/text/template/value.h"

/* OF.NAME, and OF[KEY], as Jinja's sandbox looks them up: undefined where there is
 * none. */
MUST_CHECK int lookup_member(struct scratch *s, struct value *out,
                             const struct value *of, const struct text *name);
MUST_CHECK int lookup_item(struct scratch *s, struct value *out, const struct value *of,
                           const struct value *key);
/* OF[PATH] for an integer or a text of names with dots, as filters take an attribute.
 * OUT may be OF. */
MUST_CHECK int lookup_path(struct scratch *s, struct value *out, const struct value *of,
                           const struct value *path);
/* OF[start:end:step], each NULL or a value. */
MUST_CHECK int lookup_slice(struct scratch *s, struct value *out,
                            const struct value *of, const struct value *const bound[3]);
/* V in OF */
MUST_CHECK int lookup_contains(struct scratch *s, bool *out, const struct value *of,
                               const struct value *v);

#endif
