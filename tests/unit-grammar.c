/* unit-grammar - what grammars allow: texts, masks against a plain walk, limits */
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/rng.h"
#include "lib/text/grammar/grammar.h"
#include "tests/tap.h"

static struct vocabulary *bard, *spaces;

static void fail(const struct err *err)
{
    printf("Bail out! %s\n", err->text);
    exit(1);
}

/* A vocabulary whose first token loses its space. */
static const char metaspace[] =
    "{\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"special\":true},"
    "{\"id\":10,\"content\":\"</think>\",\"special\":true}],"
    "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
    "\"prepend_scheme\":\"always\"},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"byte_fallback\":true,\"vocab\":{"
    "\"a\":0,\"\xe2\x96\x81\":1,\"\xe2\x96\x81"
    "a\":2,\"b\":3,\"<0xC3>\":4,\"<0xA9>\":5,\"\xc3\xa9\":6,\"{\":7,\"}\":8},"
    "\"merges\":[]}}";

static struct tokenizer *open_tokenizers(struct tokenizer **other)
{
    char *path = fs_join_dup(getenv("top_srcdir"), "examples/bard/tokenizer.json");
    struct tokenizer *t = NULL;
    struct err err = { 0 };

    if (tokenizer_open(&t, path, &err) < 0 || vocabulary_open(&bard, t, &err) < 0 ||
        tokenizer_parse(other, "metaspace", metaspace, &err) < 0 ||
        vocabulary_open(&spaces, *other, &err) < 0)
        fail(&err);
    free(path);
    return t;
}

/* The grammar of SCHEMA, or of a regular expression; NULL: *err is set. */
static struct grammar *open_schema(const char *schema, struct err *err)
{
    struct json_doc doc;
    struct grammar *g = NULL;

    *err = (struct err){ 0 };
    if (json_parse(&doc, "s", schema, strlen(schema), err) < 0)
        return NULL;
    if (grammar_open_schema(&g, bard, &doc, doc.root, NULL, err) < 0)
        g = NULL;
    json_clear(&doc);
    return g;
}

static struct grammar *open_regex(const char *text, struct err *err)
{
    struct grammar *g = NULL;

    *err = (struct err){ 0 };
    return grammar_open_regex(&g, bard, text, NULL, err) < 0 ? NULL : g;
}

/* What has the texts before a NULL, and not those up to the next. */
struct texts {
    const char *grammar;
    const char *text[16];
};

static bool has(struct grammar *g, const char *text)
{
    return grammar_has(g, text, strlen(text));
}

static void check_texts(const struct texts *v, size_t n,
                        struct grammar *(*open)(const char *, struct err *))
{
    for (size_t i = 0; i < n; i++) {
        struct err err;
        struct grammar *g = open(v[i].grammar, &err);
        bool wanted = true;
        size_t bad = 0;

        for (size_t k = 0; g && (v[i].text[k] || wanted); k++)
            if (!v[i].text[k])
                wanted = false;
            else if (has(g, v[i].text[k]) != wanted) {
                printf("# "
                       "%s: %s"
                       "\n",
                       wanted ? "lacks" : "has", v[i].text[k]);
                bad++;
            }
        tap_ok(g && !bad, "%s%s", v[i].grammar, g ? "" : err.text);
        grammar_drop(g);
    }
}

