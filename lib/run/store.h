/* store - the weights on disk that a rank runs: a sharded checkpoint or a Hugging Face
 * directory
 *
 * A Hugging Face directory is cut while it is loaded, by the same slices that tp-shard
 * writes. */
#ifndef LIB_RUN_STORE_H
#define LIB_RUN_STORE_H

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/ckpt/manifest.h"
#include "lib/ckpt/source.h"
#include "lib/model/backend.h"
#include "lib/model/model.h"
#include "lib/model/program.h"

struct store {
    char *path;
    bool sharded;
    struct source source;     /* when not sharded */
    struct manifest manifest; /* when sharded */
    struct model *model;
    struct mesh mesh;
};

/* Open PATH and bind its model.  SIZE is the mesh asked for, 0 where an axis is not
 * named; a checkpoint keeps its own, and another one asked for is ERR_USAGE.
 * FAMILY_FILE and FAMILY_PATH as model_open's; a checkpoint brings its family. */
int store_open(struct store *s, const char *path, const int size[MESH_NAXES],
               const char *family_file, const char *family_path, struct err *err);
void store_close(struct store *s);

/* A rank's weights in memory. */
struct weights {
    struct matrix *matrix; /* [program->nweights] */
    uint64_t bytes;        /* of all of them */
    struct mapping *map;   /* private */
    size_t nmaps;
    void **copy; /* private: [n] the parts that are not one run in their file */
    int n;       /* private */
};

/* Load what PROGRAM needs.  A checkpoint's file is checked against the manifest first.
 */
int weights_open(struct weights *w, const struct store *s,
                 const struct program *program, struct err *err);
void weights_close(struct weights *w);

#endif
