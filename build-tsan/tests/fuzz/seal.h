/* seal - a changed manifest with the checksum that its text has
 *
 * Without it nothing behind the comparison of the CRC-32 would ever be reached. */
#ifndef TESTS_FUZZ_SEAL_H
#define TESTS_FUZZ_SEAL_H

#include <inttypes.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/str.h"

/* Append the N bytes at TEXT, whose last member is replaced by the checksum of what
 * stands before it, or which get one. */
static inline void seal(struct str *out, const char *text, size_t n)
{
    static const char begin[] = "\"crc32\":\"";
    enum { TAIL = sizeof("\"crc32\":\"00000000\"}\n") - 1 };

    if (n >= TAIL && !memcmp(text + n - TAIL, begin, sizeof(begin) - 1))
        n -= TAIL;
    str_addn(out, text, n);
    str_addf(out, "%s%08" PRIx32 "\"}\n", begin, hash_crc32(0, text, n));
}

#endif
