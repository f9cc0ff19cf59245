/* chars - properties of code points, and access to well-formed UTF-8 */
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

struct range {
    uint32_t first, last;
};

/* The `tokenizers` library uses older versions of Unicode: version 8 in BERT's stages,
 * 9 to 12 in others.  These tables list code points that were added or changed
 * later. */
static const struct range LATER[] = {
    { 0x61d, 0x61d },     { 0x7fd, 0x7fd },     { 0x890, 0x8e2 },
    { 0x9fd, 0x9fe },     { 0xa76, 0xa76 },     { 0xafa, 0xaff },
    { 0xb55, 0xb55 },     { 0xc04, 0xc3c },     { 0xc77, 0xc77 },
    { 0xc84, 0xc84 },     { 0xd00, 0xd00 },     { 0xd3b, 0xd3c },
    { 0xd81, 0xd81 },     { 0xeba, 0xeba },     { 0xece, 0xece },
    { 0x180f, 0x1886 },   { 0x1abf, 0x1ace },   { 0x1b7d, 0x1b7e },
    { 0x1df6, 0x1dfb },   { 0x2e43, 0x2e5d },   { 0xa82c, 0xa82c },
    { 0xa8c5, 0xa8c5 },   { 0xa8ff, 0xa8ff },   { 0xa9bd, 0xa9bd },
    { 0x10d24, 0x10f89 }, { 0x11070, 0x11074 }, { 0x110c2, 0x110cd },
    { 0x111c9, 0x111c9 }, { 0x111cf, 0x111cf }, { 0x1123e, 0x11241 },
    { 0x1133b, 0x1133b }, { 0x11438, 0x1145e }, { 0x11660, 0x1166c },
    { 0x116b9, 0x116b9 }, { 0x1182f, 0x11fff }, { 0x12ff1, 0x13455 },
    { 0x16e97, 0x16f4f }, { 0x16fe2, 0x16fe4 }, { 0x1cf00, 0x1cf46 },
    { 0x1e000, 0x1e4ef }, { 0x1e944, 0x1e95f }
};
static const struct range LATER_MARKS[] = {
    { 0x7fd, 0x7fd },     { 0x898, 0x8d3 },     { 0x9fe, 0x9fe },
    { 0xafa, 0xaff },     { 0xb55, 0xb55 },     { 0xc04, 0xc3c },
    { 0xcf3, 0xd00 },     { 0xd3b, 0xd3c },     { 0xd81, 0xd81 },
    { 0xeba, 0xeba },     { 0xece, 0xece },     { 0x1715, 0x1715 },
    { 0x180f, 0x180f },   { 0x1abf, 0x1ace },   { 0x1cf7, 0x1cf7 },
    { 0x1df6, 0x1dfa },   { 0xa82c, 0xa82c },   { 0xa8ff, 0xa8ff },
    { 0x10d24, 0x10f85 }, { 0x11070, 0x11074 }, { 0x110c2, 0x110c2 },
    { 0x11145, 0x11146 }, { 0x111c9, 0x111c9 }, { 0x111ce, 0x111cf },
    { 0x11241, 0x11241 }, { 0x1133b, 0x1133b }, { 0x1145e, 0x1145e },
    { 0x1182c, 0x11a99 }, { 0x11d31, 0x13455 }, { 0x16f4f, 0x16f4f },
    { 0x16f7f, 0x16f87 }, { 0x16fe4, 0x16ff1 }, { 0x1cf00, 0x1cf46 },
    { 0x1e08f, 0x1e4ef }
};
static const struct range LATER_FORMS[] = {
    { 0x32ff, 0x32ff },   { 0xa7f2, 0xa7f4 },   { 0xab69, 0xab69 },
    { 0x10781, 0x107ba }, { 0x1e030, 0x1e06d }, { 0x1f16c, 0x1f16c },
    { 0x1fbf0, 0x1fbf9 },
};

static bool is_in(const struct range *r, size_t n, uint32_t cp)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (cp > r[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && cp >= r[low].first;
}

static utf8proc_category_t category8(uint32_t cp)
{
    return is_in(LATER, sizeof(LATER) / sizeof(*LATER), cp) ? UTF8PROC_CATEGORY_CN
                                                            : category(cp);
}

bool chars_has_later_form(uint32_t cp)
{
    return is_in(LATER_FORMS, sizeof(LATER_FORMS) / sizeof(*LATER_FORMS), cp);
}

bool chars_is_mark(uint32_t cp)
{
    utf8proc_category_t c = category(cp);

    if (is_in(LATER_MARKS, sizeof(LATER_MARKS) / sizeof(*LATER_MARKS), cp))
        return false;
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC ||
           c == UTF8PROC_CATEGORY_ME || cp == 0x1cf2 || cp == 0x1cf3;
}

bool chars_is_nonspacing(uint32_t cp)
{
    return category8(cp) == UTF8PROC_CATEGORY_MN || cp == 0x1734;
}

bool chars_is_punctuation(uint32_t cp)
{
    utf8proc_category_t c = category8(cp);

    return (c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO) ||
           (cp < 128 && c >= UTF8PROC_CATEGORY_SM && c <= UTF8PROC_CATEGORY_SO) ||
           cp == 0x166d || cp == 0x111c9;
}

bool chars_is_other(uint32_t cp)
{
    utf8proc_category_t c = category8(cp);

    return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_CO;
}

/* Alphabetic symbols: circled and squared letters. */
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
