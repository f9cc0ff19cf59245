/* adaptersave - checkpoints of an adapter that is trained beside a frozen model
 *
 * Such a checkpoint has PEFT's adapter_config.json and adapter_model.safetensors, the
 * optimizer's state in the one rank file, and in its manifest the identity of the
 * model's weight files, of which it has none.  Rank 0 writes all of it, tensor by
 * tensor, as the others send what they hold: memory for one whole matrix. */
#ifndef LIB_TRAIN_ADAPTERSAVE_H
#define LIB_TRAIN_ADAPTERSAVE_H

#include "lib/ckpt/outdir.h"
#include "lib/run/adapter.h"
#include "lib/train/save.h"
#include "lib/train/trainer.h"

struct adaptersave;

/* Is what T trains an adapter beside a frozen model? */
bool adaptersave_applies(const struct trainer *t);
/* For T, which was opened for C's model; T, C and WORLD must outlive it.  The functions
 * are collective over WORLD. */
MUST_CHECK int adaptersave_open(struct adaptersave **out, struct trainer *t,
                                struct checkpoint *c, struct comm *world,
                                struct err *err);
void adaptersave_close(struct adaptersave *b);
/* Writes all but the manifest into OUT, which rank 0 has open. */
MUST_CHECK int adaptersave_write(struct adaptersave *b, struct outdir *out,
                                 struct err *err);
/* On rank 0: writes the manifest; TRAINING is its JSON object. */
MUST_CHECK int adaptersave_finish(struct adaptersave *b, struct outdir *out,
                                  const char *training, struct err *err);

/* Loads the optimizer's state of what P has of an adapter from the checkpoint in DIR.
 */
MUST_CHECK int adaptersave_restore(struct parameters *p, const char *dir,
                                   struct err *err);

#endif
