/* strings - Python's operations on strings, with marks
 *
 * A result that is part of its argument shares its bytes and marks. */
#ifndef LIB_TEXT_TEMPLATE_STRINGS_H
#define LIB_TEXT_TEMPLATE_STRINGS_H

#include "lib/text/template/builder.h"

enum strings_side { STRINGS_LEFT = 1, STRINGS_RIGHT = 2, STRINGS_BOTH = 3 };

/* The byte where WHAT begins in T at or after FROM, or SIZE_MAX. */
MUST_CHECK int strings_find(struct scratch *s, size_t *at, const struct text *t,
                            const struct text *what, size_t from);
/* The same from the end: the last one that ends at or before TO. */
MUST_CHECK int strings_find_last(struct scratch *s, size_t *at, const struct text *t,
                                 const struct text *what, size_t to);
bool strings_begins(const struct text *t, const struct text *with);
bool strings_ends(const struct text *t, const struct text *with);
/* Without the characters of SET, or white space if it is NULL, at the ends of SIDE. */
MUST_CHECK int strings_strip(struct scratch *s, struct value *out, const struct text *t,
                             const struct text *set, enum strings_side side);
/* Lists of parts.  SEPARATOR NULL: runs of white space.  MOST: splits, -1: no limit. */
MUST_CHECK int strings_split(struct scratch *s, struct value *out, const struct text *t,
                             const struct text *separator, int64_t most);
MUST_CHECK int strings_split_last(struct scratch *s, struct value *out,
                                  const struct text *t, const struct text *separator,
                                  int64_t most);
MUST_CHECK int strings_split_lines(struct scratch *s, struct value *out,
                                   const struct text *t, bool keep_ends);
MUST_CHECK int strings_replace(struct scratch *s, struct value *out,
                               const struct text *t, const struct text *old,
                               const struct text *new, int64_t most);
MUST_CHECK int strings_repeat(struct scratch *s, struct value *out,
                              const struct text *t, int64_t times);

enum strings_case {
    STRINGS_LOWER,
    STRINGS_UPPER,
    STRINGS_CAPITALIZED, /* the first letter in title case */
    STRINGS_UPPER_FIRST,
    STRINGS_TITLE /* the first letter of each word */
};
MUST_CHECK int strings_to_case(struct scratch *s, struct value *out,
                               const struct text *t, enum strings_case to);

/* Are all letters of T in this case, and is there one: str.islower, str.isupper? */
bool strings_is_case(const struct text *t, bool upper);
/* Appends T with & < > ' " escaped for HTML. */
MUST_CHECK int strings_add_escaped(struct builder *b, const struct text *t);

/* The byte of code point I, which is at most their number. */
size_t strings_offset(const struct text *t, size_t i);

#endif
