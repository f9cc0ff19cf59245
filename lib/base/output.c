/* output - the one way to open what a program writes */
#define _GNU_SOURCE /* O_PATH, O_TMPFILE */
#include "lib/base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { LINKS_MAX = 40, TRIES = 1000, NAME_KEPT = 200 };

/* ---- where a path leads ---- */

struct place {
    int dir;         /* the directory, opened by O_PATH */
    struct str path; /* its path, without links */
    int unknown;     /* errno of why it is not known; 0: it is */
    char *name;      /* of the file in it */
    bool found;
    struct stat st; /* of what has the name, which is no link */
    int fd;         /* the path is a name of this open file; else -1 */
};

struct walk {
    struct place p;
    const char *given; /* for messages */
    char *rest;        /* of the path, owned; what is left begins at AT */
    size_t at;
    int links;
    bool directory; /* the last name is a directory's */
    enum output_make make;
};

static bool is_ours(uid_t owner)
{
    return owner == geteuid() || owner == 0;
}

/* May only this user and root make names in DIR?  A directory that cannot be looked at
 * is not safe. */
static bool is_safe(int dir)
{
    struct stat st;

    return fstat(dir, &st) == 0 && is_ours(st.st_uid) &&
           !(st.st_mode & (S_IWGRP | S_IWOTH));
}

static void clear(struct place *p)
{
    if (p->dir >= 0)
        close(p->dir);
    if (p->fd >= 0)
        close(p->fd);
    str_clear(&p->path);
    free(p->name);
    *p = (struct place){ .dir = -1, .fd = -1 };
}

/* The walk goes on from the directory DIR (takes ownership of it). */
static void move_to(struct walk *w, int dir, const char *name)
{
    struct str *path = &w->p.path;

    if (w->p.dir >= 0)
        close(w->p.dir);
    w->p.dir = dir;
    if (*name == '/') {
        str_reset(path);
    } else if (!strcmp(name, "..")) {
        while (path->len && path->s[--path->len] != '/')
            ;
        if (path->s)
            path->s[path->len] = '\0';
    } else if (strcmp(name, ".") != 0) {
        str_addf(path, "/%s", name);
    }
}

static int start_at(struct walk *w, const char *path)
{
    bool absolute = *path == '/';
    int dir = open(absolute ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char *here;

    if (dir < 0)
        return -1;
    move_to(w, dir, "/");
    here = absolute ? NULL : getcwd(NULL, 0);
    w->p.unknown = absolute || here ? 0 : errno;
    if (here && strcmp(here, "/") != 0)
        str_add(&w->p.path, here);
    free(here);
    return 0;
}

/* ERR_INPUT, with errno ELOOP: what has the path is WHY. */
static int refuse(const char *path, const char *why, struct err *err)
{
    err_set(err, ERR_INPUT, "%s: %s", path, why);
    errno = ELOOP;
    return -1;
}

static int fail(const char *path, struct err *err)
{
    int why = errno;

    err_errno(err, "%s", path);
    errno = why;
    return -1;
}

static int sync_directory(int dir)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int ret = fd < 0 ? -1 : fsync(fd);

    /* Some file systems cannot sync a directory and fail with EINVAL. */
    if (ret < 0 && errno == EINVAL)
        ret = 0;
    if (fd >= 0)
        close(fd);
    return ret;
}

static int refuse_link(const struct walk *w, const char *name, bool last,
                       struct err *err)
{
    char *why;

    if (last && !w->links)
        return refuse(w->given, "is another user's link; give what it leads to", err);
    why = str_dupf("%s/%s is another user's link; give what it leads to",
                   str_text(&w->p.path), name);
    refuse(w->given, why, err);
    free(why);
    errno = ELOOP;
    return -1;
}

/* Is NAME in the directory DIR one of /proc/self/fd?  Such a link has no path to
 * follow. */
