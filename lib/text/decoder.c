/* decoder - converts tokens to text: the decoders of a tokenizer.json */
#define _GNU_SOURCE
#include "lib/text/decoder.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/bytelevel.h"
#include "lib/text/chars.h"
#include "lib/text/setting.h"
#include "lib/text/pattern.h"

struct stage {
    void (*run)(const struct stage *, const struct pieces *, struct pieces *);
    struct pattern *pattern;
    char *text;         /* the replacement of a pattern, or the character to strip */
    size_t left, right; /* maximum number of characters to strip at each end */
    bool flag;
};

struct decoder {
    struct stage *stage;
    size_t n;
    bool blanks;        /* no decoder: tokens are joined with spaces */
    bool fallback;      /* byte fallback: tokens such as "<0x0A>" are bytes */
    const char *suffix; /* of a word's last token; becomes a space, or nothing at the
                         * end of the text; or NULL */
    bool whole;         /* the text of one token may depend on any later token */
};

void decoder_clean(struct str *out, const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        uint32_t cp;
        size_t n = str_utf8_decode(text + at, len - at, &cp);

        if (n)
            str_addn(out, text + at, n);
        else
            str_add(out, "\xef\xbf\xbd");
        at += n ? n : str_utf8_bad(text + at, len - at);
    }
}

/* ---- stages ---- */

static void run_byte_level(const struct stage *s, const struct pieces *in,
                           struct pieces *out)
{
    struct str bytes = { 0 };

    (void)s;
    for (size_t i = 0; i < in->n; i++)
        bytelevel_decode(&bytes, pieces_at(in, i), in->v[i].len);
    decoder_clean(&out->text, str_text(&bytes), bytes.len);
    pieces_end(out, 0, false);
    str_clear(&bytes);
}

static void run_fuse(const struct stage *s, const struct pieces *in, struct pieces *out)
{
    (void)s;
    for (size_t i = 0; i < in->n; i++)
        str_addn(&out->text, pieces_at(in, i), in->v[i].len);
    pieces_end(out, 0, false);
}

static void run_replace(const struct stage *s, const struct pieces *in,
                        struct pieces *out)
{
    for (size_t i = 0; i < in->n; i++) {
        size_t start = out->text.len;

        if (pattern_replace(&out->text, s->pattern, s->text, pieces_at(in, i),
                            in->v[i].len, NULL) < 0) /* the match limit of PCRE2 was
                                                      * exceeded */
            str_addn(&out->text, pieces_at(in, i), in->v[i].len);
        pieces_end(out, start, false);
    }
}

static void run_strip(const struct stage *s, const struct pieces *in,
                      struct pieces *out)
{
    size_t n = strlen(s->text);

    for (size_t i = 0; i < in->n; i++) {
        const char *text = pieces_at(in, i);
        size_t start = 0, end = in->v[i].len;

        for (size_t k = 0; k < s->left && end - start >= n; k++, start += n)
            if (memcmp(text + start, s->text, n))
                break;
        for (size_t k = 0; k < s->right && end - start >= n; k++, end -= n)
            if (memcmp(text + end - n, s->text, n))
                break;
        pieces_add(out, text + start, end - start, false);
    }
}

/* The byte of a token such as "<0x0A>", or -1. */
static int byte_of(const char *token, size_t len)
{
    char digits[3] = "";

    if (len != 6 || memcmp(token, "<0x", 3) || token[5] != '>' ||
        !isxdigit((unsigned char)token[3]) || !isxdigit((unsigned char)token[4]))
        return -1;
    memcpy(digits, token + 3, 2);
    return (int)strtol(digits, NULL, 16);
}

/* Converts a run of byte tokens to text; if it is not UTF-8, to a U+FFFD for each
 * byte. */
static void run_byte_fallback(const struct stage *s, const struct pieces *in,
                              struct pieces *out)
{
    struct str run = { 0 };

    (void)s;
    for (size_t i = 0; i <= in->n; i++) {
        int byte = i < in->n ? byte_of(pieces_at(in, i), in->v[i].len) : -1;

        if (byte >= 0) {
            str_addc(&run, (char)byte);
            continue;
        }
        if (str_is_utf8(str_text(&run), run.len) && run.len)
            pieces_add(out, run.s, run.len, false);
        else
            for (size_t k = 0; k < run.len; k++)
                pieces_add(out, "\xef\xbf\xbd", 3, false);
        str_reset(&run);
        if (i < in->n)
            pieces_add(out, pieces_at(in, i), in->v[i].len, false);
    }
    str_clear(&run);
}

/* Replaces the space symbol by a space; with .flag, drops it in the first token. */
static void run_metaspace(const struct stage *s, const struct pieces *in,
                          struct pieces *out)
{
    size_t n = strlen(s->text);

