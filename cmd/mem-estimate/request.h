/* request - the model, layout, types and batch that an estimate is for */
#ifndef CMD_MEM_ESTIMATE_REQUEST_H
#define CMD_MEM_ESTIMATE_REQUEST_H

#include "cmd/cmd.h"
#include "cmd/meshopt.h"
#include "lib/base/str.h"
#include "lib/estimate/gpu.h"
#include "lib/estimate/measured.h"
#include "lib/estimate/memory.h"
#include "lib/pipe/order.h"
#include "lib/train/losses.h"

/* The options as given. */
struct request_options {
    struct mesh_options mesh;
    const char *weights, *compute, *kv_dtype, *grad_dtype, *lora, *saved, *freeze,
        *only, *gpu, *recompute, *gpu_file, *family, *config, *sp_mode;
    int gpus; /* ranks in all, 0: not given */
    int etp;  /* tensor ranks of an expert; 0: all */
    int micro_batch, micro_batches, global_batch, prefill, kv_block, cache_tokens, zero,
        hsdp, threads;
    uint64_t seq, gpu_memory, runtime;
    int schedule, model_chunks, framework, balance, backend;
    const char *stages;
    int loss, choices; /* of loss_choices; texts of a choice */
    int optimizer, master, offload, flash;
    bool sequence_parallel, fused_loss, dropout, eager, dora, deterministic;
    bool seq_given, memory_given, runtime_given, fragmentation_given, backend_given;
    double fragmentation, margin;
};

extern const char *const flash_names[], *const balance_names[], *const backend_names[];
/* The rank of --lora without a value. */
extern const char *const lora_rank[];
/* Common types of weights; types of activations. */
extern const char *const weight_words[], *const float_words[], *const cache_words[];

#define REQUEST_DEFAULTS                                        \
    {                                                           \
        .fragmentation = 5, .margin = 5, .schedule = ORDER_1F1B \
    }

#define REQUEST_ROW(type, name, value, arg, help, choices, given) \
    {                                                             \
        type, '\0', name, value, arg, help, choices, given        \
    }

/* Rows of the option table for every estimate, ... */
#define REQUEST_OPTIONS(r)                                                             \
    REQUEST_ROW(OPT_COUNT, "tp", &(r).mesh.tp, "N", "tensor-parallel ranks", NULL,     \
                NULL),                                                                 \
        REQUEST_ROW(OPT_COUNT, "pp", &(r).mesh.pp, "N", "pipeline stages", NULL,       \
                    NULL),                                                             \
        REQUEST_ROW(OPT_COUNT, "dp", &(r).mesh.dp, "N", NULL, NULL, NULL),             \
        REQUEST_ROW(OPT_COUNT, "micro-batch", &(r).micro_batch, "N", NULL, NULL,       \
                    NULL),                                                             \
        REQUEST_ROW(OPT_STRING, "gpu", &(r).gpu, "NAME",                               \
                    "the device, as 'gpus' names it, or 'here'", NULL, NULL),          \
        REQUEST_ROW(OPT_STRING, "weights", &(r).weights, "TYPE", NULL, weight_words,   \
                    NULL),                                                             \
        REQUEST_ROW(OPT_TOKENS, "seq", &(r).seq, "N", "tokens of a sequence", NULL,    \
                    &(r).seq_given),                                                   \
        REQUEST_ROW(OPT_STRING, "gpu-file", &(r).gpu_file, "FILE", NULL, NULL, NULL),  \
        REQUEST_ROW(OPT_SIZE, "gpu-mem", &(r).gpu_memory, "SIZE", NULL, NULL,          \
                    &(r).memory_given),                                                \
        REQUEST_ROW(OPT_COUNT, "ep", &(r).mesh.ep, "N", NULL, NULL, NULL),             \
        REQUEST_ROW(OPT_COUNT, "sp", &(r).mesh.sp, "N", NULL, NULL, NULL),             \
        REQUEST_ROW(OPT_STRING, "mesh", &(r).mesh.spec, "SPEC", NULL, NULL, NULL),     \
        REQUEST_ROW(OPT_COUNT, "micro-batches", &(r).micro_batches, "N", NULL, NULL,   \
                    NULL),                                                             \
        REQUEST_ROW(OPT_COUNT, "requests", &(r).micro_batches, "N", NULL, NULL, NULL), \
        REQUEST_ROW(OPT_COUNT, "global-batch", &(r).global_batch, "N", NULL, NULL,     \
                    NULL),                                                             \
        REQUEST_ROW(OPT_STRING, "compute", &(r).compute, "TYPE", NULL, float_words,    \
                    NULL),                                                             \
        REQUEST_ROW(OPT_SIZE, "runtime", &(r).runtime, "SIZE", NULL, NULL,             \
                    &(r).runtime_given),                                               \
        REQUEST_ROW(OPT_DOUBLE, "fragmentation", &(r).fragmentation, "PERCENT", NULL,  \
                    NULL, &(r).fragmentation_given),                                   \
        REQUEST_ROW(OPT_CHOICE, "schedule", &(r).schedule, "NAME", NULL, order_names,  \
                    NULL),                                                             \
        REQUEST_ROW(OPT_COUNT, "model-chunks", &(r).model_chunks, "N", NULL, NULL,     \
                    NULL),                                                             \
        REQUEST_ROW(OPT_STRING, "stages", &(r).stages, "N,N,...", NULL, NULL, NULL),   \
        REQUEST_ROW(OPT_CHOICE, "balance", &(r).balance, "WHAT", NULL, balance_names,  \
                    NULL),                                                             \
        REQUEST_ROW(OPT_CHOICE, "framework", &(r).framework, "NAME", NULL,             \
                    framework_names, NULL),                                            \
        REQUEST_ROW(OPT_STRING, "family", &(r).family, "FILE", NULL, NULL, NULL),      \
        REQUEST_ROW(OPT_STRING, "config", &(r).config, "FILE", NULL, NULL, NULL)

