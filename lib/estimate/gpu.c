/* gpu - a table of accelerators
 *
 * Peak rates, memory rates and links: the makers' data sheets, as collected in Stas
 * Bekman's "Machine Learning Engineering" (compute/accelerator, network); products with
 * f32 sums, as training uses them.  Achievable fractions: its MAMF measurements (A100
 * 86.9 %, H100 80.3 %, B200 77.6 %, MI300X 51.4 %), 75 % for other devices.
 *
 * Attention in the forward pass, heads of 128, as fitted by eye to its authors'
 * figures: rate(keys) = share * keys / (keys + start), and where a mask cuts a row also
 * edge. FlashAttention-3 on an H100: 467, 565, 625, 638, 646 and 648 TFLOP/s for 512 to
 * 16,384 keys (Shah et al. 2024, figure 5); with a causal mask 107.8 for 126.2 of 2,048
 * on an H20 (flash-attention, issue 1310).  FlashAttention-2: 309 to 370 (the same
 * figure), 65.9 for 83.7 (the same issue); 73 % of an A100's peak (Dao 2023).
 * FlashAttention-4 on Blackwell: 1,540, 1,706, 1,796, 1,837 and 1,882 for 1,024 to
 * 16,384 keys, with a causal mask 829, 1,172 and 1,431 for 1,024 to 4,096
 * (flash-attention, pull request 2605); 1,605 of 2,250 on a B200 (Zadouri et al. 2026).
 * Other devices 84 % of what products reach, as on Ampere.  FlashAttention-2 has the
 * same number of TFLOP/s on Blackwell as on Hopper.
 *
 * Usable memory: the total that the driver reports.  An MI250X is two devices, each
 * with half of everything and a link to the other. */
#include "lib/estimate/gpu.h"

#include <ctype.h>
#include <string.h>

#include "lib/base/str.h"

#define G     1e9
#define PCIE3 (16 * G)
#define PCIE4 (31 * G)
#define PCIE5 (63 * G)

/* On an H100 large FP8 products reach two thirds of the peak, bf16 products 80 %
 * ("Machine Learning Engineering", MAMF). */
static const double NARROW_SHARE = 0.82;

static const char mle[] = "Machine Learning Engineering, compute/accelerator";
static const char sheet[] = "data sheet";

/* clang-format off */
/* The newest kernel of flash attention. */
#define OTHER     { .63, 100, 240 }
#define AMPERE    { .73, 100, 240 }
#define HOPPER    { .66, 200, 90 }
#define BLACKWELL { .71, 230, 420 }
#define CDNA3     { .43, 100, 240 }