static int own_descriptor(int dir, const char *name)
{
    struct statfs fs;
    struct stat a, b;
    int n;

    if (!str_int(name, &n) || fstatfs(dir, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC ||
        fstat(n, &a) < 0 || fstatat(dir, name, &b, 0) < 0 || a.st_dev != b.st_dev ||
        a.st_ino != b.st_ino)
        return -1;
    return n;
}

/* Goes on with what LINK, an open symbolic link of the name NAME, leads to.  REST is
 * what is left of the path behind it. */
static int follow(struct walk *w, int link, const struct stat *st, const char *name,
                  const char *rest, struct err *err)
{
    char target[PATH_MAX];
    ssize_t n;
    char *next;

    if (!is_ours(st->st_uid) && !is_safe(w->p.dir))
        return refuse_link(w, name, !*rest, err);
    n = readlinkat(link, "", target, sizeof(target) - 1);
    if (n > 0 && ++w->links > LINKS_MAX)
        errno = ELOOP;
    if (n <= 0 || w->links > LINKS_MAX)
        return fail(w->given, err);
    target[n] = '\0';
    next = str_dupf("%s%s%s", target, *rest ? "/" : "", rest);
    free(w->rest);
    w->rest = next;
    w->at = 0;
    return *target == '/' && start_at(w, target) < 0 ? fail(w->given, err) : 0;
}

/* Takes up NAME, behind which REST is left, when it is no directory to go through.
 * Returns 1 when the walk ends here. */
static int look(struct walk *w, const char *name, const char *rest, struct err *err)
{
    bool last = !rest[strspn(rest, "/")];
    int fd = openat(w->p.dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), own, ret;
    struct stat st;

    if (fd < 0 && errno == ENOENT && w->make != OUTPUT_FIND) {
        if (mkdirat(w->p.dir, name, 0777) < 0 && errno != EEXIST)
            return fail(w->given, err);
        return w->make == OUTPUT_SYNC && sync_directory(w->p.dir) < 0
                   ? fail(w->given, err)
                   : 0;
    }
    if (fd < 0 && errno == ENOENT && last && !w->directory) {
        errno = EISDIR;
        return *rest ? fail(w->given, err) : 1;
    }
    if (fd < 0 || fstat(fd, &st) < 0) {
        ret = fail(w->given, err);
    } else if (S_ISLNK(st.st_mode)) {
        own = last && !*rest ? own_descriptor(w->p.dir, name) : -1;
        w->p.fd = own < 0 ? -1 : fcntl(own, F_DUPFD_CLOEXEC, 0);
        ret = w->p.fd >= 0 ? 1 : follow(w, fd, &st, name, rest, err);
    } else if (last && !w->directory && (!*rest || S_ISDIR(st.st_mode))) {
        w->p.st = st;
        w->p.found = true;
        ret = 1;
    } else {
        errno = ENOTDIR;
        ret = fail(w->given, err);
    }
    if (fd >= 0)
        close(fd);
    return ret;
}

/* Goes one name further; returns 1 at the end of the path. */
static int advance(struct walk *w, struct err *err)
{
    const char *name = w->rest + w->at + strspn(w->rest + w->at, "/"), *rest;
    size_t n = strcspn(name, "/");
    int dir;

    free(w->p.name);
    w->p.name = n ? xstrndup(name, n) : xstrdup(".");
    rest = name + n;
    if (!n && w->directory)
        return 1;
    if (w->directory || rest[strspn(rest, "/")]) {
        dir =
            openat(w->p.dir, w->p.name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir >= 0) {
            move_to(w, dir, w->p.name);
            w->at = (size_t)(rest - w->rest);
            return 0;
        }
        if (errno != ENOTDIR && errno != ELOOP && errno != ENOENT)
            return fail(w->given, err);
    }
    return look(w, w->p.name, rest, err);
}

static int find(struct place *p, const char *path, bool directory,
                enum output_make make, struct err *err)
{
    struct walk w = { .p = { .dir = -1, .fd = -1 },
                      .given = path,
                      .rest = xstrdup(path),
                      .directory = directory,
                      .make = make };
    int ret = -1;

    if (!*path) {
        errno = ENOENT;
        fail("an output without a name", err);
    } else if (start_at(&w, path) < 0) {
        fail(path, err);
    } else {
        do
            ret = advance(&w, err);
        while (ret == 0);
    }
    free(w.rest);
    if (ret < 0) {
        int why = errno;

        clear(&w.p);
        errno = why;
        return -1;
    }
    *p = w.p;
    return 0;
}

/* ---- what is there ---- */

/* May what has the name be written in place? */
static int check_found(const struct place *p, const char *path, struct err *err)
{
    struct stat dir;

    if (p->fd >= 0 || !p->found || is_safe(p->dir))
        return 0;
    if (!S_ISREG(p->st.st_mode) && !S_ISDIR(p->st.st_mode))
        return is_ours(p->st.st_uid)
                   ? 0
                   : refuse(path, "is another user's, and no regular file; remove it",
                            err);
    if (S_ISREG(p->st.st_mode) && p->st.st_nlink > 1)
        return refuse(path, "is a link to a file that has other names; remove it", err);
    if (fstat(p->dir, &dir) < 0)
        return fail(path, err);
    if ((dir.st_mode & S_ISVTX) && !is_ours(p->st.st_uid) && p->st.st_uid != dir.st_uid)
        return refuse(path, "belongs to another user; remove it", err);
    return 0;
}

/* Opens what was found by FLAGS.  -1 when it was replaced meanwhile or cannot be
 * opened: *replaced says which. */
static int open_found(const struct place *p, int flags, bool *replaced)
{
    int fd = openat(p->dir, p->name, flags | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    *replaced = fd < 0 ? errno == ENOENT || errno == ELOOP
                       : fstat(fd, &st) < 0 || st.st_dev != p->st.st_dev ||
                             st.st_ino != p->st.st_ino;
    if (fd >= 0 && *replaced) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Opens PATH at P, which is cleared.  -2: it was replaced meanwhile. */
static int open_place(struct place *p, const char *path, int flags, struct err *err)
{
    bool replaced = false;
    int fd = -1;

    if (check_found(p, path, err) < 0) {
        fd = -1;
    } else if (p->fd >= 0) {
        fd = p->fd;
        p->fd = -1;
    } else if (p->found) {
        fd = open_found(p, flags & ~O_CREAT, &replaced);
        if (fd < 0 && !replaced)
            fail(path, err);
    } else if (!(flags & O_CREAT)) {
        errno = ENOENT;
        fail(path, err);
    } else {
        fd = openat(p->dir, p->name, flags | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        replaced = fd < 0 && errno == EEXIST;
        if (fd < 0 && !replaced)
            fail(path, err);
    }
    return replaced ? -2 : fd;
}

/* Opens what PATH leads to; FRESH: a regular file is removed first. */
static int open_path(const char *path, int flags, bool fresh, struct err *err)
{
    int fd = -2;

    for (int i = 0; fd == -2 && i < TRIES; i++) {
        struct place p;
        int why;

        if (find(&p, path, false, OUTPUT_FIND, err) < 0)
            return -1;
        if (fresh && p.found && S_ISREG(p.st.st_mode)) {
            if (unlinkat(p.dir, p.name, 0) < 0 && errno != ENOENT)
                fd = fail(path, err);
            p.found = false;
        }
        if (fd == -2)
            fd = open_place(&p, path, flags, err);
        why = errno;
        clear(&p);
        errno = why;
    }
    return fd == -2 ? refuse(path, "is being replaced again and again", err) : fd;
}

int output_reopen(const char *path, int flags, struct err *err)
{
    return open_path(path, flags, false, err);
}

static int standard_output(struct err *err)
{
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);

    return fd < 0 ? err_errno(err, "standard output") : fd;
}

int output_append(const char *path, struct err *err)
{
    return strcmp(path, "-") ? output_reopen(path, O_WRONLY | O_APPEND | O_CREAT, err)
                             : standard_output(err);
}

int output_create(const char *path, struct err *err)
{
    return open_path(path, O_WRONLY | O_CREAT, true, err);
}

int output_dir(const char *path, enum output_make make, struct err *err)
{
    struct place p;
    int fd;

    if (find(&p, path, true, make, err) < 0)
        return -1;
    fd = openat(p.dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        fail(path, err);
    clear(&p);
    return fd;
}

int output_sync_name(const char *path, struct err *err)
{
    struct place p;
    int ret;

    if (find(&p, path, false, OUTPUT_FIND, err) < 0)
        return -1;
    ret = sync_directory(p.dir) < 0 ? fail(path, err) : 0;
    clear(&p);
    return ret;
}

char *output_resolve_dup(const char *path, struct err *err)
{
    struct place p;
    char *out = NULL;

    if (find(&p, path, false, OUTPUT_FIND, err) < 0)
        return NULL;
    errno = p.unknown;
    if (p.unknown)
        fail(path, err);
    else if (check_found(&p, path, err) == 0)
        out = str_dupf("%s/%s", str_text(&p.path), p.name);
    clear(&p);
    return out;
}

char *output_scratch_dup(const char *dir, struct err *err)
{
    char *path = str_dupf("%s/shardutils.XXXXXX", dir);

    if (mkdtemp(path))
        return path;
    err_errno(err, "%s", path);
    free(path);
    return NULL;
}

/* ---- whole files ---- */

struct output {
    char *path;
    struct place p;
    char *temporary; /* name in p.dir, or NULL */
    int fd;
    bool in_place;
};

/* Makes an unused name for a temporary file; N counts the tries. */
static char *temporary_dup(const struct output *o, int n)
{
    return str_dupf(".%.*s.%ld-%d.tmp", NAME_KEPT, o->p.name, (long)getpid(), n);
}

/* Opens a file without a name, which disappears with the process; a temporary file
 * where the file system has none, or where /proc is missing, which names it later. */
static int open_temporary(struct output *o)
{
    bool keep = o->p.found && o->p.st.st_uid == geteuid();
    mode_t mode = keep ? o->p.st.st_mode & 0777 : 0666;

    if (access("/proc/self/fd", X_OK) == 0)
        o->fd = openat(o->p.dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
    for (int i = 0; o->fd < 0 && i < TRIES; i++) {
        free(o->temporary);
        o->temporary = temporary_dup(o, i);
        o->fd = openat(o->p.dir, o->temporary,
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (o->fd < 0 && errno != EEXIST)
            break;
    }
    if (o->fd < 0) {
        int why = errno;

        free(o->temporary);
        o->temporary = NULL;
        errno = why;
        return -1;
    }
    return keep ? fchmod(o->fd, mode) : 0; /* not restricted by the umask */
}

/* Opens O, whose path is known. */
static int open_whole(struct output *o, struct err *err)
{
    if (!strcmp(o->path, "-")) {
        o->in_place = true;
        o->fd = standard_output(err);
        return o->fd < 0 ? -1 : 0;
    }
    if (find(&o->p, o->path, false, OUTPUT_FIND, err) < 0)
        return -1;
    o->in_place = o->p.fd >= 0 || (o->p.found && !S_ISREG(o->p.st.st_mode));
    if (!o->in_place)
        return open_temporary(o) < 0 ? fail(o->path, err) : 0;
    o->fd = open_place(&o->p, o->path, O_WRONLY, err);
    if (o->fd == -2)
        return refuse(o->path, "was replaced while it was opened", err);
    return o->fd < 0 ? -1 : 0;
}

int output_open(struct output **out, const char *path, struct err *err)
{
    struct output *o = xcalloc(1, sizeof(*o));

    *o = (struct output){ .path = xstrdup(path),
                          .p = { .dir = -1, .fd = -1 },
                          .fd = -1 };
    if (open_whole(o, err) < 0) {
        output_discard(o);
        return -1;
    }
    *out = o;
    return 0;
}

int output_fd(const struct output *o)
{
    return o->fd;
}

void output_discard(struct output *o)
{
    if (!o)
        return;
    if (o->fd >= 0)
        close(o->fd);
    if (o->temporary)
        unlinkat(o->p.dir, o->temporary, 0);
    free(o->temporary);
    free(o->path);
    clear(&o->p);
    free(o);
}

/* Gives a file without a name a temporary one. */
static int name_temporary(struct output *o)
{
    char *file = str_dupf("/proc/self/fd/%d", o->fd), *name = NULL;
    int ret = -1;

    for (int i = 0; ret < 0 && i < TRIES; i++) {
        free(name);
        name = temporary_dup(o, i);
        ret = linkat(AT_FDCWD, file, o->p.dir, name, AT_SYMLINK_FOLLOW);
        if (ret < 0 && errno != EEXIST)
            break;
    }
    free(file);
    if (ret < 0)
        free(name);
    else
        o->temporary = name;
    return ret;
}

/* Puts the file in its place; 0, or -1 with errno. */
static int put_in_place(struct output *o, bool sync)
{
    int fd = o->fd;

    if (!o->in_place &&
        ((sync && fsync(fd) < 0) || (!o->temporary && name_temporary(o) < 0)))
        return -1;
    o->fd = -1;
    if (close(fd) < 0)
        return -1;
    if (o->in_place)
        return 0;
    if (renameat(o->p.dir, o->temporary, o->p.dir, o->p.name) < 0)
        return -1;
    free(o->temporary);
    o->temporary = NULL;
    return sync ? sync_directory(o->p.dir) : 0;
}

int output_close(struct output *o, bool sync, struct err *err)
{
    int ret = put_in_place(o, sync) < 0 ? fail(o->path, err) : 0;

    output_discard(o);
    return ret;
}

int output_write(const char *path, const void *buf, size_t n, bool sync,
                 struct err *err)
{
    struct output *o;

    if (output_open(&o, path, err) < 0)
        return -1;
    if (fs_write(o->fd, buf, n, strcmp(path, "-") ? path : "standard output", err) <
        0) {
        output_discard(o);
        return -1;
    }
    return output_close(o, sync, err);
}
