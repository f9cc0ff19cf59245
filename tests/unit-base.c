/* unit-base - the foundation: strings, JSON, types, sums, random numbers, files */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/rng.h"
#include "lib/base/sha256.h"
#include "lib/base/shares.h"
#include "lib/base/str.h"
#include "tests/tap.h"

static void test_err(void)
{
    struct err err = { 0 };

    tap_ok(err_set(&err, ERR_INPUT, "%s: bad\nthing", "a\033b") == -1,
           "err_set returns -1");
    tap_is(err.text, "a\\x1bb: bad\\nthing", "an error's text is one printable line");
    err_prefix(&err, "%s", "file");
    tap_is(err.text, "file: a\\x1bb: bad\\nthing", "a prefix goes in front");
    tap_ok(err.kind == ERR_INPUT, "a prefix keeps the kind");
    err_set(&err, ERR_INPUT, "%2000d: bad", 1);
    tap_ok(strlen(err.text) == sizeof(err.text) - 1 &&
               !strcmp(err.text + sizeof(err.text) - 5, " ..."),
           "a text that is cut says so");
}

static void test_numbers(void)
{
    uint64_t u = 7;
    int64_t i = 7;
    double d = 7;
    int n = 7;

    tap_ok(str_u64("18446744073709551615", &u) && u == UINT64_MAX, "2^64 - 1 is read");
    tap_ok(!str_u64("18446744073709551616", &u) && u == UINT64_MAX, "2^64 is refused");
    tap_ok(!str_u64("", &u) && !str_u64("1 ", &u) && !str_u64("-1", &u),
           "a number is read whole");
    tap_ok(str_i64("-9223372036854775808", &i) && i == INT64_MIN, "-2^63 is read");
    tap_ok(!str_i64("9223372036854775808", &i), "2^63 is refused as a signed number");
    tap_ok(!str_int("2147483648", &n) && n == 7, "an int out of range is refused");
    tap_ok(str_double("-1.5e3", &d) && d == -1500, "a decimal number is read");
    tap_ok(!str_double("nan", &d) && !str_double("0x10", &d) &&
               !str_double("1e999", &d),
           "NaN, hexadecimal and infinity are refused");
    tap_ok(str_size("1.5GiB", &u) && u == UINT64_C(1610612736),
           "1.5GiB is 1610612736 bytes");
    tap_ok(str_size("80GB", &u) && u == UINT64_C(80000000000), "80GB is decimal");
    tap_ok(str_size("4K", &u) && u == 4096, "a bare K is 1024");
    tap_ok(!str_size("4 Q", &u) && !str_size("GB", &u), "an unknown unit is refused");
    tap_ok(!str_size("99999999TiB", &u), "a size that overflows is refused");
    tap_ok(str_duration("3h50m", &d) && d == 13800 && str_duration("90", &d) &&
               d == 90 && str_duration("1.5s", &d) && d == 1.5 &&
               str_duration("2d", &d) && d == 172800 && str_duration("500ms", &d) &&
               d == 0.5 && str_duration("2m500ms", &d) && d == 120.5,
           "times have units, and are sums");
    tap_ok(!str_duration("", &d) && !str_duration("-1", &d) &&
               !str_duration("3x", &d) && !str_duration("m", &d) &&
               !str_duration("1h2", &d) && !str_duration("1.2.3s", &d),
           "other times are refused");
}

