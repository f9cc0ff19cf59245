/* foreignforms - forms of checkpoints that keep the names of their framework
 *
 * Megatron-LM: a directory of torch.distributed.checkpoint with metadata.json
 * (`torch_dist`), or mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt of tensor rank TT, stage
 * PPP and expert rank EEE (legacy), below iter_NNNNNNN, which
 * latest_checkpointed_iteration.txt names.
 * Meta: consolidated.NN.pth of tensor rank NN beside params.json.
 * nanoGPT: ckpt.pt, its train.py's dictionary of model, model_args, optimizer.
 * llm.c: a file of a header of 256 words and all parameters, stacked over the layers.
 * GGUF: a file of metadata and tensors, or several, NAME-00001-of-0000N.gguf (gguf.h).
 * Facts: Megatron-Core 0.16.1, dist_checkpointing; the files of Llama 1 to 3;
 * nanoGPT's train.py and model.py; llm.c's train_gpt2.c and dev/eval/export_hf.py. */
#ifndef LIB_CKPT_FOREIGNFORMS_H
#define LIB_CKPT_FOREIGNFORMS_H

#include "lib/ckpt/form.h"

extern const struct source_ops megatron_ops, meta_ops, nanogpt_ops, llmc_ops, gguf_ops;

#endif
