/* parameters - the weights of one rank, and what training keeps for them
 *
 * One row for each weight of a program says where its numbers are: the weight in f32,
 * its gradient, and the optimizer's slots.  All of them are in memory of the backend,
 * which only its kernels and copies touch; whoever else needs numbers copies them in
 * and out.  The trained weights follow one another in the program's order, and so do
 * their gradients and each slot; then come those that are not trained.  A matrix of the
 * latter stays in the format in which it is held for answers (held.h), mapped from its
 * file if it can be, and has no row in these arrays.
 *
 * Replicas may share (ZeRO, Rajbhandari et al. 2020): each has ranges of the trained
 * elements, one of each unit (program/units.h), and updates those.  By the stage, it
 * has all of the rest, or only its ranges: of the slots (1), of the sums of gradients
 * (2), of the weights (3).  What a rank has only its ranges of is an array of them, one
 * after another.  Where it has no more of the weights or gradients, they are in a room
 * for as long as a step needs them (shards.h). */
#ifndef LIB_TRAIN_PARAMETERS_H
#define LIB_TRAIN_PARAMETERS_H

#include "lib/comm/comm.h"
#include "lib/device/device.h"
#include "lib/model/decay.h"
#include "lib/model/model.h"
#include "lib/program/units.h"
#include "lib/reshard/checkpoint.h"
#include "lib/run/weights.h"
#include "lib/train/offload.h"
#include "lib/train/optimizer.h"

enum {
    PARAMETER_SLOTS = OPTIMIZER_SLOTS + 1, /* the optimizer's, and a moving average */
    PARAMETERS_ROOM = OPTIMIZER_WITHOUT    /* of an update, without masters */
};

/* Device memory, f32. */
struct parameter {
    float *weight;   /* [n]; NULL: held in another format, or this rank has its range */
    float *gradient; /* [n]; NULL: not trained, or this rank sums its range alone */
    uint64_t n, first, count; /* this rank updates COUNT elements from FIRST, or none */
    uint64_t at;              /* trained elements before it */
    float *own, *sum;         /* [count]: those weights, their summed gradients, */
    uint16_t *bf16, *own_bf16; /* of a weight without a master, whose .weight and .own
                                * are NULL: the same, in bf16 */
    float *slot[PARAMETER_SLOTS]; /* and what is kept for them, as the slot's form says;
                                   * NULL: nothing */
    bool trained, decays;         /* weight decay applies to it */
    bool matrix;   /* to the optimizer, which updates it as a whole, if at all */
    uint64_t load; /* its gradient is the rows that chose each expert, this many of each
                    * row of the batch, of LOADS experts; 0: it is a gradient */
    uint64_t loads;
};

/* Ranks that have the same weights, and share them: one of SIZE, by STAGE of ZeRO (0,
 * of ranks that share all the same: as 1).  TREE: stage 1 sums its ranges apart from
 * the gradients of a micro-batch, too.  OFFLOADS: the slots are in memory of the host
 * (offload.h).  GATHERS is FORMAT_F32, but for */
struct parameters_owner {
    int rank, size, stage;
    bool tree, offloads;
    bool no_master;      /* matrices that products read (roundable.h) are kept in bf16
                          * alone; .gathers is FORMAT_BF16 */
    enum format gathers; /* FORMAT_BF16, FORMAT_F16: stage 3 gathers the matrices that
                          * products read in it */
};

