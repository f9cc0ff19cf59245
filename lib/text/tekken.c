/* tekken - Mistral's tekken.json as a tokenizer.json */
#include "lib/text/tekken.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/base64.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/merges.h"
#include "lib/text/bytelevel.h"

enum {
    MOST_TOKENS = 1 << 22,
    MOST_SPECIAL = 1 << 16,
    MOST_RESULT = 1 << 28 /* bytes of the merges, and of the result */
};

/* Of files that do not list them: version 3 and before. */
static const char *const OLD_SPECIAL[] = { "<unk>",
                                           "<s>",
                                           "</s>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "[TOOL_CALLS]",
                                           "[IMG]",
                                           "<pad>",
                                           "[IMG_BREAK]",
                                           "[IMG_END]",
                                           "[PREFIX]",
                                           "[MIDDLE]",
                                           "[SUFFIX]",
                                           "[SYSTEM_PROMPT]",
                                           "[/SYSTEM_PROMPT]",
                                           "[TOOL_CONTENT]" };

struct tekken {
    const char *path, *pattern;
    const struct json *vocab, *special;
    uint64_t size, nspecial;    /* ids, and how many of them the special tokens have */
    char **name;                /* [nspecial]; NULL: none is listed */
    struct merges_piece *piece; /* [n] the bytes of each rank */
    uint32_t n;
};

static int wrong(const struct tekken *t, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: tekken: %s", t->path, what);
}

static int read_config(struct tekken *t, const struct json *root, struct err *err)
{
    const struct json *config = json_get(root, "config");
    uint64_t n;

    t->pattern = json_string(json_get(config, "pattern"));
    t->vocab = json_get(root, "vocab");
    t->special = json_get(root, "special_tokens");
    if (t->special && t->special->type == JSON_NULL)
        t->special = NULL;
    if (t->special && t->special->type != JSON_ARRAY)
        return wrong(t, "special_tokens is no list", err);
    if (!t->pattern || !t->vocab || t->vocab->type != JSON_ARRAY)
        return wrong(t, "no pattern or no vocabulary", err);
    if (!json_u64(json_get(config, "default_vocab_size"), &t->size) ||
        !json_u64(json_get(config, "default_num_special_tokens"), &t->nspecial) ||
        !t->nspecial || t->nspecial > MOST_SPECIAL || t->nspecial >= t->size ||
        t->size > MOST_TOKENS)
        return wrong(t, "no sizes, or not such as can be", err);
    n = t->size - t->nspecial;
    if (t->vocab->n < n)
        return wrong(t, "the vocabulary is shorter than its size says", err);
    t->n = (uint32_t)n;
    return 0;
}

static int read_vocab(struct tekken *t, struct err *err)
{
    const struct json *j = t->vocab->first;
    struct str bytes = { 0 };
    int ret = 0;

    t->piece = xcalloc(t->n, sizeof(*t->piece));
    for (uint32_t i = 0; i < t->n && ret == 0; i++, j = j->next) {
        const char *text = json_string(json_get(j, "token_bytes"));
        uint64_t rank;

        str_reset(&bytes);
        if (!json_u64(json_get(j, "rank"), &rank) || rank != i)
            ret = wrong(t, "ranks are not in order", err);
        else if (!text || !base64_decode(text, &bytes) || !bytes.len)
            ret = wrong(t, "a token without bytes", err);
        else
            t->piece[i] = (struct merges_piece){ .s = xstrndup(bytes.s, bytes.len),
                                                 .n = bytes.len,
                                                 .score = -(float)i,
                                                 .made = bytes.len > 1 };
    }
    str_clear(&bytes);
    return ret;
}

