/* program - the forward pass of one rank, typed and placed
 *
 * The family's lines, unrolled over layers, become instructions on values.  Each value
 * is [rows][cols] f32: rows are tokens, cols the elements this rank holds.  Collectives
 * have been inserted where a cut or partial value is needed whole.  Every rank of a
 * tensor group has the same list of instructions; only local sizes differ.  Over
 * several pipeline stages each has its own instructions (border.h). */
#ifndef LIB_PROGRAM_PROGRAM_H
#define LIB_PROGRAM_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/model/mesh.h"
#include "lib/model/model.h"
#include "lib/program/op.h"

enum rows {
    ROWS_TOKENS, /* all tokens of the step */
    ROWS_WANTED, /* the wanted of them */
    ROWS_ONE,    /* one of each segment of the step */
    ROWS_SOURCE, /* all tokens of the source, which a second stack reads; they are there
                   in the first step of a sequence only */
    ROWS_TABLE,  /* all rows of a table (program.table), whatever the step */
    ROWS_SENT,   /* one for each expert that a row of this rank is sent to, by expert,
                    where ranks share out the experts */
    ROWS_CHOSEN, /* one for each expert of this rank that a row is sent to, by expert;
                    where ranks share them out, then by the rank that it is of */
    ROWS_KINDS
};
/* Numbers that a token may have besides its id, such as a box on a page or its place in
 * a table; the last is how many tokens before it have the same second and third. */
enum { MARKS = 8 };
enum index {
    INDEX_IDS,
    INDEX_POSITIONS,
    INDEX_TOKEN_TYPES,
    INDEX_MARK, /* the first of MARKS numbers that a token has besides */
    INDEX_LAST_MARK = INDEX_MARK + MARKS - 1,
    INDEX_EVERY,
    INDEX_SOURCE, /* and what follows have the source's rows */
    INDEX_SOURCE_POSITIONS,
    INDEX_KINDS
};
enum activation {
    ACT_SILU,
    ACT_GELU,
    ACT_GELU_TANH,
    ACT_GELU_NEW, /* the same, in PyTorch of eight operations */
    ACT_RELU,
    ACT_TANH,
    ACT_SIGMOID,
    ACT_QUICK_GELU,
    ACT_LINEAR, /* x */
    ACT_RELU2,  /* the square of ACT_RELU */
    ACT_RELU6,
    ACT_LEAKY_RELU,
    ACT_GELU_10, /* ACT_GELU, no further from zero than 10 */
    ACT_MISH,
    ACT_LAPLACE,
    ACT_HARDSWISH,
    ACT_SQRT_SOFTPLUS
};

/* Where the columns of a value are over the ranks of the tensor group. */
enum place {
    PLACE_WHOLE,  /* all on every rank */
    PLACE_CUT,    /* sharded along a dealt symbol of the columns */
    PLACE_PARTIAL /* all, on every rank a term of a sum that is still to be made */
};

struct value {
    const char *name; /* the line's word: "q"; NULL for what lies inside a line */
    int section;      /* index of the section, -1 outside */
    int layer;        /* layer of a repeated section, else -1 */
    enum rows rows;
    int mixture; /* ROWS_SENT, ROWS_CHOSEN: index into program.mixture, else -1 */
    enum place place;
    enum dtype dtype;    /* f32; f64 of row statistics; i32 of indices */
    bool kept;           /* made by OP_KEEP: lives in the cache, not in the arena */
    int gradient;        /* of the weight of this number, from 1: its memory is given to
                            the engine; 0: of none */
    uint64_t cols;       /* elements of a row on this rank */
    uint64_t whole_cols; /* elements of a row over all ranks */
    int first, last;     /* instructions that make it and use it last */
};