static const struct texts schemas[] = {
    { "true",
      { "{\"a\": [1, true,null]}", "-0.5e+10", " \"\\u00e9\\n\"", NULL, "01",
        "\"\\ud800\"", "{a:1}", "[1,]", "\"\n\"" } },
    { "{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":105}",
      { "-12", "0", "104", "-1", "9", NULL, "-13", "105", "-0", "007", "1.0",
        "1000" } },
    { "{\"type\":\"number\",\"minimum\":0.25,\"maximum\":10}",
      { "0.25", "0.3", "10", "9.99", "10.000", "1", NULL, "0.2", "0", "10.001", "0.249",
        "11", "-1" } },
    { "{\"type\":\"number\",\"exclusiveMinimum\":-1.5,\"exclusiveMaximum\":-0.01}",
      { "-1.49", "-0.5", "-1", NULL, "-1.5", "-1.50", "-0.01", "-0.001", "0" } },
    { "{\"type\":\"integer\",\"minimum\":1.5,\"maximum\":3e1}",
      { "2", "30", "19", NULL, "1", "31", "0" } },
    { "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
      { "\"ab\"", "\"\xc3\xa9\\n\"", "\"\\u00e9ab\"", NULL, "\"a\"", "\"abcd\"" } },
    { "{\"type\":\"string\",\"pattern\":\"^a[^b]?\\\"$\"}",
      { "\"a\\\"\"", "\"ac\\\"\"", "\"a\\\\\\\"\"", NULL, "\"a\"", "\"ab\\\"\"",
        "\"a\"\"" } },
    { "{\"type\":\"string\",\"pattern\":\"x|^y$\"}",
      { "\"axb\"", "\"y\"", NULL, "\"yy\"", "\"\"" } },
    { "{\"type\":\"string\",\"format\":\"date\"}",
      { "\"2024-02-28\"", NULL, "\"2023-02-30\"", "\"2024-13-01\"" } },
    { "{\"enum\":[1,\"a\",null,{\"k\":[2]}]}",
      { "1", "\"a\"", "null", "{\"k\":[2]}", NULL, "2", "\"b\"" } },
    { "{\"type\":\"string\",\"enum\":[1,\"a\"]}", { "\"a\"", NULL, "1" } },
    { "{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"boolean\"}},"
      "\"required\":[\"b\"]}",
      { "{\"b\":true}", "{\"a\":null, \"b\": false }", NULL, "{}", "{\"a\":null}",
        "{\"b\":true,\"a\":null}", "{\"b\":true,\"c\":1}" } },
    { "{\"properties\":{\"ab\":{\"type\":\"null\"},\"a\\u00e9\":true},"
      "\"additionalProperties\":{\"type\":\"integer\"}}",
      { "{}", "{\"ab\":null,\"abc\":1,\"a\":2,\"\":3}", NULL, "{\"ab\":1}",
        "{\"ab\":null,\"ab\":1}", "{\"x\":null}", "{\"a\xc3\xa9\":1,\"a\xc3\xa9\":2}",
        "{\"\\u0061b\":1}" } },
    { "{\"patternProperties\":{\"^n\":{\"type\":\"integer\"}},"
      "\"additionalProperties\":false}",
      { "{\"n1\":1,\"n\":2}", "{}", NULL, "{\"m\":1}", "{\"n\":null}" } },
    { "{\"allOf\":[{\"patternProperties\":{\"^n\":{\"type\":[\"integer\",\"null\"]}},"
      "\"additionalProperties\":true},{\"additionalProperties\":{\"type\":\"integer\"}}"
      "]"
      "}",
      { "{\"n1\":1}", "{}", NULL, "{\"n\":null}" } },
    { "{\"type\":\"object\",\"maxProperties\":2,\"minProperties\":1}",
      { "{\"a\":1}", "{\"a\":1,\"b\":2}", NULL, "{}", "{\"a\":1,\"b\":2,\"c\":3}" } },
    { "{\"items\":{\"type\":\"null\"},\"minItems\":1,\"maxItems\":2}",
      { "[null]", "[ null, null ]", NULL, "[]", "[null,null,null]", "[1]" } },
    { "{\"prefixItems\":[{\"type\":\"null\"},{\"const\":1}],\"items\":{\"const\":2},"
      "\"minItems\":1,\"maxItems\":4}",
      { "[null]", "[null,1]", "[null,1,2,2]", NULL, "[]", "[1]", "[null,2]",
        "[null,1,2,2,2]" } },
    { "{\"prefixItems\":[{\"type\":\"null\"},{\"const\":1}]}",
      { "[]", "[null]", "[null,1]", NULL, "[null,1,1]" } },
    { "{\"anyOf\":[{\"const\":1},{\"type\":\"string\"}],\"type\":[\"string\",\"null\"]"
      "}",
      { "\"x\"", NULL, "1", "null" } },
    { "{\"oneOf\":[{\"const\":1},{\"const\":2}]}", { "1", "2", NULL, "3" } },
    { "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"}},"
      "\"required\":[\"k\"]},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":"
      "\"b\"},"
      "\"v\":true},\"required\":[\"k\"]}]}",
      { "{\"k\":\"a\"}", "{\"k\":\"b\",\"v\":1}", NULL, "{\"k\":\"a\",\"v\":1}" } },
    { "{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":3}},\"required\":[\"a\"]},"
      "{\"properties\":{\"a\":{\"type\":\"integer\",\"maximum\":4},\"b\":true}}]}",
      { "{\"a\":3}", "{\"a\":4,\"b\":[]}", NULL, "{}", "{\"a\":5}", "{\"a\":2}" } },
    { "{\"$ref\":\"#/$defs/list\",\"$defs\":{\"list\":{\"type\":\"array\",\"items\":"
      "{\"$ref\":\"#/$defs/list\"}}}}",
      { "[]", "[[],[[]]]", NULL, "[1]", "[" } },
    { "{\"$ref\":\"#/x/y~1z/1\",\"x\":{\"y/z\":[1,{\"const\":5}]}}",
      { "5", NULL, "1" } },
    { "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"string\"}]}", { "\"a\"", NULL, "1" } },
    { "{\"anyOf\":[{\"type\":\"array\",\"items\":false,\"minItems\":1},{\"const\":1}]}",
      { "1", NULL, "[]", "[1]" } },
};

