/* pattern - regular expressions in Oniguruma's syntax, matched by PCRE2 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "lib/text/pattern.h"
#include "lib/text/setting.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/chars.h"

struct pattern {
    pcre2_code *code; /* NULL: use IS or KIND */
    bool (*is)(uint32_t);
    int (*kind)(uint32_t);
    bool literal; /* no property of a character counts */
};

static int compile(struct pattern **out, const char *where, const char *text,
                   uint32_t options, struct err *err)
{
    pcre2_compile_context *context = xcheck(pcre2_compile_context_create(NULL));
    pcre2_code *code;
    int error;
    PCRE2_SIZE at;

    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_bsr(context, PCRE2_BSR_UNICODE);
    code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options | PCRE2_UTF,
                         &error, &at, context);
    pcre2_compile_context_free(context);
    if (!code) {
        PCRE2_UCHAR what[128] = "";

        pcre2_get_error_message(error, what, sizeof(what));
        return err_set(err, error == PCRE2_ERROR_HEAP_FAILED ? ERR_SYSTEM : ERR_INPUT,
                       "%s: pattern, byte %zu of '%s': %s", where, (size_t)at, text,
                       (const char *)what);
    }
    /* optional: matching is only slower without it */
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    *out = xcalloc(1, sizeof(**out));
    (*out)->code = code;
    (*out)->literal = options & PCRE2_LITERAL;
    return 0;
}

bool pattern_is_script(const char *name, size_t n)
{
    char *text = str_dupf("\\p{sc:%.*s}", (int)n, name);
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF,
                                     &error, &at, NULL);

    free(text);
    pcre2_code_free(code);
    return code != NULL;
}

int pattern_compile(struct pattern **out, const char *where, const char *regex,
                    struct err *err)
{
    struct str text = { 0 };
    int ret = pattern_translate(&text, where, regex, err);

    if (ret == 0)
        ret = compile(out, where, str_text(&text), PCRE2_UCP | PCRE2_MULTILINE, err);
    str_clear(&text);
    return ret;
}

int pattern_open(struct pattern **out, const char *where, const cJSON *j,
                 struct err *err)
{
    const cJSON *regex = cJSON_GetObjectItemCaseSensitive(j, "Regex");
    const cJSON *string = cJSON_GetObjectItemCaseSensitive(j, "String");

    if (cJSON_IsString(regex))
        return pattern_compile(out, where, regex->valuestring, err);
    if (cJSON_IsString(string))
        return compile(out, where, string->valuestring, PCRE2_LITERAL, err);
    return err_set(err, ERR_INPUT, "%s: no pattern", where);
}

struct pattern *pattern_new(bool (*is)(uint32_t))
{
    struct pattern *p = xcalloc(1, sizeof(*p));

    p->is = is;
    return p;
}

struct pattern *pattern_new_runs(int (*kind)(uint32_t))
{
    struct pattern *p = xcalloc(1, sizeof(*p));

    p->kind = kind;
    return p;
}

void pattern_free(struct pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    free(p);
}

/* TEXT[len] in which code points whose category PCRE2 may not know have others in their
 * places; NULL if it has none. */
static char *with_stand_ins(const char *text, size_t len)
{
    char *copy = NULL;
    size_t used;

    for (size_t at = 0; at < len; at += used) {
        uint32_t cp, to;

        used = 1;
        if ((unsigned char)text[at] < 0xc0)
            continue;
        cp = chars_at(text + at, len - at, &used);
        to = chars_stand_in(cp);
        if (to == cp)
            continue;
        copy = copy ? copy : xstrndup(text, len);
        str_utf8_encode(to, copy + at);
    }
    return copy;
}

void finder_init(struct finder *f, const struct pattern *p, const char *text,
                 size_t len)
{
    *f = (struct finder){ .pattern = p, .text = text, .len = len };
    f->data = p->code ? xcheck(pcre2_match_data_create(16, NULL)) : NULL;
    f->copy = p->code && !p->literal ? with_stand_ins(text, len) : NULL;
    if (f->copy)
        f->text = f->copy;
}

void finder_clear(struct finder *f)
{
    pcre2_match_data_free(f->data);
    free(f->copy);
    f->data = f->copy = NULL;
}

static int next_character(struct finder *f)
{
    size_t used;

    for (; f->at < f->len; f->at += used)
        if (f->pattern->is(chars_at(f->text + f->at, f->len - f->at, &used))) {
            f->start = f->at;
            f->end = f->at += used;
            return 1;
        }
    return 0;
}

static int next_run(struct finder *f)
{
    int (*kind_of)(uint32_t) = f->pattern->kind;
    int kind = 0;
    size_t used;

    for (; f->at < f->len; f->at += used) {
        int next = kind_of(chars_at(f->text + f->at, f->len - f->at, &used));

        if (kind > 0 && next != kind && next != CHARS_JOINS)
            break;
        if (kind <= 0 && next > 0) {
            kind = next;
            f->start = f->at;
        }
    }
    f->end = f->at;
    return kind > 0;
}

int finder_next(struct finder *f, struct err *err)
{
    if (f->pattern->is)
        return next_character(f);
    if (f->pattern->kind)
        return next_run(f);
    while (f->at <= f->len) {
        const pcre2_code *code = f->pattern->code;
        PCRE2_SPTR text = (PCRE2_SPTR)f->text;
        PCRE2_SIZE *range;
        size_t used = 1;
        int n =
            pcre2_match(code, text, f->len, f->at, PCRE2_NO_UTF_CHECK, f->data, NULL);

        if (n == PCRE2_ERROR_JIT_STACKLIMIT)
            n = pcre2_match(code, text, f->len, f->at,
                            PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, f->data, NULL);
        if (n == PCRE2_ERROR_NOMATCH)
            return 0;
        if (n < 0)
            return err_set(err, n == PCRE2_ERROR_NOMEMORY ? ERR_SYSTEM : ERR_INPUT,
                           "the tokenizer's pattern fails on this text (%d)", n);
        range = pcre2_get_ovector_pointer(f->data);
        if (range[0] != range[1] || !f->any || range[1] != f->end) {
            f->start = range[0];
            f->end = f->at = range[1];
            f->any = true;
            return 1;
        }
        if (f->at < f->len)
            chars_at(f->text + f->at, f->len - f->at, &used);
        f->at += used;
    }
    return 0;
}

int pattern_open_replace(struct pattern **p, char **by, const char *where,
                         const cJSON *j, struct err *err)
{
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(j, "pattern");
    const char *text = setting_string(j, "content");

    if (!text)
        return err_set(err, ERR_INPUT, "%s: a Replace without content", where);
    if (setting_string(pattern, "Regex") && strchr(text, '$'))
        return err_set(err, ERR_INPUT, "%s: '%s' with groups is not known", where,
                       text);
    *by = xstrdup(text);
    return pattern_open(p, where, pattern, err);
}

int pattern_replace(struct str *out, const struct pattern *p, const char *by,
                    const char *text, size_t n, struct err *err)
{
    struct finder f;
    size_t done = 0;
    int ret;

    finder_init(&f, p, text, n);
    while ((ret = finder_next(&f, err)) > 0) {
        str_addn(out, text + done, f.start - done);
        str_add(out, by);
        done = f.end;
    }
    finder_clear(&f);
    str_addn(out, text + done, n - done);
    return ret;
}
