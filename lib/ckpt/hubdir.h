/* hubdir - a Hugging Face directory, or a single file of tensors
 *
 * A directory has one of: model.safetensors; model.safetensors.index.json and the files
 * that it lists; pytorch_model.bin; its index and files; without an index, all files
 * whose names say N of how many.  Symbolic links are followed, because hub caches use
 * them.  An index may contain only plain file names, which may begin with "./"; this is
 * checked before any of them is opened. */
#ifndef LIB_CKPT_HUBDIR_H
#define LIB_CKPT_HUBDIR_H

#include <stddef.h>

#include "lib/base/err.h"
#include "lib/ckpt/form.h"

extern const char HUBDIR_PICKLE_INDEX[]; /* "pytorch_model.bin.index.json" */

/* The weight files in the index of N bytes at TEXT, sorted, each once; PATH is for
 * messages.  Free them with fs_list_free. */
MUST_CHECK int hubdir_parse_index(char ***names, size_t *nnames, const char *path,
                                  const char *text, size_t n, struct err *err);

#endif
