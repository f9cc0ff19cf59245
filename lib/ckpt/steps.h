/* steps - the checkpoints in the directory of a run of tp-run train
 *
 * A checkpoint is a directory step-000400, complete once it has a checkpoint.json; the
 * run's directory also has a run.json. */
#ifndef LIB_CKPT_STEPS_H
#define LIB_CKPT_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

struct steps {
    uint64_t *v; /* [n], ascending */
    size_t n;
};

/* Finds the complete checkpoints of the run in DIR. */
MUST_CHECK int steps_find(struct steps *s, const char *dir, struct err *err);
/* The same, and those whose manifest is lost. */
MUST_CHECK int steps_find_all(struct steps *s, const char *dir, struct err *err);
void steps_clear(struct steps *s);
/* The path of the checkpoint STEP of DIR; the caller frees it. */
char *steps_path_dup(const char *dir, uint64_t step);
/* Is NAME, in a run's directory, an unfinished checkpoint, being written or removed? */
bool steps_is_leftover(const char *name);
/* The newest checkpoint of PATH, which the caller frees; NULL where PATH is no run's
 * directory.  ERR_INPUT for a run without a checkpoint. */
MUST_CHECK int steps_newest(char **newest, const char *path, struct err *err);
/* Adds to *ERR, of the newest checkpoint of the run in DIR, what others there are. */
void steps_name_older(struct err *err, const char *dir);

#endif
