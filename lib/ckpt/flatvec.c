/* flatvec - a vector of numbers that lies in runs of several files */
#include "lib/ckpt/flatvec.h"

#include <stdlib.h>

#include "lib/base/mem.h"

struct flatvec_run {
    uint64_t begin, n; /* first element in the vector, elements */
    int input;
    uint64_t offset; /* in the file, in bytes */
};

bool flatvec_append(struct flatvec *f, int input, uint64_t offset, uint64_t n)
{
    uint64_t length;

    if (!mem_add(&length, f->length, n))
        return false;
    if (!n)
        return true;
    f->run = xgrow(f->run, &f->cap, f->n + 1, sizeof(*f->run));
    f->run[f->n++] = (struct flatvec_run){ f->length, n, input, offset };
    f->length = length;
    return true;
}

void flatvec_clear(struct flatvec *f)
{
    free(f->run);
    *f = (struct flatvec){ 0 };
}

static uint64_t *keep(struct pool *pool, uint64_t x)
{
    uint64_t *kept = pool_take(pool, sizeof(*kept), sizeof(*kept));

    *kept = x;
    return kept;
}

void flatvec_add(struct flatvec_boxes *b, struct pool *pool, int input, uint64_t offset,
                 uint64_t n, uint64_t first)
{
    b->box = xgrow(b->box, &b->cap, b->n + 1, sizeof(*b->box));
    b->box[b->n++] = (struct box){ .input = input,
                                   .offset = offset,
                                   .start = keep(pool, first),
                                   .size = keep(pool, n) };
}

bool flatvec_cut(struct flatvec_boxes *b, struct pool *pool, const struct flatvec *f,
                 size_t width, uint64_t at, uint64_t n, uint64_t first)
{
    size_t low = 0, high = f->n;

    if (at > f->length || n > f->length - at)
        return false;
    while (low < high) { /* the first run that ends after AT */
        size_t middle = low + (high - low) / 2;

        if (f->run[middle].begin + f->run[middle].n > at)
            high = middle;
        else
            low = middle + 1;
    }
    for (; n; low++) {
        const struct flatvec_run *s = &f->run[low];
        uint64_t skip = at - s->begin, count = s->n - skip < n ? s->n - skip : n;

        flatvec_add(b, pool, s->input, s->offset + skip * width, count, first);
        at += count;
        first += count;
        n -= count;
    }
    return true;
}
