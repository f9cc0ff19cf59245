/* tokenize - the ids of texts, and the texts of the ids: tokenize TOKENIZER.JSON <
 * TEXTS
 *
 * Texts are parted by "\n__ggml_vocab_test__\n".  For each a line of ids; the text of
 * the ids must be the text again, or the program ends with 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fs.h"
#include "lib/text/tokenizer.h"

static int one(const struct tokenizer *t, const char *text, size_t len)
{
    struct tokens tokens = { 0 };
    struct token_stream *stream = token_stream_new(t, false);
    struct str back = { 0 }, streamed = { 0 };
    struct err err = { 0 };
    int ret = 0;

    if (tokenizer_encode(t, text, len, false, &tokens, &err) < 0) {
        puts(err.text);
        return 1;
    }
    for (size_t i = 0; i < tokens.n; i++) {
        printf(" %u", (unsigned)tokens.id[i]);
        token_stream_feed(stream, tokens.id[i], &streamed);
    }
    putchar('\n');
    token_stream_end(stream, &streamed);
    tokenizer_decode(t, tokens.id, tokens.n, false, &back);
    if (back.len != len || memcmp(str_text(&back), text, len) ||
        streamed.len != back.len ||
        memcmp(str_text(&streamed), str_text(&back), back.len)) {
        printf("but decoded it is '%s'\n", str_text(&back));
        ret = 1;
    }
    token_stream_free(stream);
    tokens_clear(&tokens);
    str_clear(&back);
    str_clear(&streamed);
    return ret;
}

int main(int argc, char **argv)
{
    static const char part[] = "\n__ggml_vocab_test__\n";
    struct tokenizer *t;
    struct err err = { 0 };
    char *text, *p, *end;
    int bad = 0;

    if (argc != 2 || tokenizer_open(&t, argv[1], &err) < 0 ||
        fs_read_file(&text, NULL, "-", 1 << 26, &err) < 0) {
        puts(argc == 2 ? err.text : "usage");
        return 2;
    }
    for (p = text; (end = strstr(p, part)); p = end + strlen(part))
        bad |= one(t, p, (size_t)(end - p));
    tokenizer_free(t);
    free(text);
    return bad;
}
