/* build - a program under construction: values with types and places
 *
 * Every value has a column axis (its type) and a place over the tensor group: whole on
 * every rank, cut along a dealt symbol of that axis, or partial (a sum over the ranks
 * still to be made).  Conversions are made once per value and remembered. */
#ifndef LIB_PROGRAM_BUILD_H
#define LIB_PROGRAM_BUILD_H

#include "lib/program/line.h"
#include "lib/program/program.h"
#include "lib/model/expr.h"
#include "lib/model/family.h"

struct type {
    struct axis col;
    int whole; /* the value that is this one made whole, or -1 */
    int cut;   /* and made cut, or -1 */
    int taken; /* and reduced to the wanted rows, or -1 */
};

enum operand_kind {
    OPERAND_VALUE,
    OPERAND_WEIGHT,
    OPERAND_NUMBER,
    OPERAND_WORD,  /* silu, causal: a symbol's word or a bare name */
    OPERAND_ROPE,  /* index of a rotary table */
    OPERAND_INDEX, /* ids, positions, token_types, source, source_positions */
    OPERAND_ABSENT /* a tensor that this model does not have */
};

struct operand {
    enum operand_kind kind;
    size_t at; /* byte of the line, for messages */
    int index; /* value, rope or enum index */
    size_t tensor;
    char segment[32]; /* of the tensor's first axis; "": all of it */
    double number;
    char word[32];
};

/* A name in scope. */
struct binding {
    const char *name;
    int value;
    int depth;     /* sections entered when it was made: 0 outlives a layer */
    bool assigned; /* in this section or layer */
};

struct builder {
    struct program *p;
    const struct model *m;
    const struct program_options *opt;
    struct share *share; /* of this rank */
    struct type *type;   /* [p->nvalues] */
    int *weight_of;      /* [model->ntensors]: index into p->weight plus 1, or 0 */
    size_t value_cap, type_cap, inst_cap, weight_cap, gather_cap, line_cap, mixture_cap,
        tree_cap;
    struct binding *bind;
    size_t nbind, bind_cap;
    int section, layer; /* being built */
    int mixture;        /* the experts whose line is being built, or -1 */
    int expert;         /* the first of this rank, inside their line; else -1 */
    int experts;        /* the symbol that counts them all, inside their line */
    uint64_t nexperts;  /* of this rank */
    struct expert_view {
        size_t tensor;
        struct model_tensor t;
    } * *view; /* [nviews]: tensors of all experts as one of them has them */
    size_t nviews, view_cap;
    int *angles;       /* [rope][ROWS_KINDS]: value, or -1 */
    size_t first_bind; /* names before it are out of sight */
    bool last_section; /* rows may be taken */
    const struct family_line *line;
    struct err *err;
};

/* "FILE:LINE:COL: cause" at byte AT of the present line; returns -1. */
int build_error(struct builder *b, size_t at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* True when the mesh cuts values along A. */
bool build_cuts(const struct builder *b, const struct axis *a);
/* The tree by which this rank makes its part of a sum over A, *tree: 0 where no mesh
 * cuts A, or nothing is asked of it.  ERR_INPUT where the ranks of this mesh have no
 * subtrees of the whole sum's. */
int build_tree(struct builder *b, const struct axis *a, int *tree);
/* A new value of column axis COL (copied), and its instruction, of whose other fields
 * the caller fills what the op needs.  The pointer is valid until the next call. */
struct inst *build_emit(struct builder *b, enum op op, const struct axis *col,
                        enum place place, enum rows rows);
/* The same with N columns, whole on every rank, of dtype DTYPE. */
struct inst *build_emit_plain(struct builder *b, enum op op, uint64_t n,
                              enum dtype dtype, enum rows rows);
/* The gather that describes how A lies over the ranks; equal ones are shared. */
int build_gather(struct builder *b, const struct axis *a);
/* The sum of V, partial, over the ranks of OVER. */
int build_sum(struct builder *b, int v, enum mesh_axis over);
/* V of all ranks of the tensor group, one rank's rows after the other's. */
int build_collect(struct builder *b, int v, uint64_t cols);
/* V, of which each rank of the sequence group has made the rows it has, on all. */
int build_shared_rows(struct builder *b, int v);
/* The value V in the place wanted: a conversion is inserted where it is not. */
int build_whole(struct builder *b, int v);
int build_cut(struct builder *b, int v);
/* The tensor as the present line has it; see build_need_weight. */
const struct model_tensor *build_tensor(struct builder *b, size_t tensor);
/* The weight as an instruction names it; adds it to the program. */
int build_weight(struct builder *b, size_t tensor);

/* INST's value as an operand. */
void build_operand(struct operand *out, const struct inst *inst);
/* "WHAT: X and Y differ" at byte AT of the line; returns -1. */
int build_type_error(struct builder *b, size_t at, const char *what,
                     const struct axis *x, const struct axis *y);
/* Refuse an operand that is no value that may be read here. */
int build_need_value(struct builder *b, const struct operand *o);
/* The tensor of an operand, which must have NDIM axes; NULL with *b->err set when not.
 * Inside the experts' line one whose first axis counts the experts stands for that of
 * one of them, without that axis. */
const struct model_tensor *build_need_weight(struct builder *b, const struct operand *o,
                                             int ndim);
/* The same, of a tensor that is a vector: of one axis, *over, or of two of which the
 * first has one element. */
const struct model_tensor *build_need_vector(struct builder *b, const struct operand *o,
                                             const struct axis **over);
/* An instruction of one value X that keeps its type and rows; X is first placed as the
 * table of operations says. */
struct inst *build_unary(struct builder *b, enum op op, int x);

/* Options of a call.  A number, or OTHERWISE when it is not given. */
int build_number_option(struct builder *b, const struct node *call, const char *name,
                        double otherwise, double *out);
/* Refuse options that are not among the NULL-terminated KNOWN; NULL: any. */
int build_check_options(struct builder *b, const struct node *call,
                        const char *const *known);

/* True when the value has the rows of all tokens, of the text or of the source. */
bool build_has_all_rows(const struct builder *b, const struct operand *o);

/* The rules of the table of operations: rules.c, heads.c, mixture.c. */
typedef int build_rule(struct builder *b, enum op op, const struct node *call,
                       const struct operand *arg, int n, struct operand *out);
build_rule apply_embedding, apply_product, apply_elementwise, apply_activation,
    apply_xielu, apply_temper, apply_bound, apply_dropout, apply_norm, apply_rope,
    apply_sinusoid, apply_keep, apply_first;
build_rule apply_attention, apply_concat, apply_head_product, apply_relate;
build_rule apply_route;
/* experts(route, name = rows : line) */
int mixture_each(struct builder *b, const struct node *each, struct operand *out);

/* The rate that a dropout whose family's rate is RATE has in this program. */
double build_drop_rate(const struct builder *b, double rate);
/* A number for the place AT of the present line in this layer. */
uint64_t build_site(const struct builder *b, size_t at);

/* A call by the table of operations. */
int rules_call(struct builder *b, const struct node *call, struct operand *out);
/* Evaluate a tree to an operand.  0, or -1 with *b->err set. */
int eval_tree(struct builder *b, const struct node *n, struct operand *out);

#endif
