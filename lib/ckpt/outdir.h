/* outdir - an output directory that appears whole, and continues where it was
 * interrupted
 *
 * The files are made in NAME.partial beside NAME, which is renamed when all is written
 * and synced.  A journal in it says for whom it is made and what is done; the same
 * request made again continues it, another one starts afresh.  The directory is locked
 * while it is written. */
#ifndef LIB_CKPT_OUTDIR_H
#define LIB_CKPT_OUTDIR_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

struct outdir {
    char *path;    /* the final name */
    char *partial; /* where files are made */
    int lock;      /* open, locked directory */
    int journal;   /* open for appending */
    char *done;    /* lines that an earlier run left; "" when it is new */
};

/* Begin (or continue) the output PATH for the request that IDENTITY (one line of text)
 * names. ERR_USAGE when PATH exists, unless FORCE and it is our own: a directory with a
 * manifest or with nothing but the NFILES files named in FILES.  ERR_LOCKED when
 * another run is writing it. */
int outdir_open(struct outdir *o, const char *path, const char *identity, bool force,
                const char *const *files, size_t nfiles, struct err *err);
/* Note LINE (without its line feed) as done. */
int outdir_note(struct outdir *o, const char *line, struct err *err);
/* All files are written and synced: give the directory its name. */
int outdir_finish(struct outdir *o, struct err *err);
/* Release; what is unfinished stays to be continued. */
void outdir_close(struct outdir *o);

#endif
