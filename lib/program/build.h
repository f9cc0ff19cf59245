/* build - a program under construction: values with types and placements
 *
 * Every value has a column axis (its type) and a placement over the tensor group:
 * replicated, sharded along a symbol of that axis that the family deals, or partial
 * (each rank has a term of a sum that is not reduced yet).  A conversion between
 * placements is an instruction; it is emitted once per value and reused. */
#ifndef LIB_PROGRAM_BUILD_H
#define LIB_PROGRAM_BUILD_H

#include "lib/program/line.h"
#include "lib/program/program.h"
#include "lib/model/expr.h"
#include "lib/model/family.h"

struct type {
    struct axis col;
    int whole; /* the same value replicated, or -1: not built yet */
    int cut;   /* the same value sharded, or -1 */
    int taken; /* its output rows (OP_TAKE), or -1 */
};

enum operand_kind {
    OPERAND_VALUE,
    OPERAND_WEIGHT,
    OPERAND_NUMBER,
    OPERAND_WORD,  /* silu, causal: the word that a symbol has, or a bare name */
    OPERAND_ROPE,  /* a rotary table */
    OPERAND_INDEX, /* a column of an input of whole numbers: ids, positions, ... */
    OPERAND_ABSENT /* a tensor that this model lacks, or a symbol that is null */
};

struct operand {
    enum operand_kind kind;
    size_t at;  /* byte offset in the line, for messages */
    int index;  /* of the value, the rotary table, or the input */
    int column; /* of the input */
    bool whole; /* all its columns: none was named */
    size_t tensor;
    char segment[32]; /* segment of the tensor's first axis; "": the whole tensor */
    double number;
    char word[32];
};

/* A name in scope. */
struct binding {
    const char *name;
    int value;
    int depth;     /* 0: lives on after its layer; 1: local to a layer or experts() */
    bool assigned; /* assigned in the current section or layer */
};

struct builder {
    struct program *p;
    const struct model *m;
    const struct program_options *opt;
    struct share *share; /* [symbols]: this rank's units of each sharded symbol */
    struct type *type;   /* [p->nvalues] */
    int *weight_of;      /* [model->ntensors]: index into p->weight plus 1, or 0 */
    size_t value_cap, type_cap, inst_cap, weight_cap, gather_cap, line_cap, mixture_cap,
        tree_cap;
    struct binding *bind;
    size_t nbind, bind_cap;
    int section, layer; /* being built; -1: none */
    int mixture;        /* index into p->mixture inside experts(), else -1 */
    int expert;         /* inside experts(): first expert of this rank; inside
                           repeat(): the capture's value; else -1 */
    int experts;        /* inside experts(): the symbol that counts all experts */
    uint64_t nexperts;  /* number of experts of this rank */
    struct expert_view {
        size_t tensor;
        struct model_tensor t;
    } * *view; /* [nviews]: tensors with an axis of experts, seen as one expert's */
    size_t nviews, view_cap;
    int *angles;       /* [rope][ROWS_MOST]: value of OP_ANGLES, or -1 */
    size_t first_bind; /* names before this one are not visible */
    struct {
        int logits, sums; /* of the last route(); the sums of all so far; from 1 */
        uint64_t top;
    } balance;
    bool last_section; /* OP_TAKE may be inserted here */
    bool beside;       /* some row reads other rows of its text, beside attention */
    const struct family_line *line;
    struct err *err;
};

/* Sets *b->err to "FILE:LINE:COL: cause" for byte AT of the current line; returns
 * -1. */