    for (size_t i = 0; i < in->n; i++) {
        const char *text = pieces_at(in, i);
        size_t start = out->text.len, len = in->v[i].len;

        for (size_t at = 0; at < len;)
            if (len - at >= n && !memcmp(text + at, s->text, n)) {
                if (i || !s->flag)
                    str_addc(&out->text, ' ');
                at += n;
            } else {
                str_addc(&out->text, text[at++]);
            }
        pieces_end(out, start, false);
    }
}

/* Replaces a word's suffix by a space, or by nothing at the end of the text. */
static void run_bpe(const struct stage *s, const struct pieces *in, struct pieces *out)
{
    size_t n = strlen(s->text);

    for (size_t i = 0; i < in->n; i++) {
        const char *text = pieces_at(in, i);
        size_t start = out->text.len, len = in->v[i].len;

        for (size_t at = 0; at < len;)
            if (len - at >= n && !memcmp(text + at, s->text, n)) {
                if (i + 1 < in->n)
                    str_addc(&out->text, ' ');
                at += n;
            } else {
                str_addc(&out->text, text[at++]);
            }
        pieces_end(out, start, false);
    }
}

/* Removes spaces before punctuation and in English contractions, as BERT's tokenizer
 * does. */
static void tidy(struct str *s, size_t start)
{
    static const char *const changes[][2] = {
        { " .", "." },   { " ?", "?" },     { " !", "!" },     { " ,", "," },
        { " ' ", "'" },  { " n't", "n't" }, { " 'm", "'m" },   { " do not", " don't" },
        { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
    };

    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
        char *text = xstrndup(str_text(s) + start, s->len - start), *p = text, *hit;

        s->len = start;
        while ((hit = strstr(p, changes[i][0]))) {
            str_addn(s, p, (size_t)(hit - p));
            str_add(s, changes[i][1]);
            p = hit + strlen(changes[i][0]);
        }
        str_add(s, p);
        free(text);
    }
}

/* A token without the prefix begins a word and gets a space before it. */
static void run_word_piece(const struct stage *s, const struct pieces *in,
                           struct pieces *out)
{
    size_t n = strlen(s->text);

    for (size_t i = 0; i < in->n; i++) {
        const char *text = pieces_at(in, i);
        size_t start = out->text.len, len = in->v[i].len;
        bool inside = i && len >= n && !memcmp(text, s->text, n);

        str_add(&out->text, i && !inside ? " " : "");
        str_addn(&out->text, text + (inside ? n : 0), len - (inside ? n : 0));
        if (s->flag)
            tidy(&out->text, start);
        pieces_end(out, start, false);
    }
}

/* ---- opening ---- */

static struct stage *add_stage(struct decoder *d)
{
    d->stage = xrealloc(d->stage, sizeof(*d->stage) * (d->n + 1));
    d->stage[d->n] = (struct stage){ 0 };
    return &d->stage[d->n++];
}

static int read_replace(struct stage *s, const char *where, const cJSON *j,
                        struct err *err)
{
    return pattern_open_replace(&s->pattern, &s->text, where, j, err);
}

static int read_strip(struct stage *s, const char *where, const cJSON *j,
                      struct err *err)
{
    const char *text = setting_string(j, "content");
    long left, right;

    if (!text || !*text ||
        !setting_id(cJSON_GetObjectItemCaseSensitive(j, "start"), &left) ||
        !setting_id(cJSON_GetObjectItemCaseSensitive(j, "stop"), &right))
        return err_set(err, ERR_INPUT, "%s: a bad Strip", where);
    s->text = xstrdup(text);
    s->left = (size_t)left;
    s->right = (size_t)right;
    return 0;
}

static int read_metaspace(struct stage *s, const char *where, const cJSON *j,
                          struct err *err)
{
    struct metaspace m;

    if (setting_metaspace(&m, where, j, err) < 0)
        return -1;
    s->text = xstrdup(m.space);
    s->flag = !m.never;
    return 0;
}

static int read_bpe(struct stage *s, const char *where, const cJSON *j, struct err *err)
{
    const char *suffix = setting_string(j, "suffix");

    if (!suffix || !*suffix)
        return err_set(err, ERR_INPUT, "%s: a BPEDecoder without a suffix", where);
    s->text = xstrdup(suffix);
    return 0;
}

static int read_word_piece(struct stage *s, const char *where, const cJSON *j,
                           struct err *err)
{
    const char *prefix = setting_string(j, "prefix");

    (void)where;
    (void)err;
    s->text = xstrdup(prefix ? prefix : "##");
    s->flag = setting_flag(j, "cleanup", true);
    return 0;
}

