/* save - the state of a training as a checkpoint, and back
 *
 * A checkpoint has the weights in the types of the model's files; and of each weight
 * that is trained its value in f32 ("master"), where that is another type, and the
 * moments of its optimizer ("exp_avg", "exp_avg_sq").  It is written beside the
 * training, from a copy of the state, by a thread of each rank that has a part of it:
 * saver_begin, then steps, then saver_finish.  Its directory is PATH.partial until it
 * is whole. */
#ifndef LIB_TRAIN_SAVE_H
#define LIB_TRAIN_SAVE_H

#include "lib/train/trainer.h"

struct saver;

/* For T, which has been opened for C's model; both must outlive it, as must WORLD.
 * C's files may be removed from now on.  All ranks of WORLD call it, and begin and
 * finish. */
MUST_CHECK int saver_open(struct saver **out, struct trainer *t, struct checkpoint *c,
                          struct comm *world, struct err *err);
/* Wait for what is being written and forget it. */
void saver_close(struct saver *s);

/* Begin to write the state at PATH; TRAINING is the manifest's object.  None is being
 * written. */
MUST_CHECK int saver_begin(struct saver *s, const char *path, const char *training,
                           struct err *err);
/* Has one been begun and not finished; has this rank written its part of it? */
bool saver_is_busy(const struct saver *s);
bool saver_is_written(struct saver *s);
/* Wait until all ranks have written, then give the checkpoint its name.  A failure is
 * the same on all ranks, and leaves nothing. */
MUST_CHECK int saver_finish(struct saver *s, struct err *err);
/* The path of the last one that was finished; NULL: none. */
const char *saver_last(const struct saver *s);

/* Load the f32 values of T's weights from C's state, where it has them; and, WHOLE, the
 * moments, which it must have. */
MUST_CHECK int saver_load(struct trainer *t, struct checkpoint *c, bool whole,
                          struct err *err);

/* All ranks of WORLD have the outcome RET, *ERR; the first failure becomes that of
 * all. */
MUST_CHECK int saver_agree(struct comm *world, int ret, struct err *err);

#endif
