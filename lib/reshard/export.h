/* export - writes a checkpoint in the form of another framework
 *
 * The forms are rows of a table; exporting.h says what one is. */
#ifndef LIB_RESHARD_EXPORT_H
#define LIB_RESHARD_EXPORT_H

#include "lib/reshard/convert.h"

/* Names of the forms; NULL at the end. */
extern const char *const export_names[];

/* Writes the whole tensors of CKPT to the directory PATH in the form called FORM, with
 * the small files that lie beside them.  OPT's mesh is ignored.  WEIGHTS_ONLY: without
 * the state of an optimizer.  The directory appears complete; the same call restarts an
 * interrupted run from the beginning.  Errors as of convert; ERR_NO when the form
 * cannot represent a tensor, which is named. */
MUST_CHECK int export_checkpoint(struct checkpoint *ckpt, const char *path, int form,
                                 bool weights_only, const struct convert_options *opt,
                                 struct convert_result *result, struct err *err);

#endif