static void test_text(void)
{
    struct str s = { 0 };
    char buf[32];

    str_add_jsonn(&s, "a\"\\\n\x01\xff\xc3\xa9", 8);
    tap_is(s.s, "\"a\\\"\\\\\\n\\u0001\xef\xbf\xbd\xc3\xa9\"",
           "text becomes a JSON string, ill-formed bytes U+FFFD");
    str_reset(&s);
    str_add_jsonn(&s,
                  "\xe2\x80"
                  "A"
                  "\xf0\x9f\x98",
                  6);
    tap_is(s.s,
           "\"\xef\xbf\xbd"
           "A"
           "\xef\xbf\xbd\"",
           "the start of a character becomes one U+FFFD");
    str_reset(&s);
    str_add_jsonn(&s, "\xe0\x80\xed\xa0", 4);
    tap_is(s.s, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"",
           "what starts no character, one for each byte");
    str_reset(&s);
    str_add_double(&s, 0.1);
    str_addc(&s, ' ');
    str_add_double(&s, 1e300 * 10);
    str_addc(&s, ' ');
    str_add_double(&s, (double)INFINITY);
    tap_is(s.s, "0.1 1e+301 \"Infinity\"",
           "a number is written as the shortest that reads back");
    str_clear(&s);
    tap_is(str_human(buf, 1536), "1.50 KiB", "1536 bytes are 1.50 KiB");
    tap_is(str_human(buf, 1023), "1023 B", "1023 bytes are bytes");
    tap_ok(str_is_utf8("\xf0\x9f\x98\x80", 4), "an emoji is UTF-8");
    tap_ok(!str_is_utf8("\xc0\x80", 2) && !str_is_utf8("\xed\xa0\x80", 3) &&
               !str_is_utf8("\xf4\x90\x80\x80", 4),
           "overlong forms, surrogates and what is beyond U+10FFFF are not UTF-8");
    tap_ok(str_distance("spilt", "split") == 1, "a transposition counts once");
}

/* The error of parsing TEXT, or "". */
static const char *json_fault(const char *text)
{
    static struct err err;
    struct json_doc doc;

    err = (struct err){ 0 };
    if (json_parse(&doc, "f", text, strlen(text), &err) == 0)
        json_clear(&doc);
    return err.text;
}

static void test_json(void)
{
    static const char text[] =
        "{\"a\": [1, -2.5e1, true, null],\n \"b\": \"\\ud83d\\ude00\\n\"}";
    struct str s = { 0 };
    struct json_doc doc;
    uint64_t u;
    double d;

    tap_ok(json_parse(&doc, "f", text, strlen(text), NULL) == 0, "a document is read");
    tap_ok(json_u64(json_get(doc.root, "a")->first, &u) && u == 1,
           "an element is found");
    tap_ok(json_double(json_get(doc.root, "a")->first->next, &d) && d == -25,
           "a number is read");
    tap_is(json_string(json_get(doc.root, "b")), "\xf0\x9f\x98\x80\n",
           "a surrogate pair is one");
    tap_ok(json_get(doc.root, "b")->line == 2 && json_get(doc.root, "b")->col == 7,
           "a value knows its line and column");
    json_print(&s, doc.root);
    tap_is(s.s, "{\"a\":[1,-2.5e1,true,null],\"b\":\"\xf0\x9f\x98\x80\\n\"}",
           "a document is printed in short");
    str_clear(&s);
    json_clear(&doc);
    tap_is(json_fault("{\"a\":1,\n\"a\":2}"), "f:2:5: duplicate key \"a\"",
           "a duplicate key is refused where it stands");
    tap_is(json_fault("[1,]"), "f:1:4: expected a value",
           "a trailing comma is refused");
    tap_is(json_fault("[01]"), "f:1:2: bad number", "a leading zero is refused");
    tap_is(json_fault("\"\\ud800\""), "f:1:2: bad escape in a string",
           "half a surrogate pair is refused");
    tap_is(json_fault("1 2"), "f:1:3: text after the end of the document",
           "a second value is refused");
    tap_is(json_fault("NaN"), "f:1:1: expected a value", "NaN is refused");
    tap_is(json_fault(""), "f:1:1: unexpected end", "an empty text is refused");
}