static const struct texts regexes[] = {
    { "[a-c]{2,3}(x|yz)+\\d", { "abx0", "cccyzx9", NULL, "ax0", "abx", "abcdx1" } },
    { "^(foo|bar)?$", { "", "foo", NULL, "f", "foobar" } },
    { "[^a]\xc3\xa9.", { "b\xc3\xa9\xe2\x82\xac", NULL, "a\xc3\xa9x", "b\xc3\xa9\n" } },
    { "\\u00e9\\x41\\.\\-[\\]\\-a]",
      { "\xc3\xa9"
        "A.-]",
        NULL,
        "\xc3\xa9"
        "Ax-]" } },
    { "a{2}b{0}c{1,}?", { "aac", "aaccc", NULL, "aabc", "aa" } },
    { "(?:a(?<n>b)c)*{x}", { "{x}", "abcabc{x}", NULL, "x" } },
    { "[\xce\xb1-\xcf\x89]+\\s\\w\\S", { "\xce\xb1\xcf\x89 a!", NULL, "a a!" } },
    { "a[^\\S\n]b",
      { "a b", "a\tb", NULL,
        "a\xc3\xa9"
        "b",
        "a\nb",
        "a\x1c"
        "b" } },
    { "[^\\W_][^\\D]",
      { "a1", NULL, "_1",
        "\xc3\xa9"
        "1",
        "1\xc3\xa9" } },
    { "[^\\sa]", { "b", "\xc3\xa9", NULL, "a", " ", "\xc2\xa0", "\xe3\x80\x80" } },
};

struct refusal {
    const char *grammar, *words;
};

static void check_refused(const struct refusal *v, size_t n,
                          struct grammar *(*open)(const char *, struct err *))
{
    for (size_t i = 0; i < n; i++) {
        struct err err;
        struct grammar *g = open(v[i].grammar, &err);

        tap_ok(!g && strstr(err.text, v[i].words), "%s is refused: %s", v[i].grammar,
               err.text);
        grammar_drop(g);
    }
}

