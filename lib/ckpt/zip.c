/* zip - locates the uncompressed members of a zip archive */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/ckpt/zip.h"

/* Signatures and fixed sizes of APPNOTE.TXT, sections 4.3.7 to 4.3.16. */
enum {
    LOCAL = 0x04034b50,
    CENTRAL = 0x02014b50,
    END = 0x06054b50,
    END_64 = 0x06064b50,
    LOCATOR_64 = 0x07064b50,
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END_SIZE = 22,
    LOCATOR_64_SIZE = 20,
    END_64_SIZE = 56,
    EXTRA_64 = 0x0001,
    MAX_COMMENT = 65535
};

static uint64_t get(const unsigned char *p, int bytes)
{
    uint64_t v = 0;

    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

struct archive {
    const char *path;
    const unsigned char *data;
    uint64_t size;
};

/* Is the range of N bytes at OFFSET inside the archive? */
static bool inside(const struct archive *a, uint64_t offset, uint64_t n)
{
    return offset <= a->size && n <= a->size - offset;
}

static int malformed(const struct archive *a, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: bad zip archive: %s", a->path, what);
}

/* Finds the directory's offset and the number of members. */
static int find_directory(const struct archive *a, uint64_t *offset, uint64_t *count,
                          struct err *err)
{
    uint64_t end, lowest, end64;
    const unsigned char *p;

    if (a->size < END_SIZE)
        return malformed(a, "too short", err);
    end = a->size - END_SIZE;
    lowest = end > MAX_COMMENT ? end - MAX_COMMENT : 0;
    while (get(a->data + end, 4) != END)
        if (end-- == lowest)
            return malformed(a, "no end record", err);
    p = a->data + end;
    *count = get(p + 10, 2);
    *offset = get(p + 16, 4);
    if (end < LOCATOR_64_SIZE || get(p - LOCATOR_64_SIZE, 4) != LOCATOR_64)
        return 0;
    end64 = get(p - LOCATOR_64_SIZE + 8, 8);
    if (!inside(a, end64, END_64_SIZE) || get(a->data + end64, 4) != END_64)
        return malformed(a, "no zip64 end record", err);
    *count = get(a->data + end64 + 32, 8);
    *offset = get(a->data + end64 + 48, 8);
    return 0;
}

/* Reads sizes and offset that do not fit 32 bits from the zip64 extra field, in this
 * order. */
static bool read_extra(const unsigned char *p, size_t n, uint64_t *size,
                       uint64_t *packed, uint64_t *offset)
{
    uint64_t *value[] = { size, packed, offset };

    while (n >= 4) {
        size_t id = (size_t)get(p, 2), len = (size_t)get(p + 2, 2);

        p += 4;
        n -= 4;
        if (len > n)
            return false;
        if (id != EXTRA_64) {
            p += len;
            n -= len;
            continue;
        }
        for (int i = 0; i < 3; i++)
            if (*value[i] == UINT32_MAX) {
                if (len < 8)
                    return false;
                *value[i] = get(p, 8);
                p += 8;
                len -= 8;
            }
        return true;
    }
    return true;
}

/* Reads the member whose entry is at *at, and advances *at; *sum is the bytes of all
 * members, which cannot be more than the archive's. */
static int read_member(const struct archive *a, struct zip *z, uint64_t *at,
                       uint64_t *sum, struct zip_member *m, struct err *err)
{
    const unsigned char *p;
    uint64_t packed, size, local;
    size_t name_len, extra_len, comment_len;
    bool plain;

    if (!inside(a, *at, CENTRAL_SIZE) || get(a->data + *at, 4) != CENTRAL)
        return malformed(a, "no directory entry where one should be", err);
    p = a->data + *at;
    name_len = (size_t)get(p + 28, 2);
    extra_len = (size_t)get(p + 30, 2);
    comment_len = (size_t)get(p + 32, 2);
    if (!inside(a, *at, CENTRAL_SIZE + name_len + extra_len + comment_len))
        return malformed(a, "a directory entry is cut short", err);
    plain = get(p + 10, 2) == 0 && !(get(p + 8, 2) & 1);
    packed = get(p + 20, 4);
    size = get(p + 24, 4);
    local = get(p + 42, 4);
    if (!read_extra(p + CENTRAL_SIZE + name_len, extra_len, &size, &packed, &local))
        return malformed(a, "a bad zip64 field", err);
    if (!inside(a, local, LOCAL_SIZE) || get(a->data + local, 4) != LOCAL)
        return malformed(a, "no member where the directory says", err);
    *m = (struct zip_member){
        .name = pool_strndup(&z->pool, (const char *)p + CENTRAL_SIZE, name_len),
        .offset = local + LOCAL_SIZE + get(a->data + local + 26, 2) +
                  get(a->data + local + 28, 2),
        .size = size,
        .crc = (uint32_t)get(p + 16, 4),
        .stored = plain && packed == size,
    };
    if (!inside(a, m->offset, packed))
        return malformed(a, "a member is cut short", err);
    if (!mem_add(sum, *sum, packed) || *sum > a->size)
        return malformed(a, "its members overlap", err);
    *at += CENTRAL_SIZE + name_len + extra_len + comment_len;
    return 0;
}

static int compare_members(const void *a, const void *b)
{
    return strcmp(((const struct zip_member *)a)->name,
                  ((const struct zip_member *)b)->name);
}

int zip_read(struct zip *z, const char *path, const unsigned char *data, uint64_t size,
             struct err *err)
{
    struct archive a = { path, data, size };
    struct zip made = { 0 };
    uint64_t at = 0, count = 0, sum = 0;
    size_t cap = 0;

    if (find_directory(&a, &at, &count, err) < 0)
        return -1;
    for (; made.n < count; made.n++) {
        made.member = xgrow(made.member, &cap, made.n + 1, sizeof(*made.member));
        if (read_member(&a, &made, &at, &sum, &made.member[made.n], err) < 0)
            goto fail;
    }
    if (made.n)
        qsort(made.member, made.n, sizeof(*made.member), compare_members);
    for (size_t i = 1; i < made.n; i++)
        if (!strcmp(made.member[i - 1].name, made.member[i].name)) {
            malformed(&a, "two members of one name", err);
            goto fail;
        }
    *z = made;
    return 0;
fail:
    zip_clear(&made);
    return -1;
}

const struct zip_member *zip_find(const struct zip *z, const char *name)
{
    const struct zip_member key = { .name = name };

    return z->n ? bsearch(&key, z->member, z->n, sizeof(key), compare_members) : NULL;
}

void zip_clear(struct zip *z)
{
    free(z->member);
    pool_clear(&z->pool);
    *z = (struct zip){ 0 };
}