/* A weight as an instruction uses it: this rank's part of a tensor, row-major. */
struct weight {
    size_t tensor;       /* index into the model; tied tensors are resolved */
    uint64_t rows, cols; /* local; a vector has rows 1 */
    uint64_t experts;    /* one of as many that follow each other, for the experts of
                            this rank; 0: an ordinary weight */
    uint64_t slice;      /* which of them it is, from 1, where one tensor has an axis
                            of experts and is thus all of them; 0: each has its own */
    bool summed; /* its gradient is a term of the sum over the tensor group of those of
                    all copies of each element */
};

/* Rotary tables: angle of pair i at position p is p * inv_freq[i] (RoFormer, Su et al.
 * 2021). */
struct rope {
    uint64_t dim;     /* leading columns of each head that are rotated; even */
    bool interleaved; /* pairs (2i, 2i+1) instead of (i, i + dim/2) */
    double *inv_freq; /* [dim/2] */
    double scale;     /* of both cosine and sine (yarn's attention factor), else 1 */
    /* of sequences longer than context the frequencies are others: program_rope_at */
    bool dynamic;      /* by each length (dynamic NTK), or */
    double *long_freq; /* these [dim/2] (LongRoPE); else NULL */
    double theta, factor;
    uint64_t context; /* original length */
};

enum { INST_SOURCES = 5 };

struct inst {
    enum op op;
    int dst;               /* value */
    int src[INST_SOURCES]; /* values */
    int nsrc;
    int weight;  /* index into program.weight, or -1 */
    int weight2; /* layernorm's bias, or -1 */
    int line;    /* index into program.line, for messages */
    int mixture; /* index into program.mixture, of the experts' instructions; or -1 */
    union {
        struct {
            enum index index;
            uint64_t first;  /* row of the whole table that local row 0 is */
            uint64_t offset; /* added to each index (OPT's and RoBERTa's 2) */
        } embedding;
        double number; /* OP_SCALE, OP_SOFTCAP */
        struct {
            double most, least;
        } clip;
        struct {
            double rate;
            uint64_t site; /* where in the model: another for each dropout */
            int gather;    /* of a sharded value, index into program.gather: whose
                              columns of the whole row a rank has; -1 */
        } drop;
        int tree; /* OP_LINEAR, OP_MATMUL: how their sums are made: the tree of this
                     number in program.tree, from 1; 0: as it comes */
        enum activation act;
        struct {
            double eps;
            uint64_t width;       /* columns normed together on this rank */
            uint64_t whole_width; /* over all ranks */
            int tree;             /* of the sums of OP_ROW_SUM, OP_ROW_SQUARES */
            bool plus_one;        /* weight + 1 (Gemma) */
            bool owned;           /* this rank's columns count in the sums */
            bool centred;         /* of a reversed norm: it was a layer norm */
        } norm;
        struct {
            int table;       /* index into program.rope */
            uint64_t head;   /* columns of one head */
            uint64_t offset; /* OP_SINUSOID: added to each position */
        } rope;
        struct {
            int slot; /* index of the cache entry, 0 .. program.nslots-1 */
        } keep;
        struct {
            uint64_t heads,
                kv_heads; /* local; head h reads kv head h / (heads/kv_heads) */
            uint64_t head_dim, value_dim;
            uint64_t value_cols; /* of a head in v, of which value_dim are read */
            uint64_t group_start, groups; /* first KV group and number of groups held */
            uint64_t within_start, within; /* first head and heads inside each group */
            uint64_t per_group,
                all_heads; /* of the whole model: global head = (group_start + g)
                            * per_group + within_start + i */
            double scale, softcap; /* softcap 0: none */
            double alibi;    /* times slope of the head and distance is added to the
                                scaled score (Press et al. 2022); 0: nothing */
            uint64_t window; /* a query sees keys at distance < window; 0: all */
            bool chunked; /* it begins with a multiple of window, not with a query's */
            bool causal;
            double drop; /* rate at which weights are dropped, and where in the model */
            uint64_t site;
            uint64_t far; /* relative bias: distances from here on share a bucket;
                             the inst's weight is the table [buckets][heads];
                             OP_RELATE: 0: no two distances do */
            uint64_t bias_first; /* the table's column for the first head held */
            uint64_t span;       /* OP_RELATE: half of the table's rows */
            bool sinks; /* the inst's weight is instead a score for each head, of a
                           key without a value; those of the heads held: head
                           i of group g has number (sink_group + g) * sink_per +
                           sink_within + i */
            uint64_t sink_group, sink_within, sink_per;
        } attention;
        struct {
            uint64_t count; /* heads on this rank */
            uint64_t row;   /* of the weight that belongs to the first */
            uint64_t a, b;  /* columns of a head in the one source and the other */
            bool shared;    /* OP_CONCAT: the other has one head, for all */
        } head;
        struct {
            double step, amount;
        } temper;
        struct {
            uint64_t top;    /* experts of a token */
            uint64_t groups; /* experts lie in so many groups, of which */
            uint64_t of;     /* so many may be chosen from */
            uint64_t best;   /* a group counts for the sum of its best so many */
            bool renorm;     /* weights of a token add up to 1 */
            double near;  /* above 0: a softmax over scores so near (route_is_near) */
            double scale; /* then they are multiplied by this */
        } route; /* the inst's weight is added to the scores to choose by, or -1 */
        struct head_part {
            uint64_t groups, within, dim; /* of a row: groups of heads of columns */
            uint64_t group_start, group_count, within_start, within_count; /* a part */
        } heads; /* OP_HEADS_PACK, OP_HEADS_UNPACK */
        struct {
            uint64_t first;
        } segment;
        struct {
            int gather; /* index into program.gather; -1: statistics of rows */
        } gather;
        enum mesh_axis over; /* OP_ALL_REDUCE: its group */
        enum exchange_what {
            EXCHANGE_COUNTS, /* src the numbers of rows for each expert: those that come
                              */
            EXCHANGE_ROWS,   /* src rows, both numbers: to their experts */
            EXCHANGE_BACK    /* src what experts made of them, both numbers: back */
        } exchange;          /* OP_ALL_TO_ALL, over ep */
        struct {
            uint64_t first; /* column of the whole row that local column 0 is */
            uint64_t vocab; /* whole columns that count (padding is beyond) */
        } row;
    };
};

