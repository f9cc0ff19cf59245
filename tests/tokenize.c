/* tokenize - the ids of texts, and the texts of the ids
 *
 *     tokenize TOKENIZER.JSON < TEXTS
 * (or a GGUF file) Texts are parted by "\n__ggml_vocab_test__\n".  For each a line of
 * ids; the text of the ids must be the text again, or the program ends with 1.
 *
 *     tokenize -d TOKENIZER.JSON < LINES
 * Each line is a text as a JSON string, or an array of ids.  For each a line of ids,
 * the special ones of the post-processor among them, and the ids' text without special
 * tokens and with them.
 *
 *     tokenize -m TYPE DIR < LINES
 * As -d, with what DIR has of a model of that type instead of a tokenizer.json.
 *
 *     tokenize -x TOKENIZER.JSON < LINES
 * Each line has a text's bytes as pairs of hexadecimal digits, whatever they are.  For
 * each a line of ids, the special ones among them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/ckpt/gguftokens.h"
#include "lib/text/oldfiles.h"
#include "lib/text/tokenizer.h"

/* Decode, at once and as a stream; both must agree. */
static bool decode(const struct tokenizer *t, const struct tokens *tokens,
                   bool skip_special, struct str *out)
{
    struct token_stream *stream = token_stream_new(t, skip_special);
    struct str streamed = { 0 };
    bool same;

    for (size_t i = 0; i < tokens->n; i++)
        token_stream_feed(stream, tokens->id[i], &streamed);
    token_stream_end(stream, &streamed);
    tokenizer_decode(t, tokens->id, tokens->n, skip_special, out);
    same = streamed.len == out->len &&
           !memcmp(str_text(&streamed), str_text(out), out->len);
    if (!same)
        printf("but as a stream it is '%s'\n", str_text(&streamed));
    token_stream_free(stream);
    str_clear(&streamed);
    return same;
}

static bool encode(const struct tokenizer *t, const char *text, size_t len,
                   bool add_special, struct tokens *out)
{
    struct err err = { 0 };

    if (tokenizer_encode(t, text, len, add_special, out, &err) < 0) {
        puts(err.text);
        return false;
    }
    for (size_t i = 0; i < out->n; i++)
        printf(" %u", (unsigned)out->id[i]);
    return true;
}

static int there_and_back(const struct tokenizer *t, const char *text, size_t len)
{
    struct tokens tokens = { 0 };
    struct str back = { 0 };
    bool ok = encode(t, text, len, false, &tokens);

    if (ok) {
        putchar('\n');
        ok = decode(t, &tokens, false, &back);
        if (back.len != len || memcmp(str_text(&back), text, len)) {
            printf("but decoded it is '%s'\n", str_text(&back));
            ok = false;
        }
    }
    tokens_clear(&tokens);
    str_clear(&back);
    return !ok;
}

static bool read_ids(const struct json *list, struct tokens *out)
{
    for (const struct json *j = list->first; j; j = j->next) {
        uint64_t id;

        if (!json_u64(j, &id) || id > UINT32_MAX)
            return false;
        tokens_add(out, (uint32_t)id);
        printf(" %u", (unsigned)id);
    }
    return true;
}

static int both_texts(const struct tokenizer *t, const char *line, size_t len)
{
    struct tokens tokens = { 0 };
    struct json_doc doc;
    struct err err = { 0 };
    bool ok;

    if (json_parse(&doc, "-", line, len, &err) < 0) {
        puts(err.text);
        return 1;
    }
    ok = doc.root->type == JSON_ARRAY
             ? read_ids(doc.root, &tokens)
             : encode(t, json_string(doc.root), doc.root->n, true, &tokens);
    for (int skip = 1; skip >= 0 && ok; skip--) {
        struct str back = { 0 }, quoted = { 0 };

        ok = decode(t, &tokens, skip, &back);
        str_add_jsonn(&quoted, str_text(&back), back.len);
        printf("\t%s", str_text(&quoted));
        str_clear(&back);
        str_clear(&quoted);
    }
    if (ok)
        putchar('\n');
    tokens_clear(&tokens);
    json_clear(&doc);
    return !ok;
}

/* A JSON string: the ids of its text, and the bytes that each stands for. */
static int with_places(const struct tokenizer *t, const char *line, size_t len)
{
    struct tokens tokens = { .traced = true };
    struct json_doc doc;
    struct err err = { 0 };
    bool ok;

    if (json_parse(&doc, "-", line, len, &err) < 0) {
        puts(err.text);
        return 1;
    }
    ok = encode(t, json_string(doc.root), doc.root->n, true, &tokens);
    putchar('\t');
    for (size_t i = 0; i < tokens.n && ok; i++)
        printf(" %zu-%zu", tokens.from[i].start, tokens.from[i].end);
    putchar('\n');
    tokens_clear(&tokens);
    json_clear(&doc);
    return !ok;
}

static int of_bytes(const struct tokenizer *t, const char *line, size_t len)
{
    struct tokens tokens = { 0 };
    struct str text = { 0 };
    bool ok;

    for (size_t i = 0; i + 1 < len; i += 2) {
        char digits[3] = { line[i], line[i + 1], '\0' };

        str_addc(&text, (char)strtoul(digits, NULL, 16));
    }
    ok = encode(t, str_text(&text), text.len, true, &tokens);
    if (ok)
        putchar('\n');
    tokens_clear(&tokens);
    str_clear(&text);
    return !ok;
}

/* Opens the tokenizer.json PATH, or what the GGUF file PATH has instead. */
static int open_file(struct tokenizer **t, const char *path, struct err *err)
{
    char *text;
    int ret = gguf_read_tokenizer(&text, path, err);

    if (ret == 0)
        ret = text ? tokenizer_parse(t, path, text, err) : tokenizer_open(t, path, err);
    free(text);
    return ret;
}

int main(int argc, char **argv)
{
    bool bytes = argc == 3 && !strcmp(argv[1], "-x");
    bool places = argc == 3 && !strcmp(argv[1], "-p");
    bool old = argc == 4 && !strcmp(argv[1], "-m");
    bool lines = old || (argc == 3 && (bytes || places || !strcmp(argv[1], "-d")));
    const char *part = lines ? "\n" : "\n__ggml_vocab_test__\n";
    struct tokenizer *t = NULL;
    struct err err = { 0 };
    char *text, *p, *end;
    int bad = 0;

    if (argc != 2 + lines + old ||
        (old ? oldfiles_open(&t, argv[3], argv[2], &err)
             : open_file(&t, argv[1 + lines], &err)) < 0 ||
        fs_read_file(&text, NULL, "-", 1 << 26, &err) < 0) {
        puts(argc == 2 + lines + old ? err.text : "usage");
        return 2;
    }
    for (p = text; (end = strstr(p, part)); p = end + strlen(part))
        bad |= (bytes    ? of_bytes
                : places ? with_places
                : lines  ? both_texts
                         : there_and_back)(t, p, (size_t)(end - p));
    tokenizer_free(t);
    free(text);
    return bad;
}
