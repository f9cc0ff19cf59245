/* fail-io - let one call of a program fail, as a dying disk would
 *
 * To be preloaded.  FAIL_CALL names the call (read, write, sync or stat: pread, pwrite,
 * fsync and fdatasync, and stat and lstat), FAIL_AT which of them fails, counted from
 * 1, with EIO; with FAIL_HOW=term SIGTERM comes instead, just before it.  With ON_NFS
 * every file lies on NFS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/vfs.h>

ssize_t pread64(int fd, void *buf, size_t n, off64_t at);
ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t at);
ssize_t pread(int fd, void *buf, size_t n, off_t at);
ssize_t pwrite(int fd, const void *buf, size_t n, off_t at);
int fsync(int fd);
int fdatasync(int fd);

/* Is this call, one of WHAT, the one that fails? */
static bool fails(const char *what)
{
    static long seen;
    const char *call = getenv("FAIL_CALL"), *at = getenv("FAIL_AT");

    if (!call || !at || strcmp(call, what) != 0 || ++seen != atol(at))
        return false;
    if (getenv("FAIL_HOW")) {
        raise(SIGTERM);
        return false;
    }
    errno = EIO;
    return true;
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

typedef ssize_t reader(int fd, void *buf, size_t n, off64_t at);
typedef ssize_t writer(int fd, const void *buf, size_t n, off64_t at);
typedef int syncer(int fd);
typedef int stater(const char *path, struct statfs *s);

ssize_t pread64(int fd, void *buf, size_t n, off64_t at)
{
    return fails("read") ? -1 : ((reader *)next("pread64"))(fd, buf, n, at);
}

ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
    return fails("read") ? -1 : ((reader *)next("pread64"))(fd, buf, n, at);
}

ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t at)
{
    return fails("write") ? -1 : ((writer *)next("pwrite64"))(fd, buf, n, at);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
    return fails("write") ? -1 : ((writer *)next("pwrite64"))(fd, buf, n, at);
}

int fsync(int fd)
{
    return fails("sync") ? -1 : ((syncer *)next("fsync"))(fd);
}

int fdatasync(int fd)
{
    return fails("sync") ? -1 : ((syncer *)next("fdatasync"))(fd);
}

int stat(const char *path, struct stat *s)
{
    return fails("stat") ? -1 : fstatat(AT_FDCWD, path, s, 0);
}

int lstat(const char *path, struct stat *s)
{
    return fails("stat") ? -1 : fstatat(AT_FDCWD, path, s, AT_SYMLINK_NOFOLLOW);
}

int statfs(const char *path, struct statfs *s)
{
    int ret = ((stater *)next("statfs"))(path, s);

    if (ret == 0 && getenv("ON_NFS"))
        s->f_type = 0x6969;
    return ret;
}
