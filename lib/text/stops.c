/* stops - texts at which a generated text ends */
#include "lib/text/stops.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

void stops_add(struct stops *s, const char *text)
{
    s->v = xgrow(s->v, &s->cap, s->n + 1, sizeof(*s->v));
    s->v[s->n++] = xstrdup(text);
}

void stops_clear(struct stops *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->v[i]);
    free(s->v);
    *s = (struct stops){ 0 };
}

void stops_copy(struct stops *out, const struct stops *s)
{
    stops_clear(out);
    for (size_t i = 0; i < s->n; i++)
        stops_add(out, s->v[i]);
}

size_t stops_find(const struct stops *s, const char *text, size_t len, size_t done)
{
    size_t first = len;

    for (size_t i = 0; i < s->n; i++) {
        const size_t n = strlen(s->v[i]);
        size_t at = done >= n ? done - n + 1 : 0;

        for (; at + n <= len && at < first; at++)
            if (!memcmp(text + at, s->v[i], n))
                first = at;
    }
    return first;
}

size_t stops_held(const struct stops *s, const char *text, size_t len)
{
    size_t most = 0;

    for (size_t i = 0; i < s->n; i++) {
        size_t n = strlen(s->v[i]) - 1;

        n = n < len ? n : len;
        while (n > most && memcmp(text + len - n, s->v[i], n) != 0)
            n--;
        most = n > most ? n : most;
    }
    return most;
}
