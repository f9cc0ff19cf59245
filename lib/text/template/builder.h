/* builder - a text with marks that grows in a scratch */
#ifndef LIB_TEXT_TEMPLATE_BUILDER_H
#define LIB_TEXT_TEMPLATE_BUILDER_H

#include "lib/text/template/value.h"

struct builder {
    struct scratch *scratch;
    char *s;
    unsigned char *mark; /* NULL as long as all are zero */
    size_t n, cap;
};

static inline struct builder builder_start(struct scratch *s)
{
    return (struct builder){ .scratch = s };
}
/* Append N bytes with the marks MARK[n], NULL: zero. */
MUST_CHECK int builder_add(struct builder *b, const char *s, const unsigned char *mark,
                           size_t n);
MUST_CHECK int builder_add_text(struct builder *b, const struct text *t);
/* Append a character or word, all of whose bytes have the mark MARK. */
MUST_CHECK int builder_add_char(struct builder *b, uint32_t cp, unsigned char mark);
MUST_CHECK int builder_add_word(struct builder *b, const char *word,
                                unsigned char mark);
/* Set BIT in the marks of all bytes from START on. */
MUST_CHECK int builder_mark(struct builder *b, size_t start, unsigned char bit);
/* The text, which later additions do not change. */
MUST_CHECK int builder_value(const struct builder *b, struct value *out);

#endif
