/* planner - which layouts of a cluster fit, and how fast they would be
 *
 * Every layout over tp, sp, ep, dp and pp that uses all devices is tried with every
 * ZeRO stage, recomputation, size of micro-batch and order of the pipeline that makes
 * sense, but for what its options keep.  What fits is timed (steptime.h) from below;
 * then those that may be among the fastest are simulated, until no other can be. */
#ifndef LIB_ESTIMATE_PLANNER_H
#define LIB_ESTIMATE_PLANNER_H

#include "lib/estimate/steptime.h"

struct planner_options {
    struct machine machine;
    uint64_t gpu_memory; /* bytes */
    int gpus;
    uint64_t global_batch;       /* sequences of a step */
    struct memory_options start; /* types, sequence, optimizer: what is not searched */
    int top;                     /* layouts that are wanted */
    /* What is kept instead of searched: 0, or -1 of the enumerations, where nothing is
     */
    int size[MESH_NAXES];
    uint64_t micro_batch;
    int zero, recompute, order, chunks;
};
/* Nothing kept. */
void planner_options_init(struct planner_options *o);

/* A layout that fits. */
struct planned {
    struct mesh mesh;
    int zero;
    enum recompute recompute;
    bool sequence_parallel; /* values that are whole over tp are cut by tokens */
    struct pipe_order order;
    uint64_t micro_batch, micro_batches;
    uint64_t memory;  /* of the largest rank */
    uint64_t states;  /* of it those of the optimizer */
    struct step step; /* the whole batch trained, or one token for each sequence */
    double tokens;    /* a second, of all devices */
    double
        utilisation; /* the model's FLOPs as a share of all devices' peak; training */
    const struct profile *profile; /* private, as is: */
    bool simulated;                /* or needs no simulation */
};

/* What a layout is a choice of. */
enum planner_choice {
    CHOICE_TP,
    CHOICE_SP,
    CHOICE_EP,
    CHOICE_PP,
    CHOICE_ZERO,
    CHOICE_RECOMPUTE,
    CHOICE_SIZE, /* of a micro-batch */
    CHOICE_ORDER,
    CHOICES
};

/* Why layouts were passed over. */
enum planner_rule {
    RULE_MODEL,     /* the model cannot be cut so */
    RULE_NODE,      /* tp would leave the node */
    RULE_BATCH,     /* the batch does not divide */
    RULE_ZERO,      /* ZeRO with pipelines, or without replicas */
    RULE_MEMORY,    /* too large */
    RULE_SEQUENCE,  /* the sequence does not divide */
    RULE_SCHEDULE,  /* an order that the numbers do not suit */
    RULE_RECOMPUTE, /* what would be recomputed is not kept */
    RULE_EXPERTS,   /* ep without experts */
    RULE_KEPT,      /* axes that do not divide the devices */
    RULES
};
extern const char *const planner_rules[RULES];
/* Their names in output that programs read, which stay as they are. */
extern const char *const planner_codes[RULES];

struct planner_result {
    struct planned *plan; /* the fastest, best first: as many as were wanted */
    size_t n;
    struct planned other[CHOICES]; /* the fastest that chooses otherwise than the best;
                                      seconds 0: none that fits does */
    uint64_t tried, rejected[RULES], fit;
    uint64_t evaluated; /* layouts whose bytes were summed: what a smaller micro-batch
                           was too large for is not summed again */
    uint64_t simulated; /* pipelines */
};

/* Search.  0, or -1 with *err set; no layout that fits is n = 0.  The caller clears. */
MUST_CHECK int planner_search(struct planner_result *out, const struct model *m,
                              const struct planner_options *o, struct err *err);
void planner_result_clear(struct planner_result *r);

#endif