static void test_json_again(void)
{
    static const struct {
        const char *text, *printed; /* NULL: refused */
    } cases[] = {
        { "{\"op_code\":5, \"v\":-0.5e+3,\"d\":\"{\\\"a\\\": \\\\}\"}",
          "{\"op_code\":5,\"v\":-0.5e+3,\"d\":\"{\\\"a\\\": \\\\}\"}" },
        { "[1, [], {}, null , true,false]\t", "[1,[],{},null,true,false]" },
        { "{\"a\":1,\"a\":2}", NULL },
        { " 12 ", "12" },
        { "[1,]", NULL },
        { "[", NULL },
        { "{\"a\":[1,2,3,{\"b\":\"c\"}]}", "{\"a\":[1,2,3,{\"b\":\"c\"}]}" },
        { "\"a\\", NULL },
        { "", NULL },
        { "\"a\"", "\"a\"" },
    };
    struct json_doc doc = { 0 };
    struct err err;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *text = cases[i].text;
        struct str s = { 0 };

        if (json_reparse(&doc, "f", 1, text, strlen(text), &err) == 0)
            json_print(&s, doc.root);
        tap_ok(!strcmp(str_text(&s), cases[i].printed ? cases[i].printed : "") &&
                   !doc.root == !cases[i].printed,
               "memory of the document before it is used again: %s", text);
        str_clear(&s);
    }
    json_clear(&doc);
}

/* Memory that one large document needed is not kept for the small ones after it, which
 * are allowed little. */
static void test_json_after_large(void)
{
    struct json_doc doc = { 0 };
    struct str s = { 0 };
    struct err err;

    str_addc(&s, '[');
    for (int i = 0; i < 300000; i++)
        str_add(&s, "1,");
    str_add(&s, "\"");
    for (int i = 0; i < 100000; i++)
        str_add(&s, "0123456789");
    str_add(&s, "\"]");
    tap_ok(json_reparse(&doc, "f", 1, s.s, s.len, &err) == 0 &&
               doc.pool.taken > 10000000,
           "a document of 1.6 MB takes over 10 MB");
    tap_ok(json_reparse(&doc, "f", 1, "[1]", 3, &err) == 0 && doc.pool.taken <= 65536,
           "the small one after it takes at most 64 KiB");
    json_clear(&doc);
    str_clear(&s);
}

static void test_json_limits(void)
{
    struct str s = { 0 };
    struct json_doc doc;
    struct err err = { 0 };

    for (int i = 0; i < 65; i++)
        str_addc(&s, '[');
    tap_is(json_fault(s.s), "f:1:65: nested deeper than 64", "deep nesting is refused");
    str_reset(&s);
    for (int i = 0; i < 100000; i++)
        str_addf(&s, "%s\"key%d\":%d", i ? "," : "{", i, i);
    str_add(&s, ",\"key99\":0}");
    tap_ok(json_parse(&doc, "f", s.s, s.len, &err) < 0 && strstr(err.text, "key99"),
           "one repeated key among 100,000 is found");
    s.s[s.len - 9] = 'q';
    tap_ok(json_parse(&doc, "f", s.s, s.len, &err) == 0 && doc.root->n == 100001,
           "an object of 100,001 members is read");
    json_clear(&doc);
    str_clear(&s);
}

/* What cJSON would take for a text is counted before it is read. */
static void test_json_cost(void)
{
    static const struct {
        const char *item;
        int n;
        bool refused;
        const char *name;
    } texts[] = {
        { "1,", 400000, false, "400,000 numbers cost little" },
        { "1,", 900000, true, "900,000 numbers cost too much" },
        { "\"a\",", 400000, false, "400,000 strings cost little" },
        { "\"a\",", 800000, true, "800,000 strings cost too much" },
        { "\"\\\",,,\",", 400000, false, "commas in strings are no values" },
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct str s = { 0 };
        struct err err = { 0 };
        int ret;

        for (int k = 0; k < texts[i].n; k++)
            str_add(&s, texts[i].item);
        ret = json_check_cost("f", s.s, s.len, &err);
        tap_ok(texts[i].refused ? ret < 0 && err.kind == ERR_INPUT : ret == 0, "%s",
               texts[i].name);
        str_clear(&s);
    }
}

