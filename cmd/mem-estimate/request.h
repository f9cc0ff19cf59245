/* request - what a command of mem-estimate was asked: model, layout, types, batch */
#ifndef CMD_MEM_ESTIMATE_REQUEST_H
#define CMD_MEM_ESTIMATE_REQUEST_H

#include "cmd/cmd.h"
#include "cmd/meshopt.h"
#include "lib/base/str.h"
#include "lib/estimate/gpu.h"
#include "lib/estimate/measured.h"
#include "lib/estimate/memory.h"
#include "lib/pipe/order.h"

/* The options as they were given. */
struct request_options {
    struct mesh_options mesh;
    const char *weights, *compute, *kv_dtype, *grad_dtype, *lora, *freeze, *gpu,
        *gpu_file, *family;
    int gpus; /* ranks in all, 0: not given */
    int micro_batch, micro_batches, global_batch, prefill, kv_block, cache_tokens, zero,
        hsdp;
    uint64_t seq, gpu_memory, runtime;
    int schedule, model_chunks, framework, balance;
    const char *stages;
    int optimizer, master, offload, recompute, flash;
    bool sequence_parallel, fused_loss, dropout, eager;
    bool seq_given, memory_given, runtime_given, fragmentation_given;
    double fragmentation;
};

extern const char *const flash_names[], *const balance_names[];
/* The rank that --lora alone stands for. */
extern const char *const lora_rank[];
extern const char *const master_names[];
/* Common types of weights, and those of values. */
extern const char *const weight_words[], *const float_words[];

#define REQUEST_DEFAULTS                           \
    {                                              \
        .fragmentation = 5, .schedule = ORDER_1F1B \
    }

#define REQUEST_ROW(type, name, value, arg, help, choices, given) \
    {                                                             \
        type, '\0', name, value, arg, help, choices, given        \
    }

/* Rows of an option table that every estimate has, ... */
#define REQUEST_OPTIONS(r)                                                            \
    REQUEST_ROW(OPT_COUNT, "tp", &(r).mesh.tp, "N", "tensor-parallel ranks", NULL,    \
                NULL),                                                                \
        REQUEST_ROW(OPT_COUNT, "pp", &(r).mesh.pp, "N", "pipeline stages", NULL,      \
                    NULL),                                                            \
        REQUEST_ROW(OPT_COUNT, "dp", &(r).mesh.dp, "N", NULL, NULL, NULL),            \
        REQUEST_ROW(OPT_COUNT, "micro-batch", &(r).micro_batch, "N", NULL, NULL,      \
                    NULL),                                                            \
        REQUEST_ROW(OPT_STRING, "gpu", &(r).gpu, "NAME",                              \
                    "the device, as 'gpus' names it, or 'here'", NULL, NULL),         \
        REQUEST_ROW(OPT_STRING, "weights", &(r).weights, "TYPE", NULL, weight_words,  \
                    NULL),                                                            \
        REQUEST_ROW(OPT_TOKENS, "seq", &(r).seq, "N", "tokens of a sequence", NULL,   \
                    &(r).seq_given),                                                  \
        REQUEST_ROW(OPT_STRING, "gpu-file", &(r).gpu_file, "FILE", NULL, NULL, NULL), \
        REQUEST_ROW(OPT_SIZE, "gpu-mem", &(r).gpu_memory, "SIZE", NULL, NULL,         \
                    &(r).memory_given),                                               \
        REQUEST_ROW(OPT_COUNT, "ep", &(r).mesh.ep, "N", NULL, NULL, NULL),            \
        REQUEST_ROW(OPT_COUNT, "sp", &(r).mesh.sp, "N", NULL, NULL, NULL),            \
        REQUEST_ROW(OPT_STRING, "mesh", &(r).mesh.spec, "SPEC", NULL, NULL, NULL),    \
        REQUEST_ROW(OPT_COUNT, "micro-batches", &(r).micro_batches, "N", NULL, NULL,  \
                    NULL),                                                            \
        REQUEST_ROW(OPT_COUNT, "global-batch", &(r).global_batch, "N", NULL, NULL,    \
                    NULL),                                                            \
        REQUEST_ROW(OPT_STRING, "compute", &(r).compute, "TYPE", NULL, float_words,   \
                    NULL),                                                            \
        REQUEST_ROW(OPT_SIZE, "runtime", &(r).runtime, "SIZE", NULL, NULL,            \
                    &(r).runtime_given),                                              \
        REQUEST_ROW(OPT_DOUBLE, "fragmentation", &(r).fragmentation, "PERCENT", NULL, \
                    NULL, &(r).fragmentation_given),                                  \
        REQUEST_ROW(OPT_CHOICE, "schedule", &(r).schedule, "NAME", NULL, order_names, \
                    NULL),                                                            \
        REQUEST_ROW(OPT_COUNT, "model-chunks", &(r).model_chunks, "N", NULL, NULL,    \
                    NULL),                                                            \
        REQUEST_ROW(OPT_STRING, "stages", &(r).stages, "N,N,...", NULL, NULL, NULL),  \
        REQUEST_ROW(OPT_CHOICE, "balance", &(r).balance, "WHAT", NULL, balance_names, \
                    NULL),                                                            \
        REQUEST_ROW(OPT_CHOICE, "framework", &(r).framework, "NAME", NULL,            \
                    framework_names, NULL),                                           \
        REQUEST_ROW(OPT_STRING, "family", &(r).family, "FILE", NULL, NULL, NULL)

