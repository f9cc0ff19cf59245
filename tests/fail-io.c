/* fail-io - let one call of a program fail, as a dying disk would
 *
 * To be preloaded.  FAIL_CALL names a kind of calls (the table below), FAIL_AT which of
 * them fails, counted from 1 over all processes that the program forks; every one of
 * them fails if FAIL_AT is 0.  It fails with EIO, or with the error number FAIL_ERRNO;
 * with FAIL_HOW=term SIGTERM comes instead, just before it, and with FAIL_RUN the shell
 * runs this command before it.  FAIL_PATH is a part of the
 * names of files that are counted, FAIL_IN the program of which (one that it runs
 * inherits all this).  FAIL_LOG names a file that appears when a call has failed, and
 * has its name.  With ON_NFS every file lies on NFS.
 *
 * Calls that the C library makes itself (an fread, say) are not seen. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <unistd.h>

/* The kinds, by their words:
 *   stat     stat, lstat, fstat, fstatat       open     open, openat, fopen
 *   opendir  opendir, fdopendir                readdir  readdir
 *   read     read                              pread    pread
 *   write    write                             pwrite   pwrite
 *   rename   rename, renameat, renameat2       sync     fsync, fdatasync
 *   access   access                            resolve  realpath
 *   unlink   unlink, unlinkat                  lock     flock */

static long *seen; /* shared with the processes that are forked */
static const char *call, *path_part;
static long fail_at;
static int number = EIO;

__attribute__((constructor)) static void start(void)
{
    const char *at = getenv("FAIL_AT"), *in = getenv("FAIL_IN");

    if (in && strcmp(in, program_invocation_short_name) != 0)
        return;
    seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    if (seen == MAP_FAILED)
        abort();
    call = at ? getenv("FAIL_CALL") : NULL;
    path_part = getenv("FAIL_PATH");
    fail_at = at ? strtol(at, NULL, 10) : 0;
    if (getenv("FAIL_ERRNO"))
        number = (int)strtol(getenv("FAIL_ERRNO"), NULL, 10);
}

static void note(const char *what, const char *path)
{
    const char *name = getenv("FAIL_LOG");
    char line[4200];
    int fd, n = snprintf(line, sizeof(line), "%s %s\n", what, path);

    if (!name)
        return;
    fd = (int)syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0 || syscall(SYS_write, fd, line, (size_t)n) != n)
        abort();
    syscall(SYS_close, fd);
}

/* The name of the open file FD. */
static const char *name_of(char name[4096], int fd)
{
    char link[64];
    long n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = syscall(SYS_readlink, link, name, 4095);
    name[n < 0 ? 0 : n] = '\0';
    return name;
}

/* Is this call, one of WHAT on PATH or else on FD, the one that fails?  PATH may be
 * below the open directory FD. */
