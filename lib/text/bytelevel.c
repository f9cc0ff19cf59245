/* bytelevel - GPT-2's byte alphabet: a printable character for each byte */
#include "lib/text/bytelevel.h"

#include "lib/text/chars.h"

/* Printable Latin-1 characters stand for themselves; the other bytes (0 to 32, 127 to
 * 160, 173) are mapped in order to code points from 256 on. */
static uint32_t char_of(unsigned char b)
{
    if (b <= 32)
        return 256u + b;
    if (b < 127)
        return b;
    if (b <= 160)
        return 256u + 33 + (b - 127u);
    return b == 173 ? 256 + 67 : b;
}

static int byte_of(uint32_t cp)
{
    for (unsigned b = cp < 256 ? cp : 0; b < 256; b++)
        if (char_of((unsigned char)b) == cp)
            return (int)b;
        else if (cp < 256)
            return -1;
    return -1;
}

void bytelevel_encode(struct str *out, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char utf8[4];

        str_addn(out, utf8, str_utf8_encode(char_of((unsigned char)bytes[i]), utf8));
    }
}

size_t bytelevel_width(char byte)
{
    char utf8[4];

    return str_utf8_encode(char_of((unsigned char)byte), utf8);
}

void bytelevel_decode(struct str *out, const char *text, size_t n)
{
    size_t before = out->len, used;

    for (size_t at = 0; at < n; at += used) {
        int b = byte_of(chars_at(text + at, n - at, &used));

        if (b < 0) {
            out->len = before;
            str_addn(out, text, n);
            return;
        }
        str_addc(out, (char)b);
    }
}

size_t bytelevel_spaces(const char *text, size_t len, bool end)
{
    size_t n = 0, used;

    for (; len; n++) {
        uint32_t cp = end ? chars_before(text, len, &used) : chars_at(text, len, &used);

        if (cp != char_of(' ') && !chars_is_space(cp))
            break;
        text += end ? 0 : used;
        len -= used;
    }
    return n;
}
