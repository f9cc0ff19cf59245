/* base - the model beside which an adapter was trained
 *
 * A checkpoint of an adapter names the weight files of its model by name, size and
 * CRC-32.  Another model is refused: its tensors may have the same shapes. */
#ifndef LIB_RUN_BASE_H
#define LIB_RUN_BASE_H

#include "lib/reshard/checkpoint.h"

/* Lists C's weight files: those that it was made of, if it is sharded and was not
 * trained; else its own.  Reads all files whose CRC-32 is not known.  The caller frees
 * *out; names are in POOL. */
MUST_CHECK int base_identify(struct manifest_file **out, size_t *n, struct pool *pool,
                             const struct checkpoint *c, struct err *err);
/* ERR_INPUT unless C has the files that the manifest of the adapter in DIR names as its
 * base; what differs in size is found before anything is read.  Nothing is asked where
 * DIR has no manifest, or C is drawn. */
MUST_CHECK int base_check(const struct checkpoint *c, const char *dir, struct err *err);
/* Is PATH, a directory, an adapter without a model: *is? */
MUST_CHECK int base_is_adapter(bool *is, const char *path, struct err *err);
/* The model that the config of the adapter in DIR names; ERR_INPUT if it names none, or
 * it is not there.  The caller frees *out. */
MUST_CHECK int base_find(char **out, const char *dir, struct err *err);

#endif
