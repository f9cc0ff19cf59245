/* textfile - reads a text file, compressed or not, in pieces of whole lines */
#define _GNU_SOURCE
#include "lib/train/textfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/train/decompress.h"

enum { READ = 1 << 16 };

int textfile_open(struct textfile *t, const char *path, struct err *err)
{
    bool standard = !strcmp(path, "-");
    int fd = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    *t = (struct textfile){ .name = standard ? "standard input" : path };
    if (fd < 0)
        return err_errno(err, "%s", path);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(fd);
        return err_set(err, ERR_INPUT, "%s: a directory", path);
    }
    return decompress_open(&t->bytes, fd, t->name, err);
}

void textfile_close(struct textfile *t)
{
    decompress_close(t->bytes);
    free(t->buf);
    *t = (struct textfile){ 0 };
}

static int make_room(struct textfile *t, struct err *err)
{
    uint64_t bytes = decompress_bytes(t->bytes);
    size_t cap = t->cap ? 2 * t->cap : 4 * READ;
    char *buf;

    if (t->have < t->cap)
        return 0;
    if (cap > mem_allowance(bytes))
        return mem_refuse(t->name, bytes, err);
    buf = realloc(t->buf, cap);
    if (!buf)
        return err_set(err, ERR_SYSTEM, "%s: no memory for %zu bytes", t->name, cap);
    t->buf = buf;
    t->cap = cap;
    return 0;
}

static int fill(struct textfile *t, struct err *err)
{
    size_t n;

    if (make_room(t, err) < 0)
        return -1;
    if (decompress_read(t->bytes, t->buf + t->have, t->cap - t->have, &n, err) < 0)
        return -1;
    t->have += n;
    t->end = n == 0;
    return 0;
}

int textfile_next(struct textfile *t, size_t most, const char **text, size_t *n,
                  struct err *err)
{
    const char *last = NULL;

    if (t->at) /* the buffer is empty, and BUF NULL, at first */
        memmove(t->buf, t->buf + t->at, t->have - t->at);
    t->have -= t->at;
    t->at = 0;
    while (!t->end && (t->have < most || !last)) {
        size_t before = t->have;

        if (fill(t, err) < 0)
            return -1;
        if (t->have >= most)
            last = memrchr(t->buf + (before < most ? 0 : before), '\n',
                           t->have - (before < most ? 0 : before));
    }
    t->at = t->end ? t->have : (size_t)(last + 1 - t->buf);
    t->from = t->begun ? 0 : str_mark(t->buf, t->at);
    t->begun = true;
    *text = t->at ? t->buf + t->from : "";
    *n = t->at - t->from;
    return 0;
}

int textfile_rest(struct textfile *t, const char **text, size_t *n, struct err *err)
{
    t->at = t->from;
    return textfile_next(t, SIZE_MAX, text, n, err);
}
