/* dictindex - finds many keys in one dictionary of a pickle
 *
 * pickled_get takes time in proportion to the dictionary, which is too much when the
 * names in one are sought in another. */
#ifndef LIB_CKPT_DICTINDEX_H
#define LIB_CKPT_DICTINDEX_H

#include <stddef.h>

#include "lib/ckpt/unpickle.h"

/* `struct dictindex x = { 0 }` is empty. */
struct dictindex {
    struct dictindex_entry *entry; /* private: sorted by key */
    size_t n;
};

/* Indexes the keys that are text of at most 4096 bytes of V, which is borrowed; no
 * dictionary, or NULL, is an empty one. */
void dictindex_init(struct dictindex *x, const struct pickled *v);
void dictindex_clear(struct dictindex *x);
/* The last value of KEY, or NULL. */
const struct pickled *dictindex_get(const struct dictindex *x, const char *key);

#endif
