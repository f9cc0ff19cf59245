/* outdir - an output directory that appears complete or not at all, and can be
 * continued */
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
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/ckpt/manifest.h"
#include "lib/ckpt/outdir.h"

static const char JOURNAL[] = "progress";

enum { MAX_JOURNAL = 1 << 30 };

/* Are all files below PATH/BELOW ("" or a directory's name) among the NFILES in FILES?
 */
static int check_ours_only(const char *path, const char *below,
                           const char *const *files, size_t nfiles, struct err *err)
{
    char *dir = fs_join_dup(path, below);
    char **names = NULL;
    size_t n = 0;
    int ret = fs_list(&names, &n, dir, err);

    for (size_t i = 0; i < n && ret == 0; i++) {
        char *name = *below ? fs_join_dup(below, names[i]) : xstrdup(names[i]);
        bool known = false, parent = false;

        for (size_t k = 0; k < nfiles; k++) {
            char next = str_starts(files[k], name) ? files[k][strlen(name)] : '.';

            known |= !next;
            parent |= next == '/';
        }
        if (parent)
            ret = check_ours_only(path, name, files, nfiles, err);
        else if (!known)
            ret =
                err_set(err, ERR_USAGE,
                        "%s: not replaced: it holds %s, which is not ours", path, name);
        free(name);
    }
    fs_list_free(names, n);
    free(dir);
    return ret;
}

/* May the existing PATH be replaced? */
static int check_replaceable(const char *path, const char *const *files, size_t nfiles,
                             struct err *err)
{
    bool ours, is_dir;

    if (fs_find_in(&ours, path, MANIFEST_NAME, err) < 0 ||
        fs_find_dir(&is_dir, path, err) < 0)
        return -1;
    if (!is_dir)
        return err_set(err, ERR_USAGE, "%s: exists and is not a checkpoint", path);
    return ours ? 0 : check_ours_only(path, "", files, nfiles, err);
}

/* Anyone who may write to the directory could have forged an earlier run's journal, or
 * placed links under the names of output files. */
static int check_ours(const struct outdir *o, const struct stat *st, struct err *err)
{
    const char *why = st->st_uid != geteuid()             ? "belongs to another user"
                      : st->st_mode & (S_IWGRP | S_IWOTH) ? "is writable by others"
                                                          : NULL;

    return why ? err_set(err, ERR_INPUT, "%s: %s; remove it", o->partial, why) : 0;
}

/* The way there must not lead through another user's link. */
static int check_way(const struct outdir *o, struct err *err)
{
    char *real = output_resolve_dup(o->partial, err);

    free(real);
    return real ? 0 : -1;
}

/* Opens and locks o->partial, creating it if necessary.  Another run may finish and
 * rename it between open and lock; then creates a new one. */
