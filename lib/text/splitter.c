/* splitter - splits text into pieces: the pre-tokenizers of a tokenizer.json */
#include "lib/text/splitter.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/bytelevel.h"
#include "lib/text/chars.h"
#include "lib/text/setting.h"
#include "lib/text/pattern.h"

/* The pattern of GPT-2's ByteLevel stage (Radford et al. 2019). */
static const char GPT2_PATTERN[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                                   "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* What happens to a match: it is removed, becomes a piece, or joins a neighbour. */
enum behavior { REMOVED, ISOLATED, WITH_PREVIOUS, WITH_NEXT, CONTIGUOUS };
/* Which pieces get a space prepended. */
enum prefix { NEVER, FIRST, ALWAYS };

struct stage {
    struct pattern *pattern; /* NULL: no splitting */
    enum behavior behavior;
    bool invert; /* the text between matches is treated as the matches */
    enum prefix prefix;
    size_t each; /* characters of a piece; 0: any number */
    bool bytes;  /* map the bytes of pieces to the byte alphabet */
    char *space; /* replacement for a space; NULL: none */
};

struct splitter {
    struct stage *stage;
    size_t n;
};

static struct stage *add_stage(struct splitter *s)
{
    s->stage = xrealloc(s->stage, sizeof(*s->stage) * (s->n + 1));
    s->stage[s->n] = (struct stage){ .behavior = ISOLATED };
    return &s->stage[s->n++];
}

static int add_byte_level(struct splitter *s, const char *where, const cJSON *j,
                          struct err *err)
{
    struct stage *stage = add_stage(s);

    stage->bytes = true;
    stage->prefix = setting_flag(j, "add_prefix_space", true) ? ALWAYS : NEVER;
    if (!setting_flag(j, "use_regex", true))
        return 0;
    return pattern_compile(&stage->pattern, where, GPT2_PATTERN, err);
}

static int read_behavior(enum behavior *out, const char *where, const cJSON *j,
                         struct err *err)
{
    static const char *const names[] = {
        "Removed",        "Isolated",   "MergedWithPrevious",
        "MergedWithNext", "Contiguous", NULL
    };
    const char *name = setting_string(j, "behavior");
    int i = 0;

    while (names[i] && (!name || strcmp(names[i], name)))
        i++;
    if (!names[i])
        return err_set(err, ERR_INPUT, "%s: unknown behavior", where);
    *out = (enum behavior)i;
    return 0;
}

static int add_split(struct splitter *s, const char *where, const cJSON *j,
                     struct err *err)
{
    struct stage *stage = add_stage(s);

    stage->invert = setting_flag(j, "invert", false);
    if (read_behavior(&stage->behavior, where, j, err) < 0)
        return -1;
    return pattern_open(&stage->pattern, where,
                        cJSON_GetObjectItemCaseSensitive(j, "pattern"), err);
}

static int add_digits(struct splitter *s, const char *where, const cJSON *j,
                      struct err *err)
{
    struct stage *stage = add_stage(s);

    (void)where;
    (void)err;
    stage->behavior =
        setting_flag(j, "individual_digits", false) ? ISOLATED : CONTIGUOUS;
    stage->pattern = pattern_new(chars_is_number);
    return 0;
}

static int add_punctuation(struct splitter *s, const char *where, const cJSON *j,
                           struct err *err)
{
    struct stage *stage = add_stage(s);

    if (setting_string(j, "behavior") &&
        read_behavior(&stage->behavior, where, j, err) < 0)
        return -1;
    stage->pattern = pattern_new(chars_is_punctuation);
    return 0;
}

static int add_whitespace_split(struct splitter *s, const char *where, const cJSON *j,
                                struct err *err)
{
    struct stage *stage = add_stage(s);

    (void)where;
    (void)j;
    (void)err;
    stage->behavior = REMOVED;
    stage->pattern = pattern_new(chars_is_space);
    return 0;
}

/* Adds a stage whose pieces are runs of characters of one KIND. */
static void add_runs(struct splitter *s, int (*kind)(uint32_t))
{
    struct stage *stage = add_stage(s);

    stage->behavior = REMOVED;
    stage->invert = true;
    stage->pattern = pattern_new_runs(kind);
}

/* \w+|[^\w\s]+ */
static int add_whitespace(struct splitter *s, const char *where, const cJSON *j,
                          struct err *err)
{
    (void)where;
    (void)j;
    (void)err;
    add_runs(s, chars_word_kind);
    return 0;
}

static int add_scripts(struct splitter *s, const char *where, const cJSON *j,
                       struct err *err)
{
    (void)where;
    (void)j;
    (void)err;
    add_runs(s, chars_script);
    return 0;
}

static int add_delimiter(struct splitter *s, const char *where, const cJSON *j,
                         struct err *err)
{
    struct stage *stage = add_stage(s);
    const char *delimiter = setting_string(j, "delimiter");
    cJSON *pattern;
    int ret;

    if (!delimiter || !*delimiter)
        return err_set(err, ERR_INPUT, "%s: a CharDelimiterSplit without a delimiter",
                       where);
    stage->behavior = REMOVED;
    pattern = cJSON_CreateObject();
    cJSON_AddStringToObject(pattern, "String", delimiter);
    ret = pattern_open(&stage->pattern, where, pattern, err);
    cJSON_Delete(pattern);
    return ret;
}

static int add_fixed(struct splitter *s, const char *where, const cJSON *j,
                     struct err *err)
{
    long length;

    if (!setting_id(cJSON_GetObjectItemCaseSensitive(j, "length"), &length) || !length)
        return err_set(err, ERR_INPUT, "%s: a FixedLength without a length", where);
    add_stage(s)->each = (size_t)length;
    return 0;
}

static int add_bert(struct splitter *s, const char *where, const cJSON *j,
                    struct err *err)
{
    return add_whitespace_split(s, where, j, err) < 0
               ? -1
               : add_punctuation(s, where, NULL, err);
}

static int add_metaspace(struct splitter *s, const char *where, const cJSON *j,
                         struct err *err)
{
    struct stage *stage = add_stage(s);
    struct metaspace m;
    cJSON *pattern;
    int ret;

    if (setting_metaspace(&m, where, j, err) < 0)
        return -1;
    stage->space = xstrdup(m.space);
    stage->prefix = m.never ? NEVER : m.first ? FIRST : ALWAYS;
    stage->behavior = WITH_NEXT;
    if (!setting_flag(j, "split", true))
        return 0;
    pattern = cJSON_CreateObject();
    cJSON_AddStringToObject(pattern, "String", m.space);
    ret = pattern_open(&stage->pattern, where, pattern, err);
    cJSON_Delete(pattern);
    return ret;
}

static int add_json(struct splitter *s, const char *where, const cJSON *j, int depth,
                    struct err *err)
{
    static const struct {
        const char *type;
        int (*add)(struct splitter *, const char *, const cJSON *, struct err *);
    } stages[] = {
        { "ByteLevel", add_byte_level },
        { "Split", add_split },
        { "Digits", add_digits },
        { "Punctuation", add_punctuation },
        { "WhitespaceSplit", add_whitespace_split },
        { "BertPreTokenizer", add_bert },
        { "Metaspace", add_metaspace },
        { "Whitespace", add_whitespace },
        { "UnicodeScripts", add_scripts },
        { "CharDelimiterSplit", add_delimiter },
        { "FixedLength", add_fixed },
    };
    const char *type = setting_type(j);
    const cJSON *one;

    if (!strcmp(type, "Sequence") && depth < 8) {
        cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(j, "pretokenizers"))
        {
            if (add_json(s, where, one, depth + 1, err) < 0)
                return -1;
        }
        return 0;
    }
    for (size_t i = 0; i < sizeof(stages) / sizeof(*stages); i++)
        if (!strcmp(stages[i].type, type))
            return stages[i].add(s, where, j, err);
    return err_set(err, ERR_INPUT, "%s of type '%s' is not known", where, type);
}

