/* costmodel - the per-layer cost model of one rank
 *
 * A unit is a layer, or a section of the forward pass that is not repeated (embedding,
 * head).  For each unit the weights of this rank of a tp x ep mesh are summed by class;
 * its instructions give the KV cache columns of a token and the activations saved for
 * the backward pass.  A pipeline stage is a range of units. */
#ifndef LIB_ESTIMATE_COSTMODEL_H
#define LIB_ESTIMATE_COSTMODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/model/mesh.h"
#include "lib/model/model.h"
#include "lib/program/program.h"
#include "lib/estimate/torch.h"

enum weight_class {
    WEIGHT_MATRIX, /* matrices of layers, except experts' */
    WEIGHT_EXPERT, /* weights of experts: not replicated over ep */
    WEIGHT_TABLE,  /* matrices outside layers: embeddings, LM head */
    WEIGHT_VECTOR, /* norms and biases */
    WEIGHT_CLASSES
};

/* This rank's tensors of one class. */
struct weight_sum {
    uint64_t elements;
    uint64_t rows;          /* rows of the matrices */
    uint64_t bytes;         /* as stored; 0 if the model has no checkpoint */
    uint64_t trained;       /* elements with a gradient */
    uint64_t trained_sides; /* sum of rows + columns of the trained matrices */
    uint64_t adapted_sides; /* the same of the matrices that get LoRA adapters */
    /* As tp-run holds them with --weights int8 ([0]) and int4 ([1]); only with
     * .unpacked. */
    struct {
        uint64_t bytes;          /* of the matrices that become codes */
        uint64_t others, stored; /* elements of the others, and .bytes of these */
    } coded[2];
};

/* One KV cache entry of a layer. */
struct unit_cache {
    uint64_t cols;   /* elements per token on this rank */
    uint64_t heads;  /* of these elements; 0: unknown */
    uint64_t window; /* tokens that attention reads; 0: all */
};

/* Elements per token of a set of values, by placement. */
struct columns {
    uint64_t cut;                  /* of values sharded over tp */
    uint64_t whole;                /* of values replicated over tp */
    uint64_t gathered;             /* the part of whole that column-parallel products
                                      read: sequence parallelism gathers it */
    uint64_t wide_cut, wide_whole; /* of further copies in f32 */
};

/* The saved activations; a value belongs to the unit that saves it first. */
struct unit_kept {
    struct columns columns;
    uint64_t boundary; /* columns of its inputs from other units; unsharded */
    uint64_t masks;    /* columns with a dropout mask outside attention; unsharded */
    uint64_t heads;    /* attention heads on this rank */
    uint64_t window;   /* keys that a query sees; 0: all */
    bool capped;       /* softcap: the scores before it are saved as well */
    uint64_t spread;   /* columns that keys and values have more when each head has its
                          own, as where PyTorch's attention has a mask */
    uint64_t flags;    /* further bytes for a token */
    uint64_t biases;   /* tables of relative biases that it is the first to read, */
    uint64_t biased;   /* and heads for which a fused kernel gets them as a mask */
    uint64_t related;  /* columns of the heads if scores are gathered by distance, */
    uint64_t span;     /* distances on each side: at most this many; */
    bool near;         /* and no more than there are tokens */
    bool narrow;       /* the softmax is made in the type of the values */
    uint64_t unfused;  /* heads whose scores are kept in f32, for want of a kernel */
    bool masked;       /* a fused kernel keeps a mask for each sequence */
    uint64_t turned; /* columns that are kept again where there are several sequences */
    struct {
        uint64_t reach; /* keys on each side: 0: there is no local attention */
        bool blocks;    /* in blocks, else in chunks (torch.h) */
        uint64_t heads, keys,
            values;      /* on this rank: heads; columns of k (or q), of v */
        uint64_t biases; /* tables of relative biases first read here */
    } local;
};

/* Moments of a unit's backward pass: when its activations and their gradients are
 * largest, attention's scores aside, with replicated values in full (UNIT_WHOLE) or
 * split by tokens as in sequence parallelism (UNIT_CUT); and the backward pass of
 * attention. */
enum unit_moment { UNIT_WHOLE, UNIT_CUT, UNIT_ATTENTION, UNIT_MOMENTS };

