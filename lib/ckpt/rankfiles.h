/* rankfiles - reads the files that the ranks of an FSDP run save each
 *
 * A directory has model_world_size_N_rank_R.pt for R from 0 to N - 1: torch.save of a
 * rank's state dict, whose tensors are DTensors (FSDP2, FSDP1 with a mesh),
 * ShardedTensors (FSDP1 without one), or plain, the same on every rank.  Facts:
 * PyTorch 2.13, torch/distributed/tensor/_dtensor_spec.py, placement_types.py and
 * device_mesh.py.
 *
 * Placements are applied from left to right, each along one axis of the mesh with m
 * ranks: Shard(d) leaves the rank of coordinate c the c-th piece of ceil(length / m) of
 * axis d; _StridedShard(d, f) cuts the axis into f pieces first, and leaves the c-th
 * piece of each; Replicate leaves all. */
#ifndef LIB_CKPT_RANKFILES_H
#define LIB_CKPT_RANKFILES_H

#include "lib/ckpt/form.h"

extern const struct source_ops rankfiles_ops;

#endif
