/* pickle - the tensors of a file that torch.save wrote
 *
 * Both forms are read: the zip archive and the older stream.  A pickle is a program;
 * this reader executes only what builds plain containers, storages and tensors
 * (collections.OrderedDict, torch._utils._rebuild_tensor with its versions 2 and 3, and
 * _rebuild_parameter).  A pickle that names anything else is refused, naming it, and
 * nothing in it is ever run.
 *
 * The tensors found anywhere in the containers get the path of keys that leads to them
 * as their name, joined by dots.  When the outermost dictionary has one called
 * state_dict, model_state_dict, model or module with tensors in it, only those are
 * taken, by their names in it. */
#ifndef LIB_CKPT_PICKLE_H
#define LIB_CKPT_PICKLE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"
#include "lib/ckpt/tensor.h"

struct pickle {
    struct tensor *tensor; /* in the order of the dictionaries; shared storages give
                              shared bytes */
    size_t n;
    uint64_t size;    /* of the file */
    struct pool pool; /* private */
};

/* Read the open file FD; PATH is for messages.  Malformed files and refused names are
 * ERR_INPUT.  On failure *p needs no clearing. */
MUST_CHECK int pickle_read(struct pickle *p, int fd, const char *path, struct err *err);
/* The same from the SIZE bytes at DATA. */
MUST_CHECK int pickle_parse(struct pickle *p, const char *path,
                            const unsigned char *data, uint64_t size, struct err *err);
void pickle_clear(struct pickle *p);

#endif
