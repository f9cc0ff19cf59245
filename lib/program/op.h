/* op - the table of operations
 *
 * One row an operation; everything else that is known of an operation is a column here:
 * readers fold the table over a program.  A row that lacks a column does not compile.
 * The columns, in order:
 *
 *   ID       enum op has OP_ID; the CPU backend's kernel is kernel_WORD
 *   word     its name where programs are printed, and in the language if it is called
 *   runs_on  DEVICE: a kernel of the backend; COMM: the communicator
 *   call     CALL(least, most, apply): arguments without options, and the rule that
 *            types and places it; NO_CALL: not in the language, build makes it
 *   places   placements that the result takes over from the first source
 *   result   OWN memory; SOURCE: the memory of the first source; PART: of a part of it,
 *            where an engine has views
 *   role     what it is to a model besides: CACHE appends to the KV cache, DISPATCH
 *            sends rows to experts, LOSS reads the logits; NO_ROLE
 *   inner    axis of its weight that it sums over; NO_AXIS
 *   saved    what its derivative reads: a set of sources and the result
 *   grads    how many of its first sources have a gradient, which reverse_WORD makes
 *            (reverse.c), and that of the weight; NO_REVERSE: it has no derivative
 *   passes   the gradient of the result is that of each source, unchanged
 *   flops    of one row (of the sources, where the result is a weight's gradient), as
 *            products are counted: 2 for a multiplication and addition;
 *            elementwise work is counted by the bytes that it moves
 *   scores   the rows of scores that attention makes of a row
 *   traffic  what goes through memory
 *   collective
 *            that it is
 *   torch    what PyTorch does that runs operations one by one, for lib/estimate
 */
#ifndef LIB_PROGRAM_OP_H
#define LIB_PROGRAM_OP_H