static const struct refusal bad_schemas[] = {
    { "{\"type\":\"array\",\"uniqueItems\":true}", "'uniqueItems' is not supported" },
    { "{\"properties\":{\"a\":{\"not\":{}}}}", "'not' is not supported" },
    { "{\"if\":{}}", "'if' is not supported" },
    { "{\"multipleOf\":2}", "'multipleOf' is not supported" },
    { "{\"contains\":{}}", "'contains' is not supported" },
    { "{\"type\":\"float\"}", "'type' is no type" },
    { "{\"format\":\"idn-email\"}", "\"idn-email\" is not supported" },
    { "{\"oneOf\":[{\"minimum\":1},{\"maximum\":3}]}", "may both be met" },
    { "{\"$ref\":\"other.json\"}", "is no reference" },
    { "{\"$ref\":\"#/$defs/x\"}", "refers to nothing" },
    { "{\"pattern\":\"(?=a)\"}", "lookaround" },
    { "{\"pattern\":\"a\",\"maxLength\":3}", "'maxLength' beside" },
    { "{\"type\":\"object\",\"minProperties\":3}", "'minProperties'" },
    { "{\"properties\":{\"a\":false},\"required\":[\"a\"]}", "no text meets it" },
    { "false", "no text meets it" },
    { "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},"
      "\"required\":[\"a\"]}",
      "no text meets it" },
    { "{\"minimum\":1e40}", "more than 30 digits" },
    { "[]", "a schema is an object" },
};

static const struct refusal bad_regexes[] = {
    { "a(b", "a group without )" },
    { "a)", "a ) without" },
    { "[a", "a set without ]" },
    { "*a", "nothing to repeat" },
    { "a^b", "^ and $" },
    { "(?!a)b", "lookaround" },
    { "\\bword", "\\b is not supported" },
    { "(a)\\1", "\\1 is not supported" },
    { "a{3,2}", "a bad number of times" },
    { "a{999999}", "above 100000" },
    { "[b-a]", "a bad range" },
    { "a\\", "a backslash at the end" },
    { "\xff", "ill-formed" },
    { "\\u{41", "a bad \\u{...}" },
};

/* Is each mask on the way of random texts what a plain walk of each token says? */
static size_t compare_masks(struct grammar *g, const struct vocabulary *v,
                            uint64_t seed)
{
    struct grammar_cursor c = { 0 }, own = { 0 };
    int32_t ids[16];
    struct rng rng;
    size_t bad = 0, n = 0;

    for (rng_init(&rng, seed, 0); n < 16; n++) {
        struct grammar_next next = grammar_follow(g, &c, ids, n);
        uint32_t *mask = xcalloc(next.words + 1, sizeof(*mask));
        size_t count = 0, at;

        memcpy(mask, next.allowed, next.words * sizeof(*mask));
        for (int32_t id = 0; id < (int32_t)vocabulary_size(v); id++) {
            const bool is = mask[id / 32] >> id % 32 & 1;

            /* of first tokens some are left out */
            bad += (n ? is != (grammar_take(g, &own, ids, n, &id, 1) == 1)
                      : is && !grammar_take(g, &own, ids, n, &id, 1));
            count += is;
        }
        at = count ? (size_t)(rng_uniform(&rng) * (double)count) : 0;
        for (int32_t id = 0; id < (int32_t)vocabulary_size(v) && count; id++)
            if (mask[id / 32] >> id % 32 & 1 && at-- == 0) {
                ids[n] = id;
                break;
            }
        free(mask);
        if (!count)
            break;
    }
    grammar_cursor_clear(&c);
    grammar_cursor_clear(&own);
    return bad;
}

static void check_masks(void)
{
    static const char *const some[] = {
        "true",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":40}}",
        "{\"type\":\"string\",\"minLength\":3,\"maxLength\":200}",
        "{\"properties\":{\"a\":true,\"b\":{\"minimum\":2}},\"required\":[\"a\"]}",
    };
    struct grammar *g;
    struct err err;
    size_t bad = 0;

    for (size_t i = 0; i < sizeof(some) / sizeof(*some); i++) {
        g = open_schema(some[i], &err);
        for (uint64_t seed = 0; g && seed < (tap_short() ? 1 : 3); seed++)
            bad += compare_masks(g, bard, seed);
        grammar_drop(g);
    }
    tap_ok(!bad, "masks are what a walk of each token's bytes says");
    if (grammar_open_regex(&g, spaces, "(a|b|\xc3\xa9| )*", NULL, &err) < 0)
        fail(&err);
    tap_ok(!compare_masks(g, spaces, 1), "the same of characters in two tokens");
    grammar_drop(g);
}