static int add_json(struct decoder *d, const char *where, const cJSON *j, int depth,
                    struct err *err)
{
    static const struct {
        const char *type;
        void (*run)(const struct stage *, const struct pieces *, struct pieces *);
        int (*read)(struct stage *, const char *, const cJSON *, struct err *);
    } stages[] = {
        { "ByteLevel", run_byte_level, NULL },
        { "Fuse", run_fuse, NULL },
        { "ByteFallback", run_byte_fallback, NULL },
        { "Replace", run_replace, read_replace },
        { "Strip", run_strip, read_strip },
        { "Metaspace", run_metaspace, read_metaspace },
        { "BPEDecoder", run_bpe, read_bpe },
        { "WordPiece", run_word_piece, read_word_piece },
    };
    const char *type = setting_type(j);
    const cJSON *one;

    if (!strcmp(type, "Sequence") && depth < 8) {
        cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(j, "decoders"))
        {
            if (add_json(d, where, one, depth + 1, err) < 0)
                return -1;
        }
        return 0;
    }
    for (size_t i = 0; i < sizeof(stages) / sizeof(*stages); i++)
        if (!strcmp(stages[i].type, type)) {
            struct stage *s = add_stage(d);

            s->run = stages[i].run;
            return stages[i].read ? stages[i].read(s, where, j, err) : 0;
        }
    return err_set(err, ERR_INPUT, "%s of type '%s' is not known", where, type);
}

/* Finds how much of a text must be known before its beginning is final. */
static void look_over(struct decoder *d)
{
    bool joined = false, changed = false;

    for (size_t i = 0; i < d->n; i++) {
        const struct stage *s = &d->stage[i];

        d->fallback |= s->run == run_byte_fallback;
        if (s->run == run_bpe)
            d->suffix = s->text;
        d->whole |= (joined && s->run != run_fuse && s->run != run_strip) ||
                    (s->run == run_strip && s->right) ||
                    (s->run == run_bpe && i + 1 < d->n) ||
                    (s->run == run_byte_fallback && changed);
        joined |= s->run == run_fuse || s->run == run_byte_level;
        changed |= s->run != run_replace;
    }
}

int decoder_open(struct decoder **out, const char *path, const cJSON *j,
                 struct err *err)
{
    struct decoder *d = xcalloc(1, sizeof(*d));
    char *where = str_dupf("%s: decoder", path);
    int ret;

    d->blanks = setting_absent(j);
    ret = d->blanks ? 0 : add_json(d, where, j, 0, err);
    look_over(d);
    free(where);
    if (ret < 0)
        decoder_free(d);
    else
        *out = d;
    return ret;
}

void decoder_free(struct decoder *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n; i++) {
        pattern_free(d->stage[i].pattern);
        free(d->stage[i].text);
    }
    free(d->stage);
    free(d);
}

bool decoder_is_partial(const struct decoder *d, const char *token, size_t len)
{
    const char *end =
        d->suffix ? memmem(token, len, d->suffix, strlen(d->suffix)) : NULL;

    return d->whole || (d->fallback && byte_of(token, len) >= 0) ||
           (end && end + strlen(d->suffix) != token + len);
}

void decoder_run(const struct decoder *d, struct pieces *tokens, struct str *out)
{
    for (size_t i = 0; i < d->n; i++) {
        struct pieces next = { 0 };

        d->stage[i].run(&d->stage[i], tokens, &next);
        pieces_clear(tokens);
        *tokens = next;
    }
    for (size_t i = 0; i < tokens->n; i++) {
        if (i && d->blanks)
            str_addc(out, ' ');
        str_addn(out, pieces_at(tokens, i), tokens->v[i].len);
    }
}

bool decoder_has_bytes(const struct decoder *d)
{
    for (size_t i = 1; i < d->n; i++)
        if (d->stage[i].run == run_byte_level)
            return false;
    return !d->whole && !d->suffix;
}

void decoder_bytes(const struct decoder *d, const char *token, size_t len,
                   struct str *out)
{
    static const char before[] = "a";
    struct pieces both = { 0 };
    struct str text = { 0 };

    if (d->fallback && byte_of(token, len) >= 0) {
        str_addc(out, (char)byte_of(token, len));
        return;
    }
    if (d->n && d->stage[0].run == run_byte_level) {
        bytelevel_decode(out, token, len);
        return;
    }
    pieces_add(&both, before, strlen(before), true);
    pieces_add(&both, token, len, false);
    decoder_run(d, &both, &text);
    if (text.len > strlen(before))
        str_addn(out, text.s + strlen(before), text.len - strlen(before));
    pieces_clear(&both);
    str_clear(&text);
}
