/* device - a place with memory that kernels work on: what a backend is
 *
 * A backend owns memory and time.  Device memory is read and written by its kernels and
 * copies alone: whoever else holds an address of it only passes it on.  Kernels and
 * copies take effect in the order in which they were called; copy_out and wait return
 * when all before them has.
 *
 * There is a kernel for each row of the table of operations (program/op.h) that runs on
 * a device, all in one style: they take the instruction and its buffers and return a
 * status.  Activations are row-major [rows][cols] and never overlap their results.
 * How many rows there are, where they stand in their sequences and what is read beside
 * values lies in device memory too (struct step_view), so that a step can be recorded
 * and run again.  Weights come in their stored type and are widened on the fly; sums
 * are f32, statistics double, in an order that depends neither on the number of
 * threads nor on how many rows a product has. */
#ifndef LIB_DEVICE_DEVICE_H
#define LIB_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/device/layout.h"
#include "lib/program/program.h"

/* A value in device memory. */
struct buffer {
    void *data;
    const int32_t *rows; /* device: how many there are */
    size_t most;         /* at most */
    uint64_t cols;
    enum dtype dtype;
};

/* What a step's kernels read beside values; device memory. */
struct step_view {
    const int32_t *rows[ROWS_KINDS]; /* one number each; not of ROWS_CHOSEN */
    const int32_t *index[INDEX_KINDS];
    const int32_t *length; /* [tokens]: tokens of the sequence at the step's end */
    const int32_t *output; /* [outputs]: row of tokens, -1: another rank's */
    const int32_t *first;  /* [segments]: row of the first token; -1: another rank's */
    const int32_t *target[ROWS_KINDS]; /* [rows]: the token that follows, or -1 */
    const struct draw *draw;           /* [outputs] */
    const uint64_t *token; /* [tokens]: its number in the run, for dropout */
    const uint64_t *seed;  /* of dropout: one number */
    const float *scale;    /* of the loss, where it is reversed: one number */
};

/* One run of an instruction. */
struct call {
    const struct program *program;
    const struct inst *inst;
    struct buffer y;
    struct buffer x[INST_SOURCES];
    const struct matrix *w, *w2; /* or NULL; of experts: one for each of this rank */
    const int32_t *expert_rows;  /* device, [nexperts + 1]: rows before each expert's,
                                    for what has a weight for each expert; or NULL */
    size_t nexperts;
    const struct step_view *step;
    struct ranges range; /* of attention and the cache */
    bool narrow; /* attention: its products to sixteen bits will do, as those of weights
                    that all have sixteen */
    float *lse; /* attention: [rows][heads], log of the sum of the scores' exponentials,
                   for who has the other keys elsewhere; or NULL */
};

/* What a backend works with.  One caller uses it at a time. */
struct device;

typedef int kernel(struct device *d, const struct call *c, struct err *err);

/* What a backend finds on this machine. */
struct device_report {
    int driver, runtime; /* versions, as 1000 * major + 10 * minor; 0: none */
    int blas;            /* of cuBLASLt, as 10000 * major + 100 * minor + patch */
    int nccl;            /* of NCCL, likewise */
    char trouble[256];   /* why there is no device, or empty */
    int n;
    struct device_facts {
        char name[256], bus[32];
        int major, minor; /* compute capability */
        int multiprocessors;
        uint64_t bytes, free_bytes;
        uint64_t peers; /* bit I: it reaches the memory of device I */
    } device[64];
};

/* Devices that exchange what is in their memory by themselves, each of another rank.
 * An exchange is asked for by all ranks of a group, in one order, and takes its turn
 * among kernels and copies; a rank that is gone, or does not do its part in time, makes
 * the next wait fail, and then no exchange of that device goes on.  Between begin and
 * end are messages that do not wait for one another. */
struct device_group;

enum { DEVICE_GROUP_ID = 128 };

struct device_exchange {
    const char *name;
    /* Can D take part?  Called once, before the others; SHARED says that several ranks
     * use one device.  A rank that does nothing for LIMIT_S seconds (0: any time) while
     * another waits for it has failed. */
    bool (*probe)(struct device *d, bool shared, int limit_s);
    /* By ID, which its first rank has made, the SIZE ranks of a group meet. */
    int (*make_id)(struct device *d, char id[DEVICE_GROUP_ID], struct err *err);
    int (*join)(struct device_group **out, struct device *d,
                const char id[DEVICE_GROUP_ID], int rank, int size, struct err *err);
    /* All ranks are done with it; what is left without this is lost to the others. */
    int (*finish)(struct device_group *g, struct err *err);
    void (*leave)(struct device_group *g); /* NULL is allowed */
    /* x[n] = the sum of all ranks' x, of dtype f32 or f64 */
    int (*all_reduce)(struct device_group *g, void *x, size_t n, enum dtype dtype,
                      struct err *err);
    /* all = each rank's mine[bytes[rank]], one after the other */
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

struct backend {
    const char *name;
    bool host_memory; /* device memory is the host's: others may read and write it while
                         no kernel runs */
    bool (*probe)(void);
    /* Fill *r; NULL: there is nothing to say.  No process is forked afterwards. */
    void (*look)(struct device_report *r);
    /* How many devices there are, likewise; NULL: as many as one wants. */
    int (*count)(void);
    /* THREADS, at least 1, the caller's among them; LOCAL is the caller's number among
     * the ranks of this machine, each of which has a device of its own if it can. */
    int (*open)(struct device **out, int threads, int local, struct err *err);
    void (*close)(struct device *d); /* NULL is allowed */
    /* SIZE bytes aligned to 64, for WHAT; NULL with *err set.  NULL may be released. */
    void *(*alloc)(struct device *d, uint64_t size, const char *what, struct err *err);
    void (*release)(struct device *d, void *memory);
    /* From the host, to the host, and within the device. */
    int (*copy_in)(struct device *d, void *to, const void *from, size_t bytes,
                   struct err *err);
    int (*copy_out)(struct device *d, void *to, const void *from, size_t bytes,
                    struct err *err);
    int (*copy)(struct device *d, void *to, const void *from, size_t bytes,
                struct err *err);
    int (*wait)(struct device *d, struct err *err);
    /* From record to recorded nothing is done: kernels, and copies within the device,
     * are remembered, which have been called alike before.  RECORDED sets *out, the
     * caller's, or NULL where the device cannot, and nothing has been remembered; it is
     * called after a failure, too.  RECORD is NULL where steps are not recorded, and
     * returns 1, or 0 where this device cannot. */
    int (*record)(struct device *d, struct err *err);
    int (*recorded)(struct device *d, struct recording **out, struct err *err);
    /* Do it all; 1, or 0 where it has to be recorded again, and nothing is done. */
    int (*replay)(struct device *d, const struct recording *r, struct err *err);
    void (*forget)(struct device *d, struct recording *r); /* NULL is allowed */
    kernel *const *kernel; /* [OP_COUNT]; NULL where the communicator works */
    const struct device_exchange *exchange; /* NULL: only through the host */
};

extern const struct backend backend_cpu, backend_cuda;

/* The backend called NAME, or, where it is NULL, the first that can be used here. */
const struct backend *backend_find(const char *name, struct err *err);
/* The I-th in order of preference; NULL after the last. */
const struct backend *backend_at(size_t i);

#endif