int splitter_open(struct splitter **out, const char *path, const cJSON *j,
                  struct err *err)
{
    struct splitter *s = xcalloc(1, sizeof(*s));
    char *where = str_dupf("%s: pre_tokenizer", path);
    int ret = setting_absent(j) ? 0 : add_json(s, where, j, 0, err);

    free(where);
    if (ret < 0)
        splitter_free(s);
    else
        *out = s;
    return ret;
}

void splitter_free(struct splitter *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        pattern_free(s->stage[i].pattern);
        free(s->stage[i].space);
    }
    free(s->stage);
    free(s);
}

/* Collects stretches of a piece, which are matches or lie between matches, and joins
 * neighbours according to the behavior. */
struct joiner {
    const struct stage *stage;
    const char *text;
    const struct origins *origins; /* of text, or none */
    struct pieces *out;
    size_t open; /* start of the current group of stretches */
    bool growing, last,
        first; /* a group is open; its last stretch was a match; see pieces.h */
};

static void give(struct joiner *j, size_t start, size_t end)
{
    size_t from = j->out->text.len;

    if (start == end)
        return;
    if (j->stage->bytes)
        bytelevel_encode(&j->out->text, j->text + start, end - start);
    else
        str_addn(&j->out->text, j->text + start, end - start);
    for (size_t i = start; i < end && j->origins->n; i++) {
        size_t n = j->stage->bytes ? bytelevel_width(j->text[i]) : 1;

        origins_add(&j->out->origins, j->origins->v[i], n);
    }
    pieces_end(j->out, from, j->first && !start);
}

