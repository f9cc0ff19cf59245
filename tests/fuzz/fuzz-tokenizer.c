/* fuzz-tokenizer - tokenizer.json, and text that it encodes: the file up to a NUL, then
 * the text */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    size_t n = end ? (size_t)(end - data) : size, skip = end ? n + 1 : n;
    char *file = xstrndup((const char *)data, n);
    struct tokens tokens = { 0 };
    struct str text = { 0 };
    struct tokenizer *t;
    struct err err = { 0 };

    if (tokenizer_parse(&t, "fuzz", file, &err) == 0) {
        tokenizer_encode(t, (const char *)data + skip, size - skip, true, &tokens,
                         &err);
        tokenizer_decode(t, tokens.id, tokens.n, true, &text);
        tokens_clear(&tokens);
        str_clear(&text);
        tokenizer_free(t);
    }
    free(file);
    return 0;
}
