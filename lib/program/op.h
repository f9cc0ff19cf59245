/* op - the table of operations
 *
 * One row per operation.  Each fact about an operation is a column here; the compiler,
 * the cost model, the memory estimate and the backends read it.  A row that lacks a
 * column does not compile.  The columns, in order:
 *
 *   ID       enum op has OP_ID
 *   word     its name in printed programs, and in the language if a family can call it;
 *            its kernel is kernel_WORD (lib/cpu/kernels.c, lib/gpu/calls.c)
 *   runs_on  DEVICE: a kernel of the backend; COMM: the communicator
 *   call     CALL(least, most, apply): number of arguments without options, and the
 *            function that types, places and emits it; NO_CALL: not in the language,
 *            only the compiler emits it
 *   places   how build_unary derives the result's placement from that of the first
 *            source (enum op_places); RULE: the code that emits it decides
 *   result   OWN: memory of its own; SOURCE: it may share the first source's memory;
 *            PART: it may be a view of a part of that memory
 *   role     what lib/estimate and the engine look for: CACHE appends to the KV cache,
 *            ATTENDS reads keys and values (sources 1 and 2), which may be cached,
 *            OF_TEXT reads a text's other rows, so ranks cannot share the text,
 *            DISPATCH gathers rows for experts, LOSS reads the logits; or NO_ROLE
 *   inner    the axis of its weight that the product contracts; or NO_AXIS
 *   saved    what its derivative reads: a set of sources and the result
 *   grads    how many of its first sources get a gradient.  reverse_WORD (reverse.c)
 *            emits these gradients and the weight's; NO_REVERSE: no derivative
 *   passes   true: the gradient of each source is the gradient of the result, unchanged
 *   flops    per row of the result (of the sources, if the result is a weight's
 *            gradient).  Products only, 2 for each multiply-add; elementwise work is
 *            counted by the bytes that it moves
 *   scores   the attention scores that it computes for a row
 *   traffic  which operands it reads from and writes to memory
 *   collective
 *            which collective it is, or NONE
 *   torch    what PyTorch in eager mode does instead, for lib/estimate
 */
#ifndef LIB_PROGRAM_OP_H
#define LIB_PROGRAM_OP_H

