/* onig - translates Oniguruma's regular expressions to PCRE2
 *
 * Differences between the two (Oniguruma's doc/RE; pcre2pattern(3)), in Oniguruma's
 * meaning:
 *   \s \w \b   use other properties         \h       a hexadecimal digit
 *   \v         only U+000B                  (?m)     the dot matches a line feed
 *   x{n,m}+    a repeated repetition        x{n}?    an optional repetition
 *   x{,m}      from none                    [a[b]]   a nested class
 *   \p{Han}    only the script itself, without script extensions
 * ^ and $ match at lines, which is an option of PCRE2. */
#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <utf8proc.h>

#include "lib/text/chars.h"
#include "lib/text/pattern.h"

enum { MAX_DEPTH = 64 };

#define SPACE                                                                          \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}" \
    "\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE                                                                  \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"   \
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}" \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
/* letters, marks, decimal digits, connectors, letter numbers, enclosed letters; outside
 * a class also the numbers of Latin-1, as in Oniguruma 6.9 */
#define WORD                                                                    \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}" \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define WORDS   "[" WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]"
#define NO_WORD "[^" WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]"
#define HEX     "0-9A-Fa-f"
#define NOT_HEX "\\x{0}-\\x{2f}:-@G-`g-\\x{10ffff}"

struct reader {
    const char *where, *text, *p;
    struct str *out;
    struct err *err;
    size_t atom; /* position in *out of the atom that a quantifier applies to */
    size_t open[MAX_DEPTH]; /* positions of the open groups */
    size_t fresh;           /* length of *out when the last group was opened */
    int depth, folds;       /* number of open groups; its value where case-insensitive
                               matching began */
};

static int refuse(const struct reader *r, const char *at, const char *what)
{
    return err_set(r->err, ERR_INPUT, "%s: pattern, byte %zu of '%s': %s is not known",
                   r->where, (size_t)(at - r->text), r->text, what);
}

static void copy(struct reader *r, size_t n)
{
    str_addn(r->out, r->p, n);
    r->p += n;
}

/* Translation of a letter after a backslash; NULL: not allowed. */
static const struct {
    char letter;
    const char *outside, *in_class;
} ESCAPES[] = {
    { 's', "[" SPACE "]", SPACE },
    { 'S', "[^" SPACE "]", NOT_SPACE },
    { 'w', WORDS, WORD },
    { 'W', NO_WORD, NULL },
    { 'h', "[" HEX "]", HEX },
    { 'H', "[^" HEX "]", NOT_HEX },
    { 'd', "\\p{Nd}", "\\p{Nd}" },
    { 'D', "\\P{Nd}", "\\P{Nd}" },
    { 'b', "(?:(?<=" WORDS ")(?!" WORDS ")|(?<!" WORDS ")(?=" WORDS "))", "\\x{8}" },
    { 'B', "(?:(?<=" WORDS ")(?=" WORDS ")|(?<!" WORDS ")(?!" WORDS "))", NULL },
    { 'v', "\\x{b}", "\\x{b}" },
    { 'n', "\\n", "\\n" },
    { 'r', "\\r", "\\r" },
    { 't', "\\t", "\\t" },
    { 'f', "\\f", "\\f" },
    { 'a', "\\a", "\\a" },
    { 'e', "\\e", "\\e" },
    { 'A', "\\A", NULL },
    { 'Z', "\\Z", NULL },
    { 'z', "\\z", NULL },
    { 'G', "\\G", NULL },
    { 'K', "\\K", NULL },
    { 'R', "\\R", NULL },
    { 'X', "\\X", NULL },
    { 'N', "\\N", NULL },
    { 'O', "(?s:.)", NULL },
};

/* Parses a code point: \x{H}, \xHH or \uHHHH; P is at the letter. */
static int code_point(struct reader *r)
{
    char letter = *r->p;
    bool braces = letter == 'x' && r->p[1] == '{';
    const char *digits = r->p + 1 + braces;
    size_t most = braces ? 8 : letter == 'x' ? 2 : 4, n = 0;

    while (n < most && isxdigit((unsigned char)digits[n]))
        n++;
    if (!n || (braces && digits[n] != '}') || (letter == 'u' && n != 4))
        return refuse(r, r->p, "such a code point");
    if (!braces && n == 2 && letter == 'x' && strchr("89abcdefABCDEF", digits[0]))
        return refuse(r, r->p, "a byte of a character");
    str_addf(r->out, "\\x{%.*s}", (int)n, digits);
    r->p = digits + n + braces;
    return 0;
}

