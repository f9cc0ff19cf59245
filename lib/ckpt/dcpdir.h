/* dcpdir - reads checkpoints of torch.distributed.checkpoint (DCP)
 *
 * A directory has .metadata, a pickle that lists every tensor's boxes, and .distcp
 * files of items; an item is what torch.save writes for one box.  Facts: PyTorch 2.13,
 * torch/distributed/checkpoint/{metadata,filesystem,default_planner}.py.
 *
 * Tensors have the path of keys that leads to them, joined by dots.  If the outermost
 * dictionary, or its entry app, has an entry state_dict, model_state_dict, model or
 * module with tensors in it, only these are read, with names relative to that entry;
 * else all except for the state of an optimizer.
 *
 * With HuggingFaceStorageWriter the pieces are in safetensors files instead, one or
 * several a rank, and there is no .metadata. */
#ifndef LIB_CKPT_DCPDIR_H
#define LIB_CKPT_DCPDIR_H

#include "lib/ckpt/form.h"

extern const struct source_ops dcpdir_ops, hubshards_ops;

#endif
