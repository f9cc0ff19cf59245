/* planner - searches the layouts of a cluster for the fastest ones that fit
 *
 * Tries every layout over tp, sp, ep, dp and pp that uses all devices, with every ZeRO
 * stage, recomputation, micro-batch size and pipeline schedule that makes sense, except
 * those that the options fix.  Each layout that fits gets a lower bound of its time
 * (steptime.h); then pipelines are simulated in the order of their bounds, until no
 * other layout can be among the fastest. */
#ifndef LIB_ESTIMATE_PLANNER_H
#define LIB_ESTIMATE_PLANNER_H

#include "lib/estimate/steptime.h"

struct planner_options {
    struct machine machine;
    uint64_t gpu_memory; /* bytes to plan for */
    uint64_t all_memory; /* bytes of the device; 0: as many */
    int gpus;
    uint64_t global_batch;       /* sequences of a step */
    struct memory_options start; /* what is not searched: types, sequence, optimizer */
    const enum dtype *stored;    /* of the weights where START names no type, or NULL */
    int top;                     /* number of layouts to return */
    struct {
        uint64_t tokens, output; /* of a request: of its prompt, and after it; 0: an
                                    inference is timed for one token of each text */
        double first, next;      /* wanted times in seconds; 0: any */
    } requests;
    /* Fixed choices; 0, or -1 for zero and order: search. */
    int size[MESH_NAXES];
    uint64_t micro_batch;
    int zero, order, chunks;
    unsigned recompute; /* set of 1 << way; 0: all that are searched */
    int etp; /* memory_options.etp; size[MESH_EP] then counts all ranks that share out
                experts. 0: of Megatron both are tried, of others all tensor ranks */
    bool searches_offload; /* if nothing fits, activations, optimizer states, and these
                              and weights are tried on the host */
};
/* Fixes nothing. */
void planner_options_init(struct planner_options *o);

/* True if M has experts that can be sharded over ep. */
bool planner_has_experts(const struct model *m);

/* A layout that fits. */
struct planned {
    struct mesh mesh;
    int zero, hsdp; /* ranks of a shard group; 0: all */
    int etp;        /* memory_options.etp */
    enum recompute recompute;
    bool sequence_parallel; /* Megatron's: values replicated over tp are split by
                             * tokens */
    struct pipe_order order;
    uint64_t micro_batch, micro_batches;
    uint64_t memory;            /* bytes of the largest rank */
    uint64_t states;            /* bytes of the largest rank's optimizer states */
    uint64_t host;              /* bytes that the largest rank offloads */
    struct step_time step;      /* one training step; or one token for each sequence */
    struct request_times times; /* of planner_options.requests */
    double late;                /* by what factor these miss what is wanted; 1: they do
                                   not; 0: it is not asked */
    uint64_t most;              /* requests that fit */
    double tokens;              /* tokens/s of all devices */
    double utilisation;         /* MFU: model FLOPs / peak of all devices; training */
    const struct profile *profile; /* private */
    size_t apart;                  /* private: index of the profile */
    bool simulated;                /* private: step is exact, not a bound */
};

/* Ranks that share out P's experts: those of its mesh's ep, and where experts are
 * folded tensor ranks. */
int planned_ep(const struct planned *p);

/* The choices that make a layout. */
enum planner_choice {
    CHOICE_TP,
    CHOICE_SP,
    CHOICE_EP,
    CHOICE_PP,
    CHOICE_ZERO,
    CHOICE_RECOMPUTE,
    CHOICE_SIZE, /* micro-batch size */
    CHOICE_ORDER,
    CHOICES
};

/* Why layouts were rejected. */
enum planner_rule {
    RULE_MODEL,     /* the model cannot be sharded so */
    RULE_NODE,      /* tp would cross nodes */
    RULE_BATCH,     /* the batch is not divisible */
    RULE_ZERO,      /* ZeRO in a pipeline, or without replicas */
    RULE_MEMORY,    /* does not fit */
    RULE_SEQUENCE,  /* the sequence is not divisible */
    RULE_SCHEDULE,  /* the schedule does not exist for these numbers */
    RULE_RECOMPUTE, /* what would be recomputed is not saved */
    RULE_EXPERTS,   /* ep without experts */
    RULE_KEPT,      /* the fixed axes do not divide the devices */
    RULE_FRAMEWORK, /* the framework does not have it */
    RULES
};
extern const char *const planner_rules[RULES];
/* Their names in JSON, which do not change. */
extern const char *const planner_codes[RULES];

struct planner_result {
    struct planned *plan; /* the fastest, best first; at most .top */
    size_t n;
    struct planned other[CHOICES]; /* the fastest with another choice than the best;
                                      step seconds 0: none fits */
    uint64_t tried, rejected[RULES], fit;
    uint64_t evaluated; /* layouts whose memory was estimated.  A layout is skipped if a
                           smaller micro-batch did not fit already */
    uint64_t simulated; /* number of pipelines simulated */
    int offload;        /* of all plans, as offload_word */
    bool tight;         /* the caller's: they leave less than was wanted */
    bool almost; /* some layout that does not fit needs no more than all_memory */
};

/* Searches.  0, with n = 0 if nothing fits; -1 with *err set.  The caller clears
 * *out. */
MUST_CHECK int planner_search(struct planner_result *out, const struct model *m,
                              const struct planner_options *o, struct err *err);
void planner_result_clear(struct planner_result *r);

#endif
