/* gpus - lists the known devices */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/mem-estimate/mem-estimate.h"
#include "lib/base/str.h"
#include "lib/estimate/gpu.h"

static void print_json(const struct gpu *g)
{
    struct str s = { 0 };

    str_add(&s, "{\"type\":\"gpu\",\"name\":");
    str_add_json(&s, g->name);
    str_add(&s, ",\"product\":");
    str_add_json(&s, g->product);
    str_addf(&s, ",\"memory\":%llu,\"flops\":%.0f,\"achievable\":%g,\"rates\":{",
             (unsigned long long)gpu_memory(g),
             g->tflops[gpu_rate_of(g, GPU_BF16)] * 1e12, g->achievable);
    for (int k = 0; k < GPU_RATES; k++)
        str_addf(&s, "%s\"%s\":%.0f", k ? "," : "", gpu_rate_names[k],
                 g->tflops[k] * 1e12);
    str_addc(&s, '}');
    str_addf(&s, ",\"memory_rate\":%.0f,\"link_rate\":%.0f,\"host_rate\":%.0f",
             g->memory_rate, g->link_rate, g->host_rate);
    str_add(&s, ",\"source\":");
    str_add_json(&s, g->source);
    str_addc(&s, (char)125);
    puts(str_text(&s));
    str_clear(&s);
}

int gpus_main(const char *program, int argc, char **argv)
{
    bool json = false;
    const struct opt opts[] = {
        { OPT_FLAG, '\0', "json", &json, NULL, "print JSON, one object a line", NULL,
          NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "gpus",
        .program = program,
        .synopsis = "[OPTION]...",
        .summary = "List the devices that are known, with usable memory and rates",
        .opts = opts,
    };

    cmd_parse(&cmd, argc, argv);
    if (!json)
        printf("%-18s %10s %7s %7s %7s %7s %7s %9s %6s %6s\n", "NAME", "MEMORY", "fp32",
               "tf32", "16 bits", "fp8", "fp4", "GB/s", "LINK", "HOST");
    for (size_t i = 0; i < gpu_count; i++) {
        const struct gpu *g = &gpu_table[i];

        if (json)
            print_json(g);
        else
            printf("%-18s %6.1f GiB %7g %7g %7g %7g %7g %9.0f %6.0f %6.0f\n", g->name,
                   g->memory_gib, g->tflops[GPU_FP32], g->tflops[GPU_TF32],
                   g->tflops[gpu_rate_of(g, GPU_BF16)], g->tflops[GPU_FP8],
                   g->tflops[GPU_FP4], g->memory_rate / 1e9, g->link_rate / 1e9,
                   g->host_rate / 1e9);
    }
    return cmd_finish(&cmd, EXIT_SUCCESS);
}
