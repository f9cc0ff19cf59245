/* gpu - what is known of the devices that people have
 *
 * Memory is what the driver reports, usable memory what a program can have of it.
 * Rates are of dense products, without sparsity. */
#ifndef LIB_ESTIMATE_GPU_H
#define LIB_ESTIMATE_GPU_H

#include <stddef.h>
#include <stdint.h>

/* Types of products. */
enum gpu_rate { GPU_FP32, GPU_TF32, GPU_BF16, GPU_FP16, GPU_FP8, GPU_FP4, GPU_RATES };
extern const char *const gpu_rate_names[GPU_RATES + 1];

struct gpu {
    const char *name;         /* "h100-80g" */
    const char *product;      /* as nvidia-smi has it, without the vendor */
    double memory_gib;        /* usable */
    double tflops[GPU_RATES]; /* peaks, 1e12 FLOP/s; 0: it has no such products */
    double achievable;        /* share of the peak that a large product reaches */
    double attention;   /* share of the peak in 16 bits that attention reaches, going
                           forward */
    double attention2;  /* and with FlashAttention-2 */
    double memory_rate; /* bytes/s */
    double link_rate;   /* bytes/s to another device of the node, one way */
    double host_rate;   /* bytes/s to the host, one way */
    const char *source;
};

extern const struct gpu gpu_table[];
extern const size_t gpu_count;

/* The device called NAME: ours, nvidia-smi's product name with or without "NVIDIA", in
 * any case and with spaces, hyphens or underscores; NULL when there is none. */
const struct gpu *gpu_find(const char *name);
/* The devices in whose names NAME, of three letters at least, occurs ("a100", "4090"):
 * *out has room for gpu_count.  Returns how many. */
size_t gpu_matches(const struct gpu **out, const char *name);
/* The name nearest to NAME, for "did you mean". */
const char *gpu_nearest(const char *name);
/* The type that takes the place of WANTED on G: f16 where there is no bf16. */
enum gpu_rate gpu_rate_of(const struct gpu *g, enum gpu_rate wanted);
/* Share of G's peak RATE that a large product reaches. */
double gpu_share(const struct gpu *g, enum gpu_rate rate);
/* Its usable memory in bytes. */
uint64_t gpu_memory(const struct gpu *g);

#endif