/* ... for inference, ... */
#define REQUEST_INFER_OPTIONS(r)                                                       \
    REQUEST_ROW(OPT_STRING, "kv-dtype", &(r).kv_dtype, "TYPE", NULL, cache_words,      \
                NULL),                                                                 \
        REQUEST_ROW(OPT_COUNT, "prefill-tokens", &(r).prefill, "N", NULL, NULL, NULL), \
        REQUEST_ROW(OPT_COUNT, "kv-block", &(r).kv_block, "N", NULL, NULL, NULL)

/* ... and for training. */
#define REQUEST_TRAIN_OPTIONS(r)                                                       \
    REQUEST_ROW(OPT_INT, "zero", &(r).zero, "STAGE", NULL, NULL, NULL),                \
        REQUEST_ROW(OPT_STRING, "recompute", &(r).recompute, "WHAT", NULL,             \
                    recompute_names, NULL),                                            \
        REQUEST_ROW(OPT_RANK, "lora", &(r).lora, "RANK[:NAMES]", NULL, lora_rank,      \
                    NULL),                                                             \
        REQUEST_ROW(OPT_CHOICE, "optimizer", &(r).optimizer, "NAME", NULL,             \
                    optimizer_names, NULL),                                            \
        REQUEST_ROW(OPT_CHOICE, "offload", &(r).offload, "WHAT", NULL, offload_names,  \
                    NULL),                                                             \
        REQUEST_ROW(OPT_CHOICE, "master", &(r).master, "f32|none", NULL,               \
                    optimizer_masters, NULL),                                          \
        REQUEST_ROW(OPT_STRING, "grad-dtype", &(r).grad_dtype, "TYPE", NULL, NULL,     \
                    NULL),                                                             \
        REQUEST_ROW(OPT_COUNT, "hsdp", &(r).hsdp, "N", NULL, NULL, NULL),              \
        REQUEST_ROW(OPT_FLAG, "eager", &(r).eager, NULL, NULL, NULL, NULL),            \
        REQUEST_ROW(OPT_FLAG, "dora", &(r).dora, NULL, NULL, NULL, NULL),              \
        REQUEST_ROW(OPT_STRING, "modules-to-save", &(r).saved, "NAMES", NULL, NULL,    \
                    NULL),                                                             \
        REQUEST_ROW(OPT_STRING, "freeze", &(r).freeze, "NAMES", NULL, NULL, NULL),     \
        REQUEST_ROW(OPT_STRING, "train-only", &(r).only, "NAMES", NULL, NULL, NULL),   \
        REQUEST_ROW(OPT_CHOICE, "flash", &(r).flash, "on|off|2", NULL, flash_names,    \
                    NULL),                                                             \
        REQUEST_ROW(OPT_FLAG, "fused-loss", &(r).fused_loss, NULL, NULL, NULL, NULL),  \
        REQUEST_ROW(OPT_FLAG, "dropout", &(r).dropout, NULL, NULL, NULL, NULL),        \
        REQUEST_ROW(OPT_CHOICE, "loss", &(r).loss, "NAME", NULL, loss_choices, NULL),  \
        REQUEST_ROW(OPT_COUNT, "choices", &(r).choices, "N", NULL, NULL, NULL),        \
        REQUEST_ROW(OPT_STRING, "sp-mode", &(r).sp_mode, "MODE", NULL, NULL, NULL),    \
        REQUEST_ROW(OPT_FLAG, "deterministic", &(r).deterministic, NULL, NULL, NULL,   \
                    NULL),                                                             \
        REQUEST_ROW(OPT_FLAG, "sequence-parallel", &(r).sequence_parallel, NULL, NULL, \
                    NULL, NULL)

