/* fs - files read whole, transfers, and what the file system says */
#ifndef LIB_BASE_FS_H
#define LIB_BASE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

/* Read all of PATH ("-" is standard input) into a new NUL-terminated buffer that the
 * caller frees.  More than MAX bytes is ERR_INPUT.  *len may be NULL. */
MUST_CHECK int fs_read_file(char **out, size_t *len, const char *path, uint64_t max,
                            struct err *err);

/* Open PATH for reading, following symbolic links, and return the descriptor.  A
 * missing file, a FIFO, a device or a directory is ERR_INPUT; the call never blocks. */
MUST_CHECK int fs_open_regular(const char *path, struct err *err);
/* As fs_read_file, but PATH must be a regular file, and "-" has no special meaning. */
MUST_CHECK int fs_read_regular(char **out, size_t *len, const char *path, uint64_t max,
                               struct err *err);

/* Transfer exactly N bytes at OFFSET or fail; PATH is for the message.  Reading past
 * the end of the file is ERR_INPUT ("truncated"). */
MUST_CHECK int fs_pread(int fd, void *buf, size_t n, uint64_t offset, const char *path,
                        struct err *err);
MUST_CHECK int fs_pwrite(int fd, const void *buf, size_t n, uint64_t offset,
                         const char *path, struct err *err);
MUST_CHECK int fs_write(int fd, const void *buf, size_t n, const char *path,
                        struct err *err);

MUST_CHECK int fs_sync_dir(const char *path, struct err *err);
/* a missing PATH is no error */
MUST_CHECK int fs_remove_tree(const char *path, struct err *err);
/* The same for NAME in the open directory AT; PATH is for messages.  A symbolic link is
 * removed but not listed. */
MUST_CHECK int fs_remove_tree_at(int at, const char *name, const char *path,
                                 struct err *err);
MUST_CHECK int fs_list_at(char ***names, size_t *n, int at, const char *name,
                          const char *path, struct err *err);
/* Names in DIR, sorted by byte value, without "." and "..".  Free each and *names. */
MUST_CHECK int fs_list(char ***names, size_t *n, const char *dir, struct err *err);
void fs_list_free(char **names, size_t n);
/* Whether DIR is a directory with a name for which IS is true. */
MUST_CHECK int fs_dir_has(bool *found, const char *dir, bool (*is)(const char *name),
                          struct err *err);

/* Whether PATH is there, be it a link that leads nowhere; whether it leads to a
 * directory.  Only ENOENT and ENOTDIR mean that it is absent; where the system cannot
 * look, it is ERR_SYSTEM, so that a dying disk is not told as a file that is missing.
 */
MUST_CHECK int fs_find(bool *found, const char *path, struct err *err);
MUST_CHECK int fs_find_dir(bool *is_dir, const char *path, struct err *err);
/* As fs_find for NAME in DIR. */
MUST_CHECK int fs_find_in(bool *found, const char *dir, const char *name,
                          struct err *err);
/* As fs_read_regular, but *out is NULL when PATH is absent. */
MUST_CHECK int fs_read_optional(char **out, size_t *len, const char *path, uint64_t max,
                                struct err *err);
/* The bytes of PATH from AT on, at most MAX of them, and a NUL, which the caller frees;
 * *out is NULL when PATH is absent.  A file that grows meanwhile is no error. */
MUST_CHECK int fs_read_part(char **out, size_t *len, const char *path, uint64_t at,
                            size_t max, struct err *err);
/* The absolute name of PATH without symbolic links, which the caller frees; *out is
 * NULL when PATH is absent or leads nowhere. */
MUST_CHECK int fs_resolve(char **out, const char *path, struct err *err);
/* True when PATH lies on a network file system (NFS, SMB, AFS, Ceph). */
bool fs_is_remote(const char *path);
/* Size in bytes of the file at PATH, following symbolic links. */
MUST_CHECK int fs_size(uint64_t *size, const char *path, struct err *err);

char *fs_join_dup(const char *dir, const char *name);
char *fs_dirname_dup(const char *path);
const char *fs_basename(const char *path); /* borrowed from PATH */
/* True when NAME is relative, without empty, "." or ".." parts. */
bool fs_is_plain_name(const char *name);

#endif
