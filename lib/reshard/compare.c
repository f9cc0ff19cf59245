/* compare - compares two checkpoints tensor by tensor */
#include "lib/reshard/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/mem.h"

enum { CHUNK = 4 << 20 };

/* One of the two checkpoints, and the rows of its current tensor that are in memory. */
struct reader {
    struct checkpoint *ckpt;
    struct cut *cut;
    unsigned char *buf;
    uint64_t cap;   /* bytes of buf */
    uint64_t start; /* offset of buf[0] in the whole tensor, bytes */
};

static int take_bytes(void *arg, int part, uint64_t offset, void *bytes, size_t n,
                      struct err *err)
{
    struct reader *r = arg;

    (void)part;
    (void)err;
    memcpy(r->buf + (offset - r->start), bytes, n);
    return 0;
}

static uint64_t elements(const struct tensor *t)
{
    uint64_t n = 1;

    for (int k = 0; k < t->ndim; k++)
        n *= t->shape[k];
    return n;
}

/* Number of rows for checkpoint_copy_rows: the first axis, or single elements for a
 * tensor outside the model and for a file without a model. */
static uint64_t rows_of(const struct checkpoint *c, size_t i)
{
    const struct tensor *t = &c->tensor[i];

    return c->which[i] < 0 || t->ndim == 0 ? elements(t) : t->shape[0];
}

/* Reads the elements [first, first + n) of tensor I; both ends are row boundaries. */
static int read_elements(struct reader *r, size_t i, uint64_t first, uint64_t n,
                         struct err *err)
{
    const struct tensor *t = &r->ckpt->tensor[i];
    uint64_t per_row = elements(t) / rows_of(r->ckpt, i);
    uint64_t bytes = n * (uint64_t)dtype_bits(t->dtype) / 8;
    struct cut_side to = { .nparts = 1, .io = take_bytes, .arg = r };

    if (bytes > r->cap) {
        free(r->buf);
        r->cap = 0;
        r->buf = mem_alloc(bytes, t->name, err);
        if (!r->buf)
            return -1;
        r->cap = bytes;
    }
    r->start = first * (uint64_t)dtype_bits(t->dtype) / 8;
    return checkpoint_copy_rows(r->ckpt, r->cut, i, first / per_row,
                                n == elements(t) ? 0 : n / per_row, &to, err);
}

static bool has_values(enum dtype t)
{
    return t != DTYPE_F4 && t != DTYPE_F6_E2M3 && t != DTYPE_F6_E3M2 && t != DTYPE_C64;
}

/* Compares N elements; BASE is the index of the first. */
static void compare_values(struct compare_tensor *d, const void *a, const void *b,
                           uint64_t n, uint64_t base, double tolerance)
{
    for (uint64_t i = 0; i < n; i++) {
        double x = dtype_get(d->a->dtype, a, i), y = dtype_get(d->b->dtype, b, i);
        double difference = fabs(x - y), larger = fmax(fabs(x), fabs(y));

        if (x == y || (isnan(x) && isnan(y)))
            continue;
        if (isnan(difference)) /* NaN against a number, or opposite infinities */
            difference = (double)INFINITY;
        if (difference > d->max_abs)
            d->max_abs = difference;
        if (difference / larger > d->max_rel || isinf(difference))
            d->max_rel = isinf(difference) ? difference : difference / larger;
        if (difference <= tolerance * larger)
            continue;
        if (!d->different++)
            d->first = base + i;
    }
}

static void compare_bytes(struct compare_tensor *d, const unsigned char *a,
                          const unsigned char *b, uint64_t bytes, uint64_t base)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (a[i] != b[i] && !d->different++)
            d->first = base + i * 8 / (uint64_t)dtype_bits(d->a->dtype);
}

/* Compares tensor I of A with tensor K of B; the shapes are equal. */
static int compare(struct compare_tensor *d, struct reader *a, size_t i,
                   struct reader *b, size_t k, double tolerance, struct err *err)
{
    uint64_t all = elements(d->a), rows_a, rows_b, unit, step;
    bool same_type = d->a->dtype == d->b->dtype;
    bool valued = has_values(d->a->dtype) && has_values(d->b->dtype);

    d->exact = same_type;
    if (!all)
        return 0;
    if (!valued && !same_type) {
        d->different = all;
        return 0;
    }
    rows_a = rows_of(a->ckpt, i);
    rows_b = rows_of(b->ckpt, k);
    unit = all / (rows_a < rows_b ? rows_a : rows_b);
    if (!valued) /* sub-byte types: a row may not fill whole bytes */
        unit = all;
    step = CHUNK / 8 / unit ? CHUNK / 8 / unit * unit : unit;
    for (uint64_t at = 0; at < all; at += step) {
        uint64_t n = all - at < step ? all - at : step;
        uint64_t bytes = n * (uint64_t)dtype_bits(d->a->dtype) / 8;

        if (read_elements(a, i, at, n, err) < 0 || read_elements(b, k, at, n, err) < 0)
            return -1;
        if (same_type && !memcmp(a->buf, b->buf, (size_t)bytes))
            continue;
        d->exact = false;
        if (valued)
            compare_values(d, a->buf, b->buf, n, at, tolerance);
        else
            compare_bytes(d, a->buf, b->buf, bytes, at);
    }
    return 0;
}

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    return a->ndim == b->ndim &&
           !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(*a->shape));
}

int compare_checkpoints(struct checkpoint *a, struct checkpoint *b, double tolerance,
                        void (*tell)(void *arg, const struct compare_tensor *d),
                        void *arg, struct err *err)
{
    struct reader ra = { .ckpt = a, .cut = cut_new() },
                  rb = { .ckpt = b, .cut = cut_new() };
    struct tensor_index in_a, in_b;
    int ret = -1;

    tensor_index_init(&in_a, a->tensor, a->ntensors);
    tensor_index_init(&in_b, b->tensor, b->ntensors);
    for (size_t i = 0; i < a->ntensors; i++) {
        long k = tensor_index_find(&in_b, a->tensor[i].name);
        struct compare_tensor d = { .name = a->tensor[i].name,
                                    .a = &a->tensor[i],
                                    .b = k < 0 ? NULL : &b->tensor[k] };

        if (k < 0) {
            d.kind = COMPARE_ONLY_A;
        } else if (!same_shape(d.a, d.b)) {
            d.kind = COMPARE_SHAPE;
        } else {
            if (compare(&d, &ra, i, &rb, (size_t)k, tolerance, err) < 0)
                goto out;
            d.kind =
                d.different || d.a->dtype != d.b->dtype ? COMPARE_VALUES : COMPARE_SAME;
        }
        tell(arg, &d);
    }
    for (size_t k = 0; k < b->ntensors; k++)
        if (tensor_index_find(&in_a, b->tensor[k].name) < 0) {
            const struct compare_tensor d = { .name = b->tensor[k].name,
                                              .kind = COMPARE_ONLY_B,
                                              .b = &b->tensor[k] };

            tell(arg, &d);
        }
    ret = 0;
out:
    tensor_index_clear(&in_a);
    tensor_index_clear(&in_b);
    cut_free(ra.cut);
    cut_free(rb.cut);
    free(ra.buf);
    free(rb.buf);
    return ret;
}
