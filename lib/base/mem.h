/* mem - small bookkeeping memory, and sizes that cannot overflow
 *
 * The x functions end the program with status 4 when memory is gone; they are
 * for bookkeeping.  Anything the size of a tensor comes from mem_alloc, which
 * can fail. */
#ifndef LIB_BASE_MEM_H
#define LIB_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

void *xmalloc(size_t size);
void *xcalloc(size_t n, size_t size); /* zeroed */
void *xrealloc(void *p, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n); /* S may be NULL where N is 0 */
void *xcheck(void *p); /* P, which a library allocated; NULL ends the program too */

/* Return P with room for at least NEED elements of SIZE bytes, growing by
 * doubling; *cap is the room in elements and is updated. */
void *xgrow(void *p, size_t *cap, size_t need, size_t size);

/* *out = a * b or a + b; false, and *out untouched, on overflow. */
bool mem_mul(uint64_t *out, uint64_t a, uint64_t b);
bool mem_add(uint64_t *out, uint64_t a, uint64_t b);

/* Bytes that what is made of BYTES foreign bytes may take: hostile files are small and
 * ask for much.  A reader may have 64 MiB and 16 times what it reads (and 256 bytes a
 * tensor) in all; its largest structure, which this is for, has most of that. */
uint64_t mem_allowance(uint64_t bytes);
/* ERR_INPUT that says of the foreign file NAME that it asks for more. */
MUST_CHECK int mem_refuse(const char *name, uint64_t bytes, struct err *err);

/* Allocate SIZE bytes (at least 1) aligned to 64, for WHAT (named in the
 * error).  Returns NULL with *err set to ERR_SYSTEM.  Release with free(). */
void *mem_alloc(uint64_t size, const char *what, struct err *err);

#endif
