/* tokenizer - converts text to token ids and back: Hugging Face's tokenizer.json */
#include "lib/text/tokenizer.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/text/added.h"
#include "lib/text/bytelevel.h"
#include "lib/text/chars.h"
#include "lib/text/decoder.h"
#include "lib/text/frame.h"
#include "lib/text/normalizer.h"
#include "lib/text/splitter.h"
#include "lib/text/subword.h"

enum { MAX_FILE = 1 << 28 };

struct tokenizer {
    struct added *added;
    struct normalizer *normalizer;
    struct splitter *splitter;
    struct subword subword;
    struct frame frame, pair;
    struct decoder *decoder;
};

void tokens_clear(struct tokens *t)
{
    free(t->id);
    free(t->from);
    *t = (struct tokens){ 0 };
}

void tokens_add(struct tokens *t, uint32_t id)
{
    tokens_add_part(t, id, 0, 0);
}

void tokens_add_part(struct tokens *t, uint32_t id, size_t start, size_t end)
{
    t->id = xgrow(t->id, &t->cap, t->n + 1, sizeof(*t->id));
    if (t->traced) {
        t->from = xgrow(t->from, &t->cap_from, t->n + 1, sizeof(*t->from));
        t->from[t->n] = (struct origin){ start, end };
    }
    t->id[t->n++] = id;
}

/* ---- opening ---- */

static int read_stages(struct tokenizer *t, const char *path, const cJSON *root,
                       struct err *err)
{
    const cJSON *normalizer = cJSON_GetObjectItemCaseSensitive(root, "normalizer");
    const cJSON *splitter = cJSON_GetObjectItemCaseSensitive(root, "pre_tokenizer");
    const cJSON *frame = cJSON_GetObjectItemCaseSensitive(root, "post_processor");
    const cJSON *decoder = cJSON_GetObjectItemCaseSensitive(root, "decoder");
    const cJSON *added = cJSON_GetObjectItemCaseSensitive(root, "added_tokens");
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(root, "model");

    if (normalizer_open(&t->normalizer, path, normalizer, err) < 0 ||
        splitter_open(&t->splitter, path, splitter, err) < 0 ||
        frame_open(&t->frame, &t->pair, path, frame, err) < 0 ||
        decoder_open(&t->decoder, path, decoder, err) < 0 ||
        added_open(&t->added, path, added, t->normalizer, err) < 0 ||
        subword_open(&t->subword, path, model, err) < 0)
        return -1;
    return added_check(t->added, path, t->subword.vocab, err);
}

int tokenizer_parse(struct tokenizer **out, const char *path, const char *text,
                    struct err *err)
{
    size_t n = strlen(text);
    struct tokenizer *t;
    cJSON *root;
    int ret;

    if (json_check_cost(path, text, n, err) < 0)
        return -1;
    root = str_is_utf8(text, n) ? cJSON_Parse(text) : NULL;
    if (!root)
        return err_set(err, ERR_INPUT, "%s: not valid JSON", path);
    t = xcalloc(1, sizeof(*t));
    ret = read_stages(t, path, root, err);
    if (ret == 0 && strstr(text, "\"\\u0000\""))
        vocab_restore_nul(t->subword.vocab);
    cJSON_Delete(root);
    if (ret < 0)
        tokenizer_free(t);
    else
        *out = t;
    return ret;
}

int tokenizer_open(struct tokenizer **out, const char *path, struct err *err)
{
    char *text;
    int ret;

    if (fs_read_regular(&text, NULL, path, MAX_FILE, err) < 0)
        return -1;
    ret = tokenizer_parse(out, path, text, err);
    free(text);
    return ret;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    added_free(t->added);
    normalizer_free(t->normalizer);
    splitter_free(t->splitter);
    subword_clear(&t->subword);
    frame_clear(&t->frame);
    frame_clear(&t->pair);
    decoder_free(t->decoder);
    free(t);
}

/* ---- encoding ---- */