/* ... those of inference alone, ... */
#define REQUEST_INFER_OPTIONS(r)                                                       \
    REQUEST_ROW(OPT_STRING, "kv-dtype", &(r).kv_dtype, "TYPE", NULL, float_words,      \
                NULL),                                                                 \
        REQUEST_ROW(OPT_COUNT, "prefill-tokens", &(r).prefill, "N", NULL, NULL, NULL), \
        REQUEST_ROW(OPT_COUNT, "kv-block", &(r).kv_block, "N", NULL, NULL, NULL)

/* ... and those of training. */
#define REQUEST_TRAIN_OPTIONS(r)                                                       \
    REQUEST_ROW(OPT_INT, "zero", &(r).zero, "STAGE", NULL, NULL, NULL),                \
        REQUEST_ROW(OPT_CHOICE, "recompute", &(r).recompute, "WHAT", NULL,             \
                    recompute_names, NULL),                                            \
        REQUEST_ROW(OPT_RANK, "lora", &(r).lora, "RANK[:NAMES]", NULL, lora_rank,      \
                    NULL),                                                             \
        REQUEST_ROW(OPT_CHOICE, "optimizer", &(r).optimizer, "NAME", NULL,             \
                    optimizer_names, NULL),                                            \
        REQUEST_ROW(OPT_CHOICE, "offload", &(r).offload, "WHAT", NULL, offload_names,  \
                    NULL),                                                             \
        REQUEST_ROW(OPT_CHOICE, "master", &(r).master, "f32|none", NULL, master_names, \
                    NULL),                                                             \
        REQUEST_ROW(OPT_STRING, "grad-dtype", &(r).grad_dtype, "TYPE", NULL, NULL,     \
                    NULL),                                                             \
        REQUEST_ROW(OPT_COUNT, "hsdp", &(r).hsdp, "N", NULL, NULL, NULL),              \
        REQUEST_ROW(OPT_FLAG, "eager", &(r).eager, NULL, NULL, NULL, NULL),            \
        REQUEST_ROW(OPT_STRING, "freeze", &(r).freeze, "NAMES", NULL, NULL, NULL),     \
        REQUEST_ROW(OPT_CHOICE, "flash", &(r).flash, "on|off|2", NULL, flash_names,    \
                    NULL),                                                             \
        REQUEST_ROW(OPT_FLAG, "fused-loss", &(r).fused_loss, NULL, NULL, NULL, NULL),  \
        REQUEST_ROW(OPT_FLAG, "dropout", &(r).dropout, NULL, NULL, NULL, NULL),        \
        REQUEST_ROW(OPT_FLAG, "sequence-parallel", &(r).sequence_parallel, NULL, NULL, \
                    NULL, NULL)

/* A request worked out. */
struct request {
    struct {
        uint64_t size, number, global; /* 0: not given */
    } batch;
    struct {
        uint64_t compute_bytes, kv_bytes, grad_bytes; /* likewise */
    } given;
    struct outline outline;
    const char *path, *family; /* the file of --family, or NULL */
    enum dtype *stored;        /* of the checkpoint's tensors, or NULL */
    struct memory_options memory;
    uint64_t *inflight;
    const char *stages_given; /* --stages, or NULL */
    int *stages;              /* layers of each stage; NULL: even */
    bool by_memory;           /* they are balanced by bytes */
    int schedule, chunks;
    char *lora_targets;
    enum gpu_rate rate; /* of products */
    bool rate_given;
    const struct gpu *gpu;     /* or NULL */
    struct measured *measured; /* the device of --gpu-file, or NULL */
    uint64_t gpu_memory;       /* 0: not named */
    bool runtime_follows;      /* as of that many ranks */
    bool layout;               /* some axis of the mesh was named */
    bool detailed;      /* that, a device, or what else a rank's bytes depend on */
    struct str assumed; /* what was not given, "; " between, */
    struct str codes;   /* and the same as JSON objects with stable codes */
};

/* The name in TEXT, which may be NULL or have a number in front, "8xA100": *n becomes
 * that, or 0. */
const char *request_gpu_name(const char *text, int *n);
/* Append WHAT, which is assumed, to TEXT, and with its CODE to CODES. */
void assumption_add(struct str *text, struct str *codes, const char *code,
                    const char *what);
/* What a device's context and libraries take where it was not measured: a communicator
 * as well where there are peers. */
uint64_t default_runtime(int ranks);
/* Work OPTIONS out for the model at PATH; CMD warns of keys that its config has in
 * vain. ERR_USAGE for what cannot be parsed or does not fit together. */
MUST_CHECK int request_open(struct request *r, const struct cmd *cmd,
                            const struct request_options *o, bool train,
                            const char *path, struct err *err);
void request_close(struct request *r);

/* Hold weights as WEIGHTS, NULL as they are stored, and whatever follows them. */
void request_set_weights(struct request *r, const struct weight_type *weights);
/* Estimate R's bytes.  0, or -1 with *err as of memory_estimate. */
MUST_CHECK int request_estimate(const struct request *r, struct memory_estimate *e,
                                struct err *err);
/* Set what follows from r->memory.mesh and r->batch, after they were changed:
 * micro-batches, how many are in flight, and the runtime where it was not given. */
MUST_CHECK int request_settle(struct request *r, struct err *err);
/* Reasons why R's layout is impossible, a line each; "" when it is not.  The caller
 * frees it. */
char *request_obstacles_dup(const struct request *r);
/* Does the largest rank fit? */
bool request_fits(const struct request *r, const struct memory_estimate *e);

#endif
