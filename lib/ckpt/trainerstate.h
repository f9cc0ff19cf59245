/* trainerstate - the optimizer of a checkpoint of transformers' Trainer
 *
 * Beside the weights of a Hugging Face directory lie optimizer.pt, the optimizer's
 * state_dict() by number, scheduler.pt and trainer_state.json.  rng_state*.pth and
 * training_args.bin, a pickle of the trainer's own classes, are not opened.  Facts:
 * transformers 5.24, trainer.py and trainer_callback.py. */
#ifndef LIB_CKPT_TRAINERSTATE_H
#define LIB_CKPT_TRAINERSTATE_H

#include "lib/ckpt/form.h"

/* Names of the files of a Trainer's checkpoint beside the weights, to NULL. */
extern const char *const trainerstate_files[];
enum { TRAINERSTATE_OPTIMIZER, TRAINERSTATE_SCHEDULER, TRAINERSTATE_STATE };

/* Reads what DIR has of them to S->progress: moments by the numbers of parameters.
 * Without optimizer.pt nothing.  ERR_INPUT names the file. */
MUST_CHECK int trainerstate_read(struct source *s, const char *dir, struct err *err);

#endif
