/* outdir - an output directory that appears complete or not at all, and can be
 * continued
 *
 * Files are written in NAME.partial beside NAME, which is renamed when everything is
 * written and synced.  A journal in it records the request and what is done.  The same
 * request continues it; another request starts from the beginning.  The directory is
 * locked while it is written.
 *
 * It has mode 0700 until the end.  A partial directory that belongs to another user, or
 * that others may write to, is an error, because its contents would be trusted.  Files
 * are created relative to the open directory, never by path or through a link. */
#ifndef LIB_CKPT_OUTDIR_H
#define LIB_CKPT_OUTDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "lib/base/err.h"

struct outdir {
    char *path;    /* final path */
    char *partial; /* the partial directory; for messages and for reading */
    int dir;       /* descriptor of PARTIAL, which is locked */
    int journal;   /* open for writing */
    char *done;    /* journal lines of an earlier run; "" when there is none */
    bool touched;  /* DONE has another stamp: the caller must check its lines and note
                    * valid ones again */
    mode_t umask;
};

/* May PATH be written, as outdir_open says?  Touches nothing. */
MUST_CHECK int outdir_check(const char *path, bool force, const char *const *files,
                            size_t nfiles, struct err *err);
/* Begins, or continues, the output PATH.  IDENTITY, a line of text, identifies the
 * request; STAMP, another line, identifies the exact state of its sources.  ERR_USAGE
 * when PATH is empty, or exists, unless FORCE and it is our own output: it has a
 * manifest, or no files except the NFILES in FILES.  ERR_LOCKED when another run is
 * writing it.  ERR_INPUT when the partial directory is not safe to continue. */
MUST_CHECK int outdir_open(struct outdir *o, const char *path, const char *identity,
                           const char *stamp, bool force, const char *const *files,
                           size_t nfiles, struct err *err);

/* Makes the directory PATH, in which outputs of one user lie, if it is not there.
 * ERR_INPUT when it is another user's, or others may write to it. */
MUST_CHECK int outdir_prepare(const char *path, struct err *err);

/* Joins an output that another process has opened, only to create files in it.
 * ERR_SYSTEM when it does not exist. */
MUST_CHECK int outdir_join(struct outdir *o, const char *path, struct err *err);

/* Creates the file NAME, replacing any old one, for reading and writing.  Returns the
 * descriptor or -1. */
MUST_CHECK int outdir_create(const struct outdir *o, const char *name, struct err *err);
/* Opens the file NAME of an earlier run, or creates it. */
MUST_CHECK int outdir_reopen(const struct outdir *o, const char *name, struct err *err);
/* Sets the final mode of the open file FD: that of SOURCE, restricted by the umask. */
MUST_CHECK int outdir_share(const struct outdir *o, int fd, mode_t source,
                            const char *path, struct err *err);
/* Opens the directory NAME in O, made if it is not there, with its final mode, as an
 * output of its own in which files can be created.  0 or -1; outdir_leave releases it.
 */
MUST_CHECK int outdir_enter(struct outdir *sub, const struct outdir *o,
                            const char *name, struct err *err);
/* Syncs SUB when RET is 0, and releases it.  Returns RET, or -1 when the sync failed.
 */
MUST_CHECK int outdir_leave(struct outdir *sub, int ret, struct err *err);
/* Writes a small file with N bytes of TEXT, sets its final mode and syncs it.  NAME may
 * be DIR/FILE: the directory is made. */
MUST_CHECK int outdir_write(const struct outdir *o, const char *name, const char *text,
                            size_t n, mode_t source, struct err *err);

/* Records LINE (without its line feed) as done. */
MUST_CHECK int outdir_note(struct outdir *o, const char *line, struct err *err);
/* Renames the directory; all files must be written and synced. */
MUST_CHECK int outdir_finish(struct outdir *o, struct err *err);
/* Releases *o; an unfinished directory stays and can be continued. */
void outdir_close(struct outdir *o);

#endif
