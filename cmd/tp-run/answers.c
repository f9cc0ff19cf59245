/* answers - a file of answers that an interrupted run can continue */
#include "cmd/tp-run/answers.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/base/fs.h"
#include "lib/base/hash.h"
#include "lib/base/json.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/base/str.h"

/* How a line ends. */
static const char crc_key[] = ",\"input_crc32\":\"";
enum { CRC_END = sizeof(crc_key) - 1 + 8 + 2 }; /* 8 digits, quote, brace */

/* zlib's checksum of nothing at NULL would begin anew. */
static uint32_t add_crc(uint32_t crc, const void *p, size_t n)
{
    return n ? hash_crc32(crc, p, n) : crc;
}

/* Of all that an input's answer depends on. */
static uint32_t crc_of(const struct session *s, const struct input *in)
{
    const uint64_t counts[] = { in->ids.n, in->source.n, in->bad };
    uint32_t crc = hash_crc32(0, counts, sizeof(counts));
    int n;
    const struct model_feed *f = model_feeds(s->checkpoint->model, &n);

    crc = add_crc(crc, in->ids.v, in->ids.n * sizeof(*in->ids.v));
    crc = add_crc(crc, in->source.v, in->source.n * sizeof(*in->source.v));
    for (int i = 0; i < n; i++) {
        const uint64_t rows = in->named[i].n;

        crc = add_crc(crc, &rows, rows ? sizeof(rows) : 0);
        crc = add_crc(crc, in->named[i].v, rows * f[i].axis.size * sizeof(int32_t));
    }
    crc = add_crc(crc, in->settings, in->settings ? strlen(in->settings) : 0);
    return add_crc(crc, in->id, in->id ? strlen(in->id) : 0);
}

/* ---- what the file has ---- */

/* The first setting that differs. */
static int other_settings(const char *path, const char *old, const char *own,
                          struct err *err)
{
    struct json_doc was = { 0 }, is = { 0 };
    struct str a = { 0 }, b = { 0 };
    struct err none = { 0 };
    int ret = -1;

    if (json_parse(&was, path, old, strlen(old), &none) < 0)
        return err_set(err, ERR_INPUT, "%s: its first line has no settings", path);
    if (json_parse(&is, path, own, strlen(own), err) < 0)
        goto out;
    for (const struct json *j = is.root->first; j; j = j->next) {
        const struct json *other =
            was.root->type == JSON_OBJECT ? json_get(was.root, j->key) : NULL;

        str_reset(&a);
        str_reset(&b);
        json_print(&a, j);
        if (other)
            json_print(&b, other);
        if (strcmp(str_text(&a), str_text(&b)) != 0) {
            ret = err_set(err, ERR_INPUT,
                          "%s: was begun with %s %.80s, not %.80s; without --resume it "
                          "is begun anew",
                          path, j->key, other ? str_text(&b) : "unknown", str_text(&a));
            goto out;
        }
    }
    ret = err_set(err, ERR_INPUT, "%s: was begun with other settings", path);
out:
    json_clear(&was);
    json_clear(&is);
    str_clear(&a);
    str_clear(&b);
    return ret;
}

/* LINE[len], without its line feed, answers input I. */
static int check_answer(const struct session *s, const char *path, const char *line,
                        size_t len, const struct inputs *in, size_t i, struct err *err)
{
    char *want;
    int ret = 0;

    if (i >= in->n)
        return err_set(err, ERR_INPUT, "%s: has more answers than the %zu inputs", path,
                       in->n);
    want = str_dupf("%s%08" PRIx32 "\"}", crc_key, crc_of(s, &in->v[i]));
    if (len < CRC_END || memcmp(line + len - CRC_END, want, CRC_END) != 0)
        ret = err_set(err, ERR_INPUT, "%s:%zu: is no answer to %s, which has changed",
                      path, i + 2, in->v[i].name);
    free(want);
    return ret;
}

/* Checks the whole lines of FP; *n answers end before *end. */
static int read_lines(const struct session *s, const char *path, FILE *fp,
                      const char *settings, const struct inputs *in, size_t *n,
                      off_t *end, struct err *err)
{
    char *line = NULL;
    size_t cap = 0, lines = 0;
    ssize_t len;
    int ret = 0;

    *n = 0;
    *end = 0;
    while (ret == 0 && (len = getline(&line, &cap, fp)) > 0 && line[len - 1] == '\n') {
        line[--len] = '\0';
        if (lines++ == 0 && strcmp(line, settings) != 0)
            ret = other_settings(path, line, settings, err);
        else if (lines > 1)
            ret = check_answer(s, path, line, (size_t)len, in, (*n)++, err);
        *end += len + 1;
    }
    if (ret == 0 && ferror(fp))
        ret = err_errno(err, "%s", path);
    free(line);
    return ret;
}

