/* chars - properties of code points, and access to well-formed UTF-8 */
#include "lib/text/chars.h"

#include "lib/base/str.h"
#include "lib/text/unicode.h"

uint32_t chars_at(const char *s, size_t n, size_t *used)
{
    uint32_t cp;

    *used = str_utf8_decode(s, n, &cp);
    if (*used)
        return cp;
    *used = 1;
    return 0xfffd;
}

uint32_t chars_before(const char *s, size_t at, size_t *used)
{
    size_t start = at - 1;

    while (start && at - start < 4 && ((unsigned char)s[start] & 0xc0) == 0x80)
        start--;
    *used = at - start;
    return chars_at(s + start, at - start, &(size_t){ 0 });
}

bool chars_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == ' ' || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

/* Is CP in the set? */
static bool is_in(const struct unicode_set *s, uint32_t cp)
{
    size_t low = 0, high = s->n;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (cp > s->range[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n && cp >= s->range[low].first;
}

bool chars_has_later_form(uint32_t cp)
{
    return cp >= 0x300 && is_in(&unicode_later_form, cp);
}

bool chars_is_mark(uint32_t cp)
{
    return cp >= 0x300 && is_in(&unicode_mark, cp);
}

bool chars_is_nonspacing(uint32_t cp)
{
    return cp >= 0x300 && is_in(&unicode_nonspacing, cp);
}

bool chars_is_punctuation(uint32_t cp)
{
    return is_in(&unicode_punctuation, cp);
}

bool chars_is_other(uint32_t cp)
{
    return is_in(&unicode_other, cp);
}

bool chars_is_word(uint32_t cp)
{
    return is_in(&unicode_word, cp);
}

bool chars_is_number(uint32_t cp)
{
    return is_in(&unicode_number, cp);
}

uint32_t chars_lower(uint32_t cp)
{
    size_t low = 0, high = unicode_nlower;
    const struct unicode_case *c = unicode_lower;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (cp > c[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == unicode_nlower || cp < c[low].first || (cp - c[low].first) % c[low].step)
        return cp;
    return (uint32_t)((int32_t)cp + c[low].delta);
}

uint32_t chars_stand_in(uint32_t cp)
{
    size_t low = 0, high = unicode_nstand_ins;
    const struct unicode_stand_in *s = unicode_stand_ins;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (cp > s[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < unicode_nstand_ins && cp >= s[low].first ? s[low].to : cp;
}

int chars_script(uint32_t cp)
{
    size_t low = 0, high = unicode_nscripts;
    const struct unicode_script *s = unicode_scripts;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (cp > s[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < unicode_nscripts && cp >= s[low].first ? s[low].script : CHARS_JOINS;
}

int chars_word_kind(uint32_t cp)
{
    return chars_is_word(cp) ? 1 : chars_is_space(cp) ? 0 : 2;
}
