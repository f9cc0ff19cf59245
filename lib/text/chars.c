/* chars - what a code point is, for text that is well-formed UTF-8 */
#include "lib/text/chars.h"

#include <utf8proc.h>

#include "lib/base/str.h"

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

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool chars_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == ' ' || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool chars_is_mark(uint32_t cp)
{
    utf8proc_category_t c = category(cp);

    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC ||
           c == UTF8PROC_CATEGORY_ME;
}

bool chars_is_nonspacing(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_MN;
}

bool chars_is_other(uint32_t cp)
{
    utf8proc_category_t c = category(cp);

    return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_CO;
}

/* Symbols that are alphabetic: letters in circles and squares. */
static bool is_enclosed_letter(uint32_t cp)
{
    return (cp >= 0x24b6 && cp <= 0x24e9) || (cp >= 0x1f130 && cp <= 0x1f149) ||
           (cp >= 0x1f150 && cp <= 0x1f169) || (cp >= 0x1f170 && cp <= 0x1f189);
}

bool chars_is_word(uint32_t cp)
{
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return cp == 0x200c || cp == 0x200d || is_enclosed_letter(cp);
    }
}
