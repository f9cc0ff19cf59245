/* sha256 - SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104) */
#ifndef LIB_BASE_SHA256_H
#define LIB_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64 };

/* A hash under way: copy it freely, there is nothing to release. */
struct sha256 {
    uint32_t state[8];
    uint64_t bytes; /* added so far */
    unsigned char block[SHA256_BLOCK];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_end(struct sha256 *s, unsigned char out[SHA256_BYTES]);

/* A message authentication code under way. */
struct hmac {
    struct sha256 inner, outer;
};

/* KEY may have any length, also none. */
void hmac_init(struct hmac *h, const void *key, size_t n);
void hmac_add(struct hmac *h, const void *p, size_t n);
void hmac_end(struct hmac *h, unsigned char out[SHA256_BYTES]);
/* Are the two codes equal?  The time does not depend on where they differ. */
bool hmac_equal(const unsigned char a[SHA256_BYTES],
                const unsigned char b[SHA256_BYTES]);

#endif
