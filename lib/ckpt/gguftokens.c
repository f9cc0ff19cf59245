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

/* ---- writing ---- */

struct writing {
    struct ggufwriter *w;
    const struct gguftokens *t;
    const struct json *model;
    const char **text;   /* [n] of each token, or NULL */
    unsigned char *kind; /* [n] */
    uint64_t n;
    bool pieces; /* SentencePiece's */
};

static int refuse(const struct writing *m, const char *what, struct err *err)
{
    return err_set(err, ERR_NO, "%s: %s: GGUF cannot represent it", m->t->path, what);
}

static bool is_text(const struct json *j, const char *text)
{
    return json_string(j) && !strcmp(json_string(j), text);
}

/* Sets token ID, which may be added. */
static int set_token(struct writing *m, const struct json *id, const char *text,
                     enum kind kind, struct err *err)
{
    uint64_t i;

    if (!json_u64(id, &i) || !text)
        return refuse(m, "a token without a number", err);
    if (i >= m->n)
        return err_set(err, ERR_NO,
                       "%s: token %llu is beyond the %llu rows of the model",
                       m->t->path, (unsigned long long)i, (unsigned long long)m->n);
    m->text[i] = text;
    m->kind[i] = (unsigned char)kind;
    return 0;
}

static int list_tokens(struct writing *m, struct err *err)
{
    const struct json *vocab = json_get(m->model, "vocab");
    const struct json *added = json_get(m->t->tokenizer, "added_tokens");
    const char *unknown = json_string(json_get(m->model, "unk_token"));

    if (!vocab || vocab->type != JSON_OBJECT)
        return refuse(m, "no vocab", err);
    for (const struct json *j = vocab->first; j; j = j->next)
        if (set_token(m, j, j->key,
                      m->pieces && strlen(j->key) == 6 && str_starts(j->key, "<0x")
                          ? KIND_BYTE
                          : KIND_NORMAL,
                      err) < 0)
            return -1;
    for (const struct json *j = added ? added->first : NULL; j; j = j->next) {
        const char *text = json_string(json_get(j, "content"));
        bool special = json_is_true(json_get(j, "special"));

        if (set_token(m, json_get(j, "id"), text,
                      m->pieces && text && unknown && !strcmp(text, unknown)
                          ? KIND_UNKNOWN
                      : special ? KIND_CONTROL
                                : KIND_USER,
                      err) < 0)
            return -1;
    }
    return 0;
}

static void write_tokens(struct writing *m)
{
    ggufwriter_list(m->w, GGML, "tokens", GGUF_TEXT, m->n);
    for (uint64_t i = 0; i < m->n; i++) {
        char *made = m->text[i] ? NULL : str_dupf("[PAD%llu]", (unsigned long long)i);
        const char *text = made ? made : m->text[i];

        ggufwriter_item_text(m->w, text, strlen(text));
        free(made);
    }
    ggufwriter_list(m->w, GGML, "token_type", GGUF_I32, m->n);
    for (uint64_t i = 0; i < m->n; i++)
        ggufwriter_item_i32(m->w, m->text[i] ? m->kind[i] : KIND_UNUSED);
}

/* The two parts of the merge J; the caller frees *kept, or NULL. */
static bool split_merge(const struct json *j, const char **left, const char **right,
                        char **kept)
{
    char *space;

    *kept = NULL;
    if (j->type == JSON_ARRAY && j->n == 2) {
        *left = json_string(j->first);
        *right = json_string(j->first->next);
        return *left && *right;
    }
    if (!json_string(j))
        return false;
    *kept = xstrdup(j->text);
    space = **kept ? strchr(*kept + 1, ' ') : NULL;
    if (!space)
        return false;
    *space = '\0';
    *left = *kept;
    *right = space + 1;
    return true;
}

/* ---- writing byte-level BPE ---- */

