/* scratch - the memory and the steps of one template, bounded */
#include "lib/text/template/scratch.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/mem.h"

/* A step of a rendering takes some 50 ns, so that the least bound ends a hostile
 * template within a third of a second; a chat of a thousand long messages takes a
 * tenth of its bound. */
enum {
    STEPS = 4000000,
    STEPS_PER_BYTE = 64,
    BYTES_PER_STEP = 64, /* copied or compared */
    LEVELS = 800
};

void scratch_init(struct scratch *s, const char *name, uint64_t bytes, struct err *err)
{
    *s = (struct scratch){ .name = name,
                           .line = 1,
                           .err = err,
                           .most_bytes = mem_allowance(bytes),
                           .most_steps = STEPS + STEPS_PER_BYTE * bytes };
}

void scratch_clear(struct scratch *s)
{
    pool_clear(&s->pool);
}

int scratch_fail(struct scratch *s, const char *fmt, ...)
{
    char cause[sizeof(s->err->text)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(cause, sizeof(cause), fmt, ap);
    va_end(ap);
    return err_set(s->err, ERR_INPUT, "%s:%lu: %s", s->name, (unsigned long)s->line,
                   cause);
}

void *scratch_take(struct scratch *s, size_t n)
{
    if (n > s->most_bytes || s->pool.taken > s->most_bytes - n) {
        scratch_fail(s, "the template needs more than %llu MiB of memory",
                     (unsigned long long)(s->most_bytes >> 20));
        return NULL;
    }
    return pool_take(&s->pool, n ? n : 1, 8);
}

void *scratch_zeroed(struct scratch *s, size_t n)
{
    void *p = scratch_take(s, n);

    return p ? memset(p, 0, n) : NULL;
}

int scratch_step(struct scratch *s, uint64_t bytes)
{
    s->steps += 1 + bytes / BYTES_PER_STEP;
    if (s->steps <= s->most_steps)
        return 0;
    return scratch_fail(s, "the template takes more than %llu steps",
                        (unsigned long long)s->most_steps);
}

int scratch_enter(struct scratch *s)
{
    if (s->depth < LEVELS) {
        s->depth++;
        return 0;
    }
    return scratch_fail(s, "the template is nested deeper than %d levels", LEVELS);
}

void scratch_leave(struct scratch *s)
{
    s->depth--;
}
