/* dtype - the element types of tensors, under safetensors' names */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "lib/base/dtype.h"
#include "lib/base/mem.h"

static const struct {
    const char *name;  /* safetensors */
    const char *torch; /* NULL where PyTorch has none */
    int bits;
    bool is_float;
} types[DTYPE_COUNT] = {
    [DTYPE_BOOL] = { "BOOL", "bool", 8, false },
    [DTYPE_F4] = { "F4", NULL, 4, true },
    [DTYPE_F6_E2M3] = { "F6_E2M3", NULL, 6, true },
    [DTYPE_F6_E3M2] = { "F6_E3M2", NULL, 6, true },
    [DTYPE_U8] = { "U8", "uint8", 8, false },
    [DTYPE_I8] = { "I8", "int8", 8, false },
    [DTYPE_F8_E5M2] = { "F8_E5M2", "float8_e5m2", 8, true },
    [DTYPE_F8_E4M3] = { "F8_E4M3", "float8_e4m3fn", 8, true },
    [DTYPE_F8_E8M0] = { "F8_E8M0", "float8_e8m0fnu", 8, true },
    [DTYPE_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", "float8_e4m3fnuz", 8, true },
    [DTYPE_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", "float8_e5m2fnuz", 8, true },
    [DTYPE_I16] = { "I16", "int16", 16, false },
    [DTYPE_U16] = { "U16", "uint16", 16, false },
    [DTYPE_F16] = { "F16", "float16", 16, true },
    [DTYPE_BF16] = { "BF16", "bfloat16", 16, true },
    [DTYPE_I32] = { "I32", "int32", 32, false },
    [DTYPE_U32] = { "U32", "uint32", 32, false },
    [DTYPE_F32] = { "F32", "float32", 32, true },
    [DTYPE_C64] = { "C64", "complex64", 64, false },
    [DTYPE_F64] = { "F64", "float64", 64, true },
    [DTYPE_I64] = { "I64", "int64", 64, false },
    [DTYPE_U64] = { "U64", "uint64", 64, false },
};

const char *dtype_name(enum dtype t)
{
    return types[t].name;
}

const char *dtype_pytorch(enum dtype t)
{
    return types[t].torch;
}

int dtype_bits(enum dtype t)
{
    return types[t].bits;
}

bool dtype_is_float(enum dtype t)
{
    return types[t].is_float;
}

bool dtype_parse(enum dtype *t, const char *name)
{
    if (!strncmp(name, "torch.", 6))
        name += 6;
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (!strcasecmp(name, types[i].name) ||
            (types[i].torch && !strcasecmp(name, types[i].torch))) {
            *t = (enum dtype)i;
            return true;
        }
    return false;
}

bool dtype_bytes(uint64_t *bytes, enum dtype t, uint64_t n)
{
    uint64_t bits;

    if (types[t].bits >= 8)
        return mem_mul(bytes, n, (uint64_t)types[t].bits / 8);
    if (!mem_mul(&bits, n, (uint64_t)types[t].bits) || bits % 8)
        return false;
    *bytes = bits / 8;
    return true;
}

static float f32_from_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

static uint32_t f32_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

float dtype_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = h >> 10 & 0x1f;
    uint32_t mantissa = h & 0x3ff;

    if (exponent == 0x1f)
        return f32_from_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24, exact in f32 */
        float f = (float)mantissa * 0x1p-24f;

        return f32_from_bits(sign | f32_bits(f));
    }
    return f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t dtype_f32_to_f16(float f)
{
    uint32_t u = f32_bits(f);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    uint32_t magnitude = u & 0x7fffffff;
    uint32_t rounded;

    if (magnitude > 0x7f800000) /* NaN: keep the top of its payload, stay quiet */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
    if (magnitude < 0x38800000) { /* below 2^-14: the result is subnormal */
        /* Adding 0.5 puts the unit 2^-24 in the last place, so that the addition
         * itself rounds to nearest even. */
        return (uint16_t)(sign |
                          (f32_bits(f32_from_bits(magnitude) + 0.5f) - 0x3f000000));
    }
    rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    if (rounded >= 0x47800000)
        return (uint16_t)(sign | 0x7c00);
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

float dtype_bf16_to_f32(uint16_t h)
{
    return f32_from_bits((uint32_t)h << 16);
}

uint16_t dtype_f32_to_bf16(float f)
{
    uint32_t u = f32_bits(f);

    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Value of a byte that holds a sign bit, EXPONENT_BITS of exponent and the rest
 * mantissa; exponent 0 is subnormal. */
static double small_float(uint8_t b, int exponent_bits, int bias)
{
    int mantissa_bits = 7 - exponent_bits;
    int exponent = b >> mantissa_bits & ((1 << exponent_bits) - 1);
    int mantissa = b & ((1 << mantissa_bits) - 1);
    double x;

    if (exponent)
        x = ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
    else
        x = ldexp(mantissa, 1 - bias - mantissa_bits);
    return b & 0x80 ? -x : x;
}

/* The 8-bit formats of the OCP specifications (FP8 1.0, MX 1.0).  The FNUZ variants
 * have one zero, no infinity, and encode NaN as minus zero. */
static double f8_value(enum dtype t, uint8_t b)
{
    switch (t) {
    case DTYPE_F8_E5M2:
        if ((b & 0x7f) > 0x7c)
            return (double)NAN;
        if ((b & 0x7f) == 0x7c)
            return b & 0x80 ? -(double)INFINITY : (double)INFINITY;
        return small_float(b, 5, 15);
    case DTYPE_F8_E4M3:
        return (b & 0x7f) == 0x7f ? (double)NAN : small_float(b, 4, 7);
    case DTYPE_F8_E5M2FNUZ:
        return b == 0x80 ? (double)NAN : small_float(b, 5, 16);
    case DTYPE_F8_E4M3FNUZ:
        return b == 0x80 ? (double)NAN : small_float(b, 4, 8);
    default: /* DTYPE_F8_E8M0: a power of two */
        return b == 0xff ? (double)NAN : ldexp(1.0, b - 127);
    }
}

double dtype_get(enum dtype t, const void *p, uint64_t i)
{
    const unsigned char *at =
        (const unsigned char *)p + i * (uint64_t)(types[t].bits / 8);
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    float f32;
    double f64;

    switch (t) {
    case DTYPE_BOOL:
        return at[0] != 0;
    case DTYPE_U8:
        return at[0];
    case DTYPE_I8:
        return (int8_t)at[0];
    case DTYPE_F8_E5M2:
    case DTYPE_F8_E4M3:
    case DTYPE_F8_E8M0:
    case DTYPE_F8_E4M3FNUZ:
    case DTYPE_F8_E5M2FNUZ:
        return f8_value(t, at[0]);
    case DTYPE_I16:
    case DTYPE_U16:
    case DTYPE_F16:
    case DTYPE_BF16:
        memcpy(&u16, at, sizeof(u16));
        return t == DTYPE_I16   ? (int16_t)u16
               : t == DTYPE_U16 ? u16
               : t == DTYPE_F16 ? (double)dtype_f16_to_f32(u16)
                                : (double)dtype_bf16_to_f32(u16);
    case DTYPE_I32:
    case DTYPE_U32:
        memcpy(&u32, at, sizeof(u32));
        return t == DTYPE_I32 ? (double)(int32_t)u32 : (double)u32;
    case DTYPE_F32:
        memcpy(&f32, at, sizeof(f32));
        return (double)f32;
    case DTYPE_F64:
        memcpy(&f64, at, sizeof(f64));
        return f64;
    case DTYPE_I64:
    case DTYPE_U64:
        memcpy(&u64, at, sizeof(u64));
        return t == DTYPE_I64 ? (double)(int64_t)u64 : (double)u64;
    default:
        return (double)NAN;
    }
}

bool dtype_to_f32(enum dtype t, const void *p, float *out, size_t n)
{
    const uint16_t *half = p;

    switch (t) {
    case DTYPE_F4:
    case DTYPE_F6_E2M3:
    case DTYPE_F6_E3M2:
    case DTYPE_C64:
        return false;
    case DTYPE_F32:
        memcpy(out, p, n * sizeof(*out));
        return true;
    case DTYPE_F16:
        for (size_t i = 0; i < n; i++)
            out[i] = dtype_f16_to_f32(half[i]);
        return true;
    case DTYPE_BF16:
        for (size_t i = 0; i < n; i++)
            out[i] = dtype_bf16_to_f32(half[i]);
        return true;
    default:
        for (size_t i = 0; i < n; i++)
            out[i] = (float)dtype_get(t, p, i);
        return true;
    }
}
