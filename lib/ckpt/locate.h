/* locate - what a MODEL operand means, and what one that is no model is
 *
 * A model is a directory.  What stands for one plainly is taken for it; for the rest
 * these functions find the words of an error: what was given, and what to give. */
#ifndef LIB_CKPT_LOCATE_H
#define LIB_CKPT_LOCATE_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

/* Sets *out, which the caller frees, to the model that PATH means: the snapshot of
 * refs/main (or the only one) in the top directory of a hub cache; the newest
 * checkpoint of a run of tp-run train; the directory of a
 * checkpoint.json and, with INDEX, of an index file; else PATH.  ERR_INPUT for a cache
 * that leaves the choice, and for a file of a tokenizer or of settings. */
MUST_CHECK int locate_model(char **out, const char *path, bool index, struct err *err);

/* Finds in DIR the files STEM-00001-of-0000N.SUFFIX without an index: *n names in order
 * if all N of one N are there, else 0.  Free them with fs_list_free. */
MUST_CHECK int locate_shards(char ***names, size_t *n, const char *dir,
                             const char *stem, const char *suffix, struct err *err);

/* What the directory DIR, which has no weights by a known name, has instead: "; it has
 * ..." for an error, or "".  The caller frees it. */
char *locate_hint_dup(const char *dir);

/* Names the format of a file that is no safetensors by its first 8 bytes, such as "a
 * GGUF file"; "JSON", "text"; NULL: unknown. */
const char *locate_kind(const unsigned char begin[8]);
/* What to do with a file of that kind: "; ..." for an error, or "". */
const char *locate_advice(const char *kind);
/* ERR_INPUT if the file PATH begins like a format that is no config.json. */
MUST_CHECK int locate_check_config(const char *path, struct err *err);

#endif
