/* hash - CRC-32 (the polynomial of zlib, gzip and PNG) */
#ifndef LIB_BASE_HASH_H
#define LIB_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Continue CRC (0 at the start) over N bytes. */
uint32_t hash_crc32(uint32_t crc, const void *p, size_t n);
/* The CRC of A followed by B, from crc(A), crc(B) and B's length in bytes. */
uint32_t hash_crc32_join(uint32_t a, uint32_t b, uint64_t len_b);

#endif
