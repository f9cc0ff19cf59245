/* torchsave - writes archives as torch.save does
 *
 * Zip: APPNOTE.TXT 4.3.7 to 4.3.16; members are not compressed, and raw storages begin
 * at multiples of 64. */
#include "lib/ckpt/torchsave.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/mem.h"

enum {
    LOCAL_SIZE = 30,
    END_64_SIZE = 56,
    EXTRA_64_SIZE = 20, /* the zip64 extra field: two sizes of eight bytes and its
                         * header */
    ALIGNMENT = 64,
    MOST_NAME = 40
};

static const char PICKLE_NAME[] = "archive/data.pkl";
static const char ORDER_NAME[] = "archive/byteorder", ORDER[] = "little";
static const char VERSION_NAME[] = "archive/version", VERSION[] = "3\n";

static void put(struct str *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_addc(s, (char)(i < 8 ? v >> 8 * i & 0xff : 0));
}

static bool is_large(uint64_t bytes)
{
    return bytes >= UINT32_MAX;
}

static const char *data_name(char buf[MOST_NAME], size_t i)
{
    snprintf(buf, MOST_NAME, "archive/data/%zu", i);
    return buf;
}

/* Writes the local header of a member of N bytes, with EXTRA bytes of padding in it. */
static void put_local(struct str *s, const char *name, uint32_t crc, uint64_t n,
                      uint64_t extra)
{
    bool large = is_large(n);

    put(s, 0x04034b50, 4);
    put(s, large ? 45 : 20, 2);
    put(s, 0, 8); /* flags, stored, time, date */
    put(s, crc, 4);
    put(s, large ? UINT32_MAX : n, 4);
    put(s, large ? UINT32_MAX : n, 4);
    put(s, strlen(name), 2);
    put(s, extra + (large ? EXTRA_64_SIZE : 0), 2);
    str_add(s, name);
    if (large) {
        put(s, 1, 2);
        put(s, EXTRA_64_SIZE - 4, 2);
        put(s, n, 8);
        put(s, n, 8);
    }
    if (extra) { /* PyTorch's padding field */
        str_add(s, "FB");
        put(s, extra - 4, 2);
        for (uint64_t i = 4; i < extra; i++)
            str_addc(s, 'Z');
    }
}

static void put_central(struct str *s, const char *name, uint32_t crc, uint64_t n,
                        uint64_t at)
{
    bool large = is_large(n) || is_large(at);

    put(s, 0x02014b50, 4);
    put(s, large ? 45 : 20, 2);
    put(s, large ? 45 : 20, 2);
    put(s, 0, 8);
    put(s, crc, 4);
    put(s, large ? UINT32_MAX : n, 4);
    put(s, large ? UINT32_MAX : n, 4);
    put(s, strlen(name), 2);
    put(s, large ? 28 : 0, 2);
    put(s, 0, 8); /* comment, disk, attributes: ten bytes */
    put(s, 0, 2);
    put(s, large ? UINT32_MAX : at, 4);
    str_add(s, name);
    if (large) {
        put(s, 1, 2);
        put(s, 24, 2);
        put(s, n, 8);
        put(s, n, 8);
        put(s, at, 8);
    }
}

/* Padding in the header at AT of the storage NAME, so that its BYTES begin at a
 * multiple of ALIGNMENT.  A padding field has at least four bytes. */
static uint64_t padding(uint64_t at, const char *name, uint64_t bytes)
{
    uint64_t end =
        at + LOCAL_SIZE + strlen(name) + (is_large(bytes) ? EXTRA_64_SIZE : 0);
    uint64_t extra = (ALIGNMENT - end % ALIGNMENT) % ALIGNMENT;

    return extra && extra < 4 ? extra + ALIGNMENT : extra;
}

/* Writes the header of storage I. */
static void put_storage(struct str *s, const struct torchsave *t, size_t i)
{
    const struct torchsave_storage *d = &t->storage[i];
    char name[MOST_NAME];

    data_name(name, i);
    put_local(s, name, d->crc, d->bytes, padding(d->head, name, d->bytes));
}