static bool allows(struct grammar *g, const int32_t *ids, size_t n, int32_t id)
{
    struct grammar_cursor c = { 0 };
    const struct grammar_next next = grammar_follow(g, &c, ids, n);
    const bool is = next.allowed[id / 32] >> id % 32 & 1;

    grammar_cursor_clear(&c);
    return is;
}

static void check_spaces(void)
{
    const struct grammar_frame thinks = { .thinks = true };
    struct grammar *g;
    struct err err = { 0 };

    if (grammar_open_regex(&g, spaces, "ab", NULL, &err) < 0)
        fail(&err);
    tap_ok(allows(g, NULL, 0, 2) && allows(g, NULL, 0, 0) && !allows(g, NULL, 0, 1),
           "the first token's space does not count");
    tap_ok(allows(g, (int32_t[]){ 2 }, 1, 3) && !allows(g, (int32_t[]){ 2 }, 1, 2),
           "that of the others does");
    tap_ok(!allows(g, NULL, 0, 9), "a control token is no text");
    grammar_drop(g);
    if (grammar_open_regex(&g, spaces, "b", &thinks, &err) < 0)
        fail(&err);
    tap_ok(allows(g, (int32_t[]){ 0 }, 1, 0) && allows(g, (int32_t[]){ 0 }, 1, 10) &&
               allows(g, (int32_t[]){ 0, 10 }, 2, 3) &&
               !allows(g, (int32_t[]){ 0, 10 }, 2, 0),
           "thoughts are free until their token ends them");
    grammar_drop(g);
}

static void check_marks(void)
{
    size_t bad = 0, len;

    for (uint32_t id = 0; id < vocabulary_size(bard); id++) {
        const char *bytes = vocabulary_bytes(bard, id, false, &len);

        bad += bytes && (memchr(bytes + 1, VOCABULARY_MARK, len - 1) ||
                         (len == 1 && *bytes == VOCABULARY_MARK));
    }
    tap_ok(!bad,
           "a token for the byte 0xFF is not taken for the mark of control tokens");
}

static void check_cursor(void)
{
    struct grammar_cursor c = { 0 };
    struct err err;
    struct grammar *g = open_regex("(a|b)c{3}", &err);
    int32_t ids[8];
    size_t n = 0, len;
    struct grammar_next next;

    for (int32_t id = 0; n < 2 && id < (int32_t)vocabulary_size(bard); id++) {
        const char *bytes = vocabulary_bytes(bard, (uint32_t)id, false, &len);

        if (bytes && len == 1 && *bytes == (n ? 'c' : 'a'))
            ids[n++] = id;
    }
    ids[2] = ids[3] = ids[1];
    next = grammar_follow(g, &c, ids, 4);
    tap_ok(next.fits && next.must && next.may_end,
           "a text that must end is known as such");
    next = grammar_follow(g, &c, ids, 2);
    tap_ok(next.fits && !next.may_end, "a cursor goes back");
    ids[1] = ids[0];
    next = grammar_follow(g, &c, ids, 2);
    tap_ok(!next.fits, "and sees other tokens");
    tap_ok(grammar_take(g, &c, ids, 1, ids + 2, 2) == 2 &&
               grammar_take(g, &c, ids, 1, ids, 2) == 0,
           "as many drafted tokens are taken as fit");
    grammar_cursor_clear(&c);
    grammar_drop(g);
}

/* An object of N members that are required or not, in another: GIVEN has them all. */
static struct grammar *open_wide(int n, bool required, struct str *given,
                                 struct err *err)
{
    struct str text = { 0 };
    struct grammar *g;

    str_add(&text, "{\"properties\":{\"o\":{\"properties\":{");
    str_reset(given);
    str_add(given, "{\"o\":{");
    for (int i = 0; i < n; i++) {
        str_addf(&text, "%s\"a-name-of-some-%05d\":{\"const\":%d}", i ? "," : "", i, i);
        str_addf(given, "%s\"a-name-of-some-%05d\":%d", i ? "," : "", i, i);
    }
    str_add(given, "}}");
    str_add(&text, "},\"required\":[");
    for (int i = 0; i < n && required; i++)
        str_addf(&text, "%s\"a-name-of-some-%05d\"", i ? "," : "", i);
    str_add(&text, "]}}}");
    g = open_schema(str_text(&text), err);
    str_clear(&text);
    return g;
}

