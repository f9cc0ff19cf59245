/* unit-ckpt - what is wrong with foreign files is told: headers, indices, manifests and
 * zip archives with one thing changed */
#define _GNU_SOURCE /* memmem */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/ckpt/dcp.h"
#include "lib/ckpt/manifest.h"
#include "lib/ckpt/safetensors.h"
#include "lib/ckpt/hubdir.h"
#include "lib/ckpt/unpickle.h"
#include "lib/ckpt/zip.h"
#include "lib/reshard/checkpoint.h"
#include "lib/reshard/bitscan.h"
#include "lib/reshard/convert.h"
#include "tests/fuzz/seal.h"
#include "tests/tap.h"

/* The file NAME of the fuzz targets' seeds. */
static char *seed_file(const char *name, size_t *n)
{
    const char *top = getenv("top_srcdir");
    char *path = str_dupf("%s/tests/fuzz/corpus/%s", top ? top : ".", name), *text;
    struct err err = { 0 };

    if (fs_read_file(&text, n, path, 1 << 24, &err) < 0) {
        printf("Bail out! %s\n", err.text);
        exit(99);
    }
    free(path);
    return text;
}

/* RET and *err are a refusal whose reason has WHY; WHAT was read. */
static void refused(int ret, const struct err *err, const char *why, const char *what)
{
    if (!tap_ok(ret < 0 && err->kind == ERR_INPUT && strstr(err->text, why),
                "%s: %.60s", why, what))
        printf("#   got %d: %s\n", ret, ret < 0 ? err->text : "");
}

/* ---- safetensors ---- */

#define ENTRY(name, dtype, shape, from, to)                  \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape \
    ",\"data_offsets\":[" from "," to "]}"
#define ONES "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
#define NAMES                                                                        \
    "\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"," \
    "\"a\",\"a\",\"a\","
#define A ENTRY("a", "U8", "[3]", "0", "3")

static const struct {
    const char *header;
    unsigned data; /* bytes behind it */
    const char *why;
} headers[] = {
    { "", 0, "expected" },
    { "[]", 0, "expected an object" },
    { "{", 0, "expected" },
    { "{}x", 0, "" },
    { "{" A "} {", 3, "text after the end" },
    { "{" A "}", 2, "2 bytes of data where its header says 3" },
    { "{" A "}", 4, "4 bytes of data where its header says 3" },
    { "{" A "," A "}", 3, "duplicate tensor 'a'" },
    { "{" A "," ENTRY("b", "U8", "[2]", "4", "6") "}", 6, "a hole" },
    { "{" A "," ENTRY("b", "U8", "[2]", "2", "4") "}", 4, "an overlap" },
    { "{" ENTRY("a", "U8", "[3]", "1", "4") "}", 4, "a hole" },
    { "{" ENTRY("a", "U8", "[3]", "0", "4") "}", 4, "its shape needs 3 bytes" },
    { "{" ENTRY("a", "U8", "[3]", "0", "2") "}", 2, "its shape needs 3 bytes" },
    { "{" ENTRY("a", "U8", "[3]", "3", "0") "}", 3, "its shape needs 3 bytes" },
    { "{" ENTRY("a", "F32", "[3]", "0", "3") "}", 3, "its shape needs 12 bytes" },
    { "{" ENTRY("a", "X8", "[3]", "0", "3") "}", 3, "unknown dtype 'X8'" },
    { "{" ENTRY("a", "u8", "[3]", "0", "3") "}", 3, "unknown dtype 'u8'" },
    { "{" ENTRY("a", "U8", "[18446744073709551615,2]", "0", "3") "}", 3,
      "its shape overflows" },
    { "{" ENTRY("a", "F64", "[18446744073709551615]", "0", "3") "}", 3,
      "its size overflows" },
    { "{" ENTRY("a", "U8", "[" ONES ONES "3]", "0", "3") "}", 3, "more than" },
    { "{" ENTRY("a", "U8", "[-3]", "0", "3") "}", 3, "expected a whole number" },
    { "{" ENTRY("a", "U8", "[3.0]", "0", "3") "}", 3, "expected a whole number" },
    { "{" ENTRY("a", "U8", "[18446744073709551616]", "0", "3") "}", 3,
      "expected a whole number below 2^64" },
    { "{" ENTRY("a", "U8", "[\"3\"]", "0", "3") "}", 3, "expected a whole number" },
    { "{" ENTRY("a", "U8", "3", "0", "3") "}", 3, "expected an array" },
    { "{" ENTRY("a", "U8", "[3", "0", "3") "}", 3, "" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0]}}", 3,
      "expected two offsets" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,1,3]}}", 3,
      "more than 2 numbers" },
    { "{\"a\":{\"dtype\":8,\"shape\":[3],\"data_offsets\":[0,3]}}", 3,
      "expected a dtype" },
    { "{\"a\":{\"shape\":[3],\"data_offsets\":[0,3]}}", 3, "is missing" },
    { "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,3]}}", 3, "is missing" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[3]}}", 3, "is missing" },
    { "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[3],"
      "\"data_offsets\":[0,3]}}",
      3, "duplicate key \"dtype\"" },
    { "{\"a\":[]}", 3, "expected a tensor's entry" },
    { "{\"a\":{\"x\":[}}", 3, "" },
    { "{\"__metadata__\":[]}", 0, "expected an object of strings" },
    { "{\"__metadata__\":{\"a\":1}}", 0, "expected a string" },
    { "{\"__metadata__\":{},\"__metadata__\":{}}", 0,
      "duplicate key \"__metadata__\"" },
    { "{\"__metadata__\":{\"a\":\"b\"", 0, "" },
};

