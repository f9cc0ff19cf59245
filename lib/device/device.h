/* device - the interface of a backend: device memory and one kernel per operation
 *
 * A backend owns device memory and an execution order.  Only its kernels and copies
 * read and write device memory; all other code just passes addresses.  Kernels and
 * copies take effect in the order of the calls; copy_out and wait return when
 * everything before them has finished.
 *
 * Each row of the table of operations (program/op.h) that runs on a device has one
 * kernel. All kernels have the same signature: the instruction and its buffers in, a
 * status out. Activations are row-major [rows][cols] and never overlap their results;
 * they are f32 but where .bf16 of the backend permits and their format says bf16.
 * The number of rows, their positions and the other inputs of a step lie in device
 * memory (struct step_view), so that a step can be recorded once and replayed (CUDA
 * graphs).  Weights have their stored type and are widened on the fly.  Kernels
 * accumulate in f32 and compute statistics in double; the order of summation depends
 * neither on the number of threads nor on the number of rows of a matrix product. */
#ifndef LIB_DEVICE_DEVICE_H
#define LIB_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/device/arrays.h"
#include "lib/device/rounding.h"
#include "lib/device/layout.h"
#include "lib/device/ledger.h"
#include "lib/program/program.h"

/* An activation in device memory. */
struct buffer {
    void *data;
    const int32_t *rows; /* device: the current number of rows */
    size_t most;         /* capacity in rows */
    uint64_t cols;
    enum format format;
    uint64_t width; /* of a cache of codes: columns that share a scale */
};

/* By what the backward pass multiplies: the sum of likelihoods, the balance of experts,
 * the router's z-loss (terms of the loss), and the rows that chose an expert. */
enum step_factor {
    FACTOR_NLL,
    FACTOR_BALANCE,
    FACTOR_ROUTER_Z,
    FACTOR_LOAD,
    STEP_FACTORS
};

/* Inputs of a step's kernels other than activations and weights; device memory. */
struct step_view {
    const int32_t *rows[ROWS_MOST];  /* one number each; none for those of experts */
    const int32_t *first[ROWS_MOST]; /* [segments]: row of its first row; -1: it is on
                                      * another rank */
    const void *input[FEEDS_MOST];   /* [rows][columns]: as program.input says; those
                                      * that no instruction reads are NULL */
    const int32_t *length; /* [tokens]: the sequence's length at the end of the step */
    const int32_t *output; /* [outputs]: row among the step's tokens; -1: on another
                            * rank */
    const int32_t *target[ROWS_ONE + 1]; /* [rows]: the next token, or the label, or
                                          * -1 */
    const struct draw *draw;             /* [outputs] */
    /* [rows], of tokens, texts and sources: for dropout, index in the training run of
     * the token, of the text's first, and of that plus the row's place in the source */
    const uint64_t *token[ROWS_MOST];
    const uint64_t *seed; /* of dropout's random numbers; one number */
    const float *factor;  /* [STEP_FACTORS] */
    const float *weight;  /* [tokens]: of each one's likelihood, beside its factor; NULL
                           * without a derivative */
};

/* The arguments of one execution of an instruction.  A fused operation has those of its
 * parts, and no sources or weights of its own; results that are inside it have no
 * memory. */
struct call {
    const struct program *program;
    const struct inst *inst;
    struct buffer y;
    struct buffer x[INST_SOURCES];
    const struct matrix *w, *w2; /* or NULL; for experts an array, one per expert of
                                  * this rank */
    const int32_t *expert_rows;  /* device, [nexperts + 1]: first row of each expert,
                                  * for operations with a weight per expert; or NULL */
    size_t nexperts;
    const struct step_view *step;
    struct ranges range;      /* of attention and of appends to the KV cache */
    struct states_view state; /* ROLE_STATE */
    bool narrow; /* attention: 16 significant bits suffice for its products, because all
                  * weights of linear layers have 16-bit types */
    bool rounded; /* and bf16's eight do: they all are bf16 or codes, and the program
                   * rounds */
    float *lse;   /* attention: [rows][heads], logsumexp of the scores, for merging with
                   * keys on other ranks; or NULL */
    const struct call *part; /* [nparts]: of a fused operation */
    int nparts;
};

/* The state of an opened backend.  One caller uses it at a time. */
struct device;

typedef int kernel(struct device *d, const struct call *c, struct err *err);

/* What a backend is asked to run: an instruction, and the formats of what it reads
 * besides activations.  Behind a fused operation lie its parts. */
struct device_request {
    const struct program *program;
    const struct inst *inst;
    bool reverse;       /* it belongs to the derivative */
    enum format weight; /* of its weights */
    enum format cache;  /* of cached keys and values */
    unsigned bf16;      /* the operands that are bf16 (program_bf16), which a fused
                         * operation is not asked about */
};

