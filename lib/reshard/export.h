/* export - writes a checkpoint in the format of other frameworks */
#ifndef LIB_RESHARD_EXPORT_H
#define LIB_RESHARD_EXPORT_H

#include "lib/reshard/convert.h"

/* Writes the whole tensors of CKPT to the directory PATH in the format of
 * torch.distributed.checkpoint: one file of tensors and .metadata.  OPT's mesh is
 * ignored. The directory appears complete; the same call restarts an interrupted run
 * from the beginning.  Errors as of convert; ERR_NO when PyTorch lacks the type of a
 * tensor. */
MUST_CHECK int export_dcp(struct checkpoint *ckpt, const char *path,
                          const struct convert_options *opt,
                          struct convert_result *result, struct err *err);

#endif
