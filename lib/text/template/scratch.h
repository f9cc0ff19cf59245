/* scratch - the memory and the steps of one template, bounded
 *
 * A template and its messages are foreign: every allocation, loop and comparison of a
 * rendering is counted here, so that a hostile one ends soon.  All memory lives until
 * scratch_clear.  After a failure *err is set and the caller returns. */
#ifndef LIB_TEXT_TEMPLATE_SCRATCH_H
#define LIB_TEXT_TEMPLATE_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"

struct scratch {
    const char *name; /* of the template, for messages; borrowed */
    uint32_t line;    /* of what is read or run now */
    struct err *err;
    struct pool pool;
    uint64_t most_bytes, steps, most_steps;
    int depth;
};

/* BYTES is the size of the template and its input, from which the bounds follow. */
void scratch_init(struct scratch *s, const char *name, uint64_t bytes, struct err *err);
void scratch_clear(struct scratch *s);

/* N bytes, aligned to 8, not zeroed; NULL beyond the bound. */
void *scratch_take(struct scratch *s, size_t n);
void *scratch_zeroed(struct scratch *s, size_t n);
/* Counts a step that looks at BYTES bytes. */
MUST_CHECK int scratch_step(struct scratch *s, uint64_t bytes);
/* Counts a level of nesting, which scratch_leave ends. */
MUST_CHECK int scratch_enter(struct scratch *s);
void scratch_leave(struct scratch *s);

/* Sets ERR_INPUT "NAME:LINE: " and the formatted cause; returns -1. */
int scratch_fail(struct scratch *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
