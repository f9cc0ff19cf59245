/* base64 - bytes as text (RFC 4648, section 4) */
#include "lib/base/base64.h"

#include <stdint.h>
#include <string.h>

static const char digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *p, size_t n, struct str *out)
{
    const unsigned char *b = p;

    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i < 3 ? n - i : 3;
        uint32_t bits = 0;

        for (size_t k = 0; k < 3; k++)
            bits = bits << 8 | (k < left ? b[i + k] : 0u);
        for (size_t k = 0; k < 4; k++)
            str_addc(out, k <= left ? digits[bits >> (18 - 6 * k) & 63] : '=');
    }
}

static int digit_of(char c)
{
    const char *at = c ? strchr(digits, c) : NULL;

    return at ? (int)(at - digits) : -1;
}

bool base64_decode(const char *text, struct str *out)
{
    size_t n = strlen(text), pad = n && text[n - 1] == '=';

    pad += n > 1 && text[n - 2] == '=';
    for (size_t i = 0; i + 4 <= n; i += 4) {
        bool last = i + 4 == n;
        uint32_t bits = 0;

        for (size_t k = 0; k < 4; k++) {
            int digit = last && k >= 4 - pad ? 0 : digit_of(text[i + k]);

            if (digit < 0)
                return false;
            bits = bits << 6 | (uint32_t)digit;
        }
        for (size_t k = 0; k < 3 - (last ? pad : 0); k++)
            str_addc(out, (char)(bits >> (16 - 8 * k) & 0xff));
    }
    return n % 4 == 0;
}
