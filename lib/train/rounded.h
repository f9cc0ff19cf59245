/* rounded - the weights in bf16 or f16 that products read in mixed precision
 *
 * The store keeps and updates f32 numbers (Micikevicius et al. 2018, "Mixed Precision
 * Training": master weights); engines get the copies, which are made before the first
 * step and after each update. */
#ifndef LIB_TRAIN_ROUNDED_H
#define LIB_TRAIN_ROUNDED_H

#include "lib/train/parameters.h"

struct rounded {
    struct parameters *p;
    uint16_t *copy; /* [n], device: of the weights that are rounded, in their order */
    uint64_t n;
    enum format format;
    bool *is;     /* [nweights] */
    bool current; /* the copies are those of the weights as they are */
};

/* Allocates the copies, of FORMAT, for P, which must outlive *r, and makes them the
 * matrices that its engines will read. */
MUST_CHECK int rounded_open(struct rounded *r, struct parameters *p, enum format format,
                            struct err *err);
void rounded_close(struct rounded *r);
/* Makes the copies, unless they are current.  Without an open *r, nothing. */
MUST_CHECK int rounded_make(struct rounded *r, struct err *err);
/* Adds them, as "weights". */
void rounded_memory(const struct rounded *r, struct ledger *list);

#endif
