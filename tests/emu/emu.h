/* emu - CUDA kernels compiled as C++ and run on the CPU, thread by thread
 *
 * A CUDA thread is a fiber; those of a block run on one thread of the CPU and change at
 * barriers and warp operations alone.  Blocks follow each other.  A launch is put into
 * its stream (tests/fake/cudart.c) and runs when that is waited for.
 *
 * What is wrong on a GPU and would go unseen is an error here, which ends the program:
 * a barrier that some threads of the block never reach, lanes of a warp that meet at
 * different places, a lane outside its mask.  Shared memory starts as NaN; the
 * environment's EMU_ORDER says in which order threads go on: 0 first to last, 1 last to
 * first, 2 and 3 the same with each warp as far as it can, others at random.  Under
 * ThreadSanitizer a missing barrier is a data race, under AddressSanitizer shared
 * memory ends where it ends.  EMU_WITHOUT=FILE:LINE passes the barrier there as if it
 * did not exist (barriers.sh). */
#ifndef TESTS_EMU_EMU_H
#define TESTS_EMU_EMU_H

#include <math.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct emu_dim {
    unsigned x, y, z;
};

struct emu_thread {
    struct emu_dim index;
    unsigned lane, warp;
};

#ifdef __cplusplus
extern "C" {
#endif

extern struct emu_thread *emu_now;
extern struct emu_dim emu_block, emu_block_size, emu_grid;

/* How a kernel is launched: bytes of shared memory of a block; EARLY: every thread must
 * call emu_others_ended. */
struct emu_how {
    size_t shared;
    int early;
};
/* Put RUN on a copy of CLOSURE into STREAM, once for each thread. */
void emu_launch(const char *kernel, void *stream, struct emu_dim grid,
                struct emu_dim block, struct emu_how how, void (*run)(void *),
                const void *closure, size_t size);
/* What emu_launch put there, now. */
void emu_run(const char *kernel, struct emu_dim grid, struct emu_dim block,
             struct emu_how how, void (*run)(void *), void *closure);
/* Blocks and threads that have run. */
unsigned long emu_blocks(void);

void emu_barrier(const char *where);
int emu_is_without(const char *where);
/* Lanes of MASK meet: what each has brought, until this one parts.  MEETING tells
 * emu_part which it was. */
struct emu_box {
    uint32_t word[6];
};
const struct emu_box *emu_meet(unsigned mask, const void *mine, size_t size,
                               unsigned *meeting, const char *where);
void emu_part(unsigned meeting);
/* Lanes of MASK meet: *out is what lane FROM brought, poison where it is none of them.
 * At most 16 bytes. */
void emu_warp(unsigned mask, const void *mine, size_t size, unsigned from, void *out,
              const char *where);
/* The block's SIZE bytes known as KEY. */
void *emu_shared(const void *key, size_t size);
/* The block's memory, of the size given at its launch. */
void *emu_shared_at_launch(void);
/* Copies of 16 bytes, which are made when this thread waits; TO is NaN until then. */
void emu_copy_start(void *to, const void *from);
void emu_copies_wait(void);
void emu_others_ended(void);
/* If not NULL: called with true when a block of an early kernel begins, and with false
 * when all of its threads have called emu_others_ended. */
extern void (*emu_shut)(bool shut);

#ifdef __cplusplus
}

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)

struct dim3 : emu_dim {
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : emu_dim{ a, b, c }
    {
    }
};

#define threadIdx (emu_now->index)
#define blockIdx  emu_block
#define blockDim  emu_block_size
#define gridDim   emu_grid

#define EMU_STRING2(x) #x
#define EMU_STRING(x)  EMU_STRING2(x)
#define EMU_AT         __FILE__ ":" EMU_STRING(__LINE__)

#define __syncthreads() emu_barrier(EMU_AT)
#define __syncwarp() \
    (emu_is_without(EMU_AT) ? (void)0 : (void)emu_shuffle(~0u, 0, 0, EMU_AT))

template <class T>
inline T emu_shuffle(unsigned mask, T v, unsigned from, const char *at)
{
    T out;

    emu_warp(mask, &v, sizeof(v), from & 31, &out, at);
    return out;
}

#define __shfl_sync(mask, v, from) emu_shuffle(mask, v, (unsigned)(from), EMU_AT)
#define __shfl_xor_sync(mask, v, bits) \
    emu_shuffle(mask, v, emu_now->lane ^ (unsigned)(bits), EMU_AT)

template <class F>
inline void emu_start(const char *kernel, dim3 grid, dim3 block, struct emu_how how,
                      void *stream, F f)
{
    emu_launch(
        kernel, stream, grid, block, how, [](void *p) { (*(F *)p)(); }, &f, sizeof(f));
}

#define SHARED(type, name, n)         \
    static const char name##_key = 0; \
    type *name = (type *)emu_shared(&name##_key, (n) * sizeof(type))
#define LAUNCH(kernel, grid, block, stream, ...) \
    emu_start(#kernel, grid, block, { 0, 0 }, stream, [=] { kernel(__VA_ARGS__); })
#define LAUNCH_EARLY(kernel, grid, block, stream, ...) \
    emu_start(#kernel, grid, block, { 0, 1 }, stream, [=] { kernel(__VA_ARGS__); })
#define SHARED_AT_LAUNCH(type, name) type *name = (type *)emu_shared_at_launch()
#define LAUNCH_SHARED(bytes, kernel, grid, block, stream, ...) \
    emu_start(#kernel, grid, block, { bytes, 0 }, stream, [=] { kernel(__VA_ARGS__); })

static inline unsigned __float_as_uint(float f)
{
    unsigned u;

    memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float __uint_as_float(unsigned u)
{
    float f;

    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline unsigned atomicAdd(unsigned *p, unsigned v)
{
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}

static inline void __threadfence()
{
}

static inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long v)
{
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}

struct float2 {
    float x, y;
};

/* as CUDA has it; newer C libraries have a function of that name */
#define rsqrt(x) (1 / sqrt(x))

struct uint2 {
    uint32_t x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};
struct ushort4 {
    unsigned short x, y, z, w;
};
struct float4 {
    float x, y, z, w;
};
#endif
#endif
