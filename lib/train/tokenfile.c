/* tokenfile - files of token ids: nanoGPT's, llm.c's and Megatron's
 *
 * Megatron's index, all little-endian (megatron/core/datasets/indexed_dataset.py):
 * "MMIDIDX\0\0", u64 1, u8 type, u64 sequences, u64 documents + 1; then i32 tokens of
 * each sequence, i64 byte at which each begins, i64 first sequence of each document
 * and, behind the last, their number; then, of images alone, i8 modes.
 *
 * llm.c's header is 256 i32: a magic number, a version, the number of tokens, and zeros
 * (dev/data/data_common.py). */
#include "lib/train/tokenfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { CHUNK = 4096, HEADER = 34, LLMC_HEADER = 1024, LOOK = 1 << 20, SCAN = 1 << 18 };
enum { LLMC_U16 = 20240520, LLMC_U32 = 20240801 }; /* magic numbers */
static const char MAGIC[] = "MMIDIDX\0"; /* with the NUL that ends it, 9 bytes */

const char *const token_width_names[] = { "auto", "u16", "u32", NULL };

static uint64_t get(const unsigned char *p, int bytes)
{
    uint64_t x = 0;

    while (bytes-- > 0)
        x = x << 8 | p[bytes];
    return x;
}

static unsigned type_bytes(enum token_type type)
{
    static const unsigned char bytes[] = {
        [TOKEN_U8] = 1,  [TOKEN_I8] = 1,  [TOKEN_I16] = 2, [TOKEN_I32] = 4,
        [TOKEN_I64] = 8, [TOKEN_U16] = 2, [TOKEN_U32] = 4
    };

    return (unsigned)type < sizeof(bytes) ? bytes[type] : 0;
}

/* ---- Megatron's index ---- */

struct index {
    const char *name;
    int fd;
    uint64_t sequences, bounds;   /* bounds: documents + 1 */
    uint64_t lengths, at, starts; /* where its three lists begin */
};

/* One of the lists, read in chunks. */
struct list {
    const struct index *x;
    uint64_t begin, n, next;
    int bytes;
    unsigned char chunk[CHUNK];
};

static int next_number(struct list *l, uint64_t *out, struct err *err)
{
    unsigned per = CHUNK / (unsigned)l->bytes, in = (unsigned)(l->next % per);

    if (in == 0) {
        uint64_t left = l->n - l->next, n = left < per ? left : per;

        if (fs_pread(l->x->fd, l->chunk, (size_t)n * (unsigned)l->bytes,
                     l->begin + l->next * (unsigned)l->bytes, l->x->name, err) < 0)
            return -1;
    }
    *out = get(l->chunk + in * (unsigned)l->bytes, l->bytes);
    l->next++;
    return 0;
}

static int read_header(struct index *x, struct tokenfile *f, uint64_t size,
                       struct err *err)
{
    unsigned char h[HEADER];
    uint64_t lists;

    if (size < HEADER)
        return err_set(err, ERR_INPUT, "%s: truncated", x->name);
    if (fs_pread(x->fd, h, sizeof(h), 0, x->name, err) < 0)
        return -1;
    if (memcmp(h, MAGIC, sizeof(MAGIC)) != 0 || get(h + 9, 8) != 1)
        return err_set(err, ERR_INPUT, "%s: not an index of Megatron's, version 1",
                       x->name);
    f->type = (enum token_type)h[17];
    if (f->type > TOKEN_U16 || !type_bytes(f->type))
        return err_set(err, ERR_INPUT, "%s: type %d is not one of whole numbers",
                       x->name, h[17]);
    x->sequences = get(h + 18, 8);
    x->bounds = get(h + 26, 8);
    if (x->sequences > size / 12 || x->bounds > size / 8 || !x->bounds)
        return err_set(err, ERR_INPUT, "%s: truncated", x->name);
    lists = HEADER + 12 * x->sequences + 8 * x->bounds;
    if (size != lists && size != lists + x->sequences)
        return err_set(err, ERR_INPUT,
                       "%s: %llu bytes, and %llu sequences of %llu documents have %llu",
                       x->name, (unsigned long long)size,
                       (unsigned long long)x->sequences,
                       (unsigned long long)x->bounds - 1, (unsigned long long)lists);
    x->lengths = HEADER;
    x->at = x->lengths + 4 * x->sequences;
    x->starts = x->at + 8 * x->sequences;
    return 0;
}

