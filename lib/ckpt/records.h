/* records - the classes that an unpickler may turn into records
 *
 * What training frameworks pickle beside tensors: where a piece of a tensor belongs,
 * the layout of the ranks, settings.  The list is closed, although a record is inert: a
 * file that names anything else is not what it seems. */
#ifndef LIB_CKPT_RECORDS_H
#define LIB_CKPT_RECORDS_H

#include <stdbool.h>

#include "lib/ckpt/unpickle.h"

/* Is NAME, a module and a name in it joined by a full stop, on the list?  *global
 * becomes what it is. */
bool records_know(const char *name, enum pickled_global *global);

#endif
