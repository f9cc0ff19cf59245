/* pickle - reads the tensors of a file that torch.save wrote
 *
 * Both formats are supported: the zip archive and the older stream.  A pickle is a
 * program; this reader executes only what builds plain containers, storages and tensors
 * (collections.OrderedDict, torch._utils._rebuild_tensor with its versions 2 and 3, and
 * _rebuild_parameter).  A pickle that refers to anything else is an error that names
 * it.
 *
 * A tensor's name is the path of keys that leads to it, joined by dots; two of one name
 * are an error.  If the
 * outermost dictionary has an entry state_dict, model_state_dict, model or module with
 * tensors in it, only these are read, with names relative to that entry. */
#ifndef LIB_CKPT_PICKLE_H
#define LIB_CKPT_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"
#include "lib/ckpt/tensor.h"
#include "lib/ckpt/unpickle.h"

struct pickle {
    struct tensor *tensor; /* in the order of the dictionaries; tensors that share a
                            * storage share bytes */
    size_t n;
    uint64_t size;    /* of the file */
    bool archive;     /* the zip archive, which has checksums; else the older stream */
    struct pool pool; /* private */
};

/* Reads the open file FD; PATH is for messages.  A malformed file or a forbidden global
 * is ERR_INPUT.  On failure *p needs no clearing. */
MUST_CHECK int pickle_read(struct pickle *p, int fd, const char *path, struct err *err);
/* The same from the SIZE bytes at DATA. */
MUST_CHECK int pickle_parse(struct pickle *p, const char *path,
                            const unsigned char *data, uint64_t size, struct err *err);
void pickle_clear(struct pickle *p);

/* A file as the values that it stores, records included; for files that are more than
 * tensors. */
struct pickle_values {
    const struct pickled *root;
    struct unpickle m;   /* private, as the next */
    unsigned char *data; /* the file, mapped */
    uint64_t size;
    bool archive; /* as above */
    bool lent;    /* .data is the caller's */
};

/* Reads the open file FD; PATH is for messages and must outlive *v.  Errors as
 * pickle_read.  On failure *v needs no clearing. */
MUST_CHECK int pickle_values_read(struct pickle_values *v, int fd, const char *path,
                                  struct err *err);
/* The same from the SIZE bytes at DATA, which must outlive *v. */
MUST_CHECK int pickle_values_parse(struct pickle_values *v, const char *path,
                                   const unsigned char *data, uint64_t size,
                                   struct err *err);
void pickle_values_clear(struct pickle_values *v);

/* The number that X of the file V is, or that a tensor X of one element has; false when
 * it is neither. */
bool pickle_number(const struct pickle_values *v, const struct pickled *x, double *out);

/* Describes the tensor V of a file: all but name and file; its arrays are in POOL. PATH
 * and NAME are for messages. */
MUST_CHECK int pickle_tensor(struct tensor *out, const struct pickled *v,
                             struct pool *pool, const char *path, const char *name,
                             struct err *err);

#endif