/* A request with all options evaluated. */
struct request {
    struct {
        uint64_t size, number, global; /* 0: not given */
    } batch;
    struct {
        int cpus;         /* of a rank; */
        uint64_t minutes; /* its limit; 0: what Slurm gives */
    } job;
    struct {
        uint64_t compute_bytes, grad_bytes; /* 0: not given */
        enum format kv_format;
        bool kv; /* it is given */
    } given;
    struct summary summary;
    const char *path, *family, *config; /* of the model; of the options, or NULL */
    enum dtype *stored;                 /* types of the checkpoint's tensors, or NULL */
    struct memory_options memory;
    uint64_t *inflight;
    int *rank_of, *flights;   /* memory.rank_of and .flights */
    const char *stages_given; /* --stages, or NULL */
    const char *sp_mode;      /* --sp-mode, or NULL */
    int *stages;              /* layers of each stage; NULL: even */
    bool by_memory;           /* --balance memory */
    int schedule, chunks;
    char *lora_targets;
    enum gpu_rate rate; /* type of the products */
    bool rate_given;
    const struct gpu *gpu;     /* or NULL */
    struct measured *measured; /* the device of --gpu-file, or NULL */
    uint64_t gpu_memory;       /* 0: not named */
    double margin;             /* share of it below which what is left is little */
    bool runtime_follows;      /* the runtime depends on the number of ranks */
    bool layout;               /* an axis of the mesh was given */
    bool detailed;      /* a layout, a device, or another option of a rank's bytes */
    struct str assumed; /* assumptions, separated by "; " */
    struct str codes;   /* the same as JSON objects with stable codes */
};

/* The device's name in TEXT, which may be NULL or begin with a number, "8xA100"; *n is
 * that number or 0. */
const char *request_gpu_name(const char *text, int *n);
/* Appends the assumption WHAT to TEXT, and with its CODE to CODES. */
void assumption_add(struct str *text, struct str *codes, const char *code,
                    const char *what);
/* Assumed bytes of a device's context and libraries; more if it communicates with
 * peers. */
uint64_t default_runtime(int ranks);
/* Evaluates the options O for the model at PATH.  CMD warns of config keys that nothing
 * reads.  ERR_USAGE for options that cannot be parsed or contradict one another. */
MUST_CHECK int request_open(struct request *r, const struct cmd *cmd,
                            const struct request_options *o, bool train,
                            const char *path, struct err *err);
void request_close(struct request *r);

/* Sets the type of the weights, NULL: as stored, and everything that depends on it. */
void request_set_weights(struct request *r, const struct weight_type *weights);
/* Estimates R's bytes.  0, or -1 with *err as memory_estimate sets it. */
MUST_CHECK int request_estimate(const struct request *r, struct memory_estimate *e,
                                struct err *err);
/* Call it after a change of r->memory.mesh or r->batch: sets micro-batches, activations
 * in flight and, if it was not given, the runtime. */
MUST_CHECK int request_settle(struct request *r, struct err *err);
/* Why R's layout is impossible, a reason a line; "" if it is possible.  The caller
 * frees it. */
char *request_obstacles_dup(const struct request *r);
/* True if the model has attention that is not causal. */
bool request_is_encoder(const struct request *r);
/* True if the largest rank fits, or no memory was named; and if it fits, but leaves
 * less than the margin. */
bool request_fits(const struct request *r, const struct memory_estimate *e);
bool request_is_tight(const struct request *r, const struct memory_estimate *e);

#endif
