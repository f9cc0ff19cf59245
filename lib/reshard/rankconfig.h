/* rankconfig - one directory per shard, in which the shard opens as a model of its own
 *
 * hf-tp0-pp0/ has config.json (partconfig.h) and model.safetensors, a symbolic link to
 * the shard file. */
#ifndef LIB_RESHARD_RANKCONFIG_H
#define LIB_RESHARD_RANKCONFIG_H

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/ckpt/outdir.h"
#include "lib/reshard/checkpoint.h"

extern const char RANKCONFIG_WEIGHTS[]; /* "model.safetensors" */

struct rankconfig {
    int nparts;
    int mesh[MANIFEST_AXES];
    char **text;   /* [nparts] of config.json */
    uint32_t *crc; /* [nparts] CRC-32 of each text */
};

/* Makes the config texts for FROM's model on MESH; errors as of partconfig_print.  Call
 * rankconfig_clear in any case. */
MUST_CHECK int rankconfig_make(struct rankconfig *r, const struct checkpoint *from,
                               const struct mesh *mesh, struct err *err);
/* Writes the directories into O and syncs them. */
MUST_CHECK int rankconfig_write(const struct rankconfig *r, const struct outdir *o,
                                struct err *err);
void rankconfig_clear(struct rankconfig *r);

/* The link target for shard P: "../rank-tp0-pp0.safetensors".  The caller frees it. */
char *rankconfig_link_dup(const int mesh[MANIFEST_AXES], int p);

#endif
