/* builder - a text with marks that grows in a scratch */
#include "lib/text/template/builder.h"

#include <string.h>

#include "lib/base/str.h"

/* Old memory is left to the scratch, so what was built before remains. */
static int grow(struct builder *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 64;
    unsigned char *mark = NULL;
    char *s;

    if (n <= b->cap - b->n)
        return 0;
    while (cap - b->n < n)
        cap *= 2;
    s = scratch_take(b->scratch, cap);
    if (s && b->mark)
        mark = scratch_zeroed(b->scratch, cap);
    if (!s || (b->mark && !mark))
        return -1;
    if (b->n)
        memcpy(s, b->s, b->n);
    if (b->n && b->mark)
        memcpy(mark, b->mark, b->n);
    b->s = s;
    b->mark = mark;
    b->cap = cap;
    return 0;
}

static int need_marks(struct builder *b)
{
    if (b->mark)
        return 0;
    b->mark = scratch_zeroed(b->scratch, b->cap);
    return b->mark ? 0 : -1;
}

int builder_add(struct builder *b, const char *s, const unsigned char *mark, size_t n)
{
    if (!n)
        return 0;
    if (scratch_step(b->scratch, n) < 0 || grow(b, n) < 0 ||
        (mark && need_marks(b) < 0))
        return -1;
    memcpy(b->s + b->n, s, n);
    if (mark)
        memcpy(b->mark + b->n, mark, n);
    else if (b->mark)
        memset(b->mark + b->n, 0, n);
    b->n += n;
    return 0;
}

int builder_add_text(struct builder *b, const struct text *t)
{
    return builder_add(b, t->s, t->mark, t->n);
}

static int add_marked(struct builder *b, const char *s, size_t n, unsigned char mark)
{
    size_t start = b->n;

    if (builder_add(b, s, NULL, n) < 0)
        return -1;
    return mark && n ? builder_mark(b, start, mark) : 0;
}

int builder_add_char(struct builder *b, uint32_t cp, unsigned char mark)
{
    char s[4];

    return add_marked(b, s, str_utf8_encode(cp, s), mark);
}

int builder_add_word(struct builder *b, const char *word, unsigned char mark)
{
    return add_marked(b, word, strlen(word), mark);
}

int builder_mark(struct builder *b, size_t start, unsigned char bit)
{
    if (start == b->n)
        return 0;
    if (scratch_step(b->scratch, b->n - start) < 0 || need_marks(b) < 0)
        return -1;
    for (size_t i = start; i < b->n; i++)
        b->mark[i] |= bit;
    return 0;
}

int builder_value(const struct builder *b, struct value *out)
{
    return value_text(b->scratch, out, b->s, b->mark, b->n);
}