/* Converts sequences to documents; ERR_INPUT unless the sequences are contiguous. */
static int read_lists(const struct index *x, struct tokenfile *f, struct err *err)
{
    struct list length = { .x = x, .begin = x->lengths, .n = x->sequences, .bytes = 4 };
    struct list at = { .x = x, .begin = x->at, .n = x->sequences, .bytes = 8 };
    struct list starts = { .x = x, .begin = x->starts, .n = x->bounds, .bytes = 8 };
    uint64_t s = 0, bound = 0, n, byte;

    for (uint64_t d = 0; d < x->bounds; d++) {
        uint64_t before = f->tokens;

        if (next_number(&starts, &bound, err) < 0)
            return -1;
        if (bound < s || bound > x->sequences || (d == 0 && bound != 0))
            return err_set(err, ERR_INPUT,
                           "%s: document %llu begins at sequence %llu of %llu", x->name,
                           (unsigned long long)d, (unsigned long long)bound,
                           (unsigned long long)x->sequences);
        for (; s < bound; s++) {
            if (next_number(&length, &n, err) < 0 || next_number(&at, &byte, err) < 0)
                return -1;
            if (n > INT32_MAX || byte != f->tokens * type_bytes(f->type))
                return err_set(err, ERR_INPUT,
                               "%s: sequence %llu does not follow the one before it",
                               x->name, (unsigned long long)s);
            f->tokens += n; /* no overflow: below 2^31 for each 12 bytes of a file below
                             * 2^60 */
        }
        if (f->tokens > before)
            f->start[f->documents++] = before;
    }
    return bound == x->sequences
               ? 0
               : err_set(err, ERR_INPUT,
                         "%s: the documents have %llu of %llu sequences", x->name,
                         (unsigned long long)bound, (unsigned long long)x->sequences);
}

static int read_index(struct tokenfile *f, const char *path, struct err *err)
{
    struct index x = { .name = path, .fd = fs_open_regular(path, err) };
    uint64_t size;
    int ret = -1;

    if (x.fd < 0)
        return -1;
    f->kind = DOCUMENTS_INDEXED;
    if (fs_size(&size, path, err) < 0 || read_header(&x, f, size, err) < 0)
        goto out;
    f->start = mem_alloc(x.bounds * sizeof(*f->start), "the documents' index", err);
    if (f->start)
        ret = read_lists(&x, f, err);
out:
    close(x.fd);
    return ret;
}

/* ---- plain ids ---- */

/* Are the words I of X[n], little-endian, of which I % OF is at least FROM, all 0 or,
 * if ONE, 1?  The upper words of wider ids are. */
static bool are_upper(const unsigned char *x, size_t n, size_t of, size_t from,
                      bool one)
{
    for (size_t i = 0; i < n; i++)
        if (i % of >= from && get(x + 2 * i, 2) > one)
            return false;
    return true;
}

/* The bits that the ids in the N words at X seem to have.  A few words say nothing. */
static int seen_bits(const unsigned char *x, size_t n)
{
    enum { FEW = 8 };

    if (n < FEW)
        return 16;
    return n % 4 == 0 && are_upper(x, n, 4, 2, false) && are_upper(x, n, 4, 1, true)
               ? 64
           : are_upper(x, n, 2, 1, true) ? 32
                                         : 16;
}

/* Is the 1024 bytes at H a header as llm.c's: some numbers, and zeros? */
static bool is_header(const unsigned char *h, uint64_t size)
{
    uint64_t n = get(h + 8, 4);

    for (size_t i = 12; i < LLMC_HEADER; i++)
        if (h[i])
            return false;
    return n && (size == LLMC_HEADER + 2 * n || size == LLMC_HEADER + 4 * n);
}

