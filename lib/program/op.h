/* op - the table of operations
 *
 * One row an operation; everything else that is known of an operation is a column here:
 * readers fold the table over a program.  A row that lacks a column does not compile.
 * The columns, in order:
 *
 *   ID       enum op has OP_ID; the CPU backend's kernel is kernel_WORD
 *   word     its name where programs are printed, and in the language if it is called
 *   call     CALL(least, most, apply): arguments without options, and the rule that
 *            types and places it; NO_CALL: not in the language, build makes it
 *   places   placements that the result takes over from the first source
 *   saved    what its derivative reads: a set of sources and the result
 *   grads    how many of its first sources have a gradient; NO_REVERSE: none
 *   passes   the gradient of the result is that of each source, unchanged
 *   flops    of one row, as products are counted: 2 for a multiplication and addition;
 *            elementwise work is counted by the bytes that it moves
 *   traffic  what goes through memory
 *   collective
 *            that it is
 *   runs_on  DEVICE: a kernel of the backend; COMM: the communicator
 */
#ifndef LIB_PROGRAM_OP_H
#define LIB_PROGRAM_OP_H

#include <stdbool.h>

/* clang-format off */
#define OPS(ROW)                                                                       \
    /* y[t] = table[index[t] - first]; zero where the row is not held */               \
    ROW(EMBEDDING, embedding, CALL(2, 2, apply_embedding), RULE, saved_nothing, 0,     \
        false, no_flops, MOVES, NONE, DEVICE)                                          \
    /* y = x W^T, W [cols(y)][cols(x)] */                                              \
    ROW(LINEAR, linear, CALL(2, 2, apply_linear), RULE, saved_product, 1, false,       \
        of_matrix, PRODUCT, NONE, DEVICE)                                              \
    /* y = x W, W [cols(x)][cols(y)] */                                                \
    ROW(MATMUL, matmul, CALL(2, 2, apply_matmul), RULE, saved_product, 1, false,       \
        of_matrix, PRODUCT, NONE, DEVICE)                                              \
    /* y = a + b, of the same shape */                                                 \
    ROW(ADD, add, NO_CALL, RULE, saved_nothing, 2, true, no_flops, MOVES, NONE,        \
        DEVICE)                                                                        \
    /* y = a * b */                                                                    \
    ROW(MUL, mul, NO_CALL, RULE, saved_both, 2, false, no_flops, MOVES, NONE,          \
        DEVICE)                                                                        \
    /* y = a + w, w a weight [cols], to every row */                                   \
    ROW(ADD_VECTOR, add_vector, NO_CALL, SUMMED, saved_nothing, 1, true, no_flops,     \
        NOTHING, NONE, DEVICE)                                                         \
    /* y = a * number */                                                               \
    ROW(SCALE, scale, NO_CALL, LINEAR, saved_nothing, 1, false, no_flops, MOVES,       \
        NONE, DEVICE)                                                                  \
    /* y[t] = a[t] * s[t][0] */                                                        \
    ROW(MUL_ROWS, mul_rows, NO_CALL, LINEAR, saved_both, 2, false, no_flops, MOVES,    \
        NONE, DEVICE)                                                                  \
    ROW(ACTIVATION, activation, CALL(2, 2, apply_activation), SUMMED, saved_by_act,    \
        1, false, no_flops, MOVES, NONE, DEVICE)                                       \
    /* of each row */                                                                  \
    ROW(SOFTMAX, softmax, CALL(1, 1, apply_softmax), WHOLE, saved_source, 1, false,    \
        no_flops, MOVES, NONE, DEVICE)                                                 \
    /* y = number * tanh(a / number) */                                                \
    ROW(SOFTCAP, softcap, CALL(2, 2, apply_softcap), SUMMED, saved_source, 1, false,   \
        no_flops, MOVES, NONE, DEVICE)                                                 \
    /* y = a between -number and number */                                             \
    ROW(CLIP, clip, CALL(2, 2, apply_clip), SUMMED, saved_source, 1, false,            \
        no_flops, MOVES, NONE, DEVICE)                                                 \
    /* over groups of norm.width columns; weight [width] or [cols] */                  \
    ROW(RMSNORM, rmsnorm, CALL(2, 3, apply_rmsnorm), RULE, saved_source, 1, false,     \
        no_flops, MOVES, NONE, DEVICE)                                                 \
    ROW(LAYERNORM, layernorm, CALL(2, 4, apply_layernorm), RULE, saved_source, 1,      \
        false, no_flops, MOVES, NONE, DEVICE)                                          \
    /* y[t][0] = sum of a's columns that this rank counts, f64 */                      \
    ROW(ROW_SUM, row_sum, NO_CALL, RULE, saved_nothing, 1, false, no_flops, NOTHING,   \
        NONE, DEVICE)                                                                  \
    /* of their squares, less the mean that a second source is the sum of */           \
    ROW(ROW_SQUARES, row_squares, NO_CALL, RULE, saved_source, 1, false, no_flops,     \
        NOTHING, NONE, DEVICE)                                                         \
    /* rmsnorm of a by its row's squares; src a, squares */                            \
    ROW(RMS_APPLY, rms_apply, NO_CALL, RULE, saved_source, 2, false, no_flops,         \
        MOVES, NONE, DEVICE)                                                           \
    /* layernorm of a; src a, squares, sum */                                          \
    ROW(LAYER_APPLY, layer_apply, NO_CALL, RULE, saved_source, 3, false, no_flops,     \
        MOVES, NONE, DEVICE)                                                           \
    /* y[t] = cos, then sin of the rotary angles of t's position */                    \
    ROW(ANGLES, angles, NO_CALL, RULE, saved_nothing, NO_REVERSE, false, no_flops,     \
        NOTHING, NONE, DEVICE)                                                         \
    /* turn each head; src a, angles */                                                \
    ROW(ROPE, rope, CALL(2, 2, apply_rope), SUMMED, saved_nothing, 1, false,           \
        no_flops, MOVES, NONE, DEVICE)                                                 \
    /* append the rows to the cache; the value stands for all rows so far */           \
    ROW(KEEP, keep, CALL(1, 1, apply_keep), SUMMED, saved_nothing, 1, true,            \
        no_flops, NOTHING, NONE, DEVICE)                                               \
    ROW(ATTENTION, attention, CALL(4, 5, apply_attention), RULE, saved_all, 3,         \
        false, of_attention, MOVES, NONE, DEVICE)                                      \
    /* of each head: y = x W^T, W [dim(y)][dim(x)] the head's rows */                  \
    ROW(HEAD_LINEAR, head_linear, CALL(2, 2, apply_head_linear), RULE,                 \
        saved_product, 1, false, of_heads, PRODUCT, NONE, DEVICE)                      \
    /* of each head: y = x W, W [dim(x)][dim(y)] */                                    \
    ROW(HEAD_MATMUL, head_matmul, CALL(2, 2, apply_head_matmul), RULE,                 \
        saved_product, 1, false, of_heads, PRODUCT, NONE, DEVICE)                      \
    /* of each head: y = a's columns, then b's */                                      \
    ROW(CONCAT, concat, CALL(2, 2, apply_concat), RULE, saved_nothing, 2, false,       \
        no_flops, MOVES, NONE, DEVICE)                                                 \
    /* y[t][e] = the weight of expert e for token t, 0 for most */                     \
    ROW(ROUTE, route, CALL(2, 3, apply_route), WHOLE, saved_source, 1, false,          \
        no_flops, MOVES, NONE, DEVICE)                                                 \
    /* y[0][e] = rows of this rank's experts before its e-th, i32; the last is their   \
     * number */                                                                       \
    ROW(EXPERT_COUNT, expert_count, NO_CALL, RULE, saved_nothing, NO_REVERSE, false,   \
        no_flops, NOTHING, NONE, DEVICE)                                               \
    /* y[i][0] = the row of the i-th of them, by expert, i32; src route, counts */     \
    ROW(EXPERT_INDEX, expert_index, NO_CALL, RULE, saved_nothing, NO_REVERSE, false,   \
        no_flops, NOTHING, NONE, DEVICE)                                               \
    /* y[i] = a[index[i]]; src a, index */                                             \
    ROW(EXPERT_GATHER, expert_gather, NO_CALL, RULE, saved_nothing, 1, false,          \
        no_flops, MOVES, NONE, DEVICE)                                                 \
    /* y[t] = sum over t's experts e of r[t][e] a[i]; src a, r, index, counts */       \
    ROW(EXPERT_COMBINE, expert_combine, NO_CALL, RULE, saved_source, 2, false,         \
        no_flops, MOVES, NONE, DEVICE)                                                 \
    /* y = columns [first, first + cols(y)) of a */                                    \
    ROW(SEGMENT, segment, NO_CALL, RULE, saved_nothing, 1, false, no_flops, NOTHING,   \
        NONE, DEVICE)                                                                  \
    /* y = the output rows of a (given at each step) */                                \
    ROW(TAKE, take, NO_CALL, LINEAR, saved_nothing, 1, true, no_flops, NOTHING,        \
        NONE, DEVICE)                                                                  \
    /* y = row 0 of a */                                                               \
    ROW(FIRST, first, CALL(1, 1, apply_first), LINEAR, saved_nothing, 1, false,        \
        no_flops, NOTHING, NONE, DEVICE)                                               \
    /* y = sum of a over the ranks of inst.over */                                     \
    ROW(ALL_REDUCE, all_reduce, NO_CALL, RULE, saved_nothing, 1, true, no_flops,       \
        NOTHING, ALL_REDUCE, COMM)                                                     \
    /* y = each rank's rows of a, one rank after the other */                          \
    ROW(ALL_GATHER, all_gather, NO_CALL, RULE, saved_nothing, 1, false, no_flops,      \
        NOTHING, ALL_GATHER, COMM)                                                     \
    /* y = the columns of all ranks in global order (see .gather) */                   \
    ROW(ARRANGE, arrange, NO_CALL, RULE, saved_nothing, 1, false, no_flops, NOTHING,   \
        NONE, DEVICE)                                                                  \
    /* y = this rank's columns of a whole a (see .gather) */                           \
    ROW(SLICE, slice, NO_CALL, RULE, saved_nothing, 1, false, no_flops, NOTHING,       \
        NONE, DEVICE)                                                                  \
    /* y[t] = largest of a[t], sum of exp(a - largest), a[t][target[t]], index of the  \
     * largest; f64 */                                                                 \
    ROW(ROW_STATS, row_stats, NO_CALL, RULE, saved_source, 1, false, no_flops,         \
        NOTHING, NONE, DEVICE)                                                         \
    /* y[t][0] = log sum exp(a[t]) - a[t][target[t]], from the statistics of all       \
     * ranks */                                                                        \
    ROW(NLL, nll, NO_CALL, RULE, saved_nothing, 1, false, no_flops, NOTHING, NONE,     \
        DEVICE)                                                                        \
    /* y[t][0] = a token drawn by whole logits, as the step says */                    \
    ROW(SAMPLE, sample, NO_CALL, RULE, saved_nothing, NO_REVERSE, false, no_flops,     \
        NOTHING, NONE, DEVICE)                                                         \
    /* y = a part of a's heads (see .heads); made by who shares sequences */           \
    ROW(HEADS_PACK, heads_pack, NO_CALL, RULE, saved_nothing, NO_REVERSE, false,       \
        no_flops, NOTHING, NONE, DEVICE)                                               \
    /* that part of y = a */                                                           \
    ROW(HEADS_UNPACK, heads_unpack, NO_CALL, RULE, saved_nothing, NO_REVERSE, false,   \
        no_flops, NOTHING, NONE, DEVICE)                                               \
    /* y = the keys' rows of a range of the cache, in order */                         \
    ROW(CACHE_READ, cache_read, NO_CALL, RULE, saved_nothing, NO_REVERSE, false,       \
        no_flops, NOTHING, NONE, DEVICE)                                               \
    /* y = attention over the keys of y and of a; src y's lse, a, a's lse */           \
    ROW(MERGE, merge, NO_CALL, RULE, saved_nothing, NO_REVERSE, false, no_flops,       \
        NOTHING, NONE, DEVICE)                                                         \
    /* y[t][0] = index of the largest, lowest first; as a float below 2^24 */          \
    ROW(ARGMAX, argmax, NO_CALL, RULE, saved_nothing, NO_REVERSE, false, no_flops,     \
        NOTHING, NONE, DEVICE)