const struct gpu gpu_table[] = {
    /* fp32, tf32, bf16, fp16, fp8, fp4 */
    { "t4", "Tesla T4", 14.6,
      { 8.1, 0, 0, 65, 0, 0 }, .75, OTHER, .63, 320 * G, PCIE3, PCIE3, sheet },
    { "p100-16g", "Tesla P100-SXM2-16GB", 15.9,
      { 10.6, 0, 0, 21.2, 0, 0 }, .75, OTHER, .63, 732 * G, 80 * G, PCIE3, sheet },
    { "v100-16g", "Tesla V100-SXM2-16GB", 15.8,
      { 15.7, 0, 0, 125, 0, 0 }, .75, OTHER, .63, 900 * G, 150 * G, PCIE3, sheet },
    { "v100-32g", "Tesla V100-SXM2-32GB", 31.7,
      { 15.7, 0, 0, 125, 0, 0 }, .75, OTHER, .63, 900 * G, 150 * G, PCIE3, mle },
    { "titan-rtx", "TITAN RTX", 23.65,
      { 16.3, 0, 0, 130.5, 0, 0 }, .75, OTHER, .63, 672 * G, 50 * G, PCIE3, sheet },
    { "a10", "A10", 22.1,
      { 31.2, 62.5, 125, 125, 0, 0 }, .75, OTHER, .63, 600 * G, PCIE4, PCIE4, sheet },
    { "a10g", "A10G", 22.1,
      { 35, 35, 70, 70, 0, 0 }, .75, OTHER, .63, 600 * G, PCIE4, PCIE4, sheet },
    { "a30", "A30", 23.6,
      { 10.3, 82, 165, 165, 0, 0 }, .75, OTHER, .63, 933 * G, 100 * G, PCIE4, sheet },
    { "a40", "A40", 44.5,
      { 37.4, 74.8, 149.7, 149.7, 0, 0 },
      .75, OTHER, .63, 696 * G, 56 * G, PCIE4, sheet },
    { "a5000", "RTX A5000", 23.6,
      { 27.8, 55.6, 111.1, 111.1, 0, 0 },
      .75, OTHER, .63, 768 * G, 56 * G, PCIE4, sheet },
    { "a6000", "RTX A6000", 47.5,
      { 38.7, 77.4, 154.8, 154.8, 0, 0 },
      .75, OTHER, .63, 768 * G, 56 * G, PCIE4, sheet },
    { "a100-40g", "A100-SXM4-40GB", 39.4,
      { 19.5, 156, 312, 312, 0, 0 }, .869, AMPERE, .73, 1555 * G, 300 * G, PCIE4, mle },
    { "a100-80g", "A100-SXM4-80GB", 79.15,
      { 19.5, 156, 312, 312, 0, 0 }, .869, AMPERE, .73, 2000 * G, 300 * G, PCIE4, mle },
    { "a100-80g-pcie", "A100 80GB PCIe", 79.15,
      { 19.5, 156, 312, 312, 0, 0 }, .869, AMPERE, .73, 1935 * G, PCIE4, PCIE4, sheet },
    { "rtx3090", "GeForce RTX 3090", 23.7,
      { 35.6, 35.6, 71, 71, 0, 0 }, .75, OTHER, .63, 936 * G, PCIE4, PCIE4, sheet },
    { "rtx4080", "GeForce RTX 4080", 15.7,
      { 48.7, 48.7, 97.5, 97.5, 194.9, 0 },
      .75, OTHER, .63, 717 * G, PCIE4, PCIE4, sheet },
    { "rtx4090", "GeForce RTX 4090", 23.6,
      { 82.6, 82.6, 165.2, 165.2, 330.3, 0 },
      .75, OTHER, .63, 1008 * G, PCIE4, PCIE4, sheet },
    { "rtx5070ti", "GeForce RTX 5070 Ti", 15.6,
      { 43.9, 43.9, 87.9, 87.9, 175.8, 703 },
      .75, OTHER, .63, 896 * G, PCIE5, PCIE5, sheet },
    { "rtx5080", "GeForce RTX 5080", 15.6,
      { 56.3, 56.3, 112.6, 112.6, 225.1, 900 },
      .75, OTHER, .63, 960 * G, PCIE5, PCIE5, sheet },
    { "rtx5090", "GeForce RTX 5090", 31.4,
      { 104.8, 104.8, 209.5, 209.5, 419, 1676 },
      .75, OTHER, .63, 1792 * G, PCIE5, PCIE5, sheet },
    { "rtx5000-ada", "RTX 5000 Ada Generation", 31.5,
      { 65.3, 130.6, 261.1, 261.1, 522.2, 0 },
      .75, OTHER, .63, 576 * G, PCIE4, PCIE4, sheet },
    { "rtx6000-ada", "RTX 6000 Ada Generation", 47.4,
      { 91.1, 182.1, 364.2, 364.2, 728.5, 0 },
      .75, OTHER, .63, 960 * G, PCIE4, PCIE4, sheet },
    { "rtxpro6000", "RTX PRO 6000 Blackwell Workstation Edition", 95,
      { 125, 251.9, 503.8, 503.8, 1007.6, 2015.2 },
      .75, OTHER, .63, 1792 * G, PCIE5, PCIE5, sheet },
    { "rtxpro6000-server", "RTX PRO 6000 Blackwell Server Edition", 95,
      { 120, 234, 468, 468, 936, 1872 },
      .75, OTHER, .63, 1597 * G, PCIE5, PCIE5, sheet },
    { "l4", "L4", 22,
      { 30.3, 60, 121, 121, 242, 0 }, .75, OTHER, .63, 300 * G, PCIE4, PCIE4, sheet },
    { "l40", "L40", 44.4,
      { 90.5, 90.5, 181, 181, 362, 0 }, .75, OTHER, .63, 864 * G, PCIE4, PCIE4, sheet },
    { "l40s", "L40S", 44.4,
      { 91.6, 183, 362, 362, 733, 0 }, .75, OTHER, .63, 864 * G, PCIE4, PCIE4, mle },
    { "h100-80g", "H100 80GB HBM3", 79.1,
      { 67, 494.5, 989, 989, 1979, 0 },
      .803, HOPPER, .38, 3350 * G, 450 * G, PCIE5, mle },
    { "h100-80g-pcie", "H100 PCIe", 79.1,
      { 51, 378, 756, 756, 1513, 0 }, .75, HOPPER, .38, 2000 * G, PCIE5, PCIE5, mle },
    { "h100-94g", "H100 NVL", 93.1,
      { 60, 417.5, 835, 835, 1671, 0 },
      .75, HOPPER, .38, 3900 * G, 300 * G, PCIE5, sheet },
    { "h800", "H800", 79.1,
      { 67, 494.5, 989, 989, 1979, 0 },
      .803, HOPPER, .38, 3350 * G, 200 * G, PCIE5, sheet },
    { "h20", "H20", 95.6,
      { 44, 74, 148, 148, 296, 0 },
      .803, HOPPER, .38, 4000 * G, 450 * G, PCIE5, sheet },
    { "h200", "H200", 139,
      { 67, 494.5, 989, 989, 1979, 0 },
      .803, HOPPER, .38, 4800 * G, 450 * G, PCIE5, mle },
    { "gh200-96g", "GH200 480GB", 94.5,
      { 67, 494.5, 989, 989, 1979, 0 },
      .803, HOPPER, .38, 4000 * G, 450 * G, 450 * G, sheet },
    { "b200", "B200", 178.3,
      { 75, 1125, 2250, 2250, 4500, 9000 },
      .776, BLACKWELL, .15, 8000 * G, 900 * G, PCIE5, mle },
    { "b300", "B300", 267,
      { 75, 1125, 2250, 2250, 4500, 13500 },
      .776, BLACKWELL, .15, 8000 * G, 900 * G, PCIE5, mle },
    { "gb200", "GB200", 184,
      { 80, 1250, 2500, 2500, 5000, 10000 },
      .776, BLACKWELL, .15, 8000 * G, 900 * G, 225 * G, sheet },
    { "gb300", "GB300", 275,
      { 80, 1250, 2500, 2500, 5000, 15000 },
      .776, BLACKWELL, .15, 8000 * G, 900 * G, 225 * G, sheet },
    { "mi250x", "AMD Instinct MI250X", 63.9,
      { 23.9, 0, 191.5, 191.5, 0, 0 }, .75, OTHER, .63, 1638 * G, 200 * G, PCIE4, mle },
    { "mi300x", "AMD Instinct MI300X", 191.9,
      { 163.4, 653.7, 1307.4, 1307.4, 2614.9, 0 },
      .514, CDNA3, .43, 5300 * G, 448 * G, PCIE5, mle },
    { "mi325x", "AMD Instinct MI325X", 255.9,
      { 163.4, 653.7, 1307.4, 1307.4, 2614.9, 0 },
      .514, CDNA3, .43, 6000 * G, 448 * G, PCIE5, mle },
    { "mi355x", "AMD Instinct MI355X", 287.9,
      { 157.3, 0, 2500, 2500, 5000, 10000 },
      .75, OTHER, .63, 8000 * G, 535 * G, PCIE5, mle },
};
/* clang-format on */
const size_t gpu_count = sizeof(gpu_table) / sizeof(*gpu_table);

