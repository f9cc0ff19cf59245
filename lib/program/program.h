/* program - the forward pass of one rank as instructions, typed and placed
 *
 * The family's lines, unrolled over layers, become instructions on values.  A value is
 * a matrix [rows][cols], f32 or bf16 unless stated: rows are tokens, cols the columns
 * that this rank holds.  A collective is inserted where a sharded or partial value is
 * needed replicated.  All ranks of a tensor group have the same list of instructions;
 * only local sizes differ.  Each pipeline stage has its own list (pass-boundary.c). */
#ifndef LIB_PROGRAM_PROGRAM_H
#define LIB_PROGRAM_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/dtype.h"
#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/model/feed.h"
#include "lib/model/mesh.h"
#include "lib/model/model.h"
#include "lib/program/activation.h"
#include "lib/program/attention-shape.h"
#include "lib/program/op.h"
#include "lib/program/recompute.h"
#include "lib/program/rows.h"
#include "lib/program/recurrence.h"

/* Placement of a value over the tensor group (DTensor: Replicate, Shard, Partial). */
enum place {
    PLACE_WHOLE,  /* replicated: all columns on every rank */
    PLACE_CUT,    /* sharded along a symbol of the columns */
    PLACE_PARTIAL /* all columns; each rank has a term of a sum not reduced yet */
};

struct value {
    const char *name; /* left side of its line: "q"; NULL for a value inside a line */
    int section;      /* index of the section; -1: none */
    int layer;        /* layer of a repeated section; -1: none */
    int rows;         /* index into program.rows */
    int mixture;      /* ROWS_SENT, ROWS_CHOSEN: index into program.mixture, else -1 */
    enum place place;
    enum dtype dtype; /* f32, or bf16 (pass-types.c); row statistics f64; indices i32 */
    bool kept;        /* made by OP_KEEP: lies in the KV cache, not in the arena */
    bool inside;      /* only instructions of one fused operation make and read it: it
                         has no memory */
    int gradient;     /* number of the weight, from 1, whose gradient it is: the engine
                         is given its memory; 0: not a weight's gradient */
    bool chunked;     /* memory holds a chunk of its rows (pass-chunks.c) */
    bool again;       /* computed a second time, in the reverse (pass-recompute.c) */
    bool elsewhere;   /* until the pass recompute: the gradient has this term on another
                         rank of the tensor group alone */
    uint64_t cols;    /* columns on this rank */
    uint64_t whole_cols; /* columns over all ranks */
    int first, last;     /* instructions that make it and that read it last */
};

/* A weight as an instruction reads it: this rank's shard of a tensor, row-major. */
struct weight {
    size_t tensor;       /* index into the model's tensors; tied tensors are resolved */
    uint64_t rows, cols; /* local shape; a vector has rows 1 */
    uint64_t experts; /* number of expert weights stored consecutively, this one among
                         them; 0: an ordinary weight */
    uint64_t slice;   /* from 1: the expert's slice of one tensor that has an axis of
                         experts; 0: each expert has a tensor of its own */
    int adapter;      /* from 1: it is of this one of model.adapter; 0: of no adapter */
    enum adapter_part part; /* of that; TENSOR is then the adapted weight */
    bool summed; /* its gradient must be summed over the tensor group, over all replicas
                    of each element */
    bool by_some; /* only some of the ranks that share a sequence make its gradient */
};

/* A rotary table: pair i at position p is rotated by p * inv_freq[i] (RoFormer, Su et
 * al. 2021). */
struct rope {
    uint64_t dim;     /* leading columns of each head that rotate; even */
    bool interleaved; /* pairs (2i, 2i+1) instead of (i, i + dim/2) */
    double *inv_freq; /* [dim/2] */
    double scale;     /* factor of cosine and sine (YaRN's attention factor), else 1 */
    /* longer sequences than context have other frequencies: program_rope_at */
    bool dynamic;      /* dynamic NTK: they depend on the length */
    double *long_freq; /* [dim/2] LongRoPE's for all longer sequences; else NULL */
    double theta, factor;
    uint64_t context; /* length that the model was trained on */
};

enum { INST_SOURCES = 6, INST_PARTS = 6, PROGRAM_CHUNK = 512 };