static int parse_header(struct safetensors *st, const char *header, unsigned data,
                        struct err *err)
{
    size_t n = strlen(header);

    return safetensors_parse(st, "f", header, n, 8 + n + data, err);
}

static void safetensors_headers(void)
{
    struct safetensors st;
    struct err err = { 0 };

    tap_ok(parse_header(&st,
                        "{\"__metadata__\":{\"a\":\"b\"},\"a\":{\"more\":[{}],"
                        "\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
                        3, &err) == 0 &&
               st.n == 1,
           "a header with a member that nobody knows is read");
    safetensors_clear(&st);
    for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
        err = (struct err){ 0 };
        refused(parse_header(&st, headers[i].header, headers[i].data, &err), &err,
                headers[i].why, headers[i].header);
    }
}

/* ---- indices ---- */

static const struct {
    const char *text, *why;
} indices[] = {
    { "", "" },
    { "[]", "expected an object" },
    { "{}", "no weight_map" },
    { "{\"metadata\":{\"a\":[1]}}", "no weight_map" },
    { "{\"metadata\":{", "" },
    { "{\"weight_map\":[]}", "weight_map is no object" },
    { "{\"weight_map\":{}}", "names no file" },
    { "{\"weight_map\":{\"a\":1}}", "expected a file's name" },
    { "{\"weight_map\":{\"a\":\"b\\u0000.safetensors\"}}", "expected a file's name" },
    { "{\"weight_map\":{\"a\":\"../b.safetensors\"}}", "is not a file of this" },
    { "{\"weight_map\":{\"a\":\"d/b.safetensors\"}}", "is not a file of this" },
    { "{\"weight_map\":{\"a\":\"/b.safetensors\"}}", "is not a file of this" },
    { "{\"weight_map\":{\"a\":\"\"}}", "is not a file of this" },
    { "{\"weight_map\":{\"a\":\"b.bin\"}}", "is no *.safetensors file" },
    { "{\"weight_map\":{\"a\":\"b.safetensors\"},\"weight_map\":{}}",
      "duplicate key \"weight_map\"" },
    { "{\"weight_map\":{\"a\":\"b.safetensors\"", "" },
    { "{\"weight_map\":{\"a\":", "" },
    { "{\"weight_map\":{\"a\":\"b.safetensors\"}", "" },
    { "{\"weight_map\":{\"a\":\"b.safetensors\"}}}", "" },
};

static void index_files(void)
{
    static const char good[] = "{\"weight_map\":{\"a\":\"2.safetensors\","
                               "\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}";
    struct err err = { 0 };
    char **names;
    size_t n;

    if (tap_ok(hubdir_parse_index(&names, &n, "i", good, strlen(good), &err) == 0 &&
                   n == 2 && !strcmp(names[0], "1.safetensors"),
               "an index names its files once, in order"))
        fs_list_free(names, n);
    for (size_t i = 0; i < sizeof(indices) / sizeof(*indices); i++) {
        err = (struct err){ 0 };
        refused(hubdir_parse_index(&names, &n, "i", indices[i].text,
                                   strlen(indices[i].text), &err),
                &err, indices[i].why, indices[i].text);
    }
}

/* ---- manifests ---- */

/* TEXT with the first FROM made TO, and its checksum made right. */
static void edit(struct str *out, const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    struct str s = { 0 };

    if (!at) {
        printf("Bail out! no '%s'\n", from);
        exit(99);
    }
    str_addn(&s, text, (size_t)(at - text));
    str_add(&s, to);
    str_add(&s, at + strlen(from));
    seal(out, s.s, s.len);
    str_clear(&s);
}

#define MESH     "\"mesh\":{\"tp\":1,\"sp\":1,\"ep\":1,\"dp\":1,\"pp\":1}"
#define V3(more) "\"version\":3,\n" MESH ",\n" more ",\n"
#define STATES(kind, form) \
    V3("\"states\":[{\"role\":\"x\",\"kind\":\"" kind "\",\"form\":\"" form "\"}]")
#define T    "{\"name\":\"t\",\"role\":\"weight\",\"dtype\":\"BF16\",\"shape\":[7,4]"
#define V2   "\"version\":2,\n" MESH ",\n"
#define RANK "{\"name\":\"rank-tp0-pp0.safetensors\",\"size\":1566,"
#define CAST "\"cast\":false"

