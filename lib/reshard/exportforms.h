/* exportforms - the forms that are written */
#ifndef LIB_RESHARD_EXPORTFORMS_H
#define LIB_RESHARD_EXPORTFORMS_H

#include "lib/reshard/exporting.h"

/* torch.distributed.checkpoint: weights at the top, an optimizer under "optimizer". */
extern const struct export_form export_dcp_form;
/* Megatron-Core's torch_dist: DCP with Megatron's names, common.pt, metadata.json. */
extern const struct export_form export_megatron_form;
/* DeepSpeed's universal form: a directory of each parameter. */
extern const struct export_form export_zero_form;
/* GGUF: one file with the tokenizer and the config as metadata. */
extern const struct export_form export_gguf_form;
/* transformers' Trainer: model.safetensors, optimizer.pt and how far it is. */
extern const struct export_form export_trainer_form;

#endif