/* Writes the members before all storages. */
static void put_first(struct str *s, const struct torchsave *t)
{
    put_local(s, PICKLE_NAME, hash_crc32(0, t->pickle.s, t->pickle.len), t->pickle.len,
              0);
    str_addn(s, t->pickle.s, t->pickle.len);
    put_local(s, ORDER_NAME, hash_crc32(0, ORDER, strlen(ORDER)), strlen(ORDER), 0);
    str_add(s, ORDER);
}

/* Writes the member behind the storages, and the directory. */
static void put_last(struct str *s, const struct torchsave *t)
{
    uint64_t version = t->behind - t->offset, directory, size, n = 3 + t->n;
    uint64_t order = LOCAL_SIZE + strlen(PICKLE_NAME) + t->pickle.len;
    size_t before = s->len;
    char name[MOST_NAME];

    put_local(s, VERSION_NAME, hash_crc32(0, VERSION, strlen(VERSION)), strlen(VERSION),
              0);
    str_add(s, VERSION);
    directory = version + s->len - before;
    put_central(s, PICKLE_NAME, hash_crc32(0, t->pickle.s, t->pickle.len),
                t->pickle.len, 0);
    put_central(s, ORDER_NAME, hash_crc32(0, ORDER, strlen(ORDER)), strlen(ORDER),
                order);
    for (size_t i = 0; i < t->n; i++)
        put_central(s, data_name(name, i), t->storage[i].crc, t->storage[i].bytes,
                    t->storage[i].head - t->offset);
    put_central(s, VERSION_NAME, hash_crc32(0, VERSION, strlen(VERSION)),
                strlen(VERSION), version);
    size = version + s->len - before - directory;
    put(s, 0x06064b50, 4); /* end of the directory: zip64 form, then the usual form */
    put(s, END_64_SIZE - 12, 8);
    put(s, 45, 2);
    put(s, 45, 2);
    put(s, 0, 8);
    put(s, n, 8);
    put(s, n, 8);
    put(s, size, 8);
    put(s, directory, 8);
    put(s, 0x07064b50, 4);
    put(s, 0, 4);
    put(s, directory + size, 8);
    put(s, 1, 4);
    put(s, 0x06054b50, 4);
    put(s, 0, 4);
    put(s, n < UINT16_MAX ? n : UINT16_MAX, 2);
    put(s, n < UINT16_MAX ? n : UINT16_MAX, 2);
    put(s, is_large(size) ? UINT32_MAX : size, 4);
    put(s, is_large(directory) ? UINT32_MAX : directory, 4);
    put(s, 0, 2);
}

size_t torchsave_add(struct torchsave *t, uint64_t bytes)
{
    if (!(t->n & (t->n - 1))) /* a power of two: is full */
        t->storage = xrealloc(t->storage, (t->n ? 2 * t->n : 1) * sizeof(*t->storage));
    t->storage[t->n] = (struct torchsave_storage){ .bytes = bytes };
    return t->n++;
}

void torchsave_place(struct torchsave *t, uint64_t offset)
{
    struct str s = { 0 };
    uint64_t at;

    t->offset = offset;
    put_first(&s, t);
    at = offset + s.len;
    for (size_t i = 0; i < t->n; i++) {
        t->storage[i].head = at;
        str_reset(&s);
        put_storage(&s, t, i);
        t->storage[i].at = at + s.len;
        at = t->storage[i].at + t->storage[i].bytes;
    }
    t->behind = at;
    str_reset(&s);
    put_last(&s, t);
    t->length = at + s.len - offset;
    str_clear(&s);
}

void torchsave_gap(struct str *out, uint64_t *at, const struct torchsave *t, size_t i)
{
    str_reset(out);
    *at = i ? t->storage[i - 1].at + t->storage[i - 1].bytes : t->offset;
    if (!i)
        put_first(out, t);
    if (i < t->n)
        put_storage(out, t, i);
    else
        put_last(out, t);
}

void torchsave_clear(struct torchsave *t)
{
    str_clear(&t->pickle);
    free(t->storage);
    *t = (struct torchsave){ 0 };
}
