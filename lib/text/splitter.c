/* splitter - cut text into pieces: the pre-tokenizers of a tokenizer.json */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "lib/text/splitter.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

/* What GPT-2's byte-level stage splits by (Radford et al. 2019). */
static const char GPT2_PATTERN[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                                   "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* What becomes of a match: dropped, a piece of its own, or joined to a neighbour. */
enum behavior { REMOVED, ISOLATED, WITH_PREVIOUS, WITH_NEXT, CONTIGUOUS };

struct stage {
    pcre2_code *pattern; /* NULL: no splitting */
    enum behavior behavior;
    bool invert;       /* the text between the matches counts as the matches */
    bool prefix_space; /* a space is put before text that does not begin with one */
};

struct splitter {
    struct stage *stage;
    size_t n;
    bool byte_level;
};

static int compile(struct stage *s, const char *path, const char *pattern, bool literal,
                   struct err *err)
{
    int code;
    PCRE2_SIZE at;
    uint32_t options = literal ? PCRE2_LITERAL | PCRE2_UTF : PCRE2_UTF | PCRE2_UCP;

    s->pattern = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options,
                               &code, &at, NULL);
    if (!s->pattern) {
        PCRE2_UCHAR what[128] = "";

        pcre2_get_error_message(code, what, sizeof(what));
        return err_set(err, ERR_INPUT, "%s: pre_tokenizer: pattern, byte %zu: %s", path,
                       (size_t)at, (const char *)what);
    }
    pcre2_jit_compile(s->pattern, PCRE2_JIT_COMPLETE); /* slower without, but right */
    return 0;
}

static struct stage *add_stage(struct splitter *s)
{
    s->stage = xrealloc(s->stage, sizeof(*s->stage) * (s->n + 1));
    s->stage[s->n] = (struct stage){ .behavior = ISOLATED };
    return &s->stage[s->n++];
}

static bool flag(const cJSON *j, const char *name, bool otherwise)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, name);

    return cJSON_IsBool(v) ? cJSON_IsTrue(v) : otherwise;
}

static int add_byte_level(struct splitter *s, const char *path, const cJSON *j,
                          struct err *err)
{
    struct stage *stage = add_stage(s);

    s->byte_level = true;
    stage->prefix_space = flag(j, "add_prefix_space", true);
    return flag(j, "use_regex", true) ? compile(stage, path, GPT2_PATTERN, false, err)
                                      : 0;
}

static int add_split(struct splitter *s, const char *path, const cJSON *j,
                     struct err *err)
{
    static const char *const names[] = {
        "Removed",        "Isolated",   "MergedWithPrevious",
        "MergedWithNext", "Contiguous", NULL
    };
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(j, "pattern");
    const cJSON *regex = cJSON_GetObjectItemCaseSensitive(pattern, "Regex");
    const cJSON *string = cJSON_GetObjectItemCaseSensitive(pattern, "String");
    const cJSON *behavior = cJSON_GetObjectItemCaseSensitive(j, "behavior");
    struct stage *stage = add_stage(s);
    int i = 0;

    while (names[i] &&
           (!cJSON_IsString(behavior) || strcmp(names[i], behavior->valuestring)))
        i++;
    if (!names[i])
        return err_set(err, ERR_INPUT, "%s: pre_tokenizer: unknown behavior of a Split",
                       path);
    stage->behavior = (enum behavior)i;
    stage->invert = flag(j, "invert", false);
    if (cJSON_IsString(regex))
        return compile(stage, path, regex->valuestring, false, err);
    if (cJSON_IsString(string))
        return compile(stage, path, string->valuestring, true, err);
    return err_set(err, ERR_INPUT, "%s: pre_tokenizer: a Split without a pattern",
                   path);
}

static int add_digits(struct splitter *s, const char *path, const cJSON *j,
                      struct err *err)
{
    struct stage *stage = add_stage(s);

    stage->behavior = flag(j, "individual_digits", false) ? ISOLATED : CONTIGUOUS;
    return compile(stage, path, "\\p{N}", false, err);
}

static int add_json(struct splitter *s, const char *path, const cJSON *j,
                    struct err *err);

static int add_sequence(struct splitter *s, const char *path, const cJSON *j,
                        struct err *err)
{
    const cJSON *one;

    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(
                                j, "pretokenizers")) if (add_json(s, path, one, err) <
                                                         0) return -1;
    return 0;
}

static int add_json(struct splitter *s, const char *path, const cJSON *j,
                    struct err *err)
{
    static const struct {
        const char *type;
        int (*add)(struct splitter *, const char *, const cJSON *, struct err *);
    } stages[] = { { "ByteLevel", add_byte_level },
                   { "Split", add_split },
                   { "Digits", add_digits },
                   { "Sequence", add_sequence } };
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(j, "type");

