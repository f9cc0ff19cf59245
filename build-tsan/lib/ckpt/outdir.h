/* outdir - an output directory that appears whole, and continues where it was
 * interrupted
 *
 * The files are made in NAME.partial beside NAME, which is renamed when all is written
 * and synced.  A journal in it says for whom it is made and what is done; the same
 * request made again continues it, another one starts afresh.  The directory is locked
 * while it is written.
 *
 * It is made for its user alone (mode 0700); one that others own or may write is
 * refused, as what it holds would be believed.  Files are made in the open directory,
 * never by a path, and no link is followed.  The final modes are given at the end. */
#ifndef LIB_CKPT_OUTDIR_H
#define LIB_CKPT_OUTDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "lib/base/err.h"

struct outdir {
    char *path;    /* the final name */
    char *partial; /* where files are made; for messages and for reading them */
    int dir;       /* open, locked: PARTIAL */
    int journal;   /* open for writing */
    char *done;    /* lines that an earlier run left; "" when it is new */
    bool touched;  /* DONE was written under another stamp: note again what holds */
    mode_t umask;
};

/* Begin (or continue) the output PATH for the request that IDENTITY (one line of text)
 * names; STAMP (another) tells its sources' state more narrowly.  ERR_USAGE when PATH
 * exists, unless FORCE and it is our own: a directory with a manifest or with nothing
 * but the NFILES files named in FILES.  ERR_LOCKED when another run is writing it,
 * ERR_INPUT when the unfinished directory is not safe to continue. */
MUST_CHECK int outdir_open(struct outdir *o, const char *path, const char *identity,
                           const char *stamp, bool force, const char *const *files,
                           size_t nfiles, struct err *err);

/* A fresh file NAME, for reading and writing; what had the name is removed.  Returns
 * the descriptor or -1. */
MUST_CHECK int outdir_create(const struct outdir *o, const char *name, struct err *err);
/* The file NAME that an earlier run left, or a fresh one. */
MUST_CHECK int outdir_reopen(const struct outdir *o, const char *name, struct err *err);
/* Give the open file FD its final mode: SOURCE's, as far as the umask lets it. */
MUST_CHECK int outdir_share(const struct outdir *o, int fd, mode_t source,
                            const char *path, struct err *err);
/* A fresh small file of N bytes at TEXT with its final mode, synced. */
MUST_CHECK int outdir_write(const struct outdir *o, const char *name, const char *text,
                            size_t n, mode_t source, struct err *err);

/* Note LINE (without its line feed) as done. */
MUST_CHECK int outdir_note(struct outdir *o, const char *line, struct err *err);
/* All files are written and synced: give the directory its name. */
MUST_CHECK int outdir_finish(struct outdir *o, struct err *err);
/* Release; what is unfinished stays to be continued. */
void outdir_close(struct outdir *o);

#endif
