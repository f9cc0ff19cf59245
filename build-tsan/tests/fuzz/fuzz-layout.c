/* fuzz-layout - pipeline stages as text: Megatron's notation, and lists of numbers */
#include <stdint.h>
#include <stdlib.h>

#include "cmd/pp-partition/stages.h"
#include "lib/base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":16,\"num_hidden_layers\":8,"
    "\"num_attention_heads\":4,\"intermediate_size\":24,\"vocab_size\":32}";

static void choose(const struct model *m, const struct stage_options *o)
{
    struct err err = { 0 };
    int parts = 0, *stages;

    if (stages_choose(&stages, &parts, o, 1, m, &err) == 0) {
        int sum = 0;

        for (int s = 0; s < parts; s++)
            sum += stages[s];
        if (sum != model_layers(m)) /* what is taken must be all layers */
            abort();
        free(stages);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct model *m; /* opened once */
    char *text = xstrndup((const char *)data, size);
    struct err err = { 0 };

    if (!m && model_open(&m, "fuzz", config, NULL, NULL, &err) < 0)
        abort();
    for (int empty = 0; empty < 2; empty++) {
        choose(m, &(struct stage_options){ .layout = text, .empty = empty });
        choose(m, &(struct stage_options){ .stages = text, .empty = empty });
    }
    free(text);
    return 0;
}
