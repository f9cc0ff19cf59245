/* jsonlex - JSON token by token, for documents too large to hold as a tree */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/jsonlex.h"

/* What the grammar (RFC 8259) allows next. */
enum {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* just after [ */
    EXPECT_KEY,
    EXPECT_KEY_OR_END, /* just after { */
    EXPECT_COMMA_OR_END,
    EXPECT_NOTHING
};

void jsonlex_init(struct jsonlex *lex, const char *name, const char *text, size_t n)
{
    *lex = (struct jsonlex){
        .name = name,
        .begin = text,
        .p = text,
        .limit = text + n,
        .line_start = text,
        .at_line = 1,
        .line = 1,
        .col = 1,
        .expect = EXPECT_VALUE,
    };
}

void jsonlex_init_at(struct jsonlex *lex, const char *name, uint32_t line, uint32_t col,
                     const char *text, size_t n)
{
    jsonlex_init(lex, name, text, n);
    lex->line = lex->at_line = line;
    lex->line_start = text - (col - 1);
}

void jsonlex_clear(struct jsonlex *lex)
{
    str_clear(&lex->text);
}

int jsonlex_error(const struct jsonlex *lex, struct err *err, const char *fmt, ...)
{
    char cause[sizeof(err->text)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(cause, sizeof(cause), fmt, ap);
    va_end(ap);
    return err_set(err, ERR_INPUT, "%s:%u:%u: %s", lex->name, lex->line, lex->col,
                   cause);
}

/* Reports an error at the byte P of the current line. */
static int error_at(struct jsonlex *lex, const char *p, struct err *err,
                    const char *cause)
{
    lex->line = lex->at_line;
    lex->col = (uint32_t)(p - lex->line_start) + 1;
    return jsonlex_error(lex, err, "%s", cause);
}

static void skip_space(struct jsonlex *lex)
{
    for (; lex->p < lex->limit; lex->p++) {
        if (*lex->p == '\n') {
            lex->at_line++;
            lex->line_start = lex->p + 1;
        } else if (*lex->p != ' ' && *lex->p != '\t' && *lex->p != '\r') {
            return;
        }
    }
}

/* Value of the four hexadecimal digits at P; -1 when they are not digits. */
static int32_t hex4(const char *p, const char *limit)
{
    int32_t value = 0;

    if (limit - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* Appends the escape at P, which follows the backslash, to lex->text.  Returns the
 * bytes read, or 0 when the escape is invalid. */
static size_t read_escape(struct jsonlex *lex, const char *p)
{
    static const char LETTERS[] = "\"\\/bfnrt", BYTES[] = "\"\\/\b\f\n\r\t";
    const char *letter;
    int32_t high, low;
    char utf8[4];

    if (p == lex->limit || !*p)
        return 0;
    letter = strchr(LETTERS, *p);
    if (letter) {
        str_addc(&lex->text, BYTES[letter - LETTERS]);
        return 1;
    }
    high = *p == 'u' ? hex4(p + 1, lex->limit) : -1;
    if (high < 0 || (high >= 0xdc00 && high <= 0xdfff))
        return 0;
    if (high < 0xd800 || high > 0xdbff) {
        str_addn(&lex->text, utf8, str_utf8_encode((uint32_t)high, utf8));
        return 5;
    }
    if (lex->limit - p < 11 || p[5] != '\\' || p[6] != 'u')
        return 0;
    low = hex4(p + 7, lex->limit);
    if (low < 0xdc00 || low > 0xdfff)
        return 0;
    high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    str_addn(&lex->text, utf8, str_utf8_encode((uint32_t)high, utf8));
    return 11;
}

/* Reads the string whose opening quote is at lex->p into lex->text. */
static int read_string(struct jsonlex *lex, struct err *err)
{
    const char *p = lex->p + 1;

    for (;;) {
        const char *from = p;
        uint32_t cp;
        size_t used;

        while (p < lex->limit && (unsigned char)*p >= 0x20 &&
               (unsigned char)*p < 0x80 && *p != '"' && *p != '\\')
            p++;
        str_addn(&lex->text, from, (size_t)(p - from));
        if (p == lex->limit)
            return error_at(lex, lex->p, err, "unterminated string");
        if (*p == '"')
            break;
        if (*p == '\\') {
            used = read_escape(lex, p + 1);
            if (!used)
                return error_at(lex, p, err, "bad escape in a string");
            p += used + 1;
            continue;
        }
        if ((unsigned char)*p < 0x20)
            return error_at(lex, p, err, "control character in a string");
        used = str_utf8_decode(p, (size_t)(lex->limit - p), &cp);
        if (!used)
            return error_at(lex, p, err, "ill-formed UTF-8");
        str_addn(&lex->text, p, used);
        p += used;
    }
    lex->p = p + 1;
    return 0;
}

static const char *skip_digits(const char *p, const char *limit)
{
    while (p < limit && *p >= '0' && *p <= '9')
        p++;
    return p;
}

static int read_number(struct jsonlex *lex, struct err *err)
{
    const char *p = lex->p, *limit = lex->limit, *from;

    p += *p == '-';
    from = p;
    p = skip_digits(p, limit);
    if (p == from || (*from == '0' && p > from + 1))
        return error_at(lex, lex->p, err, "bad number");
    if (p < limit && *p == '.') {
        from = p + 1;
        p = skip_digits(from, limit);
        if (p == from)
            return error_at(lex, lex->p, err, "bad number");
    }
    if (p < limit && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < limit && (*p == '+' || *p == '-');
        from = p;
        p = skip_digits(from, limit);
        if (p == from)
            return error_at(lex, lex->p, err, "bad number");
    }
    str_addn(&lex->text, lex->p, (size_t)(p - lex->p));
    lex->p = p;
    return 0;
}

static bool take_word(struct jsonlex *lex, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(lex->limit - lex->p) < n || memcmp(lex->p, word, n))
        return false;
    lex->p += n;
    return true;
}

static void after_value(struct jsonlex *lex)
{
    lex->expect = lex->depth ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
}

static int open_container(struct jsonlex *lex, bool object, struct err *err)
{
    if (lex->depth == JSONLEX_DEPTH)
        return error_at(lex, lex->p, err, "nested deeper than 64");
    lex->in_object = (lex->in_object & ~(UINT64_C(1) << lex->depth)) |
                     (uint64_t)object << lex->depth;
    lex->depth++;
    lex->p++;
    lex->token = object ? JSONLEX_OBJECT : JSONLEX_ARRAY;
    lex->expect = object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
    return 0;
}

static void close_container(struct jsonlex *lex, bool object)
{
    lex->depth--;
    lex->p++;
    lex->token = object ? JSONLEX_OBJECT_END : JSONLEX_ARRAY_END;
    after_value(lex);
}

static int read_key(struct jsonlex *lex, struct err *err)
{
    if (*lex->p != '"')
        return error_at(lex, lex->p, err, "expected a key in double quotes");
    if (read_string(lex, err) < 0)
        return -1;
    if (memchr(str_text(&lex->text), '\0', lex->text.len))
        return jsonlex_error(lex, err, "a NUL character in a key");
    lex->token = JSONLEX_KEY;
    lex->end = (size_t)(lex->p - lex->begin);
    skip_space(lex);
    if (lex->p == lex->limit || *lex->p != ':')
        return error_at(lex, lex->p, err, "expected ':'");
    lex->p++;
    lex->expect = EXPECT_VALUE;
    return 0;
}

/* Reads a number that Python's json writes and RFC 8259 lacks. */
static bool take_constant(struct jsonlex *lex)
{
    static const char *const constants[] = { "NaN", "Infinity", "-Infinity" };

    for (size_t i = 0; lex->constants && i < sizeof(constants) / sizeof(*constants);
         i++)
        if (take_word(lex, constants[i])) {
            str_add(&lex->text, constants[i]);
            return true;
        }
    return false;
}

static int read_value(struct jsonlex *lex, struct err *err)
{
    char c = *lex->p;

    if (c == '{' || c == '[')
        return open_container(lex, c == '{', err);
    if (c == '"') {
        if (read_string(lex, err) < 0)
            return -1;
        lex->token = JSONLEX_STRING;
    } else if (take_constant(lex)) {
        lex->token = JSONLEX_NUMBER;
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        if (read_number(lex, err) < 0)
            return -1;
        lex->token = JSONLEX_NUMBER;
    } else if (take_word(lex, "true")) {
        lex->token = JSONLEX_TRUE;
    } else if (take_word(lex, "false")) {
        lex->token = JSONLEX_FALSE;
    } else if (take_word(lex, "null")) {
        lex->token = JSONLEX_NULL;
    } else {
        return error_at(lex, lex->p, err, "expected a value");
    }
    after_value(lex);
    return 0;
}

int jsonlex_next(struct jsonlex *lex, struct err *err)
{
    bool object = lex->depth && (lex->in_object >> (lex->depth - 1) & 1);
    char closer = object ? '}' : ']';
    int ret = 0;

    str_addn(&lex->text, "", 0);
    str_reset(&lex->text);
    skip_space(lex);
    if (lex->expect == EXPECT_COMMA_OR_END && lex->p < lex->limit && *lex->p == ',') {
        lex->p++;
        lex->expect = object ? EXPECT_KEY : EXPECT_VALUE;
        skip_space(lex);
    }
    lex->line = lex->at_line;
    lex->col = (uint32_t)(lex->p - lex->line_start) + 1;
    lex->start = (size_t)(lex->p - lex->begin);
    if (lex->expect == EXPECT_NOTHING) {
        if (lex->p < lex->limit)
            return error_at(lex, lex->p, err, "text after the end of the document");
        lex->token = JSONLEX_END;
        lex->end = lex->start;
        return 0;
    }
    if (lex->p == lex->limit)
        return error_at(lex, lex->p, err, "unexpected end");
    if (*lex->p == closer && lex->depth &&
        (lex->expect == EXPECT_COMMA_OR_END || lex->expect == EXPECT_KEY_OR_END ||
         lex->expect == EXPECT_VALUE_OR_END))
        close_container(lex, object);
    else if (lex->expect == EXPECT_COMMA_OR_END)
        return error_at(lex, lex->p, err,
                        object ? "expected ',' or '}'" : "expected ',' or ']'");
    else if (lex->expect == EXPECT_KEY || lex->expect == EXPECT_KEY_OR_END)
        return read_key(lex, err);
    else
        ret = read_value(lex, err);
    lex->end = (size_t)(lex->p - lex->begin);
    return ret;
}

int jsonlex_skip(struct jsonlex *lex, struct err *err)
{
    int outside = lex->depth - 1;

    if (lex->token != JSONLEX_OBJECT && lex->token != JSONLEX_ARRAY)
        return 0;
    while (lex->depth > outside)
        if (jsonlex_next(lex, err) < 0)
            return -1;
    return 0;
}

bool jsonlex_begins_object(const char *text, size_t n)
{
    const char *end;
    struct jsonlex lex;
    struct err ignored;
    bool is;

    while (n && (*text == '\n' || *text == '\r'))
        text++, n--;
    end = n ? memchr(text, '\n', n) : NULL;
    if (!n || *text != '{')
        return false;
    jsonlex_init(&lex, "", text, end ? (size_t)(end - text) : n);
    is = jsonlex_next(&lex, &ignored) == 0 && jsonlex_skip(&lex, &ignored) == 0 &&
         jsonlex_next(&lex, &ignored) == 0 && lex.token == JSONLEX_END;
    jsonlex_clear(&lex);
    return is;
}