/* Looks at the first of the file's bytes: is it what it is taken for? */
static int check_plain(const struct tokenfile *f, uint64_t size,
                       const struct tokenfile_options *o, struct err *err)
{
    size_t n = size < LOOK ? (size_t)size : LOOK;
    unsigned char *x;
    int bits = 16, ret = 0;

    if (str_ends(f->name, "_document.bin"))
        return err_set(err, ERR_INPUT,
                       "%s: has the name of Megatron's, and its .idx is missing; "
                       "--ids-type says what it has without",
                       f->name);
    x = xmalloc(n + 1);
    if (fs_pread(f->fd, x, n, 0, f->name, err) < 0)
        ret = -1;
    else if (n >= LLMC_HEADER && is_header(x, size))
        ret =
            err_set(err, ERR_INPUT,
                    "%s: has a header as llm.c's with the magic number %llu, which is "
                    "not known; --ids-type says what the file has without a header",
                    f->name, (unsigned long long)get(x, 4));
    else
        bits = seen_bits(x, n / 2);
    free(x);
    if (ret < 0)
        return -1;
    if (bits == 64)
        return err_set(
            err, ERR_INPUT,
            "%s: its ids seem to have 64 bits, of which 48 are 0; write them "
            "with 16 or 32, or say --ids-type u16",
            f->name);
    if (bits == 32)
        return err_set(
            err, ERR_INPUT,
            "%s: its ids seem to have 32 bits, not 16, as every second number "
            "is 0 or 1: say --ids-type u32 or u16",
            f->name);
    if (o->vocab > UINT16_MAX + 1)
        return err_set(err, ERR_INPUT,
                       "%s: the vocabulary of %llu ids does not fit 16 bits, which the "
                       "file seems to have: say --ids-type u16 or u32",
                       f->name, (unsigned long long)o->vocab);
    return 0;
}

static int read_plain(struct tokenfile *f, uint64_t size,
                      const struct tokenfile_options *o, struct err *err)
{
    unsigned char h[12] = { 0 };
    uint64_t magic, version;

    if (size >= LLMC_HEADER && fs_pread(f->fd, h, sizeof(h), 0, f->name, err) < 0)
        return -1;
    magic = get(h, 4);
    version = get(h + 4, 4);
    if (magic == LLMC_U16 || magic == LLMC_U32) {
        bool wide = magic == LLMC_U32;

        if (version != (wide ? 7 : 1))
            return err_set(err, ERR_INPUT,
                           "%s: version %llu of llm.c's files is not known", f->name,
                           (unsigned long long)version);
        f->type = wide ? TOKEN_U32 : TOKEN_U16;
        f->kind = DOCUMENTS_BEGUN;
        f->offset = LLMC_HEADER;
        f->tokens = get(h + 8, 4);
    } else {
        if (o->width == TOKEN_WIDTH_AUTO && check_plain(f, size, o, err) < 0)
            return -1;
        f->type = o->width == TOKEN_WIDTH_U32 ? TOKEN_U32 : TOKEN_U16;
        f->kind = DOCUMENTS_CLOSED;
        f->tokens = size / type_bytes(f->type);
    }
    if (size != f->offset + f->tokens * type_bytes(f->type))
        return err_set(err, ERR_INPUT, "%s: %llu bytes are not %llu ids of %u", f->name,
                       (unsigned long long)size, (unsigned long long)f->tokens,
                       type_bytes(f->type));
    return 0;
}

/* ---- reading ---- */

/* Replaces the suffix .bin or .idx of PATH by END. */
static char *name_with(const char *path, const char *end)
{
    return str_dupf("%.*s%s", (int)(strlen(path) - 4), path, end);
}

bool tokenfile_is(const char *path)
{
    return str_ends(path, ".bin") || str_ends(path, ".idx");
}