/* Returns TEXT[*len], or its copy in S with U+FFFD for ill-formed UTF-8. */
static const char *clean(struct str *s, const char *text, size_t *len)
{
    if (str_is_utf8(text, *len))
        return text;
    decoder_clean(s, text, *len);
    *len = s->len;
    return s->s;
}

/* Encodes text without added tokens, with its ORIGINS[LEN], or NULL. */
static int encode_plain(const struct tokenizer *t, const char *text, size_t len,
                        bool first, const struct origin *origins, struct tokens *out,
                        struct err *err)
{
    struct pieces pieces = { 0 };
    int ret = splitter_run(t->splitter, text, len, first, origins, &pieces, err);

    for (size_t i = 0; i < pieces.n && ret == 0; i++) {
        size_t at = out->n, start = pieces.v[i].start;

        ret = subword_encode(&t->subword, pieces_at(&pieces, i), pieces.v[i].len, out,
                             err);
        for (; at < out->n && pieces.origins.n; at++)
            out->from[at] = origins_range(&pieces.origins, start + out->from[at].start,
                                          start + out->from[at].end);
    }
    pieces_clear(&pieces);
    return ret;
}

int tokenizer_encode_plain(const struct tokenizer *t, const char *text, size_t len,
                           struct tokens *out, struct err *err)
{
    struct str cleaned = { 0 }, normal = { 0 };
    size_t before = out->n;
    bool kept;
    int ret;

    text = clean(&cleaned, text, &len);
    ret = normalizer_run(t->normalizer, text, len, &normal, &kept, NULL, err);
    if (ret == 0)
        ret = encode_plain(t, str_text(&normal), normal.len, kept, NULL, out, err);
    if (ret < 0)
        out->n = before;
    str_clear(&cleaned);
    str_clear(&normal);
    return ret;
}

bool tokenizer_added(const struct tokenizer *t, size_t i, struct tokenizer_added *out)
{
    const struct added_token *a = added_at(t->added, i);

    if (a)
        *out = (struct tokenizer_added){ .text = a->text,
                                         .len = strlen(a->text),
                                         .id = a->id,
                                         .special = a->special,
                                         .unknown = subword_unknown(&t->subword) ==
                                                    (long)a->id };
    return a != NULL;
}

/* Encodes text between added tokens that match the original text, in which it begins at
 * AT. */
static int encode_section(const struct tokenizer *t, const char *text, size_t len,
                          size_t at, struct tokens *out, struct err *err)
{
    struct str s = { 0 };
    struct origins origins = { 0 };
    struct added_splits splits = { 0 };
    bool kept, traced = out->traced;
    int ret;

    if (traced)
        origins_begin(&origins, text, len, at);
    ret = normalizer_run(t->normalizer, text, len, &s, &kept, traced ? &origins : NULL,
                         err);
    if (ret == 0)
        added_find(t->added, true, str_text(&s), s.len, &splits);
    for (size_t i = 0; i < splits.n && ret == 0; i++) {
        const struct added_split *p = &splits.v[i];
        struct origin o = origins_range(&origins, p->start, p->end);

        if (p->token)
            tokens_add_part(out, p->token->id, o.start, o.end);
        else
            ret = encode_plain(t, s.s + p->start, p->end - p->start,
                               !at && kept && !p->start,
                               traced ? origins.v + p->start : NULL, out, err);
    }
    added_splits_clear(&splits);
    origins_clear(&origins);
    str_clear(&s);
    return ret;
}

/* Where N characters from AT on, or before it, end in TEXT; at most at MOST. */
static size_t forward(const char *text, size_t at, size_t n, size_t most)
{
    for (size_t used; n && at < most; n--, at += used)
        (void)chars_at(text + at, most - at, &used);
    return at;
}

static size_t backward(const char *text, size_t at, size_t n, size_t least)
{
    for (size_t used; n && at > least; n--, at -= used)
        (void)chars_before(text, at, &used);
    return at > least ? at : least;
}

