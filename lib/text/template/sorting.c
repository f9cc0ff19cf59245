/* sorting - the order of values, stable */
#include "lib/text/template/sorting.h"

#include <string.h>

/* Merges the runs [at, middle) and [middle, end) of FROM to TO. */
static int merge(struct scratch *s, const struct value *v, size_t *to,
                 const size_t *from, size_t at, size_t middle, size_t end)
{
    size_t a = at, b = middle;

    for (size_t i = at; i < end; i++) {
        bool second = a == middle;

        if (a < middle && b < end &&
            value_less(s, &second, "<", &v[from[b]], &v[from[a]]) < 0)
            return -1;
        to[i] = second ? from[b++] : from[a++];
    }
    return 0;
}

int sorting_order(struct scratch *s, size_t **order, const struct value *v, size_t n)
{
    size_t *a = scratch_take(s, n * sizeof(*a));
    size_t *b = a ? scratch_take(s, n * sizeof(*b)) : NULL;

    if (!b)
        return -1;
    for (size_t i = 0; i < n; i++)
        a[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        size_t *t = a;

        for (size_t at = 0; at < n; at += 2 * width) {
            size_t middle = at + width < n ? at + width : n;
            size_t end = middle + width < n ? middle + width : n;

            if (merge(s, v, b, a, at, middle, end) < 0)
                return -1;
        }
        a = b;
        b = t;
    }
    *order = a;
    return 0;
}
