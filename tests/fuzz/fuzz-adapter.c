/* fuzz-adapter - an adapter's config and, after a NUL, its safetensors */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fs.h"
#include "lib/base/output.h"
#include "lib/base/str.h"
#include "lib/run/adapter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char config[] =
    "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],"
    "\"vocab_size\":16,\"hidden_size\":8,\"intermediate_size\":12,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
    "\"max_position_embeddings\":16,\"rms_norm_eps\":1e-5}";

/* Reads the adapter in DIR, and one rank's shards of it. */
static void use(const char *dir)
{
    const struct program_options options = { .tail = TAIL_LOGITS };
    const int coord[MESH_NAXES] = { [MESH_TP] = 1 };
    const struct mesh mesh = { .size = { 2, 1, 1, 1, 1 }, .nranks = 2 };
    struct checkpoint c = { .home = dir };
    /* the last one acts on the texts that choose it */
    const struct adapter_spec spec[] = {
        { .dir = (char *)dir, .weight = 1 },
        { .dir = (char *)dir, .name = (char *)"b", .weight = 0.5 },
    };
    struct program *p;
    struct err err = { 0 };

    if (model_open(&c.model, "config.json", config, NULL, NULL, &err) < 0)
        abort();
    if (adapter_open(&c, &spec[0], &err) == 0 &&
        adapter_open(&c, &spec[1], &err) == 0) {
        if (program_build(&p, c.model, &mesh, coord, &options, &err) < 0)
            abort();
        for (int i = 0; i < p->nweights; i++) {
            const struct weight *w = &p->weight[i];
            float *to = malloc((size_t)(w->rows * w->cols) * sizeof(*to) + 1);

            if (w->adapter && to && adapter_load(c.adapter, p, w, to, &err) < 0 &&
                !strstr(err.text, " at ["))
                abort(); /* the header has checked the size of the file */
            free(to);
        }
        program_free(p);
    } else if (!err.kind) {
        abort();
    }
    adapter_close(c.adapter);
    model_free(c.model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "adapter_config.json",
                                         "adapter_model.safetensors" };
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n[2] = { end ? (size_t)(end - data) : size, 0 };
    const uint8_t *part[2] = { data, end ? end + 1 : data };
    char *dir = str_dupf("%s/fuzz-adapter.XXXXXX", base);

    n[1] = end ? size - n[0] - 1 : 0;
    if (mkdtemp(dir)) {
        for (int i = 0; i < 2; i++) {
            char *path = fs_join_dup(dir, names[i]);

            if (output_write(path, part[i], n[i], false, NULL) < 0)
                abort();
            free(path);
        }
        use(dir);
        for (int i = 0; i < 2; i++) {
            char *path = fs_join_dup(dir, names[i]);

            unlink(path);
            free(path);
        }
        rmdir(dir);
    }
    free(dir);
    return 0;
}
