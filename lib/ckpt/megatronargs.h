/* megatronargs - the arguments of a run of Megatron-LM as a config.json
 *
 * Megatron-LM pickles its arguments, an argparse.Namespace, with its checkpoints.  They
 * are read as data.  Names and meanings: Megatron-LM, megatron/training/arguments.py
 * and core_transformer_config_from_args. */
#ifndef LIB_CKPT_MEGATRONARGS_H
#define LIB_CKPT_MEGATRONARGS_H

#include <stdint.h>

#include "lib/ckpt/source.h"
#include "lib/ckpt/unpickle.h"

/* Sets the config of S to that of the Llama, or with experts the Mixtral, that ARGS (a
 * record, or NULL) of the file PATH describe.  If they describe another model, or leave
 * open what the tensors do not show, sets s->unmade to the reason.  SHARDS is the
 * number of tensor-parallel shards of each of S's tensors. */
void megatron_config(struct source *s, const struct pickled *args, uint64_t shards,
                     const char *path);

#endif