/* Adds the patterns by which the pre-tokenizer J cuts; false: it does other things. */
static bool list_patterns(const struct json *j, const char **out, int *n)
{
    const struct json *type = json_get(j, "type"), *pattern = json_get(j, "pattern");

    if (is_text(type, "Sequence")) {
        const struct json *list = json_get(j, "pretokenizers");

        for (j = list ? list->first : NULL; j; j = j->next)
            if (!list_patterns(j, out, n))
                return false;
        return true;
    }
    if (*n == MOST_PATTERNS)
        return false;
    if (is_text(type, "ByteLevel")) {
        if (json_is_true(json_get(j, "add_prefix_space")))
            return false;
        if (json_is_true(json_get(j, "use_regex")))
            out[(*n)++] = GPT2;
        return true;
    }
    if (is_text(type, "Digits") && json_is_true(json_get(j, "individual_digits"))) {
        out[(*n)++] = "\\p{N}";
        return true;
    }
    if (!is_text(type, "Split") || !is_text(json_get(j, "behavior"), "Isolated") ||
        json_is_true(json_get(j, "invert")) || !json_string(json_get(pattern, "Regex")))
        return false;
    out[(*n)++] = json_string(json_get(pattern, "Regex"));
    return true;
}

static const struct pre *match_pre(const struct writing *m)
{
    bool whole = json_is_true(json_get(m->model, "ignore_merges"));
    const char *pattern[MOST_PATTERNS];
    int n = 0;

    if (!list_patterns(json_get(m->t->tokenizer, "pre_tokenizer"), pattern, &n))
        return NULL;
    for (size_t i = 0; i < NPRES; i++) {
        int k = 0;

        while (k < n && pres[i].pattern[k] && !strcmp(pres[i].pattern[k], pattern[k]))
            k++;
        if (k == n && (k == MOST_PATTERNS || !pres[i].pattern[k]) &&
            pres[i].whole == whole)
            return &pres[i];
    }
    return NULL;
}

static int write_bytes(struct writing *m, struct err *err)
{
    const struct json *merges = json_get(m->model, "merges");
    const struct json *normal = json_get(m->t->tokenizer, "normalizer");
    const struct pre *pre = match_pre(m);

    if (!pre)
        return refuse(m, "how its pre_tokenizer cuts a text", err);
    if (normal && normal->type != JSON_NULL &&
        !is_text(json_get(normal, "type"), "NFC"))
        return refuse(m, "its normalizer", err);
    if (!merges || merges->type != JSON_ARRAY)
        return refuse(m, "no merges", err);
    ggufwriter_text(m->w, GGML, "model", "gpt2", 4);
    ggufwriter_text(m->w, GGML, "pre", pre->names[0], strlen(pre->names[0]));
    write_tokens(m);
    ggufwriter_list(m->w, GGML, "merges", GGUF_TEXT, merges->n);
    for (const struct json *j = merges->first; j; j = j->next) {
        const char *left, *right;
        char *kept, *both;

        if (!split_merge(j, &left, &right, &kept)) {
            free(kept);
            return refuse(m, "a merge that is none", err);
        }
        both = str_dupf("%s %s", left, right);
        ggufwriter_item_text(m->w, both, strlen(both));
        free(both);
        free(kept);
    }
    return 0;
}

/* ---- writing SentencePiece's BPE ---- */

#define SPACE "\xe2\x96\x81"

/* Is a space put before a text?  false as result: something else is done to it. */
static bool find_prefix(const struct writing *m, bool *prefix)
{
    const struct json *normal = json_get(m->t->tokenizer, "normalizer");
    const struct json *pre = json_get(m->t->tokenizer, "pre_tokenizer");
    bool replaced = false;

    *prefix = false;
    if (is_text(json_get(pre, "type"), "Metaspace")) {
        *prefix = !is_text(json_get(pre, "prepend_scheme"), "never");
        return !normal || normal->type == JSON_NULL;
    }
    if (pre && pre->type != JSON_NULL)
        return false;
    if (is_text(json_get(normal, "type"), "Sequence"))
        normal = json_get(normal, "normalizers")
                     ? json_get(normal, "normalizers")->first
                     : NULL;
    for (; normal; normal = normal->next) {
        if (is_text(json_get(normal, "type"), "Prepend") &&
            is_text(json_get(normal, "prepend"), SPACE))
            *prefix = true;
        else if (is_text(json_get(normal, "type"), "Replace") &&
                 is_text(json_get(json_get(normal, "pattern"), "String"), " ") &&
                 is_text(json_get(normal, "content"), SPACE))
            replaced = true;
        else
            return false;
        if (!normal->next || normal->key)
            break;
    }
    return replaced;
}