/* Large schemas that are in use. */
static void check_large(void)
{
    struct str given = { 0 };
    struct err err;
    struct grammar *g = open_wide(200, true, &given, &err);

    tap_ok(g && has(g, str_text(&given)) && !has(g, "{\"o\":{}}"),
           "an object of 200 members in another");
    grammar_drop(g);
    g = open_wide(1000, false, &given, &err);
    tap_ok(g && has(g, str_text(&given)) && has(g, "{\"o\":{}}") &&
               has(g, "{\"o\":{\"a-name-of-some-00777\":777}}") &&
               !has(g, "{\"o\":{\"a-name-of-some-00777\":77}}"),
           "1000 members that may be left out: %s", g ? "" : err.text);
    grammar_drop(g);
    str_reset(&given);
    str_add(&given, "{\"enum\":[");
    for (int i = 0; i < 1000; i++)
        str_addf(&given, "%s\"%d words\"", i ? "," : "", i * 7919 % 100003);
    str_add(&given, "]}");
    g = open_schema(str_text(&given), &err);
    tap_ok(g && has(g, "\"7919 words\"") && has(g, "\"0 words\"") &&
               !has(g, "\"words\"") && !has(g, "\"7919 word\""),
           "one of 1000 words: %s", g ? "" : err.text);
    grammar_drop(g);
    str_clear(&given);
}

/* A text of N characters, in which a step costs no more in the end than at first. */
static void check_long(size_t n)
{
    struct grammar_cursor c = { 0 };
    struct err err;
    struct grammar *g = open_schema("{\"type\":\"string\",\"maxLength\":400000}", &err);
    int32_t *ids = xcalloc(n + 1, sizeof(*ids)), quote = -1, letter = -1;
    const double from = clock_seconds();
    size_t len, bad = 0;

    for (int32_t id = 0; id < (int32_t)vocabulary_size(bard); id++) {
        const char *bytes = vocabulary_bytes(bard, (uint32_t)id, false, &len);

        if (bytes && len == 1 && *bytes == '"')
            quote = id;
        if (bytes && len == 1 && *bytes == 'a')
            letter = id;
    }
    for (size_t i = 0; i < n; i++)
        ids[i] = i ? letter : quote;
    for (size_t i = 0; i < n && !bad; i += 50)
        bad +=
            clock_seconds() - from > 60 || grammar_take(g, &c, ids, i, &ids[i], 1) != 1;
    tap_ok(!bad && grammar_take(g, &c, ids, n - 3, ids + 1, 1) &&
               grammar_take(g, &c, ids, n, &quote, 1) &&
               !grammar_take(g, &c, ids, 0, &letter, 1) &&
               grammar_take(g, &c, ids, n, &quote, 1),
           "%zu characters of a text that may have many (%.2f s): %s", n,
           clock_seconds() - from, grammar_failed(g) ? grammar_failed(g) : "");
    grammar_cursor_clear(&c);
    grammar_drop(g);
    free(ids);
}

/* What would take much time or memory ends with a reason. */
static void check_limits(void)
{
    struct err err;
    struct grammar *g = open_regex("(a|b)*a(a|b){1000}", &err);
    struct str text = { 0 };
    struct rng rng;

    rng_init(&rng, 1, 0);
    for (int i = 0; i < 3000; i++)
        str_addc(&text, rng_below(&rng, 2) ? 'a' : 'b');
    tap_ok(g && !grammar_has(g, text.s, text.len) && grammar_failed(g),
           "an expression with ever more states: %s", g ? grammar_failed(g) : err.text);
    grammar_drop(g);
    str_reset(&text);
    str_add(&text, "{\"$defs\":{\"e\":{}");
    for (int i = 0; i < 900; i++)
        str_addf(&text, ",\"d%d\":{\"$ref\":\"#/$defs/%s%d\"}", i, i == 899 ? "e" : "d",
                 i + 1);
    str_add(&text, "},\"$ref\":\"#/$defs/d0\"}");
    g = open_schema(str_text(&text), &err);
    tap_ok(!g && strstr(err.text, "too many schemas"), "a chain of references: %s",
           err.text);
    grammar_drop(g);
    str_clear(&text);
}

