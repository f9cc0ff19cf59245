/* op - the table of operations
 *
 * One row per operation.  Each fact about an operation is in its row; the compiler, the
 * cost model, the memory estimate and the backends read it.  A row begins with
 *
 *   ID       enum op has OP_ID
 *   word     its name in printed programs, and in the language if a family can call it;
 *            its kernel is kernel_WORD (lib/cpu/kernels.c, lib/gpu/calls.c)
 *   runs_on  DEVICE: a kernel of the backend; COMM: the communicator; FUSED: a kernel
 *            of the backend, which may lack it (pass-fuse.c)
 *   reverse  how many of its first sources get a gradient.  GRADS(n): reverse_WORD
 *            (pass-reverse.c) emits these and the weight's; PASSES(n): each of them is
 *            the gradient of the result, unchanged; NO_REVERSE: no derivative
 *
 * Then come, in any order, the members of struct op_info that differ from the default,
 * which is 0:
 *
 *   CALL(least, most, apply)
 *                number of arguments without options, and the function that types,
 * places and emits it.  Default: not in the language, only the compiler emits it
 *   .places      how build_unary derives the result's placement from that of the first
 *                source.  PLACES_RULE: the code that emits it decides
 *   .result      RESULT_OWN: memory of its own; _SOURCE: it may share the first
 * source's memory; _PART: it may be a view of a part of that memory .role        what
 * lib/estimate and the engine look for: ROLE_CACHE appends to the KV cache, _ATTENDS
 * reads keys and values (sources 1 and 2), which may be cached, _TEXT reads a text's
 * other rows, so ranks cannot share the text, _DISPATCH gathers rows for experts, _LOSS
 * reads the logits, _STATE has a state of fixed size for each sequence (.state)
 *   .inner       the axis of its weight that the product contracts.  INNER_NONE
 *   .saved       what its derivative reads: a set of sources and the result.  Nothing
 *   .flops       per row of the result (of the sources, if the result is a
 * weight's gradient).  Products only, 2 for each multiply-add; elementwise work is
 *                counted by the bytes that it moves.  None
 *   .scores      the attention scores that it computes for a row.  None
 *   .traffic     which operands it reads from and writes to memory.  TRAFFIC_MOVES
 *   .collective  which collective it is.  COLLECTIVE_NONE
 *   .loss        its result is a term of the training loss, at which the reverse begins
 *   .rounds      the sources, 1 << K, that --compute bf16 rounds to bf16 before they
 *                are used, if its weights are bf16.  Nothing
 *   .copies      the result has numbers of source 0, unchanged.  False
 *   .state       ROLE_STATE: the numbers of the state, f32.  None
 *   PARTS(find)  FUSED: the function that finds the instructions that it stands for
 */
#ifndef LIB_PROGRAM_OP_H
#define LIB_PROGRAM_OP_H

