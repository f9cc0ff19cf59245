/* streams - how the weights of one row's product are dealt to threads
 *
 * Each thread has WIDTH streams of units (outputs, or groups of them), LENGTH apart; a
 * task is a part of these.  The last tasks have the units that do not divide, WIDTH
 * neighbours each. */
#ifndef LIB_CPU_PRODUCT_STREAMS_H
#define LIB_CPU_PRODUCT_STREAMS_H

#include <stddef.h>
#include <stdint.h>

struct streams {
    uint64_t all; /* units */
    uint64_t threads, width;
    uint64_t length; /* units of a stream; 0: too few units for streams */
    uint64_t share;  /* units of a stream that a task has, at least 1 */
};

/* What a task does: TIMES times WIDTH units APART, the first of them at FIRST and then
 * one further each time; or COUNT units from FIRST on, fewer than WIDTH. */
struct stream_part {
    uint64_t first, apart, times, count;
};

/* Tasks of a thread. */
static inline uint64_t streams_parts(const struct streams *s)
{
    return (s->length + s->share - 1) / s->share;
}

static inline size_t streams_tasks(const struct streams *s)
{
    uint64_t rest = s->all - s->threads * s->width * s->length;

    return (size_t)(s->threads * streams_parts(s) + (rest + s->width - 1) / s->width);
}

static inline struct stream_part streams_task(const struct streams *s, size_t task)
{
    uint64_t parts = streams_parts(s), dealt = s->threads * parts;
    uint64_t at = task % parts * s->share, left = s->length - at;

    if (task >= dealt) {
        uint64_t first = s->width * (s->threads * s->length + task - dealt);
        uint64_t rest = s->all - first;

        return (struct stream_part){ first, 1, rest >= s->width,
                                     rest < s->width ? rest : 0 };
    }
    return (struct stream_part){ task / parts * s->width * s->length + at, s->length,
                                 left < s->share ? left : s->share, 0 };
}

#endif
