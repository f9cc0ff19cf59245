/* memory - the bytes that each rank of a layout needs, by category
 *
 * For inference or training.  Formulas and their sources are in memory.c.  Ranks with
 * equal bytes form one kind.
 *
 * Each category has its own peak.  In training these peaks do not coincide; the total
 * is the largest sum at one moment. */
#ifndef LIB_ESTIMATE_MEMORY_H
#define LIB_ESTIMATE_MEMORY_H

#include "lib/base/format.h"
#include "lib/device/optimizers.h"
#include "lib/estimate/costmodel.h"
#include "lib/estimate/weighttype.h"
#include "lib/pipe/order.h"
#include "lib/program/recompute.h"
#include "lib/reshard/summary.h"
#include "lib/run/lossroom.h"

enum memory_category {
    MEMORY_WEIGHTS,
    MEMORY_GRADIENTS,
    MEMORY_OPTIMIZER,   /* optimizer states and f32 master weights */
    MEMORY_ACTIVATIONS, /* saved activations; in inference: values of one step */
    MEMORY_LOGITS,      /* logits and what the loss makes of them */
    MEMORY_WORKING,     /* temporary buffers of a layer's backward pass: gradients of
                           activations */
    MEMORY_KV_CACHE,
    MEMORY_COMM,          /* buckets, messages, gathered weights of ZeRO-3 */
    MEMORY_RUNTIME,       /* the device's context and its libraries */
    MEMORY_FRAGMENTATION, /* unusable gaps of the allocator */
    MEMORY_CATEGORIES
};
extern const char *const memory_category_names[MEMORY_CATEGORIES + 1];

enum offload { OFFLOAD_NONE, OFFLOAD_OPTIMIZER, OFFLOAD_PARAMS, OFFLOAD_STATES };

/* Words for what is offloaded: word OFFLOAD_STATES + K is K's with activations. */
enum { OFFLOAD_WORDS = 2 * OFFLOAD_STATES };
extern const char *const offload_names[OFFLOAD_WORDS + 1];

/* The framework whose memory use is modelled (habits.h). */
enum framework {
    FRAMEWORK_NONE, /* closed forms: what a step must hold */
    FRAMEWORK_MEGATRON,
    FRAMEWORK_TORCHTITAN,
    FRAMEWORK_DEEPSPEED,
    FRAMEWORK_TP_RUN,
    FRAMEWORK_VLLM, /* inference alone */
    FRAMEWORKS
};
extern const char *const framework_names[FRAMEWORKS + 1];

/* What tp-run train takes where it is not told: tokens of a sample, at most, and
 * samples of a step. */
enum { TP_RUN_SEQ = 1024, TP_RUN_GLOBAL = 8 };

/* The stages of a pipeline rank. */
enum fold {
    FOLD_NONE, /* one stage, or interleaved chunks */
    FOLD_V,    /* one chunk of the first half of the model and one of the second; rank 0
                  has    both ends (zb-v, v-min, v-half) */
    FOLD_TWICE /* its own stage and that of the opposite rank (dualpipe) */
};

/* All inputs of an estimate. */
struct memory_options {
    struct mesh mesh;
    enum framework framework;
    bool train;
    uint64_t micro_batch;   /* sequences of a micro-batch */
    uint64_t micro_batches; /* micro-batches of a step */
    uint64_t seq;           /* tokens of a sequence */
    const struct weight_type
        *weights; /* NULL: as stored, or OTHER without a checkpoint */
    const struct weight_type
        *other;             /* type of weights that WEIGHTS does not quantize */
    uint64_t compute_bytes; /* per element of an activation */
    bool half;              /* of tp-run, 2 bytes: products are in f16, not bf16 */
    enum format kv_format;  /* of the KV cache; of codes, */
    bool kv_scales;         /* each row has scales, as in tp-run */
    uint64_t kv_block;      /* tokens of a block of it, 1: no blocks */
    uint64_t prefill; /* prompt tokens of a step, beside one decoded token of each other
                         sequence; 0: all tokens at once */
    int threads; /* of a rank of tp-run generate on a CPU; 0: it is not asked (served.h)
                  */
    bool cuda;   /* tp-run generate on GPUs */
    bool codes;  /* tp-run --weights codes: where it is asked */
    bool no_bf16;          /* whose tensor cores do not multiply bf16 */
    uint64_t cache_tokens; /* capacity of the KV cache over all sequences; 0: all fit */
    /* Activations in flight on each stage under the schedule: [pp], in thousandths of
     * those that one micro-batch leaves on the whole stage. */
    const uint64_t *inflight;
    int chunks; /* model chunks of a stage; 0: as 1 */
    /* Of tp-run train, whose ranks may have several stages each: the rank that has each
     * and the most micro-batches in flight on it, [nstages].  0: one a rank. */
    const int *rank_of, *flights;
    int nstages;
    int across; /* of tp-run train: ranks of sp among which heads are divided, of whose
                   groups a ring is made; 0: all */
    bool split; /* gradients of inputs are made apart from those of weights */
    enum fold fold;
    uint64_t grad_bytes;
    enum optimizer_kind optimizer;
    bool master; /* f32 master copies of narrower weights */
    int zero;    /* ZeRO stage, 0 to 3 */
    int etp;  /* tensor ranks of an expert: a divisor of the mesh's, whose other ranks
                 share  out experts as those of ep do (Megatron's folding); 0: all of
                 them
               */
    int hsdp; /* ranks of a shard group; 0: all replicas */
    enum offload offload;
    bool away; /* what layers save for the backward pass is copied to the host */
    enum recompute recompute;
    int recompute_layers;       /* as recompute_plan.layers */
    const struct own_work *own; /* [pp]: of tp-run, the reverse of its first tensor
                                   rank's programs (work.h); NULL: by layers */
    bool sequence_parallel;     /* Megatron's: values replicated over tp are split by
                                 * tokens */
    bool flash, fused_loss, dropout;
    bool deterministic; /* tp-run's sums have the same bits on all layouts */
    bool eager;         /* PyTorch's eager mode: one kernel per operation */
    uint64_t lora_rank; /* 0: no LoRA */
    const char *lora_targets, *lora_saved, *freeze, *only;
    bool dora;
    bool logits;                  /* of tp-run: the loss is one of logits, */
    enum lossroom loss;           /* for which there is this room, */
    uint64_t documents;           /* and a sample has so many; 0: one */
    struct training_cache *cache; /* reused by a search (training.h), or NULL */
    uint64_t runtime;             /* bytes of MEMORY_RUNTIME */
    double fragmentation; /* fraction of activations, logits, buffers and messages */
};

