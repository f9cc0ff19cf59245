/* gpu - a table of accelerators
 *
 * Rates are for dense matrix products, without sparsity. */
#ifndef LIB_ESTIMATE_GPU_H
#define LIB_ESTIMATE_GPU_H

#include <stddef.h>
#include <stdint.h>

/* Data types of matrix products. */
enum gpu_rate { GPU_FP32, GPU_TF32, GPU_BF16, GPU_FP16, GPU_FP8, GPU_FP4, GPU_RATES };
extern const char *const gpu_rate_names[GPU_RATES + 1];

/* Flash attention's forward pass. */
struct gpu_attention {
    double share;      /* fraction of the 16-bit peak over very many keys */
    double start_keys; /* keys in the time that is lost for each row, */
    double edge_keys;  /* and more for each edge of a mask */
};

struct gpu {
    const char *name;         /* "h100-80g" */
    const char *product;      /* as nvidia-smi prints it, without the vendor */
    double memory_gib;        /* that a program can use: the driver's total */
    double tflops[GPU_RATES]; /* peaks, 1e12 FLOP/s; 0: type not supported */
    double achievable;        /* fraction of the peak that a large product reaches */
    struct gpu_attention attention; /* the newest kernel */
    double attention2;              /* share of FlashAttention-2 */
    double memory_rate;             /* bytes/s */
    double link_rate; /* bytes/s to another device of the node, one direction */
    double host_rate; /* bytes/s to the host, one direction */
    const char *source;
};

extern const struct gpu gpu_table[];
extern const size_t gpu_count;

/* The device called NAME: its name here or nvidia-smi's, with or without "NVIDIA", in
 * any case, with spaces, hyphens or underscores; NULL if there is none. */
const struct gpu *gpu_find(const char *name);
/* The devices whose names contain NAME, three letters at least ("a100", "4090"), to
 * OUT, which has room for gpu_count.  Returns their number. */
size_t gpu_matches(const struct gpu **out, const char *name);
/* The name nearest to NAME, for a suggestion. */
const char *gpu_nearest(const char *name);
/* The type that G uses instead of WANTED: fp16 if it has no bf16. */
enum gpu_rate gpu_rate_of(const struct gpu *g, enum gpu_rate wanted);
/* Fraction of G's peak RATE that a large product reaches. */
double gpu_share(const struct gpu *g, enum gpu_rate rate);
/* G's usable memory in bytes. */
uint64_t gpu_memory(const struct gpu *g);

#endif