/* The experts that a value's rows are sent to. */
struct mixture {
    uint64_t first, count; /* experts of this rank */
    uint64_t all, top;     /* of all, and those of a row */
    enum rows rows;        /* that are sent */
    int counts;     /* value with the rows before each expert's of this rank, of those
                       ROWS_CHOSEN; then, where ranks share out the experts, [ep][count]
                       those that come from each rank */
    int sent;       /* value with the rows before each of all experts' that this rank
                       sends: the same where it has all of them */
    uint64_t *deal; /* [ep + 1]: the first expert of each rank, and their number */
};

/* How the columns of a cut value lie over the ranks of the tensor group. */
struct gather {
    int parts;
    struct runs *runs; /* [parts]: where each part's columns go in the whole row */
};

/* How a sum over a rank's columns is made so that other ranks' sums add up to the same
 * bits on any mesh: in parts, one after another, each by itself; after a part the last
 * two sums that there are become one, ADDS times. */
enum { TREE_LEAVES = 8 };
struct sum_tree {
    int n;
    struct tree_leaf {
        uint64_t cols;
        int adds;
    } leaf[TREE_LEAVES];
};

struct program {
    const struct model *model;
    struct mesh mesh;
    int coord[MESH_NAXES];
    struct value *value;
    int nvalues;
    struct inst *inst;
    int ninsts;
    struct weight *weight;
    int nweights;
    struct rope *rope;
    int nropes;
    struct gather *gather;
    int ngathers;
    struct mixture *mixture;
    int nmixtures;
    struct sum_tree *tree;
    int ntrees;
    int nslots;      /* cache entries: values under OP_KEEP */
    int *slot_value; /* [nslots]: the value, for its cols */
    struct program_output {
        const char
            *name; /* "logits", "last_hidden_state", or "layer.3.q" when tracing */
        int value; /* whole */
        int stage; /* pipeline stage that makes it */
    } * output;
    int noutputs;
    int *import, nimports; /* values received from the stage before, in this order */
    int *export, nexports; /* values sent to the next stage, in its order of imports */
    int nforward;          /* instructions before those of the reverse */
    int *back_import;      /* [nexports]: gradients received from the next stage */
    int *back_export;      /* [nimports]: those sent to the stage before */
    char **line;           /* "layer.3.q = ...", for messages */
    int nlines;
    uint64_t table;    /* rows of ROWS_TABLE */
    bool source;       /* a source is read */
    bool marks;        /* tokens have marks */
    bool causal;       /* some attention is causal: text can be generated */
    bool dynamic_rope; /* the cache of a text that has grown is not that of one read */
};