/* What a kernel takes.  A backend's table of them stands beside its kernels; a row of
 * zeros takes weights of f32, bf16 and f16, a cache of f32, and any sizes. */
struct kernel_limits {
    unsigned weight, cache; /* sets of 1 << format; 0: as above */
    unsigned back; /* of weights of a product in the derivative (inst.back); 0: plain */
    /* Returns 0, or -1 with ERR_NO and the reason in *err, such as "choose: 600
     * experts, and there is room for 512".  NULL: nothing else is refused. */
    int (*fits)(const struct device_request *r, struct err *err);
};

/* What a backend found on this machine. */
struct device_report {
    int driver, runtime; /* versions, as 1000 * major + 10 * minor; 0: none */
    int blas;            /* version of cuBLASLt: 10000 * major + 100 * minor + patch */
    int nccl;            /* version of NCCL, in the same form */
    char trouble[256];   /* why no device can be used, or empty */
    int n;
    struct device_facts {
        char name[256], bus[32];
        int major, minor; /* compute capability */
        int multiprocessors;
        uint64_t bytes, free_bytes;
        uint64_t peers; /* bit I: it can access the memory of device I (peer access) */
        char trouble[128]; /* why this one cannot be used, or empty */
    } device[64];
};

/* What a device reaches at this moment. */
struct device_rates {
    double read;            /* bytes read from memory a second */
    double f32, bf16, int8; /* operations of matrix products a second, by the type of
                             * both operands; 0: not measured, since the device or this
                             * build has no product that is made for the type */
};

/* Devices of several ranks that communicate without going through the host (NCCL).  All
 * ranks of a group call the same collectives in the same order; a collective is ordered
 * among the rank's kernels and copies.  If a rank is gone, or does not take part in
 * time, the next wait fails and the device's communicators are aborted.  Messages
 * between begin and end do not wait for each other. */
struct device_group;

enum { DEVICE_GROUP_ID = 128 };

struct device_collectives {
    const char *name;
    /* Returns whether D can take part.  Called once, before the other functions.
     * SHARED: several ranks use one device.  A rank that is inactive for LIMIT_S
     * seconds (0: no limit) while another waits for it has failed. */
    bool (*probe)(struct device *d, bool shared, int limit_s);
    /* The group's rank 0 makes ID; all SIZE ranks then join with it. */
    int (*make_id)(struct device *d, char id[DEVICE_GROUP_ID], struct err *err);
    int (*join)(struct device_group **out, struct device *d,
                const char id[DEVICE_GROUP_ID], int rank, int size, struct err *err);
    /* Returns when all ranks are done with the group.  A rank that leaves without
     * calling this looks to the others like a lost rank. */
    int (*finish)(struct device_group *g, struct err *err);
    void (*leave)(struct device_group *g); /* NULL is allowed */
    /* y[n] = the sum of all ranks' x, of dtype f32 or f64 */
    int (*all_reduce)(struct device_group *g, const void *x, void *y, size_t n,
                      enum dtype dtype, struct err *err);
    /* all = the ranks' mine[bytes[rank]], concatenated */
    int (*all_gather)(struct device_group *g, const void *mine, void *all,
                      const size_t *bytes, struct err *err);
    int (*begin)(struct device_group *g, struct err *err);
    int (*send)(struct device_group *g, const void *x, size_t bytes, int to,
                struct err *err);
    int (*receive)(struct device_group *g, void *x, size_t bytes, int from,
                   struct err *err);
    int (*end)(struct device_group *g, struct err *err);
};

/* Kernels and copies that were recorded, to be done again. */
struct recording;

/* The largest step of an engine, and what its kernels read. */
struct room_limits {
    uint64_t most[ROWS_MOST]; /* rows of each space (program_rows) */
    uint64_t segments;
    uint64_t queries, keys; /* of one sequence: rows of a step; keys that they see, */
    uint64_t padded_keys;   /* and as struct ranges may have them */
    uint64_t block_rows;    /* of the KV cache */
    const enum format *stored; /* [program.nweights] */
    bool narrow, rounded;      /* as in struct call */
    int threads;
};

/* What tells the devices of a machine apart: parts of a GPU have one bus. */
struct device_place {
    char bus[32];
};

