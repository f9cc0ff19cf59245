/* fs - files read whole, transfers, and what the file system says */
#define _XOPEN_SOURCE 700 /* realpath, fdopendir */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

enum { TRANSFER_MAX = 1 << 30 };

/* Does errno say that PATH is absent?  Everything else is a failure to look. */
static int absent(const char *path, struct err *err)
{
    return errno == ENOENT || errno == ENOTDIR ? 0 : err_errno(err, "%s", path);
}

/* Reads the open FD to its end; NAME is for messages. */
static int read_all(char **out, size_t *len, int fd, const char *name, uint64_t max,
                    struct err *err)
{
    char *buf = NULL;
    size_t n = 0, cap = 0;
    struct stat st;
    int ret = -1;

    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size <= max)
        buf = xgrow(buf, &cap, (size_t)st.st_size + 2, 1);
    for (;;) {
        ssize_t got;

        buf = xgrow(buf, &cap, n + 2, 1);
        got = read(fd, buf + n, cap - n - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            err_errno(err, "%s", name);
            goto out;
        }
        if (!got)
            break;
        n += (size_t)got;
        if (n > max) {
            err_set(err, ERR_INPUT, "%s: larger than %llu bytes", name,
                    (unsigned long long)max);
            goto out;
        }
    }
    buf[n] = '\0';
    *out = buf;
    buf = NULL;
    if (len)
        *len = n;
    ret = 0;
out:
    free(buf);
    return ret;
}

int fs_read_file(char **out, size_t *len, const char *path, uint64_t max,
                 struct err *err)
{
    bool standard = !strcmp(path, "-");
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    int ret;

    if (fd < 0)
        return err_errno(err, "%s", path);
    ret = read_all(out, len, fd, standard ? "standard input" : path, max, err);
    if (!standard)
        close(fd);
    return ret;
}

int fs_open_regular(const char *path, struct err *err)
{
    /* O_NONBLOCK: opening a FIFO would wait for a writer; regular files ignore the
     * flag */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;

    if (fd < 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            err_set(err, ERR_INPUT, "%s: missing", path);
        else if (errno == ENXIO || errno == ENODEV)
            err_set(err, ERR_INPUT, "%s: not a regular file", path);
        else
            err_errno(err, "%s", path);
        return -1;
    }
    if (fstat(fd, &st) < 0)
        err_errno(err, "%s", path);
    else if (!S_ISREG(st.st_mode))
        err_set(err, ERR_INPUT, "%s: not a regular file", path);
    else
        return fd;
    close(fd);
    return -1;
}

int fs_read_regular(char **out, size_t *len, const char *path, uint64_t max,
                    struct err *err)
{
    int fd = fs_open_regular(path, err), ret;

    if (fd < 0)
        return -1;
    ret = read_all(out, len, fd, path, max, err);
    close(fd);
    return ret;
}

int fs_read_optional(char **out, size_t *len, const char *path, uint64_t max,
                     struct err *err)
{
    bool found;

    if (fs_find(&found, path, err) < 0)
        return -1;
    if (found)
        return fs_read_regular(out, len, path, max, err);
    *out = NULL;
    return 0;
}

int fs_read_part(char **out, size_t *len, const char *path, uint64_t at, size_t max,
                 struct err *err)
{
    bool found;
    char *buf;
    size_t n = 0;
    int fd;

    *out = NULL;
    *len = 0;
    if (fs_find(&found, path, err) < 0)
        return -1;
    if (!found)
        return 0;
    fd = fs_open_regular(path, err);
    if (fd < 0)
        return -1;
    buf = xmalloc(max + 1);
    while (n < max) {
        ssize_t got = pread(fd, buf + n, max - n, (off_t)(at + n));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            err_errno(err, "%s", path);
            free(buf);
            close(fd);
            return -1;
        }
        if (!got)
            break;
        n += (size_t)got;
    }
    close(fd);
    buf[n] = '\0';
    *out = buf;
    *len = n;
    return 0;
}

static size_t at_most(size_t n)
{
    return n < TRANSFER_MAX ? n : TRANSFER_MAX;
}

int fs_pread(int fd, void *buf, size_t n, uint64_t offset, const char *path,
             struct err *err)
{
    char *p = buf;

