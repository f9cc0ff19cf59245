/* hash - CRC-32 (the polynomial of zlib, gzip and PNG) */
#include <zlib.h>

#include "lib/base/hash.h"

uint32_t hash_crc32(uint32_t crc, const void *p, size_t n)
{
    return (uint32_t)crc32_z(crc, p, n);
}

uint32_t hash_crc32_join(uint32_t a, uint32_t b, uint64_t len_b)
{
    return (uint32_t)crc32_combine(a, b, (z_off_t)len_b);
}