/* The moment of the peak. */
enum memory_moment {
    MOMENT_FORWARD, /* a step of inference */
    MOMENT_LOSS,
    MOMENT_BACKWARD, /* the backward pass of the layer with the largest sum */
    MOMENTS
};
extern const char *const memory_moment_names[MOMENTS + 1];

struct rank_memory {
    int coord[MESH_NAXES];             /* coordinates of the first rank of this kind */
    uint64_t count;                    /* number of ranks of this kind */
    uint64_t bytes[MEMORY_CATEGORIES]; /* each category's own peak */
    uint64_t peak[MEMORY_CATEGORIES];  /* bytes at the moment of the largest sum */
    enum memory_moment moment;
    uint64_t total; /* sum of peak */
    uint64_t host;  /* bytes offloaded to the host's memory */
};

struct memory_estimate {
    struct rank_memory *kind;
    size_t nkinds;
    const struct rank_memory *peak; /* the kind with the largest total */
};

/* What O offloads, as an index of offload_names, and back. */
int offload_word(const struct memory_options *o);
void offload_set(struct memory_options *o, int word);

/* Estimates the memory for M, whose weights are stored as STORED, or NULL.  ERR_NO if
 * the layout is impossible, ERR_USAGE if a number overflows.  The caller clears *e. */
MUST_CHECK int memory_estimate(struct memory_estimate *e, const struct model *m,
                               const enum dtype *stored, const struct memory_options *o,
                               struct err *err);
void memory_estimate_clear(struct memory_estimate *e);

/* Which stages a rank has under ORDER. */
enum fold memory_fold(enum order order);

/* The options of a costmodel for O. */
struct costmodel_options memory_costmodel(const struct memory_options *o);

/* The costmodels of a mesh's ranks; ranks with equal shards share one. */
struct costmodels {
    struct known *known;
    size_t n;
};
/* The costmodel of the rank at COORD of O's mesh, borrowed; NULL with *err set. */
const struct costmodel *costmodels_at(struct costmodels *all, const struct model *m,
                                      const enum dtype *stored,
                                      const struct memory_options *o,
                                      const int coord[MESH_NAXES], struct err *err);
/* Makes the costmodels of all tp and ep ranks of O's mesh, rank 0's first.  In
 * training, ranks that have no more of anything than another one are left out: they
 * need no more bytes. */
MUST_CHECK int costmodels_all(struct costmodels *all, const struct model *m,
                              const enum dtype *stored, const struct memory_options *o,
                              struct err *err);
/* The coordinates of the I'th costmodel's first rank. */
const int *costmodels_coord(const struct costmodels *all, size_t i);
/* The I'th costmodel, or NULL. */
const struct costmodel *costmodels_get(const struct costmodels *all, size_t i);
/* Frees their programs (costmodel_drop_program). */
void costmodels_drop_programs(struct costmodels *all);
void costmodels_clear(struct costmodels *all);

/* Bytes per logit at the loss, with everything that the loss makes of it. */
uint64_t memory_of_logit(const struct costmodel *a, const struct memory_options *o);
/* Estimates one rank, with costmodel A, on stage STAGE; sets all of *out but coord and
 * count. False on overflow. */
bool memory_of_stage(struct rank_memory *out, const struct costmodel *a,
                     const struct memory_options *o, int stage);

#endif
