/* nonfinite - finds a stored weight that is NaN or infinite */
#include "lib/reshard/nonfinite.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A tensor that is read block by block, in the order of its elements. */
struct look {
    enum dtype dtype;
    bool found;
    uint64_t at; /* index of the element */
    double value;
};

/* Index of the first of N numbers whose bits MASK, the exponent's, are all set; or N.
 */
#define FIRST_OF(type)                                                \
    static size_t first_of_##type(const char *p, size_t n, type mask) \
    {                                                                 \
        for (size_t i = 0; i < n; i++) {                              \
            type bits;                                                \
                                                                      \
            memcpy(&bits, p + i * sizeof(bits), sizeof(bits));        \
            if ((bits & mask) == mask)                                \
                return i;                                             \
        }                                                             \
        return n;                                                     \
    }
FIRST_OF(uint16_t)
FIRST_OF(uint32_t)
FIRST_OF(uint64_t)
#undef FIRST_OF

static size_t first_of(enum dtype t, const char *p, size_t n)
{
    size_t i = 0;

    switch (t) {
    case DTYPE_BF16:
        return first_of_uint16_t(p, n, 0x7f80);
    case DTYPE_F16:
        return first_of_uint16_t(p, n, 0x7c00);
    case DTYPE_F32:
        return first_of_uint32_t(p, n, 0x7f800000);
    case DTYPE_F64:
        return first_of_uint64_t(p, n, UINT64_C(0x7ff0000000000000));
    default: /* a type of 8 bits */
        while (i < n && isfinite(dtype_get(t, p, i)))
            i++;
        return i;
    }
}

static int look(void *arg, int part, uint64_t offset, void *buf, size_t bytes,
                struct err *err)
{
    struct look *l = arg;
    size_t size = (size_t)dtype_bits(l->dtype) / 8, n = bytes / size, i;

    (void)part;
    (void)err;
    if (l->found)
        return 0;
    i = first_of(l->dtype, buf, n);
    if (i < n) {
        l->found = true;
        l->at = offset / size + i;
        l->value = dtype_get(l->dtype, buf, i);
    }
    return 0;
}

static void describe(struct str *out, const struct checkpoint *c, size_t i,
                     const struct look *l)
{
    const struct tensor *t = &c->tensor[i];
    uint64_t below = 1, at = l->at;

    str_addf(out, "%s: tensor %s: %s at [",
             c->sharded ? c->path : source_place(&c->source, t), t->name,
             isnan(l->value) ? "NaN" : "infinity");
    for (int k = 1; k < t->ndim; k++)
        below *= t->shape[k];
    for (int k = 0; k < t->ndim; k++) {
        str_addf(out, "%s%" PRIu64, k ? ", " : "", at / below);
        at %= below;
        if (k + 1 < t->ndim)
            below /= t->shape[k + 1];
    }
    str_addc(out, ']');
}

int nonfinite_find(struct str *out, struct checkpoint *c, struct err *err)
{
    struct cut *cut = cut_new();
    bool found = c->drawn;
    int ret = 0;

    for (size_t i = 0; i < c->nweights && ret == 0 && !found; i++) {
        struct look l = { .dtype = c->tensor[i].dtype };
        const struct cut_side to = { .nparts = 1, .io = look, .arg = &l };

        if (c->which[i] < 0 || !dtype_is_float(l.dtype) || dtype_bits(l.dtype) < 8)
            continue;
        ret = checkpoint_copy(c, cut, i, l.dtype, &to, NULL, NULL, NULL, err);
        found = l.found;
        if (ret == 0 && found)
            describe(out, c, i, &l);
    }
    cut_free(cut);
    return ret;
}