struct parameters {
    const struct program *program;
    const struct backend *ops;
    struct device *device;
    struct cutter *cutter; /* the rank's shards, in the program's element order */
    struct matrix *matrix; /* [nweights]: the weights, for the engine */
    struct parameter *row; /* [nweights] */
    struct weights held;   /* those that are not trained; .n 0: none */
    uint64_t n, trained;   /* elements of all rows; of those that are trained */
    struct parameters_owner owner;
    struct units units;
    size_t *share;   /* [units.n][owner.size]: elements of a unit that each owns */
    uint64_t *place; /* [units.n + 1]: of this rank's elements those in units before */
    uint64_t owned;  /* of this rank: elements of a slot */
    bool *no_master; /* [nweights]: it is kept in bf16 alone; NULL: none is */
    /* Bytes of .weight, and of .own, before those of a unit; of .own of stage 3 alone.
     */
    uint64_t *unit_at, *own_at; /* [units.n + 1] */
    float *weight;   /* of stages 0 to 2 all, of stage 3 those that are not trained */
    float *gradient; /* [trained], of stages 0 and 1 */
    float *own;      /* of stage 3: weights that this rank updates */
    uint64_t weight_floats, own_floats; /* of both, as f32 */
    float *room; /* [nroom]: numbers of weights without masters during an update */
    uint64_t nroom;
    float *sum;               /* [owned], of stages 2 and 3, or .tree: gradients */
    struct unit_images image; /* of stage 3: how a unit is gathered, */
    size_t *share_bytes;      /* [units.n][owner.size]: and who gives how much */
    struct unit_stays reads;
    float *gathered;            /* [reads.room] */
    struct offloading *offload; /* of .offloads, else NULL */
    /* What is kept for each trained weight beside its gradient: the optimizer's slots,
     * 0 at first, then its moving average, if it is kept.  Checkpoints have them, by
     * these roles. */
    enum optimizer_kind optimizer;
    struct manifest_state state[PARAMETER_SLOTS];
    struct optimizer_slot form[PARAMETER_SLOTS];
    float *slot[PARAMETER_SLOTS];      /* [size]: those of each weight in turn */
    uint64_t size[PARAMETER_SLOTS];    /* floats */
    uint64_t *stored[PARAMETER_SLOTS]; /* [nweights + 1]: numbers that checkpoints have
                                        * of the trained weights before each, on all
                                        * replicas together */
    int slots;
    bool drawn;  /* weights are drawn, not read: all are in .weight */
    int average; /* index of the moving average; -1: none */
    /* [model->ntensors + model->nadapters]: do several stages train it (ties.h)? */
    enum tied { TIED_NOT, TIED_FIRST, TIED_LATER } * tied;
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
/* Weight decay applies to other weights than DECAY_USUAL. */
void parameters_find_decay(struct parameters *p, enum decay_kind kind);
/* Keeps a moving average of the trained weights as one more slot. */
MUST_CHECK int parameters_keep_average(struct parameters *p, struct err *err);
/* The moving average, if it is kept, begins, or begins again, with the weights as they
 * are. */
MUST_CHECK int parameters_begin_average(struct parameters *p, struct err *err);
/* It gets nearer to the weights of ROW, and of those behind it, N in all, by BY; X:
 * they are there, in f32. */
MUST_CHECK int parameters_average(struct parameters *p, const struct parameter *row,
                                  const float *x, uint64_t at, uint64_t n, double by,
                                  struct err *err);
void parameters_close(struct parameters *p);
/* Adds what it has allocated: "weights", "gathered_weights", "gradients",
 * "optimizer". */
void parameters_memory(const struct parameters *p, struct ledger *list);

/* Runs an operation of the backend on arrays. */
MUST_CHECK int parameters_run(struct parameters *p, enum array_op op,
                              const struct array_call *c, struct err *err);
/* The same of an update of weights, with their slots. */
MUST_CHECK int parameters_update(struct parameters *p, enum array_op op,
                                 const struct array_call *c, struct err *err);
/* Copies N numbers from AT of what checkpoints have of weight I in slot K, all of which
 * this rank keeps, to memory of the host; and back, of slots in codes all of them. */
MUST_CHECK int parameters_take_slot(const struct parameters *p, float *to, int i, int k,
                                    uint64_t at, uint64_t n, struct err *err);
MUST_CHECK int parameters_put_slot(struct parameters *p, int i, int k,
                                   const float *from, uint64_t at, uint64_t n,
                                   struct err *err);
/* Where the numbers of weight I in slot K begin, and how many of them this rank has. */
void parameters_kept(const struct parameters *p, int i, int k, uint64_t *first,
                     uint64_t *count);
enum slot_form parameters_form(const struct parameters *p, int i, int k);
/* Copies N numbers of weight I from element AT on, which this rank has, to memory of
 * the host; and back, rounded to nearest where it is kept in bf16. */
MUST_CHECK int parameters_take(const struct parameters *p, float *to, int i,
                               uint64_t at, uint64_t n, struct err *err);
MUST_CHECK int parameters_put(struct parameters *p, int i, const float *from,
                              uint64_t at, uint64_t n, struct err *err);
/* Has it weight I in bf16 alone? */
bool parameters_lacks_master(const struct parameters *p, int i);
/* y[n] = 0 */
MUST_CHECK int parameters_zero(struct parameters *p, void *y, uint64_t n,
                               struct err *err);
/* y[n] = x + z */
MUST_CHECK int parameters_add(struct parameters *p, float *y, const float *x,
                              const float *z, uint64_t n, struct err *err);

/* The part of elements [AT, AT + N) of the trained ones, all of one unit, that this
 * rank updates: *COUNT elements from AT + *FIRST; 0 and 0 if there is none. */
void parameters_own(const struct parameters *p, uint64_t at, uint64_t n,
                    uint64_t *first, uint64_t *count);
/* Elements of unit U before this rank's. */
uint64_t parameters_before(const struct parameters *p, int u);
/* The number of this rank's elements before AT, a trained one which it updates. */
uint64_t parameters_place(const struct parameters *p, uint64_t at);
/* The rank that updates element AT of the trained ones, and *LEFT: so does it as many,
 * with that one. */
int parameters_owner_of(const struct parameters *p, uint64_t at, uint64_t *left);
/* Has this rank only its ranges of the trained weights? */
bool parameters_gathers(const struct parameters *p);
/* And of the gradients, but for those that are being made? */
bool parameters_sums_late(const struct parameters *p);
/* Has it its ranges of the sums apart from the gradients of micro-batches? */
bool parameters_sums_own(const struct parameters *p);
/* Do several stages train weight I, and is this the first of them? */
enum tied parameters_tied(const struct parameters *p, int i);
/* Calls SEE for each run of weight I that is contiguous both here and in the global
 * tensor: N elements from HERE and from WHOLE, in the order of HERE.  OWNED: this rank
 * has the primary replica. */
void parameters_runs(struct parameters *p, int i,
                     void (*see)(void *arg, size_t here, size_t whole, size_t n,
                                 bool owned),
                     void *arg);
/* The same, of a tensor that is sharded over the tensor group: OWNED says that this
 * rank has the primary replica in the group, whatever other stages have. */
void parameters_group_runs(struct parameters *p, int i,
                           void (*see)(void *arg, size_t here, size_t whole, size_t n,
                                       bool owned),
                           void *arg);
/* Number of elements of weight I's global tensor, or of an adapter's matrix. */
uint64_t parameters_whole(const struct parameters *p, int i);

#endif