/* Rows of a text that were pooled in pairs. */
struct pooled_text {
    uint64_t times; /* how often */
    bool apart;     /* the first token is not pooled with others */
    bool cut;       /* and the last of an even number of tokens is passed over */
};

/* An input as a program reads it. */
struct program_input {
    const struct model_feed
        *feed; /* name, type, columns, and what is there otherwise */
    int rows;  /* index into program.rows */
    bool used; /* some instruction of the model reads it, */
    bool read; /* or of this program, which may be one stage */
};

struct inst {
    enum op op;
    int dst;               /* value */
    int src[INST_SOURCES]; /* values, nsrc of them */
    int nsrc;
    int weight;  /* index into program.weight, or -1 */
    int weight2; /* layernorm's bias, or -1 */
    int line;    /* index into program.line: the line that it comes from */
    int mixture; /* inside experts(): index into program.mixture; else -1 */
    bool back;   /* of a product in the reverse: the gradient of the source of the
                    product that reads the weight; it contracts the other axis */
    /* Only rows of texts that choose an adapter matter: those of which the value BY - 1
     * has 1 in COLUMN.  KEEPS: the others are those of the first source; else nobody
     * reads them.  0: all rows matter.  A backend may compute all. */
    struct {
        int by, column;
        bool keeps;
    } only;
    int parts; /* a fused operation: the number of instructions, which follow it, that
                  it stands for; else 0 */
    union {
        struct {
            int input;       /* index into program.input, */
            int column;      /* the column that has the indices, */
            int minus;       /* and the column that is subtracted; or -1 */
            uint64_t first;  /* row of the full table that is row 0 here */
            uint64_t offset; /* added to each index (2 for OPT and RoBERTa) */
            /* OP_EMBEDDING_BACK: row of the full table that gets no gradient, the
             * padding token's; UINT64_MAX: none */
            uint64_t padding;
        } embedding;
        double scalar;   /* OP_SCALE, OP_SOFTCAP */
        uint64_t column; /* OP_MUL_ROWS: the column of the second source */
        struct {
            double most, least;
        } clip;
        struct {
            double rate;
            uint64_t site; /* seed: a hash of the place in the model (build_site) */
            int gather;    /* sharded value: index into program.gather, for the columns
                              of the full row that this rank holds; else -1 */
        } drop;
        int tree; /* OP_LINEAR, OP_MATMUL: number, from 1, of the tree in program.tree
                     by which they sum; 0: any order */
        enum activation act;
        struct {
            double eps;
            uint64_t width;         /* columns of a group on this rank */
            uint64_t whole_width;   /* columns of a group over all ranks */
            uint64_t groups, first; /* groups of a row that OP_ROW_SQUARES sums, of all
                                       ranks, and the first here; 0: the row is one */
            int tree;               /* OP_ROW_SUM, OP_ROW_SQUARES: as above */
            bool plus_one;          /* the factor is weight + 1 (Gemma) */
            bool owned;   /* this rank adds its columns to the sums; false on a
                             replica */
            bool centred; /* in the reverse: the norm was a layernorm */
        } norm;
        struct {
            int table;      /* index into program.rope */
            uint64_t head;  /* columns of a head */
            int64_t offset; /* OP_SINUSOID: added to each position */
        } rope;
        int input; /* OP_INPUT: index into program.input */
        struct {
            uint64_t reach;  /* rows that a row has side by side */
            uint64_t stride; /* the first of them is row t * stride - before */
            uint64_t before;
        } unfold;
        struct {
            int slot; /* KV cache entry, 0 .. program.nslots-1 */
        } keep;
        struct {
            ATTENTION_SHAPE;
            uint64_t groups; /* KV heads of this rank */
            uint64_t within; /* query heads of this rank in each group */
            double drop;     /* dropout rate of the attention weights, and its seed */
            uint64_t site;
            uint64_t span; /* OP_RELATE: half of the table's rows; OP_STREAM: the
                              buckets of a query's biases */
            struct pooled_text pool; /* OP_RELATE_XL: of the queries; */
            uint64_t keys_pooled;    /* and how often the keys were pooled */
            bool other_first;        /* its types: those of other types come first */
            int64_t any_type;        /* a token of this type is of every type; or -1 */
            int mask;   /* OP_GLOBAL_ATTENTION: input in which tokens that see all
                           tokens are not 0 */
            bool sinks; /* attention sinks: the instruction's weight is a score per
                           head, of a key without a value */
            enum attention_gradients {
                GRADIENTS_ALL,     /* of q, k and v */
                GRADIENTS_QUERIES, /* keys have other rows than queries: of q, */
                GRADIENTS_KEYS     /* or of k and v */
            } gradients;           /* OP_ATTENTION_BACK: its columns */
        } attention;
        struct {
            uint64_t count; /* heads on this rank */
            uint64_t row;   /* row of the weight at which the first head begins */
            uint64_t a, b;  /* columns of a head: in the source, and in the result or,
                               for OP_CONCAT, in the second source */
            bool shared;    /* OP_CONCAT: the second source has one head for all */
        } head;
        struct {
            double step, amount;
        } temper;
        struct {
            struct pooled_text
                at;    /* OP_POOL: of the result; OP_UNPOOL: of the source */
            bool most; /* the largest instead of the mean */
        } pool;
        uint64_t block; /* OP_BLOCK_SUM: rows of one of the result */
        int64_t shift;  /* OP_SHIFT: row t reads row t + shift of its text */
        struct {
            uint64_t count;      /* rows that each row reads: itself and as many on each
                                    side */
            uint64_t heads, dim; /* on this rank: the columns of a head have the same
                                    taps; OP_CONVOLVE: a head is a column */
        } taps;
        struct {
            enum scan_kind kind;
            uint64_t heads;        /* on this rank; */
            uint64_t within;       /* as many in a row read the same key and query */
            uint64_t keys, values; /* the state of a head is [keys][values] */
            uint64_t first, all;   /* the number of the first head here, and of all */
            double slope;       /* SCAN_LIGHTNING: factor of the decays' logarithms */
            double least, most; /* bounds of a step's size */
            bool each; /* SCAN_DELTA: each column of a key has a decay of its own */
        } scan;
        struct {
            uint64_t top;    /* k of the top-k router */
            uint64_t groups; /* the experts form this many groups (DeepSeek-V3) */
            uint64_t of;     /* groups from which experts may be chosen */
            uint64_t best;   /* a group's score is the sum of its best this many */
            bool renorm;     /* the weights of a token are scaled to add up to 1 */
            double near;     /* above 0: weights by SparseMixer (cpu_route_near) */
            double scale;    /* factor applied afterwards */
        } route; /* the instruction's weight, if any, is added to the scores for the
                    choice */
        struct head_part {
            uint64_t groups, within, dim; /* a row is [groups][within][dim] */
            uint64_t group_start, group_count, within_start,
                within_count; /* the part */
        } heads;              /* OP_HEADS_PACK, OP_HEADS_UNPACK */
        struct {
            uint64_t first;
        } segment;
        struct {
            int gather; /* index into program.gather; -1: rows of statistics */
        } gather;
        enum mesh_axis over; /* OP_ALL_REDUCE: its mesh axis */
        enum all_to_all_what {
            ALL_TO_ALL_COUNTS, /* src: rows for each expert; result: rows that come */
            ALL_TO_ALL_ROWS, /* src: rows, sent, counts; to the ranks of the experts */
            ALL_TO_ALL_BACK  /* src: results, sent, counts; back to the senders */
        } all_to_all;        /* OP_ALL_TO_ALL, over ep */
        struct {
            uint64_t first; /* column of the full row that is column 0 here */
            uint64_t vocab; /* columns of the full row without padding */
            double smooth;  /* OP_NLL, OP_NLL_BACK: label smoothing */
            double z;       /* the same: z-loss */
        } row;
        uint64_t top; /* OP_BALANCE, OP_BALANCE_BACK: experts of a row */
    };
};

