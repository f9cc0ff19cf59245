/* exportitems - the items of a checkpoint of torch.distributed.checkpoint, all in one
 * file, as two forms write them */
#ifndef LIB_RESHARD_EXPORTITEMS_H
#define LIB_RESHARD_EXPORTITEMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/pool.h"
#include "lib/base/str.h"
#include "lib/ckpt/dcp.h"
#include "lib/reshard/exporting.h"
#include "lib/reshard/placed.h"

/* A tensor of the checkpoint that is, or is in, item ITEM. */
struct exportcopy {
    size_t from, item;
    const struct names_view *view; /* as in exporting_place */
    uint64_t lead, rows;
};

struct exportitems {
    struct dcp_item *item; /* [n] */
    float *number;         /* [n] the value of an item that no copy makes */
    struct exportcopy *copy;
    size_t n, ncopies;
    bool flat;                        /* names are no paths of keys */
    size_t cap, number_cap, copy_cap; /* private, as the next */
    struct pool pool;
};

/* Each adds an item with the path of NKEYS keys at KEY (dcp.h), by which it is called,
 * joined by full stops, and returns its number.  A tensor of copies: */
size_t exportitems_tensor(struct exportitems *x, const char *const *key, int nkeys,
                          enum dtype dtype, int ndim, const uint64_t *shape);
/* A tensor without axes, f32: */
size_t exportitems_number(struct exportitems *x, const char *const *key, int nkeys,
                          float value);
/* Another object; takes what is in PICKLE, of protocol 2: */
size_t exportitems_object(struct exportitems *x, const char *const *key, int nkeys,
                          struct str *pickle);
/* Tensor FROM of the checkpoint is all of ITEM, or the part P of SET. */
void exportitems_copy(struct exportitems *x, size_t item, size_t from,
                      const struct placed *set, const struct placed_part *p);

/* Lays the file out. */
MUST_CHECK int exportitems_place(struct exportitems *x, struct exporting *e,
                                 struct err *err);
/* Writes the file, and .metadata. */
MUST_CHECK int exportitems_write(struct exportitems *x, struct exporting *e,
                                 struct err *err);
void exportitems_clear(struct exportitems *x);

#endif
