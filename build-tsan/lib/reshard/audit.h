/* audit - looking for damage in a checkpoint
 *
 * Everything that the manifest says is compared with what the files hold; what does not
 * agree is a finding.  Findings are reported in the order of the files, whatever the
 * number of threads. */
#ifndef LIB_RESHARD_AUDIT_H
#define LIB_RESHARD_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/reshard/checkpoint.h"

struct audit {
    int threads;      /* at least 1 */
    const bool *part; /* [nparts] rank files to look at, NULL for all */
    void (*finding)(void *arg, const char *file, const char *tensor, const char *text);
    void *arg; /* TENSOR is NULL when the finding is about the whole file */

    uint64_t files, bytes, findings; /* results: files and bytes read */
};

/* Compare the files of the sharded checkpoint C with its manifest.  Returns -1 only
 * when the audit itself could not be made; damage is findings. */
MUST_CHECK int audit_checkpoint(struct audit *a, struct checkpoint *c, struct err *err);

/* Compare the weight files in DIR with those that C was cut from. */
MUST_CHECK int audit_against(struct audit *a, const struct checkpoint *c,
                             const char *dir, struct err *err);

/* Write a line for each file of weights and each tensor of the Hugging Face directory
 * or single file S to OUT: CRC-32, bytes, file, and the tensor's name, between tabs. */
MUST_CHECK int audit_sum(struct str *out, const struct source *s, struct err *err);

/* Compare S with the lines that audit_sum made; NAME is for messages.  A malformed line
 * is ERR_INPUT. */
MUST_CHECK int audit_compare(struct audit *a, const struct source *s, const char *name,
                             const char *lines, struct err *err);

#endif