/* The experts of one experts() call; ROWS_SENT and ROWS_CHOSEN refer to it. */
struct mixture {
    uint64_t first, count; /* experts on this rank */
    uint64_t all, top;     /* experts in all; experts per row (top-k) */
    int rows;              /* the rows that go to experts */
    int counts;     /* value [count + 1]: ROWS_CHOSEN rows before each expert of this
                       rank, then their number; ep > 1: followed by [ep][count], rows
                       that come from each rank */
    int sent;       /* value [all + 1]: rows that this rank sends before those for each
                       expert, then their number; equal to counts if ep is 1 */
    uint64_t *deal; /* [ep + 1]: first expert of each rank; last: number of experts */
};

/* The columns of a sharded value on each rank of the tensor group. */
struct gather {
    int parts;
    struct runs *runs; /* [parts]: positions of each rank's columns in the full row */
};

/* How a rank sums over its columns so that the total over the ranks has the same bits
 * on any mesh.  Each leaf is summed by itself and pushed on a stack; then the two
 * topmost sums are added, ADDS times. */
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
    int nslots;      /* KV cache entries: results of OP_KEEP */
    int *slot_value; /* [nslots]: the value of each */
    struct program_output {
        const char *name; /* "logits", "last_hidden_state"; "layer.3.q" in a trace */
        int value;        /* replicated */
        int stage;        /* pipeline stage that makes it */
    } * output;
    int noutputs;
    int *import, nimports; /* values received from the previous stage, in this order */
    int *export, nexports; /* values sent to the next stage, in the order that it has */
    int nforward;          /* number of instructions before those of the reverse, */
    int nsplit; /* and of those before its second part, which makes the gradients of
                   weights (pass-split.c); .ninsts: it has one part */
    /* Instructions [first, end) that are run for a chunk of rows at a time; those of
     * the reverse begin with the others again (pass-chunks.c).  0: none. */
    struct program_chunk {
        int first, end;
    } forward_chunk, reverse_chunk;
    int *back_import; /* [nexports]: gradients received from the next stage */
    int *back_export; /* [nimports]: gradients sent to the previous stage */
    int given; /* the gradient of the logits, which the caller makes between the passes
                  (TAIL_LOGITS and .reverse), from 1; 0: none on this stage */
    char **line; /* "layer.3.q = ..."; see inst.line */
    int nlines;
    struct row_spaces rows;
    struct program_input input[FEEDS_MOST]; /* those of the model, in its order */
    int ninputs;
    bool source;        /* an encoder reads a source */
    bool causal;        /* some attention is causal: the model can generate */
    bool rounded;       /* as in the options, */
    bool half;          /* too; */
    bool deterministic; /* and this */
    bool dynamic_rope;  /* dynamic NTK: keys cached while a text grew differ from those
                           of the same text read at once */
};

