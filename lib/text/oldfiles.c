/* oldfiles - older tokenizer formats: vocab.txt, SentencePiece models, vocab.json with
 * merges.txt
 *
 * The stages of each format are those of transformers' converters
 * (convert_slow_tokenizer.py). */
#include "lib/text/oldfiles.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/base64.h"
#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/merges.h"
#include "lib/text/setting.h"
#include "lib/text/tekken.h"

enum { MOST = 1 << 26, MOST_CONFIG = 1 << 24 }; /* maximum bytes of files */

/* ---- parts of a tokenizer.json ---- */

static void add_added(struct str *out, size_t id, const char *text, bool special)
{
    str_addf(out, "%s{\"id\":%zu,\"content\":", out->s[out->len - 1] == '[' ? "" : ",",
             id);
    str_add_json(out, text);
    str_addf(out,
             ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
             "\"normalized\":false,\"special\":%s}",
             special ? "true" : "false");
}

static void add_special(struct str *out, const char *name, int type)
{
    str_add(out, "{\"SpecialToken\":{\"id\":");
    str_add_json(out, name);
    str_addf(out, ",\"type_id\":%d}}", type);
}

/* Adds the post-processor BEGIN text END and, for pairs, BEGIN first END second END,
 * with type 1 for the second text if TYPED, otherwise with END twice between the
 * texts. */
static void add_template(struct str *out, const char *begin, size_t begin_id,
                         const char *end, size_t end_id, bool typed)
{
    const char *name[2] = { begin, end };
    size_t id[2] = { begin_id, end_id };

    str_add(out, ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
    add_special(out, begin, 0);
    str_add(out, ",{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},");
    add_special(out, end, 0);
    str_add(out, "],\"pair\":[");
    add_special(out, begin, 0);
    str_add(out, ",{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},");
    add_special(out, end, 0);
    if (!typed) {
        str_addc(out, ',');
        add_special(out, end, 0);
    }
    str_addf(out, ",{\"Sequence\":{\"id\":\"B\",\"type_id\":%d}},", typed);
    add_special(out, end, typed);
    str_add(out, "],\"special_tokens\":{");
    for (int i = 0; i < 2; i++) {
        str_add(out, i ? "," : "");
        str_add_json(out, name[i]);
        str_add(out, ":{\"id\":");
        str_add_json(out, name[i]);
        str_addf(out, ",\"ids\":[%zu],\"tokens\":[", id[i]);
        str_add_json(out, name[i]);
        str_add(out, "]}");
    }
    str_add(out, "}}");
}

/* ---- vocab.txt ---- */

/* Index of the line TEXT, or -1. */
static long line_of(char **line, size_t n, const char *text)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(line[i], text))
            return (long)i;
    return -1;
}

/* Writes BERT's stages.  Special tokens are BERT's if there is a [CLS], else RoBERTa's,
 * as in MPNet. */
static int word_piece(struct str *out, const char *path, char **line, size_t n,
                      const cJSON *config, struct err *err)
{
    static const char *const known[2][5] = {
        { "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]" },
        { "<s>", "</s>", "<pad>", "[UNK]", "<mask>" },
    };
    bool bert = line_of(line, n, "[CLS]") >= 0;
    const char *const *name = known[!bert];
    const cJSON *accents = cJSON_GetObjectItemCaseSensitive(config, "strip_accents");
    long begin = line_of(line, n, name[0]), end = line_of(line, n, name[1]);

    if (begin < 0 || end < 0 || line_of(line, n, name[3]) < 0)
        return err_set(err, ERR_INPUT, "%s: no '%s', '%s' or '%s'", path, name[0],
                       name[1], name[3]);
    str_add(out, "{\"added_tokens\":[");
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 5; k++)
            if (!strcmp(line[i], name[k]))
                add_added(out, i, line[i], true);
    str_addf(out,
             "],\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
             "\"handle_chinese_chars\":%s,\"strip_accents\":%s,\"lowercase\":%s},"
             "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}",
             setting_flag(config, "tokenize_chinese_chars", true) ? "true" : "false",
             setting_absent(accents) ? "null"
             : cJSON_IsTrue(accents) ? "true"
                                     : "false",
             setting_flag(config, "do_lower_case", true) ? "true" : "false");
    add_template(out, name[0], (size_t)begin, name[1], (size_t)end, bert);
    str_add(out, ",\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":"
                 "true},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
                 "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":"
                 "100,\"vocab\":{");
    for (size_t i = 0; i < n; i++) {
        str_add(out, i ? "," : "");
        str_add_json(out, line[i]);
        str_addf(out, ":%zu", i);
    }
    str_add(out, "}}}");
    return 0;
}

/* Puts a NUL in place of the line end, "\n" or "\r\n", of the line at P, in a text with
 * a NUL at END.  Returns the next line. */
