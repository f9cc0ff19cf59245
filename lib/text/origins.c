/* origins - which bytes of a text the bytes made of it stand for */
#include "lib/text/origins.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/chars.h"

void origins_clear(struct origins *o)
{
    free(o->v);
    *o = (struct origins){ 0 };
}

void origins_add(struct origins *o, struct origin one, size_t n)
{
    o->v = xgrow(o->v, &o->cap, o->n + n, sizeof(*o->v));
    while (n--)
        o->v[o->n++] = one;
}

void origins_begin(struct origins *o, const char *text, size_t len, size_t at)
{
    size_t used;

    for (size_t i = 0; i < len; i += used) {
        (void)chars_at(text + i, len - i, &used);
        origins_add(o, (struct origin){ at + i, at + i + used }, used);
    }
}

struct origin origins_range(const struct origins *o, size_t start, size_t end)
{
    struct origin r = { 0, 0 };

    end = end < o->n ? end : o->n;
    if (start < end)
        r = (struct origin){ o->v[start].start, o->v[end - 1].end };
    else if (end)
        r.start = r.end = o->v[end - 1].end;
    return r;
}

void rewriting_begin(struct rewriting *r, const char *text, size_t len)
{
    if (!r)
        return;
    origins_clear(&r->from);
    r->from = r->to;
    r->to = (struct origins){ 0 };
    r->text = text;
    r->len = len;
    r->at = 0;
}

static struct origin origin_at(const struct rewriting *r, size_t at)
{
    return at < r->from.n ? r->from.v[at] : (struct origin){ 0, 0 };
}

/* Passes N characters of the old text. */
static void pass(struct rewriting *r, int n)
{
    size_t used;

    for (; n > 0 && r->at < r->len; n--) {
        (void)chars_at(r->text + r->at, r->len - r->at, &used);
        r->at += used;
    }
}

void rewriting_char(struct rewriting *r, size_t n, int change)
{
    if (!r)
        return;
    if (change > 0) {
        origins_add(&r->to, r->at ? origin_at(r, r->at - 1) : (struct origin){ 0, 0 },
                    n);
        return;
    }
    origins_add(&r->to, origin_at(r, r->at), n);
    pass(r, 1 - change);
}

void rewriting_skip(struct rewriting *r, size_t n)
{
    if (r)
        r->at += n;
}

void rewriting_copy(struct rewriting *r, size_t n)
{
    for (size_t i = 0; r && i < n; i++)
        origins_add(&r->to, origin_at(r, r->at++), 1);
}

static int characters(const char *text, size_t n)
{
    int count = 0;

    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

void rewriting_flush(struct rewriting *r)
{
    if (r && r->held)
        rewriting_char(r, r->held, r->change);
    if (r)
        r->held = 0;
}

void rewriting_replace(struct rewriting *r, const char *part, size_t n,
                       const char *made, size_t len)
{
    size_t used;
    int old = characters(part, n), now = characters(made, len), i = 0;

    if (!r)
        return;
    for (size_t at = 0; at < len; at += used, i++) {
        (void)chars_at(made + at, len - at, &used);
        rewriting_flush(r);
        r->held = used;
        r->change = i >= old;
    }
    if (now < old)
        r->change += now - old;
}

void rewriting_clear(struct rewriting *r)
{
    origins_clear(&r->from);
    origins_clear(&r->to);
}
