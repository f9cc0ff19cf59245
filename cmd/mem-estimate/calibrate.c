/* calibrate - fits a device's rates to measurements */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/mem-estimate/mem-estimate.h"
#include "lib/base/mem.h"
#include "lib/base/output.h"
#include "lib/estimate/measured.h"

/* Prints measured and predicted times for each file. */
static void print_files(const struct measured *m, const struct calibration *c,
                        char *const *path, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int token = 0; token < 2; token++) {
            double seconds = 0, told = measured_seconds(m, &c[i], token);
            char *line;

            for (int k = 0; k < c[i].nlayers + 2; k++)
                seconds += token ? c[i].part[k].decode : c[i].part[k].prefill;
            line = token ? xstrdup("a token")
                         : str_dupf("%" PRIu64 " tokens", c[i].tokens);
            printf("%-12s %10.4g ms measured %10.4g ms predicted %+6.1f %%  ", line,
                   1e3 * seconds, 1e3 * told,
                   100 * (seconds > 0 ? told / seconds - 1 : 0));
            cmd_puts(path[i]);
            free(line);
        }
}

static void print_rates(const struct measured *m)
{
    char size[32];

    for (int k = 0; k < GPU_RATES; k++)
        if (m->product[k] > 0)
            printf("products     %10.4g GFLOP/s of %s\n", m->product[k] / 1e9,
                   gpu_rate_names[k]);
    printf("attention    %10.4g GFLOP/s\n", m->attention / 1e9);
    printf("weights      %10.4g GB/s\n", m->weights / 1e9);
    printf("values       %10.4g GB/s\n", m->values / 1e9);
    printf("instruction  %10.4g us\n", 1e6 * m->instruction);
    if (m->backward > 0)
        printf("backward     %10.4g times what these rates say\n", m->backward);
    if (m->reverse > 0)
        printf("reverse      %10.4g times what its operations say\n", m->reverse);
    if (m->link > 0)
        printf("messages     %10.4g GB/s, %.4g us\n", m->link / 1e9, 1e6 * m->latency);
    printf("memory       %14s\n", str_human(size, m->memory));
}

int calibrate_main(const char *program, int argc, char **argv)
{
    const char *out = NULL, *name = NULL;
    uint64_t memory = 0;
    bool json = false;
    const struct opt opts[] = {
        { OPT_STRING, 'o', "output", &out, "FILE", "write the device for --gpu-file",
          NULL, NULL },
        { OPT_STRING, '\0', "name", &name, "NAME", "what it is called", NULL, NULL },
        { OPT_SIZE, '\0', "gpu-mem", &memory, "SIZE",
          "its memory (default: that of the machine)", NULL, NULL },
        { OPT_FLAG, '\0', "json", &json, NULL, "print the device as JSON", NULL, NULL },
        { .type = OPT_END },
    };
    const struct cmd cmd = {
        .name = "calibrate",
        .program = program,
        .synopsis = "[OPTION]... BENCH...",
        .summary = "Make a device of what 'tp-run bench -o BENCH' has measured",
        .opts = opts,
        .min_args = 1,
        .max_args = -1,
    };
    char **path = cmd_parse(&cmd, argc, argv);
    struct calibration *c;
    struct measured m;
    struct str text = { 0 };
    struct err err = { 0 };
    size_t n = 0, read = 0;
    int ret = -1;

    while (path[n])
        n++;
    if (name && !measured_may_be_called(name))
        return cmd_usage(&cmd, "--name: no line of 1 to %zu bytes", sizeof(m.name) - 1);
    if (memory && memory < 1 << 20)
        return cmd_usage(&cmd, "--gpu-mem: %" PRIu64 " bytes are less than 1 MiB",
                         memory);
    c = xcalloc(n, sizeof(*c));
    for (; read < n; read++)
        if (calibration_read(&c[read], path[read], &err) < 0)
            goto out;
    if (measured_fit(&m, c, (const char *const *)path, n, &err) < 0)
        goto out;
    if (name)
        snprintf(m.name, sizeof(m.name), "%s", name);
    m.memory = memory ? memory : m.memory;
    if (!m.memory) {
        err_set(&err, ERR_USAGE,
                "--gpu-mem is missing: %s was measured on a GPU and has no memory size",
                path[0]);
        goto out;
    }
    measured_print(&text, &m);
    if (out && output_write(out, text.s, text.len, false, &err) < 0)
        goto out;
    if (json)
        fputs(text.s, stdout);
    if (!json && !(out && !strcmp(out, "-"))) {
        print_rates(&m);
        print_files(&m, c, path, n);
    }
    ret = 0;
out:
    for (size_t i = 0; i < read; i++)
        calibration_clear(&c[i]);
    free(c);
    str_clear(&text);
    return ret < 0 ? cmd_fail(&cmd, &err) : cmd_finish(&cmd, EXIT_SUCCESS);
}