static const struct {
    const char *from, *to, *why;
} edits[] = {
    { "shardutils-checkpoint", "checkpoint", "not a shardutils-checkpoint" },
    { "\"format\":\"shardutils-checkpoint\"", "\"format\":1", "the format's name" },
    { "\"version\":2", "\"version\":4", "version 4; this program reads 1 to 3" },
    { "\"version\":2", "\"version\":0", "version 0" },
    { "\"version\":2", "\"version\":\"2\"", "expected a whole number" },
    { "\"version\":2", "\"version\":2.5", "expected a whole number" },
    { "\"version\":2,", "", "no \"version\"" },
    { "\"format\":", "\"version\":2,\"format\":", "duplicate key \"version\"" },
    { "{\"format\"", "[\"format\"", "expected an object" },
    { MESH, "\"mesh\":[]", "expected the mesh" },
    { MESH, "\"mesh\":{\"tp\":1,\"sp\":1,\"ep\":1,\"dp\":1}", "the mesh lacks pp" },
    { MESH, "\"mesh\":{\"tp\":1,\"xp\":1}", "unknown axis 'xp'" },
    { MESH, "\"mesh\":{\"tp\":1,\"tp\":1}", "axis tp twice" },
    { MESH, "\"mesh\":{\"tp\":0}", "axis tp is out of range" },
    { MESH, "\"mesh\":{\"tp\":99999999999}", "axis tp is out of range" },
    { MESH, "\"mesh\":{\"tp\":60000,\"sp\":60000,\"ep\":1,\"dp\":1,\"pp\":1}",
      "axis sp is out of range" },
    { MESH, "\"mesh\":{\"tp\":-1}", "expected a whole number" },
    { MESH ",", "", "the mesh must come first" },
    { MESH, "\"stages\":[2]," MESH, "the mesh must come first" },
    { MESH, "\"rank_configs\":[]," MESH, "the mesh must come first" },
    { CAST, "\"cast\":0", "expected true or false" },
    { CAST, CAST ",\"keep_vocab\":\"no\"", "expected true or false" },
    { CAST, CAST ",\"pad_vocab\":-1", "expected a whole number" },
    { CAST, CAST ",\"stages\":{}", "expected the layers of each stage" },
    { CAST, CAST ",\"stages\":[]", "fewer stages than the mesh has" },
    { CAST, CAST ",\"stages\":[1,1]", "bad stage" },
    { CAST, CAST ",\"stages\":[-1]", "bad stage" },
    { CAST, CAST ",\"stages\":[\"1\"]", "bad stage" },
    { CAST, CAST ",\"rank_configs\":{}", "expected an array of CRC-32s" },
    { CAST, CAST ",\"rank_configs\":[]", "not one CRC-32 for each of 1 parts" },
    { CAST, CAST ",\"rank_configs\":[\"00000000\",\"00000000\"]",
      "not one CRC-32 for each of 1 parts" },
    { CAST, CAST ",\"rank_configs\":[null]", "expected a CRC-32" },
    { CAST, CAST ",\"training\":1", "expected a training" },
    { CAST, CAST ",\"more\":[", "" },
    { "\"config\":\"", "\"config\":1,\"x\":\"", "expected a string" },
    { "\"config\":\"", "\"config\":\"\\u0000", "a NUL character" },
    { "\"family\":{", "\"family\":[],\"x\":{", "expected the family" },
    { "\"source\":[", "\"source\":{},\"x\":[", "expected an array" },
    { "\"source\":[\n{", "\"source\":[1,{", "expected an object" },
    { "\"name\":\"model.safetensors\",", "", "a source without name or header" },
    { "\"name\":\"model.safetensors\"", "\"name\":\"../m\"", "not a plain file name" },
    { "\"name\":\"model.safetensors\"", "\"name\":\"d/m\"", "not a plain file name" },
    { "\"size\":1532", "\"size\":null", "expected a whole number" },
    { "\"crc32\":\"eb055533\"", "\"crc32\":\"eb05553\"", "8 hexadecimal digits" },
    { "\"crc32\":\"eb055533\"", "\"crc32\":\"EB055533\"", "8 hexadecimal digits" },
    { "\"crc32\":\"eb055533\"", "\"crc32\":12345678", "8 hexadecimal digits" },
    { "\"header\":\"", "\"header\":1,\"x\":\"", "expected a string" },
    { "\"size\":1532", "\"origin\":1,\"size\":1532", "expected an object" },
    { "\"size\":1532", "\"origin\":{\"name\":\"/m\"},\"size\":1532",
      "not a plain file name" },
    { "\"size\":1532", "\"origin\":{\"size\":-1},\"size\":1532",
      "expected a whole number" },
    { "\"size\":1532", "\"origin\":{\"crc32\":\"x\"},\"size\":1532",
      "8 hexadecimal digits" },
    { "\"size\":1532", "\"origin\":{\"x\":},\"size\":1532", "" },
    { RANK, "{\"size\":1566,", "a file without a name" },
    { "\"part\":0", "\"part\":1", "part is out of range" },
    { "\"part\":0,", "", "no file for part 0" },
    { "{\"name\":\"config.json\"", "{\"part\":0,\"name\":\"config.json\"",
      "part 0 is listed out of order" },
    { "{\"name\":\"config.json\"", "{\"name\":\"..\"", "not a plain file name" },
    { T, "{\"role\":\"weight\",\"dtype\":\"BF16\",\"shape\":[7,4]",
      "an incomplete tensor" },
    { T, "{\"name\":\"t\",\"dtype\":\"BF16\",\"shape\":[7,4]", "an incomplete tensor" },
    { T, "{\"name\":\"t\",\"role\":\"weight\",\"shape\":[7,4]",
      "an incomplete tensor" },
    { T, "{\"name\":\"t\",\"role\":\"weight\",\"dtype\":\"BF16\"",
      "an incomplete tensor" },
    { "\"axes\":[\"vocab\",\"hidden\"]", "\"axes\":[\"vocab\"]",
      "an incomplete tensor" },
    { "\"axes\":[\"vocab\",\"hidden\"]", "\"axes\":\"vocab\"", "axis expressions" },
    { "\"axes\":[\"vocab\",\"hidden\"]", "\"axes\":[\"vocab\",1]",
      "bad axis expressions" },
    { "\"axes\":[\"vocab\",\"hidden\"]", "\"axes\":[" NAMES NAMES NAMES NAMES "\"a\"]",
      "bad axis expressions" },
    { "\"dtype\":\"BF16\",\"shape\":[7,4]", "\"dtype\":\"B\",\"shape\":[7,4]",
      "unknown dtype 'B'" },
    { "\"dtype\":\"BF16\",\"shape\":[7,4]", "\"dtype\":1,\"shape\":[7,4]",
      "expected a dtype" },
    { "[7,4],\"axes\"", "[7,-4],\"axes\"", "bad shape" },
    { "[7,4],\"axes\"", "[7,\"4\"],\"axes\"", "bad shape" },
    { "[7,4],\"axes\"", "[" ONES ONES "4],\"axes\"", "bad shape" },
    { "[7,4],\"axes\"", "7,\"axes\"", "expected a shape" },
    { "[\"206a1a3d\"]", "[]", "not one CRC-32 for each of 1 parts" },
    { "[\"206a1a3d\"]", "[null,null]", "not one CRC-32 for each of 1 parts" },
    { "[\"206a1a3d\"]", "[1]", "8 hexadecimal digits" },
    { "[\"206a1a3d\"]", "\"206a1a3d\"", "expected an array of CRC-32s" },
    { V2, STATES("slot", "sums"), "of the form 'sums', which this program does not" },
    { V2, STATES("guess", "like"), "of the kind 'guess', which this program does not" },
    { V2, V3("\"states\":[{\"role\":\"x\",\"kind\":\"slot\"}]"),
      "an incomplete state" },
    { V2, V3("\"states\":[{\"form\":1}]"), "expected a string" },
    { V2, V3("\"states\":{}"), "expected an array" },
    { V2, V3("\"states\":[{\"role\":\"weight\",\"kind\":\"slot\",\"form\":\"like\"}]"),
      "state 'weight' twice" },
    { MESH, MESH ",\"states\":[]", "\"states\" in a manifest of version 2" },
    { V2,
      V3("\"base\":[{\"name\":\"m.safetensors\",\"size\":7,\"crc32\":\"0000000a\"}]"),
      "a weight beside a \"base\", which has the weights" },
    { V2, V3("\"base\":[{\"size\":7}]"), "a file without a name" },
    { T,
      "{\"name\":\"t\",\"format\":\"q4\",\"role\":\"weight\",\"dtype\":\"BF16\","
      "\"shape\":[7,4]",
      "tensor t is in the format 'q4', which this program does not know" },
    { "\"tensors\":[\n", "\"tensors\":[{}],\"x\":[", "an incomplete tensor" },
    { "\"tensors\":[\n", "\"tensors\":[{\"x\":tru", "" },
};