/* True for a property of one case, such as "p{Lu}". */
static bool is_of_one_case(const char *p)
{
    static const char *const names[] = { "lu}", "ll}", "lt}", "lower", "upper" };

    p += p[2] == '^' ? 3 : 2;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (!strncasecmp(p, names[i], strlen(names[i])))
            return true;
    return false;
}

/* Translates "p{Name}", N bytes. */
static void property(struct reader *r, size_t n)
{
    size_t start = r->p[2] == '^' ? 3 : 2;

    if (!pattern_is_script(r->p + start, n - start - 1)) {
        copy(r, n);
        return;
    }
    copy(r, start);
    str_add(r->out, "sc:");
    copy(r, n - start);
}

/* Translates "0" and at most two more octal digits. */
static void octal(struct reader *r)
{
    unsigned value = 0;

    for (int i = 0; i < 3 && *r->p >= '0' && *r->p <= '7'; i++)
        value = 8 * value + (unsigned)(*r->p++ - '0');
    str_addf(r->out, "\\x{%x}", value);
}

static int escape(struct reader *r, bool in_class)
{
    char c = *++r->p;

    for (size_t i = 0; i < sizeof(ESCAPES) / sizeof(*ESCAPES); i++)
        if (c == ESCAPES[i].letter) {
            const char *text = in_class ? ESCAPES[i].in_class : ESCAPES[i].outside;

            if (!text)
                return refuse(r, r->p, "this escape in a class");
            str_add(r->out, text);
            r->p++;
            return 0;
        }
    if (c == 'x' || c == 'u')
        return code_point(r);
    if (c == '0') {
        octal(r);
        return 0;
    }
    if (!c || (isalpha((unsigned char)c) && !strchr(in_class ? "pP" : "pPkg", c)))
        return refuse(r, r->p, "this escape");
    str_addc(r->out, '\\');
    if (c == 'p' || c == 'P') {
        size_t n = r->p[1] == '{' ? strcspn(r->p, "}") + 1 : 0;

        if (!n || n > strlen(r->p))
            return refuse(r, r->p, "a property without its name");
        if (r->folds >= 0 && is_of_one_case(r->p))
            return refuse(r, r->p, "either case of letters of one");
        property(r, n);
    } else {
        copy(r, isdigit((unsigned char)c) ? strspn(r->p, "0123456789") : 1);
    }
    return 0;
}

/* Translates "[:name:]" in a class. */
static int posix(struct reader *r)
{
    static const struct {
        const char *name, *text;
    } sets[] = { { "[:space:]", SPACE },
                 { "[:word:]", WORD },
                 { "[:xdigit:]", HEX },
                 { "[:digit:]", "\\p{Nd}" },
                 { "[:punct:]", "\\p{P}\\p{S}" } };

    for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++)
        if (!strncmp(r->p, sets[i].name, strlen(sets[i].name))) {
            str_add(r->out, sets[i].text);
            r->p += strlen(sets[i].name);
            return 0;
        }
    return refuse(r, r->p, "this POSIX class");
}

static const char MANY[] = "either case of letters that are one character";

/* In case-insensitive matching Oniguruma also matches one character with several (the
 * sharp s with ss, ligatures), PCRE2 does not. */
static bool folds_to_many(const char *p)
{
    static const char *const pairs[] = { "ss", "ff", "fi", "fl", "st" };
    utf8proc_int32_t many[4];
    size_t used;
    uint32_t cp = chars_at(p, strlen(p), &used);

    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++)
        if (!strncasecmp(p, pairs[i], 2))
            return true;
    return utf8proc_decompose_char((utf8proc_int32_t)cp, many, 4, UTF8PROC_CASEFOLD,
                                   &(int){ 0 }) > 1;
}

/* Translates the members of a class up to its closing bracket. */
static int members(struct reader *r, int depth)
{
    if (*r->p == ']') {
        str_addc(r->out, '\\');
        copy(r, 1);
    }
    while (*r->p && *r->p != ']') {
        int ret = 0;

        if (*r->p == '\\') {
            ret = escape(r, true);
        } else if (!strncmp(r->p, "[:", 2)) {
            ret = posix(r);
        } else if (*r->p == '[') {
            if (r->p[1] == '^' || depth > 8)
                return refuse(r, r->p, "such a class in a class");
            r->p++;
            ret = members(r, depth + 1);
        } else if (!strncmp(r->p, "&&", 2)) {
            return refuse(r, r->p, "an intersection of classes");
        } else if (r->folds >= 0 && (unsigned char)*r->p >= 0x80 &&
                   folds_to_many(r->p)) {
            return refuse(r, r->p, MANY);
        } else {
            copy(r, 1);
        }
        if (ret < 0)
            return -1;
    }
    if (!*r->p)
        return refuse(r, r->p, "a class without an end");
    r->p++;
    return 0;
}