static void test_dtype(void)
{
    bool same16 = true, same_bf16 = true;
    uint64_t bytes;
    enum dtype t;
    uint8_t byte;

    for (uint32_t h = 0; h < 65536; h++) {
        float f = dtype_f16_to_f32((uint16_t)h), b = dtype_bf16_to_f32((uint16_t)h);

        same16 &= isnan(f) || dtype_f32_to_f16(f) == h;
        same_bf16 &= isnan(b) || dtype_f32_to_bf16(b) == h;
    }
    tap_ok(same16, "every half goes to f32 and back");
    tap_ok(same_bf16, "every bfloat16 goes to f32 and back");
    tap_ok(dtype_f32_to_f16(65519.0f) == 0x7bff && dtype_f32_to_f16(65520.0f) == 0x7c00,
           "half rounds to nearest and overflows to infinity");
    tap_ok(dtype_f32_to_f16(0x1.002p-14f) == 0x0400 &&
               dtype_f32_to_f16(0x1p-25f) == 0 && dtype_f32_to_f16(0x1.8p-25f) == 1,
           "half rounds ties to even, subnormals too");
    tap_ok(dtype_f32_to_bf16(0x1.01p0f) == 0x3f80 &&
               dtype_f32_to_bf16(0x1.03p0f) == 0x3f82,
           "bfloat16 rounds ties to even");
    tap_ok(isnan(dtype_bf16_to_f32(dtype_f32_to_bf16(NAN))), "NaN stays NaN");
    tap_ok(dtype_parse(&t, "bfloat16") && t == DTYPE_BF16, "PyTorch's names are known");
    tap_ok(dtype_parse(&t, "f8_e4m3") && t == DTYPE_F8_E4M3, "case does not matter");
    tap_ok(!dtype_parse(&t, "f7"), "an unknown type is refused");
    tap_ok(dtype_bytes(&bytes, DTYPE_F4, 6) && bytes == 3, "two F4 fill a byte");
    tap_ok(!dtype_bytes(&bytes, DTYPE_F4, 5), "five F4 fill no whole bytes");
    tap_ok(!dtype_bytes(&bytes, DTYPE_F64, UINT64_MAX / 4),
           "a size that overflows is refused");
    byte = 0x7e;
    tap_ok(dtype_get(DTYPE_F8_E4M3, &byte, 0) == 448, "the largest E4M3 is 448");
    byte = 0x7b;
    tap_ok(dtype_get(DTYPE_F8_E5M2, &byte, 0) == 57344, "the largest E5M2 is 57344");
    byte = 0x01;
    tap_ok(dtype_get(DTYPE_F8_E4M3, &byte, 0) == 0x1p-9, "the smallest E4M3 is 2^-9");
}

static void test_hash(void)
{
    static const char text[] = "123456789";
    unsigned char big[1000];
    bool same = true;

    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (unsigned char)(i * 7 + 3);
    tap_ok(hash_crc32(0, text, 9) == 0xcbf43926,
           "the check value of CRC-32 is cbf43926");
    for (size_t n = 0; n <= sizeof(big); n += 13)
        same &= hash_crc32_join(hash_crc32(0, big, n),
                                hash_crc32(0, big + n, sizeof(big) - n),
                                sizeof(big) - n) == hash_crc32(0, big, sizeof(big));
    tap_ok(same, "sums of two pieces join to the sum of the whole");
    same = true;
    for (size_t n = 0; n < sizeof(big); n++) { /* byte by byte is the definition */
        uint32_t crc = 0;

        for (size_t i = n % 17; i < n; i++)
            crc = hash_crc32(crc, big + i, 1);
        same &= n % 17 > n ||
                crc == hash_crc32(0, big + n % 17, n - (n % 17 < n ? n % 17 : n));
    }
    tap_ok(same, "sums of all lengths and alignments equal those made byte by byte");
}