static void manifests(void)
{
    char *text = seed_file("manifest/01-tp1.json", &(size_t){ 0 });
    struct str s = { 0 };
    struct manifest m;
    struct err err = { 0 };

    edit(&s, text, CAST, CAST ",\"more\":[{}],\"keep_vocab\":false");
    if (tap_ok(manifest_parse(&m, "m", s.s, s.len, &err) == 0,
               "a manifest with a member that nobody knows is read"))
        manifest_clear(&m);
    refused(manifest_parse(&m, "m", s.s, s.len - 3, &err), &err, "truncated", "cut");
    refused(manifest_parse(&m, "m", "", 0, &err), &err, "truncated", "nothing");
    s.s[9]++;
    refused(manifest_parse(&m, "m", s.s, s.len, &err), &err, "its checksum does not",
            "changed");
    str_clear(&s);
    for (size_t i = 0; i < sizeof(edits) / sizeof(*edits); i++) {
        err = (struct err){ 0 };
        edit(&s, text, edits[i].from, edits[i].to);
        refused(manifest_parse(&m, "m", s.s, s.len, &err), &err, edits[i].why,
                edits[i].to);
        str_clear(&s);
    }
    free(text);
}

/* ---- a checkpoint's rank files ---- */

static const struct {
    const char *from, *to, *why;
} rank_edits[] = {
    { "{\"name\":\"mask\",\"role\":\"weight\",\"dtype\":\"BF16\",\"shape\":[3],"
      "\"crc32\":[\"3be4c122\"]},\n",
      "", "has tensors that the manifest does not name" },
    { "{\"name\":\"mask\"", "{\"name\":\"mast\"", "mast" },
    { "\"shape\":[3]", "\"shape\":[4]", "mask" },
    { "\"dtype\":\"BF16\",\"shape\":[3]", "\"dtype\":\"F16\",\"shape\":[3]", "mask" },
    { "\"size\":1566", "\"size\":1567", "1566 bytes; the manifest says 1567" },
    { "rank-tp0-pp0.safetensors", "rank-tp1-pp0.safetensors", "" },
    { "\"crc32\":[\"3be4c122\"]", "\"crc32\":[null]", "mask" },
};

/* The files of a seed of fuzz-checkpoint into DIR, but for the manifest, which is
 * returned. */
static char *unpack(const char *dir, const char *name)
{
    size_t left, n;
    char *all = seed_file(name, &left), *p = all, *manifest = NULL;

    while (left) {
        char *space = memchr(p, ' ', left), *end = memchr(p, '\n', left), *path;

        if (!space || !end)
            break;
        *space = '\0';
        n = (size_t)strtoull(space + 1, NULL, 10);
        if (!strcmp(p, MANIFEST_NAME)) {
            manifest = xstrndup(end + 1, n);
        } else {
            path = fs_join_dup(dir, p);
            if (output_write(path, end + 1, n, false, NULL) < 0)
                exit(99);
            free(path);
        }
        left -= (size_t)(end + 1 - p) + n;
        p = end + 1 + n;
    }
    free(all);
    return manifest;
}

