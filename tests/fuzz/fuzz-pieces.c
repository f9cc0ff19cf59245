/* fuzz-pieces - a SentencePiece model, or a tekken.json if it begins with a brace, made
 * a tokenizer.json of each kind and opened */
#include <stdint.h>
#include <stdlib.h>

#include "lib/text/oldfiles.h"
#include "lib/text/tekken.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const types[] = { "albert", "camembert", "deberta-v2",
                                         "xlm-roberta" };

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        struct str json = { 0 };
        struct tokenizer *t = NULL;
        struct err err = { 0 };

        if ((size && data[0] == '{'
                 ? tekken_convert(&json, "fuzz", (const char *)data, size, &err)
                 : oldfiles_sentencepiece(&json, "fuzz", data, size, types[i], NULL,
                                          &err)) == 0 &&
            tokenizer_parse(&t, "fuzz", str_text(&json), &err) == 0)
            tokenizer_free(t);
        str_clear(&json);
    }
    return 0;
}