enum program_tail {
    TAIL_NONE,   /* outputs as the family names them */
    TAIL_NLL,    /* and "nll" [wanted][1] instead of logits */
    TAIL_LOGITS, /* logits of the wanted rows, whole */
    TAIL_ARGMAX, /* "next" [wanted][1] instead of logits */
    TAIL_SAMPLE, /* the same, drawn */
};

struct program_options {
    enum program_tail tail;
    bool wanted; /* insert OP_TAKE where the last row-wise part of the program begins:
                    only the wanted rows of the step reach the outputs */
    bool trace;  /* every line's value is an output, whole */
    const char *only;   /* with TAIL_NONE: of the model's outputs this one alone; NULL:
                           all */
    bool deterministic; /* results have the same bits on any number of tensor-parallel
                           ranks: what they may share the terms of is summed by one
                           binary tree, of which each has a subtree; meshes on which
                           they have none are refused */
    bool training;  /* the lines of families that training runs: those whose "when" asks
                       for "training" */
    bool reverse;   /* the derivative of the sum of "nll" follows, to every weight
                       (reverse.h); with TAIL_NLL, and without .wanted */
    double dropout; /* with .reverse: rate of all that the family drops; below 0: what
                       the config says; 0: nothing is dropped */
};

/* Build the program of the rank at COORD.  *out is the caller's; release with
 * program_free.  Errors name family file, line and column. */
MUST_CHECK int program_build(struct program **out, const struct model *model,
                             const struct mesh *mesh, const int coord[MESH_NAXES],
                             const struct program_options *opt, struct err *err);
void program_free(struct program *p);

/* The inverse frequencies of sequences of LENGTH tokens: R's own, or OUT[dim/2]. */
const double *program_rope_at(const struct rope *r, uint64_t length, double *out);
/* Does a sequence that grows to LENGTH tokens change the angles of all its tokens, so
 * that what is cached of it must be made again? */
bool program_rope_changes(const struct program *p, uint64_t length);

/* The positions of the rows that INST makes. */
enum index program_positions(const struct program *p, const struct inst *inst);

/* Most rows of value V when a step has at most MOST[kind] of each kind; that of
 * ROWS_SENT is not read, and that of ROWS_CHOSEN is how many ranks may send all of
 * theirs to the experts of one: 0 for all. */
uint64_t program_rows(const struct program *p, const struct value *v,
                      const uint64_t most[ROWS_KINDS]);
/* Where each value lies in one arena: *bytes in all, offset[i] of value i (64-aligned;
 * kept values and gradients of weights get UINT64_MAX), when a step has at most
 * MOST[kind] rows of each kind. OFFSET has room for nvalues.  False on overflow. */
bool program_arena(const struct program *p, const uint64_t most[ROWS_KINDS],
                   uint64_t *offset, uint64_t *bytes);

#endif