static void rank_files(void)
{
    char dir[] = "unit-ckpt.XXXXXX";
    struct str s = { 0 };
    struct err err = { 0 };
    struct checkpoint *c;
    char *text, *path;

    if (!mkdtemp(dir))
        exit(99);
    text = unpack(dir, "checkpoint/01-tp1");
    path = fs_join_dup(dir, MANIFEST_NAME);
    for (size_t i = 0; i <= sizeof(rank_edits) / sizeof(*rank_edits); i++) {
        bool good = i == sizeof(rank_edits) / sizeof(*rank_edits);
        int ret;

        err = (struct err){ 0 };
        edit(&s, text, good ? "1" : rank_edits[i].from, good ? "1" : rank_edits[i].to);
        if (output_write(path, s.s, s.len, false, &err) < 0)
            exit(99);
        str_clear(&s);
        ret = checkpoint_open(&c, dir, NULL, &err);
        if (ret == 0) {
            ret = checkpoint_open_files(c, -1, &err);
            checkpoint_close(c);
        }
        if (good)
            tap_ok(ret == 0, "rank files are the manifest's");
        else
            refused(ret, &err, rank_edits[i].why, rank_edits[i].to);
    }
    free(text);
    free(path);
    if (fs_remove_tree(dir, NULL) < 0)
        exit(99);
}

/* ---- a source that is written to ---- */

/* Copies FILE of the model llama-gqa to the directory DIR. */
static void copy_model_file(const char *dir, const char *file)
{
    char *name = str_dupf("../../data/models/llama-gqa/%s", file), *text;
    char *path = fs_join_dup(dir, file);
    struct err err = { 0 };
    size_t n;

    text = seed_file(name, &n);
    if (output_write(path, text, n, false, &err) < 0)
        exit(99);
    free(text);
    free(name);
    free(path);
}

/* Gives the weights another time, as a write does; as a callback, while they are read.
 */
static void touch_weights(void *arg, uint64_t done, uint64_t total)
{
    const struct timespec times[] = { { 1, 0 }, { done || total, 0 } };

    if (utimensat(AT_FDCWD, arg, times, 0) < 0)
        exit(99);
}

static void changed_sources(void)
{
    char dir[] = "unit-ckpt.XXXXXX";
    char *weights, *out;
    struct mesh mesh = { .nranks = 1 };
    struct convert_options opt = { .mesh = &mesh, .progress = touch_weights };
    struct convert_result result;
    struct err err = { 0 };
    struct checkpoint *c;

    if (!mkdtemp(dir))
        exit(99);
    copy_model_file(dir, "config.json");
    copy_model_file(dir, "model.safetensors");
    weights = fs_join_dup(dir, "model.safetensors");
    out = str_dupf("%s.out", dir);
    opt.arg = weights;
    for (int k = 0; k < MESH_NAXES; k++)
        mesh.size[k] = 1;
    if (checkpoint_open(&c, dir, NULL, &err) < 0)
        exit(99);
    touch_weights(weights, 0, 0);
    refused(checkpoint_open_files(c, -1, &err), &err, "was changed while it was read",
            "weights that were written to after their header was read");
    checkpoint_close(c);
    err = (struct err){ 0 };
    if (checkpoint_open(&c, dir, NULL, &err) < 0)
        exit(99);
    refused(convert(c, out, &opt, &result, &err), &err, "was changed while it was read",
            "weights that are written to while they are cut");
    checkpoint_close(c);
    tap_ok(access(out, F_OK) < 0, "and there is no output");
    free(weights);
    weights = str_dupf("%s.partial", out);
    if (fs_remove_tree(weights, NULL) < 0)
        exit(99);
    free(weights);
    free(out);
    if (fs_remove_tree(dir, NULL) < 0)
        exit(99);
}

/* ---- zip archives ---- */

#define CENTRAL "PK\1\2"
#define LOCAL   "PK\3\4"
#define END     "PK\5\6"
#define LOCATOR "PK\6\7"
#define END_64  "PK\6\6"

static const struct {
    const char *record; /* the first of these, */
    unsigned at;        /* so far behind its beginning, */
    const char *bytes;  /* gets these */
    unsigned n;
    const char *why;
} patches[] = {
    { END, 0, "x", 1, "no end record" },
    { END_64, 0, "x", 1, "no zip64 end record" },
    { LOCATOR, 8, "\377\377\377\377\377\377\377\177", 8, "no zip64 end record" },
    { END_64, 32, "\377\377\377\377", 4, "no directory entry" },
    { END_64, 48, "\1", 1, "no directory entry" },
    { END_64, 48, "\377\377\377\377\377\377\377\377", 8, "no directory entry" },
    { CENTRAL, 0, "x", 1, "no directory entry" },
    { CENTRAL, 28, "\377\377", 2, "a directory entry is cut short" },
    { CENTRAL, 30, "\377\377", 2, "a directory entry is cut short" },
    { CENTRAL, 32, "\377\377", 2, "a directory entry is cut short" },
    { CENTRAL, 42, "\1\0\0\0", 4, "no member where the directory says" },
    { CENTRAL, 42, "\0\377\377\377", 4, "no member where the directory says" },
    { LOCAL, 0, "x", 1, "no member where the directory says" },
    { CENTRAL, 20, "\0\0\377\377", 4, "a member is cut short" },
    { LOCAL, 26, "\377\377", 2, "a member is cut short" },
    { CENTRAL, 20,
      "\377\377\377\377\377\377\377\377\000\000\014\000\000\000\000\000\000\000\000\000"
      "\000\000\000\000\000\000\001\000\004\000\000\000\000\000\000\000\000\000",
      38, "a bad zip64 field" },
    { CENTRAL, 20,
      "\377\377\377\377\377\377\377\377\000\000\014\000\000\000\000\000\000\000\000\000"
      "\000\000\000\000\000\000\001\000\010\000\001\001\001\001\001\001\001\001",
      38, "a bad zip64 field" },
    { CENTRAL, 20,
      "\377\377\377\377\377\377\377\377\000\000\014\000\000\000\000\000\000\000\000\000"
      "\000\000\000\000\000\000\231\011\010\000\000\000\000\000\000\000\000\000",
      38, "a member is cut short" },
    { CENTRAL, 20,
      "\377\377\377\377\377\377\377\377\000\000\014\000\000\000\000\000\000\000\000\000"
      "\000\000\000\000\000\000\231\011\011\000\000\000\000\000\000\000\000\000",
      38, "a bad zip64 field" },
};

