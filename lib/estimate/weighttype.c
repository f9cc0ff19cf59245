/* weighttype - types of weights in memory
 *
 * ggml's: the block structures of ggml-common.h.  GPTQ and AWQ: groups of 128 with an
 * f16 scale and a 4-bit zero point.  nf4: blocks of 64 with an f32 scale (Dettmers et
 * al. 2023); nf4-dq: the same with 8-bit scales.  int8: an f32 scale per row (Dettmers
 * et al. 2022). mx: OCP Microscaling, blocks of 32 with a one-byte scale. */
#include "lib/estimate/weighttype.h"

#include <string.h>
#include <strings.h>

#include "lib/base/str.h"

static const struct weight_type types[] = {
    { "f32", SCOPE_ALL, 1, 4, 0 },
    { "bf16", SCOPE_ALL, 1, 2, 0 },
    { "f16", SCOPE_ALL, 1, 2, 0 },
    { "fp8", SCOPE_LINEAR, 1, 1, 0 },
    { "int8", SCOPE_LINEAR, 1, 1, 4 },
    { "int4", SCOPE_LINEAR, 2, 1, 0 },
    { "gptq", SCOPE_LINEAR, 256, 133, 0 },
    { "awq", SCOPE_LINEAR, 256, 133, 0 },
    { "nf4", SCOPE_LINEAR, 64, 36, 0 },
    { "nf4-dq", SCOPE_LINEAR, 16384, 8192 + 256 + 4, 0 },
    { "mxfp8", SCOPE_LINEAR, 32, 33, 0 },
    { "mxfp6", SCOPE_LINEAR, 32, 25, 0 },
    { "mxfp4", SCOPE_LINEAR, 32, 17, 0 },
    { "nvfp4", SCOPE_LINEAR, 64, 36, 0 },
    { "q4_0", SCOPE_MATRICES, 32, 18, 0 },
    { "q4_1", SCOPE_MATRICES, 32, 20, 0 },
    { "q5_0", SCOPE_MATRICES, 32, 22, 0 },
    { "q5_1", SCOPE_MATRICES, 32, 24, 0 },
    { "q8_0", SCOPE_MATRICES, 32, 34, 0 },
    { "q2_K", SCOPE_MATRICES, 256, 84, 0 },
    { "q3_K", SCOPE_MATRICES, 256, 110, 0 },
    { "q4_K", SCOPE_MATRICES, 256, 144, 0 },
    { "q5_K", SCOPE_MATRICES, 256, 176, 0 },
    { "q6_K", SCOPE_MATRICES, 256, 210, 0 },
    { "iq1_s", SCOPE_MATRICES, 256, 50, 0 },
    { "iq1_m", SCOPE_MATRICES, 256, 56, 0 },
    { "iq2_xxs", SCOPE_MATRICES, 256, 66, 0 },
    { "iq2_xs", SCOPE_MATRICES, 256, 74, 0 },
    { "iq2_s", SCOPE_MATRICES, 256, 82, 0 },
    { "iq3_xxs", SCOPE_MATRICES, 256, 98, 0 },
    { "iq3_s", SCOPE_MATRICES, 256, 110, 0 },
    { "iq4_nl", SCOPE_MATRICES, 32, 18, 0 },
    { "iq4_xs", SCOPE_MATRICES, 256, 136, 0 },
    { "tq1_0", SCOPE_MATRICES, 256, 54, 0 },
    { "tq2_0", SCOPE_MATRICES, 256, 66, 0 },
};
enum { NTYPES = sizeof(types) / sizeof(*types) };

const struct weight_type *weight_type_find(const char *name)
{
    enum dtype t;

    for (int i = 0; i < NTYPES; i++)
        if (!strcasecmp(types[i].name, name))
            return &types[i];
    return dtype_parse(&t, name) ? weight_type_of(t) : NULL;
}

char *weight_type_names_dup(void)
{
    struct str s = { 0 };

    for (int i = 0; i < NTYPES; i++)
        str_addf(&s, "%s%s", i ? ", " : "", types[i].name);
    return str_steal(&s);
}

const struct weight_type *weight_type_of(enum dtype t)
{
    const char *name;

    switch (t) {
    case DTYPE_F32:
        name = "f32";
        break;
    case DTYPE_BF16:
        name = "bf16";
        break;
    case DTYPE_F16:
        name = "f16";
        break;
    case DTYPE_F8_E4M3:
    case DTYPE_F8_E5M2:
        name = "fp8";
        break;
    default:
        return NULL;
    }
    return weight_type_find(name);
}

uint64_t weight_type_bytes(const struct weight_type *t, uint64_t elements,
                           uint64_t rows)
{
    return (elements + t->block - 1) / t->block * t->block_bytes + rows * t->row_bytes;
}