static int lock_partial(struct outdir *o, struct err *err)
{
    for (;;) {
        struct stat opened, named;

        if (mkdir(o->partial, 0700) < 0 && errno != EEXIST)
            return err_errno(err, "%s", o->partial);
        o->dir = open(o->partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (o->dir < 0 && (errno == ELOOP || errno == ENOTDIR))
            return err_set(err, ERR_INPUT, "%s: is no directory; remove it",
                           o->partial);
        if (o->dir < 0 || fstat(o->dir, &opened) < 0)
            return err_errno(err, "%s", o->partial);
        if (check_ours(o, &opened, err) < 0)
            return -1;
        if (flock(o->dir, LOCK_EX | LOCK_NB) < 0)
            return errno == EWOULDBLOCK
                       ? err_set(err, ERR_LOCKED, "%s: another run is writing it",
                                 o->path)
                       : err_errno(err, "%s", o->partial);
        if (lstat(o->partial, &named) < 0) {
            if (errno != ENOENT)
                return err_errno(err, "%s", o->partial);
        } else if (opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
            return 0;
        }
        close(o->dir);
        o->dir = -1;
    }
}

static char *file_dup(const struct outdir *o, const char *name)
{
    return fs_join_dup(o->partial, name);
}

static int empty_directory(const struct outdir *o, struct err *err)
{
    char **names;
    size_t n;
    int ret = 0;

    if (fs_list_at(&names, &n, o->dir, ".", o->partial, err) < 0)
        return -1;
    for (size_t i = 0; i < n && ret == 0; i++) {
        char *path = file_dup(o, names[i]);

        ret = fs_remove_tree_at(o->dir, names[i], path, err);
        free(path);
    }
    fs_list_free(names, n);
    return ret;
}

/* Opens the existing file NAME, which must be a regular file that is ours and has no
 * other link; *fd is -1 if there is none. */
static int open_own(int *fd, const struct outdir *o, const char *name, int flags,
                    struct err *err)
{
    struct stat st;
    int opened;

    *fd = -1;
    if (fstatat(o->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_errno(err, "%s/%s", o->partial, name);
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)
        return 0;
    opened = openat(o->dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (opened < 0)
        return err_errno(err, "%s/%s", o->partial, name);
    if (fstat(opened, &st) < 0) {
        err_errno(err, "%s/%s", o->partial, name);
        close(opened);
        return -1;
    }
    if (S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1)
        *fd = opened;
    else
        close(opened);
    return 0;
}

int outdir_create(const struct outdir *o, const char *name, struct err *err)
{
    char *path = file_dup(o, name);
    int fd = -1;

    if (fs_remove_tree_at(o->dir, name, path, err) == 0) {
        fd = openat(o->dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    0600);
        if (fd < 0)
            err_errno(err, "%s", path);
    }
    free(path);
    return fd;
}

int outdir_reopen(const struct outdir *o, const char *name, struct err *err)
{
    int fd;

    if (open_own(&fd, o, name, O_RDWR, err) < 0)
        return -1;
    return fd >= 0 ? fd : outdir_create(o, name, err);
}

int outdir_share(const struct outdir *o, int fd, mode_t source, const char *path,
                 struct err *err)
{
    mode_t mode = (0600 | (source & 0066)) & ~o->umask;

    return fchmod(fd, mode) < 0 ? err_errno(err, "%s", path) : 0;
}

int outdir_enter(struct outdir *sub, const struct outdir *o, const char *name,
                 struct err *err)
{
    char *path = file_dup(o, name);

    *sub =
        (struct outdir){ .partial = path, .dir = -1, .journal = -1, .umask = o->umask };
    if (mkdirat(o->dir, name, 0700) == 0 || errno == EEXIST)
        sub->dir =
            openat(o->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub->dir >= 0 && fchmod(sub->dir, 0777 & ~o->umask) == 0)
        return 0;
    err_errno(err, "%s", path);
    outdir_close(sub);
    return -1;
}

int outdir_leave(struct outdir *sub, int ret, struct err *err)
{
    if (ret == 0 && fsync(sub->dir) < 0 && errno != EINVAL)
        ret = err_errno(err, "%s", sub->partial);
    outdir_close(sub);
    return ret;
}

static int write_file(const struct outdir *o, const char *name, const char *text,
                      size_t n, mode_t source, struct err *err)
{
    char *path = file_dup(o, name);
    int fd = outdir_create(o, name, err), ret = -1;

    if (fd < 0 || fs_write(fd, text, n, path, err) < 0 ||
        outdir_share(o, fd, source, path, err) < 0)
        goto out;
    ret = fsync(fd) < 0 ? err_errno(err, "%s", path) : 0;
out:
    if (fd >= 0)
        close(fd);
    free(path);
    return ret;
}

int outdir_write(const struct outdir *o, const char *name, const char *text, size_t n,
                 mode_t source, struct err *err)
{
    const char *slash = strchr(name, '/');
    struct outdir sub;
    char *dir;
    int ret = -1;

    if (!slash)
        return write_file(o, name, text, n, source, err);
    dir = xstrndup(name, (size_t)(slash - name));
    if (outdir_enter(&sub, o, dir, err) == 0)
        ret =
            outdir_leave(&sub, write_file(&sub, slash + 1, text, n, source, err), err);
    free(dir);
    return ret;
}

/* ---- the journal ---- */

static int write_line(struct outdir *o, const char *line, struct err *err)
{
    char *text = str_dupf("%s\n", line);
    int ret = fs_write(o->journal, text, strlen(text), o->partial, err);

    free(text);
    return ret;
}

/* If the first line of *TEXT is LINE, advances *TEXT past it; else returns false. */
static bool take_line(const char **text, const char *line)
{
    size_t n = strlen(line);

    if (strncmp(*text, line, n) != 0 || (*text)[n] != '\n')
        return false;
    *text += n + 1;
    return true;
}

/* Reads the journal's complete lines into a new string; "" when there is no valid
 * journal. */
static int read_journal(char **text, const struct outdir *o, struct err *err)
{
    struct stat st;
    char *end;
    int fd, ret = -1;

    *text = NULL;
    if (open_own(&fd, o, JOURNAL, O_RDONLY, err) < 0)
        return -1;
    if (fd >= 0 && fstat(fd, &st) < 0) {
        err_errno(err, "%s/%s", o->partial, JOURNAL);
        goto out;
    }
    if (fd < 0 || st.st_size > MAX_JOURNAL) {
        *text = xstrdup("");
        ret = 0;
        goto out;
    }
    *text = xcalloc((size_t)st.st_size + 1, 1);
    if (fs_pread(fd, *text, (size_t)st.st_size, 0, o->partial, err) < 0)
        goto out;
    end = strrchr(*text, '\n');
    *(end ? end + 1 : *text) = '\0'; /* an incomplete line is not done */
    ret = 0;
out:
    if (fd >= 0)
        close(fd);
    return ret;
}

/* Continues the journal if its first line is IDENTITY; otherwise starts a new one.  If
 * its second line is not STAMP, no line counts as done until the caller notes it
 * again. */
static int open_journal(struct outdir *o, const char *identity, const char *stamp,
                        struct err *err)
{
    char *path = file_dup(o, JOURNAL), *text = NULL;
    const char *rest;
    int ret = -1;

    if (read_journal(&text, o, err) < 0)
        goto out;
    rest = text;
    if (take_line(&rest, identity)) {
        o->touched = !take_line(&rest, stamp);
        if (o->touched && *rest)
            rest = strchr(rest, '\n') + 1;
        o->done = xstrdup(rest);
    } else {
        o->done = xstrdup("");
        if (empty_directory(o, err) < 0)
            goto out;
    }
    o->journal = outdir_create(o, JOURNAL, err);
    if (o->journal < 0 || write_line(o, identity, err) < 0 ||
        write_line(o, stamp, err) < 0)
        goto out;
    ret = o->touched ? 0 : fs_write(o->journal, o->done, strlen(o->done), path, err);
out:
    free(path);
    free(text);
    return ret;
}

/* ---- the whole ---- */

static mode_t current_umask(void)
{
    mode_t mask = umask(0);

    umask(mask);
    return mask;
}

int outdir_check(const char *path, bool force, const char *const *files, size_t nfiles,
                 struct err *err)
{
    size_t len = strlen(path);
    char *name;
    bool exists;
    int ret;

    if (!len)
        return err_set(err, ERR_USAGE, "the output has an empty name");
    while (len > 1 && path[len - 1] == '/')
        len--;
    name = xstrndup(path, len);
    ret = fs_find(&exists, name, err);
    if (ret == 0 && exists && !force)
        ret = err_set(err, ERR_USAGE, "%s: exists (-f replaces a checkpoint)", name);
    else if (ret == 0 && exists)
        ret = check_replaceable(name, files, nfiles, err);
    free(name);
    return ret;
}

int outdir_open(struct outdir *o, const char *path, const char *identity,
                const char *stamp, bool force, const char *const *files, size_t nfiles,
                struct err *err)
{
    size_t len = strlen(path);

    *o = (struct outdir){ .dir = -1, .journal = -1, .umask = current_umask() };
    while (len > 1 && path[len - 1] == '/')
        len--;
    o->path = xstrndup(path, len);
    o->partial = str_dupf("%s.partial", o->path);
    if (check_way(o, err) < 0)
        goto fail;
    if (outdir_check(path, force, files, nfiles, err) < 0 || lock_partial(o, err) < 0 ||
        open_journal(o, identity, stamp, err) < 0)
        goto fail;
    return 0;
fail:
    outdir_close(o);
    return -1;
}

int outdir_prepare(const char *path, struct err *err)
{
    struct outdir o = { .partial = (char *)path };
    struct stat st;

    if (check_way(&o, err) < 0)
        return -1;
    if ((mkdir(path, 0700) < 0 && errno != EEXIST) || lstat(path, &st) < 0)
        return err_errno(err, "%s", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_INPUT, "%s: is no directory; remove it", path);
    return check_ours(&o, &st, err);
}

int outdir_join(struct outdir *o, const char *path, struct err *err)
{
    struct stat st;
    int ret = -1;

    *o = (struct outdir){ .dir = -1, .journal = -1, .umask = current_umask() };
    o->path = xstrdup(path);
    o->partial = str_dupf("%s.partial", path);
    o->dir = open(o->partial, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (o->dir < 0 || fstat(o->dir, &st) < 0)
        err_errno(err, "%s: made by another rank", o->partial);
    else
        ret = check_ours(o, &st, err);
    if (ret < 0)
        outdir_close(o);
    return ret;
}

int outdir_note(struct outdir *o, const char *line, struct err *err)
{
    return write_line(o, line, err);
}

/* Renames the partial directory to the final name.  An existing directory there becomes
 * OLD; where the system can exchange two names, the final name exists at all times. */
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

/* ERR_SYSTEM, with WHY, unless NAME is the directory that was written. */
static int check_it(const struct outdir *o, const char *name, const char *why,
                    struct err *err)
{
    struct stat opened, named;

    if (fstat(o->dir, &opened) < 0)
        return err_errno(err, "%s", name);
    if (lstat(name, &named) < 0) {
        if (errno != ENOENT)
            return err_errno(err, "%s", name);
    } else if (opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
        return 0;
    }
    return err_set(err, ERR_SYSTEM, "%s: %s", name, why);
}

int outdir_finish(struct outdir *o, struct err *err)
{
    char *parent = fs_dirname_dup(o->path);
    struct stat st;
    char *old = NULL;
    bool exists;
    int ret = -1;

    if (unlinkat(o->dir, JOURNAL, 0) < 0 || fstat(o->dir, &st) < 0) {
        err_errno(err, "%s", o->partial);
        goto out;
    }
    if (check_it(o, o->partial, "was moved or replaced while it was written", err) < 0)
        goto out;
    /* keep what the parent directory set, such as the set-group-ID bit */
    if (fchmod(o->dir, (st.st_mode & 07000) | (0777 & ~o->umask)) < 0 ||
        (fsync(o->dir) < 0 && errno != EINVAL)) {
        err_errno(err, "%s", o->partial);
        goto out;
    }
    if (fs_find(&exists, o->path, err) < 0)
        goto out;
    if (exists)
        old = str_dupf("%s.old-%ld", o->path, (long)getpid());
    if (put_in_place(o, old, err) < 0)
        goto out;
    if (check_it(o, o->path, "is not what was written: it was replaced", err) < 0)
        goto out;
    if (fs_sync_dir(parent, err) < 0 || (old && fs_remove_tree(old, err) < 0))
        goto out;
    ret = 0;
out:
    free(parent);
    free(old);
    return ret;
}

void outdir_close(struct outdir *o)
{
    if (o->journal >= 0)
        close(o->journal);
    if (o->dir >= 0)
        close(o->dir);
    free(o->path);
    free(o->partial);
    free(o->done);
    *o = (struct outdir){ .dir = -1, .journal = -1 };
}
