/* parameters - the weights of one rank, and what training keeps for them
 *
 * One row for each weight of a program says where its numbers are: the weight in f32,
 * its gradient, and the optimizer's slots.  All of them are in memory of the backend,
 * which only its kernels and copies touch; whoever else needs numbers copies them in
 * and out.  The weights follow one another in the program's order; so do, of those that
 * are trained, the gradients and each slot.  A matrix that is not trained stays in the
 * format in which it is held for answers (held.h), mapped from its file if it can be,
 * and has no row in these arrays. */
#ifndef LIB_TRAIN_PARAMETERS_H
#define LIB_TRAIN_PARAMETERS_H

#include "lib/comm/comm.h"
#include "lib/device/device.h"
#include "lib/model/model.h"
#include "lib/reshard/checkpoint.h"
#include "lib/run/weights.h"
#include "lib/train/optimizer.h"

enum { PARAMETER_SLOTS = ARRAY_SLOTS + 1 }; /* the optimizer's, and a moving average */

/* Device memory, f32. */
struct parameter {
    float *weight;   /* [n]; NULL: held in another format, and not trained */
    float *gradient; /* [n]; NULL: not trained */
    float *slot[PARAMETER_SLOTS]; /* [count], of elements FIRST to FIRST + COUNT - 1 */
    uint64_t n, first, count; /* this rank updates COUNT elements from FIRST, or none */
    bool trained, decays;     /* weight decay applies to it */
    uint64_t load; /* its gradient is the rows that chose each expert, this many of each
                    * row of the batch, of LOADS experts; 0: it is a gradient */
    uint64_t loads;
};

/* Ranks that have the same weights, and share their updates: each has a range of all
 * trained elements (optimizer_range). */
struct parameters_owner {
    int rank, size;
};

struct parameters {
    const struct program *program;
    const struct backend *ops;
    struct device *device;
    struct cutter *cutter; /* the rank's shards, in the program's element order */
    struct matrix *matrix; /* [nweights]: the weights, for the engine */
    struct parameter *row; /* [nweights] */
    struct weights held;   /* those that are not trained; .n 0: none */
    uint64_t n, trained;   /* elements in .weight; of those that are trained */
    struct parameters_owner owner;
    uint64_t first, owned; /* this rank's range of the trained: elements of a slot */
    float *weight;         /* [n], device */
    float *gradient;       /* [trained] */
    /* What is kept for each trained weight beside its gradient: the optimizer's slots,
     * 0 at first, then its moving average, if it is kept.  Checkpoints have them, by
     * these roles. */
    struct manifest_state state[PARAMETER_SLOTS];
    float *slot[PARAMETER_SLOTS]; /* [owned]: the numbers of each */
    int slots;
    bool drawn;   /* weights are drawn, not read: all are in .weight */
    int average;  /* index of the moving average; -1: none */
    bool *shared; /* [model->ntensors]: on both the first and the last stage (tied) */
};

/* Loads the weights of PROGRAM, which must outlive *p, from C to memory of DEVICE, and
 * sets all else to 0.  Weights of a model without files stay unset (see init.h). */
MUST_CHECK int parameters_open(struct parameters *p, struct checkpoint *c,
                               const struct program *program, const struct backend *ops,
                               struct device *device, enum optimizer_kind optimizer,
                               struct parameters_owner owner, struct err *err);
/* The same, where matrices that are not trained take FORM, made by THREADS threads,
 * collective over TENSOR, the tensor group. */
MUST_CHECK int parameters_open_as(struct parameters *p, struct checkpoint *c,
                                  const struct program *program,
                                  const struct backend *ops, struct device *device,
                                  enum optimizer_kind optimizer,
                                  struct parameters_owner owner, enum weights_form form,
                                  struct comm *tensor, int threads, struct err *err);
/* Keeps a moving average of the trained weights as one more slot. */
MUST_CHECK int parameters_keep_average(struct parameters *p, struct err *err);
/* The moving average, if it is kept, begins, or begins again, with the weights as they
 * are. */
MUST_CHECK int parameters_begin_average(struct parameters *p, struct err *err);
/* It gets nearer to the weights of ROW, and of those behind it, N in all, by BY. */
MUST_CHECK int parameters_average(struct parameters *p, const struct parameter *row,
                                  uint64_t n, double by, struct err *err);
void parameters_close(struct parameters *p);
/* Adds what it has allocated: "weights", "gradients", "optimizer". */
void parameters_memory(const struct parameters *p, struct ledger *list);

/* Runs an operation of the backend on arrays. */
MUST_CHECK int parameters_run(struct parameters *p, enum array_op op,
                              const struct array_call *c, struct err *err);
/* y[n] = 0 */
MUST_CHECK int parameters_zero(struct parameters *p, void *y, uint64_t n,
                               struct err *err);
/* y[n] = x + z */
MUST_CHECK int parameters_add(struct parameters *p, float *y, const float *x,
                              const float *z, uint64_t n, struct err *err);

/* The part of elements [AT, AT + N) of the trained ones that this rank updates: *COUNT
 * elements from AT + *FIRST; 0 and 0 if there is none. */
void parameters_own(const struct parameters *p, uint64_t at, uint64_t n,
                    uint64_t *first, uint64_t *count);
/* Elements of all weights that lie before element AT of the trained ones. */
uint64_t parameters_place(const struct parameters *p, uint64_t at);
/* Finds the tensors that the first and the last stage of PIPE share. */
MUST_CHECK int parameters_find_shared(struct parameters *p, struct comm *pipe,
                                      struct err *err);
/* Calls SEE for each run of weight I that is contiguous both here and in the global
 * tensor: N elements from HERE and from WHOLE, in the order of HERE.  OWNED: this rank
 * has the primary replica. */
void parameters_runs(struct parameters *p, int i,
                     void (*see)(void *arg, size_t here, size_t whole, size_t n,
                                 bool owned),
                     void *arg);
/* Number of elements of weight I's global tensor, or of an adapter's matrix. */
uint64_t parameters_whole(const struct parameters *p, int i);

#endif
