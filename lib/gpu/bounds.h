/* bounds - what kernels take beside their operands, at most
 *
 * The kernels (*.cu), the backend and predictions without a GPU share these formulas.
 * Of the GPU they depend on nothing but facts in struct gpu_facts.  Results are bytes
 * unless it is said otherwise. */
#ifndef LIB_GPU_BOUNDS_H
#define LIB_GPU_BOUNDS_H

#include "lib/gpu/gpu.h"

/* What of a GPU and its libraries the bounds depend on. */
struct gpu_facts {
    bool bf16; /* tensor cores multiply bf16 */
    bool blas; /* cuBLASLt is there */
};

/* The tests' emulation has smaller blocks, and so divides work also of small models. */
#ifdef GPU_EMULATED
enum { GPU_STATS_THREADS = 64, GPU_KEY_CHUNK = 16 };
enum { GPU_MOST_TILES = 1 << 16, GPU_MOST_PARTS = 1 << 13 };
#else
enum { GPU_STATS_THREADS = 256, GPU_KEY_CHUNK = 128 };
enum { GPU_MOST_TILES = 1 << 28, GPU_MOST_PARTS = 1 << 28 };
#endif

/* ---- attention ---- */

/* attention.cu: queries of a text from which on tiles are used, and columns of a head
 * up to which. */
enum { GPU_MANY = 8, GPU_TILED_DIM = 128 };

/* cores.cu: keys of a tile, and numbers of 16 bits of it: of keys and of values, in
 * PARTS parts of up to DIM columns. */
#define GPU_TILE_KEYS(dim, parts)     ((parts) == 1 ? 64 : (dim) <= 64 ? 32 : 16)
#define GPU_TILE_ELEMENTS(dim, parts) (2 * (parts)*GPU_TILE_KEYS(dim, parts) * (dim))

/* Columns of a head in a tile, and parts of a number. */
static inline uint64_t gpu_tile_dim(const struct attention *a)
{
    return a->head_dim <= 64 && a->value_dim <= 64 ? 64 : 128;
}

static inline uint64_t gpu_tile_parts(const struct attention *a)
{
    return a->rounded ? 1 : 2;
}

/* The keys and values of one head of a text of KEYS, as tiles. */
static inline uint64_t gpu_tiles_of_head(const struct attention *a, uint64_t keys)
{
    uint64_t dim = gpu_tile_dim(a), parts = gpu_tile_parts(a);
    uint64_t each = GPU_TILE_KEYS(dim, parts);

    return (keys + each - 1) / each * GPU_TILE_ELEMENTS(dim, parts) * 2;
}

/* chunks.cu: numbers before the values of a chunk, and numbers of a chunk. */
enum { GPU_TOTALS = 4 };

static inline uint64_t gpu_chunk_numbers(const struct attention *a)
{
    return (a->value_dim + 3) / 4 * 4 + GPU_TOTALS;
}

static inline uint64_t gpu_key_chunks(uint64_t keys)
{
    return (keys + GPU_KEY_CHUNK - 1) / GPU_KEY_CHUNK;
}

/* N pieces of EACH: all, or as many as MOST has room for, but one at least. */
static inline uint64_t gpu_at_a_time(uint64_t each, uint64_t n, uint64_t most)
{
    uint64_t all = each * n;

    most = each > most ? each : most;
    return all < most ? all : most;
}

/* Attention of at most TEXTS of at most ROWS queries and KEYS takes at most this. */
static inline uint64_t gpu_attention_most(const struct attention *a, uint64_t texts,
                                          uint64_t rows, uint64_t keys)
{
    bool tiles = a->narrow && rows >= GPU_MANY && a->head_dim <= GPU_TILED_DIM &&
                 a->value_dim <= GPU_TILED_DIM;
    uint64_t laid = tiles ? gpu_at_a_time(gpu_tiles_of_head(a, keys),
                                          texts * a->kv_heads, GPU_MOST_TILES)
                          : 0;
    uint64_t parts = gpu_at_a_time(a->heads * gpu_key_chunks(keys) *
                                       gpu_chunk_numbers(a) * sizeof(float),
                                   texts * rows, GPU_MOST_PARTS);

    return laid > parts ? laid : parts;
}

/* ---- statistics of rows (result.cu) ---- */

/* Numbers that a chunk gives; quads of columns of a thread; columns of a chunk. */
enum {
    GPU_STATS_PART = 3,
    GPU_STATS_KEPT = 2,
    GPU_STATS_CHUNK = GPU_STATS_THREADS * GPU_STATS_KEPT * 4
};

/* Numbers (f64). */
static inline uint64_t gpu_row_stats_part(uint64_t rows, uint64_t cols)
{
    return rows * ((cols + GPU_STATS_CHUNK - 1) / GPU_STATS_CHUNK) * GPU_STATS_PART;
}

/* ---- products by cuBLASLt (blas.c) ---- */

enum {
    GPU_BLAS_WORKSPACE = 32 << 20, /* bytes that cuBLAS recommends for newer GPUs */
    GPU_BLAS_ALIGN = 16,
    GPU_BLAS_OWN = 8,           /* rows up to which our own kernels are faster */
    GPU_BLAS_FACTORS = 4 << 10, /* bytes, for the factors of gpu_split_f16 */
};

static inline bool gpu_blas_aligned(const void *p, uint64_t stride, uint64_t unit)
{
    return (uintptr_t)p % GPU_BLAS_ALIGN == 0 && stride * unit % GPU_BLAS_ALIGN == 0;
}

/* Could P be made by it, if its pointers are aligned?  Our own kernels read the weights
 * once for few rows, but are bound by reading x for more; cuBLASLt reads the weights
 * once for each of x's parts.  Tensor cores multiply few rows elsewhere
 * (gpu_is_skinny). */
static inline bool gpu_blas_serves(const struct products *p)
{
    uint64_t unit = p->format == FORMAT_F32 ? 4 : 2;

    return !p->rows.expert && p->n == 1 && p->rows.most > GPU_BLAS_OWN && p->in &&
           gpu_blas_aligned(NULL, p->w_stride, unit) &&
           gpu_blas_aligned(NULL, p->x_stride, unit);
}

/* Parts of x in 16 bits, unless it is in 16 bits. */
static inline uint64_t gpu_blas_parts(const struct products *p)
{
    return p->format == FORMAT_F32 || p->bf16 ? 0 : p->rounded ? 1 : 2;
}

/* Bytes for them. */
static inline uint64_t gpu_blas_bytes(const struct products *p)
{
    uint64_t parts = gpu_blas_parts(p);

    return parts ? GPU_BLAS_FACTORS + parts * p->rows.most * p->in * 2 : 0;
}

/* ---- products of few rows (skinny.cu) ---- */

/* Rows from which on x is split before the product, and not by each warp. */
enum { GPU_SPLIT_ROWS = 5 };

/* Bytes for the parts of P's x, of which there are up to GPU_SKINNY rows. */
static inline uint64_t gpu_skinny_parts(const struct products *p)
{
    uint64_t rows =
        p->rows.most < (uint64_t)GPU_SKINNY ? p->rows.most : (uint64_t)GPU_SKINNY;

    return rows < GPU_SPLIT_ROWS || p->rows.expert || p->plain || p->bf16 ||
                   (p->rounded && p->format != FORMAT_F16) || p->format == FORMAT_F32
               ? 0
               : rows * p->x_stride * 4;
}

#endif