enum program_tail {
    TAIL_NONE,   /* the outputs that the family names */
    TAIL_NLL,    /* "nll" [output rows][1] instead of logits */
    TAIL_LOGITS, /* "logits" of the output rows, replicated */
    TAIL_ARGMAX, /* "next" [output rows][1]: the likeliest token, instead of logits */
    TAIL_SAMPLE, /* "next" [output rows][1]: a drawn token */
};

/* Which fused operations a program gets: TAKES is asked with the operation, behind
 * which its parts lie.  P is complete but for the fused operations and lifetimes. NULL:
 * none. */
struct program_fuse {
    bool (*takes)(void *arg, const struct program *p, const struct inst *inst);
    void *arg;
};
/* Takes all. */
extern const struct program_fuse program_fuse_all;

/* Which operands may be bf16: TAKES is asked whether INST can be run if those of the
 * set BF16 are (program_bf16) and the others are f32.  What is true of each of two sets
 * must be true of both together.  NULL: none may. */
struct program_types {
    bool (*takes)(void *arg, const struct program *p, const struct inst *inst,
                  unsigned bf16);
    void *arg;
};
/* Takes all, as if all weights were bf16. */
extern const struct program_types program_types_all;

/* In a set of operands of an instruction: 1 << K is source K. */
enum { BF16_RESULT = 1 << INST_SOURCES };