static char *end_line(char *p, char *end)
{
    char *feed = memchr(p, '\n', (size_t)(end - p));

    feed = feed ? feed : end;
    *feed = '\0';
    if (feed > p && feed[-1] == '\r')
        feed[-1] = '\0';
    return feed + 1;
}

/* Converts TEXT[len], which has a token per line; modifies it. */
static int read_words(struct str *out, const char *path, char *text, size_t len,
                      const cJSON *config, struct err *err)
{
    char **line = NULL;
    size_t n = 0, cap = 0;
    int ret;

    if (strlen(text) < len || !str_is_utf8(text, len))
        return err_set(err, ERR_INPUT, "%s: not UTF-8", path);
    for (char *p = text, *next; p < text + len; p = next) {
        next = end_line(p, text + len);
        line = xgrow(line, &cap, n + 1, sizeof(*line));
        line[n++] = p;
    }
    ret = word_piece(out, path, line, n, config, err);
    free(line);
    return ret;
}

/* ---- SentencePiece ---- */

/* The bytes of a protocol buffers message. */
struct proto {
    const unsigned char *p, *end;
};

struct field {
    uint64_t number, value; /* value: of a varint, or the four bytes of a float */
    struct proto bytes;     /* of a length-delimited field */
};

static bool read_varint(struct proto *m, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && m->p < m->end; shift += 7) {
        *out |= (uint64_t)(*m->p & 127) << shift;
        if (!(*m->p++ & 128))
            return true;
    }
    return false;
}

/* Reads the next field of M; false when it is malformed. */
static bool read_field(struct proto *m, struct field *f)
{
    uint64_t key, n = 0;

    *f = (struct field){ 0 };
    if (!read_varint(m, &key))
        return false;
    f->number = key >> 3;
    switch (key & 7) {
    case 0:
        return read_varint(m, &f->value);
    case 1:
        n = 8;
        break;
    case 2:
        if (!read_varint(m, &n))
            return false;
        break;
    case 5:
        n = 4;
        break;
    default:
        return false;
    }
    if (n > (uint64_t)(m->end - m->p))
        return false;
    f->bytes = (struct proto){ m->p, m->p + n };
    for (int i = 0; (key & 7) == 5 && i < 4; i++)
        f->value |= (uint64_t)m->p[i] << (8 * i);
    m->p += n;
    return true;
}

enum { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER };
enum { MODEL_UNIGRAM = 1, MODEL_BPE };

struct piece {
    char *text;
    double score;
    uint64_t type;
};

struct spm {
    struct piece *piece;
    size_t n, cap;
    uint64_t model, unk;
    struct proto charsmap;
    bool fallback;        /* bytes for what has no piece */
    bool prefix, squeeze; /* a space before a text; runs of spaces are one, and none at
                             its ends */
};

static bool read_piece(struct spm *s, struct proto m)
{
    struct piece one = { .type = PIECE_NORMAL };
    struct field f;
    uint32_t bits;
    float score;

    s->piece = xgrow(s->piece, &s->cap, s->n + 1, sizeof(*s->piece));
    while (m.p < m.end) {
        if (!read_field(&m, &f)) {
            free(one.text);
            return false;
        }
        if (f.number == 1) {
            free(one.text);
            one.text =
                xstrndup((const char *)f.bytes.p, (size_t)(f.bytes.end - f.bytes.p));
        } else if (f.number == 2) {
            bits = (uint32_t)f.value;
            memcpy(&score, &bits, sizeof(score));
            one.score = (double)score;
        } else if (f.number == 3) {
            one.type = f.value;
        }
    }
    if (!one.text || !*one.text || !str_is_utf8(one.text, strlen(one.text)) ||
        !(one.score > -1e30 && one.score < 1e30)) {
        free(one.text);
        return false;
    }
    s->piece[s->n++] = one;
    return true;
}

/* Reads pieces (1), the trainer's model type and unknown piece (2), and the
 * normalizer's rules (3); skips other fields. */
static bool read_model(struct spm *s, struct proto m)
{
    struct field f, g;

    while (m.p < m.end) {
        if (!read_field(&m, &f) || (f.number == 1 && !read_piece(s, f.bytes)))
            return false;
        while ((f.number == 2 || f.number == 3) && f.bytes.p < f.bytes.end) {
            if (!read_field(&f.bytes, &g))
                return false;
            if (f.number == 2 && g.number == 3)
                s->model = g.value;
            if (f.number == 2 && g.number == 35)
                s->fallback = g.value;
            if (f.number == 2 && g.number == 40)
                s->unk = g.value;
            if (f.number == 3 && g.number == 3)
                s->prefix = g.value;
            if (f.number == 3 && g.number == 4)
                s->squeeze = g.value;
            if (f.number == 3 && g.number == 2)
                s->charsmap = g.bytes;
        }
    }
    return s->n > 0;
}