static const char *in_hex(const unsigned char *p, size_t n)
{
    static char text[2 * SHA256_BYTES + 1];

    for (size_t i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", p[i]);
    return text;
}

/* The examples of FIPS 180 and, the last two, of NIST's validation program. */
static void test_sha256(void)
{
    static const struct {
        const char *text, *hash;
    } given[] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklm"
          "nop"
          "qklmnopqrlmnopqrsmnopqrstnopqrstu",
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
        { "\xd3", "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1" },
        { "\x11\xaf",
          "5ca7133fa735326081558ac312c620eeca9970d1e70a4b95533d956f072d1f98" },
    };
    unsigned char out[SHA256_BYTES], again[SHA256_BYTES], many[300];
    bool same = true;
    struct sha256 s;

    for (size_t i = 0; i < sizeof(given) / sizeof(*given); i++) {
        sha256_init(&s);
        sha256_add(&s, given[i].text, strlen(given[i].text));
        sha256_end(&s, out);
        tap_is(in_hex(out, sizeof(out)), given[i].hash, "SHA-256 is that of NIST");
    }
    memset(many, 'a', sizeof(many));
    sha256_init(&s);
    for (int i = 0; i < 10000; i++)
        sha256_add(&s, many, 100);
    sha256_end(&s, out);
    tap_is(in_hex(out, sizeof(out)),
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
           "also of a million letters");
    for (size_t n = 0; n <= sizeof(many); n++) {
        sha256_init(&s);
        sha256_add(&s, many, n);
        sha256_end(&s, out);
        sha256_init(&s);
        for (size_t i = 0; i < n; i++)
            sha256_add(&s, many + i, 1);
        sha256_end(&s, again);
        same &= !memcmp(out, again, sizeof(out));
    }
    tap_ok(same, "the pieces in which a text is added do not matter");
}

