/* planner - which layouts of a cluster fit, and how fast they would be
 *
 * Every layout over tp, pp and dp that uses all devices is tried with every ZeRO stage,
 * recomputation and micro-batch that makes sense; what does not fit is not tried again
 * with a larger micro-batch, which needs no less.  Those that fit are timed: products
 * at the rate that large ones reach, sums over tp and messages between stages by the
 * rate of the links, gradients and gathered weights by the network where they cross
 * nodes, the pipeline's idle time by the closed form of 1F1B.  The times are for
 * ranking: a model of a machine, not the machine. */
#ifndef LIB_ESTIMATE_PLANNER_H
#define LIB_ESTIMATE_PLANNER_H

#include "lib/estimate/gpu.h"
#include "lib/estimate/memory.h"

struct planner_options {
    const struct gpu *gpu;
    uint64_t gpu_memory; /* bytes */
    int gpus, per_node;
    double net;            /* bytes a second of a device to other nodes, one way */
    uint64_t global_batch; /* sequences of a step */
    struct memory_options start; /* types, sequence, optimizer: what is not searched */
};

/* A layout that fits. */
struct planned {
    struct mesh mesh;
    int zero;
    enum recompute recompute;
    uint64_t micro_batch, micro_batches;
    uint64_t memory; /* of the largest rank */
    double seconds;  /* of a step: the whole batch trained, or one token for each
                        sequence */
    double compute, tensor, pipeline, data; /* of these: products, sums over tp, idle
                                               and messages, gradients and weights */
    double tokens;                          /* a second, of all devices */
    double
        utilisation; /* the model's FLOPs as a share of all devices' peak; training */
};

/* Why layouts were passed over. */
enum planner_rule {
    RULE_MODEL,  /* the model cannot be cut so */
    RULE_NODE,   /* tp would leave the node */
    RULE_BATCH,  /* the batch does not divide */
    RULE_ZERO,   /* ZeRO with pipelines, or without replicas */
    RULE_MEMORY, /* too large */
    RULES
};
extern const char *const planner_rules[RULES];

struct planner_result {
    struct planned *plan; /* best first */
    size_t n;
    uint64_t tried, rejected[RULES];
    uint64_t evaluated; /* of those tried, whose bytes were summed */
};

/* Search.  0, or -1 with *err set; no layout that fits is n = 0.  The caller clears. */
int planner_search(struct planner_result *out, const struct model *m,
                   const struct planner_options *o, struct err *err);
void planner_result_clear(struct planner_result *r);

#endif
