/* fuzz-tokenizer - tokenizer.json, and text that it encodes: the file up to a NUL, then
 * the text */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A stream of the ids must give what decoding them at once gives. */
static void decode(const struct tokenizer *t, const struct tokens *tokens)
{
    struct token_stream *stream = token_stream_new(t, true);
    struct str text = { 0 }, streamed = { 0 };

    tokenizer_decode(t, tokens->id, tokens->n, true, &text);
    for (size_t i = 0; i < tokens->n; i++)
        token_stream_feed(stream, tokens->id[i], &streamed);
    token_stream_end(stream, &streamed);
    if (text.len != streamed.len ||
        memcmp(str_text(&text), str_text(&streamed), text.len))
        abort();
    token_stream_free(stream);
    str_clear(&text);
    str_clear(&streamed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    size_t n = end ? (size_t)(end - data) : size, skip = end ? n + 1 : n;
    char *file = xstrndup((const char *)data, n);
    struct tokens tokens = { 0 };
    struct tokenizer *t;
    struct err err = { 0 };

    if (tokenizer_parse(&t, "fuzz", file, &err) == 0) {
        tokenizer_encode(t, (const char *)data + skip, size - skip, true, &tokens,
                         &err);
        decode(t, &tokens);
        tokens_clear(&tokens);
        tokenizer_free(t);
    }
    free(file);
    return 0;
}