struct backend {
    const char *name;
    bool host_memory; /* device memory is host memory: the host may access it while no
                       * kernel runs */
    bool (*probe)(void);
    /* Fills *r; NULL: nothing to report.  The process must not fork afterwards. */
    void (*look)(struct device_report *r);
    /* Number of devices; the process must not fork afterwards.  NULL: no limit. */
    int (*count)(void);
    /* Fills NUMBER[MOST] with the first devices that this build can use, in order;
     * returns how many these are.  NULL where count is. */
    int (*usable)(int *number, int most);
    /* Where device NUMBER is; false: it cannot be told.  NULL: nothing to tell. */
    bool (*place)(struct device_place *p, int number);
    /* THREADS, at least 1, includes the caller's.  Opens device NUMBER. */
    int (*open)(struct device **out, int threads, int number, struct err *err);
    void (*close)(struct device *d);      /* NULL is allowed */
    uint64_t (*memory)(struct device *d); /* bytes that it has; 0: unknown */
    /* Measures *r.  NULL: copies and products through the kernels are what there is
     * (run/rates). */
    int (*rates)(struct device *d, struct device_rates *r, struct err *err);
    /* SIZE bytes aligned to 64; WHAT is named in the error.  NULL with *err set on
     * failure. release accepts NULL. */
    void *(*alloc)(struct device *d, uint64_t size, const char *what, struct err *err);
    void (*release)(struct device *d, void *memory);
    /* host to device, device to host, and within the device */
    int (*copy_in)(struct device *d, void *to, const void *from, size_t bytes,
                   struct err *err);
    int (*copy_out)(struct device *d, void *to, const void *from, size_t bytes,
                    struct err *err);
    int (*copy)(struct device *d, void *to, const void *from, size_t bytes,
                struct err *err);
    int (*wait)(struct device *d, struct err *err);
    /* Adds to LIST what kernels and copies take beside their buffers, when steps of
     * PROGRAM keep to LIMITS.  No device is needed; D NULL: one with all libraries. */
    void (*room)(const struct device *d, const struct program *program,
                 const struct room_limits *limits, struct ledger *list);
    /* Allocates that, so that no step allocates.  What has been recorded may move. */
    int (*reserve)(struct device *d, const struct program *program,
                   const struct room_limits *limits, struct err *err);
    /* Adds what reserve has allocated for all programs, and open; *grown, if it is not
     * NULL, is how often a kernel has allocated since: 0, unless LIMITS were passed. */
    void (*taken)(const struct device *d, struct ledger *list, uint64_t *grown);
    /* ERR_SYSTEM: BYTES, for WHAT, are more than the device has free.  NULL: it is not
     * known. */
    int (*fits)(struct device *d, uint64_t bytes, const char *what, struct err *err);
    /* Between record and recorded, kernels, copies within the device and collectives
     * between devices are recorded and not executed; the same calls must have been
     * executed before.  The ranks of a collective record it together, and replay
     * recordings made together.  recorded sets
     * *out, owned by the caller, or sets it to NULL if the device cannot record these
     * calls; call it after a failure, too.  record returns 1, or 0 if the device cannot
     * record; NULL: the backend never records. */
    int (*record)(struct device *d, struct err *err);
    int (*recorded)(struct device *d, struct recording **out, struct err *err);
    /* False: what R has recorded has moved, and must be recorded again. */
    bool (*is_current)(const struct device *d, const struct recording *r);
    /* Executes R, which is current. */
    int (*replay)(struct device *d, const struct recording *r, struct err *err);
    void (*forget)(struct device *d, struct recording *r); /* NULL is allowed */
    kernel *const *kernel; /* [OP_COUNT]; NULL: LACKS(word), or a collective */
    const struct kernel_limits *limits; /* [OP_COUNT] */
    /* [OP_COUNT]: the operands that each kernel takes in bf16 as well as in f32, each
     * by itself; a fused one takes what its parts do.  A result is rounded to the
     * nearest, ties to even.  Predictions read it, too: it stands in room.c.  NULL:
     * none */
    const unsigned *bf16;
    array_kernel *const *array; /* [ARRAY_COUNT]; NULL: LACKS(word) */
    /* y = x, rounded to bf16 up or down at random (rounding.h) */
    int (*round)(struct device *d, const struct rounding *r, struct err *err);
    const struct device_collectives
        *collectives; /* NULL: collectives go through the host */
};

extern const struct backend backend_cpu, backend_cuda;

/* A row of the table of operations for which a backend has no kernel. */
#define LACKS(word) NULL

/* Can B run R?  Returns 0, or -1 with ERR_NO and the reason in *err: "no kernel for
 * linear with weights of int8".  Asks no device, so it may be called before a device is
 * opened and in a process that forks later. */
MUST_CHECK int backend_supports(const struct backend *b, const struct device_request *r,
                                struct err *err);
/* Can a backend with BF16, as in struct backend, read and write R's operands?  Part of
 * what backend_supports asks. */
MUST_CHECK int backend_takes_bf16(const unsigned *bf16, const struct device_request *r,
                                  struct err *err);
/* The same for an operation on arrays. */
MUST_CHECK int backend_supports_array(const struct backend *b, enum array_op op,
                                      struct err *err);

/* The backend called NAME, or the first usable one when NAME is NULL. */
const struct backend *backend_find(const char *name, struct err *err);
/* The I-th backend in order of preference; NULL after the last. */
const struct backend *backend_at(size_t i);

#endif
