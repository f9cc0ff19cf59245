/* tokenizer - text to ids and back, as a Hugging Face tokenizer.json says */
#include "lib/text/tokenizer.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/text/bpe.h"
#include "lib/text/splitter.h"

enum { MAX_FILE = 1 << 28 };

struct added {
    char *text;
    size_t len;
    uint32_t id;
    bool special, lstrip, rstrip, single_word;
};

/* One part of a post-processor's template: a token, or the text (id -1). */
struct template_part {
    long id;
};

struct tokenizer {
    struct bpe *bpe;
    struct splitter *splitter;
    struct added *added;
    size_t nadded;
    struct template_part *part; /* NULL: nothing is added */
    size_t nparts;
    bool byte_decoder;
    uint32_t byte_char[256]; /* code point that stands for each byte */
    int16_t char_byte[512];  /* and back; -1 */
};

void tokens_clear(struct tokens *t)
{
    free(t->id);
    *t = (struct tokens){ 0 };
}

static void add_token(struct tokens *t, uint32_t id)
{
    t->id = xgrow(t->id, &t->cap, t->n + 1, sizeof(*t->id));
    t->id[t->n++] = id;
}

/* GPT-2's alphabet: printable Latin-1 characters stand for themselves, the other bytes
 * for the code points from 256 on, in order. */
static void make_alphabet(struct tokenizer *t)
{
    uint32_t next = 256;

    memset(t->char_byte, -1, sizeof(t->char_byte));
    for (uint32_t b = 0; b < 256; b++) {
        bool printable =
            (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;

        t->byte_char[b] = printable ? b : next++;
        t->char_byte[t->byte_char[b]] = (int16_t)b;
    }
}

/* ---- opening ---- */

static const char *type_of(const cJSON *j)
{
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(j, "type");

    return cJSON_IsString(type) ? type->valuestring : "?";
}

static bool is_absent(const cJSON *j)
{
    return !j || cJSON_IsNull(j);
}

static int read_added(struct tokenizer *t, const char *path, const cJSON *list,
                      struct err *err)
{
    const cJSON *j;

    cJSON_ArrayForEach(j, list)
    {
        const cJSON *content = cJSON_GetObjectItemCaseSensitive(j, "content");
        const cJSON *id = cJSON_GetObjectItemCaseSensitive(j, "id");
        struct added *a;

        if (!cJSON_IsString(content) || !*content->valuestring || !cJSON_IsNumber(id) ||
            id->valueint < 0)
            return err_set(err, ERR_INPUT, "%s: bad entry in added_tokens", path);
        t->added = xrealloc(t->added, sizeof(*t->added) * (t->nadded + 1));
        a = &t->added[t->nadded++];
        *a = (struct added){
            .text = xstrdup(content->valuestring),
            .len = strlen(content->valuestring),
            .id = (uint32_t)id->valueint,
            .special = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "special")),
            .lstrip = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "lstrip")),
            .rstrip = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "rstrip")),
            .single_word =
                cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "single_word")),
        };
    }
    return 0;
}

static int add_special_part(struct tokenizer *t, const char *path, const cJSON *all,
                            const char *name, struct err *err)
{
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(all, name), "ids");
    const cJSON *id;

    if (!cJSON_IsArray(ids))
        return err_set(err, ERR_INPUT, "%s: post_processor: no ids for '%s'", path,
                       name);
    cJSON_ArrayForEach(id, ids)
    {
        if (!cJSON_IsNumber(id) || id->valueint < 0)
            return err_set(err, ERR_INPUT, "%s: post_processor: a bad id", path);
        t->part[t->nparts++].id = id->valueint;
    }
    return 0;
}

static int read_template(struct tokenizer *t, const char *path, const cJSON *j,
                         struct err *err)
{
    const cJSON *single = cJSON_GetObjectItemCaseSensitive(j, "single");
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(j, "special_tokens"), *one, *s;
    size_t room = (size_t)cJSON_GetArraySize(single);

    cJSON_ArrayForEach(s, all) room +=
        (size_t)cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(s, "ids"));
    t->part = xcalloc(room * (room + 1) + 1, sizeof(*t->part));
    cJSON_ArrayForEach(one, single)
    {
        const cJSON *special = cJSON_GetObjectItemCaseSensitive(one, "SpecialToken");
        const cJSON *id = cJSON_GetObjectItemCaseSensitive(special, "id");

        if (!special)
            t->part[t->nparts++].id = -1;
        else if (!cJSON_IsString(id))
            return err_set(err, ERR_INPUT, "%s: post_processor: a bad template", path);
        else if (add_special_part(t, path, all, id->valuestring, err) < 0)
            return -1;
    }
    return 0;
}