static int read_special(struct tekken *t, struct err *err)
{
    size_t nold = sizeof(OLD_SPECIAL) / sizeof(*OLD_SPECIAL);

    t->name = xcalloc((size_t)t->nspecial, sizeof(*t->name));
    for (const struct json *j = t->special ? t->special->first : NULL; j; j = j->next) {
        const char *text = json_string(json_get(j, "token_str"));
        uint64_t rank;

        if (!text || !*text || !json_u64(json_get(j, "rank"), &rank) ||
            rank >= t->nspecial || t->name[rank])
            return wrong(t, "a special token without a text or a rank of its own", err);
        t->name[rank] = xstrdup(text);
    }
    for (uint64_t i = 0; i < t->nspecial; i++)
        if (!t->name[i])
            t->name[i] = !t->special && i < nold
                             ? xstrdup(OLD_SPECIAL[i])
                             : str_dupf("<SPECIAL_%llu>", (unsigned long long)i);
    return 0;
}

static void add_bytes(struct str *out, const char *s, size_t n)
{
    struct str text = { 0 };

    bytelevel_encode(&text, s, n);
    str_add_jsonn(out, str_text(&text), text.len);
    str_clear(&text);
}

static void add_special(struct str *out, const struct tekken *t)
{
    str_add(out, "{\"added_tokens\":[");
    for (uint64_t i = 0; i < t->nspecial; i++) {
        str_addf(out, "%s{\"id\":%llu,\"content\":", i ? "," : "",
                 (unsigned long long)i);
        str_add_json(out, t->name[i]);
        str_add(out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                     "\"normalized\":false,\"special\":true}");
    }
    str_add(out, "]");
}

static void add_stages(struct str *out, const struct tekken *t, uint64_t begin)
{
    str_add(out, ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
                 "\"type\":\"Split\",\"pattern\":{\"Regex\":");
    str_add_json(out, t->pattern);
    str_add(out, "},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":"
                 "\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                 "\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"}");
    if (begin < t->nspecial)
        str_addf(out,
                 ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                 "\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{"
                 "\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"SpecialToken\":{\"id\":"
                 "\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{"
                 "\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{"
                 "\"<s>\":{\"id\":\"<s>\",\"ids\":[%llu],\"tokens\":[\"<s>\"]}}}",
                 (unsigned long long)begin);
}

static int add_model(struct str *out, const struct tekken *t, struct err *err)
{
    struct merge *merge;
    size_t n;
    bool fits = merges_list(&merge, &n, t->piece, t->n, MOST_RESULT);

    str_add(out, ",\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                 "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                 "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":true,"
                 "\"vocab\":{");
    for (uint64_t i = 0; i < t->nspecial; i++) {
        str_add(out, i ? "," : "");
        str_add_json(out, t->name[i]);
        str_addf(out, ":%llu", (unsigned long long)i);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        str_addc(out, ',');
        add_bytes(out, t->piece[i].s, t->piece[i].n);
        str_addf(out, ":%llu", (unsigned long long)(t->nspecial + i));
    }
    str_add(out, "},\"merges\":[");
    for (size_t i = 0; i < n && fits; i++) {
        const struct merges_piece *p = &t->piece[merge[i].piece];

        str_add(out, i ? ",[" : "[");
        add_bytes(out, p->s, merge[i].left);
        str_addc(out, ',');
        add_bytes(out, p->s + merge[i].left, p->n - merge[i].left);
        str_addc(out, ']');
        fits = out->len <= MOST_RESULT;
    }
    str_add(out, "]}}");
    free(merge);
    return fits ? 0 : wrong(t, "too many merges", err);
}

int tekken_convert(struct str *out, const char *path, const char *text, size_t n,
                   struct err *err)
{
    struct tekken t = { .path = path };
    struct json_doc doc;
    uint64_t begin = 0;
    int ret = -1;

    if (json_parse(&doc, path, text, n, err) < 0)
        return -1;
    if (read_config(&t, doc.root, err) < 0 || read_vocab(&t, err) < 0 ||
        read_special(&t, err) < 0)
        goto out;
    while (begin < t.nspecial && strcmp(t.name[begin], "<s>") != 0)
        begin++;
    add_special(out, &t);
    add_stages(out, &t, begin);
    ret = add_model(out, &t, err);
out:
    for (uint32_t i = 0; t.piece && i < t.n; i++)
        free((char *)t.piece[i].s);
    for (uint64_t i = 0; t.name && i < t.nspecial; i++)
        free(t.name[i]);
    free(t.piece);
    free(t.name);
    json_clear(&doc);
    return ret;
}