    while (n) {
        ssize_t got = pread(fd, p, at_most(n), (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno(err, "%s", path);
        if (!got)
            return err_set(err, ERR_INPUT, "%s: truncated at byte %llu", path,
                           (unsigned long long)offset);
        p += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

int fs_pwrite(int fd, const void *buf, size_t n, uint64_t offset, const char *path,
              struct err *err)
{
    const char *p = buf;

    while (n) {
        ssize_t put = pwrite(fd, p, at_most(n), (off_t)offset);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return err_errno(err, "%s", path);
        p += put;
        n -= (size_t)put;
        offset += (uint64_t)put;
    }
    return 0;
}

int fs_write(int fd, const void *buf, size_t n, const char *path, struct err *err)
{
    const char *p = buf;

    while (n) {
        ssize_t put = write(fd, p, at_most(n));

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return err_errno(err, "%s", path);
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

int fs_sync_dir(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int ret = 0;

    if (fd < 0)
        return err_errno(err, "%s", path);
    /* Some file systems cannot sync a directory and fail with EINVAL. */
    if (fsync(fd) < 0 && errno != EINVAL)
        ret = err_errno(err, "%s", path);
    close(fd);
    return ret;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int fs_list_at(char ***names, size_t *n, int at, const char *name, const char *dir,
               struct err *err)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char **list = NULL;
    size_t len = 0, cap = 0;
    const struct dirent *entry;
    DIR *d;

    if (fd < 0)
        return err_errno(err, "%s", dir);
    d = fdopendir(fd);
    if (!d) {
        err_errno(err, "%s", dir);
        close(fd);
        return -1;
    }
    while (errno = 0, (entry = readdir(d))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        list = xgrow(list, &cap, len + 1, sizeof(*list));
        list[len++] = xstrdup(entry->d_name);
    }
    if (errno) {
        err_errno(err, "%s", dir);
        fs_list_free(list, len);
        closedir(d);
        return -1;
    }
    closedir(d);
    if (len)
        qsort(list, len, sizeof(*list), compare_names);
    *names = list;
    *n = len;
    return 0;
}

int fs_list(char ***names, size_t *n, const char *dir, struct err *err)
{
    /* "DIR/." opens the directory that a symbolic link leads to */
    char *here = fs_join_dup(dir, ".");
    int ret = fs_list_at(names, n, AT_FDCWD, here, dir, err);

    free(here);
    return ret;
}

int fs_remove_tree_at(int at, const char *name, const char *path, struct err *err)
{
    struct stat st;
    char **names = NULL;
    size_t n = 0;
    int fd, ret = 0;

    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return absent(path, err);
    if (!S_ISDIR(st.st_mode))
        return unlinkat(at, name, 0) < 0 ? err_errno(err, "%s", path) : 0;
    fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, "%s", path);
    ret = fs_list_at(&names, &n, fd, ".", path, err);
    for (size_t i = 0; i < n && ret == 0; i++) {
        char *child = fs_join_dup(path, names[i]);

        ret = fs_remove_tree_at(fd, names[i], child, err);
        free(child);
    }
    fs_list_free(names, n);
    close(fd);
    if (ret == 0 && unlinkat(at, name, AT_REMOVEDIR) < 0)
        ret = err_errno(err, "%s", path);
    return ret;
}

int fs_remove_tree(const char *path, struct err *err)
{
    return fs_remove_tree_at(AT_FDCWD, path, path, err);
}

void fs_list_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

int fs_find(bool *found, const char *path, struct err *err)
{
    struct stat st;
    int ret = lstat(path, &st);

    if (ret < 0 && absent(path, err) < 0)
        return -1;
    *found = ret == 0;
    return 0;
}

int fs_find_dir(bool *is_dir, const char *path, struct err *err)
{
    struct stat st;
    int ret = stat(path, &st);

    if (ret < 0 && absent(path, err) < 0)
        return -1;
    *is_dir = ret == 0 && S_ISDIR(st.st_mode);
    return 0;
}

int fs_find_in(bool *found, const char *dir, const char *name, struct err *err)
{
    char *path = fs_join_dup(dir, name);
    int ret = fs_find(found, path, err);

    free(path);
    return ret;
}

int fs_resolve(char **out, const char *path, struct err *err)
{
    char *full = realpath(path, NULL);

    if (!full && absent(path, err) < 0)
        return -1;
    *out = full;
    return 0;
}

bool fs_is_remote(const char *path)
{
    /* linux/magic.h and statfs(2): NFS, SMB, CIFS, SMB2, AFS, Ceph */
    static const uint32_t remote[] = { 0x6969,     0x517b,     0xff534d42,
                                       0xfe534d42, 0x5346414f, 0x00c36400 };
    struct statfs s;

    if (statfs(path, &s) < 0)
        return false;
    for (size_t i = 0; i < sizeof(remote) / sizeof(remote[0]); i++)
        if ((uint32_t)s.f_type == remote[i])
            return true;
    return false;
}

int fs_size(uint64_t *size, const char *path, struct err *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return err_errno(err, "%s", path);
    *size = (uint64_t)st.st_size;
    return 0;
}

char *fs_join_dup(const char *dir, const char *name)
{
    return str_dupf("%s%s%s", dir, str_ends(dir, "/") ? "" : "/", name);
}

char *fs_dirname_dup(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n ? xstrndup(path, n) : xstrdup(".");
}

const char *fs_basename(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool fs_is_plain_name(const char *name)
{
    for (const char *part = name;;) {
        size_t n = strcspn(part, "/");

        if (!n || (n == 1 && part[0] == '.') || (n == 2 && !memcmp(part, "..", 2)))
            return false;
        if (!part[n])
            return true;
        part += n + 1;
    }
}

int fs_dir_has(bool *found, const char *dir, bool (*is)(const char *name),
               struct err *err)
{
    char **names;
    bool is_dir;
    size_t n;

    *found = false;
    if (fs_find_dir(&is_dir, dir, err) < 0)
        return -1;
    if (!is_dir)
        return 0;
    if (fs_list(&names, &n, dir, err) < 0)
        return -1;
    for (size_t i = 0; i < n && !*found; i++)
        *found = is(names[i]);
    fs_list_free(names, n);
    return 0;
}
