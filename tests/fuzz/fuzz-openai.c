/* fuzz-openai - requests of a web server's clients: the first byte says of which kind
 * the body is that follows */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "lib/serve/openai.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum openai_kind kind = OPENAI_COMPLETION;
    struct openai_request r;
    struct openai_error e = { 0 };
    struct str out = { 0 };
    struct err err = { 0 };
    struct json_doc doc;

    if (!size)
        return 0;
    kind = data[0] == 'c'   ? OPENAI_CHAT
           : data[0] == 't' ? OPENAI_TOKENIZE
           : data[0] == 'd' ? OPENAI_DETOKENIZE
           : data[0] == 'e' ? OPENAI_EMBEDDING
           : data[0] == 's' ? OPENAI_RESPONSE
           : data[0] == 'r' ? OPENAI_RERANK
                            : OPENAI_COMPLETION;
    if (openai_parse(&r, kind, (const char *)data + 1, size - 1, &e) < 0) {
        assert(e.status == 400 && *e.text);
        openai_add_error(&out, &e);
        assert(json_parse(&doc, "error", str_text(&out), out.len, &err) == 0);
        json_clear(&doc);
    } else {
        assert(r.n >= 1 && r.likely >= -1 && r.likely <= OPENAI_MOST_LIKELY);
        assert((kind != OPENAI_COMPLETION && kind != OPENAI_EMBEDDING) ||
               r.nprompts >= 1);
        assert(kind != OPENAI_RERANK || (r.query.text && r.ndocuments));
        for (size_t i = 0; i < r.ndocuments; i++)
            assert(r.document[i].text);
        for (size_t i = 0; i < OPENAI_NUMBERS; i++)
            assert(r.given.number[i] || r.number[i] == 0);
        for (size_t i = 0; i < r.nbias; i++)
            assert(r.bias[i].id >= 0 && r.bias[i].bias >= -100 &&
                   r.bias[i].bias <= 100);
        for (size_t i = 0; i < r.nbad_words; i++)
            assert(*r.bad_word[i]);
        for (size_t i = 0; i < r.nstop; i++)
            assert(*r.stop[i]);
        for (size_t i = 0; i < r.nprompts; i++)
            assert(!r.prompt[i].text != !r.prompt[i].ids);
    }
    openai_clear(&r);
    str_clear(&out);
    return 0;
}