/* TEXT's letters and digits in lower case, without the makers' names. */
static void simplify(char out[64], const char *text)
{
    static const char *const makers[] = { "nvidia", "amd", "instinct", "tesla",
                                          "geforce" };
    size_t n = 0;

    for (; *text && n < 63; text++) {
        char c = (char)tolower((unsigned char)*text);
        bool unit = c == 'b' && n > 1 && out[n - 1] == 'g' &&
                    isdigit((unsigned char)out[n - 2]); /* 80gb is 80g */

        if (isalnum((unsigned char)c) && !unit)
            out[n++] = c;
    }
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

const char *const gpu_rate_names[GPU_RATES + 1] = { "fp32", "tf32", "bf16", "fp16",
                                                    "fp8",  "fp4",  NULL };

enum gpu_rate gpu_rate_of(const struct gpu *g, enum gpu_rate wanted)
{
    if (wanted == GPU_BF16 && g->tflops[GPU_BF16] <= 0)
        return GPU_FP16;
    return wanted;
}

double gpu_share(const struct gpu *g, enum gpu_rate rate)
{
    return g->achievable * (rate >= GPU_FP8 ? NARROW_SHARE : 1);
}

uint64_t gpu_memory(const struct gpu *g)
{
    return (uint64_t)(g->memory_gib * 1024 * 1024 * 1024);
}
