/* axis - one axis of a tensor or value, as a product of named sizes
 *
 * "heads*head_dim", "q:heads*head_dim + k:kv_heads*head_dim", "heads*(q:1 + k:1 +
 * v:1)*head_dim": factors in memory order, outermost first; segments have names.  An
 * axis is stored as leaves, one per segment, in memory order.  A leaf is a mixed-radix
 * number: digits with sizes and strides.  A symbol that is sharded in groups is
 * replaced by its digits (heads = kv_heads*group), so that equal axes compare equal. An
 * axis does not change after it is made. */
#ifndef LIB_MODEL_AXIS_H
#define LIB_MODEL_AXIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/model/deal.h"

enum { AXIS_MAX_DIGITS = 8, AXIS_MAX_LEAVES = 64 };

struct digit {
    int sym;         /* index of its symbol; -1: a plain number */
    uint64_t size;   /* number of values */
    uint64_t stride; /* elements of the axis from one value to the next */
    uint64_t div;    /* digit = (unit / div) % size; 1 except for symbol.outer(n) */
};

struct leaf {
    char segment[32]; /* "" if the axis has one unnamed leaf */
    uint64_t base;    /* offset of its first element in the axis */
    uint64_t size;    /* product of its digits' sizes */
    int n;
    struct digit digit[AXIS_MAX_DIGITS]; /* outermost first */
};

struct axis {
    char *text;    /* as the family file has it */
    uint64_t size; /* elements: sum of the leaves' sizes divided by block, rounded up */
    uint64_t block; /* elements of the leaves per element of the axis: above 1 for
                       scales and packed values of quantized weights */
    int n;
    struct leaf *leaf;
};

/* The symbols that an axis may name.  lib/model fills it (model.h). */
struct axis_symbol {
    const char *name;
    uint64_t value;
    bool dealt;        /* sharded over some mesh axis: the family's "deal" names it */
    int group, within; /* sharded in groups: symbols of its two digits; else -1, -1 */
};

struct axis_scope {
    const struct axis_symbol *sym;
    int n;
};

/* Parses TEXT.  On failure *err is "column 7: cause", counted in TEXT, and *out is
 * untouched.  The caller releases *out with axis_clear. */
MUST_CHECK int axis_parse(struct axis *out, const char *text,
                          const struct axis_scope *scope, struct err *err);
/* Sets *out to an axis of one unnamed leaf, with the digits of A's segment SEGMENT;
 * false if A has no such segment. */
bool axis_segment(struct axis *out, const struct axis *a, const char *segment);
/* Sets *out to A divided into blocks of BLOCK elements; the last one may be shorter. */
void axis_divide(struct axis *out, const struct axis *a, uint64_t block);
/* True if the shard consists of whole blocks. */
bool axis_is_aligned(const struct axis *a, const struct axis_scope *scope,
                     const struct share *share);
/* Sets *out to A, which has one leaf, with the further digit D, written TEXT, at its
 * end; false if it would have too many.  The caller releases *out with axis_clear. */
MUST_CHECK bool axis_append(struct axis *out, const struct axis *a,
                            const struct digit *d, const char *text);
void axis_copy(struct axis *out, const struct axis *a);
void axis_clear(struct axis *a);

/* True if the leaves are equal: segments, and digits by symbol and size, in order. */
bool axis_equal(const struct axis *a, const struct axis *b);

/* The symbol along which A is sharded: that of its first digit with a sharded symbol;
 * -1 if there is none. */
int axis_dealt(const struct axis *a, const struct axis_scope *scope);

/* Consecutive elements of an axis that a rank holds. */
struct run {
    uint64_t start, count; /* elements of the full axis */
    bool owned;            /* the primary replica of these elements */
};

struct runs {
    struct run *v;
    size_t n;
    uint64_t count; /* elements in all runs */
};

/* The runs of A on a rank that holds the units SHARE[i] of symbol i, in the order in
 * which programs keep them in memory: segment by segment, in each segment unit by unit,
 * in each unit the other digits.  The caller releases *out with runs_clear. */
void axis_runs(struct runs *out, const struct axis *a, const struct axis_scope *scope,
               const struct share *share);
/* The same in the order of the axis, as files store them. */
void axis_ordered_runs(struct runs *out, const struct axis *a,
                       const struct axis_scope *scope, const struct share *share);
/* Elements of A, or of its segment SEGMENT if not NULL, on that rank: runs.count. */
uint64_t axis_count(const struct axis *a, const char *segment,
                    const struct axis_scope *scope, const struct share *share);
void runs_clear(struct runs *r);

/* Appends A's digits ("kv_heads*group*head_dim") for messages. */
void axis_print(struct str *out, const struct axis *a, const struct axis_scope *scope);

#endif
