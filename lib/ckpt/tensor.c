/* tensor - a stored tensor as its file describes it, and lookup by name */
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"
#include "lib/ckpt/tensor.h"

/* Heap sort (Williams 1964): qsort cannot pass the table to the comparison, and names
 * may be in an order chosen to make it slow. */
static void sift(const struct tensor_index *x, size_t root, size_t n)
{
    uint32_t item = x->order[root];

    for (;;) {
        size_t child = 2 * root + 1;

        if (child >= n)
            break;
        if (child + 1 < n && strcmp(x->tensor[x->order[child]].name,
                                    x->tensor[x->order[child + 1]].name) < 0)
            child++;
        if (strcmp(x->tensor[item].name, x->tensor[x->order[child]].name) >= 0)
            break;
        x->order[root] = x->order[child];
        root = child;
    }
    x->order[root] = item;
}

const struct tensor *tensor_index_init(struct tensor_index *x,
                                       const struct tensor *tensor, size_t n)
{
    *x = (struct tensor_index){ tensor, xmalloc(n * sizeof(*x->order)), n };
    for (size_t i = 0; i < n; i++)
        x->order[i] = (uint32_t)i;
    for (size_t i = n / 2; i-- > 0;)
        sift(x, i, n);
    for (size_t end = n; end > 1; end--) {
        uint32_t largest = x->order[0];

        x->order[0] = x->order[end - 1];
        x->order[end - 1] = largest;
        sift(x, 0, end - 1);
    }
    for (size_t i = 1; i < n; i++)
        if (!strcmp(tensor[x->order[i - 1]].name, tensor[x->order[i]].name))
            return &tensor[x->order[i]];
    return NULL;
}

long tensor_index_find(const struct tensor_index *x, const char *name)
{
    size_t low = 0, high = x->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, x->tensor[x->order[middle]].name);

        if (!order)
            return (long)x->order[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

void tensor_index_clear(struct tensor_index *x)
{
    free(x->order);
    *x = (struct tensor_index){ 0 };
}