#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
#define OPS(ROW)                                                                       \
    /* y[t] = table[index[t] - first]; zero where the row is not held */               \
    ROW(EMBEDDING, embedding, DEVICE, CALL(2, 2, apply_embedding), RULE, OWN,          \
        NO_ROLE, NO_AXIS, saved_nothing, 0, false, no_flops, no_scores, MOVES, NONE,   \
        torch_kernel)                                                                  \
    /* y = x W^T, W [cols(y)][cols(x)] */                                              \
    ROW(LINEAR, linear, DEVICE, CALL(2, 2, apply_product), RULE, OWN, NO_ROLE, 1,      \
        saved_product, 1, false, of_matrix, no_scores, PRODUCT, NONE, torch_product)   \
    /* y = x W, W [cols(x)][cols(y)] */                                                \
    ROW(MATMUL, matmul, DEVICE, CALL(2, 2, apply_product), RULE, OWN, NO_ROLE, 0,      \
        saved_product, 1, false, of_matrix, no_scores, PRODUCT, NONE, torch_product)   \
    /* y = a + b, of the same shape */                                                 \
    ROW(ADD, add, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing, 2,      \
        true, no_flops, no_scores, MOVES, NONE, torch_kernel)                          \
    /* y = a * b */                                                                    \
    ROW(MUL, mul, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_both, 2,         \
        false, no_flops, no_scores, MOVES, NONE, torch_kernel)                         \
    /* y = a + w, w a weight [cols], to every row */                                   \
    ROW(ADD_VECTOR, add_vector, DEVICE, NO_CALL, SUMMED, OWN, NO_ROLE, NO_AXIS,        \
        saved_nothing, 1, true, no_flops, no_scores, MOVES, NONE, torch_free)          \
    /* y = a * number */                                                               \
    ROW(SCALE, scale, DEVICE, NO_CALL, LINEAR, OWN, NO_ROLE, NO_AXIS, saved_nothing,   \
        1, false, no_flops, no_scores, MOVES, NONE, torch_kernel)                      \
    /* y[t] = a[t] * s[t][0] */                                                        \
    ROW(MUL_ROWS, mul_rows, DEVICE, NO_CALL, LINEAR, OWN, NO_ROLE, NO_AXIS,            \
        saved_both, 2, false, no_flops, no_scores, MOVES, NONE, torch_kernel)          \
    ROW(ACTIVATION, activation, DEVICE, CALL(2, 2, apply_activation), SUMMED, OWN,     \
        NO_ROLE, NO_AXIS, saved_by_act, 1, false, no_flops, no_scores, MOVES, NONE,    \
        torch_activation)                                                              \
    /* an activation with two weights of one element: of what is above zero, and of    \
     * the rest */                                                                     \
    ROW(XIELU, xielu, DEVICE, CALL(3, 3, apply_xielu), SUMMED, OWN, NO_ROLE, NO_AXIS,  \
        saved_source, 1, false, no_flops, no_scores, MOVES, NONE, torch_kernel)        \
    /* of each row */                                                                  \
    ROW(SOFTMAX, softmax, DEVICE, CALL(1, 1, apply_elementwise), WHOLE, OWN,           \
        NO_ROLE, NO_AXIS, saved_source, 1, false, no_flops, no_scores, MOVES, NONE,    \
        torch_kernel)                                                                  \
    /* y = number * tanh(a / number) */                                                \
    ROW(SOFTCAP, softcap, DEVICE, CALL(2, 2, apply_bound), SUMMED, OWN, NO_ROLE,       \
        NO_AXIS, saved_source, 1, false, no_flops, no_scores, MOVES, NONE,             \
        torch_kernel)                                                                  \
    /* y = a between clip.least and clip.most */                                       \
    ROW(CLIP, clip, DEVICE, CALL(2, 2, apply_bound), SUMMED, OWN, NO_ROLE, NO_AXIS,    \
        saved_source, 1, false, no_flops, no_scores, MOVES, NONE, torch_kernel)        \
    /* y = a / (1 - rate), or 0 at random (see .drop); the same on all layouts */      \
    ROW(DROPOUT, dropout, DEVICE, CALL(2, 2, apply_dropout), SUMMED, OWN, NO_ROLE,     \
        NO_AXIS, saved_nothing, 1, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* over groups of norm.width columns; weight [width] or [cols] */                  \
    ROW(RMSNORM, rmsnorm, DEVICE, CALL(2, 3, apply_norm), RULE, OWN, NO_ROLE,          \
        NO_AXIS, saved_source, 1, false, no_flops, no_scores, MOVES, NONE,             \
        torch_rmsnorm)                                                                 \
    ROW(LAYERNORM, layernorm, DEVICE, CALL(2, 4, apply_norm), RULE, OWN, NO_ROLE,      \
        NO_AXIS, saved_source, 1, false, no_flops, no_scores, MOVES, NONE,             \
        torch_layernorm)                                                               \
    /* y[t][0] = sum of a's columns that this rank counts, f64 */                      \
    ROW(ROW_SUM, row_sum, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,                \
        saved_nothing, 1, false, no_flops, no_scores, MOVES, NONE, torch_statistic)    \
    /* of their squares, less the mean that a second source is the sum of */           \
    ROW(ROW_SQUARES, row_squares, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,        \
        saved_source, 1, false, no_flops, no_scores, MOVES, NONE, torch_statistic)     \
    /* rmsnorm of a by its row's squares; src a, squares */                            \
    ROW(RMS_APPLY, rms_apply, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_source, 2, false, no_flops, no_scores, MOVES, NONE, torch_rmsnorm)       \
    /* layernorm of a; src a, squares, sum */                                          \
    ROW(LAYER_APPLY, layer_apply, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,        \
        saved_source, 3, false, no_flops, no_scores, MOVES, NONE, torch_kernel)        \
    /* y[t] = cos, then sin of the rotary angles of t's position */                    \
    ROW(ANGLES, angles, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,   \
        NO_REVERSE, false, no_flops, no_scores, MOVES, NONE, torch_free)               \
    /* turn each head; src a, angles */                                                \
    ROW(ROPE, rope, DEVICE, CALL(2, 2, apply_rope), SUMMED, OWN, NO_ROLE, NO_AXIS,     \
        saved_nothing, 1, false, no_flops, no_scores, MOVES, NONE, torch_kernel)       \
    /* y[t] = a[t] (1 + amount log(1 + t's position plus 1, in whole steps)) */        \
    ROW(TEMPER, temper, DEVICE, CALL(3, 3, apply_temper), LINEAR, OWN, NO_ROLE,        \
        NO_AXIS, saved_nothing, 1, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y[t] = a[t] + the sines, then the cosines of t's position */                    \
    ROW(SINUSOID, sinusoid, DEVICE, CALL(2, 2, apply_sinusoid), SUMMED, OWN, NO_ROLE,  \
        NO_AXIS, saved_nothing, 1, true, no_flops, no_scores, MOVES, NONE,             \
        torch_kernel)                                                                  \
    /* append the rows to the cache; the value stands for all rows so far */           \
    ROW(KEEP, keep, DEVICE, CALL(1, 1, apply_keep), SUMMED, SOURCE, CACHE, NO_AXIS,    \
        saved_nothing, 1, true, no_flops, no_scores, COPIES, NONE, torch_free)         \
    ROW(ATTENTION, attention, DEVICE, CALL(4, 5, apply_attention), RULE, OWN,          \
        NO_ROLE, NO_AXIS, saved_all, 3, false, of_attention, of_query, MOVES, NONE,    \
        torch_attention)                                                               \
    /* attention by distance; src q, k, v, a table's rows as keys and as queries */    \
    ROW(RELATE, relate, DEVICE, CALL(5, 5, apply_relate), RULE, OWN, NO_ROLE, NO_AXIS, \
        saved_nothing, NO_REVERSE, false, of_attention, of_query, MOVES, NONE,         \
        torch_attention)                                                               \
    /* of each head: y = x W^T, W [dim(y)][dim(x)] the head's rows */                  \
    ROW(HEAD_LINEAR, head_linear, DEVICE, CALL(2, 2, apply_head_product), RULE, OWN,   \
        NO_ROLE, NO_AXIS, saved_product, 1, false, of_heads, no_scores, PRODUCT,       \
        NONE, torch_kernel)                                                            \
    /* of each head: y = x W, W [dim(x)][dim(y)] */                                    \
    ROW(HEAD_MATMUL, head_matmul, DEVICE, CALL(2, 2, apply_head_product), RULE, OWN,   \
        NO_ROLE, NO_AXIS, saved_product, 1, false, of_heads, no_scores, PRODUCT,       \
        NONE, torch_kernel)                                                            \
    /* of each head: y = a's columns, then b's */                                      \
    ROW(CONCAT, concat, DEVICE, CALL(2, 2, apply_concat), RULE, OWN, NO_ROLE,          \
        NO_AXIS, saved_nothing, 2, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y[t] = the experts of token t, i32, from the likeliest on; -1: no more */       \
    ROW(CHOOSE, choose, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,   \
        NO_REVERSE, false, no_flops, no_scores, MOVES, NONE, torch_free)               \
    /* y[t][e] = the weight of expert e for token t, 0 for most; src scores, choice */ \
    ROW(ROUTE, route, DEVICE, CALL(2, 3, apply_route), WHOLE, OWN, NO_ROLE, NO_AXIS,   \
        saved_source, 1, false, no_flops, no_scores, MOVES, NONE, torch_kernel)        \
    /* y[0][e] = rows that are sent to the experts before the e-th, i32; the last is   \
     * their number; src choice */                                                     \
    ROW(EXPERT_COUNT, expert_count, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,      \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_free)                                                                    \
    /* y[i][0] = the row of the i-th of them, by expert, i32; src choice, counts */    \
    ROW(EXPERT_INDEX, expert_index, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,      \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_free)                                                                    \
    /* y[i] = a[index[i]]; src a, index */                                             \
    ROW(EXPERT_GATHER, expert_gather, DEVICE, NO_CALL, RULE, OWN, DISPATCH, NO_AXIS,   \
        saved_nothing, 1, false, no_flops, no_scores, COPIES, NONE, torch_kernel)      \
    /* y[t] = sum over t's experts e of r[t][e] a[i]; src a, r, index, counts */       \
    ROW(EXPERT_COMBINE, expert_combine, DEVICE, NO_CALL, RULE, OWN, NO_ROLE,           \
        NO_AXIS, saved_source, 2, false, no_flops, no_scores, MOVES, NONE,             \
        torch_kernel)                                                                  \
    /* y = columns [first, first + cols(y)) of a */                                    \
    ROW(SEGMENT, segment, DEVICE, NO_CALL, RULE, PART, NO_ROLE, NO_AXIS,               \
        saved_nothing, 1, false, no_flops, no_scores, COPIES, NONE, torch_free)        \
    /* y = the output rows of a (given at each step) */                                \
    ROW(TAKE, take, DEVICE, NO_CALL, LINEAR, SOURCE, NO_ROLE, NO_AXIS,                 \
        saved_nothing, 1, true, no_flops, no_scores, COPIES, NONE, torch_free)         \
    /* y = row 0 of a */                                                               \
    ROW(FIRST, first, DEVICE, CALL(1, 1, apply_first), LINEAR, OWN, NO_ROLE,           \
        NO_AXIS, saved_nothing, 1, false, no_flops, no_scores, COPIES, NONE,           \
        torch_free)                                                                    \
    /* y = sum of a over the ranks of inst.over */                                     \
    ROW(ALL_REDUCE, all_reduce, COMM, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_nothing, 1, true, no_flops, no_scores, NOTHING, ALL_REDUCE,              \
        torch_free)                                                                    \
    /* y = each rank's rows of a, one rank after the other */                          \
    ROW(ALL_GATHER, all_gather, COMM, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_nothing, 1, false, no_flops, no_scores, NOTHING, ALL_GATHER,             \
        torch_free)                                                                    \
    /* rows to the ranks of their experts, and back (see .exchange) */                 \
    ROW(ALL_TO_ALL, all_to_all, COMM, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, NOTHING, ALL_TO_ALL,    \
        torch_free)                                                                    \
    /* y = the columns of all ranks in global order (see .gather) */                   \
    ROW(ARRANGE, arrange, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,                \
        saved_nothing, 1, false, no_flops, no_scores, MOVES, NONE, torch_free)         \
    /* y = this rank's columns of a whole a (see .gather) */                           \
    ROW(SLICE, slice, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,     \
        1, false, no_flops, no_scores, COPIES, NONE, torch_free)                       \
    /* y[t] = largest of a[t], sum of exp(a - largest), a[t][target[t]], index of the  \
     * largest; f64 */                                                                 \
    ROW(ROW_STATS, row_stats, DEVICE, NO_CALL, RULE, OWN, LOSS, NO_AXIS,               \
        saved_source, 1, false, no_flops, no_scores, MOVES, NONE, torch_free)          \
    /* y[t][0] = log sum exp(a[t]) - a[t][target[t]], from the statistics of all       \
     * ranks */                                                                        \
    ROW(NLL, nll, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing, 1,      \
        false, no_flops, no_scores, MOVES, NONE, torch_free)                           \
    /* y[t][0] = a token drawn by whole logits, as the step says */                    \
    ROW(SAMPLE, sample, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,   \
        NO_REVERSE, false, no_flops, no_scores, MOVES, NONE, torch_free)               \
    /* y = a part of a's heads (see .heads); made by who shares sequences */           \
    ROW(HEADS_PACK, heads_pack, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, COPIES, NONE,           \
        torch_free)                                                                    \
    /* that part of y = a */                                                           \
    ROW(HEADS_UNPACK, heads_unpack, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,      \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, COPIES, NONE,           \
        torch_free)                                                                    \
    /* y = the keys' rows of a range of the cache, in order */                         \
    ROW(CACHE_READ, cache_read, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, COPIES, NONE,           \
        torch_free)                                                                    \
    /* y = attention over the keys of y and of a; src y's lse, a, a's lse */           \
    ROW(MERGE, merge, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,     \
        NO_REVERSE, false, no_flops, no_scores, MOVES, NONE, torch_free)               \
    /* y[t][0] = index of the largest, lowest first; as a float below 2^24 */          \
    ROW(ARGMAX, argmax, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,   \
        NO_REVERSE, false, no_flops, no_scores, MOVES, NONE, torch_free)               \
    /* What follows is made by reverse.c; d is the gradient of the result of what is   \
     * reversed.  The first six add to the gradient of their weight.  */               \
    /* += a^T b, a of the weight's rows, b of its columns */                           \
    ROW(OUTER, outer, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,     \
        NO_REVERSE, false, of_matrix, no_scores, MOVES, NONE, torch_kernel)            \
    /* += a^T b of each head, to the head's rows */                                    \
    ROW(HEAD_OUTER, head_outer, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, of_heads, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* row index[t] - first += d[t] */                                                 \
    ROW(EMBEDDING_BACK, embedding_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,  \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* += the sum of the rows of d */                                                  \
    ROW(COLUMN_SUM, column_sum, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* += the sum of d by the normed a; src d, a, and of ranks: squares, sum */        \
    ROW(NORM_WEIGHT, norm_weight, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,        \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* += that of one of xielu's, of what is above zero if number; src d, a */         \
    ROW(XIELU_WEIGHT, xielu_weight, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,      \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y[t][0] = sum of a[t] b[t] */                                                   \
    ROW(ROW_DOT, row_dot, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing, \
        NO_REVERSE, false, no_flops, no_scores, MOVES, NONE, torch_kernel)             \
    /* src d, a */                                                                     \
    ROW(ACTIVATION_BACK, activation_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE,         \
        NO_AXIS, saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,   \
        torch_kernel)                                                                  \
    /* src d, a */                                                                     \
    ROW(XIELU_BACK, xielu_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* src d, a */                                                                     \
    ROW(SOFTMAX_BACK, softmax_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,      \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* src d, a */                                                                     \
    ROW(SOFTCAP_BACK, softcap_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,      \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* src d, a */                                                                     \
    ROW(CLIP_BACK, clip_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* of a norm over columns that this rank has; src d, a */                          \
    ROW(NORM_BACK, norm_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* of one over ranks: two sums of each row, f64; src d, a, squares, sum */         \
    ROW(NORM_TERMS, norm_terms, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* and what they do to it; src d, a, those of all ranks, squares, sum */           \
    ROW(NORM_APPLY_BACK, norm_apply_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE,         \
        NO_AXIS, saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,   \
        torch_kernel)                                                                  \
    /* turn back; src d, angles */                                                     \
    ROW(ROPE_BACK, rope_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y = the gradients of q, k and v beside each other, and of each row those of the \
     * heads' own scores; src d, q, k, v */                                            \
    ROW(ATTENTION_BACK, attention_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,  \
        saved_nothing, NO_REVERSE, false, of_attention_back, of_query, MOVES, NONE,    \
        torch_kernel)                                                                  \
    /* src d, scores, choice */                                                        \
    ROW(ROUTE_BACK, route_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y[i] = r[t][e] d[t] for the i-th row sent; src d, r, index, counts */           \
    ROW(EXPERT_SPREAD, expert_spread, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,    \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y[t][e] = sum of d[t] a[i], 0 for most; src d, a, index, counts */              \
    ROW(EXPERT_DOT, expert_dot, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y[t] = sum of the d[i] that are of row t; src d, index */                       \
    ROW(EXPERT_SCATTER, expert_scatter, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,  \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* columns [first, first + cols(d)) of y = d; the others 0 */                      \
    ROW(SEGMENT_BACK, segment_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,      \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* row 0 of each segment of y = d; the others 0 */                                 \
    ROW(FIRST_BACK, first_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y = this rank's columns of d; 0 where another owns them (see .gather) */        \
    ROW(SLICE_OWNED, slice_owned, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,        \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* this rank's columns of y = d, the others 0 (see .gather) */                     \
    ROW(UNSLICE, unslice, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing, \
        NO_REVERSE, false, no_flops, no_scores, MOVES, NONE, torch_kernel)             \
    /* the gradient of the logits a; src statistics, a */                              \
    ROW(NLL_BACK, nll_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,              \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)
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

/* Whose memory the result is. */
enum op_result { RESULT_OWN, RESULT_SOURCE, RESULT_PART };

enum op_role { ROLE_NONE, ROLE_CACHE, ROLE_DISPATCH, ROLE_LOSS };

enum op_traffic {
    TRAFFIC_NOTHING, /* what a collective moves is counted as its bytes */
    TRAFFIC_COPIES,  /* the result, read and written */
    TRAFFIC_MOVES,   /* sources and result */
    TRAFFIC_PRODUCT  /* and the weight */
};

enum op_collective {
    COLLECTIVE_NONE,
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_ALL_TO_ALL,
    COLLECTIVE_KINDS
};

/* Floating-point operations of a product, for each row of its result. */
struct op_flops {
    double row;
    double key; /* besides, for each key that the row attends to */
};

/* Attention's rows of scores, one for each head; each row sees the keys before it that
 * are within the window. */
struct op_scores {
    uint64_t heads;  /* 0: the operation is no attention */
    uint64_t spread; /* columns that keys and values have more when each head has its
                        own */
    uint64_t window; /* keys that a row sees at most; 0: all */
    bool causal;     /* none after it */
    bool capped;     /* scores are bent by a cap */
};

/* PyTorch's way with an operation that it runs by itself. */
struct op_torch {
    bool free;     /* a view, done by another kernel, or too little to count */
    bool part;     /* what it saves is saved by the operation that reads its result */
    bool upcast;   /* narrow sources are saved in f32 instead, and what the weight
                      multiplies is saved as well */
    bool wide;     /* the latter in f32, too */
    int copies;    /* of the result, saved besides */
    int gradients; /* values in f32 like the result that there are at once, going back
                    */
    int spared;    /* of so many such operations a selective recomputation saves the
                      result of the first; 0: of none */
};

enum { OP_NO_REVERSE = -1 };
enum { INNER_NONE = -1 };
enum { SAVES_RESULT = 1 << 4 }; /* beside 1 << K: source K */

struct op_info {
    const char *name;
    bool on_device;  /* else done by the communicator */
    int least, most; /* arguments; 0: not in the language */
    int (*apply)(struct builder *b, enum op op, const struct node *call,
                 const struct operand *arg, int n, struct operand *out);
    enum op_places places;
    enum op_result result;
    enum op_role role;
    int inner;                                  /* axis of the weight, or INNER_NONE */
    unsigned (*saved)(const struct inst *inst); /* set of 1 << K, SAVES_RESULT */
    int grads;                                  /* sources, or OP_NO_REVERSE */
    bool passes;
    struct op_flops (*flops)(const struct program *p, const struct inst *inst);
    struct op_scores (*scores)(const struct inst *inst);
    enum op_traffic traffic;
    enum op_collective collective;
    struct op_torch (*torch)(const struct inst *inst);
};

extern const struct op_info op_table[OP_COUNT];

#endif
