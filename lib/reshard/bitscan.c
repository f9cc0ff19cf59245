/* bitscan - what the numbers of a tensor are: NaN, infinite, all zero, all alike */
#include "lib/reshard/bitscan.h"

#include <math.h>
#include <string.h>

/* What is not finite in a type: a number is special if (bits & exponent) == exponent,
 * which is so if and only if adding LOWEST carries into the bit above the exponent.  In
 * types without infinities EXPONENT covers the whole of the only NaN. */
struct form {
    uint64_t exponent, lowest, sign;
};

static bool form_of(struct form *f, enum dtype t)
{
    switch (t) {
    case DTYPE_BF16:
        *f = (struct form){ 0x7f80, 0x80, 0x8000 };
        return true;
    case DTYPE_F16:
        *f = (struct form){ 0x7c00, 0x400, 0x8000 };
        return true;
    case DTYPE_F32:
        *f = (struct form){ 0x7f800000, 0x800000, 0x80000000 };
        return true;
    case DTYPE_F64:
        *f = (struct form){ UINT64_C(0x7ff) << 52, UINT64_C(1) << 52,
                            UINT64_C(1) << 63 };
        return true;
    case DTYPE_F8_E5M2:
        *f = (struct form){ 0x7c, 0x04, 0x80 };
        return true;
    case DTYPE_F8_E4M3:
        *f = (struct form){ 0x7f, 0x01, 0x80 };
        return true;
    default:
        return false;
    }
}

bool bitscan_known(enum dtype t)
{
    struct form f;

    return form_of(&f, t);
}

/* What the numbers of a block have in common. */
struct block {
    uint64_t special; /* the sign's bit is set if one is not finite */
    uint64_t differ;  /* bits in which one differs from FIRST */
    uint64_t any;     /* bits that one has */
};

enum {
    LOOP = 512
}; /* numbers of an inner loop, whose fixed count makes a vector loop */

/* Looks at N numbers; a vector loop of and, add, xor and or. */
#define LOOK(type)                                                                    \
    static void look_##type(struct block *b, const unsigned char *p, size_t n,        \
                            const struct form *f, uint64_t first)                     \
    {                                                                                 \
        const type exponent = (type)f->exponent, lowest = (type)f->lowest,            \
                   one = (type)first;                                                 \
        type special = 0, differ = 0, any = 0;                                        \
                                                                                      \
        for (; n >= LOOP; n -= LOOP, p += LOOP * sizeof(type)) {                      \
            type v[LOOP];                                                             \
                                                                                      \
            memcpy(v, p, sizeof(v));                                                  \
            for (int i = 0; i < LOOP; i++) {                                          \
                special = (type)(special | (type)((type)(v[i] & exponent) + lowest)); \
                differ = (type)(differ | (type)(v[i] ^ one));                         \
                any = (type)(any | v[i]);                                             \
            }                                                                         \
        }                                                                             \
        for (; n; n--, p += sizeof(type)) {                                           \
            type v;                                                                   \
                                                                                      \
            memcpy(&v, p, sizeof(v));                                                 \
            special = (type)(special | (type)((type)(v & exponent) + lowest));        \
            differ = (type)(differ | (type)(v ^ one));                                \
            any = (type)(any | v);                                                    \
        }                                                                             \
        b->special |= special;                                                        \
        b->differ |= differ;                                                          \
        b->any |= any;                                                                \
    }
LOOK(uint8_t)
LOOK(uint16_t)
LOOK(uint32_t)
LOOK(uint64_t)
#undef LOOK

static uint64_t bits_at(const unsigned char *p, size_t width)
{
    uint64_t bits = 0;

    for (size_t k = width; k--;)
        bits = bits << 8 | p[k];
    return bits;
}

void bitscan_add(struct bitscan *v, enum dtype t, const void *buf, size_t bytes)
{
    const unsigned char *p = buf;
    size_t width = (size_t)dtype_bits(t) / 8, n = bytes / width;
    struct block b = { 0 };
    struct form f;

    if (!n || !form_of(&f, t))
        return;
    if (!v->seen) {
        v->bits = bits_at(p, width);
        v->sample = dtype_get(t, p, 0);
    }
    switch (width) {
    case 1:
        look_uint8_t(&b, p, n, &f, v->bits);
        break;
    case 2:
        look_uint16_t(&b, p, n, &f, v->bits);
        break;
    case 4:
        look_uint32_t(&b, p, n, &f, v->bits);
        break;
    default:
        look_uint64_t(&b, p, n, &f, v->bits);
    }
    v->seen += n;
    v->other |= b.differ != 0;
    v->nonzero |= (b.any & ~f.sign) != 0;
    for (size_t i = 0; (b.special & f.sign) && i < n; i++) {
        double x = dtype_get(t, p, i);

        v->nans += isnan(x) ? 1 : 0;
        v->infinities += isinf(x) ? 1 : 0;
    }
}

void bitscan_join(struct bitscan *v, const struct bitscan *from)
{
    if (!from->seen)
        return;
    if (!v->seen) {
        *v = *from;
        return;
    }
    v->seen += from->seen;
    v->nans += from->nans;
    v->infinities += from->infinities;
    v->other |= from->other || from->bits != v->bits;
    v->nonzero |= from->nonzero;
}
