/* gpus - lists the known devices */
#include <stdio.h>
#include <stdlib.h>

#include "cmd/mem-estimate/mem-estimate.h"
#include "cmd/table.h"
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

static void print_table(void)
{
    static const struct column columns[] = {
        { "NAME", 0, 18, false, 0, false },  { "MEMORY", 1, 10, true, 0, false },
        { "fp32", 1, 7, true, 2, false },    { "tf32", 1, 7, true, 6, false },
        { "16 bits", 1, 7, true, 0, false }, { "fp8", 1, 7, true, 3, false },
        { "fp4", 1, 7, true, 5, false },     { "GB/s", 1, 9, true, 1, false },
        { "LINK", 1, 6, true, 4, false },    { "HOST", 1, 6, true, 7, false },
    };
    struct table *t = table_new(columns, sizeof(columns) / sizeof(*columns));

    for (size_t i = 0; i < gpu_count; i++) {
        const struct gpu *g = &gpu_table[i];

        table_add(t, g->name);
        table_addf(t, "%.1f GiB", g->memory_gib);
        table_addf(t, "%g", g->tflops[GPU_FP32]);
        table_addf(t, "%g", g->tflops[GPU_TF32]);
        table_addf(t, "%g", g->tflops[gpu_rate_of(g, GPU_BF16)]);
        table_addf(t, "%g", g->tflops[GPU_FP8]);
        table_addf(t, "%g", g->tflops[GPU_FP4]);
        table_addf(t, "%.0f", g->memory_rate / 1e9);
        table_addf(t, "%.0f", g->link_rate / 1e9);
        table_addf(t, "%.0f", g->host_rate / 1e9);
    }
    table_print(t);
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
    for (size_t i = 0; json && i < gpu_count; i++)
        print_json(&gpu_table[i]);
    if (!json)
        print_table();
    return cmd_finish(&cmd, EXIT_SUCCESS);
}
