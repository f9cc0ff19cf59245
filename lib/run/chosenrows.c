/* chosenrows - the rows of a step whose texts choose an adapter */
#include "lib/run/chosenrows.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

void chosenrows_clear(struct chosenrows *c)
{
    free(c->key);
    free(c->span);
    *c = (struct chosenrows){ 0 };
}

void chosenrows_begin(struct chosenrows *c)
{
    c->nkeys = c->nspans = 0;
}

/* Adds the runs of rows that have 1 in COLUMN of CHOICE. */
static void find_spans(struct chosenrows *c, const float *choice, size_t rows,
                       size_t cols, int column)
{
    for (size_t i = 0, n; i < rows; i += n ? n : 1) {
        n = 0;
        while (i + n < rows && choice[(i + n) * cols + (size_t)column] > 0)
            n++;
        if (!n)
            continue;
        c->span = xgrow(c->span, &c->span_cap, c->nspans + 1, sizeof(*c->span));
        c->span[c->nspans++] = (struct row_span){ i, n };
    }
}

const struct row_span *chosenrows_find(struct chosenrows *c, size_t *n,
                                       const struct inst *inst, const float *choice,
                                       size_t rows, size_t cols)
{
    const int by = inst->only.by, column = inst->only.column;
    size_t k = 0, first = c->nspans;

    while (k < c->nkeys && (c->key[k].by != by || c->key[k].column != column))
        k++;
    if (k == c->nkeys) {
        if (!choice)
            return NULL;
        find_spans(c, choice, rows, cols, column);
        c->span = xgrow(c->span, &c->span_cap, c->nspans + 1, sizeof(*c->span));
        c->key = xgrow(c->key, &c->key_cap, c->nkeys + 1, sizeof(*c->key));
        c->key[c->nkeys++] =
            (struct chosen_key){ by, column, first, c->nspans - first };
    }
    *n = c->key[k].n;
    return c->span + c->key[k].first;
}

static size_t row_bytes(const struct buffer *b)
{
    return (size_t)b->cols * (size_t)format_bits(b->format) / 8;
}

/* The same buffer from row FIRST on, of *N rows. */
static struct buffer part_of(const struct buffer *b, size_t first, const int32_t *n)
{
    struct buffer part = *b;

    part.data = (char *)b->data + first * row_bytes(b);
    part.rows = n;
    part.most = (size_t)*n;
    return part;
}

/* Of a sum that keeps the other rows of its first source: they are copied, or, where
 * the formats differ, the second source's become 0 before all rows are added.  Returns
 * whether all is done. */
static int keep_others(bool *done, const struct row_span *span, size_t n,
                       const struct backend *ops, struct device *device,
                       const struct call *c, size_t rows, struct err *err)
{
    const size_t bytes = row_bytes(&c->x[1]);
    size_t at = 0;

    *done = c->y.format != c->x[0].format;
    if (!*done)
        return ops->copy(device, c->y.data, c->x[0].data, rows * row_bytes(&c->y), err);
    for (size_t k = 0; k <= n; k++) {
        size_t end = k < n ? span[k].first : rows;

        memset((char *)c->x[1].data + at * bytes, 0, (end - at) * bytes);
        at = k < n ? span[k].first + span[k].n : end;
    }
    return ops->kernel[c->inst->op](device, c, err);
}

int chosenrows_run(const struct row_span *span, size_t n, const struct backend *ops,
                   struct device *device, const struct call *c, size_t rows,
                   struct err *err)
{
    bool done = false;

    if (ops->wait(device, err) < 0 ||
        (c->inst->only.keeps &&
         keep_others(&done, span, n, ops, device, c, rows, err) < 0))
        return -1;
    for (size_t k = 0; k < n && !done; k++) {
        const int32_t count = (int32_t)span[k].n;
        struct call part = *c;

        part.y = part_of(&c->y, span[k].first, &count);
        for (int s = 0; s < c->inst->nsrc; s++)
            part.x[s] = part_of(&c->x[s], span[k].first, &count);
        if (ops->kernel[c->inst->op](device, &part, err) < 0 ||
            ops->wait(device, err) < 0)
            return -1;
    }
    return 0;
}