/* RFC 4231, 4.2 to 4.8; its case 5 gives the first 128 bits. */
static void test_hmac(void)
{
    static const struct {
        size_t key_bytes, bytes; /* of KEY and TEXT repeated; 0: their own length */
        const char *key, *text, *code;
    } given[] = {
        { 20, 0, "\x0b", "Hi There",
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7" },
        { 0, 0, "Jefe", "what do ya want for nothing?",
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
        { 20, 50, "\xaa", "\xdd",
          "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe" },
        { 0, 50,
          "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13"
          "\x14\x15\x16\x17\x18\x19",
          "\xcd", "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b" },
        { 20, 0, "\x0c", "Test With Truncation", "a3b6167473100ee06e0c796c2955552b" },
        { 131, 0, "\xaa", "Test Using Larger Than Block-Size Key - Hash Key First",
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54" },
        { 131, 0, "\xaa",
          "This is a test using a larger than block-size key and a larger than "
          "block-size data. The key needs to be hashed before being used by the HMAC "
          "algorithm.",
          "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2" },
    };
    unsigned char out[SHA256_BYTES], other[SHA256_BYTES], key[131], text[200];

    for (size_t i = 0; i < sizeof(given) / sizeof(*given); i++) {
        size_t n = given[i].key_bytes, m = given[i].bytes;
        struct hmac h;

        if (n)
            memset(key, given[i].key[0], n);
        else
            memcpy(key, given[i].key, n = strlen(given[i].key));
        if (m)
            memset(text, given[i].text[0], m);
        else
            memcpy(text, given[i].text, m = strlen(given[i].text));
        hmac_init(&h, key, n);
        hmac_add(&h, text, m);
        hmac_end(&h, out);
        tap_is(in_hex(out, strlen(given[i].code) / 2), given[i].code,
               "HMAC-SHA-256 is that of RFC 4231");
    }
    memcpy(other, out, sizeof(out));
    tap_ok(hmac_equal(out, other), "a code is equal to itself");
    other[31] ^= 1;
    tap_ok(!hmac_equal(out, other), "and to no other");
}

static void test_rng(void)
{
    struct rng a, b;
    double sum = 0, squares = 0;

    rng_init(&a, 0, 0);
    tap_ok(rng_u32(&a) == 0x6627e8d5 && rng_u32(&a) == 0xe169c58d &&
               rng_u32(&a) == 0xbc57ac4c && rng_u32(&a) == 0x9b00dbd8,
           "Philox gives the published words for zeros");
    rng_init(&a, UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e));
    a.counter = UINT64_C(0x85a308d3243f6a88);
    tap_ok(rng_u32(&a) == 0xd16cfe09 && rng_u32(&a) == 0x94fdcceb &&
               rng_u32(&a) == 0x5001e420 && rng_u32(&a) == 0x24126ea1,
           "Philox gives the published words for the digits of pi");
    rng_init(&a, 1, 2);
    rng_init(&b, 1, 3);
    tap_ok(rng_u64(&a) != rng_u64(&b), "streams differ");
    for (int i = 0; i < 100000; i++) {
        double x = rng_normal(&a);

        sum += x;
        squares += x * x;
    }
    tap_ok(fabs(sum / 1e5) < 0.02 && fabs(squares / 1e5 - 1) < 0.02,
           "normal draws have mean 0 and variance 1");
    tap_ok(rng_below(&a, 1) == 0, "below 1 there is 0");
}

static void test_fs(void)
{
    struct err err = { 0 };
    char dir[] = "/tmp/unit-base-XXXXXX", *path, *text;
    char **names;
    bool found;
    size_t n;
    int fd;

    tap_ok(mkdtemp(dir) != NULL, "a scratch directory is made");
    path = fs_join_dup(dir, "a/b");
    fd = output_dir(path, OUTPUT_MAKE, &err);
    tap_ok(fd >= 0 && close(fd) == 0 && fs_find_dir(&found, path, &err) == 0 && found,
           "directories are made with their parents");
    free(path);
    path = fs_join_dup(dir, "file");
    tap_ok(output_write(path, "abc", 3, true, &err) == 0, "a file is written");
    tap_ok(fs_read_file(&text, &n, path, 3, &err) == 0 && n == 3 &&
               !strcmp(text, "abc"),
           "and read");
    free(text);
    tap_ok(fs_read_file(&text, &n, path, 2, &err) < 0 && err.kind == ERR_INPUT,
           "a file that is too large is refused");
    tap_ok(fs_list(&names, &n, dir, &err) == 0 && n == 2 && !strcmp(names[0], "a"),
           "nothing else is left in the directory");
    fs_list_free(names, n);
    tap_ok(output_write("/dev/full", "abc", 3, false, &err) < 0 &&
               err.kind == ERR_SYSTEM,
           "a full device is an error of the machine");
    tap_ok(fs_remove_tree(dir, &err) == 0 && fs_find(&found, dir, &err) == 0 && !found,
           "a tree is removed");
    free(path);
    tap_ok(fs_is_plain_name("a/b") && !fs_is_plain_name("../a") &&
               !fs_is_plain_name("/a") && !fs_is_plain_name("a//b") &&
               !fs_is_plain_name("") && !fs_is_plain_name("a/."),
           "names that leave the directory are not plain");
    path = fs_dirname_dup("a/b/");
    tap_is(path, "a", "the directory of a/b/ is a");
    free(path);
    path = fs_dirname_dup("a");
    tap_is(path, ".", "the directory of a name is .");
    free(path);
}

/* Only what the system says is absent is absent. */
static void test_absence(void)
{
    char dir[] = "/tmp/unit-base-XXXXXX", name[400], *path, *below, *none, *text;
    struct err err = { 0 };
    bool found = true;
    size_t n = 1;

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    if (!mkdtemp(dir))
        abort();
    path = fs_join_dup(dir, "file");
    below = fs_join_dup(path, "below");
    none = fs_join_dup(dir, "none");
    tap_ok(output_write(path, "0123456789", 10, false, &err) == 0 &&
               fs_find(&found, none, &err) == 0 && !found &&
               fs_find(&found, below, &err) == 0 && !found &&
               fs_find_dir(&found, none, &err) == 0 && !found &&
               fs_find_in(&found, dir, "file", &err) == 0 && found,
           "a file is found, and one that is missing, or below a file, is not");
    tap_ok(fs_find(&found, name, &err) < 0 && err.kind == ERR_SYSTEM &&
               fs_find_dir(&found, name, &err) < 0 &&
               fs_find_in(&found, dir, name, &err) < 0 &&
               fs_resolve(&text, name, &err) < 0 &&
               fs_read_optional(&text, &n, name, 10, &err) < 0 &&
               fs_read_part(&text, &n, name, 0, 10, &err) < 0,
           "a name that the system cannot look up is an error");
    tap_ok(fs_read_optional(&text, &n, none, 10, &err) == 0 && !text &&
               fs_read_optional(&text, &n, below, 10, &err) == 0 && !text &&
               fs_resolve(&text, none, &err) == 0 && !text,
           "what may be missing is read as nothing");
    tap_ok(fs_read_optional(&text, &n, path, 10, &err) == 0 && n == 10,
           "and as it is where it is there");
    free(text);
    tap_ok(fs_read_part(&text, &n, path, 7, 5, &err) == 0 && n == 3 &&
               !strcmp(text, "789"),
           "a part is read, as far as the file goes");
    free(text);
    tap_ok(fs_read_part(&text, &n, none, 7, 5, &err) == 0 && !text && !n,
           "of a missing file none");
    tap_ok(fs_read_part(&text, &n, dir, 0, 5, &err) < 0 && err.kind == ERR_INPUT,
           "and of a directory none can be");
    tap_ok(fs_remove_tree(below, &err) == 0 && fs_remove_tree(none, &err) == 0 &&
               fs_remove_tree(dir, &err) == 0,
           "what is missing need not be removed");
    free(path);
    free(below);
    free(none);
}

/* A range, and what was done of it: each number's share plus 1. */
struct counted {
    int by[1000];
    uint64_t unit;
    bool whole; /* shares begin at whole units */
};

static void count_share(void *arg, int share, uint64_t from, uint64_t end)
{
    struct counted *c = arg;

    if (from % c->unit)
        c->whole = false;
    for (uint64_t i = from; i < end; i++)
        c->by[i] = c->by[i] ? -1 : share + 1;
}

static void test_shares(void)
{
    static const uint64_t n[] = { 0, 1, 7, 32, 33, 100, 1000 }, unit[] = { 1, 3, 32 };
    bool once = true, whole = true, numbered = true, most = true;

    for (size_t i = 0; i < sizeof(n) / sizeof(*n); i++)
        for (size_t u = 0; u < sizeof(unit) / sizeof(*unit); u++)
            for (int threads = 0; threads < 80; threads += 1 + threads / 3) {
                struct counted c = { .unit = unit[u], .whole = true };
                int shares = shares_of(n[i], unit[u], threads), last = 0;

                shares_run(n[i], unit[u], threads, count_share, &c);
                for (uint64_t k = 0; k < 1000; k++) {
                    once &= k < n[i] ? c.by[k] > 0 : c.by[k] == 0;
                    last = c.by[k] > last ? c.by[k] : last;
                }
                whole &= c.whole;
                numbered &= shares == (n[i] ? last : 1);
                most &= shares <= SHARES_MOST && shares <= (threads > 1 ? threads : 1);
            }
    tap_ok(once, "shares of a range have each number once");
    tap_ok(whole, "and whole units");
    tap_ok(numbered, "and there are as many as were said");
    tap_ok(most && shares_of(1000, 1, 4) == 4, "at most one for each thread");
}

int main(void)
{
    test_err();
    test_numbers();
    test_text();
    test_json();
    test_json_again();
    test_json_after_large();
    test_json_limits();
    test_json_cost();
    test_dtype();
    test_hash();
    test_sha256();
    test_hmac();
    test_rng();
    test_fs();
    test_absence();
    test_shares();
    return tap_done();
}
