/* inspect - what is wrong with a directory that somebody downloaded or left behind
 *
 * Looks at the files of a model before anything runs: the index against the weight
 * files and their headers, names and shapes against the family and the config, ids of
 * the tokenizer against the rows of the vocabulary, values that are NaN, infinite, all
 * zero or all alike, tied tensors that differ, and what lies beside: pointers of git
 * LFS, stray shards, partial downloads, pickles that name foreign functions, adapters,
 * code.  Every weight file is read once, a block at a time. */
#ifndef LIB_RESHARD_INSPECT_H
#define LIB_RESHARD_INSPECT_H

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/reshard/inspection.h"

struct inspect_options {
    const char *family_file, *family_path; /* as in checkpoint_options */
    bool headers;                          /* read no weights, only their headers */
    int threads;                           /* at least 1 */
};

/* Looks at PATH: a directory, or a single file of tensors.  *OUT must be empty; -1,
 * with *err set, only when the look itself failed. */
MUST_CHECK int inspect(struct inspection *out, const char *path,
                       const struct inspect_options *opt, struct err *err);

#endif