#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
#define OPS(ROW)                                                                       \
    /* y[t] = table[index[t] - first]; 0 if another rank holds that row of the table */\
    ROW(EMBEDDING, embedding, DEVICE, GRADS(0), CALL(2, 2, apply_embedding))           \
    /* y = x W^T, W [cols(y)][cols(x)] */                                              \
    ROW(LINEAR, linear, DEVICE, GRADS(1), CALL(2, 2, apply_product),                   \
        .inner = INNER_COLS, .saved = saved_product, .flops = of_matrix,               \
        .traffic = TRAFFIC_PRODUCT, .rounds = 1 << 0)                                  \
    /* y = x W, W [cols(x)][cols(y)] */                                                \
    ROW(MATMUL, matmul, DEVICE, GRADS(1), CALL(2, 2, apply_product),                   \
        .inner = INNER_ROWS, .saved = saved_product, .flops = of_matrix,               \
        .traffic = TRAFFIC_PRODUCT)                                                    \
    /* y[t] = row t of the input */                                                    \
    ROW(INPUT, input, DEVICE, NO_REVERSE)                                              \
    /* y[t][c][k] = a[stride t + k - before][c]; 0 before the first and after the last \
     * row of the text */                                                              \
    ROW(UNFOLD, unfold, DEVICE, NO_REVERSE, CALL(2, 2, apply_unfold),                  \
        .role = ROLE_TEXT)                                                             \
    /* y = a + b, of the same shape */                                                 \
    ROW(ADD, add, DEVICE, PASSES(2))                                                   \
    /* y = a * b */                                                                    \
    ROW(MUL, mul, DEVICE, GRADS(2), .saved = saved_both)                               \
    /* y = a + w, w a weight [cols], to every row */                                   \
    ROW(ADD_VECTOR, add_vector, DEVICE, PASSES(1), .places = PLACES_SUMMED)            \
    /* y = a * w, w a weight [cols], every row */                                      \
    ROW(MUL_VECTOR, mul_vector, DEVICE, GRADS(1), .places = PLACES_SUMMED,             \
        .saved = saved_source)                                                         \
    /* y = a * number */                                                               \
    ROW(SCALE, scale, DEVICE, GRADS(1), .places = PLACES_LINEAR)                       \
    /* y[t] = a[t] * s[t][column] */                                                   \
    ROW(MUL_ROWS, mul_rows, DEVICE, GRADS(2), .places = PLACES_LINEAR,                 \
        .saved = saved_both)                                                           \
    ROW(ACTIVATION, activation, DEVICE, GRADS(1), CALL(2, 2, apply_activation),        \
        .places = PLACES_SUMMED, .saved = saved_by_act)                                \
    /* the activation xIELU; two weights of one element, one for a > 0 and one for     \
     * a <= 0 */                                                                       \
    ROW(XIELU, xielu, DEVICE, GRADS(1), CALL(3, 3, apply_xielu),                       \
        .places = PLACES_SUMMED, .saved = saved_source)                                \
    /* softmax over the columns of each row */                                         \
    ROW(SOFTMAX, softmax, DEVICE, GRADS(1), CALL(1, 1, apply_elementwise),             \
        .places = PLACES_WHOLE, .saved = saved_source)                                 \
    /* y = number * tanh(a / number) */                                                \
    ROW(SOFTCAP, softcap, DEVICE, GRADS(1), CALL(2, 2, apply_bound),                   \
        .places = PLACES_SUMMED, .saved = saved_source)                                \
    /* y = a clamped to [clip.least, clip.most] */                                     \
    ROW(CLIP, clip, DEVICE, GRADS(1), CALL(2, 2, apply_bound),                         \
        .places = PLACES_SUMMED, .saved = saved_source)                                \
    /* y = 0 with probability rate, else a / (1 - rate); equal on all layouts */       \
    ROW(DROPOUT, dropout, DEVICE, GRADS(1), CALL(2, 2, apply_dropout),                 \
        .places = PLACES_SUMMED)                                                       \
    /* normalizes each group of norm.width columns; weight [width] or [cols] */        \
    ROW(RMSNORM, rmsnorm, DEVICE, GRADS(1), CALL(2, 3, apply_norm),                    \
        .saved = saved_source)                                                         \
    ROW(LAYERNORM, layernorm, DEVICE, GRADS(1), CALL(2, 4, apply_norm),                \
        .saved = saved_source)                                                         \
    /* y[t][0] = sum over the columns of a that this rank owns (norm.owned), f64 */    \
    ROW(ROW_SUM, row_sum, DEVICE, GRADS(1))                                            \
    /* the same of a^2; with a second source, the row's sum: of (a - mean)^2 */        \
    ROW(ROW_SQUARES, row_squares, DEVICE, GRADS(1), .saved = saved_source)             \
    /* rmsnorm of a, given the sum of squares of each row; src a, squares */           \
    ROW(RMS_APPLY, rms_apply, DEVICE, GRADS(2), .saved = saved_source)                 \
    /* layernorm of a, given the sums of each row; src a, squares, sum */              \
    ROW(LAYER_APPLY, layer_apply, DEVICE, GRADS(3), .saved = saved_source)             \
    /* y[t] = the cosines, then the sines of the rotary angles of t's position */      \
    ROW(ANGLES, angles, DEVICE, NO_REVERSE)                                            \
    /* rotates each head; src a, angles */                                             \
    ROW(ROPE, rope, DEVICE, GRADS(1), CALL(2, 3, apply_rope), .places = PLACES_SUMMED) \
    /* y[t] = a[t] (1 + amount log(1 + t's position plus 1, in whole steps)) */        \
    ROW(TEMPER, temper, DEVICE, GRADS(1), CALL(3, 3, apply_temper),                    \
        .places = PLACES_LINEAR)                                                       \
    /* y[t] = a[t] + the sines, then the cosines of t's position; without a source     \
     * those of the row's number */                                                    \
    ROW(SINUSOID, sinusoid, DEVICE, PASSES(1), CALL(2, 3, apply_sinusoid),             \
        .places = PLACES_SUMMED)                                                       \
    /* append the rows to the KV cache; y = all rows cached so far */                  \
    ROW(KEEP, keep, DEVICE, PASSES(1), CALL(1, 1, apply_keep),                         \
        .places = PLACES_SUMMED, .result = RESULT_SOURCE, .role = ROLE_CACHE,          \
        .traffic = TRAFFIC_COPIES)                                                     \
    ROW(ATTENTION, attention, DEVICE, GRADS(3), CALL(4, 5, apply_attention),           \
        .role = ROLE_ATTENDS, .saved = saved_all, .flops = of_attention,               \
        .scores = of_query)                                                            \
    /* causal attention with biases by distance that each query brings (ProphetNet);   \
     * src q, k, v, biases [heads][buckets] and, if given, the key and the value that  \
     * only the query's own row has: the other keys are then one further away */       \
    ROW(STREAM, stream, DEVICE, NO_REVERSE, CALL(4, 6, apply_stream),                  \
        .role = ROLE_ATTENDS, .saved = saved_all, .flops = of_attention,               \
        .scores = of_query)                                                            \
    /* attention with relative positions (DeBERTa); src q, k, v, and the rows of the   \
     * position table projected as keys and as queries */                              \
    ROW(RELATE, relate, DEVICE, NO_REVERSE, CALL(5, 5, apply_relate),                  \
        .role = ROLE_TEXT, .saved = saved_all, .flops = of_attention,                  \
        .scores = of_query)                                                            \
    /* attention with relative positions (Transformer-XL); src q, k, v, the query for  \
     * positions, the rows of the position table, and, with the weight of two rows for \
     * equal and different token types, the query for these */                         \
    ROW(RELATE_XL, relate_xl, DEVICE, NO_REVERSE, CALL(5, 7, apply_relate_xl),         \
        .role = ROLE_TEXT, .saved = saved_all, .flops = of_attention,                  \
        .scores = of_query)                                                            \
    /* attention within a window, and of tokens that see all and are seen by all       \
     * (Longformer); src q, k, v, and those by which the latter see, which an input    \
     * tells */                                                                        \
    ROW(GLOBAL_ATTENTION, global_attention, DEVICE, NO_REVERSE,                        \
        CALL(7, 7, apply_global_attention), .role = ROLE_TEXT, .saved = saved_all,     \
        .flops = of_attention, .scores = of_query)                                     \
    /* attention within a window, with biases by distance, and to the side rows of     \
     * blocks of tokens, with biases by distance in blocks (LongT5); src q, k, v, and  \
     * the keys and values of side rows */                                             \
    ROW(SIDE_ATTENTION, side_attention, DEVICE, NO_REVERSE,                            \
        CALL(7, 7, apply_side_attention), .role = ROLE_TEXT, .saved = saved_all,       \
        .flops = of_attention, .scores = of_query)                                     \
    /* for each head: y = x W^T, W [dim(y)][dim(x)], the head's rows of the weight */  \
    ROW(HEAD_LINEAR, head_linear, DEVICE, GRADS(1), CALL(2, 2, apply_head_product),    \
        .saved = saved_product, .flops = of_heads, .traffic = TRAFFIC_PRODUCT)         \
    /* for each head: y = x W, W [dim(x)][dim(y)] */                                   \
    ROW(HEAD_MATMUL, head_matmul, DEVICE, GRADS(1), CALL(2, 2, apply_head_product),    \
        .saved = saved_product, .flops = of_heads, .traffic = TRAFFIC_PRODUCT)         \
    /* for each head: y = the columns of a, then those of b */                         \
    ROW(CONCAT, concat, DEVICE, GRADS(2), CALL(2, 2, apply_concat))                    \
    /* y[t] = sum over k of w[k] * a[t + k - taps/2], w [cols][taps] a weight; 0 beyond\
     * the text */                                                                     \
    ROW(CONVOLVE, convolve, DEVICE, NO_REVERSE, CALL(2, 2, apply_convolve),            \
        .role = ROLE_TEXT, .saved = saved_source, .flops = of_taps)                    \
    /* y[t] = sum over k of w[k] * a[t + k - taps + 1], w [cols][taps] a weight; the   \
     * last taps - 1 rows are the sequence's state, zeros before its first row */      \
    ROW(CAUSAL_CONVOLVE, causal_convolve, DEVICE, NO_REVERSE,                          \
        CALL(2, 2, apply_convolve), .role = ROLE_STATE, .saved = saved_source,         \
        .flops = of_taps, .state = tail_of_taps)                                       \
    /* for each head a matrix S[keys][values], the state, zeros before the first row:  \
     * S = decay S + key value^T, y = S^T query; src by kind (recurrence.h) */         \
    ROW(SCAN, scan, DEVICE, NO_REVERSE, CALL(3, 8, apply_scan), .role = ROLE_STATE,    \
        .saved = saved_all, .flops = of_scan, .state = state_of_scan)                  \
    /* for each head: y[t] = sum over k of softmax(s[t])[k] * a[t + k - taps/2]; src a,\
     * s [heads][taps] */                                                              \
    ROW(DYNAMIC, dynamic, DEVICE, NO_REVERSE, CALL(2, 2, apply_dynamic),               \
        .role = ROLE_TEXT, .saved = saved_both, .flops = of_taps)                      \
    /* y[t] = a[t + shift]; 0 beyond the text */                                       \
    ROW(SHIFT, shift, DEVICE, NO_REVERSE, CALL(1, 1, apply_shift),                     \
        .places = PLACES_SUMMED, .role = ROLE_TEXT, .traffic = TRAFFIC_COPIES)         \
    /* y[i] = the mean, or the larger, of two neighbours of a */                       \
    ROW(POOL, pool, DEVICE, NO_REVERSE, CALL(1, 1, apply_pool),                        \
        .places = PLACES_SUMMED, .role = ROLE_TEXT, .saved = saved_source)             \
    /* y[i] = the sum of a block of rows of a; the last has those that are left over */\
    ROW(BLOCK_SUM, block_sum, DEVICE, NO_REVERSE, CALL(1, 1, apply_block_sum),         \
        .places = PLACES_LINEAR, .role = ROLE_TEXT)                                    \
    /* y[t] = the row of a, pooled pool.times times, that token t went into; or 0 */   \
    ROW(UNPOOL, unpool, DEVICE, NO_REVERSE, CALL(1, 1, apply_pool),                    \
        .places = PLACES_SUMMED, .role = ROLE_TEXT, .traffic = TRAFFIC_COPIES)         \
    /* y[t] = the top-k experts of token t, highest score first, i32; -1 pads */       \
    ROW(CHOOSE, choose, DEVICE, NO_REVERSE)                                            \
    /* y[t][e] = weight of expert e for token t, 0 if not in the top k; src scores,    \
     * choice (of OP_CHOOSE) */                                                        \
    ROW(ROUTE, route, DEVICE, GRADS(1), CALL(2, 3, apply_route),                       \
        .places = PLACES_WHOLE, .saved = saved_source)                                 \
    /* what training's balance of experts is made of, over all rows: y[0] = the rows   \
     * that chose each expert, the sums of softmax(a), and that of (log sum exp(a))^2; \
     * src router logits a, choice */                                                  \
    ROW(ROUTER_SUMS, router_sums, DEVICE, GRADS(1), .saved = saved_source)             \
    /* y[0] = the balance loss and the router's z-loss; src the sums of all layers */  \
    ROW(BALANCE, balance, DEVICE, GRADS(1), .saved = saved_source, .loss = true)       \
    /* y[0][e] = number of rows sent to the experts before e, i32; the last column is  \
     * the number of all such rows; src choice */                                      \
    ROW(EXPERT_COUNT, expert_count, DEVICE, NO_REVERSE)                                \
    /* y[i][0] = the token of the i-th row sent, sorted by expert, i32; src choice,    \
     * counts */                                                                       \
    ROW(EXPERT_INDEX, expert_index, DEVICE, NO_REVERSE)                                \
    /* y[i] = a[index[i]]; src a, index */                                             \
    ROW(EXPERT_GATHER, expert_gather, DEVICE, GRADS(1), .role = ROLE_DISPATCH,         \
        .traffic = TRAFFIC_COPIES, .copies = true)                                     \
    /* y[t] = sum over t's experts e of r[t][e] a[i]; src a, r, index, counts */       \
    ROW(EXPERT_COMBINE, expert_combine, DEVICE, GRADS(2), .saved = saved_source)       \
    /* y = columns [first, first + cols(y)) of a */                                    \
    ROW(SEGMENT, segment, DEVICE, GRADS(1), .result = RESULT_PART,                     \
        .traffic = TRAFFIC_COPIES, .copies = true)                                     \
    /* y = the output rows of a (the rows that the step asks for: logits_to_keep) */   \
    ROW(TAKE, take, DEVICE, PASSES(1), .places = PLACES_LINEAR,                        \
        .result = RESULT_SOURCE, .traffic = TRAFFIC_COPIES, .copies = true)            \
    /* y = the first row of each sequence of a */                                      \
    ROW(FIRST, first, DEVICE, GRADS(1), CALL(1, 1, apply_first),                       \
        .places = PLACES_LINEAR, .traffic = TRAFFIC_COPIES, .copies = true)            \
    /* y = sum of a over the ranks of the mesh axis inst.over; this rank's rows of it  \
     * where y has rows of a HOW_SHARE */                                              \
    ROW(ALL_REDUCE, all_reduce, COMM, PASSES(1), .traffic = TRAFFIC_NOTHING,           \
        .collective = COLLECTIVE_ALL_REDUCE)                                           \
    /* y = a of every rank of the tensor group, one rank after another; all rows, where\
     * a has rows of a HOW_SHARE */                                                    \
    ROW(ALL_GATHER, all_gather, COMM, GRADS(1), .traffic = TRAFFIC_NOTHING,            \
        .collective = COLLECTIVE_ALL_GATHER, .copies = true)                           \
    /* sends rows to the ranks of their experts, or back (see .all_to_all) */          \
    ROW(ALL_TO_ALL, all_to_all, COMM, GRADS(1), .traffic = TRAFFIC_NOTHING,          \
        .collective = COLLECTIVE_ALL_TO_ALL, .copies = true)                           \
    /* y = the columns of all ranks in global order (see .gather) */                   \
    ROW(ARRANGE, arrange, DEVICE, GRADS(1), .copies = true)                            \
    /* y = this rank's rows of a replicated a, whose space is a HOW_SHARE */           \
    ROW(OWN_ROWS, own_rows, COMM, NO_REVERSE, .traffic = TRAFFIC_COPIES,               \
        .copies = true)                                                                \
    /* y = this rank's columns of a replicated a (see .gather) */                      \
    ROW(SLICE, slice, DEVICE, GRADS(1), .traffic = TRAFFIC_COPIES, .copies = true)     \
    /* y[t] = max of a[t], sum of exp(a[t] - max), a[t][target[t]], index of the max;  \
     * f64.  The sum is 0 when all are -inf, NaN with a NaN or +inf */                 \
    ROW(ROW_STATS, row_stats, DEVICE, GRADS(1), .role = ROLE_LOSS,                     \
        .saved = saved_source)                                                         \
    /* y[t][0] = log sum exp(a[t]) - a[t][target[t]], from the OP_ROW_STATS of all     \
     * ranks; with row.smooth, (1 - smooth) a[t][target[t]] + smooth times the mean of \
     * a[t] is subtracted, of which the second source has the sum; with row.z, z times \
     * the square of log sum exp(a[t]) is added */                   \
    ROW(NLL, nll, DEVICE, GRADS(1), .loss = true)                                      \
    /* y[t][0] = a token drawn from replicated logits with the step's options; -1 as   \
     * ARGMAX */                                                                       \
    ROW(SAMPLE, sample, DEVICE, NO_REVERSE)                                            \
    /* y = a part of a's heads (see .heads) */                                         \
    ROW(HEADS_PACK, heads_pack, DEVICE, NO_REVERSE, .traffic = TRAFFIC_COPIES)         \
    /* inverse of HEADS_PACK: a part of y's heads = a */                               \
    ROW(HEADS_UNPACK, heads_unpack, DEVICE, NO_REVERSE, .traffic = TRAFFIC_COPIES)     \
    /* y = rows of the KV cache for a range of keys, in order */                       \
    ROW(CACHE_READ, cache_read, DEVICE, NO_REVERSE, .traffic = TRAFFIC_COPIES)         \
    /* y = attention over the keys of y and of a; src lse of y, a, lse of a */         \
    ROW(MERGE, merge, DEVICE, NO_REVERSE)                                              \
    /* y[t][0] = index of the largest, the first of equals; exact below 2^24.  -1 when \
     * one is NaN or +inf, or all are -inf */                                          \
    ROW(ARGMAX, argmax, DEVICE, NO_REVERSE)                                            \
    /* pass-reverse.c emits the rest.  d is the gradient of the result of the operation\
     * that is reversed.  The next six add to the weight's gradient. */                \
    /* += a^T b; a has the weight's rows as columns, b the weight's columns */         \
    ROW(OUTER, outer, DEVICE, NO_REVERSE, .flops = of_matrix)                          \
    /* += a^T b of each head, to the head's rows of the weight */                      \
    ROW(HEAD_OUTER, head_outer, DEVICE, NO_REVERSE, .flops = of_heads)                 \
    /* row index[t] - first += d[t] */                                                 \
    ROW(EMBEDDING_BACK, embedding_back, DEVICE, NO_REVERSE)                            \
    /* += the sum of the rows of d */                                                  \
    ROW(COLUMN_SUM, column_sum, DEVICE, NO_REVERSE)                                    \
    /* += sum over rows of d * normalized a; src d, a, and if sharded: squares, sum */ \
    ROW(NORM_WEIGHT, norm_weight, DEVICE, NO_REVERSE)                                  \
    /* += the gradient of xielu's weight, for a > 0 if number; src d, a */             \
    ROW(XIELU_WEIGHT, xielu_weight, DEVICE, NO_REVERSE)                                \
    /* y[t][0] = a[t] . b[t] */                                                        \
    ROW(ROW_DOT, row_dot, DEVICE, NO_REVERSE)                                          \
    /* src d, a */                                                                     \
    ROW(ACTIVATION_BACK, activation_back, DEVICE, NO_REVERSE)                          \
    /* src d, a */                                                                     \
    ROW(XIELU_BACK, xielu_back, DEVICE, NO_REVERSE)                                    \
    /* src d, a */                                                                     \
    ROW(SOFTMAX_BACK, softmax_back, DEVICE, NO_REVERSE)                                \
    /* src d, a */                                                                     \
    ROW(SOFTCAP_BACK, softcap_back, DEVICE, NO_REVERSE)                                \
    /* src d, a */                                                                     \
    ROW(CLIP_BACK, clip_back, DEVICE, NO_REVERSE)                                      \
    /* gradient of a norm whose columns are all on this rank; src d, a */              \
    ROW(NORM_BACK, norm_back, DEVICE, NO_REVERSE)                                      \
    /* norm over sharded columns: two sums for each row, f64; src d, a, squares,       \
     * sum */                                                                          \
    ROW(NORM_TERMS, norm_terms, DEVICE, NO_REVERSE)                                    \
    /* the gradient, from these sums over all ranks; src d, a, terms, squares, sum */  \
    ROW(NORM_APPLY_BACK, norm_apply_back, DEVICE, NO_REVERSE)                          \
    /* rotates back; src d, angles */                                                  \
    ROW(ROPE_BACK, rope_back, DEVICE, NO_REVERSE)                                      \
    /* y = the gradients of q, k and v side by side (see .gradients), then those of the\
     * attention sinks, or of the table of biases for each query; src d, q, k, v */    \
    ROW(ATTENTION_BACK, attention_back, DEVICE, NO_REVERSE,                            \
        .flops = of_attention_back, .scores = of_query)                                \
    /* src d, scores, choice */                                                        \
    ROW(ROUTE_BACK, route_back, DEVICE, NO_REVERSE)                                    \
    /* the weight's gradient += the rows that chose each expert; src choice */         \
    ROW(ROUTER_LOAD, router_load, DEVICE, NO_REVERSE)                                  \
    /* the gradient of the router logits a; src d, a */                                \
    ROW(ROUTER_SUMS_BACK, router_sums_back, DEVICE, NO_REVERSE)                        \
    /* src sums */                                                                     \
    ROW(BALANCE_BACK, balance_back, DEVICE, NO_REVERSE)                                \
    /* y[i] = r[t][e] d[t] for the i-th row sent; src d, r, index, counts */           \
    ROW(EXPERT_SPREAD, expert_spread, DEVICE, NO_REVERSE)                              \
    /* y[t][e] = d[t] . a[i], 0 if e is not in the top k; src d, a, index, counts */   \
    ROW(EXPERT_DOT, expert_dot, DEVICE, NO_REVERSE)                                    \
    /* y[t] = sum of d[i] over the rows i that token t was sent as; src d, index */    \
    ROW(EXPERT_SCATTER, expert_scatter, DEVICE, NO_REVERSE)                            \
    /* columns [first, first + cols(d)) of y = d; the others 0 */                      \
    ROW(SEGMENT_BACK, segment_back, DEVICE, NO_REVERSE)                                \
    /* the first row of each sequence of y = d; the others 0 */                        \
    ROW(FIRST_BACK, first_back, DEVICE, NO_REVERSE)                                    \
    /* y = this rank's columns of d; 0 where another rank owns them (see .gather) */   \
    ROW(SLICE_OWNED, slice_owned, DEVICE, NO_REVERSE)                                  \
    /* this rank's columns of y = d, the others 0 (see .gather) */                     \
    ROW(UNSLICE, unslice, DEVICE, NO_REVERSE)                                          \
    /* the gradient of the logits a; src statistics, a */                              \
    ROW(NLL_BACK, nll_back, DEVICE, NO_REVERSE)                                        \
    /* Fused operations.  Each stands before the instructions that it is made of       \
     * (inst.parts); a backend with its kernel runs it instead of them.  What they read\
     * and cost is counted by themselves. */                                           \
    /* y = activation(x V^T + c) (x W^T + b) */                                        \
    ROW(GATED_LINEAR, gated_linear, FUSED, NO_REVERSE, PARTS(parts_gated_linear))      \
    /* two or three products y = x W^T + b of one x */                                 \
    ROW(LINEARS, linears, FUSED, NO_REVERSE, PARTS(parts_linears))                     \
    /* y = a + b, and the norm of y */                                                 \
    ROW(ADD_NORM, add_norm, FUSED, NO_REVERSE, PARTS(parts_add_norm))                  \
    /* rotates the queries and the keys; appends the keys and the values to the KV     \
     * cache */                                                                        \
    ROW(ROPE_KEEP, rope_keep, FUSED, NO_REVERSE, PARTS(parts_rope_keep))
