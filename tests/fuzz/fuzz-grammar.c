/* fuzz-grammar - a JSON schema, or after a first byte of 'r' a regular expression: what
 * is opened makes texts, whose every token is one that a plain walk allows; a text that
 * has to end is whole. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/text/grammar/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TOKENS = 40 };

/* A token for each byte of ASCII, and some others. */
static struct tokenizer *open_tokenizer(void)
{
    struct str text = { 0 };
    struct tokenizer *t;
    struct err err = { 0 };

    str_add(&text, "{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"WordLevel\","
                   "\"unk_token\":\"a\",\"vocab\":{");
    for (int c = 0x20; c < 0x7f; c++) {
        str_add_jsonn(&text, &(char){ (char)c }, 1);
        str_addf(&text, ":%d,", c);
    }
    str_add(&text, "\"\xc3\xa9\":0,\"{\\\"\":1,\"\\\": \":2,\"true\":3,\"ab\":4,"
                   "\"\\n\":5,\"\\\\u\":6}}}");
    if (tokenizer_parse(&t, "fuzz", text.s, &err) < 0)
        abort();
    str_clear(&text);
    return t;
}

static void follow(struct grammar *g, struct vocabulary *v, uint64_t seed)
{
    struct grammar_cursor c = { 0 }, own = { 0 };
    struct str text = { 0 };
    int32_t ids[TOKENS];
    struct rng rng;

    rng_init(&rng, seed, 0);
    for (size_t n = 0; n < TOKENS; n++) {
        const struct grammar_next next = grammar_follow(g, &c, ids, n);
        size_t count = 0, at, len;
        const char *bytes;

        if (grammar_failed(g))
            break;
        assert(next.fits && (!next.must || next.may_end));
        if (next.may_end)
            assert(grammar_has(g, str_text(&text), text.len) || grammar_failed(g));
        for (size_t i = 0; i < next.words; i++)
            count += (size_t)__builtin_popcount(next.allowed[i]);
        if (next.must || !count)
            break;
        at = rng_below(&rng, count);
        for (int32_t id = 0;; id++)
            if (next.allowed[id / 32] >> id % 32 & 1 && at-- == 0) {
                ids[n] = id;
                break;
            }
        assert(grammar_take(g, &own, ids, n, ids + n, 1) == 1 || grammar_failed(g));
        bytes = vocabulary_bytes(v, (uint32_t)ids[n], !n, &len);
        str_addn(&text, bytes, len);
    }
    str_clear(&text);
    grammar_cursor_clear(&c);
    grammar_cursor_clear(&own);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vocabulary *v;
    static struct tokenizer *t;
    const bool regex = size && *data == 'r';
    char *text = xstrndup((const char *)data + regex, size - regex);
    struct grammar *g = NULL;
    struct json_doc doc;
    struct err err = { 0 };

    if (!t)
        t = open_tokenizer();
    if (!v && vocabulary_open(&v, t, &err) < 0)
        abort();
    if (regex) {
        if (grammar_open_regex(&g, v, text, NULL, &err) < 0)
            g = NULL;
    } else if (json_parse(&doc, "schema", text, strlen(text), &err) == 0) {
        if (grammar_open_schema(&g, v, &doc, doc.root, NULL, &err) < 0)
            g = NULL;
        json_clear(&doc);
    }
    assert(g || err.kind);
    if (g)
        follow(g, v, size);
    grammar_drop(g);
    free(text);
    return 0;
}