static void zip_archives(void)
{
    struct err err = { 0 };
    struct zip z;
    size_t n;
    char *good = seed_file("pickle/views.pt", &n), *bad = xmalloc(n);

    if (tap_ok(zip_read(&z, "z", (unsigned char *)good, n, &err) == 0 && z.n > 1 &&
                   !zip_find(&z, "no such member"),
               "an archive is read"))
        zip_clear(&z);
    refused(zip_read(&z, "z", (unsigned char *)good, 21, &err), &err, "too short",
            "21 bytes");
    for (size_t i = 0; i < sizeof(patches) / sizeof(*patches); i++) {
        char *at;

        memcpy(bad, good, n);
        at = memmem(bad, n, patches[i].record, 4);
        if (!at) {
            printf("Bail out! no record %zu\n", i);
            exit(99);
        }
        memcpy(at + patches[i].at, patches[i].bytes, patches[i].n);
        err = (struct err){ 0 };
        refused(zip_read(&z, "z", (unsigned char *)bad, n, &err), &err, patches[i].why,
                "an archive");
    }
    memcpy(bad, good, n);
    for (int k = 20; k < 28; k++) /* the first member has almost all bytes */
        ((char *)memmem(bad, n, CENTRAL, 4))[k] = (char)((n - 100) >> 8 * (k % 4));
    err = (struct err){ 0 };
    refused(zip_read(&z, "z", (unsigned char *)bad, n, &err), &err,
            "its members overlap", "members of more bytes than the archive");
    free(good);
    free(bad);
}

/* ---- pickles ---- */

