/* memory - the bytes that each rank of a layout needs, by category
 *
 * Inference or training.  What is counted how stands at each category; formulas with
 * their sources are in memory.c.  Ranks that need the same are told as one kind.
 *
 * Of each category the most that there ever is is told.  In training they are not all
 * there at once: the total is that of the moment when most is. */
#ifndef LIB_ESTIMATE_MEMORY_H
#define LIB_ESTIMATE_MEMORY_H

#include "lib/estimate/anatomy.h"
#include "lib/estimate/weighttype.h"
#include "lib/pipe/order.h"
#include "lib/reshard/outline.h"

enum memory_category {
    MEMORY_WEIGHTS,
    MEMORY_GRADIENTS,
    MEMORY_OPTIMIZER,   /* master weights included */
    MEMORY_ACTIVATIONS, /* kept for the backward pass; inference: of one step */
    MEMORY_LOGITS,      /* at the loss, its gradient included */
    MEMORY_WORKING,     /* gradients of values, while the backward pass is in a layer */
    MEMORY_KV_CACHE,
    MEMORY_COMM,          /* buckets, messages, ZeRO-3's gathered unit */
    MEMORY_RUNTIME,       /* the device's context and its libraries */
    MEMORY_FRAGMENTATION, /* lost between allocations */
    MEMORY_CATEGORIES
};
extern const char *const memory_category_names[MEMORY_CATEGORIES + 1];

enum optimizer {
    OPTIMIZER_ADAMW,
    OPTIMIZER_ADAM8BIT,
    OPTIMIZER_SGD,
    OPTIMIZER_MOMENTUM,
    OPTIMIZER_ADAFACTOR,
    OPTIMIZER_LION,
    OPTIMIZER_MUON
};
extern const char *const optimizer_names[];

/* What the backward pass makes again of a layer. */
enum recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_SELECTIVE, /* attention's scores */
    RECOMPUTE_FULL,      /* all but its input */
    RECOMPUTE_PRODUCTS   /* all but its input, attention's result and that of every
                            second product with weights */
};
extern const char *const recompute_names[];

enum offload { OFFLOAD_NONE, OFFLOAD_OPTIMIZER, OFFLOAD_PARAMS };
extern const char *const offload_names[];

/* Whose habits are counted (habits.h). */
enum framework {
    FRAMEWORK_NONE, /* closed forms: what has to be there */
    FRAMEWORK_MEGATRON,
    FRAMEWORK_TORCHTITAN,
    FRAMEWORK_DEEPSPEED,
    FRAMEWORK_TP_RUN,
    FRAMEWORKS
};
extern const char *const framework_names[FRAMEWORKS + 1];

/* Which stages a rank of a pipeline has. */
enum fold {
    FOLD_NONE,
    FOLD_V, /* a part of the model's first half and one of its last, the first rank both
               ends, as zb-v has them */
    FOLD_TWICE /* its own and that of the rank opposite, as dualpipe has them */
};

/* Everything that the bytes depend on. */
struct memory_options {
    struct mesh mesh;
    enum framework framework;
    bool train;
    uint64_t micro_batch;              /* sequences */
    uint64_t micro_batches;            /* of one step */
    uint64_t seq;                      /* tokens of a sequence */
    const struct weight_type *weights; /* NULL: as stored, else OTHER */
    const struct weight_type *other;   /* of what quantised WEIGHTS leave */
    uint64_t compute_bytes;            /* of one activation */
    uint64_t kv_bytes, kv_block; /* of a cache element; tokens of a block (1: none) */
    uint64_t kv_scale;           /* bytes that each head of a cache's row has besides */
    uint64_t prefill; /* tokens of prompts in a step, which decodes one of each other
                         sequence besides; 0: all */
    uint64_t cache_tokens; /* of all sequences that the cache has room for; 0: all */
    /* In-flight micro-batches of each stage, as the schedule has them: [pp], in
     * thousandths of a whole stage's activations. */
    const uint64_t *inflight;
    int chunks; /* of layers on a stage, 0: as 1 */
    enum fold fold;
    uint64_t grad_bytes;
    enum optimizer optimizer;
    bool master; /* f32 copies of weights of fewer bits */
    int zero;    /* stage 0 to 3 */
    int hsdp;    /* ranks that share a shard group; 0: all */
    enum offload offload;
    enum recompute recompute;
    bool sequence_parallel; /* Megatron's: what is whole over tp is cut by tokens */
    bool flash, fused_loss, dropout;
    bool eager;         /* each operation is run by itself, as PyTorch does */
    uint64_t lora_rank; /* 0: none */
    const char *lora_targets, *freeze;
    struct training_cache *cache; /* of a search (training.h), or NULL */
    uint64_t runtime;             /* bytes of MEMORY_RUNTIME */
    double fragmentation;         /* of activations, logits and communication */
};

/* When most is there. */
enum memory_moment {
    MOMENT_FORWARD, /* of inference */
    MOMENT_LOSS,
    MOMENT_BACKWARD, /* in the layer that makes it most */
    MOMENTS
};
extern const char *const memory_moment_names[MOMENTS + 1];

struct rank_memory {
    int coord[MESH_NAXES];             /* of the first such rank */
    uint64_t count;                    /* ranks of this kind */
    uint64_t bytes[MEMORY_CATEGORIES]; /* the most that there ever is */
    uint64_t peak[MEMORY_CATEGORIES];  /* what is there at the moment of the peak */
    enum memory_moment moment;
    uint64_t total; /* sum of peak */
    uint64_t host;  /* bytes that were moved to the host's memory */
};

struct memory_estimate {
    struct rank_memory *kind;
    size_t nkinds;
    const struct rank_memory *peak; /* that with the largest total */
};

/* Predict what M (with weights stored as STORED, or NULL) needs.  ERR_NO when the
 * layout is impossible, ERR_USAGE when a number overflows.  The caller clears *e. */
MUST_CHECK int memory_estimate(struct memory_estimate *e, const struct model *m,
                               const enum dtype *stored, const struct memory_options *o,
                               struct err *err);
void memory_estimate_clear(struct memory_estimate *e);

/* The stages of a rank under ORDER. */
enum fold memory_fold(enum order order);

/* How anatomies are made for O. */
struct anatomy_options memory_anatomy(const struct memory_options *o);

/* The anatomies of a mesh's ranks, one for those that hold equally much. */
struct anatomies {
    struct known *known;
    size_t n;
};
/* That of the rank at COORD of O's mesh, borrowed; NULL with *err set. */
const struct anatomy *anatomies_at(struct anatomies *all, const struct model *m,
                                   const enum dtype *stored,
                                   const struct memory_options *o,
                                   const int coord[MESH_NAXES], struct err *err);
/* Those of all ranks of O's mesh over tp and ep, rank 0's first; in training not of
 * ranks that have no more of anything than another, which need no more bytes. */
MUST_CHECK int anatomies_all(struct anatomies *all, const struct model *m,
                             const struct memory_options *o, struct err *err);
/* The I'th that was made, or NULL. */
const struct anatomy *anatomies_get(const struct anatomies *all, size_t i);
/* Forget their programs (anatomy_drop_program). */
void anatomies_drop_programs(struct anatomies *all);
void anatomies_clear(struct anatomies *all);

/* Bytes of a logit, and of what the loss has of it, at the loss. */
uint64_t memory_of_logit(const struct anatomy *a, const struct memory_options *o);
/* Of one rank whose anatomy is known, on stage STAGE; all but coord and count of *out
 * is set.  False on overflow. */
bool memory_of_stage(struct rank_memory *out, const struct anatomy *a,
                     const struct memory_options *o, int stage);

#endif
