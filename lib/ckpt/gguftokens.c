/* gguftokens - the tokenizer in a GGUF file's metadata as a tokenizer.json */
#include "lib/ckpt/gguftokens.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/merges.h"

static const char GGML[] = "tokenizer.ggml";

/* What a token is. */
enum kind {
    KIND_NORMAL = 1,
    KIND_UNKNOWN,
    KIND_CONTROL,
    KIND_USER,
    KIND_UNUSED,
    KIND_BYTE
};

/* ---- pre-tokenizers ---- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2                                        \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| " \
    "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define WORDS(digits)                                     \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASES                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" CAPITALS "*" SMALL "+" CONTRACTIONS   \
    "?|[^\\r\\n\\p{L}\\p{N}]?" CAPITALS "+" SMALL "*" CONTRACTIONS \
    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Names of tokenizer.ggml.pre, and the patterns that cut a text, each what the last one
 * left. */
static const struct pre {
    const char *names[10];
    const char *pattern[5];
    bool whole; /* a word of the vocabulary is not made of merges */
    bool bos;   /* a text begins with one where nothing else is said */
} pres[] = {
    { .names = { "gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe",
                 "modern-bert" },
      .pattern = { GPT2 } },
    { .names = { "starcoder", "refact", "command-r", "smollm", "codeshell", "exaone" },
      .pattern = { "\\p{N}", GPT2 } },
    { .names = { "llama-bpe", "llama3", "llama-v3" },
      .pattern = { WORDS("\\p{N}{1,3}") },
      .whole = true,
      .bos = true },
    { .names = { "falcon3", "pixtral", "lfm2", "smaug-bpe", "dbrx", "chatglm-bpe" },
      .pattern = { WORDS("\\p{N}{1,3}") } },
    { .names = { "qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "grok-2" },
      .pattern = { WORDS("\\p{N}") } },
    { .names = { "qwen35" },
      .pattern = { CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
                                "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+"
                                "(?!\\S)|\\s+" } },
    { .names = { "deepseek-coder" },
      .pattern = { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
                   "[\xe4\xb8\x80-\xe9\xbe\xa5\xe0\xa0\x80-\xe4\xb8\x80\xea\xb0\x80-"
                   "\xed\x9f\xbf]+",
                   "\\p{N}" } },
    { .names = { "gpt-4o", "llama4" }, .pattern = { CASES } },
    { .names = { "falcon" },
      .pattern = { "[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]" } },
};

enum { NPRES = sizeof(pres) / sizeof(*pres), MOST_NAMES = 10, MOST_PATTERNS = 5 };

static const struct pre *find_pre(const struct gguf_value *v)
{
    for (size_t i = 0; i < NPRES; i++)
        for (int k = 0; k < MOST_NAMES && pres[i].names[k]; k++)
            if (gguf_is(v, pres[i].names[k]))
                return &pres[i];
    return NULL;
}

/* ---- the parts ---- */

struct making {
    const struct gguf *g;
    struct str *out;
    const struct gguf_value *tokens;
    uint64_t n;
    uint64_t limit; /* bytes of the result */
};

static const struct gguf_value *get(const struct making *m, const char *name)
{
    return gguf_get(m->g, GGML, name);
}

static int wrong(const struct making *m, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: its tokenizer: %s", m->g->path, what);
}

static enum kind kind_of(const struct making *m, uint64_t i)
{
    double kind;

    return gguf_number(get(m, "token_type"), i, &kind) && kind >= KIND_NORMAL &&
                   kind <= KIND_BYTE
               ? (enum kind)(int)kind
               : KIND_NORMAL;
}

static void add_text(struct making *m, const struct gguf_text *t)
{
    str_add_jsonn(m->out, t->s, (size_t)t->n);
}

static void add_added(struct making *m)
{
    bool first = true;

    str_add(m->out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
                    "\"added_tokens\":[");
    for (uint64_t i = 0; i < m->n; i++) {
        enum kind kind = kind_of(m, i);
        bool special = kind == KIND_CONTROL || kind == KIND_UNKNOWN;

        if (!m->tokens->text[i].n || (!special && kind != KIND_USER))
            continue;
        str_addf(m->out, "%s{\"id\":%" PRIu64 ",\"content\":", first ? "" : ",", i);
        add_text(m, &m->tokens->text[i]);
        str_addf(m->out,
                 ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                 "\"normalized\":false,\"special\":%s}",
                 special ? "true" : "false");
        first = false;
    }
    str_addc(m->out, ']');
}

/* The token of the key NAME; NULL: there is none. */
static const struct gguf_text *find_token(const struct making *m, const char *name,
                                          uint64_t *id)
{
    double x;

    if (!gguf_number(get(m, name), 0, &x) || !(x >= 0 && x < (double)m->n))
        return NULL;
    *id = (uint64_t)x;
    return &m->tokens->text[*id];
}

/* Is the token KEY added to a text?  UNSAID: where the file does not say. */
static bool adds(const struct making *m, const char *key, bool unsaid)
{
    double on;

    return gguf_number(get(m, key), 0, &on) ? on != 0 : unsaid;
}

static void add_role(struct making *m, const struct gguf_text *t, const char *more)
{
    str_add(m->out, "{\"SpecialToken\":{\"id\":");
    add_text(m, t);
    str_addf(m->out, ",\"type_id\":0}}%s", more);
}

/* The tokens around a text. */
static void add_frame(struct making *m, bool bos)
{
    uint64_t first = 0, last = 0;
    const struct gguf_text *begin =
        adds(m, "add_bos_token", bos) ? find_token(m, "bos_token_id", &first) : NULL;
    const struct gguf_text *end =
        adds(m, "add_eos_token", false) ? find_token(m, "eos_token_id", &last) : NULL;

    str_add(m->out, ",\"post_processor\":");
    if (!begin && !end) {
        str_add(m->out, "null");
        return;
    }
    str_add(m->out, "{\"type\":\"TemplateProcessing\",\"single\":[");
    if (begin)
        add_role(m, begin, ",");
    str_add(m->out, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}");
    if (end) {
        str_addc(m->out, ',');
        add_role(m, end, "");
    }
    str_add(m->out,
            "],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
            "{\"Sequence\":{\"id\":\"B\",\"type_id\":0}}],\"special_tokens\":{");
    for (int k = 0; k < 2; k++) {
        const struct gguf_text *t = k ? end : begin;

        if (!t || (k && begin && first == last))
            continue;
        str_add(m->out, k && begin ? "," : "");
        add_text(m, t);
        str_add(m->out, ":{\"id\":");
        add_text(m, t);
        str_addf(m->out, ",\"ids\":[%" PRIu64 "],\"tokens\":[", k ? last : first);
        add_text(m, t);
        str_add(m->out, "]}");
    }
    str_add(m->out, "}}");
}

static void add_vocabulary(struct making *m)
{
    str_add(m->out, ",\"vocab\":{");
    for (uint64_t i = 0; i < m->n; i++) {
        str_add(m->out, i ? "," : "");
        add_text(m, &m->tokens->text[i]);
        str_addf(m->out, ":%" PRIu64, i);
    }
    str_add(m->out, "},\"merges\":[");
}

/* Adds the merge of the N bytes at LEFT and the K bytes after them. */
static int add_merge(struct making *m, bool first, const char *left, size_t n,
                     const char *right, size_t k, struct err *err)
{
    str_add(m->out, first ? "[" : ",[");
    str_add_jsonn(m->out, left, n);
    str_addc(m->out, ',');
    str_add_jsonn(m->out, right, k);
    str_addc(m->out, ']');
    return m->out->len <= m->limit ? 0 : mem_refuse(m->g->path, m->g->head, err);
}

/* ---- byte-level BPE ---- */

static void add_patterns(struct making *m, const struct pre *pre)
{
    str_add(m->out, ",\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\","
                    "\"pretokenizers\":[");
    for (int k = 0; k < MOST_PATTERNS && pre->pattern[k]; k++) {
        str_add(m->out, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        str_add_json(m->out, pre->pattern[k]);
        str_add(m->out, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    str_add(m->out, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                    "\"trim_offsets\":true,\"use_regex\":false}]}");
}

static int add_bytes(struct making *m, struct err *err)
{
    const struct gguf_value *name = get(m, "pre"), *merges = get(m, "merges");
    const struct pre *pre = find_pre(name);
    const struct gguf_text *said = gguf_string(name);

    if (!pre)
        return err_set(err, ERR_INPUT,
                       "%s: its tokenizer: how pre-tokenizer '%.*s' cuts a text is not "
                       "known",
                       m->g->path, said && said->n < 64 ? (int)said->n : 0,
                       said ? said->s : "");
    if (!merges || merges->kind != GGUF_TEXT)
        return wrong(m, "no merges", err);
    add_patterns(m, pre);
    add_frame(m, pre->bos);
    str_add(m->out, ",\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                    "\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":"
                    "\"BPE\",\"dropout\":null,\"unk_token\":null,"
                    "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                    "\"fuse_unk\":false,\"byte_fallback\":false");
    str_addf(m->out, ",\"ignore_merges\":%s", pre->whole ? "true" : "false");
    add_vocabulary(m);
    for (uint64_t i = 0; i < merges->n; i++) {
        const struct gguf_text *t = &merges->text[i];
        const char *cut = t->n > 1 ? memchr(t->s + 1, ' ', (size_t)t->n - 1) : NULL;

        if (!cut)
            return wrong(m, "a merge without a space", err);
        if (add_merge(m, !i, t->s, (size_t)(cut - t->s), cut + 1,
                      (size_t)(t->s + t->n - cut - 1), err) < 0)
            return -1;
    }
    str_add(m->out, "]}}\n");
    return 1;
}

/* ---- SentencePiece ---- */

/* Lists all pairs of pieces that make a piece. */
static int list_merges(struct making *m, struct merge **out, size_t *n, struct err *err)
{
    const struct gguf_value *scores = get(m, "scores");
    struct merges_piece *piece = xcalloc((size_t)m->n, sizeof(*piece));
    int ret = 0;

    *out = NULL;
    for (uint64_t i = 0; i < m->n && ret == 0; i++) {
        const struct gguf_text *t = &m->tokens->text[i];
        enum kind kind = kind_of(m, i);
        double score = 0;

        piece[i] = (struct merges_piece){ .s = t->s, .n = (size_t)t->n };
        piece[i].made = kind == KIND_NORMAL || kind == KIND_USER;
        if (piece[i].made && (!gguf_number(scores, i, &score) || score != score))
            ret = wrong(m, "a piece without a score", err);
        piece[i].score = (float)score;
    }
    if (ret == 0 && !merges_list(out, n, piece, (uint32_t)m->n, m->limit))
        ret = mem_refuse(m->g->path, m->g->head, err);
    free(piece);
    return ret;
}

static void add_pieces_stages(struct making *m)
{
    bool prefix = adds(m, "add_space_prefix", true);

    str_addf(m->out,
             ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s"
             "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
             "\"\xe2\x96\x81\"}]},\"pre_tokenizer\":null",
             prefix ? "{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"}," : "");
    add_frame(m, true);
    str_addf(m->out,
             ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
             "\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":"
             "\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}%s]}",
             prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"
                    : "");
}

static int add_pieces(struct making *m, struct err *err)
{
    struct merge *merge = NULL;
    uint64_t id = 0;
    const struct gguf_text *unknown = find_token(m, "unknown_token_id", &id);
    size_t n = 0;
    int ret = list_merges(m, &merge, &n, err);

    if (ret < 0)
        goto out;
    add_pieces_stages(m);
    str_add(m->out, ",\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
    if (!unknown && m->n)
        unknown = &m->tokens->text[0];
    add_text(m, unknown);
    str_add(m->out, ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                    "\"fuse_unk\":true,\"byte_fallback\":true,\"ignore_merges\":false");
    add_vocabulary(m);
    for (size_t i = 0; i < n && ret == 0; i++) {
        const struct gguf_text *t = &m->tokens->text[merge[i].piece];

        ret = add_merge(m, !i, t->s, merge[i].left, t->s + merge[i].left,
                        (size_t)t->n - merge[i].left, err);
    }
    str_add(m->out, "]}}\n");
out:
    free(merge);
    return ret < 0 ? -1 : 1;
}

int gguf_tokenizer(struct str *out, const struct gguf *g, struct err *err)
{
    struct making m = { .g = g, .out = out, .limit = mem_allowance(g->head) };
    const struct gguf_value *model = get(&m, "model");
    const struct gguf_text *said = gguf_string(model);

    m.tokens = get(&m, "tokens");
    if (!model || !m.tokens)
        return 0;
    if (m.tokens->kind != GGUF_TEXT || !m.tokens->n || m.tokens->n >= UINT32_MAX / 4)
        return wrong(&m, "no tokens", err);
    m.n = m.tokens->n;
    for (uint64_t i = 0; i < m.n; i++)
        if (!str_is_utf8(m.tokens->text[i].s, (size_t)m.tokens->text[i].n))
            return wrong(&m, "a token that is no UTF-8", err);
    add_added(&m);
    if (gguf_is(model, "gpt2"))
        return add_bytes(&m, err);
    if (gguf_is(model, "llama"))
        return add_pieces(&m, err);
    return err_set(err, ERR_INPUT,
                   "%s: its tokenizer: of model '%.*s', which is not read", g->path,
                   said && said->n < 64 ? (int)said->n : 0, said ? said->s : "");
}

int gguf_read_tokenizer(char **text, const char *path, struct err *err)
{
    struct str out = { 0 };
    unsigned char magic[4];
    struct gguf g;
    int fd = fs_open_regular(path, NULL), ret = 0;

    *text = NULL;
    if (fd < 0) /* who reads the file tells why it cannot be read */
        return 0;
    if (pread(fd, magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) &&
        !memcmp(magic, "GGUF", sizeof(magic))) {
        ret = gguf_open(&g, fd, path, err);
        if (ret == 0) {
            ret = gguf_tokenizer(&out, &g, err);
            gguf_clear(&g);
        }
        if (ret > 0)
            *text = str_steal(&out);
    }
    close(fd);
    str_clear(&out);
    return ret < 0 ? -1 : 0;
}
