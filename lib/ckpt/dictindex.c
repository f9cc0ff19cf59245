/* dictindex - finds many keys in one dictionary of a pickle */
#include "lib/ckpt/dictindex.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum { LONGEST = 4096 }; /* comparing longer ones could take a hostile file's time */

struct dictindex_entry {
    const char *key;
    size_t len, at; /* number of the entry in the dictionary */
    const struct pickled *value;
};

static int compare_keys(const struct dictindex_entry *x,
                        const struct dictindex_entry *y)
{
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return memcmp(x->key, y->key, x->len);
}

static int compare_entries(const void *a, const void *b)
{
    const struct dictindex_entry *x = a, *y = b;
    int order = compare_keys(x, y);

    return order ? order : (x->at > y->at) - (x->at < y->at);
}

void dictindex_init(struct dictindex *x, const struct pickled *v)
{
    size_t pairs = pickled_is(v, PICKLED_DICT) ? v->list.n / 2 : 0;

    *x = (struct dictindex){ .entry = xmalloc((pairs + 1) * sizeof(*x->entry)) };
    for (size_t i = 0; i < pairs; i++) {
        const struct pickled *key = v->list.v[2 * i];

        if (key->kind == PICKLED_TEXT && key->text.len <= LONGEST)
            x->entry[x->n++] = (struct dictindex_entry){ key->text.s, key->text.len, i,
                                                         v->list.v[2 * i + 1] };
    }
    if (x->n)
        qsort(x->entry, x->n, sizeof(*x->entry), compare_entries);
}

void dictindex_clear(struct dictindex *x)
{
    free(x->entry);
    *x = (struct dictindex){ 0 };
}

const struct pickled *dictindex_get(const struct dictindex *x, const char *key)
{
    const struct dictindex_entry wanted = { .key = key, .len = strlen(key) };
    size_t low = 0, high = x->n; /* the first entry whose key is larger */

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (compare_keys(&x->entry[middle], &wanted) > 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low && !compare_keys(&x->entry[low - 1], &wanted) ? x->entry[low - 1].value
                                                             : NULL;
}
