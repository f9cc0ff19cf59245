/* str - growing strings, and strict parsing of numbers */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

void str_clear(struct str *s)
{
    free(s->s);
    *s = (struct str){ 0 };
}

void str_reset(struct str *s)
{
    s->len = 0;
    if (s->s)
        s->s[0] = '\0';
}

void str_cut(struct str *s, size_t len)
{
    if (len >= s->len)
        return;
    s->len = len;
    s->s[len] = '\0';
}

const char *str_text(const struct str *s)
{
    return s->s ? s->s : "";
}

char *str_steal(struct str *s)
{
    char *text = s->s ? s->s : xstrdup("");

    *s = (struct str){ 0 };
    return text;
}

void str_addn(struct str *s, const void *bytes, size_t n)
{
    if (s->len + n >= s->cap)
        s->s = xgrow(s->s, &s->cap, s->len + n + 1, 1);
    if (n)
        memcpy(s->s + s->len, bytes, n);
    s->len += n;
    s->s[s->len] = '\0';
}

void str_add(struct str *s, const char *text)
{
    str_addn(s, text, strlen(text));
}

void str_addc(struct str *s, char c)
{
    str_addn(s, &c, 1);
}

static void add_formatted(struct str *s, const char *fmt, va_list ap)
{
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n <= 0)
        return;
    s->s = xgrow(s->s, &s->cap, s->len + (size_t)n + 1, 1);
    vsnprintf(s->s + s->len, (size_t)n + 1, fmt, ap);
    s->len += (size_t)n;
}

void str_addf(struct str *s, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    add_formatted(s, fmt, ap);
    va_end(ap);
}

char *str_dupf(const char *fmt, ...)
{
    struct str s = { 0 };
    va_list ap;

    va_start(ap, fmt);
    add_formatted(&s, fmt, ap);
    va_end(ap);
    return str_steal(&s);
}

void str_add_json(struct str *s, const char *text)
{
    str_add_jsonn(s, text, strlen(text));
}

void str_add_jsonn(struct str *s, const char *text, size_t n)
{
    static const char SHORT[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* pairs: byte, letter */

    str_addc(s, '"');
    while (n) {
        uint32_t cp;
        size_t used = str_utf8_decode(text, n, &cp);
        const char *pair = used == 1 && cp ? strchr(SHORT, (int)cp) : NULL;

        if (!used) {
            str_add(s, "\xef\xbf\xbd");
            used = str_utf8_bad(text, n);
        } else if (pair && (pair - SHORT) % 2 == 0) {
            str_addc(s, '\\');
            str_addc(s, pair[1]);
        } else if (cp < 0x20 || cp == 0x7f) {
            str_addf(s, "\\u%04" PRIx32, cp);
        } else {
            str_addn(s, text, used);
        }
        text += used;
        n -= used;
    }
    str_addc(s, '"');
}

void str_add_double(struct str *s, double x)
{
    char buf[40];

    if (isnan(x) || isinf(x)) {
        str_add(s, isnan(x) ? "\"NaN\"" : x > 0 ? "\"Infinity\"" : "\"-Infinity\"");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, sizeof(buf), "%.*g", digits, x);
        if (strtod(buf, NULL) == x)
            break;
    }
    str_add(s, buf);
}

bool str_starts(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);

    return n >= k && !memcmp(s + n - k, suffix, k);
}

bool str_u64(const char *text, uint64_t *out)
{
    uint64_t value = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        if (!mem_mul(&value, value, 10) ||
            !mem_add(&value, value, (uint64_t)(*text - '0')))
            return false;
    }
    *out = value;
    return true;
}

bool str_i64(const char *text, int64_t *out)
{
    bool negative = *text == '-';
    uint64_t magnitude;

    if (!str_u64(text + (negative || *text == '+'), &magnitude))
        return false;
    if (magnitude > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? -(int64_t)(magnitude - (magnitude > 0)) - (magnitude > 0)
                    : (int64_t)magnitude;
    return true;
}

bool str_int(const char *text, int *out)
{
    int64_t value;

    if (!str_i64(text, &value) || value < INT_MIN || value > INT_MAX)
        return false;
    *out = (int)value;
    return true;
}

bool str_double(const char *text, double *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    char *end;
    double value;

    /* strtod also takes blanks, hexadecimal, "inf" and "nan". */
    if (!isdigit((unsigned char)digits[digits[0] == '.']) || strpbrk(text, "xX"))
        return false;
    value = strtod(text, &end);
    if (*end || isinf(value))
        return false;
    *out = value;
    return true;
}

bool str_duration(const char *text, double *out)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {
        { "ms", 1e-3 }, { "s", 1 }, { "m", 60 }, { "h", 3600 }, { "d", 86400 }
    };
    enum { UNITS = sizeof(units) / sizeof(*units) };
    double sum = 0, x;

    if (!*text)
        return false;
    if (str_double(text, out))
        return *out >= 0;
    while (*text) {
        size_t n = strspn(text, "0123456789."), k = 0;
        char *number = xstrndup(text, n);
        bool ok = str_double(number, &x);

        free(number);
        text += n;
        while (k < UNITS && strncmp(text, units[k].unit, strlen(units[k].unit)) != 0)
            k++;
        if (!ok || k == UNITS)
            return false;
        sum += x * units[k].seconds;
        text += strlen(units[k].unit);
    }
    *out = sum;
    return isfinite(sum);
}

