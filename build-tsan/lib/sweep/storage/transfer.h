/* transfer - studies from one storage to another */
#ifndef LIB_SWEEP_STORAGE_TRANSFER_H
#define LIB_SWEEP_STORAGE_TRANSFER_H

#include "lib/sweep/storage/storage.h"

/* Copy study NAME, or all when it is NULL, from FROM to TO, both open and neither
 * between begin and end: trials with their numbers, states, times, parameters, values,
 * reports and attributes.  *COUNT studies were copied.  ERR_INPUT when FROM has none of
 * that name or TO has one; TO is unchanged then. */
MUST_CHECK int transfer_studies(struct storage *to, struct storage *from,
                                const char *name, size_t *count, struct err *err);

#endif
