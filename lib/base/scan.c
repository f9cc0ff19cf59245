/* scan - reading a short text from left to right */
#include <ctype.h>
#include <string.h>

#include "lib/base/scan.h"

struct scan scan_start(const char *text, size_t n, struct err *err)
{
    return (struct scan){ .text = text, .p = text, .end = text + n, .err = err };
}

int scan_fail(const struct scan *s, const char *at, const char *cause)
{
    return err_set_at(s->err, (unsigned)(at - s->text) + 1, cause);
}

void scan_space(struct scan *s)
{
    while (s->p < s->end && *s->p == ' ')
        s->p++;
}

char scan_peek(const struct scan *s, size_t offset)
{
    return offset < (size_t)(s->end - s->p) ? s->p[offset] : '\0';
}

bool scan_take(struct scan *s, char c)
{
    scan_space(s);
    if (s->p == s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

bool scan_take_text(struct scan *s, const char *op)
{
    size_t n = strlen(op);

    scan_space(s);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, op, n) != 0)
        return false;
    s->p += n;
    return true;
}

size_t scan_word(const struct scan *s, size_t offset)
{
    size_t n = 0;

    if (isdigit((unsigned char)scan_peek(s, offset)))
        return 0;
    while (isalnum((unsigned char)scan_peek(s, offset + n)) ||
           scan_peek(s, offset + n) == '_')
        n++;
    return n;
}

int scan_end(struct scan *s, const char *cause)
{
    scan_space(s);
    return s->p == s->end ? 0 : scan_fail(s, s->p, cause);
}

int scan_enter(struct scan *s, int most)
{
    return ++s->depth > most ? scan_fail(s, s->p, "nested too deeply") : 0;
}
