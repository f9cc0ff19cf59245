/* anatomy - what one rank holds and makes of a model, unit by unit
 *
 * A unit is a layer, or a section of the forward pass that is not repeated (embedding,
 * head).  For each the weights that this rank of a tp x ep mesh has are summed by
 * class, and from its instructions follow what a token leaves in the cache and which
 * values the backward pass reads again.  A stage of a pipeline is a range of units. */
#ifndef LIB_ESTIMATE_ANATOMY_H
#define LIB_ESTIMATE_ANATOMY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/model/mesh.h"
#include "lib/model/model.h"
#include "lib/program/program.h"
#include "lib/program/torch.h"

enum weight_class {
    WEIGHT_MATRIX, /* of a layer */
    WEIGHT_EXPERT, /* of one expert: not replicated over ep */
    WEIGHT_TABLE,  /* matrices outside layers: embeddings, head */
    WEIGHT_VECTOR, /* norms and biases */
    WEIGHT_CLASSES
};

/* Tensors of one class, as far as this rank has them. */
struct weight_sum {
    uint64_t elements;
    uint64_t rows;          /* of matrices */
    uint64_t bytes;         /* as stored; 0 where the model has no weights */
    uint64_t trained;       /* elements that are trained */
    uint64_t trained_sides; /* rows + columns of the trained matrices */
    uint64_t adapted_sides; /* rows + columns of the matrices that LoRA adapts */
};

/* What a token leaves in the cache of one layer. */
struct unit_cache {
    uint64_t cols;   /* elements */
    uint64_t window; /* tokens after which it is not read again; 0: never */
};

/* Elements for each token. */
struct columns {
    uint64_t cut;                  /* of values that are cut over tp, or would be */
    uint64_t whole;                /* of values that are whole on every rank, */
    uint64_t gathered;             /* of them those that a product reads whose result is
                                      cut */
    uint64_t wide_cut, wide_whole; /* of copies in f32, which are not among them */
};

/* What the backward pass reads, each value counted in the unit that reads it first. */
struct unit_kept {
    struct columns columns;
    uint64_t border; /* elements that come from another unit, whole */
    uint64_t masks;  /* elements that dropout acts on, outside attention; whole */
    uint64_t heads;  /* attention heads: a score for each key, a sum for each row */
    uint64_t window; /* keys that a row sees; 0: all */
    bool capped;     /* scores are bent by a cap, which are values of their own */
    uint64_t spread; /* columns that keys and values have more when each head has its
                        own, as where PyTorch's attention has a mask */
    bool narrow;     /* the softmax is made in the type of the values */
    bool unfused;    /* scores are kept in f32 also where a kernel would not */
};

/* Moments of a unit's backward pass: when most is there (attention's scores aside), as
 * values are or where those that are whole over tp are cut by tokens, and attention. */
enum unit_moment { UNIT_WHOLE, UNIT_CUT, UNIT_ATTENTION, UNIT_MOMENTS };

/* What there is of a unit at such a moment. */
struct unit_worst {
    struct columns columns; /* of values, gradients of values among them */
    uint64_t made;          /* thousandths of its weights' gradients that were made */
};

enum { UNIT_MAX_CACHES = 8 };

struct unit {
    const char *section;
    int layer; /* or -1 */
    int index; /* of its section, for common.read_by */
    int depth; /* it stands on the stage of this layer, counted over all sections */
    struct weight_sum weight[WEIGHT_CLASSES];
    struct unit_kept kept;
    struct columns sparse; /* attention's results, those of every second product, */
    struct columns sparse_kept; /* and which of them are read again */
    struct unit_worst worst[UNIT_MOMENTS];
    uint64_t top, all; /* experts of a token, and of the unit */
    struct unit_cache cache[UNIT_MAX_CACHES];
    int ncaches;
    int like; /* index of the first of the units before it that are all like it */
};

/* Units that follow each other, one deeper than the other, and are all alike. */
struct unit_run {
    int first, n;
};

/* Tensors that belong to no layer: they are on every stage that reads them. */
struct common {
    uint64_t read_by; /* bit per section; 0: the first stage */
    enum weight_class class;
    struct weight_sum sum;
};

struct anatomy {
    const struct model *model;
    struct unit *unit;
    int nunits;
    struct unit_run *run; /* all units, in order */
    int nruns;
    int *first_unit; /* [nsections]: index of a section's first */
    struct common *common;
    int ncommons;
    uint64_t largest;        /* elements of the largest layer or common tensor */
    uint64_t vocab;          /* this rank's columns of the logits; 0: it has none */
    uint64_t caps;           /* operations on the logits that keep as much again */
    struct program *program; /* of a whole forward pass that ends in the logits */
    bool causal;
    bool narrow_loss; /* PyTorch makes the loss in the type of the logits */
    struct torch_words torch;
    bool *trained; /* [ntensors of the model]: has a gradient of its own */
};

struct anatomy_options {
    bool training;       /* the lines that it runs */
    bool lora;           /* only adapters are trained */
    const char *targets; /* names of the tensors that LoRA adapts, with commas between;
                            NULL: every matrix of a layer */
    const char *freeze;  /* names of tensors that are not trained, or NULL */
    bool eager;          /* each operation is run by itself, as PyTorch does */
    bool narrow;         /* values have fewer bits than f32 */
    bool scores;         /* attention keeps its scores */
};

/* The anatomy at COORD of MESH, of which only tp and ep count.  STORED[i] is the type
 * of input i of the model's binding, NULL where it has no weights; OPT may be NULL.  A
 * name in OPT that no tensor has is ERR_USAGE. */
MUST_CHECK int anatomy_open(struct anatomy **out, const struct model *m,
                            const struct mesh *mesh, const int coord[MESH_NAXES],
                            const enum dtype *stored, const struct anatomy_options *opt,
                            struct err *err);
void anatomy_close(struct anatomy *a);

/* Forget A's program, where bytes of training alone are still asked for. */
void anatomy_drop_program(struct anatomy *a);

/* The index of the unit that makes V, a value of A's program. */
int anatomy_unit(const struct anatomy *a, const struct value *v);

/* Does a stage that runs the layers [FIRST, FIRST + COUNT) hold C? */
bool anatomy_holds(const struct anatomy *a, const struct common *c, int first,
                   int count);
/* Is unit U on that stage? */
bool anatomy_runs(const struct unit *u, int first, int count);

/* The parameters of M, tied ones counted once. */
uint64_t anatomy_params(const struct model *m);

#endif
