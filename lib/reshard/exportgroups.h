/* exportgroups - groups of parameters, as PyTorch's AdamW stores their settings */
#ifndef LIB_RESHARD_EXPORTGROUPS_H
#define LIB_RESHARD_EXPORTGROUPS_H

#include "lib/base/str.h"
#include "lib/reshard/exporting.h"

/* Begins a group of R whose weights decay by DECAY: a dictionary of all that AdamW has
 * but "params", whose list follows, and then pickler_end_dict.  Facts: PyTorch 2.13,
 * torch/optim/adam.py and adamw.py. */
void exportgroups_begin(struct str *s, const struct exporting_run *r, double decay);

#endif