int build_error(struct builder *b, size_t at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* True if the mesh shards a symbol of A, over any mesh axis. */
bool build_cuts(const struct builder *b, const struct axis *a);
/* Sets *tree to the number, from 1, of the tree by which this rank sums its part of A
 * (program.tree); 0 if no tree is needed: sums need not be deterministic, or no symbol
 * of A is sharded over tp on any mesh.  ERR_INPUT if the shards of this mesh are no
 * subtrees of the tree over all of A. */
int build_tree(struct builder *b, const struct axis *a, int *tree);
/* Emits an instruction OP and its result, a new value with column axis COL (copied).
 * The caller fills in sources, weights and the fields of OP.  The pointer is valid
 * until the next call. */
struct inst *build_emit(struct builder *b, enum op op, const struct axis *col,
                        enum place place, int rows);
/* The same for a result with N columns of type DTYPE, replicated. */
struct inst *build_emit_plain(struct builder *b, enum op op, uint64_t n,
                              enum dtype dtype, int rows);
/* Index of the struct gather for the columns A; equal ones are shared. */
int build_gather(struct builder *b, const struct axis *a);
/* Emits the all-reduce of V, partial, over the mesh axis OVER; returns its result. */
int build_sum(struct builder *b, int v, enum mesh_axis over);
/* Emits the all-gather of V over the tensor group: the rows of one rank after those of
 * another, COLS columns in all. */
int build_collect(struct builder *b, int v, uint64_t cols);
/* The rows of V from all ranks of the sequence group; each rank has zeros for the rows
 * of other ranks.  V itself if sp is 1. */
int build_shared_rows(struct builder *b, int v);
/* V replicated or sharded; emits a conversion if V is placed otherwise.  build_cut
 * returns a replicated value if the mesh shards no symbol of V's columns. */
int build_whole(struct builder *b, int v);
int build_cut(struct builder *b, int v);
/* The tensor as the current line sees it; see build_need_weight. */
const struct model_tensor *build_tensor(struct builder *b, size_t tensor);
/* Index into p->weight of the tensor; adds it, and those of this rank's other experts,
 * on first use. */
int build_weight(struct builder *b, size_t tensor);
/* The same for a tensor that is read as one vector over all its elements: a bias, or a
 * norm's weight [heads][columns]. */
int build_vector(struct builder *b, size_t tensor);

/* Sets OUT to the result of INST. */
void build_operand(struct operand *out, const struct inst *inst);
/* Sets *b->err to "WHAT: X and Y differ" for byte AT of the line; returns -1. */
int build_type_error(struct builder *b, size_t at, const char *what,
                     const struct axis *x, const struct axis *y);
/* Fails if O is not a value, or is a cached one, which only attention may read. */
int build_need_value(struct builder *b, const struct operand *o);
/* The tensor of operand O, which must have NDIM axes; NULL with *b->err set if not.
 * Inside experts() a tensor whose first axis counts all experts is seen as the tensor
 * of one expert, without that axis.  A last axis of size 1 beyond NDIM is not seen: a
 * convolution of one tap stores it. */
const struct model_tensor *build_need_weight(struct builder *b, const struct operand *o,
                                             int ndim);
/* The same for a vector: a tensor of one axis, *over, or of two axes if one of them has
 * size 1: the other. */
const struct model_tensor *build_need_vector(struct builder *b, const struct operand *o,
                                             const struct axis **over);
/* Sets *out to the axes of T from FIRST on as one axis, as they lie in memory; they
 * must have one segment each, if there are several.  The caller releases *out with
 * axis_clear.  O is the operand, for messages. */
int build_join(struct builder *b, const struct operand *o, const struct model_tensor *t,
               int first, struct axis *out);
/* Emits an instruction with the one source X; the result has X's type and rows.  X is
 * converted first to a placement that the table of operations allows. */
struct inst *build_unary(struct builder *b, enum op op, int x);

/* The option NAME of CALL as a number; OTHERWISE if it is not given. */
int build_number_option(struct builder *b, const struct node *call, const char *name,
                        double otherwise, double *out);
/* The option NAME of CALL as it is written; NULL if it is not given. */
const struct node *build_word_option(const struct node *call, const char *name);
/* The symbol named by argument ARG of CALL, as a digit; it must not be sharded.  *name:
 * borrowed. */
int build_symbol(struct builder *b, const struct node *call, int arg, struct digit *out,
                 const char **name);
/* The options of pooled rows, "apart" and "cut". */
int build_pooling(struct builder *b, const struct node *call, struct pooled_text *out);
/* Fails if CALL has an option that is not in the NULL-terminated KNOWN; KNOWN NULL: no
 * option is allowed. */
int build_check_options(struct builder *b, const struct node *call,
                        const char *const *known);

/* True if the value has a row for every token of the text, or of the source. */
bool build_has_all_rows(const struct builder *b, const struct operand *o);

/* The columns "call" of the table of operations: in rules.c, heads.c, mixture.c. */
typedef int build_rule(struct builder *b, enum op op, const struct node *call,
                       const struct operand *arg, int n, struct operand *out);
build_rule apply_embedding, apply_product, apply_elementwise, apply_activation,
    apply_xielu, apply_temper, apply_bound, apply_dropout, apply_norm, apply_rope,
    apply_sinusoid, apply_keep, apply_first;
build_rule apply_attention, apply_stream, apply_concat, apply_head_product,
    apply_relate, apply_relate_xl, apply_global_attention, apply_side_attention,
    apply_block_sum;
build_rule apply_unfold, apply_convolve, apply_dynamic, apply_shift, apply_pool,
    apply_join, apply_view;
build_rule apply_scan;
/* The kind of scan (recurrence.h) that the LEN bytes at NAME name, or -1. */
int scan_kind_find(const char *name, size_t len);
build_rule apply_route;
/* experts(route, name = rows : line); see mixture.c */
int mixture_each(struct builder *b, const struct node *each, struct operand *out);

/* The dropout rate in this program for a rate RATE in the family file. */
double build_drop_rate(const struct builder *b, double rate);
/* A hash of the model's section, the layer, the line's name and AT: the seed of one
 * dropout. */
uint64_t build_site(const struct builder *b, size_t at);

/* Evaluates a call of an operation.  0, or -1 with *b->err set. */
int rules_call(struct builder *b, const struct node *call, struct operand *out);
/* Evaluates a tree to an operand.  0, or -1 with *b->err set. */
int eval_tree(struct builder *b, const struct node *n, struct operand *out);

#endif