struct ranked {
    const char *text;
    uint64_t id;
};

static int compare_ranked(const void *a, const void *b)
{
    return strcmp(((const struct ranked *)a)->text, ((const struct ranked *)b)->text);
}

/* Sets score[i] of the tokens that merges make to less the later they are made, and
 * checks that the scores alone give the same merges. */
static int find_scores(struct writing *m, float *score, struct err *err)
{
    const struct json *merges = json_get(m->model, "merges");
    struct ranked *sorted = xcalloc((size_t)m->n + 1, sizeof(*sorted));
    struct merges_piece *piece = xcalloc((size_t)m->n + 1, sizeof(*piece));
    struct merge *made = NULL;
    size_t n = 0, known = 0, i = 0;
    int ret = 0;

    for (uint64_t t = 0; t < m->n; t++)
        if (m->text[t] && (m->kind[t] == KIND_NORMAL || m->kind[t] == KIND_USER))
            sorted[known++] = (struct ranked){ m->text[t], t };
    qsort(sorted, known, sizeof(*sorted), compare_ranked);
    for (const struct json *j = merges ? merges->first : NULL; j && ret == 0;
         j = j->next, i++) {
        const char *left, *right;
        char *kept = NULL, *both = NULL;
        struct ranked key, *found = NULL;

        if (split_merge(j, &left, &right, &kept)) {
            both = str_dupf("%s%s", left, right);
            key.text = both;
            found = bsearch(&key, sorted, known, sizeof(key), compare_ranked);
        }
        if (!found)
            ret = refuse(m, "a merge that makes no token", err);
        else if (score[found->id] == 0)
            score[found->id] = -(float)(i + 1);
        free(both);
        free(kept);
    }
    for (uint64_t t = 0; t < m->n; t++)
        piece[t] = (struct merges_piece){
            .s = m->text[t] ? m->text[t] : "",
            .n = m->text[t] ? strlen(m->text[t]) : 0,
            .score = score[t],
            .made = m->text[t] && (m->kind[t] == KIND_NORMAL || m->kind[t] == KIND_USER)
        };
    if (ret == 0 &&
        (!merges_list(&made, &n, piece, (uint32_t)m->n, UINT64_C(1) << 32) || n != i))
        ret = refuse(m, "its merges do not follow from an order of the pieces", err);
    i = 0;
    for (const struct json *j = merges ? merges->first : NULL; j && ret == 0;
         j = j->next, i++) {
        const char *left, *right;
        char *kept = NULL;

        if (!split_merge(j, &left, &right, &kept) || made[i].left != strlen(left) ||
            strncmp(piece[made[i].piece].s, left, made[i].left) != 0 ||
            strcmp(piece[made[i].piece].s + made[i].left, right) != 0)
            ret =
                refuse(m, "its merges do not follow from an order of the pieces", err);
        free(kept);
    }
    free(sorted);
    free(piece);
    free(made);
    return ret;
}

static int write_pieces(struct writing *m, struct err *err)
{
    float *score = xcalloc((size_t)m->n + 1, sizeof(*score));
    bool prefix;
    int ret = find_prefix(m, &prefix) ? find_scores(m, score, err)
                                      : refuse(m, "its normalizer", err);

    if (ret == 0) {
        ggufwriter_text(m->w, GGML, "model", "llama", 5);
        ggufwriter_text(m->w, GGML, "pre", "default", 7);
        write_tokens(m);
        ggufwriter_list(m->w, GGML, "scores", GGUF_F32, m->n);
        for (uint64_t i = 0; i < m->n; i++)
            ggufwriter_item_f32(m->w, score[i]);
        ggufwriter_bool(m->w, GGML, "add_space_prefix", prefix);
    }
    free(score);
    return ret;
}

