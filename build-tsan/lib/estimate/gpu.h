/* gpu - what is known of the devices that people have
 *
 * Memory is what the driver reports, usable memory what a program can have of it.
 * Rates are of dense bf16 products (f16 where there is no bf16), without sparsity. */
#ifndef LIB_ESTIMATE_GPU_H
#define LIB_ESTIMATE_GPU_H

#include <stddef.h>
#include <stdint.h>

struct gpu {
    const char *name;    /* "h100-80g" */
    const char *product; /* as nvidia-smi has it, without the vendor */
    double memory_gib;   /* usable */
    double tflops;       /* peak, 1e12 FLOP/s */
    double achievable;   /* share of the peak that a large product reaches */
    double attention;    /* and that attention reaches, going forward */
    double memory_rate;  /* bytes/s */
    double link_rate;    /* bytes/s to another device of the node, one way */
    double host_rate;    /* bytes/s to the host, one way */
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
/* Its usable memory in bytes. */
uint64_t gpu_memory(const struct gpu *g);

#endif