/* How a model type's tokenizer builds its vocabulary and its post-processor. */
struct kind {
    const char *type;
    const char *before[6]; /* tokens at the start of the vocabulary, */
    size_t skip;           /* and the number of pieces that they replace */
    const char *after;     /* token after all pieces, or NULL */
    long unk;              /* id of the unknown token; -1: the trainer's */
    const char *begin, *end;
    bool typed, commas, strips; /* ALBERT's rule for commas; DeBERTa's stripping of
                                 * white space */
    bool lower, plain; /* lower case and no accents, unless the config says otherwise */
};

static const struct kind kinds[] = {
    { .type = "xlm-roberta",
      .before = { "<s>", "<pad>", "</s>", "<unk>" },
      .skip = 3,
      .after = "<mask>",
      .unk = 3,
      .begin = "<s>",
      .end = "</s>" },
    { .type = "camembert",
      .before = { "<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED" },
      .skip = 1,
      .after = "<mask>",
      .unk = 3,
      .begin = "<s>",
      .end = "</s>" },
    { .type = "albert",
      .unk = -1,
      .begin = "[CLS]",
      .end = "[SEP]",
      .typed = true,
      .commas = true,
      .lower = true,
      .plain = true },
    { .type = "deberta-v2",
      .after = "[MASK]",
      .unk = -1,
      .begin = "[CLS]",
      .end = "[SEP]",
      .typed = true,
      .strips = true },
};

static const struct kind *find_kind(const char *type)
{
    for (size_t i = 0; type && i < sizeof(kinds) / sizeof(*kinds); i++)
        if (!strcmp(kinds[i].type, type))
            return &kinds[i];
    return NULL;
}

static bool is_special(const char *text)
{
    static const char *const known[] = { "<s>",   "</s>",  "<pad>", "<unk>", "<mask>",
                                         "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]" };

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (!strcmp(known[i], text))
            return true;
    return false;
}

/* ALBERT does not use pieces such as "1,". */
static bool ends_in_comma(const char *text)
{
    size_t n = strlen(text);

    return n >= 2 && text[n - 1] == ',' && isdigit((unsigned char)text[n - 2]);
}

static void add_normalizer(struct str *out, const struct spm *s, const struct kind *k,
                           const cJSON *config)
{
    static const char *const quotes[] = { "``", "''" };

    str_add(out, "],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; k->commas && i < 2; i++)
        str_addf(out,
                 "{\"type\":\"Replace\",\"pattern\":{\"String\":\"%s\"},"
                 "\"content\":\"\\\"\"},",
                 quotes[i]);
    if (k->plain && !setting_flag(config, "keep_accents", false))
        str_add(out, "{\"type\":\"NFKD\"},{\"type\":\"StripAccents\"},");
    if (setting_flag(config, "do_lower_case", k->lower))
        str_add(out, "{\"type\":\"Lowercase\"},");
    if (k->strips)
        str_add(out, "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},");
    if (s->charsmap.p < s->charsmap.end) {
        str_add(out, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
        base64_encode(s->charsmap.p, (size_t)(s->charsmap.end - s->charsmap.p), out);
        str_add(out, "\"},");
    }
    str_add(out, "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},"
                 "\"content\":\" \"}]}");
    str_addf(out,
             ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s"
             "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
             "\"prepend_scheme\":\"always\",\"split\":true}]}",
             k->strips ? "" : "{\"type\":\"WhitespaceSplit\"},");
}

static int write_unigram(struct str *out, const char *path, const struct spm *s,
                         const struct kind *k, const cJSON *config, struct err *err)
{
    struct str vocab = { 0 };
    size_t n = 0, begin = SIZE_MAX, end = SIZE_MAX, unk;
    int ret = -1;

    str_add(out, "{\"added_tokens\":[");
    for (size_t i = 0, front = 0; i < s->n + 7; i++) {
        const struct piece *p = NULL;
        const char *text;
        double score = 0;

        if (k->before[front]) {
            text = k->before[front++];
            score = strstr(text, "<unk>N") ? -100 : 0;
            i--;
        } else if (i + k->skip < s->n) {
            p = &s->piece[i + k->skip];
            text = p->text;
            score = p->score - (k->commas && ends_in_comma(text) ? 100 : 0);
        } else {
            break;
        }
        if (!strcmp(text, k->begin))
            begin = n;
        if (!strcmp(text, k->end))
            end = n;
        if (is_special(text) || (p && p->type == PIECE_CONTROL))
            add_added(out, n, text, true);
        else if (p && p->type == PIECE_USER)
            add_added(out, n, text, false);
        str_add(&vocab, n ? ",[" : "[");
        str_add_json(&vocab, text);
        str_addf(&vocab, ",%.17g]", score);
        n++;
    }
    unk = k->unk < 0 ? (size_t)s->unk : (size_t)k->unk;
    if (k->after) {
        add_added(out, n, k->after, true);
        if (!k->strips) { /* otherwise it is outside the vocabulary */
            str_add(&vocab, ",[");
            str_add_json(&vocab, k->after);
            str_add(&vocab, ",0]");
        }
    }
    if (begin == SIZE_MAX || end == SIZE_MAX || unk >= n) {
        err_set(err, ERR_INPUT, "%s: no piece '%s' or '%s', or no unknown one", path,
                k->begin, k->end);
        goto out;
    }
    add_normalizer(out, s, k, config);
    add_template(out, k->begin, begin, k->end, end, k->typed);
    str_addf(out,
             ",\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
             "\"prepend_scheme\":\"always\",\"split\":true},\"model\":{\"type\":"
             "\"Unigram\",\"unk_id\":%zu,\"byte_fallback\":false,\"vocab\":[%s]}}",
             unk, str_text(&vocab));
    ret = 0;
out:
    str_clear(&vocab);
    return ret;
}

/* ---- BPE: Llama 1 and 2, Mistral, Gemma ---- */

enum { MOST_MERGES = 1 << 27 }; /* bytes of the list of merges, and of the JSON */

static long find_piece(const struct spm *s, const char *text)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->piece[i].text, text))
            return (long)i;
    return -1;
}

