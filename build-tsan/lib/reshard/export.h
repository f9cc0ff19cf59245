/* export - writing a checkpoint as other engines load it */
#ifndef LIB_RESHARD_EXPORT_H
#define LIB_RESHARD_EXPORT_H

#include "lib/reshard/convert.h"

/* Write the whole tensors of CKPT to the directory PATH as torch.distributed.checkpoint
 * does: one file of items and .metadata.  OPT's mesh is not looked at.  The directory
 * appears whole; a run that was interrupted is begun anew by the same call.  Errors as
 * of convert; ERR_NO where PyTorch has no type like a tensor's. */
MUST_CHECK int export_dcp(struct checkpoint *ckpt, const char *path,
                          const struct convert_options *opt,
                          struct convert_result *result, struct err *err);

#endif