#define P(text) text, sizeof(text) - 1
static const struct {
    const char *text;
    size_t n;
    const char *read; /* what it holds; NULL: it is refused */
} pickles[] = {
    { P("N."), "None" },
    { P("\200\002}."), "an empty dictionary" },
    { P("\200\005\225\001\000\000\000\000\000\000\000]."), "a frame" },
    { P("(K\001K\002t0(l0(d."), "tuples, lists and dictionaries of marks" },
    { P("I01\n0I-5\n0L7L\n0F1.5\n0G\000\000\000\000\000\000\000\000."), "numbers" },
    { P("M\001\002J\377\377\377\377\212\001\005\213\001\000\000\000\005\212\000."),
      "numbers in bytes" },
    { P("S'ab'"
        "\n0Vab\n0U\002ab0T\002\000\000\000ab0C\002ab0B\002\000\000\000ab0\214\002ab0"
        "\215\002\000\000\000\000\000\000\000ab0\216\002\000\000\000\000\000\000\000ab"
        "."),
      "texts and bytes" },
    { P("]q\000K\001ap5\nh\000g5\n\2060]r\007\000\000\000j\007\000\000\000."), "memo" },
    { P("]\224h\000."), "memoized" },
    { P("](K\001K\002e2."), "appended, and doubled" },
    { P("}(U\001aK\001u."), "items" },
    { P("(K\001K\0021N."), "a mark and what is above it dropped" },
    { P("\210\211\206."), "true and false" },
    { P("ccollections\nOrderedDict\n)R."), "an ordered dictionary" },
    { P("ccollections\nOrderedDict\n(]((U\001aK\001letR."), "of pairs" },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQK\000K\002\205K\001\205\211NtR."),
      "a tensor" },
    { P("ctorch._utils\n_rebuild_tensor\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQK\000K\002\205K\001\205tR."),
      "one of old" },
    { P("ctorch._utils\n_rebuild_parameter\n(ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQK\000K\002\205K\001\205\211NtR\211NtR."),
      "a parameter" },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004NtQK\000K\002\205K\001\205\211NtR."),
      "of a whole storage" },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004(X\001\000\000\000vK\001K\002ttQK\000K\002\205K\001\205\211NtR."),
      "of a view" },
    { P("U\013collectionsU\013OrderedDict\223."), "a global off the stack" },
    { P(""), NULL },
    { P("K"), NULL },
    { P("K\001"), NULL },
    { P("M\001"), NULL },
    { P("J\001\002"), NULL },
    { P("\212"), NULL },
    { P("\212\005a"), NULL },
    { P("X\005\000\000\000ab."), NULL },
    { P("X\377\377\377\377."), NULL },
    { P("\215\377\377\377\377\377\377\377\377."), NULL },
    { P("U"), NULL },
    { P("U\005a"), NULL },
    { P("S"), NULL },
    { P("S'\n."), NULL },
    { P("V"), NULL },
    { P("I"), NULL },
    { P("Ix\n."), NULL },
    { P("F"), NULL },
    { P("c"), NULL },
    { P("ccollections\n"), NULL },
    { P("cos\nsystem\n."), NULL },
    { P("cposix\nsystem\n)R."), NULL },
    { P("\223."), NULL },
    { P("K\001\223."), NULL },
    { P("K\001K\002\223."), NULL },
    { P("h\000."), NULL },
    { P("h"), NULL },
    { P("j\001\000\000\000."), NULL },
    { P("g5\n."), NULL },
    { P("g"), NULL },
    { P("gx\n."), NULL },
    { P("q\000."), NULL },
    { P("q"), NULL },
    { P("r\377\377\377\177."), NULL },
    { P("p"), NULL },
    { P("]px\n."), NULL },
    { P("\224."), NULL },
    { P("0."), NULL },
    { P("00."), NULL },
    { P("1."), NULL },
    { P("2."), NULL },
    { P("t."), NULL },
    { P("l."), NULL },
    { P("d."), NULL },
    { P("(K\001d."), NULL },
    { P("\205."), NULL },
    { P("K\001\206."), NULL },
    { P("K\001K\002\207."), NULL },
    { P("a."), NULL },
    { P("K\001a."), NULL },
    { P("NNa."), NULL },
    { P("e."), NULL },
    { P("(K\001e."), NULL },
    { P("N(K\001e."), NULL },
    { P("s."), NULL },
    { P("NNs."), NULL },
    { P("NNNs."), NULL },
    { P("u."), NULL },
    { P("}(K\001u."), NULL },
    { P("](K\001u."), NULL },
    { P("R."), NULL },
    { P("NR."), NULL },
    { P("NNR."), NULL },
    { P("N)R."), NULL },
    { P("Q."), NULL },
    { P("NQ."), NULL },
    { P("b."), NULL },
    { P("Nb."), NULL },
    { P("]"), NULL },
    { P("\200\006]."), NULL },
    { P("\200"), NULL },
    { P("\225\001."), NULL },
    { P("o."), NULL },
    { P("i."), NULL },
    { P("\201."), NULL },
    { P("\222."), NULL },
    { P("P0\n."), NULL },
    { P("\377."), NULL },
    { P("(."), NULL },
    { P("ccollections\nOrderedDict\n(K\001tR."), NULL },
    { P("ccollections\nOrderedDict\n(](K\001letR."), NULL },
    { P("ccollections\nOrderedDict\n(](K\001\205letR."), NULL },
    { P("ccollections\nOrderedDict\n(]]tR."), NULL },
    { P("ctorch\nFloatStorage\n)R."), NULL },
    { P("ctorch\nNoStorage\n."), NULL },
    { P("ctorch._utils\n_rebuild_parameter\n)R."), NULL },
    { P("ctorch._utils\n_rebuild_parameter\n(NtR."), NULL },
    { P("(X\005\000\000\000otherctorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQ."),
      NULL },
    { P("(X\007\000\000\000storageNX\001\000\000\000kX\003\000\000\000cpuK\004tQ."),
      NULL },
    { P("(X\007\000\000\000storageccollections\nOrderedDict\nX\001\000\000\000kX\003"
        "\000"
        "\000\000cpuK\004tQ."),
      NULL },
    { P("(X\007\000\000\000storagectorch\nFloatStorage\nK\001X\003\000\000\000cpuK\004t"
        "Q."),
      NULL },
    { P("(X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuNtQ."),
      NULL },
    { P("(X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuJ\377\377\377\377tQ."),
      NULL },
    { P("(X\007\000\000\000storagectorch\nFloatStorage\ntQ."), NULL },
    { P("(X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004(X\001\000\000\000vK\001ttQ."),
      NULL },
    { P("(X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004(X\001\000\000\000vNK\001ttQ."),
      NULL },
    { P("(X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004(X\001\000\000\000vJ\377\377\377\377K\001ttQ."),
      NULL },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(tR."), NULL },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(NK\000K\002\205K\001\205\211NtR."), NULL },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQNK\002\205K\001\205\211NtR."),
      NULL },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQJ\377\377\377\377K\002\205K\001\205\211NtR."),
      NULL },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQK\000NK\001\205\211NtR."),
      NULL },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQK\000N\205K\001\205\211NtR."),
      NULL },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQK\000J\377\377\377\377\205K\001\205\211NtR."),
      NULL },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQK\000K\002\205K\001K\001\206\211NtR."),
      NULL },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQK\000K\002\205N\211NtR."),
      NULL },
    { P("ctorch._utils\n_rebuild_tensor_v3\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQK\000K\002\205K\001\205\211NtR."),
      NULL },
    { P("ctorch._utils\n_rebuild_tensor_v3\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQK\000K\002\205K\001\205\211NNtR."),
      NULL },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQK\000K\002\205K\001\205\211N}(U\003neg\210utR."),
      NULL },
    { P("ctorch._utils\n_rebuild_tensor_v2\n(("
        "X\007\000\000\000storagectorch\nFloatStorage\nX\001\000\000\000kX\003\000\000"
        "\000cpuK\004tQK\000K\002\205K\001\205\211N}(U\004conj\210utR."),
      NULL },
};

static void all_pickles(void)
{
    for (size_t i = 0; i < sizeof(pickles) / sizeof(*pickles); i++) {
        struct err err = { 0 };
        struct pickled *v = NULL;
        struct unpickle m;
        int ret;

        unpickle_init(&m, "p", (const unsigned char *)pickles[i].text, pickles[i].n);
        ret = unpickle_run(&m, &v, &err);
        if (!tap_ok(pickles[i].read ? ret == 0 && v : ret < 0 && err.kind == ERR_INPUT,
                    "a pickle, number %zu, is %s%s", i,
                    pickles[i].read ? "read: " : "refused",
                    pickles[i].read ? pickles[i].read : ""))
            printf("#   got %d: %s\n", ret, ret < 0 ? err.text : "");
        unpickle_clear(&m);
    }
}