/* clang-format on */

enum op {
#define ROW(id, ...) OP_##id,
    OPS(ROW)
#undef ROW
        OP_COUNT
};

struct builder;
struct inst;
struct node;
struct operand;
struct program;

enum op_places {
    PLACES_RULE,   /* its own rule says */
    PLACES_LINEAR, /* a partial source gives a partial result */
    PLACES_SUMMED, /* a partial source is made whole first */
    PLACES_WHOLE   /* so is a cut one */
};

enum op_traffic {
    TRAFFIC_NOTHING, /* a view, in place, or too little to count */
    TRAFFIC_MOVES,   /* sources and result */
    TRAFFIC_PRODUCT  /* and the weight */
};

enum op_collective {
    COLLECTIVE_NONE,
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_KINDS
};

/* Floating-point operations of a product, for each row of its result. */
struct op_flops {
    double row;
    double key; /* besides, for each key that the row attends to */
};

enum { OP_NO_REVERSE = -1 };
enum { OP_SAVES_RESULT = 1 << 4 }; /* beside 1 << K: source K */

struct op_info {
    const char *name;
    int least, most; /* arguments; 0: not in the language */
    int (*apply)(struct builder *b, const struct node *call, const struct operand *arg,
                 int n, struct operand *out);
    enum op_places places;
    unsigned (*saved)(const struct inst *inst); /* set of 1 << K, OP_SAVES_RESULT */
    int grads;                                  /* sources, or OP_NO_REVERSE */
    bool passes;
    struct op_flops (*flops)(const struct program *p, const struct inst *inst);
    enum op_traffic traffic;
    enum op_collective collective;
    bool on_device; /* else done by the communicator */
};

extern const struct op_info op_table[OP_COUNT];

#endif