/* ---- writing the roles of tokens ---- */

/* The number of the token KEY of the settings, or KEY_id of the config. */
static bool find_id(const struct writing *m, const char *key, uint64_t *id)
{
    const struct json *j = json_get(m->t->settings, key);
    const char *text = json_string(j ? j : NULL);
    char *number;

    if (j && j->type == JSON_OBJECT)
        text = json_string(json_get(j, "content"));
    for (uint64_t i = 0; text && i < m->n; i++)
        if (m->text[i] && !strcmp(m->text[i], text)) {
            *id = i;
            return true;
        }
    if (text)
        return false;
    number = str_dupf("%s_id", key);
    j = json_get(m->t->config, number);
    free(number);
    if (j && j->type == JSON_ARRAY)
        j = j->first;
    return json_u64(j, id) && *id < m->n;
}

/* Does the post-processor J begin (or, with LAST, end) a text with token ID? */
static bool frames(const struct writing *m, const struct json *j, bool last,
                   uint64_t id)
{
    const struct json *at = json_get(j, "single");
    const char *text;

    if (is_text(json_get(j, "type"), "Sequence")) {
        j = json_get(j, "processors");
        for (j = j ? j->first : NULL; j; j = j->next)
            if (frames(m, j, last, id))
                return true;
        return false;
    }
    at = at ? at->first : NULL;
    while (last && at && at->next)
        at = at->next;
    text = json_string(json_get(json_get(at, "SpecialToken"), "id"));
    return text && m->text[id] && !strcmp(text, m->text[id]);
}

static void write_roles(struct writing *m)
{
    static const struct {
        const char *key, *name, *adds;
        bool last;
    } roles[] = { { "bos_token", "bos_token_id", "add_bos_token", false },
                  { "eos_token", "eos_token_id", "add_eos_token", true },
                  { "unk_token", "unknown_token_id", NULL, false },
                  { "pad_token", "padding_token_id", NULL, false } };

    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++) {
        uint64_t id = 0;
        bool found = find_id(m, roles[i].key, &id);

        if (found)
            ggufwriter_u32(m->w, GGML, roles[i].name, (uint32_t)id);
        if (roles[i].adds)
            ggufwriter_bool(m->w, GGML, roles[i].adds,
                            found &&
                                frames(m, json_get(m->t->tokenizer, "post_processor"),
                                       roles[i].last, id));
    }
    if (m->t->chat)
        ggufwriter_text(m->w, NULL, "tokenizer.chat_template", m->t->chat,
                        strlen(m->t->chat));
}

int gguf_tokens_write(struct ggufwriter *w, const struct gguftokens *t, uint64_t rows,
                      struct err *err)
{
    struct writing m = {
        .w = w, .t = t, .model = json_get(t->tokenizer, "model"), .n = rows
    };
    int ret = -1;

    if (!t->tokenizer) {
        ggufwriter_text(w, GGML, "model", "none", 4);
        return 0;
    }
    if (!is_text(json_get(m.model, "type"), "BPE"))
        return refuse(&m, "a tokenizer that is no BPE", err);
    m.pieces = json_is_true(json_get(m.model, "byte_fallback"));
    m.text = xcalloc((size_t)rows + 1, sizeof(*m.text));
    m.kind = xcalloc((size_t)rows + 1, sizeof(*m.kind));
    if (list_tokens(&m, err) == 0)
        ret = m.pieces ? write_pieces(&m, err) : write_bytes(&m, err);
    if (ret == 0)
        write_roles(&m);
    free(m.text);
    free(m.kind);
    return ret;
}