/* As ByteLevel's and RoBERTa's post-processor: the spaces at both ends of the tokens
 * from AT on are not theirs; but a single one at its beginning was put before the text
 * and has no place in it. */
static void trim(const struct tokenizer *t, const char *text, struct tokens *out,
                 size_t at)
{
    for (size_t i = at; i < out->n; i++) {
        struct origin *o = &out->from[i];
        bool added = added_by_id(t->added, out->id[i]) != NULL;
        size_t len = o->end - o->start, before, behind;
        const char *piece =
            added ? text + o->start : vocab_text(t->subword.vocab, out->id[i], &len);

        if (!piece)
            continue;
        before = bytelevel_spaces(piece, len, false);
        behind = bytelevel_spaces(piece, len, true);
        if (before == 1 && (i == at || !o->start) && t->frame.prefix)
            before = 0;
        o->start = forward(text, o->start, before, o->end);
        o->end = backward(text, o->end, behind, o->start);
    }
}

static int encode_text(const struct tokenizer *t, const char *text, size_t len,
                       struct tokens *out, struct err *err)
{
    struct added_splits splits = { 0 };
    size_t before = out->n;
    int ret = 0;

    added_find(t->added, false, text, len, &splits);
    for (size_t i = 0; i < splits.n && ret == 0; i++) {
        const struct added_split *p = &splits.v[i];

        if (p->token)
            tokens_add_part(out, p->token->id, p->start, p->end);
        else
            ret = encode_section(t, text + p->start, p->end - p->start, p->start, out,
                                 err);
    }
    if (ret == 0 && out->traced && t->frame.trims)
        trim(t, text, out, before);
    added_splits_clear(&splits);
    return ret;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len,
                     bool add_special, struct tokens *out, struct err *err)
{
    struct str s = { 0 };
    size_t before = out->n;
    int ret = 0;

    text = clean(&s, text, &len);
    if (!add_special)
        ret = encode_text(t, text, len, out, err);
    for (size_t i = 0; add_special && i < t->frame.n && ret == 0; i++) {
        if (t->frame.id[i] == FRAME_TEXT)
            ret = encode_text(t, text, len, out, err);
        else
            tokens_add(out, (uint32_t)t->frame.id[i]);
    }
    if (ret < 0)
        out->n = before;
    str_clear(&s);
    return ret;
}

int tokenizer_encode_pair(const struct tokenizer *t, const char *first,
                          size_t first_len, const char *second, size_t second_len,
                          struct tokens *out, struct tokens *types, size_t range[2],
                          struct err *err)
{
    struct str s[2] = { { 0 }, { 0 } };
    size_t before = out->n;
    int ret = 0;

    if (!t->pair.n)
        return err_set(err, ERR_INPUT,
                       "the tokenizer does not say how two texts are joined");
    first = clean(&s[0], first, &first_len);
    second = clean(&s[1], second, &second_len);
    for (size_t i = 0; i < t->pair.n && ret == 0; i++) {
        size_t at = out->n;

        if (t->pair.id[i] == FRAME_TEXT)
            ret = encode_text(t, first, first_len, out, err);
        else if (t->pair.id[i] == FRAME_PAIR)
            ret = encode_text(t, second, second_len, out, err);
        else
            tokens_add(out, (uint32_t)t->pair.id[i]);
        if (t->pair.id[i] == FRAME_PAIR) {
            range[0] = at;
            range[1] = out->n;
        }
        for (; at < out->n; at++)
            tokens_add(types, (uint32_t)t->pair.type[i]);
    }
    if (ret < 0)
        out->n = types->n = before;
    str_clear(&s[0]);
    str_clear(&s[1]);
    return ret;
}

/* ---- decoding ---- */

/* The text of token ID, or NULL when it is skipped. */
static const char *token_text(const struct tokenizer *t, uint32_t id, bool skip_special,
                              size_t *len)
{
    const struct added_token *a = added_by_id(t->added, id);

    if (!a)
        return vocab_text(t->subword.vocab, id, len);
    *len = a->len;
    return a->special && skip_special ? NULL : a->match;
}

