/* gpus - list the devices that are known */
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
    str_addf(&s, ",\"memory\":%llu,\"flops\":%.0f,\"achievable\":%g",
             (unsigned long long)gpu_memory(g), g->tflops * 1e12, g->achievable);
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
        printf("%-14s %-22s %10s %9s %9s %9s %9s\n", "NAME", "PRODUCT", "MEMORY",
               "TFLOP/s", "GB/s", "LINK", "HOST");
    for (size_t i = 0; i < gpu_count; i++) {
        const struct gpu *g = &gpu_table[i];

        if (json)
            print_json(g);
        else
            printf("%-14s %-22s %6.1f GiB %9g %9.0f %9.0f %9.0f\n", g->name, g->product,
                   g->memory_gib, g->tflops, g->memory_rate / 1e9, g->link_rate / 1e9,
                   g->host_rate / 1e9);
    }
    return cmd_finish(&cmd, EXIT_SUCCESS);
}
