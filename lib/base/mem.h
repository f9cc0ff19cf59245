/* mem - small bookkeeping memory, and sizes checked for overflow
 *
 * The x functions are for bookkeeping and end the program with status 4 when memory
 * runs out. Anything the size of a tensor comes from mem_alloc, which can fail. */
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
/* returns P, which a library allocated; ends the program when it is NULL */
void *xcheck(void *p);

/* Return P with room for at least NEED elements of SIZE bytes; the capacity doubles.
 * *cap is the capacity in elements and is updated. */
void *xgrow(void *p, size_t *cap, size_t need, size_t size);

/* *out = a * b or a + b; false, and *out untouched, on overflow. */
bool mem_mul(uint64_t *out, uint64_t a, uint64_t b);
bool mem_add(uint64_t *out, uint64_t a, uint64_t b);

/* Bytes of memory that a data structure built from BYTES foreign bytes may take.  A
 * small hostile file can describe a huge structure, so each reader may use 64 MiB plus
 * 16 times what it reads (plus 256 bytes a tensor) in all; the reader's largest
 * structure may use most of that, and this function returns its limit. */
uint64_t mem_allowance(uint64_t bytes);
/* Sets ERR_INPUT: the foreign file NAME needs more memory than mem_allowance
 * permits. */
MUST_CHECK int mem_refuse(const char *name, uint64_t bytes, struct err *err);

/* Allocate SIZE bytes (at least 1), aligned to 128.  WHAT is named in the error.
 * Returns NULL with ERR_SYSTEM in *err on failure.  Release with free(). */
void *mem_alloc(uint64_t size, const char *what, struct err *err);

#endif