void tokenizer_decode(const struct tokenizer *t, const uint32_t *id, size_t n,
                      bool skip_special, struct str *out)
{
    struct pieces tokens = { 0 };

    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *text = token_text(t, id[i], skip_special, &len);

        if (text)
            pieces_add(&tokens, text, len, !tokens.n);
    }
    if (tokens.n)
        decoder_run(t->decoder, &tokens, out);
    pieces_clear(&tokens);
}

const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, size_t *len)
{
    const struct added_token *a = added_by_id(t->added, id);

    if (!a)
        return vocab_text(t->subword.vocab, id, len);
    *len = strlen(a->text);
    return a->text;
}

bool tokenizer_has_bytes(const struct tokenizer *t)
{
    return decoder_has_bytes(t->decoder);
}

bool tokenizer_bytes(const struct tokenizer *t, uint32_t id, struct str *out, char mark)
{
    const struct added_token *a = added_by_id(t->added, id);
    size_t len;
    const char *text = token_text(t, id, false, &len);

    if (!text)
        return false;
    if (a && a->special) {
        str_addc(out, mark);
        str_addn(out, text, len);
    } else
        decoder_bytes(t->decoder, text, len, out);
    return true;
}

size_t tokenizer_size(const struct tokenizer *t)
{
    size_t size = vocab_size(t->subword.vocab), added = added_size(t->added);

    return added > size ? added : size;
}

/* ---- streams ---- */

/* The window has the last tokens, as many as their text needs: the token before the
 * text that is not emitted yet, and all after it.  The decoder's special treatment of a
 * text's start thus affects only text that was emitted before. */
struct token_stream {
    const struct tokenizer *t;
    bool skip_special;
    struct tokens window;
    size_t given; /* bytes of the window's text already emitted */
};

struct token_stream *token_stream_new(const struct tokenizer *t, bool skip_special)
{
    struct token_stream *s = xcalloc(1, sizeof(*s));

    s->t = t;
    s->skip_special = skip_special;
    return s;
}

static void window_text(const struct token_stream *s, struct str *out)
{
    tokenizer_decode(s->t, s->window.id, s->window.n, s->skip_special, out);
}

/* Called when all text was emitted: reduces the window to the last token, unless the
 * decoder removes all of its text at a text's start and might remove more. */
static void move_window(struct token_stream *s)
{
    struct str text = { 0 };

    tokenizer_decode(s->t, &s->window.id[s->window.n - 1], 1, s->skip_special, &text);
    if (text.len) {
        s->window.id[0] = s->window.id[s->window.n - 1];
        s->window.n = 1;
        s->given = text.len;
    }
    str_clear(&text);
}

void token_stream_feed(struct token_stream *s, uint32_t id, struct str *out)
{
    size_t len, n;
    const char *token = token_text(s->t, id, s->skip_special, &len);
    struct str text = { 0 };

    if (!token)
        return;
    tokens_add(&s->window, id);
    if (decoder_is_partial(s->t->decoder, token, len))
        return;
    window_text(s, &text);
    n = text.len;
    if (n >= 3 && !memcmp(text.s + n - 3, "\xef\xbf\xbd", 3))
        n -= 3; /* may become a complete character */
    if (n > s->given) {
        str_addn(out, text.s + s->given, n - s->given);
        s->given = n;
    }
    if (n == text.len)
        move_window(s);
    str_clear(&text);
}

void token_stream_end(struct token_stream *s, struct str *out)
{
    struct str text = { 0 };

    window_text(s, &text);
    if (text.len > s->given)
        str_addn(out, text.s + s->given, text.len - s->given);
    str_clear(&text);
    s->window.n = s->given = 0;
}

void token_stream_free(struct token_stream *s)
{
    if (!s)
        return;
    tokens_clear(&s->window);
    free(s);
}