/* Numbers of .metadata in each width: of one byte, of four, and of nine. */
static void wide_numbers(void)
{
    static const uint64_t shape[] = { 256, 255 };
    const struct dcp_item item = { .name = "t",
                                   .dtype = DTYPE_F32,
                                   .ndim = 2,
                                   .shape = shape,
                                   .save = { .offset = UINT64_C(1) << 31,
                                             .length = (UINT64_C(1) << 31) - 1 } };
    char path[] = "/tmp/unit-ckpt.XXXXXX", *text = NULL;
    int fd = mkstemp(path);
    const struct pickled *state, *size, *place;
    struct pickled *root = NULL;
    struct unpickle m;
    struct err err = { 0 };
    bool good = fd >= 0 && dcp_metadata_write(fd, path, &item, 1, true, &err) == 0;
    size_t n = 0;

    if (fd >= 0)
        close(fd);
    good = good && fs_read_file(&text, &n, path, 1 << 20, &err) == 0;
    unlink(path);
    unpickle_init(&m, "p", (const unsigned char *)text, n);
    m.records = true;
    if (good && unpickle_run(&m, &root, &err) == 0) {
        state = pickled_get(root->record.state, "state_dict_metadata")->list.v[1];
        size = pickled_get(state->record.state, "size");
        place = pickled_get(root->record.state, "storage_data")->list.v[1];
        tap_ok(size->list.v[0]->number == 256 && size->list.v[1]->number == 255 &&
                   pickled_get(place->record.state, "offset")->number ==
                       (int64_t)item.save.offset &&
                   pickled_get(place->record.state, "length")->number ==
                       (int64_t)item.save.length,
               "numbers of .metadata come back, whatever their width");
    } else {
        tap_ok(false, "%s", err.text);
    }
    unpickle_clear(&m);
    free(text);
}

/* ---- JSON ---- */

/* Looking each member up among those before it would take minutes. */
static void many_members(void)
{
    enum { MEMBERS = 300000 };
    struct json_doc doc;
    struct str s = { 0 };
    struct err err = { 0 };

    str_addc(&s, '{');
    for (int i = 0; i < MEMBERS; i++)
        str_addf(&s, "%s\"k%d\":0", i ? "," : "", i);
    str_addc(&s, '}');
    alarm(30);
    if (tap_ok(json_parse(&doc, "many", s.s, s.len, &err) == 0,
               "an object of 300000 members is read at once"))
        json_clear(&doc);
    alarm(0);
    str_clear(&s);
}

/* Every pattern of bits, alone and behind numbers of a whole loop, against dtype_get.
 */
static bool values_agree(enum dtype t, uint64_t bits, size_t before)
{
    unsigned char buf[8 * 1024] = { 0 };
    size_t width = (size_t)dtype_bits(t) / 8;
    struct bitscan v = { 0 }, again = { 0 };
    double x;

    for (size_t k = 0; k < width; k++)
        buf[before * width + k] = (unsigned char)(bits >> 8 * k);
    x = dtype_get(t, buf, before);
    bitscan_add(&again, t, buf, before * width);
    bitscan_add(&v, t, buf + before * width, width);
    bitscan_join(&again, &v);
    v = (struct bitscan){ 0 };
    bitscan_add(&v, t, buf, (before + 1) * width);
    return v.seen == before + 1 && again.seen == v.seen && again.nans == v.nans &&
           again.infinities == v.infinities && again.other == v.other &&
           again.nonzero == v.nonzero && v.nans == (uint64_t)(x != x) &&
           v.infinities == (uint64_t)(x - x != x - x && x == x) &&
           v.nonzero == (x != 0) && v.other == (before && bits);
}

static void all_values(void)
{
    static const enum dtype small[] = { DTYPE_F8_E5M2, DTYPE_F8_E4M3, DTYPE_F16,
                                        DTYPE_BF16 };
    static const uint64_t wide[] = { 0,
                                     UINT64_C(1) << 63,
                                     1,
                                     UINT64_C(0x7fefffffffffffff),
                                     UINT64_C(0x7ff0000000000000),
                                     UINT64_C(0xfff0000000000000),
                                     UINT64_C(0x7ff0000000000001),
                                     UINT64_C(0xffffffffffffffff),
                                     UINT64_C(0x3ff0000000000000) };
    bool good = true;

    for (size_t k = 0; k < sizeof(small) / sizeof(*small); k++)
        for (uint64_t b = 0; b < UINT64_C(1) << dtype_bits(small[k]); b++)
            good &= values_agree(small[k], b, 0) &&
                    (b % 97 || values_agree(small[k], b, 600));
    for (size_t k = 0; k < sizeof(wide) / sizeof(*wide); k++)
        for (size_t before = 0; before < 601; before += 300) {
            static const uint32_t f32[] = { 0,          0x80000000, 1,
                                            0x7f7fffff, 0x7f800000, 0xff800000,
                                            0x7f800001, 0xffffffff, 0x3f800000 };

            good &= values_agree(DTYPE_F64, wide[k], before) &&
                    values_agree(DTYPE_F32, f32[k], before);
        }
    tap_ok(good, "NaN, infinite, zero and other numbers of all types are told apart");
}

int main(void)
{
    all_values();
    safetensors_headers();
    index_files();
    manifests();
    rank_files();
    changed_sources();
    zip_archives();
    all_pickles();
    wide_numbers();
    many_members();
    return tap_done();
}
