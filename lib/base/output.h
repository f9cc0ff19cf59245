/* output - the one way to open what a program writes
 *
 * Other users can plant links, pipes and files in a directory that they may write to,
 * so a name there must not lead to a file of ours elsewhere.  A directory is safe when
 * this user or root owns it and nobody else may write to it.
 *
 * - A symbolic link, as the file or on the way to it, is followed where this user or
 *   root owns the link, or where its directory is safe.  Any other is ERR_INPUT.
 * - A file that keeps what it has must, in a directory that is not safe, have no other
 *   hard link; where the directory is sticky, it belongs to this user, to root or to
 *   the directory's owner.  A pipe or device there belongs to this user or root.
 * - Descriptors of this process (/dev/stdout, /dev/fd/N) are used as they are.
 *
 * Paths are walked one name at a time, and what was checked is what is opened, whatever
 * is renamed meanwhile.  PATH is also what messages call the file. */
#ifndef LIB_BASE_OUTPUT_H
#define LIB_BASE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

/* A file that appears whole, under its name, when it is closed.  Its permissions are
 * those of the file that it replaces, if that is this user's, else what the umask gives
 * to a new file.  A pipe or device is written in place; "-" is standard output. */
struct output;

MUST_CHECK int output_open(struct output **out, const char *path, struct err *err);
int output_fd(const struct output *o); /* open for writing */
/* Gives the file its name, synced with its directory when SYNC, and releases O.  On
 * failure what had the name is unchanged. */
MUST_CHECK int output_close(struct output *o, bool sync, struct err *err);
void output_discard(struct output *o); /* NULL is fine */

/* Writes N bytes of BUF as a whole file. */
MUST_CHECK int output_write(const char *path, const void *buf, size_t n, bool sync,
                            struct err *err);

/* Opens a file that keeps what it has and returns the descriptor.  FLAGS are those of
 * open(2): O_WRONLY or O_RDWR, O_APPEND, and O_CREAT, which makes a file that is not
 * there.  On failure errno says why as well; ELOOP: it is not trusted. */
MUST_CHECK int output_reopen(const char *path, int flags, struct err *err);
/* Opens a log, to be appended to; "-" is standard output. */
MUST_CHECK int output_append(const char *path, struct err *err);
/* Opens a new, empty file, which takes the place of an old one at once. */
MUST_CHECK int output_create(const char *path, struct err *err);

/* Opens the directory PATH.  OUTPUT_MAKE makes it and the directories above it where
 * they are missing; OUTPUT_SYNC also syncs those in which it makes something. */
enum output_make { OUTPUT_FIND, OUTPUT_MAKE, OUTPUT_SYNC };
MUST_CHECK int output_dir(const char *path, enum output_make make, struct err *err);

/* Syncs the directory in which PATH's file is, so that a new name is not lost. */
MUST_CHECK int output_sync_name(const char *path, struct err *err);

/* For a library that opens files by name: checks PATH, which may be missing, as
 * output_reopen does, and returns it without links; owned.  NULL on failure. */
char *output_resolve_dup(const char *path, struct err *err);
/* Makes a directory in DIR for this user alone; its path, owned, or NULL. */
char *output_scratch_dup(const char *dir, struct err *err);

#endif