#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
#define OPS(ROW)                                                                       \
    /* y[t] = table[index[t] - first]; 0 if another rank holds that row of the table */\
    ROW(EMBEDDING, embedding, DEVICE, CALL(2, 2, apply_embedding), RULE, OWN,          \
        NO_ROLE, NO_AXIS, saved_nothing, 0, false, no_flops, no_scores, MOVES, NONE,   \
        torch_kernel)                                                                  \
    /* y = x W^T, W [cols(y)][cols(x)] */                                              \
    ROW(LINEAR, linear, DEVICE, CALL(2, 2, apply_product), RULE, OWN, NO_ROLE, 1,      \
        saved_product, 1, false, of_matrix, no_scores, PRODUCT, NONE, torch_product)   \
    /* y = x W, W [cols(x)][cols(y)] */                                                \
    ROW(MATMUL, matmul, DEVICE, CALL(2, 2, apply_product), RULE, OWN, NO_ROLE, 0,      \
        saved_product, 1, false, of_matrix, no_scores, PRODUCT, NONE, torch_product)   \
    /* y[t] = the features of frame t */                                               \
    ROW(FEATURES, features, DEVICE, CALL(1, 1, apply_features), RULE, OWN, NO_ROLE,    \
        NO_AXIS, saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,   \
        torch_free)                                                                    \
    /* y[t][c][k] = a[2t + k - reach/2][c]; 0 before the first and after the last row  \
     * of the text */                                                                  \
    ROW(HALVE, halve, DEVICE, CALL(2, 2, apply_halve), RULE, OWN, OF_TEXT, NO_AXIS,    \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_free)                                                                    \
    /* y = a + b, of the same shape */                                                 \
    ROW(ADD, add, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing, 2,      \
        true, no_flops, no_scores, MOVES, NONE, torch_kernel)                          \
    /* y = a * b */                                                                    \
    ROW(MUL, mul, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_both, 2,         \
        false, no_flops, no_scores, MOVES, NONE, torch_kernel)                         \
    /* y = a + w, w a weight [cols], to every row */                                   \
    ROW(ADD_VECTOR, add_vector, DEVICE, NO_CALL, SUMMED, OWN, NO_ROLE, NO_AXIS,        \
        saved_nothing, 1, true, no_flops, no_scores, MOVES, NONE, torch_free)          \
    /* y = a * w, w a weight [cols], every row */                                      \
    ROW(MUL_VECTOR, mul_vector, DEVICE, NO_CALL, SUMMED, OWN, NO_ROLE, NO_AXIS,        \
        saved_source, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,             \
        torch_kernel)                                                                  \
    /* y = a * number */                                                               \
    ROW(SCALE, scale, DEVICE, NO_CALL, LINEAR, OWN, NO_ROLE, NO_AXIS, saved_nothing,   \
        1, false, no_flops, no_scores, MOVES, NONE, torch_kernel)                      \
    /* y[t] = a[t] * s[t][0] */                                                        \
    ROW(MUL_ROWS, mul_rows, DEVICE, NO_CALL, LINEAR, OWN, NO_ROLE, NO_AXIS,            \
        saved_both, 2, false, no_flops, no_scores, MOVES, NONE, torch_kernel)          \
    ROW(ACTIVATION, activation, DEVICE, CALL(2, 2, apply_activation), SUMMED, OWN,     \
        NO_ROLE, NO_AXIS, saved_by_act, 1, false, no_flops, no_scores, MOVES, NONE,    \
        torch_activation)                                                              \
    /* the activation xIELU; two weights of one element, one for a > 0 and one for     \
     * a <= 0 */                                                                       \
    ROW(XIELU, xielu, DEVICE, CALL(3, 3, apply_xielu), SUMMED, OWN, NO_ROLE, NO_AXIS,  \
        saved_source, 1, false, no_flops, no_scores, MOVES, NONE, torch_xielu)         \
    /* softmax over the columns of each row */                                         \
    ROW(SOFTMAX, softmax, DEVICE, CALL(1, 1, apply_elementwise), WHOLE, OWN,           \
        NO_ROLE, NO_AXIS, saved_source, 1, false, no_flops, no_scores, MOVES, NONE,    \
        torch_kernel)                                                                  \
    /* y = number * tanh(a / number) */                                                \
    ROW(SOFTCAP, softcap, DEVICE, CALL(2, 2, apply_bound), SUMMED, OWN, NO_ROLE,       \
        NO_AXIS, saved_source, 1, false, no_flops, no_scores, MOVES, NONE,             \
        torch_kernel)                                                                  \
    /* y = a clamped to [clip.least, clip.most] */                                     \
    ROW(CLIP, clip, DEVICE, CALL(2, 2, apply_bound), SUMMED, OWN, NO_ROLE, NO_AXIS,    \
        saved_source, 1, false, no_flops, no_scores, MOVES, NONE, torch_kernel)        \
    /* y = 0 with probability rate, else a / (1 - rate); equal on all layouts */       \
    ROW(DROPOUT, dropout, DEVICE, CALL(2, 2, apply_dropout), SUMMED, OWN, NO_ROLE,     \
        NO_AXIS, saved_nothing, 1, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* normalizes each group of norm.width columns; weight [width] or [cols] */        \
    ROW(RMSNORM, rmsnorm, DEVICE, CALL(2, 3, apply_norm), RULE, OWN, NO_ROLE,          \
        NO_AXIS, saved_source, 1, false, no_flops, no_scores, MOVES, NONE,             \
        torch_rmsnorm)                                                                 \
    ROW(LAYERNORM, layernorm, DEVICE, CALL(2, 4, apply_norm), RULE, OWN, NO_ROLE,      \
        NO_AXIS, saved_source, 1, false, no_flops, no_scores, MOVES, NONE,             \
        torch_layernorm)                                                               \
    /* y[t][0] = sum over the columns of a that this rank owns (norm.owned), f64 */    \
    ROW(ROW_SUM, row_sum, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,                \
        saved_nothing, 1, false, no_flops, no_scores, MOVES, NONE, torch_statistic)    \
    /* the same of a^2; with a second source, the row's sum: of (a - mean)^2 */        \
    ROW(ROW_SQUARES, row_squares, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,        \
        saved_source, 1, false, no_flops, no_scores, MOVES, NONE, torch_statistic)     \
    /* rmsnorm of a, given the sum of squares of each row; src a, squares */           \
    ROW(RMS_APPLY, rms_apply, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_source, 2, false, no_flops, no_scores, MOVES, NONE, torch_rmsnorm)       \
    /* layernorm of a, given the sums of each row; src a, squares, sum */              \
    ROW(LAYER_APPLY, layer_apply, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,        \
        saved_source, 3, false, no_flops, no_scores, MOVES, NONE, torch_kernel)        \
    /* y[t] = the cosines, then the sines of the rotary angles of t's position */      \
    ROW(ANGLES, angles, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,   \
        NO_REVERSE, false, no_flops, no_scores, MOVES, NONE, torch_free)               \
    /* rotates each head; src a, angles */                                             \
    ROW(ROPE, rope, DEVICE, CALL(2, 3, apply_rope), SUMMED, OWN, NO_ROLE, NO_AXIS,     \
        saved_nothing, 1, false, no_flops, no_scores, MOVES, NONE, torch_kernel)       \
    /* y[t] = a[t] (1 + amount log(1 + t's position plus 1, in whole steps)) */        \
    ROW(TEMPER, temper, DEVICE, CALL(3, 3, apply_temper), LINEAR, OWN, NO_ROLE,        \
        NO_AXIS, saved_nothing, 1, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y[t] = a[t] + the sines, then the cosines of t's position; without a source     \
     * those of the row's number */                                                    \
    ROW(SINUSOID, sinusoid, DEVICE, CALL(2, 3, apply_sinusoid), SUMMED, OWN, NO_ROLE,  \
        NO_AXIS, saved_nothing, 1, true, no_flops, no_scores, MOVES, NONE,             \
        torch_kernel)                                                                  \
    /* append the rows to the KV cache; y = all rows cached so far */                  \
    ROW(KEEP, keep, DEVICE, CALL(1, 1, apply_keep), SUMMED, SOURCE, CACHE, NO_AXIS,    \
        saved_nothing, 1, true, no_flops, no_scores, COPIES, NONE, torch_free)         \
    ROW(ATTENTION, attention, DEVICE, CALL(4, 5, apply_attention), RULE, OWN,          \
        ATTENDS, NO_AXIS, saved_all, 3, false, of_attention, of_query, MOVES, NONE,    \
        torch_attention)                                                               \
    /* causal attention with biases by distance that each query brings (ProphetNet);   \
     * src q, k, v, biases [heads][buckets] and, if given, the key and the value that  \
     * only the query's own row has: the other keys are then one further away */       \
    ROW(STREAM, stream, DEVICE, CALL(4, 6, apply_stream), RULE, OWN, ATTENDS, NO_AXIS, \
        saved_all, NO_REVERSE, false, of_attention, of_query, MOVES, NONE,             \
        torch_attention)                                                               \
    /* attention with relative positions (DeBERTa); src q, k, v, and the rows of the   \
     * position table projected as keys and as queries */                              \
    ROW(RELATE, relate, DEVICE, CALL(5, 5, apply_relate), RULE, OWN, OF_TEXT, NO_AXIS, \
        saved_all, NO_REVERSE, false, of_attention, of_query, MOVES, NONE,             \
        torch_relate)                                                                  \
    /* attention with relative positions (Transformer-XL); src q, k, v, the query for  \
     * positions, the rows of the position table, and, with the weight of two rows for \
     * equal and different token types, the query for these */                         \
    ROW(RELATE_XL, relate_xl, DEVICE, CALL(5, 7, apply_relate_xl), RULE, OWN, OF_TEXT, \
        NO_AXIS, saved_all, NO_REVERSE, false, of_attention, of_query, MOVES, NONE,    \
        torch_attention)                                                               \
    /* attention within a window, and of tokens that see all and are seen by all       \
     * (Longformer); src q, k, v, and those by which the latter see */                 \
    ROW(GLOBAL_ATTENTION, global_attention, DEVICE,                                    \
        CALL(6, 6, apply_global_attention), RULE, OWN, OF_TEXT, NO_AXIS, saved_all,    \
        NO_REVERSE, false, of_attention, of_query, MOVES, NONE, torch_attention)       \
    /* for each head: y = x W^T, W [dim(y)][dim(x)], the head's rows of the weight */  \
    ROW(HEAD_LINEAR, head_linear, DEVICE, CALL(2, 2, apply_head_product), RULE, OWN,   \
        NO_ROLE, NO_AXIS, saved_product, 1, false, of_heads, no_scores, PRODUCT,       \
        NONE, torch_kernel)                                                            \
    /* for each head: y = x W, W [dim(x)][dim(y)] */                                   \
    ROW(HEAD_MATMUL, head_matmul, DEVICE, CALL(2, 2, apply_head_product), RULE, OWN,   \
        NO_ROLE, NO_AXIS, saved_product, 1, false, of_heads, no_scores, PRODUCT,       \
        NONE, torch_kernel)                                                            \
    /* for each head: y = the columns of a, then those of b */                         \
    ROW(CONCAT, concat, DEVICE, CALL(2, 2, apply_concat), RULE, OWN, NO_ROLE,          \
        NO_AXIS, saved_nothing, 2, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y[t] = sum over k of w[k] * a[t + k - taps/2], w [cols][taps] a weight; 0 beyond\
     * the text */                                                                     \
    ROW(CONVOLVE, convolve, DEVICE, CALL(2, 2, apply_convolve), RULE, OWN, OF_TEXT,    \
        NO_AXIS, saved_source, NO_REVERSE, false, of_taps, no_scores, MOVES, NONE,     \
        torch_kernel)                                                                  \
    /* for each head: y[t] = sum over k of softmax(s[t])[k] * a[t + k - taps/2]; src a,\
     * s [heads][taps] */                                                              \
    ROW(DYNAMIC, dynamic, DEVICE, CALL(2, 2, apply_dynamic), RULE, OWN, OF_TEXT,       \
        NO_AXIS, saved_both, NO_REVERSE, false, of_taps, no_scores, MOVES, NONE,       \
        torch_dynamic)                                                                 \
    /* y[t] = a[t + shift]; 0 beyond the text */                                       \
    ROW(SHIFT, shift, DEVICE, CALL(1, 1, apply_shift), SUMMED, OWN, OF_TEXT, NO_AXIS,  \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, COPIES, NONE,           \
        torch_kernel)                                                                  \
    /* y[i] = the mean, or the larger, of two neighbours of a: rows of a text that was \
     * pooled pool.times - 1 times before; the rows after the pooled ones are 0 */     \
    ROW(POOL, pool, DEVICE, CALL(1, 1, apply_pool), SUMMED, OWN, OF_TEXT, NO_AXIS,     \
        saved_source, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,             \
        torch_kernel)                                                                  \
    /* y[t] = the row of a, pooled pool.times times, that t went into; or 0 */         \
    ROW(UNPOOL, unpool, DEVICE, CALL(1, 1, apply_pool), SUMMED, OWN, OF_TEXT, NO_AXIS, \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, COPIES, NONE,           \
        torch_kernel)                                                                  \
    /* y[t] = the top-k experts of token t, highest score first, i32; -1 pads */       \
    ROW(CHOOSE, choose, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,   \
        NO_REVERSE, false, no_flops, no_scores, MOVES, NONE, torch_free)               \
    /* y[t][e] = weight of expert e for token t, 0 if not in the top k; src scores,    \
     * choice (of OP_CHOOSE) */                                                        \
    ROW(ROUTE, route, DEVICE, CALL(2, 3, apply_route), WHOLE, OWN, NO_ROLE, NO_AXIS,   \
        saved_source, 1, false, no_flops, no_scores, MOVES, NONE, torch_kernel)        \
    /* y[0][e] = number of rows sent to the experts before e, i32; the last column is  \
     * the number of all such rows; src choice */                                      \
    ROW(EXPERT_COUNT, expert_count, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,      \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_free)                                                                    \
    /* y[i][0] = the token of the i-th row sent, sorted by expert, i32; src choice,    \
     * counts */                                                                       \
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
    /* y = the output rows of a (the rows that the step asks for: logits_to_keep) */   \
    ROW(TAKE, take, DEVICE, NO_CALL, LINEAR, SOURCE, NO_ROLE, NO_AXIS,                 \
        saved_nothing, 1, true, no_flops, no_scores, COPIES, NONE, torch_free)         \
    /* y = the first row of each sequence of a */                                      \
    ROW(FIRST, first, DEVICE, CALL(1, 1, apply_first), LINEAR, OWN, NO_ROLE,           \
        NO_AXIS, saved_nothing, 1, false, no_flops, no_scores, COPIES, NONE,           \
        torch_free)                                                                    \
    /* y = sum of a over the ranks of the mesh axis inst.over */                       \
    ROW(ALL_REDUCE, all_reduce, COMM, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_nothing, 1, true, no_flops, no_scores, NOTHING, ALL_REDUCE,              \
        torch_free)                                                                    \
    /* y = a of every rank of the tensor group, one rank after another */              \
    ROW(ALL_GATHER, all_gather, COMM, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_nothing, 1, false, no_flops, no_scores, NOTHING, ALL_GATHER,             \
        torch_free)                                                                    \
    /* sends rows to the ranks of their experts, or back (see .all_to_all) */          \
    ROW(ALL_TO_ALL, all_to_all, COMM, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, NOTHING, ALL_TO_ALL,    \
        torch_free)                                                                    \
    /* y = the columns of all ranks in global order (see .gather) */                   \
    ROW(ARRANGE, arrange, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,                \
        saved_nothing, 1, false, no_flops, no_scores, MOVES, NONE, torch_free)         \
    /* y = this rank's columns of a replicated a (see .gather) */                      \
    ROW(SLICE, slice, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,     \
        1, false, no_flops, no_scores, COPIES, NONE, torch_free)                       \
    /* y[t] = max of a[t], sum of exp(a[t] - max), a[t][target[t]], index of the max;  \
     * f64.  The sum is 0 when all are -inf, NaN with a NaN or +inf */                 \
    ROW(ROW_STATS, row_stats, DEVICE, NO_CALL, RULE, OWN, LOSS, NO_AXIS,               \
        saved_source, 1, false, no_flops, no_scores, MOVES, NONE, torch_free)          \
    /* y[t][0] = log sum exp(a[t]) - a[t][target[t]], from the OP_ROW_STATS of all     \
     * ranks */                                                                        \
    ROW(NLL, nll, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing, 1,      \
        false, no_flops, no_scores, MOVES, NONE, torch_free)                           \
    /* y[t][0] = a token drawn from replicated logits with the step's options; -1 as   \
     * ARGMAX */                                                                       \
    ROW(SAMPLE, sample, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,   \
        NO_REVERSE, false, no_flops, no_scores, MOVES, NONE, torch_free)               \
    /* y = a part of a's heads (see .heads) */                                         \
    ROW(HEADS_PACK, heads_pack, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, COPIES, NONE,           \
        torch_free)                                                                    \
    /* inverse of HEADS_PACK: a part of y's heads = a */                               \
    ROW(HEADS_UNPACK, heads_unpack, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,      \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, COPIES, NONE,           \
        torch_free)                                                                    \
    /* y = rows of the KV cache for a range of keys, in order */                       \
    ROW(CACHE_READ, cache_read, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, COPIES, NONE,           \
        torch_free)                                                                    \
    /* y = attention over the keys of y and of a; src lse of y, a, lse of a */         \
    ROW(MERGE, merge, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,     \
        NO_REVERSE, false, no_flops, no_scores, MOVES, NONE, torch_free)               \
    /* y[t][0] = index of the largest, the first of equals; exact below 2^24.  -1 when \
     * one is NaN or +inf, or all are -inf */                                          \
    ROW(ARGMAX, argmax, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,   \
        NO_REVERSE, false, no_flops, no_scores, MOVES, NONE, torch_free)               \
    /* reverse.c emits the rest.  d is the gradient of the result of the operation that\
     * is reversed.  The next six add to the weight's gradient. */                    \
    /* += a^T b; a has the weight's rows as columns, b the weight's columns */         \
    ROW(OUTER, outer, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS, saved_nothing,     \
        NO_REVERSE, false, of_matrix, no_scores, MOVES, NONE, torch_kernel)            \
    /* += a^T b of each head, to the head's rows of the weight */                      \
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
    /* += sum over rows of d * normalized a; src d, a, and if sharded: squares, sum */ \
    ROW(NORM_WEIGHT, norm_weight, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,        \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* += the gradient of xielu's weight, for a > 0 if number; src d, a */             \
    ROW(XIELU_WEIGHT, xielu_weight, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,      \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y[t][0] = a[t] . b[t] */                                                        \
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
    /* gradient of a norm whose columns are all on this rank; src d, a */              \
    ROW(NORM_BACK, norm_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* norm over sharded columns: two sums for each row, f64; src d, a, squares,       \
     * sum */                                                                          \
    ROW(NORM_TERMS, norm_terms, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* the gradient, from these sums over all ranks; src d, a, terms, squares, sum */  \
    ROW(NORM_APPLY_BACK, norm_apply_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE,         \
        NO_AXIS, saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,   \
        torch_kernel)                                                                  \
    /* rotates back; src d, angles */                                                  \
    ROW(ROPE_BACK, rope_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,            \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y = the gradients of q, k and v side by side, then those of the attention sinks,\
     * if any; src d, q, k, v */                                                       \
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
    /* y[t][e] = d[t] . a[i], 0 if e is not in the top k; src d, a, index, counts */   \
    ROW(EXPERT_DOT, expert_dot, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y[t] = sum of d[i] over the rows i that token t was sent as; src d, index */    \
    ROW(EXPERT_SCATTER, expert_scatter, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,  \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* columns [first, first + cols(d)) of y = d; the others 0 */                      \
    ROW(SEGMENT_BACK, segment_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,      \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* the first row of each sequence of y = d; the others 0 */                        \
    ROW(FIRST_BACK, first_back, DEVICE, NO_CALL, RULE, OWN, NO_ROLE, NO_AXIS,          \
        saved_nothing, NO_REVERSE, false, no_flops, no_scores, MOVES, NONE,            \
        torch_kernel)                                                                  \
    /* y = this rank's columns of d; 0 where another rank owns them (see .gather) */   \
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
    PLACES_RULE,   /* decided by the code that emits it */
    PLACES_LINEAR, /* that of the source; linear, so partial stays partial */
    PLACES_SUMMED, /* that of the source; a partial source is reduced first */
    PLACES_WHOLE   /* replicated; the source is made replicated first */
};

/* The memory that holds the result. */
enum op_result { RESULT_OWN, RESULT_SOURCE, RESULT_PART };

enum op_role {
    ROLE_NONE,
    ROLE_CACHE,
    ROLE_ATTENDS,
    ROLE_TEXT,
    ROLE_DISPATCH,
    ROLE_LOSS
};

enum op_traffic {
    TRAFFIC_NOTHING, /* a collective: its bytes are counted by cost_collectives */
    TRAFFIC_COPIES,  /* the result, once read and once written */
    TRAFFIC_MOVES,   /* each source read, the result written */
    TRAFFIC_PRODUCT  /* the same, and the weight read */
};

enum op_collective {
    COLLECTIVE_NONE,
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_ALL_TO_ALL,
    COLLECTIVE_KINDS
};

/* Floating-point operations for each row of the result. */
struct op_flops {
    double row;
    double key; /* in addition, for each key that the row attends to */
};

/* The attention scores of one row: one row of scores per head.  A query sees the keys
 * inside the window and, if causal, none after its own position. */
struct op_scores {
    uint64_t heads;  /* 0: the operation is not attention */
    uint64_t spread; /* columns that K and V gain if KV heads are repeated so that each
                        query head has its own (repeat_kv) */
    uint64_t window; /* most keys that a row sees; 0: all */
    bool causal;     /* no key after the query */
    bool capped;     /* scores go through a softcap */
};

/* How PyTorch runs the operation in eager mode, one kernel after another. */
struct op_torch {
    bool free;     /* a view, a part of another kernel, or too small to count */
    bool part;     /* one PyTorch operation with its reader, which saves its operands */
    bool upcast;   /* saves its source in f32 even if activations are narrower, and also
                      saves the normalized value that the weight multiplies */
    bool wide;     /* saves that value in f32, too */
    bool centred;  /* a norm saves the difference from the mean, twice, in f32 */
    bool parted;   /* a norm saves that difference once, and the normalized value */
    bool both;     /* saves its source as it is beside the copy in f32 */
    bool narrow;   /* a softmax, or the loss, is made in the type of its source */
    bool spread;   /* keys and values are copied for each query head */
    bool unfused;  /* no kernel makes attention as a whole: scores are saved */
    bool scored;   /* queries and keys are copied in f32 before scores are made */
    bool split;    /* attention's sources are values of their own, not parts of one */
    bool ordered;  /* attention's result needs no copy in another order */
    bool related;  /* attention gathers scores by distance, and saves what it gathers
                      from, with indices and a mask */
    bool strided;  /* each of its products copies queries and keys by itself */
    bool bounded;  /* saves the scores before a lower bound, too */
    bool masked;   /* a fused kernel gets, and saves, a mask for each sequence */
    bool turned;   /* the products that read it, or make its sources, copy a transposed
                      tensor each, if there are several sequences */
    bool chunks;   /* windows are made of overlapping chunks of rows and keys */
    bool blocks;   /* and of blocks, each with itself and both its neighbours */
    int flags;     /* further bytes for each element of the result */
    int copies;    /* further saved activations of the size of the result */
    int gradients; /* f32 gradients of the size of the result alive at once in the
                      backward pass */
    int temporaries; /* as gradients, in the type of the activations */
    int spared;      /* N: selective recomputation saves the result of every N-th such
                        operation; 0: of none */
};

enum { OP_NO_REVERSE = -1 };
enum { INNER_NONE = -1 };
enum { SAVES_RESULT = 1 << 6 }; /* in a set of saved operands; 1 << K is source K */

struct op_info {
    const char *name;
    bool on_device;  /* false: the communicator runs it */
    int least, most; /* number of arguments; 0: not in the language */
    int (*apply)(struct builder *b, enum op op, const struct node *call,
                 const struct operand *arg, int n, struct operand *out);
    enum op_places places;
    enum op_result result;
    enum op_role role;
    int inner;                                  /* contracted axis, or INNER_NONE */
    unsigned (*saved)(const struct inst *inst); /* set of 1 << K and SAVES_RESULT */
    int grads;                                  /* sources with a gradient, or -1 */
    bool passes;
    struct op_flops (*flops)(const struct program *p, const struct inst *inst);
    struct op_scores (*scores)(const struct inst *inst);
    enum op_traffic traffic;
    enum op_collective collective;
    struct op_torch (*torch)(const struct inst *inst);
};

extern const struct op_info op_table[OP_COUNT];

#endif
