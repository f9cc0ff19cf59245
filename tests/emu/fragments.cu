/* fragments - a warp's product and its loads of matrices, for given registers
 *
 * tests/unit-gpu.c fills the registers by the tables of the PTX ISA. */
#include "lib/gpu/mma.cuh"
#include "tests/emu/fragments.h"

/* Lane after lane: registers a [4], b [2] and d [4], which becomes that of the product,
 * and of the twin's; of four matrices, row after row, words [4], and of the transposed.
 */
static __global__ void fragments_kernel(struct fragments f)
{
    SHARED(uint4, tile, 4 * 64 / 8);
    uint16_t *matrices = (uint16_t *)tile;
    unsigned lane = threadIdx.x;
    uint32_t a[4], b[2], word[4];
    float d[4], twin[4];

    for (unsigned i = lane; i < 4 * 64; i += GPU_WARP)
        matrices[i] = f.matrices[i];
    /* the emulation orders this by the shuffles of mma_twin, a GPU does not */
    __syncthreads();
    for (unsigned i = 0; i < 4; i++) {
        a[i] = f.a[lane * 4 + i];
        d[i] = twin[i] = f.d[lane * 4 + i];
    }
    for (unsigned i = 0; i < 2; i++)
        b[i] = f.b[lane * 2 + i];
    mma(d, a, b);
    mma_twin(twin, a, b);
    for (unsigned i = 0; i < 4; i++) {
        f.d[lane * 4 + i] = d[i];
        f.twin[lane * 4 + i] = twin[i];
    }
    load_matrices<false>(word, matrices, lane * 8);
    for (unsigned i = 0; i < 4; i++)
        f.plain[lane * 4 + i] = word[i];
    load_matrices<true>(word, matrices, lane * 8);
    for (unsigned i = 0; i < 4; i++)
        f.transposed[lane * 4 + i] = word[i];
}

extern "C" void fragments_launch(struct fragments f, void *stream)
{
    LAUNCH(fragments_kernel, 1, GPU_WARP, stream, f);
}