    for (size_t i = 0; cJSON_IsString(type) && i < sizeof(stages) / sizeof(*stages);
         i++)
        if (!strcmp(stages[i].type, type->valuestring))
            return stages[i].add(s, path, j, err);
    return err_set(err, ERR_INPUT, "%s: pre_tokenizer of type '%s' is not known", path,
                   cJSON_IsString(type) ? type->valuestring : "?");
}

int splitter_open(struct splitter **out, const char *path, const cJSON *j,
                  struct err *err)
{
    struct splitter *s = xcalloc(1, sizeof(*s));

    if (j && !cJSON_IsNull(j) && add_json(s, path, j, err) < 0) {
        splitter_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

void splitter_free(struct splitter *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        pcre2_code_free(s->stage[i].pattern);
    free(s->stage);
    free(s);
}

bool splitter_is_byte_level(const struct splitter *s)
{
    return s->byte_level;
}

void pieces_clear(struct pieces *p)
{
    free(p->v);
    *p = (struct pieces){ 0 };
}

static void add_piece(struct pieces *out, size_t start, size_t end)
{
    if (end == start)
        return;
    out->v = xgrow(out->v, &out->cap, out->n + 1, sizeof(*out->v));
    out->v[out->n++] = (struct piece){ start, end - start };
}

/* A stretch of a piece that is a match or lies between matches, joined to its
 * neighbours as the behavior says. */
struct joiner {
    const struct stage *stage;
    struct pieces *out;
    size_t open;        /* start of what is still growing */
    bool growing, last; /* something grows; it ended with a match */
};

static void close_open(struct joiner *j, size_t end)
{
    if (j->growing)
        add_piece(j->out, j->open, end);
    j->growing = false;
}

static void add_stretch(struct joiner *j, size_t start, size_t end, bool match)
{
    if (start == end)
        return;
    match ^= j->stage->invert;
    switch (j->stage->behavior) {
    case REMOVED:
        if (!match)
            add_piece(j->out, start, end);
        return;
    case ISOLATED:
        add_piece(j->out, start, end);
        return;
    case CONTIGUOUS:
        if (!j->growing || j->last != match) {
            close_open(j, start);
            j->open = start;
        }
        break;
    case WITH_PREVIOUS: /* a match ends the piece it is in */
        if (!j->growing || j->last) {
            close_open(j, start);
            j->open = start;
        }
        break;
    case WITH_NEXT: /* a match begins a piece */
        if (!j->growing || match) {
            close_open(j, start);
            j->open = start;
        }
        break;
    }
    j->growing = true;
    j->last = match;
}

static int split_piece(const struct stage *s, pcre2_match_data *data, const char *text,
                       struct piece p, struct pieces *out, struct err *err)
{
    struct joiner j = { .stage = s, .out = out };
    const char *base = text + p.start;
    size_t at = 0, done = 0;

    while (at < p.len) {
        PCRE2_SIZE *range;
        int n = pcre2_match(s->pattern, (PCRE2_SPTR)base, p.len, at, PCRE2_NO_UTF_CHECK,
                            data, NULL);

        if (n == PCRE2_ERROR_NOMATCH)
            break;
        if (n < 0)
            return err_set(err, ERR_INPUT,
                           "the tokenizer's pattern fails on this text (%d)", n);
        range = pcre2_get_ovector_pointer(data);
        if (range[1] ==
            range[0]) { /* an empty match: go on behind the next character */
            do
                at++;
            while (at < p.len && ((unsigned char)base[at] & 0xc0) == 0x80);
            continue;
        }
        add_stretch(&j, p.start + done, p.start + range[0], false);
        add_stretch(&j, p.start + range[0], p.start + range[1], true);
        at = done = range[1];
    }
    add_stretch(&j, p.start + done, p.start + p.len, false);
    close_open(&j, p.start + p.len);
    return 0;
}

int splitter_run(const struct splitter *s, struct str *text, struct pieces *out,
                 struct err *err)
{
    struct pieces now = { 0 };

    for (size_t i = 0; i < s->n; i++)
        if (s->stage[i].prefix_space && text->len && text->s[0] != ' ') {
            char *rest = xstrndup(text->s, text->len);
            size_t len = text->len;

            str_reset(text);
            str_addc(text, ' ');
            str_addn(text, rest, len);
            free(rest);
        }
    add_piece(&now, 0, text->len);
    for (size_t i = 0; i < s->n; i++) {
        pcre2_match_data *data;
        struct pieces next = { 0 };
        int ret = 0;

        if (!s->stage[i].pattern)
            continue;
        data = pcre2_match_data_create(16, NULL);
        for (size_t k = 0; k < now.n && ret == 0; k++)
            ret = split_piece(&s->stage[i], data, text->s, now.v[k], &next, err);
        pcre2_match_data_free(data);
        pieces_clear(&now);
        now = next;
        if (ret < 0) {
            pieces_clear(&now);
            return -1;
        }
    }
    *out = now;
    return 0;
}
