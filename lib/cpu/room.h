/* room - what the CPU's kernels take beside their buffers
 *
 * Bounds, the same on every CPU: a kernel lays its memory out as its loops for this CPU
 * want it, within them.  Sizes are the largest of a step; results are bytes. */
#ifndef LIB_CPU_ROOM_H
#define LIB_CPU_ROOM_H

#include "lib/device/device.h"

/* An instruction at its largest. */
struct cpu_most {
    const struct program *program;
    const struct inst *inst;
    const struct room_limits *limits;
    uint64_t threads;
    uint64_t rows; /* of its result or a source */
    uint64_t cols; /* of the widest of them */
};

/* Of all instructions, one after another. */
uint64_t cpu_room(const struct program *p, const struct room_limits *limits);

/* Which fused operations there are kernels for. */
extern const bool cpu_fuses[OP_COUNT];
/* Which operands kernels take in bf16 (backend.bf16). */
extern const unsigned cpu_bf16[OP_COUNT];

/* y = x w^T and y = x w with IN terms, summed by TREE or, NULL, in any order; by heads
 * of IN terms. */
uint64_t product_room_linear(const struct cpu_most *m, uint64_t in,
                             const struct sum_tree *tree);
uint64_t product_room_matmul(const struct cpu_most *m, uint64_t in,
                             const struct sum_tree *tree);
/* What cpu_matmul_half takes beside. */
uint64_t product_room_half(const struct cpu_most *m, uint64_t in);
uint64_t product_room_heads(const struct cpu_most *m, uint64_t in);
/* OP_ATTENTION and OP_STREAM; its reverse; OP_RELATE and OP_RELATE_XL;
 * OP_GLOBAL_ATTENTION. */
uint64_t attention_room(const struct cpu_most *m);
uint64_t attention_room_back(const struct cpu_most *m);
uint64_t attention_room_relate(const struct cpu_most *m);
uint64_t attention_room_globals(const struct cpu_most *m);
uint64_t attention_room_side(const struct cpu_most *m);

#endif
