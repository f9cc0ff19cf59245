/* dtype - the element types of tensors, under safetensors' names */
#ifndef LIB_BASE_DTYPE_H
#define LIB_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_BOOL,
    DTYPE_F4, /* two to a byte */
    DTYPE_F6_E2M3,
    DTYPE_F6_E3M2,
    DTYPE_U8,
    DTYPE_I8,
    DTYPE_F8_E5M2,
    DTYPE_F8_E4M3,
    DTYPE_F8_E8M0,
    DTYPE_F8_E4M3FNUZ,
    DTYPE_F8_E5M2FNUZ,
    DTYPE_I16,
    DTYPE_U16,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_I32,
    DTYPE_U32,
    DTYPE_F32,
    DTYPE_C64, /* two f32 */
    DTYPE_F64,
    DTYPE_I64,
    DTYPE_U64,
    DTYPE_COUNT
};

const char *dtype_name(enum dtype t);    /* "BF16", as in a safetensors header */
const char *dtype_pytorch(enum dtype t); /* "bfloat16"; NULL when it has none */
int dtype_bits(enum dtype t);            /* 4 to 64 */
bool dtype_is_float(enum dtype t);       /* a real floating type */
bool dtype_parse(enum dtype *t,
                 const char *name); /* safetensors' name in any case, or PyTorch's:
                                     * "bfloat16", "float32" */
/* Bytes of N elements; false on overflow or when they do not fill whole bytes. */
bool dtype_bytes(uint64_t *bytes, enum dtype t, uint64_t n);

float dtype_f16_to_f32(uint16_t h);
/* rounds to nearest even; overflow gives infinity */
uint16_t dtype_f32_to_f16(float f);
float dtype_bf16_to_f32(uint16_t h);
uint16_t dtype_f32_to_bf16(float f); /* rounds to nearest even; NaN stays NaN */
/* Element I of the array P of type T, as a double.  Supports floats from 8 bits up and
 * integers; F4, F6 and C64 give NaN. */
double dtype_get(enum dtype t, const void *p, uint64_t i);
/* Convert N elements of P to f32; false for the types that dtype_get does not
 * support. */
bool dtype_to_f32(enum dtype t, const void *p, float *out, size_t n);

#endif