static bool fails(const char *what, int fd, const char *path)
{
    char dir[4096] = "", full[8300];

    if (!call || strcmp(call, what) != 0)
        return false;
    if (fd >= 0 && (!path || path[0] != '/'))
        name_of(dir, fd);
    snprintf(full, sizeof(full), "%s%s%s", dir, *dir && path ? "/" : "",
             path ? path : "");
    if (path_part && !strstr(full, path_part))
        return false;
    if (fail_at && __atomic_add_fetch(seen, 1, __ATOMIC_SEQ_CST) != fail_at)
        return false;
    if (getenv("FAIL_HOW")) {
        raise(SIGTERM);
        return false;
    }
    if (getenv("FAIL_RUN")) {
        call = NULL;
        unsetenv("FAIL_CALL"); /* not for the command */
        if (system(getenv("FAIL_RUN")) != 0)
            abort();
        return false;
    }
    note(what, full);
    errno = number;
    return true;
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static bool takes_mode(int flags)
{
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

/* ---- status ---- */

typedef int at_stater(int at, const char *path, struct stat *s, int flags);
typedef int path_stater(const char *path, struct stat *s);
typedef int fd_stater(int fd, struct stat *s);

int stat(const char *path, struct stat *s)
{
    return fails("stat", -1, path) ? -1 : ((path_stater *)next("stat"))(path, s);
}

int lstat(const char *path, struct stat *s)
{
    return fails("stat", -1, path) ? -1 : ((path_stater *)next("lstat"))(path, s);
}

int fstat(int fd, struct stat *s)
{
    return fails("stat", fd, NULL) ? -1 : ((fd_stater *)next("fstat"))(fd, s);
}

int fstatat(int at, const char *path, struct stat *s, int flags)
{
    return fails("stat", at, path) ? -1
                                   : ((at_stater *)next("fstatat"))(at, path, s, flags);
}

/* ---- opening ---- */

typedef int opener(const char *path, int flags, ...);
typedef int at_opener(int at, const char *path, int flags, ...);
typedef FILE *file_opener(const char *path, const char *mode);

int __open_2(const char *path, int flags);
int __openat_2(int at, const char *path, int flags);
int open(const char *path, int flags, ...)
{
    unsigned mode = 0;
    va_list ap;

    va_start(ap, flags);
    mode = takes_mode(flags) ? va_arg(ap, unsigned) : 0;
    va_end(ap);
    return fails("open", -1, path) ? -1 : ((opener *)next("open"))(path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
    unsigned mode = 0;
    va_list ap;

    va_start(ap, flags);
    mode = takes_mode(flags) ? va_arg(ap, unsigned) : 0;
    va_end(ap);
    return fails("open", at, path)
               ? -1
               : ((at_opener *)next("openat"))(at, path, flags, mode);
}

int __open_2(const char *path, int flags)
{
    return fails("open", -1, path) ? -1 : ((opener *)next("open"))(path, flags);
}

int __openat_2(int at, const char *path, int flags)
{
    return fails("open", at, path) ? -1
                                   : ((at_opener *)next("openat"))(at, path, flags);
}

FILE *fopen(const char *path, const char *mode)
{
    return fails("open", -1, path) ? NULL : ((file_opener *)next("fopen"))(path, mode);
}

/* ---- directories ---- */

typedef DIR *dir_opener(const char *path);
typedef DIR *fd_dir_opener(int fd);
typedef struct dirent *dir_reader(DIR *d);

DIR *opendir(const char *path)
{
    return fails("opendir", -1, path) ? NULL : ((dir_opener *)next("opendir"))(path);
}

DIR *fdopendir(int fd)
{
    return fails("opendir", fd, NULL) ? NULL : ((fd_dir_opener *)next("fdopendir"))(fd);
}

struct dirent *readdir(DIR *d)
{
    return fails("readdir", dirfd(d), NULL) ? NULL : ((dir_reader *)next("readdir"))(d);
}

/* ---- reading and writing ---- */

typedef ssize_t reader(int fd, void *buf, size_t n);
typedef ssize_t writer(int fd, const void *buf, size_t n);
typedef ssize_t at_reader(int fd, void *buf, size_t n, off_t at);
typedef ssize_t at_writer(int fd, const void *buf, size_t n, off_t at);

ssize_t __pread_chk(int fd, void *buf, size_t n, off_t at, size_t room);
ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
    return fails("pread", fd, NULL) ? -1
                                    : ((at_reader *)next("pread64"))(fd, buf, n, at);
}

ssize_t __pread_chk(int fd, void *buf, size_t n, off_t at, size_t room)
{
    (void)room;
    return pread(fd, buf, n, at);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
    return fails("pwrite", fd, NULL) ? -1
                                     : ((at_writer *)next("pwrite64"))(fd, buf, n, at);
}

ssize_t __read_chk(int fd, void *buf, size_t n, size_t room);

ssize_t read(int fd, void *buf, size_t n)
{
    return fails("read", fd, NULL) ? -1 : ((reader *)next("read"))(fd, buf, n);
}

ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
    (void)room;
    return read(fd, buf, n);
}

ssize_t write(int fd, const void *buf, size_t n)
{
    return fails("write", fd, NULL) ? -1 : ((writer *)next("write"))(fd, buf, n);
}

typedef int fd_call(int fd);

int fsync(int fd)
{
    return fails("sync", fd, NULL) ? -1 : ((fd_call *)next("fsync"))(fd);
}

int fdatasync(int fd)
{
    return fails("sync", fd, NULL) ? -1 : ((fd_call *)next("fdatasync"))(fd);
}

/* ---- names ---- */

typedef int renamer(const char *from, const char *to);
typedef int at_renamer(int at, const char *from, int to_at, const char *to,
                       unsigned flags);

int rename(const char *from, const char *to)
{
    return fails("rename", -1, to) ? -1 : ((renamer *)next("rename"))(from, to);
}

int renameat2(int at, const char *from, int to_at, const char *to, unsigned flags)
{
    return fails("rename", to_at, to)
               ? -1
               : ((at_renamer *)next("renameat2"))(at, from, to_at, to, flags);
}

int renameat(int at, const char *from, int to_at, const char *to)
{
    return renameat2(at, from, to_at, to, 0);
}

typedef int path_call(const char *path);
typedef int at_call(int at, const char *path, int flags);
typedef int path_int_call(const char *path, int n);
typedef int fd_int_call(int fd, int n);
typedef char *resolver(const char *path, char *out);

int unlink(const char *path)
{
    return fails("unlink", -1, path) ? -1 : ((path_call *)next("unlink"))(path);
}

int unlinkat(int at, const char *path, int flags)
{
    return fails("unlink", at, path) ? -1
                                     : ((at_call *)next("unlinkat"))(at, path, flags);
}

int access(const char *path, int how)
{
    return fails("access", -1, path) ? -1
                                     : ((path_int_call *)next("access"))(path, how);
}

int flock(int fd, int how)
{
    return fails("lock", fd, NULL) ? -1 : ((fd_int_call *)next("flock"))(fd, how);
}

char *__realpath_chk(const char *path, char *out, size_t room);

char *realpath(const char *path, char *out)
{
    return fails("resolve", -1, path) ? NULL
                                      : ((resolver *)next("realpath"))(path, out);
}

char *__realpath_chk(const char *path, char *out, size_t room)
{
    (void)room;
    return realpath(path, out);
}

typedef int fs_stater(const char *path, struct statfs *s);

int statfs(const char *path, struct statfs *s)
{
    int ret = ((fs_stater *)next("statfs"))(path, s);

    if (ret == 0 && getenv("ON_NFS"))
        s->f_type = 0x6969;
    return ret;
}

/* ---- other names of these calls ---- */

#define ALSO(name, call) __asm__(".globl " #name "\n.set " #name ", " #call)

ALSO(stat64, stat);
ALSO(lstat64, lstat);
ALSO(fstat64, fstat);
ALSO(fstatat64, fstatat);
ALSO(open64, open);
ALSO(openat64, openat);
ALSO(__open64_2, __open_2);
ALSO(__openat64_2, __openat_2);
ALSO(fopen64, fopen);
ALSO(readdir64, readdir);
ALSO(pread64, pread);
ALSO(__pread64_chk, __pread_chk);
ALSO(pwrite64, pwrite);
