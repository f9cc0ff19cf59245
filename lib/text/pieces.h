/* pieces - a list of strings in one buffer */
#ifndef LIB_TEXT_PIECES_H
#define LIB_TEXT_PIECES_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/str.h"
#include "lib/text/origins.h"

struct piece {
    size_t start, len; /* byte range in the buffer */
    bool first;        /* it begins at the start of the whole input */
};

/* `struct pieces p = { 0 }` is empty. */
struct pieces {
    struct str text;
    struct origins origins; /* of text, where somebody asks for them */
    struct piece *v;
    size_t n, cap;
};

void pieces_clear(struct pieces *p);
void pieces_add(struct pieces *p, const char *text, size_t len, bool first);
/* Makes a piece of the bytes added to the buffer since START. */
void pieces_end(struct pieces *p, size_t start, bool first);
static inline const char *pieces_at(const struct pieces *p, size_t i)
{
    return str_text(&p->text) + p->v[i].start;
}

#endif