bool str_size(const char *text, uint64_t *out)
{
    static const struct {
        const char *suffix;
        uint64_t factor;
    } units[] = {
        { "", 1 },
        { "B", 1 },
        { "K", UINT64_C(1) << 10 },
        { "M", UINT64_C(1) << 20 },
        { "G", UINT64_C(1) << 30 },
        { "T", UINT64_C(1) << 40 },
        { "KiB", UINT64_C(1) << 10 },
        { "MiB", UINT64_C(1) << 20 },
        { "GiB", UINT64_C(1) << 30 },
        { "TiB", UINT64_C(1) << 40 },
        { "KB", UINT64_C(1000) },
        { "MB", UINT64_C(1000000) },
        { "GB", UINT64_C(1000000000) },
        { "TB", UINT64_C(1000000000000) },
    };
    size_t n = strspn(text, "0123456789.");
    const char *suffix = text + n;
    char digits[64];
    uint64_t whole;
    double value;

    if (!n || n >= sizeof(digits))
        return false;
    memcpy(digits, text, n);
    digits[n] = '\0';
    while (*suffix == ' ')
        suffix++;
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        if (strcasecmp(suffix, units[i].suffix))
            continue;
        if (str_u64(digits, &whole))
            return mem_mul(out, whole, units[i].factor);
        if (!str_double(digits, &value) || value * (double)units[i].factor >= 0x1p63)
            return false;
        *out = (uint64_t)llround(value * (double)units[i].factor);
        return true;
    }
    return false;
}

const char *str_human(char buf[32], uint64_t bytes)
{
    static const char *const UNITS[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes / 1024;
    int unit = 0;

    if (bytes < 1024) {
        snprintf(buf, 32, "%" PRIu64 " B", bytes);
        return buf;
    }
    while (value >= 1024 && unit < 5) {
        value /= 1024;
        unit++;
    }
    snprintf(buf, 32, "%.2f %s", value, UNITS[unit]);
    return buf;
}

size_t str_mark(const char *text, size_t n)
{
    return n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;
}

size_t str_utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    static const uint32_t SMALLEST[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const unsigned char *p = (const unsigned char *)s;
    size_t len = p[0] < 0x80           ? 1
                 : (p[0] >> 5) == 0x06 ? 2
                 : (p[0] >> 4) == 0x0e ? 3
                 : (p[0] >> 3) == 0x1e ? 4
                                       : 0;
    uint32_t value;

    if (!len || len > n)
        return 0;
    if (len == 1) {
        *cp = p[0];
        return 1;
    }
    value = p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (p[i] & 0x3f);
    }
    if (value < SMALLEST[len] || value > 0x10ffff ||
        (value >= 0xd800 && value <= 0xdfff))
        return 0;
    *cp = value;
    return len;
}

size_t str_utf8_bad(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t len = p[0] < 0xc2   ? 1
                 : p[0] < 0xe0 ? 2
                 : p[0] < 0xf0 ? 3
                 : p[0] < 0xf5 ? 4
                               : 1;
    unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    size_t i = 1;

    while (i < len && i < n && p[i] >= low && p[i] <= high) {
        low = 0x80;
        high = 0xbf;
        i++;
    }
    return i;
}

size_t str_printable(char out[STR_PRINTABLE], const char *text)
{
    static const char letters[] = "\nn\tt\rr";
    uint32_t cp;
    size_t n = str_utf8_decode(text, strnlen(text, 4), &cp);
    unsigned char byte = (unsigned char)*text;

    if (n == 1 && cp < 0x20 && strchr("\n\t\r", (int)cp))
        snprintf(out, STR_PRINTABLE, "\\%c", strchr(letters, (int)cp)[1]);
    else if (!n || cp < 0x20 || cp == 0x7f)
        snprintf(out, STR_PRINTABLE, "\\x%02x", byte);
    else if ((cp >= 0x80 && cp < 0xa0) || cp == 0x2028 || cp == 0x2029 ||
             (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069))
        snprintf(out, STR_PRINTABLE, "\\u%04x", (unsigned)cp & 0xffff);
    else
        snprintf(out, STR_PRINTABLE, "%.*s", (int)n, text);
    return n ? n : 1;
}

void str_add_printable(struct str *s, const char *text)
{
    char shown[STR_PRINTABLE];

    while (*text) {
        text += str_printable(shown, text);
        str_add(s, shown);
    }
}

size_t str_utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

bool str_is_utf8(const char *s, size_t n)
{
    uint32_t cp;

    while (n) {
        size_t used = str_utf8_decode(s, n, &cp);

        if (!used)
            return false;
        s += used;
        n -= used;
    }
    return true;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t str_distance(const char *a, const char *b)
{
    size_t m = strlen(a), n = strlen(b);
    size_t *rows = xcalloc(3 * (n + 1), sizeof(*rows));
    size_t *before = rows, *above = rows + n + 1, *row = rows + 2 * (n + 1);
    size_t distance;

    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t *spare = before;

        before = above;
        above = row;
        row = spare;
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            row[j] = least(least(above[j], row[j - 1]) + 1,
                           above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    distance = row[n];
    free(rows);
    return distance;
}
