/* order - the schedules that are known, by name
 *
 * gpipe: Huang et al. 2019.  1f1b: Narayanan et al. 2019.  interleaved: Narayanan et
 * al. 2021.  zb-h1, zb-h2, zb-v: Qi et al. 2023 and 2024. */
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
    ORDERS
};
extern const char *const order_names[ORDERS + 1];

/* Make the table of NAME for RANKS ranks with CHUNKS stages each (1 but for interleaved
 * and zb-v, which has 2).  ERR_USAGE when the numbers do not suit the order. */
MUST_CHECK int order_make(struct action_table *t, enum order name, int ranks,
                          int micro_batches, int chunks, struct err *err);

#endif
