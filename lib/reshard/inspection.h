/* inspection - what was found wrong with a model's files
 *
 * Findings that say the same of tensors whose names differ in their numbers alone, as
 * those of all layers, are one finding with a count. */
#ifndef LIB_RESHARD_INSPECTION_H
#define LIB_RESHARD_INSPECTION_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/pool.h"

/* By what follows for whoever loads the files. */
enum inspection_level {
    INSPECTION_ERROR,   /* results would change, or nothing loads */
    INSPECTION_WARNING, /* may surprise */
    INSPECTION_NOTE,
    INSPECTION_LEVELS
};
extern const char *const inspection_words[]; /* "error", ... */

struct inspection_finding {
    enum inspection_level level;
    const char *file, *tensor; /* TENSOR may be NULL */
    const char *text;          /* one line, no full stop */
    uint64_t others;           /* further tensors of which this is true */
    struct inspection_finding *next;
};

/* `struct inspection o = { 0 }` has found nothing. */
struct inspection {
    struct inspection_finding *first[INSPECTION_LEVELS]; /* in the order of finding */
    uint64_t found[INSPECTION_LEVELS]; /* findings, those of .others counted */
    uint64_t files, tensors, bytes;    /* looked at: weight files, tensors, bytes */
    struct pool pool;                  /* private, as the rest */
    struct inspection_finding *last[INSPECTION_LEVELS];
    struct inspection_place *bucket[1 << 10];
};

void inspection_clear(struct inspection *o);
/* Adds a finding about TENSOR (or NULL) of FILE. */
void inspection_add(struct inspection *o, enum inspection_level level, const char *file,
                    const char *tensor, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Adds the bad input *E as a finding about FILE, whose path PATH is taken off the text,
 * and returns 0; any other error becomes *ERR: -1. */
MUST_CHECK int inspection_take(struct inspection *o, enum inspection_level level,
                               const char *file, const char *path, const struct err *e,
                               struct err *err);

#endif