static int read_post_processor(struct tokenizer *t, const char *path, const cJSON *j,
                               struct err *err)
{
    if (is_absent(j) || !strcmp(type_of(j), "ByteLevel"))
        return 0; /* ByteLevel's moves offsets alone */
    if (!strcmp(type_of(j), "TemplateProcessing"))
        return read_template(t, path, j, err);
    return err_set(err, ERR_INPUT, "%s: post_processor of type '%s' is not known", path,
                   type_of(j));
}

static int read_stages(struct tokenizer *t, const char *path, const cJSON *root,
                       struct err *err)
{
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(root, "model");
    const cJSON *normalizer = cJSON_GetObjectItemCaseSensitive(root, "normalizer");
    const cJSON *decoder = cJSON_GetObjectItemCaseSensitive(root, "decoder");

    if (!cJSON_IsObject(model))
        return err_set(err, ERR_INPUT, "%s: no model", path);
    if (strcmp(type_of(model), "BPE") && strcmp(type_of(model), "?"))
        return err_set(err, ERR_INPUT, "%s: model of type '%s' is not known", path,
                       type_of(model));
    if (!is_absent(normalizer))
        return err_set(err, ERR_INPUT, "%s: normalizer of type '%s' is not known", path,
                       type_of(normalizer));
    if (!is_absent(decoder) && strcmp(type_of(decoder), "ByteLevel"))
        return err_set(err, ERR_INPUT, "%s: decoder of type '%s' is not known", path,
                       type_of(decoder));
    t->byte_decoder = !is_absent(decoder);
    if (splitter_open(&t->splitter, path,
                      cJSON_GetObjectItemCaseSensitive(root, "pre_tokenizer"),
                      err) < 0 ||
        read_added(t, path, cJSON_GetObjectItemCaseSensitive(root, "added_tokens"),
                   err) < 0 ||
        read_post_processor(
            t, path, cJSON_GetObjectItemCaseSensitive(root, "post_processor"), err) < 0)
        return -1;
    return bpe_open(&t->bpe, path, model, err);
}

int tokenizer_parse(struct tokenizer **out, const char *path, const char *text,
                    struct err *err)
{
    cJSON *root = cJSON_Parse(text);
    struct tokenizer *t;
    int ret;

    if (!root)
        return err_set(err, ERR_INPUT, "%s: not valid JSON", path);
    t = xcalloc(1, sizeof(*t));
    make_alphabet(t);
    ret = read_stages(t, path, root, err);
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

    if (fs_read_file(&text, NULL, path, MAX_FILE, err) < 0)
        return -1;
    ret = tokenizer_parse(out, path, text, err);
    free(text);
    return ret;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->nadded; i++)
        free(t->added[i].text);
    free(t->added);
    free(t->part);
    bpe_free(t->bpe);
    splitter_free(t->splitter);
    free(t);
}

/* ---- encoding ---- */

static int encode_piece(const struct tokenizer *t, const char *piece, size_t len,
                        struct tokens *out, struct err *err)
{
    struct str mapped = { 0 };
    int ret;

    if (!splitter_is_byte_level(t->splitter))
        return bpe_encode(t->bpe, piece, len, out, err);
    for (size_t i = 0; i < len; i++) {
        char utf8[4];

        str_addn(&mapped, utf8,
                 str_utf8_encode(t->byte_char[(unsigned char)piece[i]], utf8));
    }
    ret = bpe_encode(t->bpe, str_text(&mapped), mapped.len, out, err);
    str_clear(&mapped);
    return ret;
}

/* Encode text that holds no added token. */
static int encode_plain(const struct tokenizer *t, const char *text, size_t len,
                        struct tokens *out, struct err *err)
{
    struct str s = { 0 };
    struct pieces pieces = { 0 };
    int ret;

