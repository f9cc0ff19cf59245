/* tokenwriter - writes Megatron's indexed dataset, PREFIX.bin and PREFIX.idx */
#define _GNU_SOURCE
#include "lib/train/tokenwriter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/train/tokenfile.h"

enum { BUFFER = 1 << 16, NAMED_16_BITS = 65500 };

struct tokenwriter {
    char *bin, *index;
    char *temporary; /* NULL: the file has no name yet (O_TMPFILE) */
    int fd;
    bool wide;        /* 32 bits */
    uint32_t *length; /* [documents]: tokens */
    size_t documents, cap;
    uint64_t tokens;
    size_t have;
    unsigned char buffer[BUFFER];
};

static unsigned width(const struct tokenwriter *w)
{
    return w->wide ? 4 : 2;
}

/* Opens an unnamed file, which disappears with the process, or a temporary file where
 * the file system has no unnamed ones. */
static int open_bin(struct tokenwriter *w, struct err *err)
{
    char *dir = fs_dirname_dup(w->bin);
    char *name = str_dupf("%s/.%s.%ld.tmp", dir, fs_basename(w->bin), (long)getpid());

    w->fd = open(dir, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        w->fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        w->temporary = w->fd < 0 ? NULL : xstrdup(name);
    }
    free(name);
    free(dir);
    return w->fd < 0 ? err_errno(err, "%s", w->bin) : 0;
}

/* Links the file under its final name. */
static int name_bin(struct tokenwriter *w, struct err *err)
{
    char link[64];
    char *dir;

    if (!w->temporary) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", w->fd);
        dir = fs_dirname_dup(w->bin);
        w->temporary =
            str_dupf("%s/.%s.%ld.tmp", dir, fs_basename(w->bin), (long)getpid());
        free(dir);
        if (linkat(AT_FDCWD, link, AT_FDCWD, w->temporary, AT_SYMLINK_FOLLOW) < 0) {
            free(w->temporary);
            w->temporary = NULL;
            return err_errno(err, "%s", w->bin);
        }
    }
    if (rename(w->temporary, w->bin) < 0)
        return err_errno(err, "%s", w->bin);
    free(w->temporary);
    w->temporary = NULL;
    return 0;
}

int tokenwriter_open(struct tokenwriter **out, const char *prefix, uint64_t vocab,
                     struct err *err)
{
    struct tokenwriter *w = xcalloc(1, sizeof(*w));

    w->bin = str_dupf("%s.bin", prefix);
    w->index = str_dupf("%s.idx", prefix);
    w->wide = vocab >= NAMED_16_BITS;
    if (open_bin(w, err) < 0) {
        tokenwriter_close(w);
        return -1;
    }
    *out = w;
    return 0;
}

void tokenwriter_close(struct tokenwriter *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (w->temporary)
        unlink(w->temporary);
    free(w->temporary);
    free(w->bin);
    free(w->index);
    free(w->length);
    free(w);
}

static int flush(struct tokenwriter *w, struct err *err)
{
    size_t n = w->have;

    w->have = 0;
    return fs_write(w->fd, w->buffer, n, w->bin, err);
}

int tokenwriter_add(struct tokenwriter *w, const int32_t *id, size_t n, struct err *err)
{
    if (n > INT32_MAX)
        return err_set(err, ERR_INPUT, "%s: a document of %zu tokens has no place",
                       w->index, n);
    for (size_t i = 0; i < n; i++) {
        if (w->have == BUFFER && flush(w, err) < 0)
            return -1;
        for (unsigned k = 0; k < width(w); k++)
            w->buffer[w->have++] = (unsigned char)((uint32_t)id[i] >> (8 * k));
    }
    w->length = xgrow(w->length, &w->cap, w->documents + 1, sizeof(*w->length));
    w->length[w->documents++] = (uint32_t)n;
    w->tokens += n;
    return 0;
}

/* ---- the index: see tokenfile.c ---- */

static void put(struct str *s, uint64_t x, int bytes)
{
    while (bytes-- > 0) {
        str_addc(s, (char)(x & 0xff));
        x >>= 8;
    }
}

static int write_index(const struct tokenwriter *w, struct err *err)
{
    struct str s = { 0 };
    uint64_t at = 0;
    int ret;

    str_addn(&s, "MMIDIDX\0", 9);
    put(&s, 1, 8);
    put(&s, w->wide ? TOKEN_I32 : TOKEN_U16, 1);
    put(&s, w->documents, 8);
    put(&s, w->documents + 1, 8);
    for (size_t i = 0; i < w->documents; i++)
        put(&s, w->length[i], 4);
    for (size_t i = 0; i < w->documents; i++) {
        put(&s, at, 8);
        at += (uint64_t)w->length[i] * width(w);
    }
    for (size_t i = 0; i <= w->documents; i++)
        put(&s, i, 8);
    ret = fs_write_file(w->index, s.s, s.len, false, err);
    str_clear(&s);
    return ret;
}

/* Writes the index first: readers reject an index without its tokens, but would take
 * tokens without an index for another format. */
int tokenwriter_finish(struct tokenwriter *w, struct err *err)
{
    return flush(w, err) < 0 || write_index(w, err) < 0 ? -1 : name_bin(w, err);
}

uint64_t tokenwriter_tokens(const struct tokenwriter *w)
{
    return w->tokens;
}

uint64_t tokenwriter_documents(const struct tokenwriter *w)
{
    return w->documents;
}

uint64_t tokenwriter_bytes(const struct tokenwriter *w)
{
    return w->tokens * width(w);
}
