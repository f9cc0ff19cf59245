/* axis - one axis of a tensor or value, written as the size it has
 *
 * "heads*head_dim", "q:heads*head_dim + k:kv_heads*head_dim", "heads*(q:1 + k:1 +
 * v:1)*head_dim": factors in memory order, segments named.  An axis is kept as leaves,
 * one per segment, in memory order; a leaf is a row of digits (mixed radix) with their
 * strides.  A symbol that is dealt in groups is written by its digits: heads =
 * kv_heads*group, so equal axes look equal. An axis is immutable and owned by the table
 * that made it. */
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
    int sym;         /* index of its symbol; -1 for a plain number */
    uint64_t size;   /* values it takes */
    uint64_t stride; /* elements of the axis between two values */
    uint64_t div;    /* digit = (unit / div) % size; 1 but for a symbol's outer digit */
};

struct leaf {
    char segment[32]; /* "" when the axis has one unnamed part */
    uint64_t base;    /* offset of its first element */
    uint64_t size;    /* product of its digits' sizes */
    int n;
    struct digit digit[AXIS_MAX_DIGITS]; /* outermost first */
};

struct axis {
    char *text; /* as written in the family */
    uint64_t
        size; /* elements: the sum of the leaves, divided by the block, rounded up */
    uint64_t block; /* elements of the leaves that one element stands for; 1, but for
                       the scales and packed values of quantised weights */
    int n;
    struct leaf *leaf;
};

/* What an axis expression may refer to: symbols by name, with their values, and how
 * they are dealt.  Filled by the model (see model.h). */
struct axis_symbol {
    const char *name;
    uint64_t value;
    bool dealt;        /* some mesh axis deals it */
    int group, within; /* symbols of its digits when dealt in groups, else -1, -1 */
};

struct axis_scope {
    const struct axis_symbol *sym;
    int n;
};

/* Parse TEXT.  On failure *err says the column within TEXT: "column 7: cause"; *out
 * untouched. */
MUST_CHECK int axis_parse(struct axis *out, const char *text,
                          const struct axis_scope *scope, struct err *err);
/* Make an axis of one unnamed leaf with the digits of A's segment SEGMENT; false if it
 * has none. */
bool axis_segment(struct axis *out, const struct axis *a, const char *segment);
/* Make A's axis in blocks of BLOCK elements, the last of which may be shorter. */
void axis_divide(struct axis *out, const struct axis *a, uint64_t block);
/* True when the share of a part is whole blocks. */
bool axis_is_aligned(const struct axis *a, const struct axis_scope *scope,
                     const struct share *share);
void axis_copy(struct axis *out, const struct axis *a);
void axis_clear(struct axis *a);

/* Same leaves: segments and digits (symbol and size), in order. */
bool axis_equal(const struct axis *a, const struct axis *b);

/* The dealt symbol in A that PART cuts, or -1: the first digit whose symbol is
 * dealt. */
int axis_dealt(const struct axis *a, const struct axis_scope *scope);

/* A run of consecutive elements of an axis that a part holds. */
struct run {
    uint64_t start, count; /* elements of the whole axis */
    bool owned;            /* this part is the one that counts */
};

struct runs {
    struct run *v;
    size_t n;
    uint64_t count; /* elements held: the sum of the counts */
};

/* The runs of A held by a part whose share of symbol i is SHARE[i] (the whole range
 * where it is not cut), as programs have them in memory: segment by segment, in each
 * unit by unit, then the rest.  The caller releases with runs_clear. */
void axis_runs(struct runs *out, const struct axis *a, const struct axis_scope *scope,
               const struct share *share);
/* The same in the order of the axis, as files have them. */
void axis_ordered_runs(struct runs *out, const struct axis *a,
                       const struct axis_scope *scope, const struct share *share);
/* Elements the part holds of A or (SEGMENT not NULL) of that segment: axis_runs'
 * count. */
uint64_t axis_count(const struct axis *a, const char *segment,
                    const struct axis_scope *scope, const struct share *share);
void runs_clear(struct runs *r);

/* Write A's normal form ("kv_heads*group*head_dim") for messages. */
void axis_print(struct str *out, const struct axis *a, const struct axis_scope *scope);

#endif
