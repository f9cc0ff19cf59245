/* trainer - training on one rank: micro-batches, gradient accumulation, update
 *
 * A global batch is divided in order over the data-parallel replicas (dp).  A replica
 * runs its share as micro-batches, scheduled by a pipeline's table of actions, and
 * accumulates their gradients in order.  The loss is the mean over all targets of the
 * global batch.  Each micro-batch in flight on a stage has an engine of its own,
 * because its activations stay saved in that engine's arena.  The documents of a sample
 * are segments of a step, so they do not attend to each other.
 *
 * With .deterministic, the gradients of micro-batches are added in a binary tree over
 * their indices in the global batch, so the sums do not depend on dp: replicas take the
 * micro-batches in turn, and add up those that they have at a time. */
#ifndef LIB_TRAIN_TRAINER_H
#define LIB_TRAIN_TRAINER_H

#include "lib/comm/flows.h"
#include "lib/pipe/order.h"
#include "lib/run/runner.h"
#include "lib/train/data.h"
#include "lib/train/gradients.h"
#include "lib/train/verdict.h"
#include "lib/train/optimizer.h"
#include "lib/train/rounded.h"
#include "lib/train/scaler.h"
#include "lib/train/shards.h"
#include "lib/train/ties.h"
#include "lib/train/timing.h"

enum { TRAINER_TERMS = 3 }; /* likelihood, balance, router's z-loss */

/* What a step learns beside the likelihood of the targets. */
struct trainer_terms {
    /* Terms of the loss: the balance of a mixture's experts and its router's z-loss,
     * each over all rows of a micro-batch in all layers, times these; the mean over the
     * micro-batches of the global batch, or, as Hugging Face's Trainer has it, their
     * sum. */
    double balance, router_z;
    bool balance_sum;
    double bias_speed; /* a bias in the choice of experts moves by it at each step */
    double smooth;     /* label smoothing (Szegedy et al. 2016) */
    double z;          /* of the squared logarithm of the softmax's sum (PaLM) */
    double average;    /* decay of a moving average of the weights; 0: none is kept */
};

struct trainer_options {
    size_t length;           /* of a sample, at most, */
    size_t source;           /* and of its source; 0: the model reads none */
    size_t documents;        /* of a sample, at most; 0: not known */
    int micro_batch, global; /* samples; global = micro_batch * micro-batches of a
                              * replica * dp */
    enum order order;        /* of the pipeline's passes, */
    int chunks;              /* and stages of a rank in it; 0: order_chunks */
    const struct action_table *table; /* instead of both; must outlive the call; or
                                       * NULL */
    bool timed;                       /* .timing notes when actions begin and end */
    bool deterministic;               /* sums do not depend on dp */
    bool sequence;                    /* as in program_options, */
    struct recompute_plan recompute;  /* too, */
    double dropout;                   /* too */
    uint64_t seed;                    /* seed of dropout */
    enum weights_form frozen;         /* of matrices that are not trained (held.h) */
    int zero; /* stage of ZeRO: replicas share the optimizer's state (1), the sums of
               * gradients (2), and weights (3); 0: nothing.  With one micro-batch of a
               * replica, or .deterministic, no bit changes; 0 and 1, and 2 and 3, have
               * the same bits always */
    int hsdp; /* replicas that share; 0: all.  It divides dp */
    bool offload; /* the optimizer's state is in memory of the host (offload.h) */
    enum format compute; /* FORMAT_BF16, FORMAT_F16: products of weights that are
                          * rounded so (rounded.h), by what is rounded; FORMAT_F32 */
    bool no_master; /* of .compute FORMAT_BF16: the matrices that products read are kept
                     * in bf16 alone (nomaster.h), with seed .seed */
    struct optimizer_options optimizer;
    struct trainer_terms terms;
    enum decay_kind decays; /* to which weights weight decay applies */
    enum loss_kind loss;
    struct loss_numbers numbers; /* of a loss of likelihoods */
};

struct trainer_result {
    double loss, norm; /* loss before the update, of the likelihood alone; gradient norm
                        * before clipping */
    double balance, router_z; /* means over the micro-batches; NaN: not computed */
    uint64_t counted;         /* number of targets */
    bool skipped;             /* the update was skipped, */
    bool overflows; /* because gradients times the scale are no numbers of f16 */
    double scale;   /* that the loss had */
};

/* One of the stages of the pipeline that a rank has. */
struct trainer_stage {
    int number;              /* in the model's order; also .program->coord[MESH_PP] */
    struct program *program; /* of a mesh with a rank for each stage */
    struct program *scored;  /* without dropout and further terms of the loss, for
                              * evaluation; NULL: as in training */
    struct parameters parameters;
    struct rounded rounded;
    struct gradients gradients;
    struct wholes *wholes;
    struct engine_groups groups;
    struct shards shards, scored_shards;
    struct engine *scorer;  /* of .scored, opened when first needed */
    struct engine **engine; /* [in_flight] */
    int *holds;             /* [in_flight]: its micro-batch, or -1 */
    int in_flight;
    float *room;    /* [lossroom_numbers]: of the loss */
    uint64_t rooms; /* its bytes */
};