int tokenfile_open(struct tokenfile *f, const char *path,
                   const struct tokenfile_options *options, struct err *err)
{
    char *index = name_with(path, ".idx");
    uint64_t size;
    bool found;
    int ret = -1;

    *f = (struct tokenfile){ .name = name_with(path, ".bin"), .fd = -1 };
    f->fd = fs_open_regular(f->name, err);
    if (f->fd < 0 || fs_size(&size, f->name, err) < 0 ||
        fs_find(&found, index, err) < 0)
        goto out;
    if (!found && !str_ends(path, ".idx")) {
        ret = read_plain(f, size, options, err);
        goto out;
    }
    ret = read_index(f, index, err);
    if (ret == 0 && size != f->tokens * type_bytes(f->type))
        ret = err_set(err, ERR_INPUT, "%s: %llu bytes, and %s is one of %llu", f->name,
                      (unsigned long long)size, index,
                      (unsigned long long)(f->tokens * type_bytes(f->type)));
out:
    free(index);
    if (ret < 0)
        tokenfile_close(f);
    return ret;
}

void tokenfile_close(struct tokenfile *f)
{
    if (f->name && f->fd >= 0)
        close(f->fd);
    free(f->name);
    free(f->start);
    *f = (struct tokenfile){ .fd = -1 };
}

/* The id at P; negative ids become larger than any vocabulary. */
static uint64_t get_id(enum token_type type, const unsigned char *p)
{
    unsigned bytes = type_bytes(type);
    uint64_t x = get(p, (int)bytes);
    bool is_signed = type >= TOKEN_I8 && type <= TOKEN_I64;

    return is_signed && x >> (8 * bytes - 1) ? UINT64_MAX : x;
}

int tokenfile_read(const struct tokenfile *f, uint64_t first, size_t n, uint64_t vocab,
                   int32_t *id, struct err *err)
{
    unsigned bytes = type_bytes(f->type);
    uint64_t limit = vocab ? vocab : (uint64_t)INT32_MAX + 1;
    unsigned char chunk[CHUNK];

    for (size_t done = 0; done < n;) {
        size_t part = n - done < CHUNK / bytes ? n - done : CHUNK / bytes;

        if (fs_pread(f->fd, chunk, part * bytes, f->offset + (first + done) * bytes,
                     f->name, err) < 0)
            return -1;
        for (size_t i = 0; i < part; i++, done++) {
            uint64_t x = get_id(f->type, chunk + i * bytes);

            if (x >= limit)
                return err_set(err, ERR_INPUT,
                               "%s: token %llu is %s%llu, and the vocabulary has %llu",
                               f->name, (unsigned long long)(first + done),
                               x == UINT64_MAX ? "below " : "",
                               x == UINT64_MAX ? 0ULL : (unsigned long long)x,
                               (unsigned long long)limit);
            id[done] = (int32_t)x;
        }
    }
    return 0;
}

/* The largest of the N ids at P; UINT64_MAX if one is negative. */
static uint64_t largest(enum token_type type, const unsigned char *p, size_t n)
{
    unsigned bytes = type_bytes(type);
    uint64_t most = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t x = get_id(type, p + i * bytes);

        most = x > most ? x : most;
    }
    return most;
}

/* The same for the type of most files, in a loop that compilers make wide. */
static uint64_t largest_u16(const unsigned char *p, size_t n)
{
    unsigned most = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned x = p[2 * i] | (unsigned)p[2 * i + 1] << 8;

        most = x > most ? x : most;
    }
    return most;
}

int tokenfile_check(const struct tokenfile *f, uint64_t first, uint64_t n,
                    uint64_t vocab, struct err *err)
{
    unsigned bytes = type_bytes(f->type);
    uint64_t limit = vocab ? vocab : (uint64_t)INT32_MAX + 1;
    unsigned char *chunk = xmalloc(SCAN);
    int ret = 0;

    for (uint64_t done = 0, part; done < n && ret == 0; done += part) {
        uint64_t most = 0;

        part = n - done < SCAN / bytes ? n - done : SCAN / bytes;
        ret = fs_pread(f->fd, chunk, (size_t)part * bytes,
                       f->offset + (first + done) * bytes, f->name, err);
        if (ret == 0)
            most = f->type == TOKEN_U16 ? largest_u16(chunk, (size_t)part)
                                        : largest(f->type, chunk, (size_t)part);
        if (most >= limit) { /* says which */
            int32_t *id = xmalloc((size_t)part * sizeof(*id));

            ret = tokenfile_read(f, first + done, (size_t)part, vocab, id, err);
            free(id);
        }
    }
    free(chunk);
    return ret;
}
