/* smallfile - the small files of a checkpoint: configuration, tokenizer, licence
 *
 * A small file is carried from a checkpoint to what is made of it.  It may lie in a
 * directory: 1_Pooling/config.json. */
#ifndef LIB_RESHARD_SMALLFILE_H
#define LIB_RESHARD_SMALLFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"
#include "lib/reshard/checkpoint.h"

struct smallfile {
    const char *name; /* borrowed from the checkpoint */
    char *text;       /* [n] bytes and a NUL; owned */
    size_t n;
    uint32_t crc; /* CRC-32 of TEXT */
    mode_t mode;
};

size_t smallfile_count(const struct checkpoint *c);
/* The name of file I, borrowed from C. */
const char *smallfile_name(const struct checkpoint *c, size_t i);
/* Is there a file NAME? */
bool smallfile_has(const struct checkpoint *c, const char *name);
/* Reads file I.  ERR_INPUT when it is not what the manifest lists. */
MUST_CHECK int smallfile_read(struct smallfile *out, const struct checkpoint *c,
                              size_t i, struct err *err);
/* The index for several files of torch.save, of which safetensors files are made.
 * False if none is needed.  The weight files must be open. */
bool smallfile_index(struct smallfile *out, const struct checkpoint *c);
/* Sets the type of weights that F, a config.json, names to TYPE. */
void smallfile_retype(struct smallfile *f, enum dtype type);
void smallfile_clear(struct smallfile *f);

#endif
