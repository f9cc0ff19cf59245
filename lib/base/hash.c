/* hash - CRC-32 (the polynomial of zlib, gzip and PNG)
 *
 * On processors with carry-less multiplication, long inputs are folded 64 bytes at a
 * time: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction", Intel, 2009.  zlib computes the rest, and everything elsewhere. */
#include <zlib.h>

#include "lib/base/hash.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define FOLDING 1
#include <immintrin.h>

/* Constants of the paper for the bit-reflected polynomial: x^(4*128+32), x^(4*128-32),
 * x^(128+32), x^(128-32) and x^64 modulo P, then P and its inverse. */
static const uint64_t FOLD_4[2] = { 0x0154442bd4, 0x01c6e41596 };
static const uint64_t FOLD_1[2] = { 0x01751997d0, 0x00ccaa009e };
static const uint64_t TO_64[2] = { 0x0163cd6124, 0 };
static const uint64_t BARRETT[2] = { 0x01db710641, 0x01f7011641 };

#define TARGET __attribute__((target("pclmul,sse4.1")))

TARGET static inline __m128i load(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

/* Shifts X by the distance that K encodes and adds DATA, which lies there. */
TARGET static inline __m128i fold(__m128i x, __m128i k, __m128i data)
{
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00),
                                       _mm_clmulepi64_si128(x, k, 0x11)),
                         data);
}

/* Returns the CRC register after the N bytes at P; N is at least 64 and a multiple of
 * 16. */
TARGET static uint32_t fold_crc(uint32_t crc, const unsigned char *p, size_t n)
{
    const __m128i four = load(FOLD_4), one = load(FOLD_1), barrett = load(BARRETT);
    const __m128i low32 = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i x0 = _mm_xor_si128(load(p), _mm_cvtsi32_si128((int)crc));
    __m128i x1 = load(p + 16), x2 = load(p + 32), x3 = load(p + 48), t;

    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        x0 = fold(x0, four, load(p));
        x1 = fold(x1, four, load(p + 16));
        x2 = fold(x2, four, load(p + 32));
        x3 = fold(x3, four, load(p + 48));
    }
    x0 = fold(fold(fold(x0, one, x1), one, x2), one, x3);
    for (; n; p += 16, n -= 16)
        x0 = fold(x0, one, load(p));

    /* 128 bits to 64, to 32 */
    x0 = _mm_xor_si128(_mm_srli_si128(x0, 8), _mm_clmulepi64_si128(x0, one, 0x10));
    x0 = _mm_xor_si128(
        _mm_srli_si128(x0, 4),
        _mm_clmulepi64_si128(_mm_and_si128(x0, low32), load(TO_64), 0x00));
    t = _mm_clmulepi64_si128(_mm_and_si128(x0, low32), barrett, 0x10);
    t = _mm_clmulepi64_si128(_mm_and_si128(t, low32), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x0, t), 1);
}
#endif

uint32_t hash_crc32(uint32_t crc, const void *p, size_t n)
{
    const unsigned char *bytes = p;

#ifdef FOLDING
    if (n >= 64 && __builtin_cpu_supports("pclmul") &&
        __builtin_cpu_supports("sse4.1")) {
        size_t folded = n & ~(size_t)15;

        crc = ~fold_crc(~crc, bytes, folded);
        bytes += folded;
        n -= folded;
    }
#endif
    return (uint32_t)crc32_z(crc, bytes, n);
}

uint32_t hash_crc32_join(uint32_t a, uint32_t b, uint64_t len_b)
{
    return (uint32_t)crc32_combine(a, b, (z_off_t)len_b);
}
