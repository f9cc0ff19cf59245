/* recompute - what a training step computes again instead of saving it
 *
 * The words of --recompute, for every program that has the option. */
#ifndef LIB_PROGRAM_RECOMPUTE_H
#define LIB_PROGRAM_RECOMPUTE_H

#include "lib/base/err.h"

enum recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_ATTENTION, /* what lies inside attention (Korthikanti et al. 2022,
                            "Reducing Activation Recomputation": selective) */
    RECOMPUTE_FULL,      /* everything; only a layer's input is saved (Chen et al. 2016,
                            "Training Deep Nets with Sublinear Memory Cost") */
    RECOMPUTE_PRODUCTS,  /* everything except the results of attention and of every
                            second product, which are saved */
    RECOMPUTE_KINDS
};
extern const char *const recompute_names[]; /* ends with NULL */

struct recompute_plan {
    enum recompute kind;
    int layers; /* with RECOMPUTE_FULL: only the first so many layers of each stage; 0:
                   all of them */
};

/* Parses the value of --recompute: a name, "selective" for attention, or a number of
 * layers, 0 for none.  ERR_USAGE if TEXT is something else. */
MUST_CHECK int recompute_parse(struct recompute_plan *out, const char *text,
                               struct err *err);
/* The word for PLAN, or its number; borrowed, or written to BUFFER. */
enum { RECOMPUTE_TEXT = 16 };
const char *recompute_text(const struct recompute_plan *plan,
                           char buffer[RECOMPUTE_TEXT]);

#endif