static int read_file(const struct session *s, const char *path, int fd,
                     const char *settings, const struct inputs *in, size_t *n,
                     off_t *end, struct err *err)
{
    int own = dup(fd);
    FILE *fp = own < 0 ? NULL : fdopen(own, "r");
    int ret;

    if (!fp) {
        ret = err_errno(err, "%s", path);
        if (own >= 0)
            close(own);
        return ret;
    }
    ret = read_lines(s, path, fp, settings, in, n, end, err);
    fclose(fp);
    return ret;
}

/* ---- writing ---- */

static int write_all(const struct answers *a, const char *p, size_t n, struct err *err)
{
    while (n) {
        ssize_t done = write(a->fd, p, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return err_errno(err, "%s", a->partial);
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

static int write_line(const struct answers *a, const char *text, struct err *err)
{
    char *line = str_dupf("%s\n", text);
    int ret = write_all(a, line, strlen(line), err);

    free(line);
    return ret;
}

/* Is FILE there, and has it the answers to all of IN? */
static int find_done(struct answers *a, const struct session *s, const char *settings,
                     const struct inputs *in, struct err *err)
{
    bool partial, whole;
    off_t end;
    int fd, ret;

    if (fs_find(&partial, a->partial, err) < 0 || fs_find(&whole, a->path, err) < 0)
        return -1;
    if (partial || !whole)
        return 0;
    fd = open(a->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, "%s", a->path);
    ret = read_file(s, a->path, fd, settings, in, &a->n, &end, err);
    close(fd);
    if (ret == 0 && a->n < in->n)
        ret = err_set(err, ERR_INPUT, "%s: has %zu of %zu answers, and is no %s",
                      a->path, a->n, in->n, a->partial);
    a->is_done = ret == 0;
    return ret;
}

/* Cuts what is not a whole line, and goes on after it. */
static int go_on(struct answers *a, const struct session *s, const char *settings,
                 const struct inputs *in, struct err *err)
{
    off_t end;

    if (read_file(s, a->partial, a->fd, settings, in, &a->n, &end, err) < 0)
        return -1;
    if (ftruncate(a->fd, end) < 0 || lseek(a->fd, end, SEEK_SET) < 0)
        return err_errno(err, "%s", a->partial);
    return end ? 0 : write_line(a, settings, err);
}

/* A device, pipe, directory or link neither gets answers nor is replaced by them. */
static int check_place(const char *path, struct err *err)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : err_errno(err, "%s", path);
    return S_ISREG(st.st_mode)
               ? 0
               : err_set(err, ERR_INPUT, "%s: is no regular file", path);
}

/* Waits for the ranks of a run that was killed, which end by themselves. */
static int lock_file(const struct answers *a, struct err *err)
{
    enum { WAIT_S = 10 };
    struct stat own, named;
    double end = clock_seconds() + WAIT_S;

    while (flock(a->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        if (clock_seconds() > end)
            return err_set(err, ERR_SYSTEM, "%s: another run writes it", a->partial);
        usleep(10000);
    }
    if (fstat(a->fd, &own) < 0 || lstat(a->partial, &named) < 0)
        return err_errno(err, "%s", a->partial);
    return own.st_dev == named.st_dev && own.st_ino == named.st_ino
               ? 0
               : err_set(err, ERR_SYSTEM, "%s: another run has replaced it",
                         a->partial);
}

int answers_open(struct answers *a, const struct session *s, const char *path,
                 bool resume, const char *settings, const struct inputs *in,
                 struct err *err)
{
    *a = (struct answers){
        .session = s, .path = path, .partial = str_dupf("%s.partial", path), .fd = -1
    };
    if (check_place(a->path, err) < 0 || check_place(a->partial, err) < 0 ||
        (resume && find_done(a, s, settings, in, err) < 0))
        return -1;
    if (a->is_done)
        return 0;
    a->fd = output_reopen(a->partial, O_RDWR | O_CREAT, err);
    if (a->fd < 0 || lock_file(a, err) < 0)
        return -1;
    if (resume)
        return go_on(a, s, settings, in, err);
    if (ftruncate(a->fd, 0) < 0)
        return err_errno(err, "%s", a->partial);
    return write_line(a, settings, err);
}

int answers_add(struct answers *a, const struct input *in, struct str *line,
                struct err *err)
{
    if (line->len && line->s[line->len - 1] == '\n')
        line->len--;
    line->s[--line->len] = '\0'; /* the brace */
    str_addf(line, "%s%08" PRIx32 "\"}\n", crc_key, crc_of(a->session, in));
    a->n++;
    return write_all(a, line->s, line->len, err);
}

int answers_finish(struct answers *a, struct err *err)
{
    if (a->is_done)
        return 0;
    if (fsync(a->fd) < 0)
        return err_errno(err, "%s", a->partial);
    if (rename(a->partial, a->path) < 0)
        return err_errno(err, "%s", a->path);
    return output_sync_name(a->path, err);
}

void answers_close(struct answers *a)
{
    if (a->partial && a->fd >= 0)
        close(a->fd);
    free(a->partial);
    *a = (struct answers){ .fd = -1 };
}
