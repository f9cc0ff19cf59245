/* fuzz-costs - files of what layers cost, for --balance: numbers, or measured times */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmd/pp-partition/stages.h"
#include "lib/base/fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":16,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":4,\"intermediate_size\":24,\"vocab_size\":32}";

static void use(const struct model *m, const char *path)
{
    const struct stage_options o = { .pp = 2 };
    struct stage_costs costs = { 0 };
    int parts = 0, *stages;
    struct err err = { 0 };

    if (stage_costs(&costs, m, path, &err) < 0)
        return;
    for (int i = 0; i < costs.nlayers + 2; i++)
        if (!(costs.exact[i] >= 0 && isfinite(costs.exact[i])))
            abort();
    if (stages_choose(&stages, &parts, &o, 1, m, &costs, &err) == 0)
        free(stages);
    stage_costs_clear(&costs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct model *m; /* opened once */
    char path[64] = "/tmp/fuzz-costs.XXXXXX";
    struct err err = { 0 };
    int fd;

    if (!m && model_open(&m, "fuzz", config, NULL, NULL, &err) < 0)
        abort();
    if (access("/dev/shm", W_OK) == 0)
        snprintf(path, sizeof(path), "/dev/shm/fuzz-costs.XXXXXX");
    fd = mkstemp(path);
    if (fd < 0)
        return 0;
    if (fs_write(fd, data, size, path, NULL) == 0)
        use(m, path);
    close(fd);
    unlink(path);
    return 0;
}
