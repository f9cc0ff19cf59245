/* outdir - an output directory that appears whole, and continues where it was
 * interrupted */
#define _GNU_SOURCE /* renameat2 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/ckpt/manifest.h"
#include "lib/ckpt/outdir.h"

static const char JOURNAL[] = "progress";

enum { MAX_JOURNAL = 1 << 30 };

/* May the existing PATH be replaced? */
static int check_replaceable(const char *path, const char *const *files, size_t nfiles,
                             struct err *err)
{
    char *manifest = fs_join_dup(path, MANIFEST_NAME);
    bool ours = fs_exists(manifest);
    char **names = NULL;
    size_t n = 0;
    int ret = -1;

    free(manifest);
    if (!fs_is_dir(path))
        return err_set(err, ERR_USAGE, "%s: exists and is not a checkpoint", path);
    if (fs_list(&names, &n, path, err) < 0)
        return -1;
    for (size_t i = 0; i < n && !ours; i++) {
        size_t k = 0;

        while (k < nfiles && strcmp(files[k], names[i]))
            k++;
        if (k == nfiles) {
            err_set(err, ERR_USAGE, "%s: not replaced: it holds %s, which is not ours",
                    path, names[i]);
            goto out;
        }
    }
    ret = 0;
out:
    fs_list_free(names, n);
    return ret;
}

/* Lock the directory O->partial, made if need be.  It may have been finished and
 * renamed by another run between being opened and being locked; then a new one is
 * made. */
static int lock_partial(struct outdir *o, struct err *err)
{
    for (;;) {
        struct stat opened, named;

        if (mkdir(o->partial, 0777) < 0 && errno != EEXIST)
            return err_errno(err, "%s", o->partial);
        o->lock = open(o->partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (o->lock < 0)
            return err_errno(err, "%s", o->partial);
        if (flock(o->lock, LOCK_EX | LOCK_NB) < 0)
            return errno == EWOULDBLOCK
                       ? err_set(err, ERR_LOCKED, "%s: another run is writing it",
                                 o->path)
                       : err_errno(err, "%s", o->partial);
        if (fstat(o->lock, &opened) == 0 && stat(o->partial, &named) == 0 &&
            opened.st_ino == named.st_ino && opened.st_dev == named.st_dev)
            return 0;
        close(o->lock);
        o->lock = -1;
    }
}

static int empty_directory(const char *dir, struct err *err)
{
    char **names;
    size_t n;
    int ret = 0;

    if (fs_list(&names, &n, dir, err) < 0)
        return -1;
    for (size_t i = 0; i < n && ret == 0; i++) {
        char *path = fs_join_dup(dir, names[i]);

        ret = fs_remove_tree(path, err);
        free(path);
    }
    fs_list_free(names, n);
    return ret;
}

static int write_line(struct outdir *o, const char *line, struct err *err)
{
    char *text = str_dupf("%s\n", line);
    int ret = fs_write(o->journal, text, strlen(text), o->partial, err);

    free(text);
    return ret;
}

/* Take up the journal when its first line is IDENTITY; else start afresh. */
static int open_journal(struct outdir *o, const char *identity, struct err *err)
{
    char *path = fs_join_dup(o->partial, JOURNAL);
    char *text = NULL;
    size_t len = strlen(identity);
    int ret = -1;

    if (fs_exists(path) && fs_read_file(&text, NULL, path, MAX_JOURNAL, err) < 0)
        goto out;
    if (text && !strncmp(text, identity, len) && text[len] == '\n') {
        char *end = strrchr(text, '\n');

        end[1] = '\0'; /* a line that was cut short is not done */
        o->done = xstrdup(text + len + 1);
    } else {
        o->done = xstrdup("");
        if (empty_directory(o->partial, err) < 0)
            goto out;
    }
    o->journal = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (o->journal < 0) {
        err_errno(err, "%s", path);
        goto out;
    }
    if (write_line(o, identity, err) == 0)
        ret = fs_write(o->journal, o->done, strlen(o->done), path, err);
out:
    free(path);
    free(text);
    return ret;
}

int outdir_open(struct outdir *o, const char *path, const char *identity, bool force,
                const char *const *files, size_t nfiles, struct err *err)
{
    size_t len = strlen(path);

    *o = (struct outdir){ .lock = -1, .journal = -1 };
    while (len > 1 && path[len - 1] == '/')
        len--;
    o->path = xstrndup(path, len);
    o->partial = str_dupf("%s.partial", o->path);
    if (fs_exists(o->path) && !force) {
        err_set(err, ERR_USAGE, "%s: exists (-f replaces a checkpoint)", o->path);
        goto fail;
    }
    if (fs_exists(o->path) && check_replaceable(o->path, files, nfiles, err) < 0)
        goto fail;
    if (lock_partial(o, err) < 0 || open_journal(o, identity, err) < 0)
        goto fail;
    return 0;
fail:
    outdir_close(o);
    return -1;
}

int outdir_note(struct outdir *o, const char *line, struct err *err)
{
    return write_line(o, line, err);
}

/* Rename the partial directory to the final name; what had that name is called OLD
 * then, and where the system can exchange two names, there is no moment without either.
 */
static int put_in_place(struct outdir *o, const char *old, struct err *err)
{
#ifdef RENAME_EXCHANGE
    if (old && renameat2(AT_FDCWD, o->partial, AT_FDCWD, o->path, RENAME_EXCHANGE) == 0)
        return rename(o->partial, old) < 0 ? err_errno(err, "%s", o->partial) : 0;
#endif
    if (old && rename(o->path, old) < 0)
        return err_errno(err, "%s", o->path);
    if (rename(o->partial, o->path) < 0) {
        err_errno(err, "%s", o->path);
        if (old)
            rename(old, o->path);
        return -1;
    }
    return 0;
}

int outdir_finish(struct outdir *o, struct err *err)
{
    char *journal = fs_join_dup(o->partial, JOURNAL);
    char *parent = fs_dirname_dup(o->path);
    char *old = NULL;
    int ret = -1;

    if (unlink(journal) < 0) {
        err_errno(err, "%s", journal);
        goto out;
    }
    if (fs_sync_dir(o->partial, err) < 0)
        goto out;
    if (fs_exists(o->path))
        old = str_dupf("%s.old-%ld", o->path, (long)getpid());
    if (put_in_place(o, old, err) < 0)
        goto out;
    if (fs_sync_dir(parent, err) < 0 || (old && fs_remove_tree(old, err) < 0))
        goto out;
    ret = 0;
out:
    free(journal);
    free(parent);
    free(old);
    return ret;
}

void outdir_close(struct outdir *o)
{
    if (o->journal >= 0)
        close(o->journal);
    if (o->lock >= 0)
        close(o->lock);
    free(o->path);
    free(o->partial);
    free(o->done);
    *o = (struct outdir){ .lock = -1, .journal = -1 };
}