struct trainer {
    struct trainer_options options;
    const struct backend *ops;
    struct device *device;
    struct mesh mesh;            /* as the run has it, */
    struct mesh staged;          /* and with a rank for each stage */
    int coord[MESH_NAXES];       /* in .mesh */
    struct trainer_stage *stage; /* [nstages] of this rank, ascending */
    int nstages;
    struct flows *flows; /* between stages, if a rank has several; else NULL */
    struct ties ties;
    struct optimizer optimizer; /* without .wholes, which the stages have */
    struct scaler scaler;
    struct engine_groups groups; /* of all stages; .pipe: of the ranks */
    int threads;
    struct comm *data;   /* the ranks that have other samples: of dp, and of
                          * ep, which varies faster */
    struct comm *copies; /* the ranks that have its weights: of dp, and of
                          * sp, which varies faster */
    struct gradients_replicas replicas; /* of it those that share, and not */
    struct action_table table;
    struct timing timing; /* if .options.timed */
    uint64_t first; /* index in the run of the next step's first sample, for dropout */
    size_t count;   /* its samples; those behind them fill up the batch, and nothing
                     * of them is learned.  0: all */
    struct verdict *seen; /* of an evaluation; else NULL */
    double kl;            /* of the step's samples (loss_info.distance) */
    double
        most_norm;   /* an update with a larger gradient norm is skipped; 0: no limit */
    size_t segments; /* per micro-batch, at most */
    double *loss;    /* [micro-batches of the global batch][TRAINER_TERMS]: sums */
};

/* What a program ends with for LOSS. */
enum program_tail trainer_tail(enum loss_kind loss);
/* Has the loss a term that needs the router's sums? */
bool trainer_balances(const struct trainer_terms *t);
/* *OUT = MESH with a rank for each of STAGES stages, which are cut as those of C, if it
 * has as many: programs and shards of each are those of a rank of it. */
MUST_CHECK int trainer_staged(struct mesh *out, const struct mesh *mesh,
                              const struct checkpoint *c, int stages, struct err *err);
/* Has the table gradients of inputs apart from those of weights? */
bool trainer_splits(const struct action_table *a);
/* ERR_INPUT when PP ranks and MICRO_BATCHES cannot be trained with the table A. */
MUST_CHECK int trainer_check_table(const struct action_table *a, int pp,
                                   int micro_batches, struct err *err);
/* Prepares rank WORLD->rank of MESH to train C; both must outlive *t. */
MUST_CHECK int trainer_open(struct trainer *t, struct checkpoint *c,
                            const struct mesh *mesh,
                            const struct runner_machine *machine, struct comm *world,
                            const struct trainer_options *options, struct err *err);
void trainer_close(struct trainer *t);
/* Allocates what a step, or an evaluation, of the N samples at SAMPLE needs beyond what
 * those before needed; they do it themselves, but where they fail the ranks are apart.
 */
MUST_CHECK int trainer_make_room(struct trainer *t, const struct sample *sample,
                                 size_t n, struct err *err);
/* Makes one update with learning rate RATE from the global batch at SAMPLE.  SAMPLE is
 * the same on all ranks, and so is *result.  Skips the update when loss or norm is not
 * finite, or the norm exceeds .most_norm, or no token has a target: then loss and norm
 * are NaN.  In f16 the scale of the loss follows. */
MUST_CHECK int trainer_step(struct trainer *t, const struct sample *sample, double rate,
                            struct trainer_result *result, struct err *err);
/* Adds the losses of all targets of the N samples at SAMPLE to *SUM, their number to
 * *COUNTED, and what is right to *VERDICT; the same on all ranks. */
MUST_CHECK int trainer_evaluate(struct trainer *t, const struct sample *sample,
                                size_t n, struct verdict *verdict, double *sum,
                                uint64_t *counted, struct err *err);
/* Bytes of the saved activations of a micro-batch in flight: TOKENS in SEGMENTS
 * documents, which have SOURCES source tokens, as the ranks of P's sp have them where
 * ACROSS of them divide heads (sequence.h). */
uint64_t trainer_arena(const struct program *p, int across, size_t tokens,
                       size_t sources, size_t segments);
/* Bytes of the host for LOSS on the stage of P, on rank SEQUENCE of sp. */
uint64_t trainer_room(const struct program *p, enum loss_kind loss, size_t tokens,
                      size_t segments, const struct comm *sequence);
/* Matrices of which this rank has parts of blocks in codes (wholes_divided). */
int trainer_divided(const struct trainer *t);
/* Adds what this rank has allocated: parameters, gradients, engines, kernels. */
void trainer_memory(const struct trainer *t, struct ledger *list);

#endif