/* clang-format on */

enum op {
#define ROW(id, ...) OP_##id,
    OPS(ROW)
#undef ROW
        OP_COUNT
};

struct builder;
struct fusing;
struct fusion;
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
    ROLE_LOSS,
    ROLE_STATE
};

/* The contracted axis of a weight [rows][cols]. */
enum op_inner { INNER_NONE, INNER_ROWS, INNER_COLS };

enum op_traffic {
    TRAFFIC_MOVES,   /* each source read, the result written */
    TRAFFIC_PRODUCT, /* the same, and the weight read */
    TRAFFIC_COPIES,  /* the result, once read and once written */
    TRAFFIC_NOTHING  /* a collective: its bytes are counted by cost_collectives */
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

enum { OP_NO_REVERSE = -1 };
enum { SAVES_RESULT = 1 << 6 }; /* in a set of saved operands; 1 << K is source K */

struct op_info {
    const char *name;
    bool on_device;  /* false: the communicator runs it */
    int grads;       /* sources with a gradient, or OP_NO_REVERSE */
    bool passes;     /* they get the result's */
    int least, most; /* number of arguments; 0: not in the language */
    int (*apply)(struct builder *b, enum op op, const struct node *call,
                 const struct operand *arg, int n, struct operand *out);
    enum op_places places;
    enum op_result result;
    enum op_role role;
    enum op_inner inner;
    unsigned (*saved)(const struct inst *inst); /* read by op_saved, */
    struct op_flops (*flops)(const struct program *p,
                             const struct inst *inst);   /* ... */
    struct op_scores (*scores)(const struct inst *inst); /* which take NULL for none */
    enum op_traffic traffic;
    enum op_collective collective;
    bool loss;
    unsigned rounds;
    bool copies;
    uint64_t (*state)(const struct inst *inst);
    /* NULL: not fused.  Finds the fusion that instruction AT belongs to. */
    bool (*parts)(const struct fusing *f, int at, struct fusion *out);
};

extern const struct op_info op_table[OP_COUNT];

/* What the derivative of INST reads: a set of 1 << K and SAVES_RESULT. */
unsigned op_saved(const struct inst *inst);
struct op_flops op_flops(const struct program *p, const struct inst *inst);
struct op_scores op_scores(const struct inst *inst);

#endif
