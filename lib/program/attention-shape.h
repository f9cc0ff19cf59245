/* attention-shape - numbers that describe attention, in instructions and kernels */
#ifndef LIB_PROGRAM_ATTENTION_SHAPE_H
#define LIB_PROGRAM_ATTENTION_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
#define ATTENTION_MEMBERS                                                              \
    uint64_t heads, kv_heads; /* on this rank; head h reads KV head                    \
                               * h / (heads / kv_heads) */                             \
    uint64_t head_dim, value_dim;                                                      \
    uint64_t value_cols; /* columns of a head in v; it reads value_dim */              \
    uint64_t group_start, per_group, within_start, all_heads; /* of the full model:    \
                          * global head = (group_start + g) * per_group + within_start \
                          * + i */                                                     \
    uint64_t window; /* a query sees the keys at distance < window; 0: all */          \
    uint64_t far; /* relative bias: all distances from far on share a bucket; the      \
                   * instruction's weight is the table [buckets][heads].  OP_RELATE:   \
                   * 0: each distance has a row of its own */                          \
    double scale, softcap; /* softcap 0: none */                                       \
    double alibi; /* alibi * slope of the head * distance is added to the scaled score \
                   * (Press et al. 2022); 0: nothing */                                \
    uint64_t block, over; /* texts of more than OVER keys are read in blocks of BLOCK: \
                           * see positions_in_blocks.  0: none are.                    \
                           * OP_SIDE_ATTENTION: so many tokens have a side row */      \
    double copies; /* how often the keys of the first block count */                   \
    bool causal;                                                                       \
    bool chunked; /* the window begins at a multiple of its size */                    \
    uint64_t bias_first; /* column of the table for the first head held */             \
    uint64_t sink_group, sink_within, sink_per; /* the sink of head i of group g is at \
                          * (sink_group + g) * sink_per + sink_within + i */
/* clang-format on */

struct attention_shape {
    ATTENTION_MEMBERS
};

/* These members by their own names, and as SHAPE, by which they are copied. */
#define ATTENTION_SHAPE               \
    union {                           \
        struct attention_shape shape; \
        struct {                      \
            ATTENTION_MEMBERS         \
        };                            \
    }

#endif
