/* gpu - what is known of the devices that people have
 *
 * Peak rates, memory rates and links: the makers' data sheets, as collected in Stas
 * Bekman's "Machine Learning Engineering" (compute/accelerator, network).  Achievable
 * shares: its MAMF measurements where there is one (A100 86.9 %, H100 80.3 %, B200
 * 77.6 %, MI300X 51.4 %), 75 % where there is none.  Attention: FlashAttention-2 as its
 * author measured it (Dao 2023), 73 % on an A100, and on an H100, whose own
 * instructions it does not use, 335 TFLOP/s there and back, which are 38 % there;
 * elsewhere 84 % of what products reach, as on the A100.  Usable memory: what the
 * driver reports as the device's total. */
#include "lib/estimate/gpu.h"

#include <ctype.h>
#include <string.h>

#include "lib/base/str.h"

#define G     1e9
#define PCIE3 (16 * G)
#define PCIE4 (31 * G)
#define PCIE5 (63 * G)

static const char mle[] = "Machine Learning Engineering, compute/accelerator";
static const char sheet[] = "data sheet";

const struct gpu gpu_table[] = {
    { "t4", "Tesla T4", 14.6, 65, .75, .63, 320 * G, PCIE3, PCIE3, sheet },
    { "p100-16g", "Tesla P100-SXM2-16GB", 15.9, 21.2, .75, .63, 732 * G, 80 * G, PCIE3,
      sheet },
    { "v100-16g", "Tesla V100-SXM2-16GB", 15.8, 125, .75, .63, 900 * G, 150 * G, PCIE3,
      sheet },
    { "v100-32g", "Tesla V100-SXM2-32GB", 31.7, 125, .75, .63, 900 * G, 150 * G, PCIE3,
      mle },
    { "a10", "A10", 22.1, 125, .75, .63, 600 * G, PCIE4, PCIE4, sheet },
    { "a10g", "A10G", 22.1, 125, .75, .63, 600 * G, PCIE4, PCIE4, sheet },
    { "a30", "A30", 23.6, 165, .75, .63, 933 * G, 100 * G, PCIE4, sheet },
    { "a40", "A40", 44.5, 149.7, .75, .63, 696 * G, 56 * G, PCIE4, sheet },
    { "a6000", "RTX A6000", 47.5, 154.8, .75, .63, 768 * G, 56 * G, PCIE4, sheet },
    { "a100-40g", "A100-SXM4-40GB", 39.4, 312, .869, .73, 1555 * G, 300 * G, PCIE4,
      mle },
    { "a100-80g", "A100-SXM4-80GB", 79.15, 312, .869, .73, 2000 * G, 300 * G, PCIE4,
      mle },
    { "a100-80g-pcie", "A100 80GB PCIe", 79.15, 312, .869, .73, 1935 * G, PCIE4, PCIE4,
      sheet },
    { "rtx3090", "GeForce RTX 3090", 23.7, 71, .75, .63, 936 * G, PCIE4, PCIE4, sheet },
    { "rtx4090", "GeForce RTX 4090", 23.6, 165.2, .75, .63, 1008 * G, PCIE4, PCIE4,
      sheet },
    { "rtx5090", "GeForce RTX 5090", 31.4, 209.5, .75, .63, 1792 * G, PCIE5, PCIE5,
      sheet },
    { "l4", "L4", 22.0, 121, .75, .63, 300 * G, PCIE4, PCIE4, sheet },
    { "l40", "L40", 44.4, 181, .75, .63, 864 * G, PCIE4, PCIE4, sheet },
    { "l40s", "L40S", 44.4, 362, .75, .63, 864 * G, PCIE4, PCIE4, mle },
    { "h100-80g", "H100 80GB HBM3", 79.1, 989, .803, .38, 3350 * G, 450 * G, PCIE5,
      mle },
    { "h100-80g-pcie", "H100 PCIe", 79.1, 756, .75, .38, 2000 * G, PCIE5, PCIE5, mle },
    { "h100-94g", "H100 NVL", 93.1, 835, .75, .38, 3900 * G, 300 * G, PCIE5, sheet },
    { "h200", "H200", 139.0, 989, .803, .38, 4800 * G, 450 * G, PCIE5, mle },
    { "gh200-96g", "GH200 480GB", 94.5, 989, .803, .38, 4000 * G, 450 * G, 450 * G,
      sheet },
    { "b200", "B200", 178.3, 2250, .776, .65, 8000 * G, 900 * G, PCIE5, mle },
    { "b300", "B300", 267.0, 2250, .776, .65, 8000 * G, 900 * G, PCIE5, mle },
    { "mi250x", "AMD Instinct MI250X", 127.9, 383, .75, .63, 3280 * G, 350 * G, PCIE4,
      mle },
    { "mi300x", "AMD Instinct MI300X", 191.9, 1300, .514, .43, 5300 * G, 448 * G, PCIE5,
      mle },
    { "mi325x", "AMD Instinct MI325X", 255.9, 1300, .514, .43, 6000 * G, 448 * G, PCIE5,
      mle },
    { "mi355x", "AMD Instinct MI355X", 287.9, 2500, .75, .63, 8000 * G, 535 * G, PCIE5,
      mle },
};
const size_t gpu_count = sizeof(gpu_table) / sizeof(*gpu_table);

/* The letters and digits of TEXT in small letters, the makers' names left out. */
static void simplify(char out[64], const char *text)
{
    static const char *const makers[] = { "nvidia", "amd", "instinct", "tesla",
                                          "geforce" };
    size_t n = 0;

    for (; *text && n < 63; text++)
        if (isalnum((unsigned char)*text))
            out[n++] = (char)tolower((unsigned char)*text);
    out[n] = '\0';
    for (size_t i = 0; i < sizeof(makers) / sizeof(*makers); i++)
        if (str_starts(out, makers[i]))
            memmove(out, out + strlen(makers[i]), strlen(out + strlen(makers[i])) + 1);
}

const struct gpu *gpu_find(const char *name)
{
    char wanted[64], product[64], short_name[64];

    simplify(wanted, name);
    for (size_t i = 0; i < gpu_count; i++) {
        simplify(product, gpu_table[i].product);
        simplify(short_name, gpu_table[i].name);
        if (!strcmp(wanted, product) || !strcmp(wanted, short_name))
            return &gpu_table[i];
    }
    return NULL;
}

size_t gpu_matches(const struct gpu **out, const char *name)
{
    char wanted[64], product[64], short_name[64];
    size_t n = 0;

    simplify(wanted, name);
    for (size_t i = 0; i < gpu_count && strlen(wanted) > 2; i++) {
        simplify(product, gpu_table[i].product);
        simplify(short_name, gpu_table[i].name);
        if (strstr(product, wanted) || strstr(short_name, wanted))
            out[n++] = &gpu_table[i];
    }
    return n;
}

const char *gpu_nearest(const char *name)
{
    size_t best = SIZE_MAX;
    const char *nearest = gpu_table[0].name;
    char wanted[64], product[64], short_name[64];

    simplify(wanted, name);
    for (size_t i = 0; i < gpu_count; i++) {
        size_t d, of_product;

        simplify(product, gpu_table[i].product);
        simplify(short_name, gpu_table[i].name);
        d = strstr(short_name, wanted) ? 0 : str_distance(wanted, short_name);
        of_product = str_distance(wanted, product);
        d = of_product < d ? of_product : d;
        if (d < best) {
            best = d;
            nearest = gpu_table[i].name;
        }
    }
    return nearest;
}

uint64_t gpu_memory(const struct gpu *g)
{
    return (uint64_t)(g->memory_gib * 1024 * 1024 * 1024);
}