struct program_options {
    enum program_tail tail;
    bool wanted; /* the last section works on the output rows only: OP_TAKE is inserted
                    where it reads a value with a row per token */
    bool keeps_logits;  /* with TAIL_SAMPLE: "logits" is an output, too, after "next" */
    bool trace;         /* the value of every line is an output, replicated */
    const char *only;   /* with TAIL_NONE: name of the only output; NULL: all.
                           "last_hidden_state" of a decoder: what its head reads */
    bool deterministic; /* results have the same bits for every tp: each sum over an
                           axis that a mesh may shard is made by one binary tree.  Fails
                           on meshes whose shards are not subtrees of it */
    bool rounded;       /* products x W^T of weights in bf16 take x rounded to bf16 */
    bool half;          /* with .reverse: products, and their derivatives, of weights in
                         * f16 take x rounded to f16 */
    bool training; /* includes the lines that the family runs in training: "when" reads
                      "training" */
    bool whole;    /* steps are whole sequences: nothing is cached; so it is with
                      .reverse */
    bool reverse;  /* appends the gradients of the sum of "nll" to every weight
                      (reverse.h); needs TAIL_NLL, or TAIL_LOGITS whose gradient is
                      given, and .wanted false */
    struct program_fuse fuse;   /* without .reverse, which takes programs apart */
    struct program_types types; /* with .rounded and without .reverse */
    const char *pass; /* the last pass that runs (pass.h), to print what it leaves;
                         NULL: all of them, without which a program cannot be run */
    struct recompute_plan recompute; /* with .reverse: what is computed again there */
    bool split;                      /* with .reverse: it has two parts */
    bool sequence;  /* with .reverse: what tensor ranks compute alike is divided by rows
                       (pass-sequence.c) */
    bool balance;   /* with TAIL_NLL: a second output "balance", the balance loss of the
                       experts and the router's z-loss, is a term of the loss, too */
    bool loads;     /* with .reverse: the bias of a route() counts, as its gradient, the
                       rows that chose each expert */
    double smooth;  /* with TAIL_NLL: label smoothing of "nll" */
    double z;       /* with TAIL_NLL: z times the squared logarithm of the softmax's sum
                       is added to "nll" (PaLM, Chowdhery et al. 2022) */
    double dropout; /* with .reverse: rate of every dropout; < 0: the config's rates; 0:
                       no dropout */
};

/* Builds the program of the rank at COORD.  The caller releases *out with program_free.
 * Errors name family file, line and column. */
MUST_CHECK int program_build(struct program **out, const struct model *model,
                             const struct mesh *mesh, const int coord[MESH_NAXES],
                             const struct program_options *opt, struct err *err);
void program_free(struct program *p);

/* What each part of an adapter is called in messages: "lora_A". */
extern const char *const program_part_names[];
/* Does training change weight I? */
bool program_trains(const struct program *p, int i);
/* The axes of weight I's tensor, from AXIS[0] on; returns their number. */
int program_weight_axes(const struct program *p, int i,
                        const struct axis *axis[MODEL_MAX_DIMS]);
/* The name of weight I in messages; the caller frees it. */
char *program_weight_name_dup(const struct program *p, int i);

/* The inverse frequencies for a sequence of LENGTH tokens: R's own, or those that it
 * writes to OUT[dim/2]. */
const double *program_rope_at(const struct rope *r, uint64_t length, double *out);
/* True if a sequence that grows to LENGTH tokens changes the angles of all its tokens,
 * so that its cache must be computed again. */
bool program_rope_changes(const struct program *p, uint64_t length);

/* The input that holds the positions of INST's rows. */
enum feed program_positions(const struct program *p, const struct inst *inst);

/* The operands of INST that are bf16: a set of 1 << K and BF16_RESULT. */
unsigned program_bf16(const struct program *p, const struct inst *inst);

/* Most rows of value V in a step with at most MOST[k] rows of space k.
 * MOST[ROWS_SENT] is not read.  MOST[ROWS_CHOSEN] is the number of ranks that may send
 * all their rows to the experts of one rank; 0: all of ep. */
uint64_t program_rows(const struct program *p, const struct value *v,
                      const uint64_t most[ROWS_MOST]);
/* The rows of the next chunk where LEFT are left: the last one takes what would be less
 * than a chunk, too, so that no chunk has so few that kernels take other loops. */
static inline size_t program_chunk_rows(size_t left)
{
    return left < 2 * PROGRAM_CHUNK ? left : PROGRAM_CHUNK;
}
/* Offsets of all values in one arena, for a step with at most MOST[k] rows of space k
 * (see rows_most and program_rows): *bytes in all; offset[nvalues], 64-byte aligned,
 * UINT64_MAX for cached values, gradients of weights and what is inside a fused
 * operation.  False on overflow. */
bool program_arena(const struct program *p, const uint64_t most[ROWS_MOST],
                   uint64_t *offset, uint64_t *bytes);

#endif
