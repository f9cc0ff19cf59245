/* save - writes the training state as a checkpoint (restore.h reads it)
 *
 * A checkpoint has the weights in the types of the model's files and, for each trained
 * weight, the states that the store keeps, by their roles, and, if the type is not f32,
 * the f32 value ("master").  It is written in the background, from a copy of the
 * state, by a thread on each rank that has a part of it: saver_begin, training steps,
 * saver_finish.  The directory is called PATH.partial until it is complete. */
#ifndef LIB_TRAIN_SAVE_H
#define LIB_TRAIN_SAVE_H

#include "lib/train/trainer.h"

struct saver;

/* For T, which was opened for C's model; T, C and WORLD must outlive it.  C's files may
 * be deleted after the call.  saver_open, saver_begin and saver_finish are collective
 * over WORLD. */
MUST_CHECK int saver_open(struct saver **out, struct trainer *t, struct checkpoint *c,
                          struct comm *world, struct err *err);
/* Waits for a checkpoint that is being written and discards it. */
void saver_close(struct saver *s);

/* Starts to write the state to PATH; TRAINING is the JSON object for the manifest.  No
 * other checkpoint may be in progress. */
MUST_CHECK int saver_begin(struct saver *s, const char *path, const char *training,
                           struct err *err);
/* Replaces what saver_begin was given as TRAINING; after a checkpoint that is finished,
 * and of none, nothing. */
void saver_note(struct saver *s, const char *training);
/* saver_is_busy: a checkpoint was begun and is not finished.  saver_is_written: this
 * rank has written its part. */
bool saver_is_busy(const struct saver *s);
bool saver_is_written(struct saver *s);
/* This rank has failed to write its part; saver_finish says why. */
bool saver_has_failed(struct saver *s);
/* Another rank has failed: this one writes no more of its part. */
void saver_stop(struct saver *s);
/* Waits until all ranks have written, then renames the directory to its final name.  A
 * failure is reported on all ranks and removes the directory. */
MUST_CHECK int saver_finish(struct saver *s, struct err *err);
/* Path of the last finished checkpoint, or NULL. */
const char *saver_last(const struct saver *s);

/* Collective over WORLD: if RET is a failure on any rank, the first such rank's *ERR
 * becomes the result on all ranks. */
MUST_CHECK int saver_agree(struct comm *world, int ret, struct err *err);

#endif