/* The token of the role NAME: CONFIG's, or OTHERWISE; -1: no such piece. */
static long role_piece(const struct spm *s, const cJSON *config, const char *name,
                       const char *otherwise)
{
    const cJSON *j = cJSON_GetObjectItemCaseSensitive(config, name);

    if (cJSON_IsObject(j))
        j = cJSON_GetObjectItemCaseSensitive(j, "content");
    return find_piece(s, cJSON_IsString(j) ? j->valuestring : otherwise);
}

static void add_merge_parts(struct str *out, const struct merges_piece *p,
                            uint32_t left)
{
    str_add(out, "[");
    str_add_jsonn(out, p->s, left);
    str_add(out, ",");
    str_add_jsonn(out, p->s + left, p->n - left);
    str_add(out, "]");
}

static int add_bpe_model(struct str *out, const char *path, const struct spm *s,
                         struct err *err)
{
    struct merges_piece *piece = xcalloc(s->n, sizeof(*piece));
    struct merge *merge;
    size_t n;
    int ret = 0;

    str_add(out, ",\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
    str_add_json(out, s->piece[s->unk].text);
    str_addf(out,
             ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
             "\"fuse_unk\":true,\"byte_fallback\":%s,\"ignore_merges\":false,"
             "\"vocab\":{",
             s->fallback ? "true" : "false");
    for (size_t i = 0; i < s->n; i++) {
        const struct piece *p = &s->piece[i];

        str_add(out, i ? "," : "");
        str_add_json(out, p->text);
        str_addf(out, ":%zu", i);
        piece[i] = (struct merges_piece){ .s = p->text,
                                          .n = strlen(p->text),
                                          .score = (float)p->score,
                                          .made = p->type == PIECE_NORMAL ||
                                                  p->type == PIECE_USER };
    }
    str_add(out, "},\"merges\":[");
    if (!merges_list(&merge, &n, piece, (uint32_t)s->n, MOST_MERGES))
        ret = err_set(err, ERR_INPUT, "%s: too many merges", path);
    for (size_t i = 0; ret == 0 && i < n; i++) {
        str_add(out, i ? "," : "");
        add_merge_parts(out, &piece[merge[i].piece], merge[i].left);
        if (out->len > MOST_MERGES)
            ret = err_set(err, ERR_INPUT, "%s: too many merges", path);
    }
    str_add(out, "]}}");
    free(merge);
    free(piece);
    return ret;
}

/* The tokens around a text: add_bos_token (by default) and add_eos_token. */
static int add_bpe_frame(struct str *out, const char *path, const struct spm *s,
                         const cJSON *config, struct err *err)
{
    bool adds[2] = { setting_flag(config, "add_bos_token", true),
                     setting_flag(config, "add_eos_token", false) };
    long id[2] = { role_piece(s, config, "bos_token", "<s>"),
                   role_piece(s, config, "eos_token", "</s>") };
    bool first = true;

    for (int k = 0; k < 2; k++)
        if (adds[k] && id[k] < 0)
            return err_set(err, ERR_INPUT, "%s: no piece for the %s of a text", path,
                           k ? "end" : "beginning");
    if (!adds[0] && !adds[1])
        return 0;
    str_add(out, ",\"post_processor\":{\"type\":\"TemplateProcessing\"");
    for (int pair = 0; pair < 2; pair++) {
        str_add(out, pair ? ",\"pair\":[" : ",\"single\":[");
        for (int text = 0; text <= pair; text++) {
            str_add(out, text ? "," : "");
            if (adds[0]) {
                add_special(out, s->piece[id[0]].text, text);
                str_add(out, ",");
            }
            str_addf(out, "{\"Sequence\":{\"id\":\"%s\",\"type_id\":%d}}",
                     text ? "B" : "A", text);
            if (adds[1]) {
                str_add(out, ",");
                add_special(out, s->piece[id[1]].text, text);
            }
        }
        str_add(out, "]");
    }
    str_add(out, ",\"special_tokens\":{");
    for (int k = 0; k < 2; k++) {
        const char *text = adds[k] ? s->piece[id[k]].text : NULL;

        if (!text || (k && adds[0] && id[0] == id[1]))
            continue;
        str_add(out, first ? "" : ",");
        str_add_json(out, text);
        str_add(out, ":{\"id\":");
        str_add_json(out, text);
        str_addf(out, ",\"ids\":[%ld],\"tokens\":[", id[k]);
        str_add_json(out, text);
        str_add(out, "]}");
        first = false;
    }
    str_add(out, "}}");
    return 0;
}

/* Adds the rules of SentencePiece's normalizer; with SPACES also those that make spaces
 * pieces, and one before a text if PREFIX. */
static void add_bpe_rules(struct str *out, const struct spm *s, bool spaces,
                          bool prefix)
{
    const char *comma = "";

    str_add(out, ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    if (s->charsmap.p < s->charsmap.end) {
        str_add(out, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
        base64_encode(s->charsmap.p, (size_t)(s->charsmap.end - s->charsmap.p), out);
        str_add(out, "\"}");
        comma = ",";
    }
    if (s->squeeze) {
        str_addf(out,
                 "%s{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},"
                 "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},"
                 "\"content\":\" \"}",
                 comma);
        comma = ",";
    }
    if (spaces && prefix) {
        str_addf(out, "%s{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"}", comma);
        comma = ",";
    }
    if (spaces)
        str_addf(out,
                 "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                 "\"content\":\"\xe2\x96\x81\"}",
                 comma);
    str_add(out, "]}");
}

/* As SentencePiece encodes a text, and as the tokenizer.json of Llama 2 and Mistral has
 * it.  With "legacy": false, a space is put before the first piece alone, and not
 * before another space: so does transformers' LlamaTokenizer. */
static int write_bpe(struct str *out, const char *path, const struct spm *s,
                     const cJSON *config, struct err *err)
{
    bool prefix = setting_flag(config, "add_prefix_space", s->prefix);
    bool legacy = setting_flag(config, "legacy", true);

    if (s->unk >= s->n)
        return err_set(err, ERR_INPUT, "%s: no unknown piece", path);
    str_add(out, "{\"added_tokens\":[");
    for (size_t i = 0; i < s->n; i++)
        if (s->piece[i].type == PIECE_CONTROL || s->piece[i].type == PIECE_UNKNOWN ||
            s->piece[i].type == PIECE_USER)
            add_added(out, i, s->piece[i].text, s->piece[i].type != PIECE_USER);
    str_add(out, "]");
    add_bpe_rules(out, s, legacy, prefix);
    if (!legacy)
        str_addf(out,
                 ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
                 "\"\xe2\x96\x81\",\"prepend_scheme\":\"%s\",\"split\":false}",
                 prefix ? "first" : "never");
    str_addf(out,
             ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
             "\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":"
             "\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}%s]}",
             prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"
                    : "");
    if (add_bpe_frame(out, path, s, config, err) < 0)
        return -1;
    return add_bpe_model(out, path, s, err);
}

int oldfiles_sentencepiece(struct str *out, const char *path, const void *model,
                           size_t n, const char *model_type, const cJSON *config,
                           struct err *err)
{
    const unsigned char *p = model;
    const struct kind *k = find_kind(model_type);
    struct spm s = { .model = MODEL_UNIGRAM, .prefix = true, .squeeze = true };
    int ret;

    if (!read_model(&s, (struct proto){ p, p + n }))
        ret = err_set(err, ERR_INPUT, "%s: no SentencePiece model", path);
    else if (s.model == MODEL_BPE)
        ret = write_bpe(out, path, &s, config, err);
    else if (s.model != MODEL_UNIGRAM)
        ret = err_set(err, ERR_INPUT,
                      "%s: a SentencePiece model, but neither Unigram nor BPE", path);
    else if (!k)
        ret = err_set(err, ERR_INPUT,
                      "%s: pieces of a model of type '%s' are read only from "
                      "tokenizer.json",
                      path, model_type ? model_type : "?");
    else
        ret = write_unigram(out, path, &s, k, config, err);
    for (size_t i = 0; i < s.n; i++)
        free(s.piece[i].text);
    free(s.piece);
    return ret;
}

/* ---- files ---- */

/* Reads the JSON file NAME of DIR; *out is NULL if it does not exist. */
static int read_json(cJSON **out, const char *dir, const char *name, struct err *err)
{
    char *path = fs_join_dup(dir, name), *text = NULL;
    int ret = fs_read_optional(&text, NULL, path, MOST_CONFIG, err);

    *out = NULL;
    if (ret == 0 && text) {
        ret = json_check_cost(path, text, strlen(text), err);
        if (ret == 0 && !(*out = cJSON_Parse(text)))
            ret = err_set(err, ERR_INPUT, "%s: not valid JSON", path);
        if (ret == 0 && !cJSON_IsObject(*out)) {
            cJSON_Delete(*out);
            *out = NULL;
            ret = err_set(err, ERR_INPUT, "%s: not a JSON object", path);
        }
    }
    free(text);
    free(path);
    return ret;
}

/* ---- vocab.json and merges.txt ---- */

/* Byte-level BPE tokenizers: GPT-2's, and RoBERTa's, which also adds special tokens
 * around a text. */
static const struct bytes_kind {
    const char *classes[4], *types[8];
    const char *special[7]; /* defaults, in the order of roles */
    bool around;
} byte_kinds[] = {
    { .classes = { "GPT2Tokenizer", "CodeGenTokenizer" },
      .types = { "gpt2", "gpt_neo", "gptj", "codegen", "phi", "starcoder2", "opt" },
      .special = { "<|endoftext|>", "<|endoftext|>", "<|endoftext|>" } },
    { .classes = { "RobertaTokenizer", "BartTokenizer", "LongformerTokenizer",
                   "LEDTokenizer" },
      .types = { "roberta", "ibert", "longformer", "bart", "led" },
      .special = { "<s>", "</s>", "<unk>", "<pad>", "<s>", "</s>", "<mask>" },
      .around = true },
};
enum { ROLE_BOS, ROLE_EOS, ROLE_UNK, ROLE_PAD, ROLE_CLS, ROLE_SEP, ROLE_MASK, ROLES };
static const char *const roles[ROLES] = { "bos_token", "eos_token", "unk_token",
                                          "pad_token", "cls_token", "sep_token",
                                          "mask_token" };

/* Is NAME[len] one of LIST, of at most MOST? */
static bool is_listed(const char *const *list, size_t most, const char *name,
                      size_t len)
{
    for (size_t i = 0; i < most && list[i]; i++)
        if (strlen(list[i]) == len && !memcmp(list[i], name, len))
            return true;
    return false;
}

static const struct bytes_kind *find_bytes(const cJSON *config, const char *type)
{
    const char *name = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(config, "tokenizer_class"));
    size_t len = name ? strlen(name) : 0;

    if (len > 4 && !strcmp(name + len - 4, "Fast"))
        len -= 4;
    for (size_t i = 0; i < sizeof(byte_kinds) / sizeof(*byte_kinds); i++)
        if (name ? is_listed(byte_kinds[i].classes, 4, name, len)
                 : type && is_listed(byte_kinds[i].types, 8, type, strlen(type)))
            return &byte_kinds[i];
    return NULL;
}

/* Inputs of the conversion. */
struct byte_files {
    const struct bytes_kind *kind;
    const char *path;
    cJSON *vocab, *added, *config, *map;
    const char *special[ROLES];
};

/* Reads the special tokens: from tokenizer_config.json, else special_tokens_map.json,
 * else the defaults. */
static void find_special(struct byte_files *f)
{
    const cJSON *from[] = { f->config, f->map };

    for (int k = 0; k < ROLES; k++) {
        const cJSON *found = NULL;

        for (int i = 0; i < 2 && !found; i++)
            found = cJSON_GetObjectItemCaseSensitive(from[i], roles[k]);
        f->special[k] = f->kind->special[k];
        if (cJSON_IsObject(found))
            found = cJSON_GetObjectItemCaseSensitive(found, "content");
        if (cJSON_IsString(found))
            f->special[k] = found->valuestring;
    }
}

/* The id of TEXT in added_tokens.json or vocab.json, or -1. */
static long id_of(const struct byte_files *f, const char *text)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(f->added, text);

    id = id ? id : cJSON_GetObjectItemCaseSensitive(f->vocab, text);
    return cJSON_IsNumber(id) && id->valuedouble >= 0 && id->valuedouble < 1 << 30
               ? (long)id->valuedouble
               : -1;
}

static bool is_role(const struct byte_files *f, const char *text)
{
    for (int k = 0; k < ROLES; k++)
        if (f->special[k] && !strcmp(f->special[k], text))
            return true;
    return false;
}

struct byte_token {
    size_t id;
    const char *text;
    bool special;
};

static int by_id(const void *a, const void *b)
{
    const struct byte_token *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

static int add_byte_tokens(struct str *out, const struct byte_files *f, struct err *err)
{
    size_t n = 0, most = ROLES + (size_t)cJSON_GetArraySize(f->added);
    struct byte_token *token = xcalloc(most, sizeof(*token));
    const cJSON *one;
    int ret = 0;

    for (int k = 0; k < ROLES && ret == 0; k++) {
        const char *text = f->special[k];
        bool before = !text;

        for (size_t i = 0; i < n && !before; i++)
            before = !strcmp(token[i].text, text);
        if (!before && id_of(f, text) < 0)
            ret =
                err_set(err, ERR_INPUT, "%s: no '%s', the %s", f->path, text, roles[k]);
        else if (!before)
            token[n++] = (struct byte_token){ (size_t)id_of(f, text), text, true };
    }
    cJSON_ArrayForEach(one, f->added)
    {
        if (!is_role(f, one->string) && id_of(f, one->string) >= 0)
            token[n++] = (struct byte_token){ (size_t)id_of(f, one->string),
                                              one->string, false };
    }
    qsort(token, n, sizeof(*token), by_id);
    str_add(out, "{\"added_tokens\":[");
    for (size_t i = 0; i < n; i++)
        add_added(out, token[i].id, token[i].text, token[i].special);
    str_add(out, "]");
    free(token);
    return ret;
}

/* Adds a post-processor that prepends the BOS token (add_bos_token). */
static void add_begin(struct str *out, const struct byte_files *f)
{
    const char *begin = f->special[ROLE_BOS];

    str_add(out, ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
    add_special(out, begin, 0);
    str_add(out, ",{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[");
    add_special(out, begin, 0);
    str_add(out, ",{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},");
    add_special(out, begin, 1);
    str_add(out, ",{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{");
    str_add_json(out, begin);
    str_add(out, ":{\"id\":");
    str_add_json(out, begin);
    str_addf(out, ",\"ids\":[%ld],\"tokens\":[", id_of(f, begin));
    str_add_json(out, begin);
    str_add(out, "]}}}");
}

/* Converts TEXT[len], which has one merge of two tokens per line; skips the version
 * line.  Modifies TEXT. */
static int add_merges(struct str *out, const char *path, char *text, size_t len,
                      struct err *err)
{
    bool first = true;

    if (strlen(text) < len || !str_is_utf8(text, len))
        return err_set(err, ERR_INPUT, "%s: not UTF-8", path);
    for (char *p = text, *next; p < text + len; p = next) {
        next = end_line(p, text + len);
        if (!*p || str_starts(p, "#version"))
            continue;
        str_add(out, first ? "" : ",");
        str_add_json(out, p);
        first = false;
    }
    return 0;
}

static int write_bytes(struct str *out, const struct byte_files *f, const char *vocab,
                       const char *merges_path, char *merges, size_t len,
                       struct err *err)
{
    const char *space =
        setting_flag(f->config, "add_prefix_space", false) ? "true" : "false";

    if (add_byte_tokens(out, f, err) < 0)
        return -1;
    str_addf(out,
             ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,"
             "\"trim_offsets\":true,\"use_regex\":true},\"decoder\":{\"type\":"
             "\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
             "\"use_regex\":true}",
             space);
    if (f->kind->around) {
        const char *name[] = { f->special[ROLE_SEP], f->special[ROLE_CLS] };

        str_add(out, ",\"post_processor\":{\"type\":\"RobertaProcessing\"");
        for (int i = 0; i < 2; i++) {
            str_add(out, i ? ",\"cls\":[" : ",\"sep\":[");
            str_add_json(out, name[i]);
            str_addf(out, ",%ld]", id_of(f, name[i]));
        }
        str_addf(out, ",\"trim_offsets\":true,\"add_prefix_space\":%s}", space);
    } else if (setting_flag(f->config, "add_bos_token", false)) {
        add_begin(out, f);
    }
    str_addf(out,
             ",\"model\":{\"type\":\"BPE\",\"continuing_subword_prefix\":\"\","
             "\"end_of_word_suffix\":\"\",\"vocab\":%s,\"merges\":[",
             vocab);
    if (add_merges(out, merges_path, merges, len, err) < 0)
        return -1;
    str_add(out, "]}}");
    return 0;
}

/* Converts vocab.json and merges.txt of DIR; both exist. */
static int open_bytes(struct tokenizer **out, const char *dir, const char *path,
                      const char *merges_path, const char *model_type, struct err *err)
{
    struct byte_files f = { .path = path };
    char *vocab = NULL, *merges = NULL;
    struct str json = { 0 };
    size_t n, len;
    int ret = -1;

    if (read_json(&f.config, dir, "tokenizer_config.json", err) < 0 ||
        read_json(&f.map, dir, "special_tokens_map.json", err) < 0 ||
        read_json(&f.added, dir, "added_tokens.json", err) < 0 ||
        read_json(&f.vocab, dir, "vocab.json", err) < 0 ||
        fs_read_regular(&vocab, &n, path, MOST, err) < 0 ||
        fs_read_regular(&merges, &len, merges_path, MOST, err) < 0)
        goto out;
    f.kind = find_bytes(f.config, model_type);
    if (!f.kind) {
        err_set(err, ERR_INPUT,
                "%s: the tokenizer of a model of type '%s' is read only from "
                "tokenizer.json",
                path, model_type ? model_type : "?");
        goto out;
    }
    if (!f.vocab || strlen(vocab) < n) {
        err_set(err, ERR_INPUT, "%s: no vocabulary", path);
        goto out;
    }
    find_special(&f);
    if (write_bytes(&json, &f, vocab, merges_path, merges, len, err) == 0)
        ret = tokenizer_parse(out, path, str_text(&json), err);
out:
    cJSON_Delete(f.config);
    cJSON_Delete(f.map);
    cJSON_Delete(f.added);
    cJSON_Delete(f.vocab);
    str_clear(&json);
    free(vocab);
    free(merges);
    return ret;
}

/* Calls open_bytes if both files exist; otherwise *out is NULL. */
static int try_bytes(struct tokenizer **out, const char *dir, const char *model_type,
                     struct err *err)
{
    char *vocab = fs_join_dup(dir, "vocab.json");
    char *merges = fs_join_dup(dir, "merges.txt");
    bool has_vocab, has_merges;
    int ret = -1;

    if (fs_find(&has_vocab, vocab, err) == 0 && fs_find(&has_merges, merges, err) == 0)
        ret = has_vocab && has_merges
                  ? open_bytes(out, dir, vocab, merges, model_type, err)
                  : 0;
    free(vocab);
    free(merges);
    return ret;
}

int oldfiles_open(struct tokenizer **out, const char *dir, const char *model_type,
                  struct err *err)
{
    static const char *const files[] = { "vocab.txt",       "spiece.model",
                                         "spm.model",       "sentencepiece.bpe.model",
                                         "tokenizer.model", "tekken.json" };
    struct str json = { 0 };
    char *path = NULL, *bytes = NULL;
    cJSON *config = NULL;
    size_t n, i = 0;
    bool found = false;
    int ret = -1;

    *out = NULL;
    for (; !found && i < sizeof(files) / sizeof(*files); i++)
        if (fs_find_in(&found, dir, files[i], err) < 0)
            return -1;
    if (found)
        path = fs_join_dup(dir, files[--i]);
    else
        return try_bytes(out, dir, model_type, err);
    if (fs_read_regular(&bytes, &n, path, MOST, err) < 0 ||
        read_json(&config, dir, "tokenizer_config.json", err) < 0)
        goto out;
    if (!i)
        ret = read_words(&json, path, bytes, n, config, err);
    else if (i == sizeof(files) / sizeof(*files) - 1)
        ret = tekken_convert(&json, path, bytes, n, err);
    else
        ret = oldfiles_sentencepiece(&json, path, bytes, n, model_type, config, err);
    if (ret == 0)
        ret = tokenizer_parse(out, path, str_text(&json), err);
out:
    cJSON_Delete(config);
    str_clear(&json);
    free(bytes);
    free(path);
    return ret;
}

int oldfiles_open_file(struct tokenizer **out, const char *path, struct err *err)
{
    const char *name = fs_basename(path);
    bool tekken = !strcmp(name, "tekken.json");
    struct str json = { 0 };
    char *bytes = NULL, *dir;
    cJSON *config = NULL;
    size_t n;
    int ret = -1;

    *out = NULL;
    if (!tekken && !str_ends(name, ".model"))
        return 0;
    dir = fs_dirname_dup(path);
    if (fs_read_regular(&bytes, &n, path, MOST, err) < 0 ||
        read_json(&config, dir, "tokenizer_config.json", err) < 0)
        goto out;
    ret = tekken ? tekken_convert(&json, path, bytes, n, err)
                 : oldfiles_sentencepiece(&json, path, bytes, n, NULL, config, err);
    if (ret == 0)
        ret = tokenizer_parse(out, path, str_text(&json), err);
out:
    cJSON_Delete(config);
    str_clear(&json);
    free(bytes);
    free(dir);
    return ret;
}
