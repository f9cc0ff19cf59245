/* partset - a checkpoint that several jobs make, each some of its files
 *
 * A job that makes the files FIRST to LAST of an output OUT writes the directory
 * OUT.parts/FIRST-LAST: these files, the small files, `part`, which records what was
 * made of what, and, of a sharded checkpoint, manifest.json, a manifest in which what
 * other jobs make is 0.  When all files are there, the last job, or `tp-shard gather`,
 * puts them together.
 *
 * `part` is text: a first line with format and version; `request TEXT`; `files FIRST
 * LAST NUMBER`; for each file that was made `file CRC SIZE NAME`, and for each small
 * file `small CRC SIZE NAME`, NAME in JSON; for each tensor `read SHARE...`, the shares
 * (cut.h) in the CRC-32s of what was read, one for each file of a sharded source; and
 * `crc32 CRC` of all before. */
#ifndef LIB_RESHARD_PARTSET_H
#define LIB_RESHARD_PARTSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"
#include "lib/ckpt/outdir.h"

extern const char PARTSET_MANIFEST[], PARTSET_RECORD[]; /* "manifest.json", "part" */

struct partset_file {
    const char *name;
    uint64_t size;
    uint32_t crc;
    bool small;
};

/* What one job made. */
struct partset_record {
    const char *request;       /* a line that identifies source, output and options; it
                                * begins "cut " or "merge " */
    int first, last, of;       /* its files, and the number of all */
    struct partset_file *file; /* the weight files in order, then the small ones */
    size_t nfiles;
    uint32_t *share; /* [ntensors * nshares] */
    size_t ntensors, nshares;
    struct pool pool; /* private: memory of partset_parse */
};

/* OUT.parts/FIRST-LAST; the caller frees it. */
char *partset_part_dup(const char *path, int first, int last);
/* Makes OUT.parts, which must be ours, if it is not there. */
MUST_CHECK int partset_prepare(const char *path, struct err *err);

/* Writes R to the open part O. */
MUST_CHECK int partset_write(const struct outdir *o, const struct partset_record *r,
                             struct err *err);
/* Reads a record, the N bytes at TEXT of the file PATH.  On failure *r needs no
 * clearing. */
MUST_CHECK int partset_parse(struct partset_record *r, const char *path,
                             const char *text, size_t n, struct err *err);
/* Reads the record in the directory DIR; *FOUND: there is one, and *r is to be cleared.
 */
MUST_CHECK int partset_read(struct partset_record *r, bool *found, const char *dir,
                            struct err *err);
void partset_clear(struct partset_record *r);

/* *MADE: the directory PART is a finished part of REQUEST. */
MUST_CHECK int partset_is_made(bool *made, const char *part, const char *request,
                               struct err *err);

struct partset_result {
    bool done;        /* the output is complete */
    char missing[64]; /* which files are missing, such as "4-5, 7"; of the first */
    int of, files;    /* number of all files; of those that are there */
    uint64_t bytes;   /* of the weight files */
};

/* Puts together the output PATH of the parts in the N directories DIRS, each a part or
 * a directory of parts; N 0: of PATH.parts, which is removed then.  Files are linked
 * where the file system can, and else copied.  *out says what is missing, which is no
 * error. ERR_INPUT when parts are of different requests or runs, overlap, or are
 * damaged. */
MUST_CHECK int partset_gather(struct partset_result *out, const char *path,
                              char *const *dirs, size_t n, bool force, struct err *err);

#endif
