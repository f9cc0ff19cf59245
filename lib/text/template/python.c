/* python - what Python says of characters and numbers */
#include "lib/text/template/python.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "lib/text/chars.h"

bool python_is_space(uint32_t cp)
{
    return chars_is_space(cp) || (cp >= 0x1c && cp <= 0x1f);
}

bool python_is_printable(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return cp == ' ';
    default:
        return true;
    }
}

bool python_is_alpha(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

/* Superscripts and circled digits are digits, too; of all these only the decimal ones
 * have a category of their own. */
bool python_is_digit(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ND ||
           cp == 0xb2 || cp == 0xb3 || cp == 0xb9 || cp == 0x2070 ||
           (cp >= 0x2074 && cp <= 0x2079) || (cp >= 0x2080 && cp <= 0x2089) ||
           (cp >= 0x2460 && cp <= 0x2468);
}

bool python_is_alnum(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

    return python_is_alpha(cp) ||
           (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO);
}

enum python_case python_case(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
        return PYTHON_UPPER;
    case UTF8PROC_CATEGORY_LL:
        return PYTHON_LOWER;
    case UTF8PROC_CATEGORY_LT:
        return PYTHON_TITLE;
    default:
        return PYTHON_UNCASED;
    }
}

bool python_is_case_ignorable(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default: /* punctuation within words: Word_Break MidLetter, MidNumLet, Single_Quote
              */
        return cp == '\'' || cp == '.' || cp == ':' || cp == 0xb7 || cp == 0x387 ||
               cp == 0x55f || cp == 0x5f4 || cp == 0x2018 || cp == 0x2019 ||
               cp == 0x2024 || cp == 0x2027 || cp == 0xfe13 || cp == 0xfe52 ||
               cp == 0xfe55 || cp == 0xff07 || cp == 0xff0e || cp == 0xff1a;
    }
}

const char *python_float(char buf[PYTHON_FLOAT], double x)
{
    char e[40], digits[24] = { 0 };
    int n, exponent, precision = 0;
    char *p = buf;

    if (isnan(x) || isinf(x))
        return isnan(x) ? "nan" : x < 0 ? "-inf" : "inf";
    do {
        snprintf(e, sizeof(e), "%.*e", precision, x);
    } while (strtod(e, NULL) != x && ++precision < 17);
    exponent = (int)strtol(strchr(e, 'e') + 1, NULL, 10);
    if (*e == '-')
        *p++ = '-';
    n = 0;
    for (const char *q = e; *q != 'e'; q++)
        if (*q >= '0' && *q <= '9')
            digits[n++] = *q;
    if (exponent < -4 || exponent >= 16) {
        *p++ = digits[0];
        if (n > 1)
            *p++ = '.';
        memcpy(p, digits + 1, (size_t)n - 1);
        p += n - 1;
        snprintf(p, PYTHON_FLOAT - (size_t)(p - buf), "e%c%02d",
                 exponent < 0 ? '-' : '+', abs(exponent));
        return buf;
    }
    if (exponent < 0)
        *p++ = '0';
    for (int i = 0; i <= exponent; i++)
        *p++ = i < n ? digits[i] : '0';
    *p++ = '.';
    for (int i = exponent + 1; i < 0; i++)
        *p++ = '0';
    if (exponent + 1 >= n && exponent >= 0)
        *p++ = '0';
    for (int i = exponent < 0 ? 0 : exponent + 1; i < n; i++)
        *p++ = digits[i];
    *p = '\0';
    return buf;
}
