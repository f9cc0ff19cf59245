/* sha256 - SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104) */
#include "lib/base/sha256.h"

#include <string.h>

/* FIPS 180-4, 4.2.2: of the cube roots of the first 64 primes */
static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2
};

static uint32_t turn(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t big(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* 6.2.2: one block of 64 bytes */
static void compress(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64], v[8];

    for (int t = 0; t < 16; t++)
        w[t] = big(block + 4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t a = w[t - 15], b = w[t - 2];

        w[t] = (turn(b, 17) ^ turn(b, 19) ^ b >> 10) + w[t - 7] +
               (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[t - 16];
    }
    memcpy(v, state, sizeof(v));
    for (int t = 0; t < 64; t++) {
        uint32_t a = v[0], e = v[4];
        uint32_t first = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                         ((e & v[5]) ^ (~e & v[6])) + K[t] + w[t];
        uint32_t second = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) +
                          ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));

        memmove(v + 1, v, 7 * sizeof(*v));
        v[4] += first;
        v[0] = first + second;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void sha256_init(struct sha256 *s)
{
    /* 5.3.3: of the square roots of the first 8 primes */
    *s = (struct sha256){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

void sha256_add(struct sha256 *s, const void *p, size_t n)
{
    const unsigned char *from = p;

    while (n) {
        size_t have = s->bytes % SHA256_BLOCK, room = SHA256_BLOCK - have;
        size_t some = n < room ? n : room;

        memcpy(s->block + have, from, some);
        s->bytes += some;
        from += some;
        n -= some;
        if (some == room)
            compress(s->state, s->block);
    }
}

void sha256_end(struct sha256 *s, unsigned char out[SHA256_BYTES])
{
    static const unsigned char pad[SHA256_BLOCK] = { 0x80 };
    uint64_t bits = s->bytes * 8;
    size_t have = s->bytes % SHA256_BLOCK;
    unsigned char length[8];

    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(s, pad, have < 56 ? 56 - have : 120 - have);
    sha256_add(s, length, sizeof(length));
    for (int i = 0; i < SHA256_BYTES; i++)
        out[i] = (unsigned char)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

void hmac_init(struct hmac *h, const void *key, size_t n)
{
    unsigned char pad[SHA256_BLOCK] = { 0 };

    if (n > sizeof(pad)) {
        struct sha256 s;

        sha256_init(&s);
        sha256_add(&s, key, n);
        sha256_end(&s, pad);
    } else if (n) {
        memcpy(pad, key, n);
    }
    for (size_t i = 0; i < sizeof(pad); i++)
        pad[i] ^= 0x36;
    sha256_init(&h->inner);
    sha256_add(&h->inner, pad, sizeof(pad));
    for (size_t i = 0; i < sizeof(pad); i++)
        pad[i] ^= 0x36 ^ 0x5c;
    sha256_init(&h->outer);
    sha256_add(&h->outer, pad, sizeof(pad));
}

void hmac_add(struct hmac *h, const void *p, size_t n)
{
    sha256_add(&h->inner, p, n);
}

void hmac_end(struct hmac *h, unsigned char out[SHA256_BYTES])
{
    sha256_end(&h->inner, out);
    sha256_add(&h->outer, out, SHA256_BYTES);
    sha256_end(&h->outer, out);
}

bool hmac_equal(const unsigned char a[SHA256_BYTES],
                const unsigned char b[SHA256_BYTES])
{
    unsigned different = 0;

    for (int i = 0; i < SHA256_BYTES; i++)
        different |= a[i] ^ b[i];
    return !different;
}