static void close_open(struct joiner *j, size_t end)
{
    if (j->growing)
        give(j, j->open, end);
    j->growing = false;
}

static void add_stretch(struct joiner *j, size_t start, size_t end, bool match)
{
    bool joins = j->growing;

    match ^= j->stage->invert;
    switch (j->stage->behavior) {
    case REMOVED:
        if (!match)
            give(j, start, end);
        return;
    case ISOLATED:
        give(j, start, end);
        return;
    case CONTIGUOUS:
        joins &= j->last == match;
        break;
    case WITH_PREVIOUS: /* a match ends its group */
        joins &= match && !j->last;
        break;
    case WITH_NEXT: /* a match begins a group */
        joins &= !match && j->last;
        break;
    }
    if (!joins) {
        close_open(j, start);
        j->open = start;
    }
    j->growing = true;
    j->last = match;
}

/* Gives pieces of as many characters as the stage says, the last perhaps of fewer. */
static void give_each(struct joiner *j, size_t len)
{
    size_t start = 0, used, n = 0;

    for (size_t at = 0; at < len; at += used) {
        if (n == j->stage->each) {
            give(j, start, at);
            start = at;
            n = 0;
        }
        n++;
        chars_at(j->text + at, len - at, &used);
    }
    give(j, start, len);
}

static int split(struct joiner *j, size_t len, struct err *err)
{
    struct finder f;
    size_t done = 0;
    int ret;

    if (j->stage->each) {
        give_each(j, len);
        return 0;
    }
    if (!j->stage->pattern) {
        give(j, 0, len);
        return 0;
    }
    finder_init(&f, j->stage->pattern, j->text, len);
    while ((ret = finder_next(&f, err)) > 0) {
        if (done < f.start)
            add_stretch(j, done, f.start, false);
        add_stretch(j, f.start, f.end, true);
        done = f.end;
    }
    finder_clear(&f);
    if (done < len)
        add_stretch(j, done, len, false);
    close_open(j, len);
    return ret;
}

/* Replaces spaces in piece P, and prepends one if the stage requires it. */
static void prepare(const struct stage *s, const struct pieces *in,
                    const struct piece *p, struct str *out, struct origins *origins)
{
    const char *space = s->space ? s->space : " ",
               *text = str_text(&in->text) + p->start;
    const struct origin *from = in->origins.n ? in->origins.v + p->start : NULL;
    size_t width = strlen(space);
    bool begins =
        p->len && (*text == ' ' || (p->len >= width && !memcmp(text, space, width)));

    if ((s->prefix == ALWAYS || (s->prefix == FIRST && p->first)) && !begins) {
        str_add(out, space);
        if (from)
            origins_add(origins, p->len ? *from : (struct origin){ 0, 0 }, width);
    }
    for (size_t i = 0; i < p->len; i++) {
        if (text[i] == ' ')
            str_add(out, space);
        else
            str_addc(out, text[i]);
        if (from)
            origins_add(origins, from[i], text[i] == ' ' ? width : 1);
    }
}

static int run_stage(const struct stage *s, const struct pieces *in, struct pieces *out,
                     struct err *err)
{
    struct origins origins = { 0 };
    struct str text = { 0 };
    int ret = 0;

    for (size_t i = 0; i < in->n && ret == 0; i++) {
        struct joiner j = {
            .stage = s, .out = out, .origins = &origins, .first = in->v[i].first
        };

        str_reset(&text);
        origins.n = 0;
        prepare(s, in, &in->v[i], &text, &origins);
        j.text = str_text(&text);
        ret = split(&j, text.len, err);
    }
    origins_clear(&origins);
    str_clear(&text);
    return ret;
}

int splitter_run(const struct splitter *s, const char *text, size_t len, bool first,
                 const struct origin *origins, struct pieces *out, struct err *err)
{
    int ret = 0;

    pieces_add(out, text, len, first);
    for (size_t i = 0; i < len && origins; i++)
        origins_add(&out->origins, origins[i], 1);
    for (size_t i = 0; i < s->n && ret == 0; i++) {
        struct pieces next = { 0 };

        ret = run_stage(&s->stage[i], out, &next, err);
        pieces_clear(out);
        *out = next;
    }
    if (ret < 0)
        pieces_clear(out);
    return ret;
}