/* What is live in a unit at that moment. */
struct unit_worst {
    struct columns columns; /* saved activations and gradients of activations */
    uint64_t made;          /* thousandths of its weight gradients computed so far */
};

enum { UNIT_MAX_CACHES = 8 };

struct unit {
    const char *section;
    int layer; /* or -1 */
    int index; /* of its section; see common.read_by */
    int depth; /* layer, counted over all sections, with which it shares a stage */
    struct weight_sum weight[WEIGHT_CLASSES];
    struct unit_kept kept;
    struct columns sparse;      /* RECOMPUTE_PRODUCTS: the results that it saves, */
    struct columns sparse_kept; /* those of them that are saved anyway */
    struct unit_worst worst[UNIT_MOMENTS];
    uint64_t top, all; /* experts per token (top-k); experts in all */
    struct unit_cache cache[UNIT_MAX_CACHES];
    int ncaches;
    uint64_t state; /* numbers of states of fixed size, f32, of a sequence */
    int like;       /* first unit of the run of identical units that it is in */
};

/* N consecutive identical units, each one layer deeper than the one before. */
struct unit_run {
    int first, n;
};

/* Tensors outside layers: on every stage with a section that reads them. */
struct common {
    uint64_t read_by; /* bit per section; 0: on the first stage */
    enum weight_class class;
    struct weight_sum sum;
};

struct costmodel {
    const struct model *model;
    struct unit *unit;
    int nunits;
    struct unit_run *run; /* covers all units, in order */
    int nruns;
    int *first_unit; /* [nsections]: index of the section's first unit */
    struct common *common;
    int ncommons;
    uint64_t angles;         /* cosines and sines of all positions, of each table */
    uint64_t largest;        /* elements of the largest unit or common tensor */
    uint64_t vocab;          /* this rank's columns of the logits; 0: no logits */
    uint64_t caps;           /* operations on the logits that save a copy of them */
    struct program *program; /* of the forward pass of all layers, up to the loss */
    bool causal;
    bool narrow_loss; /* PyTorch makes the loss in the type of the logits */
    struct torch_words torch;
    bool *trained; /* [ntensors of the model]: has a gradient (no LoRA, not frozen) */
};

struct costmodel_options {
    bool training;       /* with the family's lines for training */
    bool lora;           /* only LoRA adapters are trained */
    const char *targets; /* comma-separated names of the tensors with adapters; NULL:
                            all matrices of layers */
    const char *saved; /* modules that are trained with them, as PEFT has it; or NULL */
    const char *freeze; /* names of tensors without gradients, or NULL, */
    const char *only;   /* or of those that have some */
    bool eager;         /* PyTorch's eager mode: one kernel per operation */
    bool narrow;        /* activations have fewer bits than f32 */
    bool scores;        /* attention saves its scores (no flash attention) */
    bool unpacked;      /* quantized weights are unpacked when they are loaded */
    bool tp_run;        /* weights are sharded as by tp-run */
};

/* Makes the cost model of the rank at COORD of MESH; only tp and ep matter.  STORED[i]
 * is the type of input i of the model's binding, NULL without a checkpoint.  OPT may be
 * NULL. ERR_USAGE if a name in OPT is that of no tensor. */
MUST_CHECK int costmodel_open(struct costmodel **out, const struct model *m,
                              const struct mesh *mesh, const int coord[MESH_NAXES],
                              const enum dtype *stored,
                              const struct costmodel_options *opt, struct err *err);
void costmodel_close(struct costmodel *a);

/* Frees A's program; the bytes of training need it no more. */
void costmodel_drop_program(struct costmodel *a);

/* Index of the unit that makes V, a value of A's program. */
int costmodel_unit(const struct costmodel *a, const struct value *v);

/* True if a stage with the layers [FIRST, FIRST + COUNT) holds C. */
bool costmodel_holds(const struct costmodel *a, const struct common *c, int first,
                     int count);
/* True if unit U is on that stage. */
bool costmodel_runs(const struct unit *u, int first, int count);

/* Number of parameters of M; tied ones count once. */
uint64_t costmodel_params(const struct model *m);
/* Number of values of its state that are no parameters: of buffers that files store. */
uint64_t costmodel_buffers(const struct model *m);

#endif
