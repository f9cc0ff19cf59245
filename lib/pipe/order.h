/* order - the schedules that are known, by name
 *
 * gpipe: Huang et al. 2019.  1f1b: Narayanan et al. 2019.  interleaved: Narayanan et
 * al. 2021, with groups of micro-batches as PyTorch makes them.  zb-h1, zb-h2, zb-v: Qi
 * et al. 2023 and 2024.  zb-interleaved: the same of interleaved, as in PyTorch.
 * dualpipe, dualpipev: DeepSeek-AI 2024 and Qi et al. 2025: forward and backward passes
 * of different micro-batches run in pairs, one's exchanges behind the other's products.
 * v-min, v-half: Qi et al. 2024 (vshape.h). */
#ifndef LIB_PIPE_ORDER_H
#define LIB_PIPE_ORDER_H

#include "lib/pipe/action.h"

enum order {
    ORDER_NAIVE, /* one micro-batch after another */
    ORDER_GPIPE,
    ORDER_1F1B,
    ORDER_INTERLEAVED,
    ORDER_ZB_H1,
    ORDER_ZB_H2,
    ORDER_ZB_V,
    ORDER_DUALPIPE, /* two copies of the model, from both ends */
    ORDER_DUALPIPE_V,
    ORDER_ZB_INTERLEAVED,
    ORDER_V_MIN,  /* zb-v with a third of its memory, */
    ORDER_V_HALF, /* or half */
    ORDERS
};
extern const char *const order_names[ORDERS + 1];

/* Stages of a rank: 2 of zb-v, v-min, v-half, dualpipe and dualpipev, 1 of others;
 * interleaved and zb-interleaved have this or more. */
int order_chunks(enum order name);
/* May it have more? */
bool order_interleaves(enum order name);
/* Do its passes run in pairs? */
bool order_pairs(enum order name);
/* Does the last stage lie on the rank of the first, the middle on the last rank? */
bool order_folds(enum order name);

/* Are gradients of inputs made apart from those of weights, of some passes at least? */
bool order_splits(enum order name);

/* Make the table of NAME for RANKS ranks with CHUNKS stages each (order_chunks).
 * ERR_USAGE when the numbers do not suit the order. */
MUST_CHECK int order_make(struct action_table *t, enum order name, int ranks,
                          int micro_batches, int chunks, struct err *err);

#endif