/* Opens what FIRST, N times EACH with a number, and LAST give; it is to be refused with
 * WORDS, and soon. */
static void check_soon(const char *first, const char *each, int n, const char *last,
                       bool regex, const char *words)
{
    struct str text = { 0 };
    struct grammar *g;
    struct err err;
    const double from = clock_seconds();

    str_add(&text, first);
    for (int i = 0; i < n; i++)
        for (const char *p = each; *p; p++)
            if (*p == '#')
                str_addf(&text, "%d", 1000 + i);
            else
                str_addc(&text, *p);
    str_add(&text, last);
    g = (regex ? open_regex : open_schema)(str_text(&text), &err);
    tap_ok(!g && strstr(err.text, words), "%.30s... is refused: %s (%.2f s)", first,
           g ? "" : err.text, clock_seconds() - from);
    grammar_drop(g);
    str_clear(&text);
}

/* Grammars that are cheap to write and dear to read. */
static void check_costs(void)
{
    struct str text = { 0 }, sets = { 0 };

    str_add(&text, "{\"oneOf\":[{\"$ref\":\"#/$defs/A\"},{\"$ref\":\"#/$defs/A\"}],"
                   "\"$defs\":{\"A\":{\"type\":\"object\",\"required\":[");
    for (int i = 0; i < 30; i++)
        str_addf(&text, "%s\"%d\"", i ? "," : "", 1000 + i);
    str_add(&text, "],\"properties\":{");
    for (int i = 0; i < 30; i++)
        str_addf(&text, "%s\"%d\":{\"$ref\":\"#/$defs/A\"}", i ? "," : "", 1000 + i);
    check_soon(str_text(&text), "", 0, "}}}}", false, "too much work");
    str_clear(&text);
    check_soon("{\"enum\":[1", ",#", 150000, "]}", false, "too many alternatives");
    check_soon("{\"enum\":[\"a\"],\"allOf\":[{\"enum\":[1", ",#", 150000,
               ",\"a\"]},{\"enum\":[2]}]}", false, "no text meets it");
    check_soon("{\"oneOf\":[{\"enum\":[{}", ",{\"a\":#}", 30000,
               "]},{\"enum\":[[1]]}]}", false, "too many");
    check_soon("{\"prefixItems\":[true", ",true", 200000, "]}", false, "too much work");
    check_soon("{\"properties\":{\"a\":true", ",\"#\":true", 80000, "}}", false,
               "too much work");
    check_soon("{\"required\":[\"a\"", ",\"#\"", 100000, "]}", false, "too much work");
    for (int i = 0; i < 4000; i++)
        str_addf(&sets, "[%c%c%c%c]", 'A' + i % 10, 'K' + i / 10 % 10,
                 'k' + i / 100 % 10, 'a' + i / 1000);
    check_soon(str_text(&sets), ".", 1000000, "", true, "too ");
    check_soon("{\"pattern\":\"a", "|.", 400000, "\"}", false, "too ");
    str_clear(&sets);
}

int main(void)
{
    struct tokenizer *other, *t = open_tokenizers(&other);

    check_texts(schemas, sizeof(schemas) / sizeof(*schemas), open_schema);
    check_texts(regexes, sizeof(regexes) / sizeof(*regexes), open_regex);
    check_refused(bad_schemas, sizeof(bad_schemas) / sizeof(*bad_schemas), open_schema);
    check_refused(bad_regexes, sizeof(bad_regexes) / sizeof(*bad_regexes), open_regex);
    check_masks();
    check_spaces();
    check_marks();
    check_cursor();
    check_large();
    check_limits();
    check_costs();
    check_long(150000);
    vocabulary_free(bard);
    vocabulary_free(spaces);
    tokenizer_free(t);
    tokenizer_free(other);
    return tap_done();
}