static int class(struct reader *r)
{
    copy(r, r->p[1] == '^' ? 2 : 1);
    if (members(r, 0) < 0)
        return -1;
    str_addc(r->out, ']');
    return 0;
}

/* Translates the options in "(?im-x:" or in "(?i)", which is allowed only at the
 * beginning of a group. */
static int options(struct reader *r)
{
    const char *start = r->p, *end = r->p + 2 + strspn(r->p + 2, "im-"), *i, *minus;

    if (*end != ':' && (*end != ')' || r->out->len != r->fresh))
        return refuse(r, start, "this group");
    str_add(r->out, "(?");
    for (const char *p = start + 2; p < end; p++)
        str_addc(r->out, *p == 'm' ? 's' : *p);
    str_addc(r->out, *end);
    i = memchr(start, 'i', (size_t)(end - start));
    minus = memchr(start, '-', (size_t)(end - start));
    if (i && !(minus && minus < i) && r->folds < 0)
        r->folds = r->depth + (*end == ':');
    r->p = end + 1;
    return 0;
}

static int group(struct reader *r)
{
    if (r->p[1] == '*')
        return refuse(r, r->p, "this group");
    if (r->p[1] != '?') {
        copy(r, 1);
        return 0;
    }
    if (r->p[2] == '#') {
        r->p += strcspn(r->p, ")");
        r->p += *r->p == ')';
        if (*r->p && strchr("?*+{", *r->p))
            return refuse(r, r->p, "a quantifier behind a comment");
        return 0;
    }
    if (r->p[2] && strchr(":=!><", r->p[2])) {
        copy(r, 3);
        return 0;
    }
    return options(r);
}

/* Wraps the atom and its quantifier in a group, so that another quantifier can
 * follow. */
static void wrap(struct reader *r)
{
    struct str text = { 0 };

    str_add(&text, str_text(r->out) + r->atom);
    r->out->len = r->atom;
    str_addf(r->out, "(?:%s)", text.s);
    str_clear(&text);
}

/* Translates "{n,m}", or a literal brace. */
static void interval(struct reader *r)
{
    const char *low = r->p + 1;
    size_t nlow = strspn(low, "0123456789");
    bool comma = low[nlow] == ',';
    const char *high = low + nlow + comma;
    size_t nhigh = comma ? strspn(high, "0123456789") : 0;

    if (high[nhigh] != '}' || (!nlow && !nhigh)) {
        r->atom = r->out->len;
        str_addc(r->out, '\\');
        copy(r, 1);
        return;
    }
    str_addf(r->out, "{%.*s%s%.*s}", nlow ? (int)nlow : 1, nlow ? low : "0",
             comma ? "," : "", (int)nhigh, high);
    r->p = high + nhigh + 1;
    if (*r->p == '+' || (*r->p == '?' && !comma)) {
        wrap(r);
        copy(r, 1);
    }
}

static int one(struct reader *r)
{
    size_t at = r->out->len;

    switch (*r->p) {
    case '{':
        interval(r);
        return 0;
    case '*':
    case '+':
    case '?':
        copy(r, 1);
        return 0;
    case '(':
        if (r->depth == MAX_DEPTH)
            return refuse(r, r->p, "a group this deep");
        if (group(r) < 0)
            return -1;
        if (r->out->len > at && r->out->s[r->out->len - 1] != ')')
            r->open[r->depth++] = at;
        r->fresh = r->out->len;
        return 0;
    case ')':
        if (r->depth)
            at = r->open[--r->depth];
        if (r->depth < r->folds)
            r->folds = -1;
        copy(r, 1);
        break;
    case '\\':
        if (escape(r, false) < 0)
            return -1;
        break;
    case '[':
        if (class(r) < 0)
            return -1;
        break;
    default:
        if (r->folds >= 0 && folds_to_many(r->p))
            return refuse(r, r->p, MANY);
        do
            copy(r, 1);
        while (((unsigned char)*r->p & 0xc0) == 0x80);
    }
    r->atom = at;
    return 0;
}

int pattern_translate(struct str *out, const char *where, const char *regex,
                      struct err *err)
{
    struct reader r = {
        .where = where, .text = regex, .p = regex, .out = out, .err = err, .folds = -1
    };

    while (*r.p)
        if (one(&r) < 0)
            return -1;
    return 0;
}
