/* pieces - a list of strings in one buffer */
#include "lib/text/pieces.h"

#include <stdlib.h>

#include "lib/base/mem.h"

void pieces_clear(struct pieces *p)
{
    free(p->v);
    origins_clear(&p->origins);
    str_clear(&p->text);
    *p = (struct pieces){ 0 };
}

void pieces_end(struct pieces *p, size_t start, bool first)
{
    p->v = xgrow(p->v, &p->cap, p->n + 1, sizeof(*p->v));
    p->v[p->n++] = (struct piece){ start, p->text.len - start, first };
}

void pieces_add(struct pieces *p, const char *text, size_t len, bool first)
{
    size_t start = p->text.len;

    str_addn(&p->text, text, len);
    pieces_end(p, start, first);
}
