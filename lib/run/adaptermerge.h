/* adaptermerge - adds adapters to weights while they are copied
 *
 * W + SCALE * B A (Hu et al. 2021, section 4.1), as merge_and_unload of PEFT.  With
 * magnitudes (DoRA, Liu et al. 2024, equation 5) that is divided by its norm over the
 * inputs of each output, which is known once the weight was read, and multiplied by the
 * output's magnitude.  The matrices of one weight are in memory at a time; a weight is
 * never whole. */
#ifndef LIB_RUN_ADAPTERMERGE_H
#define LIB_RUN_ADAPTERMERGE_H

#include "lib/reshard/convert.h"
#include "lib/run/adapter.h"

struct adaptermerge;

/* Makes *CHANGE, for struct convert_options, of the adapters of C's model, which act on
 * all texts.  All must outlive the conversion. */
struct adaptermerge *adaptermerge_new(struct convert_change *change,
                                      struct checkpoint *c);
void adaptermerge_free(struct adaptermerge *m);

#endif
