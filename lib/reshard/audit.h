/* audit - a consistency check of a checkpoint
 *
 * Compares the files with what the manifest records and reports each disagreement as a
 * finding.  The order of findings follows the order of files, for any number of
 * threads. */
#ifndef LIB_RESHARD_AUDIT_H
#define LIB_RESHARD_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/reshard/checkpoint.h"

struct audit {
    int threads;      /* at least 1 */
    const bool *part; /* [nparts] which shard files to check; NULL: all */
    void (*finding)(void *arg, const char *file, const char *tensor, const char *text);
    void *arg; /* for finding(); its TENSOR is NULL when the finding concerns the whole
                * file */

    struct err unread; /* result: the first error of the machine that kept a file from
                        * being looked at, which is a finding but no damage; kind
                        * ERR_NONE: all files were read */
    uint64_t files, bytes, findings; /* results: files checked, bytes read, findings
                                      * reported */
};

/* Checks the files of the sharded checkpoint C against its manifest.  Returns -1 only
 * when the check itself failed; damage is reported through finding(). */
MUST_CHECK int audit_checkpoint(struct audit *a, struct checkpoint *c, struct err *err);

/* Checks the weight files in DIR against the original files from which C was
 * sharded. */
MUST_CHECK int audit_against(struct audit *a, const struct checkpoint *c,
                             const char *dir, struct err *err);

/* Checks the checksums that the archives of S, files of torch.save, have of their
 * members.  Returns as audit_checkpoint. */
MUST_CHECK int audit_archives(struct audit *a, const struct source *s, struct err *err);

/* Writes to OUT one line per weight file and per tensor of S, a Hugging Face directory
 * or a single file: CRC-32, bytes, file name and tensor name, separated by tabs. */
MUST_CHECK int audit_sum(struct str *out, const struct source *s, struct err *err);

/* Checks S against LINES in the format of audit_sum; NAME is for messages.  A malformed
 * line is ERR_INPUT. */
MUST_CHECK int audit_compare(struct audit *a, const struct source *s, const char *name,
                             const char *lines, struct err *err);

#endif
