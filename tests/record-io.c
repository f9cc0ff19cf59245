/* record-io - what a program makes durable, in order; and files that are slow or fail
 *
 * To be preloaded.  RECORD_IO names a file to which a line is appended for each call:
 * "make PATH" (a file or directory may appear), "sync PATH", "name PATH" (a rename
 * gives it).  What the program prints stands in order when it is appended there too.
 * Writes at an offset to a file whose path has FAIL_WRITE in it fail with EIO; with
 * SLOW_WRITE each takes 50 ms. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t at);
int openat64(int dir, const char *path, int flags, ...);
int open64(const char *path, int flags, ...);

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static void record(const char *what, const char *path)
{
    const char *file = getenv("RECORD_IO");
    char line[PATH_MAX + 16];
    int fd, n;

    if (!file)
        return;
    n = snprintf(line, sizeof(line), "%s %s\n", what, path);
    fd = ((int (*)(const char *, int, ...))next("open"))(
        file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || ((ssize_t(*)(int, const void *, size_t))next("write"))(
                      fd, line, (size_t)n) != n)
        abort();
    close(fd);
}

static const char *path_of(char out[PATH_MAX], int fd)
{
    char link[64];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, out, PATH_MAX - 1);
    out[n < 0 ? 0 : n] = '\0';
    return out;
}

/* PATH in DIR, which is AT_FDCWD or a descriptor. */
static void record_at(const char *what, int dir, const char *path)
{
    char at[PATH_MAX], full[2 * PATH_MAX];

    if (dir == AT_FDCWD || *path == '/') {
        record(what, path);
        return;
    }
    snprintf(full, sizeof(full), "%s/%s", path_of(at, dir), path);
    record(what, full);
}

static int opened(int fd, int dir, const char *path, int flags)
{
    if (fd >= 0 && (flags & O_CREAT))
        record_at("make", dir, path);
    return fd;
}

#define MODE(flags, mode)                                \
    do {                                                 \
        va_list ap;                                      \
        va_start(ap, flags);                             \
        mode = (flags)&O_CREAT ? va_arg(ap, mode_t) : 0; \
        va_end(ap);                                      \
    } while (0)

int openat64(int dir, const char *path, int flags, ...)
{
    int (*real)(int, const char *, int, ...) = next("openat64");
    mode_t mode;

    MODE(flags, mode);
    return opened(real(dir, path, flags, mode), dir, path, flags);
}

int openat(int dir, const char *path, int flags, ...)
{
    int (*real)(int, const char *, int, ...) = next("openat");
    mode_t mode;

    MODE(flags, mode);
    return opened(real(dir, path, flags, mode), dir, path, flags);
}

int open64(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...) = next("open64");
    mode_t mode;

    MODE(flags, mode);
    return opened(real(path, flags, mode), AT_FDCWD, path, flags);
}

int open(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...) = next("open");
    mode_t mode;

    MODE(flags, mode);
    return opened(real(path, flags, mode), AT_FDCWD, path, flags);
}

int mkdir(const char *path, mode_t mode)
{
    int ret = ((int (*)(const char *, mode_t))next("mkdir"))(path, mode);

    if (ret == 0)
        record("make", path);
    return ret;
}

int mkdirat(int dir, const char *path, mode_t mode)
{
    int ret = ((int (*)(int, const char *, mode_t))next("mkdirat"))(dir, path, mode);

    if (ret == 0)
        record_at("make", dir, path);
    return ret;
}

int rename(const char *from, const char *to)
{
    int ret = ((int (*)(const char *, const char *))next("rename"))(from, to);

    if (ret == 0)
        record("name", to);
    return ret;
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    int ret = ((int (*)(int, const char *, int, const char *))next("renameat"))(
        from_dir, from, to_dir, to);

    if (ret == 0)
        record_at("name", to_dir, to);
    return ret;
}

static int synced(int ret, int fd)
{
    char path[PATH_MAX];

    if (ret == 0)
        record("sync", path_of(path, fd));
    return ret;
}

int fsync(int fd)
{
    return synced(((int (*)(int))next("fsync"))(fd), fd);
}

int fdatasync(int fd)
{
    return synced(((int (*)(int))next("fdatasync"))(fd), fd);
}

static bool is(const char *which, int fd)
{
    char path[PATH_MAX];
    const char *part = getenv(which);

    return part && strstr(path_of(path, fd), part);
}

ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t at)
{
    const struct timespec nap = { .tv_nsec = 50000000 };

    if (is("FAIL_WRITE", fd)) {
        errno = EIO;
        return -1;
    }
    if (is("SLOW_WRITE", fd))
        nanosleep(&nap, NULL);
    return ((ssize_t(*)(int, const void *, size_t, off64_t))next("pwrite64"))(fd, buf,
                                                                              n, at);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
    return pwrite64(fd, buf, n, at);
}