    if (!len)
        return 0;
    str_addn(&s, text, len);
    ret = splitter_run(t->splitter, &s, &pieces, err);
    for (size_t i = 0; i < pieces.n && ret == 0; i++)
        ret = encode_piece(t, s.s + pieces.v[i].start, pieces.v[i].len, out, err);
    pieces_clear(&pieces);
    str_clear(&s);
    return ret;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_word(unsigned char c)
{
    return c >= 0x80 || c == '_' || (c >= '0' && c <= '9') ||
           ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

/* The longest added token at AT. */
static const struct added *added_at(const struct tokenizer *t, const char *text,
                                    size_t len, size_t at)
{
    const struct added *best = NULL;

    for (size_t i = 0; i < t->nadded; i++) {
        const struct added *a = &t->added[i];

        if (a->len > len - at || memcmp(text + at, a->text, a->len) ||
            (best && best->len >= a->len))
            continue;
        if (a->single_word &&
            ((at && is_word((unsigned char)text[at - 1])) ||
             (at + a->len < len && is_word((unsigned char)text[at + a->len]))))
            continue;
        best = a;
    }
    return best;
}

static int encode_text(const struct tokenizer *t, const char *text, size_t len,
                       struct tokens *out, struct err *err)
{
    size_t done = 0;

    for (size_t at = 0; at < len;) {
        const struct added *a = added_at(t, text, len, at);
        size_t end = at, next;

        if (!a) {
            at++;
            continue;
        }
        next = at + a->len;
        while (a->lstrip && end > done && is_space(text[end - 1]))
            end--;
        while (a->rstrip && next < len && is_space(text[next]))
            next++;
        if (encode_plain(t, text + done, end - done, out, err) < 0)
            return -1;
        add_token(out, a->id);
        at = done = next;
    }
    return encode_plain(t, text + done, len - done, out, err);
}

/* TEXT with ill-formed bytes replaced. */
static void clean(struct str *out, const char *text, size_t len)
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

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len,
                     bool add_special, struct tokens *out, struct err *err)
{
    struct str s = { 0 };
    size_t before = out->n;
    int ret = 0;

    if (!str_is_utf8(text, len)) {
        clean(&s, text, len);
        text = s.s;
        len = s.len;
    }
    if (!add_special || !t->part)
        ret = encode_text(t, text, len, out, err);
    for (size_t i = 0; add_special && i < t->nparts && ret == 0; i++) {
        if (t->part[i].id >= 0)
            add_token(out, (uint32_t)t->part[i].id);
        else
            ret = encode_text(t, text, len, out, err);
    }
    if (ret < 0)
        out->n = before;
    str_clear(&s);
    return ret;
}

/* ---- decoding ---- */

static const struct added *find_added(const struct tokenizer *t, uint32_t id)
{
    for (size_t i = 0; i < t->nadded; i++)
        if (t->added[i].id == id)
            return &t->added[i];
    return NULL;
}

/* The bytes that ID stands for; they need not be whole characters. */
static void add_bytes(const struct tokenizer *t, uint32_t id, bool skip_special,
                      struct str *out)
{
    const struct added *a = find_added(t, id);
    const char *text = bpe_text(t->bpe, id);
    size_t len;

    if (a) {
        if (!a->special || !skip_special)
            str_addn(out, a->text, a->len);
        return;
    }
    if (!text)
        return;
    len = strlen(text);
    for (size_t at = 0; at < len;) {
        uint32_t cp;
        size_t n = str_utf8_decode(text + at, len - at, &cp);

        if (t->byte_decoder && n && cp < 512 && t->char_byte[cp] >= 0)
            str_addc(out, (char)t->char_byte[cp]);
        else
            str_addn(out, text + at, n ? n : 1);
        at += n ? n : 1;
    }
}

void tokenizer_decode(const struct tokenizer *t, const uint32_t *id, size_t n,
                      bool skip_special, struct str *out)
{
    struct str bytes = { 0 };

    for (size_t i = 0; i < n; i++)
        add_bytes(t, id[i], skip_special, &bytes);
    clean(out, str_text(&bytes), bytes.len);
    str_clear(&bytes);
}

long tokenizer_id(const struct tokenizer *t, const char *token)
{
    for (size_t i = 0; i < t->nadded; i++)
        if (!strcmp(t->added[i].text, token))
            return (long)t->added[i].id;
    return bpe_id(t->bpe, token, strlen(token));
}

size_t tokenizer_size(const struct tokenizer *t)
{
    size_t size = bpe_size(t->bpe);

    for (size_t i = 0; i < t->nadded; i++)
        if (t->added[i].id >= size)
            size = (size_t)t->added[i].id + 1;
    return size;
}

/* ---- streams ---- */

struct token_stream {
    const struct tokenizer *t;
    bool skip_special;
    struct str held;
};

struct token_stream *token_stream_new(const struct tokenizer *t, bool skip_special)
{
    struct token_stream *s = xcalloc(1, sizeof(*s));

    s->t = t;
    s->skip_special = skip_special;
    return s;
}

/* Bytes at the end of the N at P that may yet become a character. */
static size_t unfinished(const char *p, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)p[n - back];

        if (c >= 0xc2 && c <= 0xf4) {
            size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;

            return need > back ? back : 0;
        }
        if ((c & 0xc0) != 0x80)
            return 0;
    }
    return 0;
}

void token_stream_feed(struct token_stream *s, uint32_t id, struct str *out)
{
    size_t keep, n;
    char *tail;

    add_bytes(s->t, id, s->skip_special, &s->held);
    keep = unfinished(str_text(&s->held), s->held.len);
    n = s->held.len - keep;
    clean(out, str_text(&s->held), n);
    tail = xstrndup(str_text(&s->held) + n, keep);
    str_reset(&s->held);
    str_addn(&s->held, tail, keep);
    free(tail);
}

void token_stream_end(struct token_stream *s, struct str *out)
{
    clean(out, str_text(&s->held), s->held.len);
    str_reset(&s->held);
}

void token_stream_free(struct token_stream *s)
{
    if (!s)
        return;
    str_clear(&s->held);
    free(s);
}
