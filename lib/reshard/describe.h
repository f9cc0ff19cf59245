/* describe - the manifest of a checkpoint that is made from another one */
#ifndef LIB_RESHARD_DESCRIBE_H
#define LIB_RESHARD_DESCRIBE_H

#include <sys/types.h>

#include "lib/ckpt/manifest.h"
#include "lib/ckpt/outdir.h"
#include "lib/reshard/checkpoint.h"

/* Fills M's sources, the original files that C has or was made of; names are borrowed
 * from C.  CRC gives the CRC-32 of file F of an original, whose raw header is
 * HEADER[n].  NULL: values were changed, so sums and origins are left out. */
MUST_CHECK int describe_sources(struct manifest *m, const struct checkpoint *c,
                                uint32_t (*crc)(void *arg, size_t f, const char *header,
                                                size_t n),
                                void *arg, struct err *err);
/* The axes of tensor I of C but for axis LACKS, counted from 1 (0: of all), as text;
 * NULL if the model does not name it.  In M's pool, as is the set of parts that hold a
 * tensor, which is empty. */
const char **describe_axes(struct manifest *m, const struct checkpoint *c, size_t i,
                           int lacks);
uint64_t *describe_held(struct manifest *m);
/* Writes M to the file NAME of OUT, with the mode that outdir_share makes of MODE. */
MUST_CHECK int describe_write(const struct manifest *m, const struct outdir *out,
                              const char *name, mode_t mode, struct err *err);

#endif
