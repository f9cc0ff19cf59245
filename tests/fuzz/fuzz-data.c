/* fuzz-data - files of documents and of token ids, and the samples of them
 *
 * A letter says what the file is (see KINDS), a digit how long samples are, and the
 * rest is the file; in front of a .bin with an index the index has as many bytes as its
 * first two, little-endian, say.  What is behind a gzip's or llm.c's header gets one
 * that is right, besides files that have their own. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/train/data.h"

enum { MOST_SAMPLES = 64, VOCAB = 6, END = 3, LLMC_HEADER = 1024, PATH = 128 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char TOKENIZER[] =
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<e>\",\"special\":true}],"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<e>\":3,\"aab\":"
    "4},"
    "\"merges\":[\"a b\",\"a ab\"]}}";

static const char *put(char *out, const char *dir, const char *name, const void *bytes,
                       size_t n)
{
    snprintf(out, PATH, "%s%s", dir, name);
    if (output_write(out, bytes, n, false, NULL) < 0)
        abort();
    return out;
}

static void compress_to(const char *path, const uint8_t *data, size_t n)
{
    gzFile gz = gzopen(path, "wb1");

    if (gz) {
        gzwrite(gz, data, (unsigned)n);
        gzclose_w(gz);
    }
}

static void put_llmc(char *out, const char *dir, const uint8_t *data, size_t n,
                     bool wide)
{
    size_t count = n / (wide ? 4 : 2);
    uint8_t *file = xcalloc(LLMC_HEADER + n + 1, 1);
    const uint32_t head[] = { wide ? 20240801 : 20240520, wide ? 7 : 1,
                              (uint32_t)count };

    memcpy(file, head, sizeof(head));
    memcpy(file + LLMC_HEADER, data, n);
    put(out, dir, "/d.bin", file, LLMC_HEADER + count * (wide ? 4 : 2));
    free(file);
}

static void put_indexed(char *out, const char *dir, const uint8_t *data, size_t n)
{
    size_t index = n >= 2 ? (size_t)(data[0] | data[1] << 8) : 0;

    data += n >= 2 ? 2 : n;
    n -= n >= 2 ? 2 : n;
    index = index < n ? index : n;
    put(out, dir, "/d.bin", data + index, n - index);
    put(out, dir, "/d.idx", data, index);
}

/* The file of the KIND, and its path to OUT. */
static void put_kind(char *out, const char *dir, char kind, const uint8_t *data,
                     size_t n)
{
    switch (kind) {
    case 'j':
        put(out, dir, "/d.jsonl", data, n);
        break;
    case 'c':
        compress_to(put(out, dir, "/d.jsonl.gz", "", 0), data, n);
        break;
    case 'g':
        put(out, dir, "/d.jsonl.gz", data, n);
        break;
    case 'z':
        put(out, dir, "/d.jsonl.zst", data, n);
        break;
    case 'b':
        put(out, dir, "/d.bin", data, n);
        break;
    case 'l':
    case 'w':
        put_llmc(out, dir, data, n, kind == 'w');
        break;
    case 'm':
        put_indexed(out, dir, data, n);
        break;
    default:
        put(out, dir, "/d.txt", data, n);
    }
}

/* Every sample holds what a trainer may rely on. */
static void check(const struct sample *s, size_t seq)
{
    size_t document = 0;

    if (!s->n || s->n > seq || !s->documents || s->start[0] != 0)
        abort();
    for (size_t i = 0; i < s->n; i++) {
        if (document + 1 < s->documents && s->start[document + 1] == i)
            document++;
        if (s->id[i] < 0 || s->id[i] >= VOCAB || s->target[i] < -1 ||
            s->target[i] >= VOCAB)
            abort();
    }
    if (document + 1 != s->documents)
        abort();
}

static void read_all(const char *file, const struct tokenizer *t, size_t seq,
                     enum data_pack pack)
{
    const struct data_options o = { .file = &file,
                                    .nfiles = 1,
                                    .seq = seq,
                                    .pack = pack,
                                    .tokenizer = t,
                                    .end_id = END,
                                    .vocab = VOCAB,
                                    .threads = 1 };
    struct sample s[2];
    struct err err;
    struct data *d;

    if (data_open(&d, &o, &err) < 0)
        return;
    for (uint64_t i = 0; i < data_samples(d) && i < MOST_SAMPLES; i += 2)
        if (data_fill(d, i, 2, s, &err) == 0) {
            check(&s[0], seq);
            check(&s[1], seq);
        }
    data_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char dir[64] = "/tmp/fuzz-data.XXXXXX", path[PATH];
    struct tokenizer *t;
    struct err err;

    if (access("/dev/shm", W_OK) == 0)
        snprintf(dir, sizeof(dir), "/dev/shm/fuzz-data.XXXXXX");
    if (size < 2 || tokenizer_parse(&t, "fuzz", TOKENIZER, &err) < 0)
        return 0;
    if (mkdtemp(dir)) {
        put_kind(path, dir, (char)data[0], data + 2, size - 2);
        read_all(path, t, 1 + data[1] % 16, DATA_PACK_DOCUMENTS);
        read_all(path, t, 1 + data[1] % 16, DATA_PACK_NONE);
        if (fs_remove_tree(dir, NULL) < 0)
            abort();
    }
    tokenizer_free(t);
    return 0;
}
